#!/bin/sh
# The driver itself: does it count truly, and is silence or a crash a failure? Prints TAP.
set -u

run=$(cd "$(dirname "$0")" && pwd)/run
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# A guestprof that only says what floor this is, or runs a command "in the lab".
cat >guestprof <<'END'
#!/bin/sh
case "$1 $2" in
"doctor --floor") cat floor ;;
"lab --exec")
	shift 2
	echo lab >>lab-runs
	# One that dies behind its first program.
	[ ! -e dies ] || { rm dies && exec "$1" "$2" "$3" "$4" "$5" "$6" "$7"; }
	exec "$@"
	;;
esac
END
chmod +x guestprof
echo native >floor

count=0
# check WHAT EXPECTED-LAST-LINE EXPECTED-CODE ARGUMENTS...: runs the driver; its output stays
# in the file "output".
check() {
	what=$1 last=$2 expected=$3
	shift 3
	count=$((count + 1))
	"$run" --guestprof "$work/guestprof" --out "$work/out" --timeout 2 "$@" >output 2>&1
	code=$?
	if [ "$(tail -n 1 output)" = "$last" ] && [ "$code" = "$expected" ]; then
		echo "ok $count - $what"
	else
		echo "not ok $count - $what"
		sed 's/^/# /' output
		echo "# exit code $code"
	fi
}

# says WHAT TEXT: the last run's output holds the text.
says() {
	count=$((count + 1))
	if grep -q -F -- "$2" output; then
		echo "ok $count - $1"
	else
		echo "not ok $count - $1"
		sed 's/^/# /' output
	fi
}

printf 'echo 1..2; echo "ok 1 - a"; echo "ok 2 - b"\n' >good.sh
printf 'echo "ok 1 - a"; echo "ok 2 - b # SKIP no disk"; echo 1..2\n' >skip.sh
printf 'echo 1..2; echo "ok 1 - a"; echo "not ok 2 - b"; exit 1\n' >bad.sh
printf 'echo 1..2; echo "ok 1 - a"; echo "not ok 2 - b"\n' >bad-exits-well.sh
printf 'echo 1..2; echo "ok 1 - a"; kill -SEGV $$\n' >crash.sh
printf 'echo 1..1; echo "ok 1 - a"; exit 3\n' >code.sh
printf ':\n' >silent.sh
printf 'echo 1..3; echo "ok 1 - a"; echo "ok 2 - b"\n' >short.sh
printf 'echo 1..1; echo "ok 1 - a"; echo "ok 2 - b"\n' >long.sh
printf 'echo "ok 1 - a"\n' >planless.sh
printf 'echo "1..0 # SKIP no kvm"\n' >none.sh
printf 'echo 1..0\n' >empty.sh
printf 'echo 1..1; sleep 20; echo "ok 1 - a"\n' >slow.sh
printf 'echo 1..1; echo "ok 1 - $GUESTPROF_FLOOR/$GUESTPROF_STOCK" >&2; echo "not ok 1 - x"\n' >environment.sh
# A Criterion binary, as far as the driver can tell.
cat >criterion <<'END'
#!/bin/sh
printf 'TAP version 13\n1..3\nok - a::b  (0.00s)\nok - a::c  # SKIP no kvm\nnot ok - a::d  (0.00s)\n' >"${1#--tap=}"
exit 1
END
chmod +x criterion

check "passes are counted" "2 passed, 0 failed, 0 skipped" 0 --unit good.sh
check "sums over programs and floors" "6 passed, 0 failed, 0 skipped" 0 \
	--unit good.sh --kvm good.sh --lab good.sh
