# For the tests that boot stock kernels; read with `.` from the top of the repository.
#
# A test queues jobs, small scripts of which each boots a guest, and then runs all of them in two
# lines side by side: directly where /dev/kvm is native, elsewhere in one boot of the lab for each
# line.
# Each job leaves NAME.out, NAME.err and NAME.code in the work directory, which the test then
# looks at. Results go to standard output as TAP, everything else to standard error.
#
#	guests_begin NAME          makes $work, below build; skips everything when parts are missing
#	job LINE NAME <<'END'      queues a script; LINE is 1 or 2; it runs in $work and sees what
#	                           is listed below
#	run_jobs [together]        runs what is queued; together: both lines in one lab
#	is, holds, lacks, shares, word, per_mille, at_least, skip, guests_end    results
#
# A job sees: $guestprof; boot ARGUMENTS..., which is `guestprof record` without sampling, with a
# timeout and without input; $kernels, $initrds and $elf (directories); wait_for TEXT FILE [PID].
# shellcheck shell=sh

guestprof=${GUESTPROF:-$PWD/build/guestprof}
case $guestprof in /*) ;; *) guestprof=$PWD/$guestprof ;; esac
inspect=${guestprof%/*}/tests/lab/inspect_trace
top=$PWD
kernels=$top/build/kernels
parts=$top/build/test-parts
# What the tests call them: a package of a kernel each.
KERNELS=${KERNELS:-6.1=linux-image-amd64 6.1-cloud=linux-image-cloud-amd64
	6.12=linux-image-6.12-amd64 6.12-cloud=linux-image-6.12-cloud-amd64}
count=0

skip_all() {
	echo "1..0 # SKIP $1"
	exit 0
}

package_of() {
	for pair in $KERNELS; do
		[ "${pair%%=*}" != "$1" ] || echo "${pair#*=}"
	done
}

guests_begin() {
	floor=${GUESTPROF_FLOOR:-$("$guestprof" doctor --floor)}
	if [ "$floor" != native ]; then
		command -v qemu-system-x86_64 >/dev/null ||
			skip_all "no native /dev/kvm and no qemu-system-x86_64 (Debian package qemu-system-x86)"
		"$guestprof" lab --setup >&2 ||
			skip_all "no native /dev/kvm, and the lab's parts cannot be had here"
	fi
	for pair in $KERNELS; do
		"$guestprof" lab --fetch "${pair#*=}" "$kernels/${pair#*=}" >&2 ||
			skip_all "the kernel ${pair#*=} cannot be had here"
	done
	make_parts || skip_all "the tests' initramfs cannot be made here"
	work=$(mktemp -d "$top/build/$1.XXXXXX")
	trap '[ -n "${KEEP-}" ] || rm -rf "$work"' EXIT
	cat >"$work/job-head" <<-END
		floor=$floor
		guestprof='$guestprof' kernels='$parts/kernels' initrds='$parts/initrds' elf='$parts/elf'
		parts='$parts'
		cd '$work' || exit 1
	END
	cat >>"$work/job-head" <<-'END'
		boot() {
			"$guestprof" record -F 0 --timeout 400 "$@"
		}
		wait_for() {
			tries=0
			while [ $tries -lt 1500 ]; do
				! grep -q -F -e "$1" "$2" 2>/dev/null || return 0
				[ -z "${3-}" ] || [ -e "/proc/$3" ] || break
				sleep 0.2
				tries=$((tries + 1))
			done
			echo "no '$1' in $2" >&2
			return 1
		}
		exec </dev/null
	END
	: >"$work/jobs-1"
	: >"$work/jobs-2"
}

job() {
	{
		cat "$work/job-head"
		cat
	} >"$work/$2.job"
	echo "$2" >>"$work/jobs-$1"
}

# The script of a line: its jobs one after the other.
write_line() {
	cat >"$work/run-$1" <<-END
		cd '$work' || exit 1
		while read -r name; do
			[ ! -e "\$name.code" ] || continue
			begun=\$(date +%s)
			sh "\$name.job" >"\$name.out" 2>"\$name.err"
			code=\$?
			echo \$((\$(date +%s) - begun)) >"\$name.seconds"
			echo \$code >"\$name.code"
		done <jobs-$1
	END
}

# run SCRIPT: directly where /dev/kvm is native, elsewhere in a lab
run() {
	if [ "$floor" = native ]; then
		sh "$work/$1"
	else
		# What is written below the current directory lands there. At times the lab's kernel hangs and
		# gives up (docs/design/lab.md): then the jobs that are left have another try in a fresh lab.
		for try in 1 2 3; do
			(cd "$work" && "$guestprof" lab --timeout 1200 --exec sh "$1") </dev/null >&2 &&
				break
			echo "# lab $try for $1 ended with exit code $?"
		done
	fi
}

# One line alone, for benchmarks.
run_line() {
	write_line "$1"
	run "run-$1"
}

run_jobs() {
	write_line 1
	write_line 2
	if [ "${1-}" = together ]; then
		printf 'sh run-1 &\nsh run-2\nwait\n' >"$work/run-both"
		run run-both
	else
		run run-1 &
		run run-2
		wait
	fi
	cat "$work/jobs-1" "$work/jobs-2" >"$work/jobs"
	while read -r name; do
		[ -e "$work/$name.code" ] || echo "not run" >"$work/$name.code"
		touch "$work/$name.out" "$work/$name.err"
		# The console ends its lines with a carriage return.
		tr -d '\r' <"$work/$name.out" >"$work/$name.text"
		echo "# $name: $(cat "$work/$name.seconds" 2>/dev/null) s"
	done <"$work/jobs"
}

# What is known of the job that a failed test is about.
explain() {
	for file in "$work/$1.err" "$work/$1.out"; do
		echo "# --- ${file##*/}"
		tail -n 25 "$file" 2>/dev/null | tr -d '\r' | cat -v | sed 's/^/# /'
	done
}

