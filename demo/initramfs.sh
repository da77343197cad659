#!/bin/sh
# Makes the demo's initramfs: busybox, the workload and init.sh.
#
#   demo/initramfs.sh OUT [MODULES-DIRECTORY]
#
# Beside it goes OUT.workload, the program with its symbols.
# With the modules directory of a kernel (`guestprof lab --fetch` makes one) it holds the
# drivers of virtio's disk and random numbers and ext4 too. Needs the Debian packages gcc,
# libc6-dev, busybox-static, cpio and gzip; no root. The output is replaced when it is whole.
set -eu

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
	echo "usage: demo/initramfs.sh OUT [MODULES-DIRECTORY]" >&2
	exit 2
fi
out=$1
modules=${2-}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$(dirname "$out")"
work=$(mktemp -d)
trap 'rm -rf "$work" "$out.$$"' EXIT

for tool in "${CC:-gcc}" cpio gzip busybox; do
	command -v "$tool" >/dev/null || {
		echo "demo/initramfs.sh: no $tool; setup/packages.sh build lab installs it" >&2
		exit 1
	}
done

root=$work/root
mkdir -p "$root/bin" "$root/dev" "$root/proc" "$root/sys" "$root/modules"
cp "$(command -v busybox)" "$root/bin/busybox"
cp "$here/init.sh" "$root/init"
chmod 755 "$root/init" "$root/bin/busybox"
# Frame pointers, and every function as it is written; at addresses that no other program of the
# guest has, so that record --symbols OUT.workload names nothing wrongly.
"${CC:-gcc}" -std=gnu17 -O1 -g -fno-omit-frame-pointer -fno-optimize-sibling-calls -static -no-pie \
	-Wl,-Ttext-segment=0x10000000 -o "$root/bin/workload" "$here/workload.c"
cp "$root/bin/workload" "$out.workload"

# The file of a module: dashes and underscores are the same, .ko may be compressed.
find_module() {
	pattern=$(echo "$1" | sed 's/[-_]/[-_]/g')
	find "$modules/" -name "$pattern.ko" -o -name "$pattern.ko.xz" -o -name "$pattern.ko.zst" |
		head -n 1
}

count=10
# Copies a module behind those it depends on, under a name that gives the order. One that
# the kernel has built in is not there as a file.
add_module() {
	for added in "$root/modules/"*-"$1.ko"; do
		[ ! -e "$added" ] || return 0
	done
	file=$(find_module "$1")
	[ -n "$file" ] || return 0
	case $file in
	*.xz) xz -dc "$file" >"$work/$1.ko" ;;
	*.zst) zstd -dcq "$file" >"$work/$1.ko" ;;
	*) cp "$file" "$work/$1.ko" ;;
	esac
	for dependency in $(tr '\0' '\n' <"$work/$1.ko" | sed -n 's/^depends=//p' | tr ',' ' '); do
		add_module "$dependency"
	done
	mv "$work/$1.ko" "$root/modules/$count-$1.ko"
	count=$((count + 1))
}

if [ -n "$modules" ]; then
	for module in virtio_mmio virtio_blk virtio_rng crc32c_generic ext4; do
		add_module "$module"
	done
fi

(cd "$root" && find . | LC_ALL=C sort | cpio --quiet -o -H newc -R 0:0 --reproducible) |
	gzip -n -9 >"$out.$$"
mv "$out.$$" "$out"
