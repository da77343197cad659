#!/bin/sh
# Power-on to the first line of our init, on the same KVM with the same kernel, initramfs and
# command line: guestprof without sampling against QEMU's microvm and q35. Interleaved rounds in
# one session; medians and ratios. Where /dev/kvm is not native it is the lab's: then only the
# ratios mean something.
#
#   ROUNDS=3 KERNELS_MEASURED="6.1 6.12" tests/bench/boot.sh
set -u
. tests/lab/support/guests.sh
command -v qemu-system-x86_64 >/dev/null || skip_all "no qemu-system-x86_64 (Debian package qemu-system-x86)"
guests_begin bench-boot

cat >"$work/measure.job" <<JOB
rounds=${ROUNDS-3} measured="${KERNELS_MEASURED-6.1 6.12}"
JOB
cat "$work/job-head" - >>"$work/measure.job" <<'JOB'
fifo=$(mktemp -u)
mkfifo "$fifo"
# measure NAME COMMAND...: prints "NAME MILLISECONDS"
measure() {
	name=$1
	shift
	start=$(date +%s%N)
	"$@" >"$fifo" 2>>errors &
	machine=$!
	timeout 120 grep -q -m 1 "init: first line" <"$fifo" || echo "$name: no first line" >>errors
	echo "$name $((($(date +%s%N) - start) / 1000000))"
	kill $machine 2>/dev/null
	wait $machine 2>/dev/null
}
append="console=ttyS0 quiet panic=-1 guestprof.cmd=sleep"
round=0
while [ $round -lt $rounds ]; do
	for kernel in $measured; do
		measure "$kernel guestprof" "$guestprof" record -F 0 -m 256M \
			-k "$kernels/$kernel/vmlinuz" -i "$initrds/$kernel" -p "$append"
		measure "$kernel microvm" qemu-system-x86_64 -M microvm,pit=off,pic=off,rtc=on \
			-accel kvm -cpu host -m 256M -nodefaults -no-user-config -display none \
			-serial stdio -kernel "$kernels/$kernel/vmlinuz" -initrd "$initrds/$kernel" \
			-append "$append"
		measure "$kernel q35" qemu-system-x86_64 -M q35 \
			-accel kvm -cpu host -m 256M -nodefaults -no-user-config -display none \
			-serial stdio -kernel "$kernels/$kernel/vmlinuz" -initrd "$initrds/$kernel" \
			-append "$append"
	done
	round=$((round + 1))
done
JOB
echo measure >"$work/jobs-1"
run_line 1
sort -k1,2 -k3,3n "$work/measure.out" | awk '
	{ key = $1 " " $2; value[key, ++count[key]] = $3; kernels[$1] }
	function median(key, n) {
		n = count[key]
		return n % 2 ? value[key, (n + 1) / 2] : (value[key, n / 2] + value[key, n / 2 + 1]) / 2
	}
	END {
		for (kernel in kernels) {
			ours = median(kernel " guestprof")
			printf "%-10s guestprof %6d ms (%d rounds)\n", kernel, ours, count[kernel " guestprof"]
			for (i = split("microvm q35", others); i > 0; i--) {
				theirs = median(kernel " " others[i])
				printf "%-10s %-9s %6d ms, guestprof / %s = %.2f\n", kernel, others[i],
					theirs, others[i], theirs ? ours / theirs : 0
			}
		}
	}'
cat "$work/errors" >&2
