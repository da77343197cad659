#!/bin/sh
# guestprof annotate with a trace of a tiny guest, as TAP: the instructions are those of the guest's file,
# samples are where its loops are, and figures are those of report.
set -u
guestprof=${GUESTPROF:-build/guestprof}
guest=${guestprof%/*}/tests/guests/long4
work=$(mktemp -d "${TMPDIR:-/tmp}/annotate-test.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trace=$work/t.fxt
. tests/support/tap.sh

# annotate ARGUMENT...: output in $work/out and $work/err, exit code in $code
annotate() {
	code=0
	"$guestprof" annotate "$@" >"$work/out" 2>"$work/err" || code=$?
}
# check NAME: the last command said 0 and `test` arguments hold
check() {
	name=$1
	shift
	if [ "$code" = 0 ] && test "$@"; then pass "$name"; else fail "$name"; fi
}

if ! (: <>/dev/kvm) 2>/dev/null; then
	skip_all "/dev/kvm cannot be opened"
fi
code=0
timeout -k 5 60 "$guestprof" record -m 16M -k "$guest" -p rounds=0 --duration 2 -F 4000 --symbols "$guest" \
	-o "$trace" >"$work/out" 2>"$work/err" </dev/null || code=$?
if [ "$code" != 13 ]; then
	fail "a trace can be recorded"
	echo "1..$count"
	exit 1
fi

annotate "$trace"
if [ "$code" = 1 ] && grep -q 'libcapstone' "$work/err"; then
	skip_all "$(cat "$work/err")"
fi
# leaf_70 has seven tenths of the time: it is first, and all its samples are in its loop of two instructions.
check "the hottest function comes first" \
	"$(sed -n 's/^# \([a-z_0-9]*\) \[symbol file\]: .*/\1/p' "$work/out" | head -n 1)" = leaf_70

annotate --all --bytes --no-source leaf_70 "$trace"
loop=$(awk '$2 == "%" && /sub|jne/ {sum += $1} END {print (sum > 95)}' "$work/out")
check "samples are at the instructions of the loop" "$loop" = 1

if command -v objdump >/dev/null; then
	objdump -d --no-show-raw-insn --disassemble=leaf_70 "$guest" |
		sed -n 's/^ *\([0-9a-f]*\):\t\([a-z]*\).*/\1 \2/p' >"$work/want"
	sed -n 's/^\( *[0-9.]* %\)\{0,1\} *\([0-9a-f]\{6\}\)  \([0-9a-f][0-9a-f] \)* *\([a-z]*\).*/\2 \4/p' \
		"$work/out" | sed 's/\(push\|sub\|mov\|ret\)[qlb]$/\1/' >"$work/have"
	sed 's/\(push\|sub\|mov\|ret\)[qlb]$/\1/' "$work/want" >"$work/want2"
	if [ -s "$work/have" ] && cmp -s "$work/have" "$work/want2"; then
		pass "the code equals the guest's file, instruction by instruction"
	else
		diff "$work/want2" "$work/have" >"$work/err"
		fail "the code equals the guest's file, instruction by instruction"
	fi
else
	skip "the code equals the guest's file" "no objdump"
fi

annotate --json leaf_70 "$trace"
ticks=$(grep -o '"ticks": [0-9]*' "$work/out" | sed -n '1s/.*: //p')
sum=$(grep -o '"ticks": [0-9]*' "$work/out" | sed '1d; s/.*: //' | awk '{s += $1} END {print s}')
self=$("$guestprof" report --json "$trace" | sed -n 's/.*"name": "leaf_70".*"self": \([0-9]*\).*/\1/p')
check "JSON: instructions add up to the function, and the function is the report's" \
	"$ticks:$sum" = "$self:$self"
if command -v python3 >/dev/null; then
	python3 -m json.tool "$work/out" >/dev/null 2>"$work/err" || code=1
	check "JSON can be parsed" -s "$work/out"
else
	skip "JSON can be parsed" "no python3"
fi

# Functions that call others take little time themselves.
annotate --all --hottest 0 "$trace"
if [ "$code" = 0 ] && ! grep -q ' call' "$work/out"; then
	skip "calls show the names of functions" "no sample stopped in a function that calls another"
else
	check "calls show the names of functions" -n "$(grep -E 'call.*# [a-z_0-9]+$' "$work/out")"
fi

annotate --intel leaf_70 "$trace"
check "--intel" -n "$(grep 'mov  *rbp, rsp' "$work/out")"

annotate --vmlinux "$guest" leaf_70 "$trace"
if [ "$code" = 1 ] && grep -q 'libdw' "$work/err"; then
	skip "source lines" "$(cat "$work/err")"
else
	check "source lines and their text" -n "$(grep 'roles.c:[0-9]* .*COUNT_DOWN(42000)' "$work/out")"
	"$guestprof" report --by line --vmlinux "$guest" "$trace" >"$work/out" 2>"$work/err" || code=1
	line=$(grep -n 'COUNT_DOWN(42000)' tests/guests/roles.c | cut -d : -f 1)
	check "report --by line: the loop's line is the hottest" \
		-n "$(grep '%' "$work/out" | grep -v '^#' | head -n 1 | grep "roles.c:$line\$")"
fi

annotate --vmlinux "$0" "$trace"
if [ "$code" = 1 ] && [ "$(wc -l <"$work/err")" = 1 ] && [ ! -s "$work/out" ]; then
	pass "a --vmlinux that is not an ELF file is reported in one line"
else
	fail "a --vmlinux that is not an ELF file is reported in one line"
fi
annotate no_such_function "$trace"
if [ "$code" = 1 ] && grep -q "no_such_function" "$work/err" && [ ! -s "$work/out" ]; then
	pass "a function without samples is reported in one line"
else
	fail "a function without samples is reported in one line"
fi
annotate --hottest x "$trace"
[ "$code" = 2 ] && pass "a bad number: exit code 2" || fail "a bad number: exit code 2"
annotate a b c
[ "$code" = 2 ] && pass "too many names: exit code 2" || fail "too many names: exit code 2"
echo "1..$count"
