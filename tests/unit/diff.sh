#!/bin/sh
# guestprof diff on two small traces (tests/golden/make-trace.py): as TAP.
set -u
guestprof=${GUESTPROF:-build/guestprof}
case $guestprof in /*) ;; *) guestprof=$PWD/$guestprof ;; esac
golden=$PWD/tests/golden
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$golden/tasks.fxt" "$golden/slower.fxt" "$work"
cd "$work" || exit 1
count=0

# diff CODE TITLE PATTERN ARGUMENT...: exit code, and a line of the output that matches
diffs() {
	wanted=$1
	title=$2
	pattern=$3
	shift 3
	code=0
	"$guestprof" diff "$@" >out 2>err </dev/null || code=$?
	cat out err >all
	count=$((count + 1))
	if [ "$code" = "$wanted" ] && grep -q -e "$pattern" all; then
		echo "ok $count - diff: $title"
	else
		sed 's/^/# /' all >&2
		echo "not ok $count - diff: $title (exit code $code)"
	fi
}

diffs 0 "what grew comes first" '^ 24.24 %   48.48 %  +24.24 %  compute$' tasks.fxt slower.fxt
diffs 0 "what shrank is there" '^ 24.24 %    0.00 %  -24.24 %  recurse$' tasks.fxt slower.fxt
diffs 0 "nothing but changes" '^# changed:  2 of 8 ' tasks.fxt slower.fxt
diffs 0 "a trace is equal to itself" '^# changed:  0 of 8 ' tasks.fxt tasks.fxt
diffs 0 "all functions" '  ext4_read  (noise)$' --all tasks.fxt slower.fxt
diffs 0 "as a table of Markdown" '^| 24.24 % | 48.48 % | +24.24 % | compute |$' --markdown tasks.fxt slower.fxt
diffs 0 "as JSON" '"name": "compute", "before": 40, "after": 80,' --json tasks.fxt slower.fxt
diffs 3 "growth above the limit" 'compute' --fail-above 5% tasks.fxt slower.fxt
diffs 3 "marked in the table" '\*\*+24.24 %\*\*' --fail-above 5 --markdown tasks.fxt slower.fxt
diffs 0 "growth below the limit" 'compute' --fail-above 25% tasks.fxt slower.fxt
diffs 0 "getting faster is no failure" '^100.00 %   50.00 %  -50.00 %  compute$' --time --fail-above 5% --symbol compute slower.fxt tasks.fxt
diffs 0 "no growth, no failure" 'changed:  0' --fail-above 0% tasks.fxt tasks.fxt
diffs 0 "by time, with the whole" '100.00 %  100.00 %   +0.00 %  \[everything\]  (noise)$' --time --all tasks.fxt slower.fxt
diffs 0 "with what is called" ' 36.36 %   12.12 %  -24.24 %  recurse$' --total tasks.fxt slower.fxt
diffs 0 "filters hold for both" '^# before:   tasks.fxt, 75 ticks' --pid 200 tasks.fxt slower.fxt
diffs 1 "nothing left to compare" 'no sample in which a vCPU ran' --pid 9999 tasks.fxt slower.fxt
diffs 2 "one trace" 'two traces' tasks.fxt
diffs 2 "a bad limit" '--fail-above much' --fail-above much tasks.fxt slower.fxt
diffs 1 "no such file" 'none.fxt' tasks.fxt none.fxt
diffs 1 "a foreign file" 'kallsyms' tasks.fxt "$golden/kallsyms-6.1.txt"
diffs 0 "by call path, below what called it" '^ 24.24 %   48.48 %  +24.24 %  +24.24 %    + compute$' --tree tasks.fxt slower.fxt
diffs 0 "the way to a change is there" '^ 78.79 %   78.79 %   +0.00 %   +0.00 %  + main  (noise)$' --tree tasks.fxt slower.fxt
diffs 0 "paths that changed" '^# changed:  2 of 13 call paths' --tree tasks.fxt slower.fxt
diffs 0 "by the leaf and its callers" '^ 24.24 %   48.48 %  +24.24 %    main$' --tree=callers tasks.fxt slower.fxt
diffs 0 "a tree of times" '^100.00 %  100.00 %   +0.00 %              \[everything\]$' --tree --time tasks.fxt slower.fxt
diffs 0 "a tree without changes" '^# changed:  0 of 13 call paths' --tree tasks.fxt tasks.fxt
diffs 0 "all paths" ' ext4_read  (noise)$' --tree --all tasks.fxt slower.fxt
diffs 0 "small changes left out" '^# without changes below 30 %' --tree --min 30 tasks.fxt slower.fxt
diffs 0 "a tree in Markdown" '^```$' --tree --markdown tasks.fxt slower.fxt
diffs 0 "a tree as JSON" '"name": "compute", "before": 40, .* "self_before": 40, "self_after": 80}' --tree --json tasks.fxt slower.fxt
diffs 3 "a path above the limit" 'compute' --tree --fail-above 5% tasks.fxt slower.fxt
diffs 0 "no path above the limit" 'compute' --tree --fail-above 25% tasks.fxt slower.fxt
diffs 2 "a tree and totals" 'leave out --total' --tree --total tasks.fxt slower.fxt
diffs 0 "--help has examples" '^Examples: ' --help
code=0
"$guestprof" diff tasks.fxt slower.fxt >/dev/full 2>err || code=$?
count=$((count + 1))
if [ "$code" = 1 ] && [ "$(wc -l <err)" = 1 ] && grep -q "No space left" err; then
	echo "ok $count - diff: a full disk"
else
	echo "not ok $count - diff: a full disk (exit code $code)"
fi
if command -v python3 >/dev/null; then
	for words in "" "--tree" "--tree=callers --all"; do
		count=$((count + 1))
		# shellcheck disable=SC2086 # words
		if "$guestprof" diff --json $words tasks.fxt slower.fxt |
			python3 -c 'import json, sys; json.load(sys.stdin)' 2>err; then
			echo "ok $count - diff: JSON is well-formed: $words"
		else
			echo "not ok $count - diff: JSON is well-formed: $words"
		fi
	done
else
	count=$((count + 1))
	echo "ok $count - diff: JSON is well-formed # SKIP no python3"
fi
echo "1..$count"
