#!/bin/sh
# unpack.sh PACKAGE: makes the directory `kernel` of the Debian packages in this one: vmlinuz,
# modules, version and, where there is one, System.map. PACKAGE is how it is called if it is none.
set -e
for archive in *.deb; do
	dpkg-deb -x "$archive" tree || {
		echo "cannot unpack $archive" >&2
		exit 1
	}
done
# In boot or, since Linux 7.2, beside its modules.
for image in tree/boot/vmlinuz-* tree/usr/lib/modules/*/vmlinuz; do
	[ ! -e "$image" ] || break
done
case $image in
tree/boot/*) release=${image#tree/boot/vmlinuz-} ;;
*) release=$(basename "$(dirname "$image")") ;;
esac
[ -e "$image" ] || {
	echo "the package $1 holds no kernel" >&2
	exit 1
}
mkdir kernel
mv "$image" kernel/vmlinuz
[ ! -e "tree/boot/System.map-$release" ] || mv "tree/boot/System.map-$release" kernel/System.map
# Packages of a system with merged /usr have the second.
for modules in "tree/lib/modules/$release" "tree/usr/lib/modules/$release"; do
	[ ! -e "$modules" ] || break
done
mv "$modules" kernel/modules
echo "$release" >kernel/version
