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
run() {
	code=0
	"$guestprof" "$@" >output 2>errors </dev/null || code=$?
}

run flamegraph boot.fxt
is "flamegraph: the page is beside the trace, and named" "$code $(cat output)" "0 boot.html"
is "it is whole" "$(tail -n 1 boot.html)" "</html>"
run timeline boot.fxt
is "timeline: another name" "$code $(cat output)" "0 boot-timeline.html"
run flamegraph --svg boot.fxt
is "the picture's name" "$code $(cat output) $(tail -n 1 boot.svg)" "0 boot.svg </svg>"
run flamegraph -o - boot.fxt
is "- is the standard output, and nothing else is printed there" "$code $(tail -n 1 output)" "0 </html>"
is "it loads nothing: there is no address in it" \
	"$(grep -o 'https\?://[^"'\'' ]*' boot.html boot-timeline.html | sort -u)" ""
is "the same trace gives the same page, but for the nonce of its policy" \
	"$(sed 's/nonce[-=]["]*[0-9a-f]*//g' output | cksum)" \
	"$(sed 's/nonce[-=]["]*[0-9a-f]*//g' boot.html | cksum)"
run flamegraph --diff boot.fxt -o diff.html boot.fxt
is "a comparison holds both" "$code $(grep -o '"path":"boot' diff.html | wc -l)" "0 2"

head -c 20000 boot.fxt >cut.fxt
run timeline cut.fxt
is "a cut trace is shown" "$code $(tail -n 1 cut-timeline.html)" "0 </html>"
is "and said to be cut" "$(grep -c '"complete":false,"cut":true' cut-timeline.html)" 1
echo "no trace" >foreign.fxt
run flamegraph foreign.fxt
is "a foreign file" "$code $(wc -l <errors)" "1 1"
run flamegraph missing.fxt
is "a missing file" "$code $(cat errors)" \
	"1 guestprof flamegraph: cannot open the trace missing.fxt: No such file or directory"
is "no page of either" "$(ls foreign.* missing.* 2>/dev/null)" "foreign.fxt"

echo earlier >full.html
(
	ulimit -f 8 # blocks of 512 bytes
	trap '' XFSZ
	run flamegraph -o full.html boot.fxt
	echo "$code" >code
)
is "a full disk: an error in one line" "$(cat code) $(wc -l <errors)" "1 1"
is "and the earlier file is unchanged" "$(cat full.html*)" "earlier"
run flamegraph -o /dev/full boot.fxt
is "a full device" "$code $(cat errors)" \
	"1 guestprof flamegraph: cannot write /dev/full: No space left on device"

# The reader is gone before anything is written.
mkfifo pipe
sh -c ': <pipe' &
exec 3>pipe
wait $!
code=0
"$guestprof" flamegraph -o - boot.fxt >&3 2>errors || code=$?
exec 3>&-
is "a closed pipe" "$code $(cat errors)" \
	"1 guestprof flamegraph: cannot write standard output: Broken pipe"

for words in "flamegraph --no-such" "flamegraph --callers boot.fxt" "flamegraph --svg --diff a b c" \
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
