#!/bin/sh
# Pages of a million samples of 30 frames: time and memory to make them, their size, and, where
# Chromium is, how long one takes to be ready. Goals: at most 5 MB, at most a second.
set -u
guestprof=${GUESTPROF:-build/guestprof}
programs=${guestprof%/*}/tests/pages
[ -x "$programs/make_trace" ] || { echo "skipped: no $programs/make_trace (make unit-tests builds it)"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$programs/make_trace" large "$work/large.fxt" 1000000 || exit 1
for page in flamegraph timeline; do
	begin=$(date +%s%N)
	"$guestprof" "$page" -o "$work/$page.html" "$work/large.fxt" || exit 1
	end=$(date +%s%N)
	echo "$page of 1,000,000 samples: $(wc -c <"$work/$page.html") bytes, made in $(((end - begin) / 1000000)) ms"
done
case $guestprof in /*) ;; *) guestprof=$PWD/$guestprof ;; esac
GUESTPROF=$guestprof sh tests/pages/pages.sh | sed -n 's/^# \(.*ready after.*\)/in Chromium: \1/p; s/^1..0 # SKIP/in Chromium: skipped:/p'
