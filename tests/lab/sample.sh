#!/bin/sh
# Stock Debian kernels, sampled from their first instruction: every tick is accounted for, names
# are the kernel's own, shares are the workload's. Prints TAP; see tests/lab/support/guests.sh.
#
#   KERNELS="7.0=linux-image-7.0.13+deb13-amd64@trixie-backports" tests/lab/sample.sh
#
# The same with other kernels, each a short name and a package. 5.10 and 7.x want GUESTPROF_LAB_CPU besides
# (docs/design/lab.md).
set -u
# One that is built differently: preemptible throughout, interrupts handled by threads.
more="6.1-rt=linux-image-rt-amd64" quick=
# Newer ones have more to do that takes time in the lab and tells nothing: they test their ciphers, and look
# for AGP bridges on every PCI bus there could be.
[ -z "${KERNELS-}" ] || more='' quick="cryptomgr.notests pci=noearly"
. tests/lab/support/guests.sh
KERNELS="$KERNELS $more"
guests_begin lab-sample
names=
for pair in $KERNELS; do
	names="$names ${pair%%=*}"
done
# The one for what one kernel is enough for.
first=${KERNELS%%=*}

[ -x "$inspect" ] || skip_all "no $inspect (make lab-programs)"

# --- what the guests get
for name in $names elf; do
	truncate -s 16M "$work/kallsyms-$name"
done
# The workload as it is in the initramfs, and its symbols as a System.map that starts at 0.
(cd "$work" && gzip -dc "$parts/initrds/$first" | cpio -id --quiet "*bin/workload") || exit 1
lowest=$(nm -n "$work/bin/workload" | sed -n 's/^\([0-9a-f]*\) [Tt] .*/\1/p' | head -n 1)
nm -n "$work/bin/workload" | awk -v lowest="$lowest" '
	function value(hex, i, n) {
		for (i = 1; i <= length(hex); i++)
			n = n * 16 + index("0123456789abcdef", substr(hex, i, 1)) - 1
		return n
	}
	$2 ~ /^[Tt]$/ { printf "%016x %s %s\n", value($1) - value(lowest), $2, $3 }' >"$work/workload.map"

line=0
for name in $names; do
	line=$((line % 2 + 1))
	case $name in
	*cloud) symbols="--symbols workload.map@0x$lowest" vcpus=1 ;;
	*rt) symbols="--symbols bin/workload" vcpus=2 ;;
	*) symbols="" vcpus=2 ;; # what the guest's own memory says
	esac
	job $line "$name" <<-JOB
		# Without jitter the period could be a multiple of one of the workload's rounds.
		boot -F 250 --jitter 90 -o $name.fxt -k \$kernels/$name/vmlinuz -i \$initrds/$name -c $vcpus -m 512M \
			-d kallsyms-$name $symbols \
			-p "console=ttyS0 quiet panic=-1 $quick guestprof.cmd=demo,kallsyms guestprof.arg=60"
		code=\$?
		"\$guestprof" report -n 0 $name.fxt >$name.report
		exit \$code
	JOB
done
# A program on a disk, of which the guest has no unwind tables in memory.
disk=
if command -v mke2fs >/dev/null && mkdir "$work/root" &&
	"${CC:-gcc}" -std=gnu17 -O2 -fomit-frame-pointer -fno-optimize-sibling-calls -static -Wl,--build-id \
		-o "$work/root/far_tables" tests/lab/support/far_tables.c; then
	truncate -s 64M "$work/disk.img"
	mke2fs -q -t ext4 -d "$work/root" "$work/disk.img" >&2 && disk=yes
	job 2 disk <<-END_JOB
		boot -F 250 --jitter 90 -o disk.fxt -k \$kernels/$first/vmlinuz -i \$initrds/$first -m 512M -d disk.img \
			-p "console=ttyS0 quiet panic=-1 guestprof.cmd=diskrun guestprof.arg=far_tables"
	END_JOB
fi
job 1 elf <<END_JOB
boot -F 100 -o elf.fxt -k \$elf/$first -i \$initrds/$first -m 512M -d kallsyms-elf \\
	-p "console=ttyS0 quiet panic=-1 guestprof.cmd=kallsyms"
END_JOB
job 2 killed <<END_JOB
"\$guestprof" record -F 100 -o killed.fxt -k \$elf/$first -i \$initrds/$first -m 512M --timeout 240 \\
	-p "console=ttyS0 quiet panic=-1 guestprof.cmd=spin" &
