#!/bin/sh
# Checks that the parts of a release agree: `make lint` runs it.
#
#   tests/lint/release.sh VERSION LIBRARY
#
# VERSION, the Makefile's, heads CHANGES.md and debian/changelog. The symbols that LIBRARY exports are
# those of debian/libguestprof0.symbols, the only list of them. Libraries that the sources load while
# they run are among what the Debian package recommends or suggests.
set -u
export LC_ALL=C

if [ $# != 2 ]; then
	echo "usage: tests/lint/release.sh VERSION LIBRARY" >&2
	exit 2
fi
version=$1
library=$2
failures=0
fail() {
	echo "release: $1"
	failures=1
}

changes=$(sed -n 's/^## //p' CHANGES.md | head -n 1)
[ "$changes" = "$version" ] || fail "the Makefile has version $version, CHANGES.md begins with '$changes'"
packaged=$(sed -nE '1s/^guestprof \(([^)]*)\).*/\1/p' debian/changelog)
[ "$packaged" = "$version" ] || fail "the Makefile has version $version, debian/changelog begins with '$packaged'"

list=debian/libguestprof0.symbols
listed=$(sed -nE 's/^ ([^@ ]+)@Base .*/\1/p' $list | sort)
exported=$(nm -D --defined-only "$library" | awk '{ print $3 }' | sort)
[ -n "$exported" ] || fail "$library exports nothing"
for symbol in $listed; do
	echo "$exported" | grep -qx "$symbol" ||
		fail "$library does not export $symbol, which $list has: programs that use it would not start"
done
for symbol in $exported; do
	echo "$listed" | grep -qx "$symbol" ||
		fail "$library exports $symbol, which is not in $list"
done
soname=$(objdump -p "$library" | awk '$1 == "SONAME" { print $2 }')
[ "$soname" = "$(sed -n '1s/ .*//p' $list)" ] || fail "$library has soname $soname, $list another"

loaded=$(sed -n 's/^LOADED := //p' debian/rules)
suggested=$(sed -n 's/^Suggests: //p' debian/control)
for name in $(grep -rhoE '"lib[a-z0-9]+\.so\.' --include='*.c' base guest-introspection naming recording \
	analysis attach tools | sed -E 's/"lib(.*)\.so\./\1/' | sort -u); do
	case " $loaded , $suggested" in
	*" $name "* | *" lib$name"[0-9]*) ;;
	*) fail "lib$name is loaded by a source and in neither LOADED of debian/rules nor Suggests of debian/control" ;;
	esac
done
exit $failures
