#!/bin/sh
# Makes the README's pictures anew, out of a trace of the demo: its flame graph, and its timeline with
# the phase between two lines of the console.
#
#   make demo && docs/pictures/make.sh [TRACE]      default: demo/boot.fxt
#
# Needs what the tests of the pages need (chromium, nodejs, npm), and makes them small where pngquant
# and optipng are installed. Only what is looked at is left to do: the pictures are of a real run.
set -eu

cd "$(dirname "$0")/../.."
trace=${1-demo/boot.fxt}
guestprof=$PWD/build/guestprof
out=$PWD/build/tests/pages

skip() {
	echo "docs/pictures/make.sh: $1" >&2
	exit 1
}

[ -e "$trace" ] || skip "there is no $trace: make demo records one"
[ -x "$guestprof" ] || skip "there is no $guestprof: make builds it"
. tests/pages/chromium.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$guestprof" flamegraph -o "$work/flamegraph.html" "$trace"
"$guestprof" timeline -o "$work/timeline.html" "$trace"
cp docs/pictures/make.mjs "$out/pictures.mjs" # next to node_modules, where its import looks
CHROMIUM=$chromium WORK=$work node "$out/pictures.mjs"
for name in flamegraph timeline; do
	picture=$work/$name.png
	if command -v pngquant >/dev/null; then
		pngquant --force --speed 1 --output "$picture" 128 "$picture"
	else
		echo "docs/pictures/make.sh: no pngquant: the pictures are larger than they need be" >&2
	fi
	! command -v optipng >/dev/null || optipng -quiet -o5 "$picture"
	mv "$picture" "docs/pictures/$name.png"
done
ls -l docs/pictures/*.png