result() {
	count=$((count + 1))
	echo "$1 $count - $2"
}

# is WHAT GOT WANTED [JOB]
is() {
	if [ "$2" = "$3" ]; then
		result ok "$1"
	else
		result "not ok" "$1"
		printf '%s\n' "got:" "$2" "wanted:" "$3" | sed 's/^/# /'
		[ -z "${4-}" ] || explain "$4"
	fi
}

# holds WHAT JOB FILE TEXT: a line with the text is in $work/JOB.FILE
holds() {
	if grep -q -F -e "$4" "$work/$2.$3" 2>/dev/null; then
		result ok "$1"
	else
		result "not ok" "$1"
		echo "# no '$4' in $2.$3"
		explain "$2"
	fi
}

# at_least WHAT NUMBER LEAST [JOB]: a number, or nothing, against the least it may be
at_least() {
	if [ -n "$2" ] && awk "BEGIN { exit !($2 >= $3) }"; then
		result ok "$1"
	else
		result "not ok" "$1"
		echo "# got '$2', wanted at least $3"
		[ -z "${4-}" ] || explain "$4"
		return 1
	fi
}

skip() {
	result ok "$1 # SKIP $2"
}

# ends_with WHAT JOB CODE
ends_with() {
	is "$1: exit code $3" "$(cat "$work/$2.code")" "$3" "$2"
}

# The text behind WORD in the first line of a job's output that holds it.
word_of() {
	sed -n "s|^$2 *||p" "$work/$1.text" | head -n 1
}

# word NAME WORD: what inspect_trace says of a trace; -1, which fails every comparison, of a trace that is not there
word() {
	[ -e "$work/$1.inspected" ] || "$inspect" "$work/$1.fxt" >"$work/$1.inspected"
	said=$(sed -n "s/^$2 //p" "$work/$1.inspected")
	echo "${said:--1}"
}

# per_mille PART WHOLE
per_mille() {
	echo $(($1 * 1000 / ($2 ? $2 : 1)))
}

