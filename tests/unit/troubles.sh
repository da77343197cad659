#!/bin/sh
# What every command does when its output cannot be written or its input is not what it should be: one
# line, the right exit code, and nothing half-written under the final name. As TAP.
set -u
guestprof=${GUESTPROF:-build/guestprof}
case $guestprof in /*) ;; *) guestprof=$PWD/$guestprof ;; esac
golden=$PWD/tests/golden
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$golden/tasks.fxt" "$work/boot.fxt"
cp "$golden/slower.fxt" "$work/slower.fxt"
cd "$work" || exit 1
count=0

# check TITLE WANTED-CODE PATTERN: of the run whose exit code is in $code and whose standard error in
# `errors`: that code and one line that matches.
check() {
	count=$((count + 1))
	if [ "$code" = "$2" ] && [ "$(wc -l <errors)" = 1 ] && grep -q -e "$3" errors; then
		echo "ok $count - $1"
	else
		echo "not ok $count - $1: exit code $code"
		sed 's/^/# /' errors
	fi
}
is() { # TITLE GOT WANTED
	count=$((count + 1))
	if [ "$2" = "$3" ]; then
		echo "ok $count - $1"
	else
		echo "not ok $count - $1: '$2', not '$3'"
	fi
}

# All that reads traces, one a line; the trace stands behind.
formats=$("$guestprof" export --help | awk '/^  [a-z]/ { print $1 }')
readers="report
report --json
report --markdown
report --tree
report --tree=callers --json
report --by process
diff boot.fxt
diff --json --all boot.fxt
diff --markdown boot.fxt
diff --tree --all boot.fxt
diff --tree --all --json boot.fxt
flamegraph -o -
flamegraph --svg -o -
flamegraph --diff boot.fxt -o -
flamegraph --svg --diff boot.fxt -o -
timeline -o -
annotate compute
annotate --json compute
$(for format in $formats; do echo "export $format"; done)"
others="--help
--version
doctor --json
$("$guestprof" --help | awk '/^  [a-z]/ { print $1 " --help" }')"

# A full disk behind standard output, and a reader that is gone.
mkfifo pipe
while read -r words; do
	case "
$readers
" in
	*"
$words
"*) trace=slower.fxt ;;
	*) trace= ;;
	esac
	code=0
	# shellcheck disable=SC2086 # words
	"$guestprof" $words $trace >/dev/full 2>errors </dev/null || code=$?
	check "a full disk: $words" 1 "No space left on device"
	sh -c ': <pipe' &
	exec 3>pipe
	wait $!
	code=0
	# shellcheck disable=SC2086
	"$guestprof" $words $trace >&3 2>errors </dev/null || code=$?
	exec 3>&-
	check "a closed pipe: $words" 1 "Broken pipe"
	code=0
	# shellcheck disable=SC2086
	"$guestprof" $words $trace >&- 2>errors </dev/null || code=$?
	check "no standard output: $words" 1 "Bad file descriptor"
done <<END
$readers
$others
END

# Files that are no trace.
head -c 100000 /dev/urandom >noise
echo "not a trace" >text
cp "$guestprof" program 2>/dev/null
: >empty
mkdir directory
while read -r words; do
	for file in noise text program empty directory none; do
		code=0
		# shellcheck disable=SC2086
		"$guestprof" $words $file >output 2>errors </dev/null || code=$?
		check "$file as a trace: $words" 1 "$file"
		[ ! -s output ] || is "nothing on standard output for $file: $words" "$(wc -c <output)" 0
	done
done <<END
$readers
END

# A trace that was cut is read up to the cut, and said to be.
size=$(wc -c <slower.fxt)
head -c $((size - 5)) slower.fxt >cut.fxt
while read -r words; do
	code=0
	# shellcheck disable=SC2086
	"$guestprof" $words cut.fxt >output 2>errors </dev/null || code=$?
	count=$((count + 1))
	case $words in
	export*) said=errors ;;
	*) said=output ;;
	esac
	# --by process and the like have it in the header; Markdown in words of its own.
	if [ "$code" = 0 ] && [ -s output ] && grep -qi -e incomplete -e '"complete": *false' $said; then
		echo "ok $count - a cut trace: $words"
	else
		echo "not ok $count - a cut trace: $words: exit code $code"
		head -n 3 $said | cut -c 1-150 | sed 's/^/# /'
	fi
done <<END
$readers
END

# A file as output: it has its name when it is whole.
for words in "flamegraph" "flamegraph --svg" "timeline" "export perf" "export perfetto" "export json"; do
	echo earlier >result
	(
		ulimit -f 1 # 512 bytes
		trap '' XFSZ
		code=0
		# shellcheck disable=SC2086
		"$guestprof" $words -o result slower.fxt >output 2>errors </dev/null || code=$?
		echo "$code" >code
	)
	code=$(cat code)
	check "a full disk under -o: $words" 1 "result"
	is "the earlier file is unchanged, and nothing is beside it: $words" "$(cat result*)" earlier
	code=0
	# shellcheck disable=SC2086
	"$guestprof" $words -o nowhere/result slower.fxt >output 2>errors </dev/null || code=$?
	check "-o in a directory that is not there: $words" 1 "nowhere/result"
	code=0
	# shellcheck disable=SC2086
	"$guestprof" $words -o directory slower.fxt >output 2>errors </dev/null || code=$?
	check "-o is a directory: $words" 1 "directory"
	code=0
	# shellcheck disable=SC2086
	"$guestprof" $words -o result noise >output 2>errors </dev/null || code=$?
	is "a bad trace leaves the earlier file: $words" "$code $(cat result*)" "1 earlier"
done
# What the name says stays what it is: the umask, a link, and what is no regular file.
rm -f result
(umask 027 && "$guestprof" export folded -o result boot.fxt)
is "an output has the mode that the umask says" "$(stat -c %a result)" 640
echo earlier >target
ln -s target link
"$guestprof" export folded -o link boot.fxt
is "through a link, the target is replaced" "$(readlink link) $(cmp target result && echo same)" "target same"
"$guestprof" export folded -o /dev/null boot.fxt
is "a device is written directly" "$? $(ls -l /dev/null | cut -c 1)" "0 c"
code=0
"$guestprof" export folded -o /dev/full boot.fxt >output 2>errors || code=$?
check "and its errors are told" 1 "/dev/full"
{ "$guestprof" export folded -o /proc/self/fd/3 boot.fxt 3>&1 >&4 | cat >piped; } 4>&1
is "a pipe behind a link is written directly" "$(cmp piped result && echo same)" same
# An output that is what is read would take its place.
while read -r words; do
	cp slower.fxt same.fxt
	ln -sf same.fxt link.fxt
	ln -f same.fxt hard.fxt
	for out in same.fxt ./same.fxt link.fxt hard.fxt; do
		code=0
		# shellcheck disable=SC2086
		"$guestprof" $words -o $out same.fxt >output 2>errors </dev/null || code=$?
		check "-o $out of same.fxt: $words" 1 "$out is what is read"
	done
	is "the trace is unchanged: $words" "$(cmp same.fxt slower.fxt && ls same.fxt*)" same.fxt
done <<END
flamegraph
flamegraph --svg
timeline
export folded
export pprof
END
code=0
"$guestprof" flamegraph --diff same.fxt -o same.fxt boot.fxt >output 2>errors </dev/null || code=$?
check "-o is the trace to compare with" 1 "same.fxt is what is read"
is "that one is as it was" "$(cmp same.fxt slower.fxt && echo same)" same

# Names that are none.
for words in "flamegraph -o" "timeline -o" "export folded -o"; do
	code=0
	# shellcheck disable=SC2086
	"$guestprof" $words "" slower.fxt >output 2>errors </dev/null || code=$?
	check "an empty name: $words" 1 "no name"
done
for words in report flamegraph timeline "export folded"; do
	code=0
	# shellcheck disable=SC2086
	"$guestprof" $words "" >output 2>errors </dev/null || code=$?
	check "an empty name of a trace: $words" 2 "give a trace"
done
code=0
"$guestprof" diff boot.fxt "" >output 2>errors </dev/null || code=$?
check "an empty name of a trace: diff" 2 "give"
for name in gone.fxt gone.fxt.gz here/gone; do
	code=0
	"$guestprof" annotate $name >output 2>errors </dev/null || code=$?
	check "annotate misses a trace, not a function: $name" 1 "$name: No such file"
done

# On a terminal of 80 columns.
for command in $("$guestprof" --help | awk '/^  [a-z]/ { print $1 }') --help; do
	# What export says has its own columns.
	[ "$command" = export ] || is "no line of help is wider than a terminal: $command" \
		"$("$guestprof" "$command" --help | awk 'length > 79')" ""
done
echo "1..$count"
