#!/bin/sh
# How much of the time in user programs gets a function's name, by how long the programs live: a stock
# kernel runs programs of 5 ms, of 20 ms and of 2 s, static and dynamic. Prints named user frames and
# stacks' leaves, wrong names, bytes per recorded second.
#
#   BASELINE=/other/build/guestprof ROUNDS=3 FREQUENCY=1000 tests/bench/naming.sh
#
# With BASELINE another build records the same guest in the same boot of the lab, interleaved, and all
# traces are read by the build under test.
set -u
. tests/lab/support/guests.sh
KERNELS="6.12-cloud=linux-image-6.12-cloud-amd64"
guests_begin bench-naming

root=$work/root
mkdir -p "$root/bin" "$root/proc" "$root/dev"
cp "$(command -v busybox)" "$root/bin/busybox"
place=0
for program in alpha:-static beta:-static gamma: delta:; do
	place=$((place + 1))
	# shellcheck disable=SC2086 # no word or one
	"${CC:-gcc}" -std=gnu17 -O2 ${program#*:} -DPROGRAM="${program%:*}" -DPLACE=$place \
		-o "$work/${program%:*}" tests/lab/support/short_program.c || exit 1
	for life in 5 20 2000; do
		cp "$work/${program%:*}" "$root/bin/${program%:*}$life"
	done
done
for library in $(ldd "$work/gamma" | grep -o '/[^ ]*'); do
	mkdir -p "$root${library%/*}"
	cp "$library" "$root$library"
done
cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
for life in 5 20; do
	round=0
	while [ $round -lt 30 ]; do
		for program in alpha beta gamma delta; do
			/bin/$program$life $life >/dev/null
		done
		round=$((round + 1))
	done
done
for program in alpha beta gamma delta; do
	/bin/${program}2000 2000 >/dev/null
done
echo "init: done"
/bin/busybox poweroff -f
INIT
chmod 755 "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc) | gzip -1 >"$work/initrd" || exit 1

builds="$guestprof ${BASELINE-}"
cat >"$work/measure.job" <<JOB
rounds=${ROUNDS-1} frequency=${FREQUENCY-1000} builds='$builds'
JOB
cat "$work/job-head" - >>"$work/measure.job" <<'JOB'
round=0
while [ $round -lt $rounds ]; do
	number=0
	for build in $builds; do
		"$build" record -F $frequency --jitter 50 -o $number-$round.fxt -m 512M -k "$kernels/6.12-cloud/vmlinuz" \
			-i initrd --timeout 300 -p "console=ttyS0 quiet panic=-1 cryptomgr.notests" >$number-$round.console 2>&1
		number=$((number + 1))
	done
	round=$((round + 1))
done
JOB
echo measure >"$work/jobs-1"
run_line 1

number=0
for build in $builds; do
	echo "$build:"
	for trace in "$work/$number"-*.fxt; do
		[ -s "$trace" ] || { tail -n 5 "${trace%.fxt}.console" >&2; continue; }
		echo "bytes $(stat -c %s "$trace") $("$guestprof" report --json -n 1 "$trace" | sed -n "s/^ *\"duration_ns\": \([0-9]*\),/\1/p")"
		for life in 5 20 2000; do
			"$guestprof" export folded --mode user "$trace" | sed "s/^/$life /" |
				grep -E "^[0-9]+ (alpha|beta|gamma|delta)$life;"
		done
	done | awk '
		$1 == "bytes" { bytes += $2; seconds += $3 / 1e9; next }
		{
			life = $1
			ticks = $NF
			line = $0
			sub(/^[0-9]+ /, "", line)
			sub(/ [0-9]+$/, "", line)
			n = split(line, frame, ";")
			own = frame[1]
			sub(/[0-9]+$/, "", own)
			for (i = 2; i <= n; i++) {
				frames[life] += ticks
				unnamed = frame[i] ~ /^\[/
				named[life] += unnamed ? 0 : ticks
				if (frame[i] ~ /^(alpha|beta|gamma|delta)_/ && index(frame[i], own "_") != 1)
					wrong[life] += ticks
			}
			leaves[life] += ticks
			named_leaves[life] += unnamed ? 0 : ticks
		}
		END {
			count = split("5 20 2000", lives, " ")
			for (i = 1; i <= count; i++) {
				life = lives[i]
				printf "  programs of %4d ms: %6d samples, %5.1f %% of leaves and %5.1f %% of frames named, %d wrong\n",
					life, leaves[life], leaves[life] ? 100 * named_leaves[life] / leaves[life] : 0,
					frames[life] ? 100 * named[life] / frames[life] : 0, wrong[life]
			}
			printf "  %d bytes, %.1f s, %.0f bytes a second\n", bytes, seconds, seconds ? bytes / seconds : 0
		}'
	number=$((number + 1))
done
