#!/bin/sh
# One guest profiled both ways at the same time, as TAP: by guestprof record, which runs it, and by
# guestprof attach, for which it is another process's. Both must say the same.
set -u
guestprof=${GUESTPROF:-build/guestprof}
guest=${guestprof%/*}/tests/guests/long4
work=$(mktemp -d "${TMPDIR:-/tmp}/attach-own.XXXXXX") || exit 1
record=
trap '[ -z "$record" ] || kill -9 "$record" 2>/dev/null; rm -rf "$work"' EXIT
count=0

result() {
	count=$((count + 1))
	if [ "$1" = 0 ]; then
		echo "ok $count - $2"
	else
		echo "not ok $count - $2"
		sed 's/^/# /' "$work"/*.err "$work/report" 2>/dev/null | head -n 40
	fi
}

if ! (: <>/dev/kvm) 2>/dev/null; then
	echo "1..0 # SKIP /dev/kvm cannot be opened"
	exit 0
fi

"$guestprof" record -k "$guest" -p "run=tree rounds=0" -m 5G -F 991 --duration 9 \
	--symbols "$guest" -o "$work/own.fxt" </dev/null >"$work/record.out" 2>"$work/record.err" &
record=$!
sleep 1
"$guestprof" attach -F 997 --duration 6 --symbols "$guest" --json -o "$work/attached.fxt" "$record" \
	>"$work/attach.out" 2>"$work/attach.err"
code=$?
wait "$record"
own=$?
record=
[ "$code" = 13 ]
result $? "attach to a sandboxed guestprof record: exit code $code"
[ "$own" = 13 ] && ! grep -q 'seccomp\|sandbox' "$work/record.err"
result $? "record goes on and ends as it was told: exit code $own"
grep -q '"dropped":0,.*"missed":0,"stale":0' "$work/attach.out"
result $? "nothing dropped, no kick missed, no registers stale"

for trace in own attached; do
	"$guestprof" report "$work/$trace.fxt" >"$work/report" 2>&1 &&
		! grep -q INCOMPLETE "$work/report" &&
		grep -q '^# stacks:  *root 100.0 %' "$work/report"
	result $? "the trace of $trace is complete, every stack whole"
done
# percent NAME FUNCTION: of the trace's stacks; its ticks may be hundreds for one stack on a busy host
percent() {
	"$guestprof" export json "$work/$1.fxt" |
		sed -n 's/.*"stack":\[{"address":"[^"]*","name":"\([^"]*\)".*/\1/p' |
		awk -v function_name="$2" '{ all++; found += $0 == function_name }
			END { print (all > 100 ? found * 100 / all : "too few") }'
}
for function in leaf_70 leaf_20 leaf_8; do
	own=$(percent own $function) attached=$(percent attached $function)
	echo "$function: $own % and $attached %" >"$work/report"
	awk "BEGIN { difference = $own - $attached; exit !(difference < 4 && difference > -4) }" 2>/dev/null
	result $? "both ways have the same share of $function"
done
echo "1..$count"
