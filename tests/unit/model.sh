#!/bin/sh
# The model of the record ring, checked by spin; and its mutations, which must fail: as TAP.
set -u
model=$PWD/tests/model/ring.pml
if ! command -v spin >/dev/null; then
	echo "1..0 # SKIP no spin (Debian package spin)"
	exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
count=0

# check EXPECTED TITLE [DEFINE]: EXPECTED is "none" or "some" errors.
check() {
	count=$((count + 1))
	# shellcheck disable=SC2086 # no word where there is no definition
	spin -a ${3-} "$model" >out 2>&1 && gcc -O2 -o pan pan.c >>out 2>&1 && ./pan -m100000 >>out 2>&1
	case $(sed -n 's/.*errors: \([0-9]*\).*/\1/p' out) in
	0) found=none ;;
	[1-9]*) found=some ;;
	*) found="no result" ;;
	esac
	if [ "$found" = "$1" ]; then
		echo "ok $count - model: $2"
	else
		cat out >&2
		echo "not ok $count - model: $2 (errors: $found)"
	fi
}

check none "no record is lost or torn, every drop is reported"
check some "publishing before copying is found" -DTORN
check some "freeing before copying out is found" -DSTALE
check some "a forgotten account of drops is found" -DUNTOLD
echo "1..$count"
