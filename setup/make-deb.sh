#!/bin/sh
# Builds the Debian packages from debian/: `make deb` runs it.
#
#   setup/make-deb.sh OUT
#
# A copy of the tree is built, so that the tree itself stays as it is: of a git checkout the files that
# git tracks or would, changed ones as they are now; elsewhere all but build/. The source package, the
# binary packages and their symbols for debuggers land in OUT, which is emptied first. No root is needed.
set -eu

[ $# = 1 ] || {
	echo "usage: setup/make-deb.sh OUT" >&2
	exit 2
}
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
version=$(sed -n '1s/.*(\(.*\)).*/\1/p' debian/changelog)
source=$out/guestprof-$version
rm -rf "$out"
mkdir -p "$source"

if [ -e .git ] && git rev-parse >/dev/null 2>&1; then
	git ls-files -z --cached --others --exclude-standard >"$out/files"
else
	find . -path ./build -prune -o -path ./.git -prune -o ! -type d -print0 >"$out/files"
fi
# A tracked file that was deleted is not there to be copied.
xargs -0 sh -c 'for file; do [ ! -e "$file" ] || printf "%s\0" "$file"; done' sh <"$out/files" |
	tar --null --no-recursion -cf - -T - | tar -xf - -C "$source"
rm "$out/files"

# What this make was told, and the flags of a developer, are not the packages'.
cd "$source"
env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKEOVERRIDES -u BUILD -u CC -u CFLAGS -u CPPFLAGS -u LDFLAGS \
	-u DEBUG -u SAN -u PREFIX -u LIBDIR -u DESTDIR \
	LC_ALL=C dpkg-buildpackage --no-sign -j"$(nproc)" >"$out/build.log" 2>&1 || {
	tail -n 40 "$out/build.log" >&2
	echo "setup/make-deb.sh: dpkg-buildpackage failed; all it said is in $out/build.log" >&2
	exit 1
}
rm -rf "$source"
ls "$out"/*.deb
