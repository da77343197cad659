#!/bin/sh
# Makes an initramfs with Debian's initramfs-tools, for a kernel that is not installed.
#
#   tests/lab/support/initramfs-tools.sh KERNEL-DIRECTORY OUT
#
# The directory is one of `guestprof lab --fetch`. Nothing is installed: the packages are unpacked
# over this machine's root in a mount namespace of our own, where mkinitramfs runs as it is.
# An output that is newer than the kernel is kept. Needs apt-get, dpkg-deb and unshare; the last
# line on standard error is the reason when it cannot be done.
set -eu

kernel=$(cd "$1" && pwd -P)
out=$2
here=$(cd "$(dirname "$0")" && pwd)

if [ "${3-}" != inside ]; then
	[ ! -e "$out" ] || [ -n "$(find "$kernel/package" -newer "$out")" ] || exit 0
	mkdir -p "$(dirname "$out")"
	out=$(cd "$(dirname "$out")" && pwd)/$(basename "$out")
	packages=$(dirname "$out")/initramfs-tools-packages
	mkdir -p "$packages"
	for package in initramfs-tools-core klibc-utils libklibc kmod; do
		ls "$packages/${package}"_*.deb >/dev/null 2>&1 ||
			(cd "$packages" && apt-get -qq download "$package") >&2 || {
			echo "the Debian package $package cannot be had here" >&2
			exit 1
		}
	done
	root=$(mktemp -d)
	trap 'rmdir "$root"; rm -f "$out.new"' EXIT
	options=-m
	[ "$(id -u)" = 0 ] || options=-Urm
	unshare $options true 2>/dev/null || {
		echo "no mount namespaces for this user here" >&2
		exit 1
	}
	unshare $options sh "$here/initramfs-tools.sh" "$kernel" "$out.new" inside "$packages" "$root" >&2 || {
		echo "mkinitramfs cannot be run in a mount namespace here" >&2
		exit 1
	}
	mv "$out.new" "$out"
	exit 0
fi

packages=$4
root=$5
version=$(cat "$kernel/version")
mount -t tmpfs none "$root"
mkdir "$root/upper" "$root/work" "$root/all" "$root/modules"
mount -t overlay overlay \
	-o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" "$root/all"
for deb in "$packages"/*.deb; do
	dpkg-deb --fsys-tarfile "$deb" |
		tar -x --keep-directory-symlink --no-same-owner -C "$root/all"
done
mkdir -p "$root/all/lib/modules" "$root/all/tmp/out" "$root/all/etc/initramfs-tools"
cp -rs "$kernel/modules" "$root/all/lib/modules/$version"
mount --rbind /dev "$root/all/dev"
mount -t proc proc "$root/all/proc" 2>/dev/null || mount --rbind /proc "$root/all/proc"
# Only what a virtual machine needs: an initramfs of all modules takes minutes to unpack where
# KVM itself is emulated.
cat >"$root/all/etc/initramfs-tools/initramfs.conf" <<-'CONF'
	MODULES=list
	BUSYBOX=auto
	COMPRESS=gzip
CONF
echo CONFIG_RD_GZIP=y >"$root/all/boot/config-$version" # all that is looked up there
printf '%s\n' virtio_mmio virtio_blk ext4 >"$root/all/etc/initramfs-tools/modules"
# The links lead to where the kernel lies, which is below the same root.
chroot "$root/all" sh -c "
	depmod '$version' &&
	mkinitramfs -o /tmp/out/initramfs '$version'"
cp "$root/all/tmp/out/initramfs" "$out"
