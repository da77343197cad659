#!/bin/sh
# Stock Debian guests that QEMU runs, attached to when they are up: the kernel is found, names are its own,
# shares are the workload's, and QEMU goes on. Prints TAP; see tests/lab/support/guests.sh.
set -u
. tests/lab/support/guests.sh
guests_begin lab-attach

[ -x "$inspect" ] || skip_all "no $inspect (make lab-programs)"
command -v qemu-system-x86_64 >/dev/null || skip_all "there is no qemu-system-x86_64 here"

# guest LINE NAME KERNEL VCPUS MEMORY QEMU-OPTION...: boots it under QEMU, attaches when the workload has run
# for a moment, and looks whether the workload still runs afterwards.
guest() {
	line=$1
	name=$2
	kernel=$3
	vcpus=$4
	memory=$5
	shift 5
	job "$line" "$name" <<-JOB
		# More memory than the lab has, as long as it is not used.
		echo 1 >/proc/sys/vm/overcommit_memory
		qemu-system-x86_64 -accel kvm -cpu host -smp $vcpus -m $memory $* \
			-kernel \$kernels/$kernel/vmlinuz -initrd \$initrds/$kernel \
			-append "console=ttyS0 quiet panic=-1 guestprof.cmd=spin" \
			-name "guest=$name,debug-threads=on" -no-reboot -no-user-config -display none \
			-monitor none -serial file:$name.console >$name.qemu 2>&1 &
		qemu=\$!
		wait_for "workload: start" $name.console \$qemu || cat $name.qemu
		sleep 2
		"\$guestprof" ps
		lines=\$(wc -l <$name.console)
		# Without jitter the period could be a multiple of one of the workload's rounds.
		"\$guestprof" attach -F 100 --jitter 90 --duration 20 -o $name.fxt --json $name >$name.json
		code=\$?
		tail -n +\$((lines + 1)) $name.console >$name.clock
		if kill -0 \$qemu; then
			echo "qemu goes on"
			kill -9 \$qemu
			wait \$qemu
		else
			wait \$qemu
			echo "qemu ended by itself with \$?"
			cat $name.qemu
			tail -n 5 $name.console
		fi
		exit \$code
	JOB
}

memfd() {
	echo "-object memory-backend-memfd,id=ram,size=$1,share=on"
}

guest 1 pc-6.1 6.1 1 1G -M pc
guest 1 q35-6.12 6.12 2 1G -M q35,memory-backend=ram "$(memfd 1G)"
guest 2 pc-6.12 6.12 2 5G -M pc
guest 2 q35-6.1 6.1 1 5G -M q35,memory-backend=ram "$(memfd 5G)"
run_jobs

for name in pc-6.1 q35-6.12 pc-6.12 q35-6.1; do
	ends_with "$name: attached for a while" $name 13
	holds "$name: QEMU goes on" $name text "qemu goes on"
	holds "$name: ps knows the guest's kernel" $name text \
		"Linux version $(cat "$parts/kernels/${name#*-}/version") "
	"$guestprof" report -n 0 "$work/$name.fxt" >"$work/$name.report"
	holds "$name: the report names the kernel" $name report \
		"# guest:    Linux version $(cat "$parts/kernels/${name#*-}/version") "
	case $name in
	q35*) method="memory: shared" ;;
	*) method="memory: /proc" ;;
	esac
	holds "$name: how it was read" $name report "kicked by ptrace; $method"
	is "$name: the trace is whole" "$(word $name complete) $(word $name bad_records)" "1 0" $name
	is "$name: ticks = stacks + partials + dropped" "$(word $name claimed_ticks)" \
		"$(($(word $name stacks) + $(word $name partials) + $(word $name dropped)))" $name
	holds "$name: no registers are stale" $name json '"stale":0,'
	at_least "$name: samples in the kernel" "$(word $name settled_kernel)" 20 $name
	at_least "$name: 99 % of them have a name" \
		"$(awk "BEGIN { print 1000 * $(word $name settled_names) / $(word $name settled_kernel) }")" \
		990 $name
	is "$name: the workload's shares" "$(shares $name)" "as measured" $name
done
guests_end