wait_for "workload: start" killed.out
sleep 2
kill -KILL \$!
wait \$!
END_JOB
run_jobs

# own_names NAME: kernel symbols of the trace, how many of them the guest's kernel does not know
own_names() {
	tr -d '\0' <"$work/kallsyms-$1" >"$work/kallsyms"
	"$inspect" "$work/$1.fxt" symbols | awk -v kallsyms="$work/kallsyms" '
		BEGIN { while ((getline <kallsyms) > 0) known[$1 " " $3] = 1 }
		$3 ~ /^\[/ { next } # a module: see module_names
		{ if (($1 " " $2) in known) good++; else print "# unknown: " $0 >"/dev/stderr"; all++ }
		END { print (all > 50 ? "many" : all + 0), all - good }'
}

# module_names NAME: the same of modules, whose code that only ran once the kernel has forgotten
module_names() {
	tr -d '\0' <"$work/kallsyms-$1" >"$work/kallsyms"
	"$inspect" "$work/$1.fxt" symbols | awk -v kallsyms="$work/kallsyms" '
		BEGIN {
			while ((getline <kallsyms) > 0) {
				known[$1 " " $3 " " $4] = 1
				module[$4] = 1
			}
		}
		$3 ~ /^\[/ {
			all++
			# At another address than the module has now it would be wrong, not forgotten.
			wrong += !($3 in module)
			good += ($1 " " $2 " " $3) in known
		}
		END { print (all > 5 && good * 2 > all ? "many" : good + 0 " of " all + 0), wrong + 0 }'
}

# slides FROM TO: the different distances between the addresses of the kernel symbols of one
# trace and those of the same names in another guest's list
slides() {
	tr -d '\0' <"$work/kallsyms-$2" >"$work/kallsyms"
	"$inspect" "$work/$1.fxt" symbols | awk -v kallsyms="$work/kallsyms" '
		function value(hex, i, n) {
			# Of the low half, which a number here holds exactly.
			for (i = 9; i <= 16; i++)
				n = n * 16 + index("0123456789abcdef", substr(hex, i, 1)) - 1
			return n
		}
		BEGIN {
			while ((getline <kallsyms) > 0) {
				count[$3]++
				address[$3] = $1
			}
		}
		count[$2] == 1 && $3 == "" { print value($1) - value(address[$2]) }' | sort -n | uniq -c |
		awk '$1 > 20 { slides++ } { other += $1 <= 20 } END { print slides + 0, other + 0 }'
}

# call_trees NAME: of 1,000 of the workload's samples in its own code, those whose call tree is whole;
# or one that is not what its source says. A process's first samples may lack the outer end: the rules
# for a program without frame pointers are read when a sample has asked for them.
call_trees() {
	"$guestprof" export folded "$work/$1.fxt" | awk '
		BEGIN {
			start = "_start;__libc_start_main;__libc_start_call_main;main;work;"
			known["hash"] = start "hash"
			known["sort"] = start "sort"
			known["walk_down"] = start "walk"
			for (i = 0; i < 9; i++)
				known["walk_down"] = known["walk_down"] ";walk_down"
		}
		/^workload;/ {
			ticks = $NF
			sub(/^workload;/, "")
			sub(/ [0-9]+$/, "")
			leaf = $0
			sub(/.*;/, "", leaf)
			if (!(leaf in known))
				next
			all += ticks
			# walk calls walk_down once, and walk_down itself to the depth where it stands.
			if (leaf == "walk_down" && $0 !~ /^\[/)
				sub(/walk(;walk_down)+$/, "walk;walk_down;walk_down;walk_down;walk_down;walk_down;walk_down;walk_down;walk_down;walk_down")
			if ($0 == known[leaf])
				whole += ticks
			else if (substr(known[leaf], length(known[leaf]) - length($0)) != ";" $0)
				wrong = $0
		}
		END { print wrong ? wrong : all ? int(whole * 1000 / all) : "none" }'
}

for name in $names; do
	ends_with "$name, sampled" $name 0
	is "$name: the trace is whole" "$(word $name complete) $(word $name bad_records)" "1 0" $name
	is "$name: ticks = stacks + partials + dropped" "$(word $name claimed_ticks)" \
		"$(($(word $name stacks) + $(word $name partials) + $(word $name dropped)))" $name
	is "$name: the trace's totals equal its records" \
		"$(word $name claimed_stacks) $(word $name claimed_partials) $(word $name claimed_dropped)" \
		"$(word $name stacks) $(word $name partials) $(word $name dropped)" $name
	is "$name: partial samples are completed" "$(word $name told)" \
		"$(($(word $name stacks) + $(word $name partials)))" $name
	at_least "$name: next to nothing ran without an address" \
		"$(word $name walked)" "$(($(word $name without_stack) * 1000))" $name
	at_least "$name: samples in the kernel" "$(word $name kernel)" 200 $name
	# Not the few instructions with which another CPU leaves real mode.
	at_least "$name: samples in its startup code" "$(word $name low)" 20 $name
	at_least "$name: from power-on, 97 % of all in the kernel have a name" \
		"$(per_mille "$(($(word $name kernel_named) + $(word $name low_named) + \
			$(word $name modules_named)))" "$(($(word $name kernel) + \
			$(word $name low) + $(word $name modules)))")" 970 $name
	at_least "$name: samples in the kernel, once programs run" "$(word $name settled_kernel)" 50 $name
	at_least "$name: 99.9 % of them have a name" \
		"$(per_mille "$(word $name settled_names)" "$(word $name settled_kernel)")" 999 $name || \
		"$inspect" "$work/$name.fxt" unfinished | sed 's/^/# /'
	# What is missing runs in a module in its first moments, before its tables have been read: a dozen
	# samples of each, where the thread that reads them waits for a CPU.
	at_least "$name: 98 % of their stacks are whole" \
		"$(per_mille "$(word $name settled_whole)" "$(word $name settled_kernel)")" 980 $name || \
		"$inspect" "$work/$name.fxt" unfinished | sed 's/^/# /'
	at_least "$name: 99 % of all samples then say which task" \
		"$(per_mille "$(word $name settled_identified)" "$(word $name settled)")" 990 $name
	holds "$name: the report names the kernel" $name report \
		"# guest:    Linux version $(cat "$parts/kernels/$name/version") "
	is "$name: with KASLR, every kernel symbol is one of the kernel's own list" \
		"$(own_names $name)" "many 0" $name
	is "$name: symbols of modules belong to loaded modules" \
		"$(module_names $name)" "many 0" $name
	"$guestprof" report -n 0 "$work/$name.fxt" | sed "s|$work/||" >"$work/$name.again"
	is "$name: the report on the host equals the report in the lab" \
		"$(cmp "$work/$name.again" "$work/$name.report" 2>&1)" "" $name
	is "$name: the workload's shares" "$(shares $name)" "as measured" $name
	case $name in
	*cloud | *rt) ;; # given its symbols
	*)
		at_least "$name: the program's call trees are its own, and 80 % of them whole" \
			"$(call_trees $name)" 800 $name
		;;
	esac
done
ends_with "without KASLR" elf 0
is "without KASLR, every kernel symbol is one of the kernel's own list" "$(own_names elf)" "many 0" elf
is "KASLR slides all symbols by the same" "$(slides "$first" elf)" "1 0" "$first"

# program_stacks PATTERN: of 1,000 samples of the program on the disk, in user mode, those whose stack is whole
# (from inner to _start there are seven frames) and has the pattern, from the first whole one on: how long
# its tables take to come is the speed of the machine.
program_stacks() {
	"$guestprof" export json --comm far_tables --mode user "$work/disk.fxt" | awk -v pattern="$1" '
		/"type":"sample"/ {
			whole = /"stack_end":"root"/ && gsub(/"address"/, "&") >= 7
			begun = begun || whole
			all += begun
			found += whole && $0 ~ pattern
		}
		END { print (all > 100 ? int(found * 1000 / all) : all + 0 " samples") }'
}
if [ -n "$disk" ]; then
	ends_with "a program on a disk" disk 0
	at_least "its unwind tables are read from there: 95 % of its stacks are whole" "$(program_stacks .)" 950 disk
	at_least "and its symbols: they are named from main to inner" \
		"$(program_stacks '"name":"inner".*"name":"middle".*"name":"outer".*"name":"main"')" 950 disk ||
		"$guestprof" export folded --comm far_tables --mode user "$work/disk.fxt" | sort | tail -n 20 | sed 's/^/# /'
else
	skip "a program on a disk" "no compiler, or no mke2fs (Debian package e2fsprogs)"
fi

"$guestprof" report "$work/killed.fxt" >"$work/killed.report" 2>&1
is "the trace of a killed recording can be read" $? 0 killed
holds "and says that its end is missing" killed report "# INCOMPLETE"
at_least "with the samples until then" "$(word killed stacks)" 100 killed
at_least "and names" "$("$inspect" "$work/killed.fxt" symbols | wc -l)" 20 killed
guests_end
