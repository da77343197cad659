#!/bin/sh
# The commands flamegraph and timeline: names of their output, exit codes, and that nothing half-written
# gets the final name, as TAP. What the pages do is tested in a browser, by tests/pages.
set -u
guestprof=${GUESTPROF:-$PWD/build/guestprof}
case $guestprof in /*) ;; *) guestprof=$PWD/$guestprof ;; esac
golden=$PWD/tests/golden/tasks.fxt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
cp "$golden" boot.fxt
count=0

# is WHAT GOT WANTED
is() {
	count=$((count + 1))
	if [ "$2" = "$3" ]; then
		echo "ok $count - pages: $1"
	else
		echo "not ok $count - pages: $1"
		printf '%s\n' "got:" "$2" "wanted:" "$3" | sed 's/^/# /'
	fi
}

# run WORD...: leaves code, output and errors
run() # The reader is gone before anything is written.
mkfifo pipe
sh -c ': <pipe' &
exec 3>pipe
wait $!
code=0
"$guestprof" flamegraph -o - boot.fxt >&3 2>errors || code=$?
exec 3>&-
is "a closed pipe" "$code $(cat errors)" \
	"1 guestprof flamegraph: cannot write standard output: Broken pipe"

for words in "flamegraph --no-such" "flamegraph --callers boot.fxt" "flamegraph --svg --diff a b" \
	"flamegraph a b" "timeline a b" "timeline --mode sleepy boot.fxt" "timeline --cpu x boot.fxt"; do
	# shellcheck disable=SC2086 # words
	run $words
	is "a bad command line: $words" "$code $(wc -c <output)" "2 0"
done
for command in flamegraph timeline; do
	run $command --help
	is "$command --help has examples" "$code $(grep -c '^Examples:' output)" "0 1"
done
echo "1..$count"
