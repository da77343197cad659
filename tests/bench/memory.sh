#!/bin/sh
# Memory of the machine's process beyond its guest's: resident pages of every mapping but the
# guest's RAM, while an idle guest runs, without and with sampling. The goal is 5 MiB without
# the rings.
set -u
. tests/lab/support/guests.sh
guests_begin bench-memory

cat "$work/job-head" - >"$work/measure.job" <<'JOB'
fifo=$(mktemp -u)
mkfifo "$fifo"
for vcpus in 1 4; do
	for frequency in 0 100; do
		"$guestprof" record -F $frequency -o memory.fxt -m 512M -c $vcpus -k "$elf/6.1" \
			-i "$initrds/6.1" -p "console=ttyS0 quiet guestprof.cmd=sleep guestprof.arg=60" \
			>"$fifo" 2>errors &
		machine=$!
		exec 3<"$fifo"
		timeout 120 grep -q -m 1 "init: first line" <&3
		sleep 3
		awk -v vcpus=$vcpus -v frequency=$frequency '
			/^Size:/ { size = $2 }
			/^Rss:/ { rss = $2 }
			/^Private_Dirty:/ { private = $2 }
			# The guest RAM is one mapping of its size, or what is left of it.
			/^VmFlags:/ {
				if (size >= 400000)
					guest += rss
				else {
					all += rss
					own += private
				}
			}
			END {
				printf "%d vCPUs, %3d Hz: %6.2f MiB resident beside %6.1f MiB of guest, %.2f MiB of it private\n",
					vcpus, frequency, all / 1024, guest / 1024, own / 1024
			}' "/proc/$machine/smaps"
		kill $machine
		wait $machine
		exec 3<&-
	done
done
JOB
echo measure >"$work/jobs-1"
run_line 1
cat "$work/measure.out"
cat "$work/measure.err" >&2
