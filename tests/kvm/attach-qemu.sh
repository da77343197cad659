#!/bin/sh
# guestprof attach and ps with an unmodified QEMU and tiny guests, as TAP: machine types, sizes and kinds
# of memory, several vCPUs, the fallback, and what happens to a machine meanwhile.
set -u
guestprof=${GUESTPROF:-build/guestprof}
guest=${guestprof%/*}/tests/guests/long4
work=$(mktemp -d "${TMPDIR:-/tmp}/attach-test.XXXXXX") || exit 1
trace=$work/t.fxt
name=guestprof-test-$$
qemu='' parent=''
. tests/support/tap.sh
# shellcheck disable=SC2034 # of tap.sh
shown="err out report qemu"

quit_qemu() {
	if [ -n "$qemu" ]; then
		kill -9 "$qemu" "$parent" 2>/dev/null
		wait "$parent" 2>/dev/null
	fi
	qemu=
}
alive() {
	grep -q '^State:[[:space:]]*[^Z]' "/proc/$qemu/status" 2>/dev/null
}
trap 'quit_qemu; rm -rf "$work"' EXIT

if ! (: <>/dev/kvm) 2>/dev/null; then
	skip_all "/dev/kvm cannot be opened"
fi
command -v qemu-system-x86_64 >/dev/null || skip_all "there is no qemu-system-x86_64 here"

# machine OPTION...: starts QEMU and waits until its guest runs. Commands go to $work/monitor.in.
machine() {
	quit_qemu
	rm -f "$work"/monitor.* "$work/console"
	mkfifo "$work/monitor.in" "$work/monitor.out"
	# Its parent does not ask how it ended: before Linux 6.15 nobody else can tell from then on.
	# Some KVMs offer IA32_ARCH_CAPABILITIES and do not take it: QEMU ends itself then.
	(
		qemu-system-x86_64 -accel kvm -cpu host,arch-capabilities=off -kernel "$guest" \
			-display none -no-user-config -serial "file:$work/console" \
			-name "guest=$name,debug-threads=on" -chardev "pipe,id=monitor,path=$work/monitor" \
			-mon chardev=monitor "$@" >"$work/qemu" 2>&1 &
		echo $! >"$work/monitor.pid"
		exec sleep 1000
	) &
	parent=$!
	until [ -s "$work/monitor.pid" ]; do
		sleep 0.1
	done
	qemu=$(cat "$work/monitor.pid")
	# QEMU opens both ends; held open so that a command does not look like the end of all.
	exec 8<>"$work/monitor.out" 9<>"$work/monitor.in"
	tries=0
	until grep -q 'guest started' "$work/console" 2>/dev/null; do
		tries=$((tries + 1))
		if [ $tries -gt 300 ] || ! alive; then
			return 1
		fi
		sleep 0.1
	done
}

# attach ARGUMENT...: output in $work/out and $work/err, exit code in $code
attach() {
	code=0
	# Jitter: where a stop takes long, sampling falls in step with the guest's rounds.
	timeout -k 5 60 "$guestprof" attach -o "$trace" --jitter 90 --symbols "$guest" "$@" \
		>"$work/out" 2>"$work/err" || code=$?
}

# attach_meanwhile ARGUMENT...: the same in the background, as $profiler, once it samples
attach_meanwhile() {
	: >"$work/err"
	timeout -k 5 60 "$guestprof" attach -o "$trace" "$@" "$name" >"$work/out" 2>"$work/err" &
	profiler=$!
	tries=0
	until grep -q '^guestprof attach: [0-9]* vCPU' "$work/err" || [ $tries -gt 300 ] ||
		! kill -0 "$profiler" 2>/dev/null; do
		tries=$((tries + 1))
		sleep 0.1
	done
	sleep 0.5
}

# reported: the last trace is complete, its report in $work/report
reported() {
	"$guestprof" report "$trace" >"$work/report" 2>&1 && ! grep -q INCOMPLETE "$work/report"
}

# share LOW HIGH FUNCTION: percent of the stacks that it is the leaf of. Not of the ticks: on a busy host
# a single stack may stand for hundreds.
share() {
	"$guestprof" export json "$trace" | sed -n 's/.*"stack":\[{"address":"[^"]*","name":"\([^"]*\)".*/\1/p' |
		awk -v low="$1" -v high="$2" -v function_name="$3" '
			{ all++; found += $0 == function_name }
			END { exit !(all > 100 && found * 100 >= low * all && found * 100 <= high * all) }'
}

