#!/bin/sh
# The HTML pages in headless Chromium, driven through playwright-core, as TAP: loading, search, zoom,
# the back button, keys, ranges of the timeline, hostile names, and that every figure is that of
# `guestprof report`. Screenshots are left in build/tests/pages/shots.
#
# PAGES_TRACE=FILE also takes pictures of a trace of one's own.
set -u
guestprof=${GUESTPROF:-$PWD/build/guestprof}
out=${guestprof%/*}/tests/pages
playwright=1.65.1

skip() {
	echo "1..0 # SKIP $1"
	exit 0
}

chromium=
for name in chromium chromium-browser google-chrome; do
	[ -n "$chromium" ] || chromium=$(command -v "$name") || chromium=
done
[ -n "$chromium" ] || skip "no chromium (Debian package chromium)"
command -v node >/dev/null || skip "no node (Debian package nodejs)"
[ -x "$out/make_trace" ] || skip "no $out/make_trace: make unit-tests builds it"
if [ ! -e "$out/node_modules/playwright-core/package.json" ]; then
	command -v npm >/dev/null || skip "no npm (Debian package npm), and playwright-core is not there"
	mkdir -p "$out"
	timeout 120 npm install --silent --no-save --no-audit --no-fund --prefix "$out" \
		"playwright-core@$playwright" >"$out/npm.log" 2>&1 ||
		skip "playwright-core cannot be fetched with npm (see $out/npm.log)"
fi

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
