#!/bin/sh
# The HTML pages in headless Chromium, driven through playwright-core, as TAP: loading, search, zoom,
# the back button, keys, ranges of the timeline, hostile names, and that every figure is that of
# `guestprof report`. Screenshots are left in build/tests/pages/shots.
#
# PAGES_TRACE=FILE also takes pictures of a trace of one's own.
set -u
guestprof=${GUESTPROF:-$PWD/build/guestprof}
out=${guestprof%/*}/tests/pages

skip() {
	echo "1..0 # SKIP $1"
	exit 0
}

[ -x "$out/make_trace" ] || skip "no $out/make_trace: make unit-tests builds it"
. tests/pages/chromium.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out/shots"
"$out/make_trace" hostile "$work/hostile.fxt" || exit 1
"$out/make_trace" base "$work/base.fxt" || exit 1
"$out/make_trace" wild "$work/wild.fxt" || exit 1
"$out/make_trace" large "$work/large.fxt" 1000000 || exit 1
# Traces of real guests.
for golden in tests/golden/*.fxt; do
	[ ! -e "$golden" ] || cp "$golden" "$work/golden-${golden##*/}"
done
cp tests/pages/pages.mjs "$out/pages.mjs" # next to node_modules, where its import looks
GUESTPROF=$guestprof CHROMIUM=$chromium SHOTS=$out/shots WORK=$work node "$out/pages.mjs"
