#!/bin/sh
# One stock Debian kernel: booted and sampled from its first instruction, reported, and attached to when
# QEMU runs it. Both at a time, in one lab. Prints TAP; see tests/lab/support/guests.sh.
set -u
KERNELS=${KERNELS:-6.1=linux-image-amd64}
. tests/lab/support/guests.sh
guests_begin lab-quick

[ -x "$inspect" ] || skip_all "no $inspect (make lab-programs)"
name=${KERNELS%%=*}
version=$(cat "$parts/kernels/$name/version")

job 1 boot <<JOB
# Without jitter the period could be a multiple of one of the workload's rounds.
boot -F 250 --jitter 90 -o boot.fxt -k \$kernels/$name/vmlinuz -i \$initrds/$name -m 256M \
	-p "console=ttyS0 quiet panic=-1 guestprof.cmd=demo guestprof.arg=20"
code=\$?
"\$guestprof" report -n 0 boot.fxt >boot.report
exit \$code
JOB
job 2 attach <<JOB
qemu-system-x86_64 -accel kvm -cpu host -m 256M -kernel \$kernels/$name/vmlinuz -initrd \$initrds/$name \
	-append "console=ttyS0 quiet panic=-1 guestprof.cmd=spin" -name guest=quick,debug-threads=on -no-reboot \
	-no-user-config -display none -monitor none -serial file:attach.console >attach.qemu 2>&1 &
qemu=\$!
wait_for "workload: start" attach.console \$qemu || cat attach.qemu
"\$guestprof" ps
lines=\$(wc -l <attach.console)
"\$guestprof" attach -F 100 --jitter 90 --duration 10 -o attach.fxt --json quick >attach.json
code=\$?
tail -n +\$((lines + 1)) attach.console >attach.clock
! kill -0 \$qemu || echo "qemu goes on"
kill -9 \$qemu
exit \$code
JOB
run_jobs together

for run in boot attach; do
	case $run in
	boot) ends_with "$run" boot 0 ;;
	attach) ends_with "$run" attach 13 ;;
	esac
	"$guestprof" report -n 0 "$work/$run.fxt" >"$work/$run.report" 2>"$work/$run.err"
	holds "$run: the report names the kernel" $run report "# guest:    Linux version $version "
	is "$run: the trace is whole" "$(word $run complete) $(word $run bad_records)" "1 0" $run
	is "$run: ticks = stacks + partials + dropped" "$(word $run claimed_ticks)" \
		"$(($(word $run stacks) + $(word $run partials) + $(word $run dropped)))" $run
	is "$run: the workload's shares" "$(shares $run)" "as measured" $run
done
at_least "boot: samples in the kernel" "$(word boot kernel)" 100 boot
at_least "boot: from power-on, 97 % of all in the kernel have a name" \
	"$(per_mille "$(($(word boot kernel_named) + $(word boot low_named) + $(word boot modules_named)))" \
		"$(($(word boot kernel) + $(word boot low) + $(word boot modules)))")" 970 boot
at_least "attach: 99 % of all samples in the kernel have a name" \
	"$(per_mille "$(word attach settled_names)" "$(word attach settled_kernel)")" 990 attach
holds "attach: ps shows the guest's kernel" attach text "Linux version $version "
holds "attach: no registers are stale" attach json '"stale":0,'
holds "attach: QEMU goes on" attach text "qemu goes on"
guests_end
