#!/bin/sh
# guestprof report on a small trace whose every figure is known (tests/golden/make-trace.py): as TAP.
set -u
guestprof=${GUESTPROF:-build/guestprof}
case $guestprof in /*) ;; *) guestprof=$PWD/$guestprof ;; esac
golden=$PWD/tests/golden
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$golden/tasks.fxt" "$work/tasks.fxt"
cd "$work" || exit 1
unset PAGER LESS NO_COLOR
count=0

ok() {
	count=$((count + 1))
	echo "ok $count - report: $1"
}
not_ok() {
	count=$((count + 1))
	echo "not ok $count - report: $1"
}

# golden NAME ARGUMENT...: the output is that of tests/golden/tasks.NAME
golden() {
	name=$1
	shift
	if "$guestprof" report "$@" tasks.fxt >out 2>err && cmp out "$golden/tasks.$name" >&2; then
		ok "golden $name"
	else
		diff "$golden/tasks.$name" out >&2
		not_ok "golden $name"
	fi
}

# rows TITLE EXPECTED ARGUMENT...: "self name" of every row, joined by |
rows() {
	title=$1
	expected=$2
	shift 2
	"$guestprof" report "$@" tasks.fxt 2>err | sed -n '/^#  *\(self\|share\)/,$p' | grep -v '^#' |
		awk '{ n = $0; sub(/^ *[0-9.]+ %  +/, "", n); sub(/^[0-9.]+ %  +/, "", n)
			sub(/^ */, "", n); sub(/  +/, " ", n); printf "%s|", n }' >out
	if [ "$(cat out)" = "$expected" ]; then
		ok "$title"
	else
		echo "# expected $expected" >&2
		echo "# found    $(cat out)" >&2
		not_ok "$title"
	fi
}

# fails CODE TITLE WORDS ARGUMENT...: exit code, and one line that has the words
fails() {
	wanted=$1
	title=$2
	text=$3
	shift 3
	code=0
	"$guestprof" report "$@" >out 2>err || code=$?
	if [ "$code" = "$wanted" ] && [ "$(wc -l <err)" = 1 ] && grep -q -e "$text" err && [ ! -s out ]; then
		ok "$title"
	else
		echo "# exit code $code" >&2
		cat err >&2
		not_ok "$title"
	fi
}

golden functions
golden tree --tree
golden callers --tree=callers --min 0
golden processes --by process
golden markdown --markdown -n 5
golden json --json
golden json-tree --json --tree --by thread

rows "by command, processes of one name are one" \
	'75 evil;\x1b]0;\x0a"|60 make|20 swapper|10 [no process known]|' --by command
rows "by thread" '75 worker |x| (tid 201)|60 make (tid 100)|20 swapper (tid 0)|10 [no thread known]|' \
	--by thread
rows "by vcpu" '90 vCPU 0|75 vCPU 1|' --by vcpu
rows "by mode, idle ones too" \
	'115 guest user|40 guest kernel|20 not started|10 halted|10 in VMM|' --by mode
rows "by module" '115 [user]|20 [kernel modules]|20 [kernel]|10 [early boot]|' --by module
rows "one process" '40 compute|20 ext4_read|0 main|0 do_syscall_64|0 recurse|' --pid 100
rows "a name that a process has from some time on" '40 compute|' --comm make --symbol compute -n 1
rows "one vCPU, one mode" '40 compute|0 main|' --cpu 0 --mode user
rows "between two times" '10 schedule|0 start_kernel|' --from 10ms --to 20ms --cpu 0
rows "stacks with a function" '20 ext4_read|0 do_syscall_64|0 main|0 recurse|' --symbol 'do_sys*'
rows "nothing is left" '' --pid 12345
"$guestprof" report --pid 12345 tasks.fxt >out 2>err
if grep -q '^# nothing: .*filters' out && ! grep -q '^# vCPUs' out; then
	ok "filters that leave nothing are reported"
else
	not_ok "filters that leave nothing are reported"
fi

fails 2 "an unknown subject" "--by colour" --by colour tasks.fxt
fails 2 "an unknown direction" "--tree=up" --tree=up tasks.fxt
fails 2 "a bad filter" "--pid x" --pid x tasks.fxt
fails 2 "times the wrong way round" "--from" --from 3 --to 2 tasks.fxt
fails 2 "two traces" "one trace" tasks.fxt tasks.fxt
fails 1 "a foreign file" "$golden/kallsyms-6.1.txt" "$golden/kallsyms-6.1.txt"
fails 1 "no file" "none.fxt" none.fxt

code=0
"$guestprof" report tasks.fxt >/dev/full 2>err || code=$?
if [ "$code" = 1 ] && [ "$(wc -l <err)" = 1 ] && grep -q "No space left" err; then
	ok "a full disk"
else
	not_ok "a full disk: exit code $code, $(cat err)"
fi

if "$guestprof" report --help | grep -q '^Examples: '; then
	ok "--help has examples"
else
	not_ok "--help has examples"
fi

# A terminal: script(1) makes one.
if command -v script >/dev/null; then
	PAGER="sed s/^/paged:/" script -qec "'$guestprof' report tasks.fxt" /dev/null </dev/null >out 2>err
	if grep -q 'paged:.*36.36 %' out && grep -q "$(printf '\033')\[31m" out; then
		ok "pager and colours on a terminal"
	else
		not_ok "pager and colours on a terminal"
	fi
	NO_COLOR=1 PAGER=cat script -qec "'$guestprof' report tasks.fxt" /dev/null </dev/null >out 2>err
	if grep -q '36.36 %' out && ! grep -q "$(printf '\033')" out; then
		ok "NO_COLOR is heeded"
	else
		not_ok "NO_COLOR is heeded"
	fi
else
	count=$((count + 1))
	echo "ok $count - report: terminal # SKIP no script(1)"
fi
echo "1..$count"
