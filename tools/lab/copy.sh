#!/bin/sh
# copy.sh KERNEL DIRECTORY PACKAGE: makes a copy of a kernel in the cache, which is there as a whole
# or not at all.
set -e
mkdir -p "$(dirname "$2")"
work=$(mktemp -d "$2.XXXXXX")
trap 'rm -rf "$work"' EXIT
# Hard links cost no space; another file system needs the bytes.
cp -al -- "$1" "$work/kernel" 2>/dev/null || {
	rm -rf "$work/kernel"
	cp -a -- "$1" "$work/kernel"
}
echo "$3" >"$work/kernel/package"
mv -T "$work/kernel" "$2"
