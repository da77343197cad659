#!/bin/sh
# guestprof record and report with tiny guests, as TAP: exit codes of every end, and bad input told in
# one line before there is a machine.
set -u
guestprof=${GUESTPROF:-build/guestprof}
guests=${guestprof%/*}/tests/guests
guest=$guests/long4
work=$(mktemp -d "${TMPDIR:-/tmp}/record-test.XXXXXX") || exit 1
chmod 755 "$work"
# shellcheck disable=SC2064 # now
trap "umount '$work/full' 2>/dev/null; rm -rf '$work'" EXIT
trace=$work/t.fxt
. tests/support/tap.sh
. tests/support/rounds.sh

if ! (: <>/dev/kvm) 2>/dev/null; then
	skip_all "/dev/kvm cannot be opened"
fi

# record ARGUMENT...: output in $work/out and $work/err, exit code in $code
record() {
	code=0
	timeout -k 5 60 "$guestprof" record -o "$trace" "$@" >"$work/out" 2>"$work/err" \
		</dev/null || code=$?
}

# ends CODE NAME ARGUMENT...
ends() {
	want=$1
	name=$2
	shift 2
	rm -f "$trace"
	record -m 16M "$@"
	if [ "$code" != "$want" ]; then
		fail "$name: exit code $code, not $want"
	elif ! "$guestprof" report "$trace" >"$work/report" 2>&1; then
		fail "$name: its trace cannot be read"
	elif grep -q INCOMPLETE "$work/report"; then
		fail "$name: its trace is not complete"
	else
		pass "$name: exit code $want, trace complete"
	fi
}

ends 0 "power-off" -k "$guest" -p "rounds=5" --timeout 30

# The trace does not take the place of what the guest boots from.
cp "$guest" "$work/own-kernel"
code=0
"$guestprof" record -m 16M -k "$work/own-kernel" -o "$work/own-kernel" >"$work/out" 2>"$work/err" \
	</dev/null || code=$?
if [ "$code" = 2 ] && [ "$(wc -l <"$work/err")" = 1 ] && cmp -s "$guest" "$work/own-kernel"; then
	pass "-o is the kernel: exit code 2, and it stays"
else
	fail "-o is the kernel: exit code $code"
fi
ends 10 "reset by ACPI" -k "$guest" -p "rounds=5 end=acpi" --timeout 30
ends 10 "reset by port 0xcf9" -k "$guest" -p "rounds=5 end=cf9" --timeout 30
ends 10 "reset by i8042" -k "$guest" -p "rounds=5 end=i8042" --timeout 30
ends 11 "triple fault" -k "$guest" -p "rounds=5 end=triple" --timeout 30
ends 12 "--until" -k "$guest" -p "rounds=5 text=now end=halt" --until now --timeout 30
ends 13 "--duration" -k "$guest" -p "rounds=0" --duration 0.2 --timeout 30
ends 14 "--timeout" -k "$guest" -p "end=halt" --timeout 0.2
ends 20 "KVM's internal error" -k "$guest" -p "rounds=5 end=unemulatable" --timeout 30
if grep -q 'RIP 0x2.*48 0f c7' "$work/err"; then
	pass "an internal error shows RIP and the bytes there"
else
	fail "an internal error shows RIP and the bytes there"
fi
ends 17 "a panic told on the console" -k "$guest" -p "how=panic rounds=1 end=cf9" --timeout 30

# Names come from the guest's file.
record -m 16M -k "$guest" -p "rounds=0" --duration 1 --symbols "$guest"
if "$guestprof" report "$trace" | grep -q 'leaf_70$'; then
	pass "--symbols names the guest's functions"
else
	fail "--symbols names the guest's functions"
fi

# As they do without being asked to; a file without symbols has none to give.
record -m 16M -k "$guest" -p "rounds=0" --duration 1
if "$guestprof" report "$trace" | grep -q 'leaf_70$'; then
	pass "an ELF kernel's own symbols name its functions"
else
	fail "an ELF kernel's own symbols name its functions"
fi
strip -o "$work/stripped" "$guest"
record -m 16M -k "$work/stripped" -p "rounds=0" --duration 1
if "$guestprof" report "$trace" | grep -q 'kernel startup' &&
	grep -q '^  no kernel symbols: ' "$work/err" && ! grep -q '^  processes:' "$work/err"; then
	pass "a stripped kernel is profiled without names, and the summary says so"
else
	fail "a stripped kernel is profiled without names, and the summary says so"
fi

record -m 16M -k "$guest" -p "rounds=5" --timeout 30 --json
if grep -q '"end":"powered off","exit_code":0,' "$work/out"; then
	pass "--json tells the end"
else
	fail "--json tells the end"
fi

# The console goes into the trace. The guest may still begin another line while it is powered off.
record -m 16M -k "$guest" -p "rounds=5 text=prompt" --timeout 30
if "$guestprof" report "$trace" | grep -q '^# console:  [23] lines$' &&
	"$guestprof" timeline -o "$work/page" "$trace" >"$work/out" 2>"$work/err" &&
	grep -q '"guest started"' "$work/page" && grep -q '"prompt"' "$work/page"; then
	pass "console lines are in the trace and on the timeline"
else
	fail "console lines are in the trace and on the timeline"
fi

# The summary is made of the trace, with the sandbox closed.
record -m 16M -k "$guest" -p "rounds=0" -F 10000 --duration 1 --symbols "$guest"
if grep -q '^  functions: leaf_70 [0-9.]* %, .*leaf_20 [0-9.]* %' "$work/err" &&
	grep -q "^  trace $trace, .*guestprof report" "$work/err" && [ "$code" = 13 ]; then
	pass "the summary says where the time went"
else
	fail "the summary says where the time went"
fi

# A line of status, where it cannot get into the guest's text.
if script -qec true /dev/null >/dev/null 2>&1; then
	run="'$guestprof' record -m 16M -k '$guest' -p rounds=0 --duration 2 -o '$trace'"
	script -qec "$run >'$work/out'" "$work/shown" >/dev/null 2>&1 </dev/null
	if grep -q 'samples, .*/s, 0 dropped, guest kernel' "$work/shown" &&
		! grep -q samples "$work/out"; then
		pass "a line of status while the console goes to a file"
	else
		fail "a line of status while the console goes to a file"
	fi
	script -qec "$run" "$work/shown" >/dev/null 2>&1 </dev/null
	script -qec "$run | cat" "$work/piped" >/dev/null 2>&1 </dev/null
	cat "$work/shown" "$work/piped" >"$work/out"
	if grep -q 'guest started' "$work/shown" && grep -q 'guest started' "$work/piped" &&
		! grep -q 'samples, ' "$work/out"; then
		pass "none on the console's own terminal"
	else
		fail "none on the console's own terminal"
	fi
else
	skip "a line of status" "no script(1) here (Debian package bsdutils)"
	skip "none on the console's own terminal" "the same"
fi

rm -f "$trace"
record -m 16M -k "$guest" -p "rounds=5" -F 0 --timeout 30
if [ "$code" = 0 ] && [ ! -e "$trace" ] && [ "$(tail -n 2 "$work/err")" = "
guestprof record: powered off" ]; then
	pass "-F 0 only boots, and its summary is one line"
else
	fail "-F 0 only boots, and its summary is one line"
fi

record -m 16384k -c 2 -k "$guest" -p "run=smp cpus=2 rounds=0" -F 500 --jitter 10 --depth 5 --sample-cpus 1 \
	--duration .5
# From the first tick to the last: up to two periods less than the duration.
"$guestprof" report "$trace" >"$work/report" 2>&1
if [ "$code" = 13 ] && grep -Eq '^# sampled: *2 vCPUs, every 2000 us, 0\.(49[5-9]|[5-9])' "$work/report" &&
	grep -q '^# command: *run=smp cpus=2 rounds=0$' "$work/report" && grep -q cpu_work_1 "$work/report" &&
	! grep -q cpu_work_0 "$work/report"; then
	pass "vCPUs, frequency, duration and sampled vCPUs are those of the command line"
else
	fail "vCPUs, frequency, duration and sampled vCPUs are those of the command line"
fi

# Signals.
for signal in INT TERM HUP; do
	rm -f "$trace" "$work/out"
	"$guestprof" record -m 16M -k "$guest" -p "rounds=0" -o "$trace" --timeout 60 \
		>"$work/out" 2>"$work/err" </dev/null &
	pid=$!
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		grep -q started "$work/out" 2>/dev/null && break
		sleep 0.2
	done
	# A shell's background jobs ignore SIGINT; guestprof asks for it nevertheless.
	kill -s "$signal" "$pid"
	code=0
	wait "$pid" || code=$?
	if [ "$code" = 16 ] && "$guestprof" report "$trace" >"$work/report" 2>&1 &&
		! grep -q INCOMPLETE "$work/report"; then
		pass "SIG$signal: exit code 16, trace complete"
	else
		fail "SIG$signal: exit code $code"
	fi
done

rm -f "$trace"
"$guestprof" record -m 16M -k "$guest" -p "rounds=0" -o "$trace" --timeout 60 \
	>"$work/out" 2>"$work/err" </dev/null &
pid=$!
# Until samples have been written, however slow the machine is.
tries=0
while [ "$(stat -c %s "$trace" 2>/dev/null || echo 0)" -lt 20000 ] && [ $tries -lt 300 ]; do
	sleep 0.1
	tries=$((tries + 1))
done
kill -s KILL "$pid"
wait "$pid" 2>/dev/null
if "$guestprof" report "$trace" >"$work/report" 2>"$work/err" &&
	grep -q '^# INCOMPLETE' "$work/report" && grep -q '^# ticks: *[1-9]' "$work/report"; then
	pass "SIGKILL leaves a trace that can be read"
else
	fail "SIGKILL leaves a trace that can be read"
fi

# A full disk.
mkdir "$work/full"
if mount -t tmpfs -o size=64k none "$work/full" 2>/dev/null; then
	code=0
	timeout 60 "$guestprof" record -m 16M -k "$guest" -p "rounds=0" -F 10000 --duration 2 \
		-o "$work/full/t.fxt" >"$work/out" 2>"$work/err" </dev/null || code=$?
	if [ "$code" = 13 ] && grep -q 'ends early' "$work/err" &&
		"$guestprof" report "$work/full/t.fxt" 2>>"$work/err" | grep -q '^# ticks: *[1-9]'; then
		pass "a full disk is reported, and the trace can be read up to the cut"
	else
		fail "a full disk: exit code $code"
	fi
	umount "$work/full"
else
	skip "a full disk" "no tmpfs can be mounted here"
fi

# Closed descriptors would be given to the trace and to /dev/kvm, and the console printed into them.
code=0
timeout 60 "$guestprof" record -m 16M -k "$guest" -p "rounds=5" --json -o "$trace" \
	<&- >&- 2>"$work/err" || code=$?
if [ "$code" = 1 ] && grep -q '^guestprof: cannot write standard output: Bad file' "$work/err" &&
	"$guestprof" report "$trace" >"$work/report" 2>&1 && ! grep -q INCOMPLETE "$work/report"; then
	pass "closed standard input and output: reported, and the trace is complete"
else
	fail "closed standard input and output: exit code $code"
fi
code=0
timeout 60 "$guestprof" record -m 16M -k "$guest" -p "rounds=5" -o "$trace" \
	>/dev/full 2>"$work/err" </dev/null || code=$?
if [ "$code" = 0 ] && "$guestprof" report "$trace" >"$work/report" 2>&1 &&
	! grep -q INCOMPLETE "$work/report"; then
	pass "a full disk under the console does not stop the guest"
else
	fail "a full disk under the console: exit code $code"
fi

# Bad input: exit code, one line, and words that it must hold.
# refuses CODE NAME WORDS ARGUMENT...
refuses() {
	want=$1
	name=$2
	words=$3
	shift 3
	record "$@"
	lines=$(wc -l <"$work/err")
	if [ "$code" != "$want" ]; then
		fail "$name: exit code $code, not $want"
	elif [ "$lines" != 1 ]; then
		fail "$name: $lines lines, not one"
	elif ! grep -q -e "$words" "$work/err"; then
		fail "$name: does not say '$words'"
	elif [ -s "$work/out" ]; then
		fail "$name: something on standard output"
	else
		pass "refused: $name"
	fi
}

echo text >"$work/text"
: >"$work/empty"
head -c 3000 "$guest" >"$work/cut.elf"
# A bzImage's header, as in the boot protocol: boot flag, "HdrS", version 2.15, 4 setup sectors,
# 64 KiB of payload, 64-bit entry, 16 MiB load address.
bzimage() { # FILE XLOADFLAGS-OCTAL BYTES
	head -c 2560 /dev/zero >"$1"
	poke "$1" 497 '\004'
	poke "$1" 500 '\000\020\000\000'
	poke "$1" 510 '\125\252'
	poke "$1" 513 '\152HdrS\017\002'
	poke "$1" 556 '\377\377\377\177'
	poke "$1" 566 "$2"
	poke "$1" 568 '\377\007\000\000'
	poke "$1" 600 '\000\000\000\001\000\000\000\000'
	poke "$1" 608 '\000\000\001\002'
	head -c "$3" /dev/zero >>"$1"
}
poke() {
	# shellcheck disable=SC2059 # the format is the bytes
	printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}
bzimage "$work/good.bz" '\003' 65536
bzimage "$work/cut.bz" '\003' 1000
bzimage "$work/old.bz" '\003' 65536
poke "$work/old.bz" 518 '\007'
printf '\037\213\010' >"$work/packed"
long=$(head -c 5000 /dev/zero | tr '\0' a)
head -c 20000000 /dev/zero >"$work/large"

refuses 2 "no kernel given" "-k"
refuses 2 "no such kernel" "$work/none" -k "$work/none"
refuses 2 "a text file as kernel" "$work/text is not a kernel" -k "$work/text"
refuses 2 "an empty kernel" "empty" -k "$work/empty"
refuses 2 "a directory as kernel" "not a regular file" -k "$work"
refuses 2 "a truncated ELF kernel" "cut.elf" -k "$work/cut.elf"
refuses 2 "a truncated bzImage" "truncated" -k "$work/cut.bz"
refuses 2 "an old bzImage" "boot protocol 2.07" -k "$work/old.bz"
refuses 2 "a kernel that is packed" "gzip -dc" -k "$work/packed"
refuses 2 "a bzImage that does not fit" "-m" -k "$work/good.bz" -m 20M
refuses 2 "an initrd that does not fit" "-m" -k "$guest" -i "$work/large" -m 16M
refuses 2 "no such initrd" "$work/none" -k "$guest" -i "$work/none"
refuses 2 "an empty initrd" "empty" -k "$guest" -i "$work/empty"
refuses 2 "too little memory" "-m" -k "$guest" -m 1M
refuses 2 "memory that is nonsense" "-m 12X" -k "$guest" -m 12X
refuses 2 "memory of 0" "-m 0" -k "$guest" -m 0
refuses 2 "too many vCPUs" "-c" -k "$guest" -c 10000
refuses 2 "no vCPUs" "-c 0" -k "$guest" -c 0
refuses 2 "vCPUs that are nonsense" "-c two" -k "$guest" -c two
refuses 2 "a frequency that is nonsense" "-F -1" -k "$guest" -F -1
refuses 2 "a frequency too high" "-F 1000000" -k "$guest" -F 1000000
refuses 2 "a command line too long" "-p" -k "$guest" -p "$long"
refuses 2 "an unknown option" "frobnicate" -k "$guest" --frobnicate
refuses 2 "an argument too many" "extra" -k "$guest" extra
refuses 2 "no such disk" "$work/none" -k "$guest" -d "$work/none"
refuses 2 "no such symbol file" "$work/none" -k "$guest" --symbols "$work/none"
refuses 2 "an output that cannot be written" "-o" -k "$guest" -o "$work/none/t.fxt"
refuses 2 "an output that is no file" "regular file" -k "$guest" -o /dev/full
refuses 2 "a depth out of range" "--depth" -k "$guest" --depth 5000
refuses 2 "a timeout that is nonsense" "--timeout" -k "$guest" --timeout soon

head -c 1048576 /dev/zero >"$work/disk"

# hold DISK: a machine that has the disk; returns once its guest runs.
hold() {
	rm -f "$work/held" # the last one's words
	"$guestprof" record -m 16M -k "$guest" -p "rounds=0" -F 0 --timeout 60 -d "$1" \
		>"$work/held" 2>&1 </dev/null &
	pid=$!
	tries=0
	while ! grep -q 'guest started' "$work/held" 2>/dev/null && [ $tries -lt 300 ]; do
		sleep 0.1
		tries=$((tries + 1))
	done
}

hold "$work/disk"
refuses 2 "a disk that another machine writes" "is in use" -k "$guest" -d "$work/disk"
refuses 2 "to read a disk that another machine writes" "is in use" -k "$guest" -d "$work/disk,ro"
kill "$pid"
wait "$pid" 2>/dev/null
hold "$work/disk,ro"
refuses 2 "to write a disk that another machine reads" "is in use" -k "$guest" -d "$work/disk"
code=0
"$guestprof" record -m 16M -k "$guest" -p "rounds=0" -F 0 --duration 1 -d "$work/disk,ro" \
	>"$work/out" 2>"$work/err" </dev/null || code=$?
if [ "$code" = 13 ]; then
	pass "two machines read one disk"
else
	fail "two machines read one disk: exit code $code"
fi
kill "$pid"
wait "$pid" 2>/dev/null

if [ "$(id -u)" = 0 ] && setpriv --reuid 65534 --regid 65534 --clear-groups true 2>/dev/null &&
	! setpriv --reuid 65534 --regid 65534 --clear-groups sh -c ': <>/dev/kvm' 2>/dev/null; then
	chmod 000 "$work/disk"
	cp "$guestprof" "$work/guestprof"
	cp "$guest" "$work/guest"
	code=0
	setpriv --reuid 65534 --regid 65534 --clear-groups "$work/guestprof" record \
		-k "$work/guest" -m 16M -o "$work/out.fxt" >"$work/out" 2>"$work/err" </dev/null ||
		code=$?
	if [ "$code" = 21 ] && grep -q 'group' "$work/err"; then
		pass "no permission on /dev/kvm: exit code 21 and what to do"
	else
		fail "no permission on /dev/kvm: exit code $code"
	fi
	code=0
	setpriv --reuid 65534 --regid 65534 --clear-groups "$work/guestprof" record \
		-k "$work/guest" -m 16M -d "$work/disk" >"$work/out" 2>"$work/err" </dev/null ||
		code=$?
	if [ "$code" = 2 ] && grep -q "$work/disk" "$work/err"; then
		pass "refused: a disk that may not be read"
	else
		fail "a disk that may not be read: exit code $code"
	fi
else
	skip "no permission on /dev/kvm" "needs root to become somebody who has none"
	skip "a disk that may not be read" "needs root to become somebody who may not"
fi

# Files that are no trace, or only a part of one.
record -m 16M -k "$guest" -p "rounds=$(rounds_of 1500)" --timeout 30
# reports CODE NAME FILE WORDS
reports() {
	code=0
	"$guestprof" report "$3" >"$work/out" 2>"$work/err" || code=$?
	cat "$work/out" "$work/err" >"$work/both"
	if [ "$code" = "$1" ] && grep -q -e "$4" "$work/both"; then
		pass "report: $2"
	else
		fail "report: $2: exit code $code"
	fi
}
size=$(wc -c <"$trace")
head -c $((size - 5)) "$trace" >"$work/cut.fxt"
head -c $((size / 2)) "$trace" >"$work/half.fxt"
head -c 3 "$trace" >"$work/three.fxt"
{
	head -c $((size / 2)) "$trace"
	head -c 4096 /dev/urandom
} >"$work/garbage.fxt"
reports 0 "a whole file" "$trace" "powered off"
reports 0 "a file cut in its last record" "$work/cut.fxt" "INCOMPLETE"
reports 0 "half a file" "$work/half.fxt" "INCOMPLETE"
reports 0 "a file that ends in garbage" "$work/garbage.fxt" "INCOMPLETE"
reports 1 "an empty file" "$work/empty" "empty"
reports 1 "a text file" "$work/text" "$work/text"
reports 1 "a kernel" "$guest" "$guest"
reports 1 "no such file" "$work/none" "$work/none"
reports 1 "a directory" "$work" "regular file"
echo "1..$count"