check "a skip is no pass" "1 passed, 0 failed, 1 skipped" 0 --unit skip.sh
says "a skip prints its reason" "no disk"
check "a failure fails the run" "1 passed, 1 failed, 0 skipped" 1 --unit bad.sh
check "also when the program exits well" "1 passed, 1 failed, 0 skipped" 1 --unit bad-exits-well.sh
check "a crash is a failure" "1 passed, 1 failed, 0 skipped" 1 --unit crash.sh
says "a crash names its signal" "signal 11"
check "an exit code is a failure" "1 passed, 1 failed, 0 skipped" 1 --unit code.sh
check "silence is a failure" "0 passed, 1 failed, 0 skipped" 1 --unit silent.sh
check "fewer tests than planned are a failure" "2 passed, 1 failed, 0 skipped" 1 --unit short.sh
check "more tests than planned are a failure" "2 passed, 1 failed, 0 skipped" 1 --unit long.sh
check "no plan is a failure" "1 passed, 1 failed, 0 skipped" 1 --unit planless.sh
check "all of a program skipped counts once" "0 passed, 0 failed, 1 skipped" 0 --unit none.sh
check "an empty program is a failure" "0 passed, 1 failed, 0 skipped" 1 --unit empty.sh
check "a program that is not there is a failure" "0 passed, 1 failed, 0 skipped" 1 --unit absent.sh
check "a program without end is ended" "0 passed, 1 failed, 0 skipped" 1 --unit slow.sh
check "one failure among many is seen" "6 passed, 1 failed, 1 skipped" 1 \
	--unit good.sh skip.sh bad.sh --kvm good.sh
check "Criterion's results are counted" "1 passed, 1 failed, 1 skipped" 1 --unit ./criterion
says "a test's own time is told" "s  a::d of ./criterion"
printf 'printf "TAP version 13\\n1..1\\nok - a::slow  (7.25s)\\n" >"${1#--tap=}"\n' >slow-criterion
chmod +x slow-criterion
rm -f sum
check "times and the sum in a file" "4 passed, 2 failed, 0 skipped" 1 \
	--sum sum --unit good.sh silent.sh ./slow-criterion --kvm code.sh
says "a slow test is named" "      7.2 s  a::slow of ./slow-criterion"
says "and a script" " s  silent.sh"
says "each program has its seconds" "  ok   good.sh: 2 passed, 0 failed, 0 skipped, 0."
says "each floor has, too" "time: unit floor 0."
count=$((count + 1))
if [ "$(cat sum)" = "4 passed, 2 failed, 0 skipped" ]; then echo "ok $count - the sum is there"; else echo "not ok $count - the sum is there"; fi
check "stock kernels run directly on native KVM" "0 passed, 1 failed, 0 skipped" 1 --lab environment.sh
says "the environment says so" "native/$work/guestprof"
echo emulated >floor
check "and in the lab on emulated KVM" "0 passed, 1 failed, 0 skipped" 1 --lab environment.sh
says "the environment says that" "emulated/$work/guestprof lab"
rm -f lab-runs
check "emulated KVM is good for tiny guests" "2 passed, 0 failed, 0 skipped" 0 --kvm good.sh
count=$((count + 1))
if [ -e lab-runs ]; then echo "not ok $count - without the lab"; else echo "ok $count - without the lab"; fi
echo none >floor
check "no KVM: tiny guests go to the lab" "4 passed, 1 failed, 0 skipped" 1 --kvm good.sh good.sh silent.sh
count=$((count + 1))
if [ "$(wc -l <lab-runs)" = 1 ]; then echo "ok $count - with one boot"; else echo "not ok $count - with one boot"; fi
touch dies
rm -f lab-runs
check "a lab that dies is followed by another" "5 passed, 0 failed, 1 skipped" 0 --kvm good.sh skip.sh ./good.sh
says "which is said" "another lab for the rest: skip.sh ./good.sh"
count=$((count + 1))
if [ "$(wc -l <lab-runs)" = 2 ]; then echo "ok $count - for what the first one had not done"; else echo "not ok $count - for what the first one had not done"; fi
check "an unknown option is refused" "tests/run: no option '--x'; the head of the file describes it" 2 --x
check "no program at all is refused" "tests/run: no program given, so nothing would be tested; the head of the file describes it" 2 --unit
echo "1..$count"