# shares NAME: of the workload (demo/workload.c) in $work/NAME.fxt, against the time that it took by the guest's own
# clock, which is in $work/NAME.text or, if that is there, in NAME.clock: "as measured", or what was found instead
shares() {
	clock=$work/$1.clock
	[ -e "$clock" ] || clock=$work/$1.text
	"$inspect" "$work/$1.fxt" leaves | awk -v clock="$clock" '
		BEGIN {
			while ((getline <clock) > 0) {
				if ($1 != "workload:" || $2 != "hash" || $8 !~ /^us/)
					continue
				took["hash"] += $3
				took["sort"] += $5
				took["walk_down"] += $7
				all += $3 + $5 + $7
			}
		}
		$2 == "user" && ($3 in took) {
			ticks[$3] += $1
			n += $1
			squares += $1 * $1
		}
		function check(name, share, found, bound) {
			share = took[name] / all
			found = ticks[name] / n
			# 99.9 % for the three together, of a normal distribution. Ticks that came
			# while the vCPU waited for its host are all told by one sample: as evidence
			# there are as many samples as their weights say (Kish, effective sample size).
			# And a hundredth: the guest says what it took in about the same time.
			bound = 3.59 * sqrt(share * (1 - share) * squares / (n * n)) + .01
			if (found < share - bound || found > share + bound)
				bad = bad sprintf(" %s %.4f of %d, wanted %.4f +- %.4f", name, found, n, share, bound)
		}
		END {
			if (!all || n < 100) {
				print "only", n + 0, "samples,", all + 0, "us by the guest"
				exit
			}
			check("hash")
			check("sort")
			check("walk_down")
			print bad ? bad : "as measured"
		}'
}

guests_end() {
	# 86 is how a process ends that does what the sandbox does not allow.
	is "the sandbox had to end none of them" \
		"$(cd "$work" && grep -lx 86 ./*.code; grep -l 'guestprof: sandbox:' ./*.err)" ""
	echo "1..$count"
}

# Parts that are the same in every run; made again when what they are made of is newer.
make_parts() {
	mkdir -p "$parts/initrds" "$parts/elf"
	mkdir -p "$parts/kernels"
	for pair in $KERNELS; do
		short=${pair%%=*}
		package=$kernels/${pair#*=}
		ln -sfn "$package" "$parts/kernels/$short"
		initrd=$parts/initrds/$short
		[ -n "$(find "$initrd" -newer demo/init.sh -newer demo/initramfs.sh \
			-newer demo/workload.c -newer "$package/package" 2>/dev/null)" ] ||
			demo/initramfs.sh "$initrd" "$package/modules" >&2 || return 1
		[ -n "$(find "$parts/elf/$short" -newer "$package/package" 2>/dev/null)" ] ||
			make_elf "$package/vmlinuz" "$parts/elf/$short" || rm -f "$parts/elf/$short"
	done
}

# A bzImage's payload is the kernel as an ELF file, packed: Documentation/arch/x86/boot.rst,
# payload_offset. The last four bytes of it are its unpacked size.
make_elf() {
	number() { od -An "-tu$2" "-j$1" "-N$2" "$bzimage" | tr -d ' '; }
	bzimage=$1
	setup_sectors=$(number 497 1)
	[ "$setup_sectors" != 0 ] || setup_sectors=4
	offset=$(((setup_sectors + 1) * 512 + $(number 584 4)))
	length=$(($(number 588 4) - 4))
	case $(od -An -tx1 "-j$offset" -N4 "$bzimage" | tr -d ' ') in
	1f8b*) unpack=gzip ;;
	28b52ffd) unpack=zstd ;;
	fd377a58) unpack=xz ;;
	02214c18) unpack=lz4 ;;
	*) unpack=no-such-packer ;;
	esac
	command -v $unpack >/dev/null || {
		echo "no $unpack to unpack $bzimage" >&2
		return 1
	}
	tail -c "+$((offset + 1))" "$bzimage" | head -c "$length" | $unpack -dcq >"$2.new" || return 1
	mv "$2.new" "$2"
}