# tree NAME MEMORY METHOD OPTION...: the tree's shares, exact stacks, and how the memory is read
tree() {
	what=$1
	memory=$2
	method=$3
	shift 3
	if ! machine "$@" -m "$memory" -append "run=tree rounds=0"; then
		fail "$what: QEMU does not run the guest"
		return
	fi
	attach --duration 2 "$name"
	if [ "$code" != 13 ] || ! reported; then
		fail "$what: exit code $code"
	elif ! grep -q "^# source: .*memory: $method\$" "$work/report"; then
		fail "$what: memory is not read by $method"
	elif ! grep -q '^# stacks:  *root 100.0 %$' "$work/report"; then
		fail "$what: not every stack reached its root"
	elif ! share 62 78 leaf_70 || ! share 14 26 leaf_20; then
		fail "$what: wrong shares"
	else
		pass "$what: stacks and shares"
	fi
}

# One that ends by itself cannot use this machine's KVM at all.
if ! machine -M pc -m 64M -append "run=tree rounds=0" && ! alive; then
	skip_all "QEMU ends itself with this /dev/kvm: $(tail -n 1 "$work/qemu")"
fi
tree "pc, 64M" 64M /proc -M pc
tree "q35, 1G" 1G /proc -M q35
# More than there may be here, of which nothing is used.
tree "pc, 6G: a hole at 3G" 6G /proc -M pc,memory-backend=ram \
	-object memory-backend-ram,id=ram,size=6G,reserve=off
tree "q35, 6G: a hole at 2G" 6G /proc -M q35,memory-backend=ram \
	-object memory-backend-ram,id=ram,size=6G,reserve=off
tree "q35, memfd of 5G" 5G shared -M q35,memory-backend=ram \
	-object memory-backend-memfd,id=ram,size=5G,share=on
tree "pc, memfd of 256M" 256M shared -M pc,memory-backend=ram \
	-object memory-backend-memfd,id=ram,size=256M,share=on

"$guestprof" ps >"$work/out" 2>"$work/err"
if grep -q "^ *$qemu  *qemu-system-x86_64 .*  *1  *256 M" "$work/out"; then
	pass "ps: PID, VMM, name, vCPUs, memory"
else
	fail "ps does not list the machine"
fi

attach --duration 2 --kick signal "$qemu"
if [ "$code" = 13 ] && reported && grep -q 'kicked by signal' "$work/report" &&
	share 60 80 leaf_70; then
	pass "the VMM's own signal as the kick"
else
	fail "the VMM's own signal as the kick: exit code $code"
fi

machine -M q35 -m 64M -smp 2 -append "run=smp cpus=2 rounds=0"
attach --duration 2 "$name"
if [ "$code" = 13 ] && reported && share 25 75 cpu_work_0 && share 25 75 cpu_work_1; then
	pass "two vCPUs"
else
	fail "two vCPUs: exit code $code"
fi

# The rest is about what happens meanwhile.
attach_meanwhile --duration 5
echo stop >&9
sleep 2
echo cont >&9
wait "$profiler"
code=$?
if [ "$code" = 13 ] && reported && grep -q 'is paused' "$work/err" &&
	grep -q 'runs again' "$work/err"; then
	pass "a machine that is paused and resumed is reported"
else
	fail "a machine that is paused and resumed: exit code $code"
fi

machine -M q35 -m 64M -smp 1,maxcpus=2,sockets=2,cores=1,threads=1 -append "run=tree rounds=0"
attach_meanwhile --duration 4
echo "device_add host-x86_64-cpu,id=second,socket-id=1,core-id=0,thread-id=0" >&9
wait "$profiler"
code=$?
if [ "$code" = 13 ] && reported && grep -q '1 vCPU(s) were added' "$work/err"; then
	pass "an added vCPU is reported"
else
	fail "an added vCPU: exit code $code"
fi

# meanwhile CODE NAME COMMAND...: what happens while it samples
meanwhile() {
	want=$1
	what=$2
	shift 2
	attach_meanwhile --duration 30
	"$@"
	wait "$profiler"
	code=$?
	if [ "$code" = "$want" ] && reported; then
		pass "$what: exit code $want, trace complete"
	else
		fail "$what: exit code $code, not $want"
	fi
}
monitor() {
	echo "$1" >&9
}
interrupt() {
	kill -INT "$profiler"
	# timeout(1) passes it on
}

meanwhile 16 "Ctrl-C" interrupt
if alive; then
	pass "the machine goes on after Ctrl-C"
else
	fail "the machine is gone after Ctrl-C"
fi
meanwhile 10 "reset" monitor system_reset
machine -M pc -m 64M -append "run=tree rounds=0"
meanwhile 0 "quit" monitor quit
machine -M pc -m 64M -append "run=tree rounds=0"
meanwhile 18 "killed" kill -9 "$qemu"
quit_qemu

attach --duration 1 "no-such-machine-$$"
if [ "$code" = 21 ] && grep -q 'no virtual machine is called' "$work/err"; then
	pass "an unknown name"
else
	fail "an unknown name: exit code $code"
fi
attach --duration 1 $$
if [ "$code" = 21 ] && grep -q 'runs no KVM virtual machine' "$work/err"; then
	pass "a process that is not a VMM"
else
	fail "a process that is not a VMM: exit code $code"
fi
echo "1..$count"
