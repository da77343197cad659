#!/bin/sh
# What the lab boots: a kernel put together from its packages, with an apt of the test's own, and the
# initramfs with its modules, however they are packed. As TAP.
set -u
guestprof=${GUESTPROF:-build/guestprof}
case $guestprof in /*) ;; *) guestprof=$PWD/$guestprof ;; esac
top=$PWD
ARCHIVE=$(mktemp -d)
trap 'rm -rf "$ARCHIVE"' EXIT
cd "$ARCHIVE" || exit 1
export ARCHIVE GUESTPROF_CACHE="$ARCHIVE/cache"
PATH=$ARCHIVE/bin:$PATH
count=0

is() { # TITLE GOT WANTED
	count=$((count + 1))
	if [ "$2" = "$3" ]; then
		echo "ok $count - $1"
	else
		echo "not ok $count - $1"
		printf '%s\n' "got:" "$2" "wanted:" "$3" | sed 's/^/# /'
		sed 's/^/# /' errors
	fi
}
skip() {
	count=$((count + 1))
	echo "ok $count - $1 # SKIP $2"
}
lab() {
	code=0
	"$guestprof" lab "$@" >output 2>errors </dev/null || code=$?
}

# --- packages
# package NAME DEPENDS: its archive, and what apt-cache says of it
package() {
	mkdir -p "$1/DEBIAN"
	printf 'Package: %s\nVersion: 9.9-1\nArchitecture: amd64\nDepends: %s\nMaintainer: a <a@b>\nDescription: a\n' \
		"$1" "$2" >"$1/DEBIAN/control"
	cp "$1/DEBIAN/control" "$1.control"
	dpkg-deb --root-owner-group -b "$1" "$1_9.9-1_amd64.deb" >&2
}
if command -v dpkg-deb >/dev/null; then
	mkdir -p bin linux-binary-9.9-test/usr/lib/modules/9.9-test \
		linux-modules-9.9-test/usr/lib/modules/9.9-test/kernel \
		linux-image-8.8-test/boot linux-image-8.8-test/lib/modules/8.8-test/kernel
	# One package has all, up to Linux 6.18; later vmlinuz and modules have their own.
	echo "the old kernel" >linux-image-8.8-test/boot/vmlinuz-8.8-test
	echo "an old module" >linux-image-8.8-test/lib/modules/8.8-test/kernel/a.ko
	echo "the kernel" >linux-binary-9.9-test/usr/lib/modules/9.9-test/vmlinuz
	echo "a module" >linux-modules-9.9-test/usr/lib/modules/9.9-test/kernel/a.ko
	package linux-image-8.8-test "kmod, linux-base (>= 4.3~), initramfs-tools | dracut"
	package linux-image-old "linux-image-8.8-test (= 8.8)"
	package linux-image-test "linux-base-test, linux-image-9.9-test (= 9.9-1), linux-modules-test (= 9.9-1)"
	package linux-image-9.9-test "dracut | initramfs-tools (>= 0.120+deb8u2), linux-base-9.9-test (= 9.9-1),\
 linux-binary-9.9-test (= 9.9-1), linux-modules-9.9-test (= 9.9-1), linux-modules-9.9-rt-test"
	package linux-binary-9.9-test kmod
	package linux-modules-9.9-test kmod
	cat >bin/apt-cache <<'END'
#!/bin/sh
for package; do :; done
cat $ARCHIVE/$package.control
echo apt-cache "$@" >>$ARCHIVE/log
END
	cat >bin/apt-get <<'END'
#!/bin/sh
echo apt-get "$@" >>$ARCHIVE/log
for word; do
	[ ! -e $ARCHIVE/${word}_9.9-1_amd64.deb ] || cp $ARCHIVE/${word}_* .
	[ "$word" != indextargets ] || echo http://mirror.test/debian
done
END
	chmod +x bin/*

	lab --fetch linux-image-old old
	is "one package with all of a kernel" "$code $(cat old/version old/vmlinuz old/modules/kernel/a.ko old/package)" \
		"0 8.8-test
the old kernel
an old module
linux-image-old"
	lab --fetch linux-image-test kernel
	is "a kernel is put together from several" \
		"$code $(cat kernel/version kernel/vmlinuz kernel/modules/kernel/a.ko kernel/package)" "0 9.9-test
the kernel
a module
linux-image-test"
	is "of its own packages, not of those that are named alike" "$(grep -c rt-test log)" 0
	mv bin apt
	lab --fetch linux-image-test kernel
	is "what is there is not asked for again" "$code" 0
	lab --fetch linux-image-9.9-test other
	is "under whatever name" "$code $(cat other/vmlinuz)" "0 the kernel"
	mv apt bin

	rm log
	lab --fetch linux-image-test@forky forky
	is "a suite has lists of its own" "$code $(grep -c 'http://mirror.test/debian forky main' \
		cache/apt/forky/sources.list)" "0 1"
	is "all but the question for the mirror are about those" \
		"$(grep -v indextargets log | grep -cv -e " -c $ARCHIVE/cache/apt/forky/apt.conf ")" 0
	is "which are got once" "$(grep -c 'apt.conf update' log)" 1
	is "the kernel is in the cache under both names" \
		"$(cat forky/package) $(readlink cache/kernels/linux-image-test@forky)" \
		"linux-image-test@forky linux-image-9.9-test"

	lab --fetch linux-modules-9.9-test none
	is "what is no kernel is told" "$code $(grep -c 'holds no kernel' errors)" "125 1"
	lab --fetch linux-image-none@forky none
	is "so is a package that the suite has not" "$code $(grep -c suite errors)" "125 1"
	is "they leave nothing" "$(ls -d none* cache/kernels/linux-modules* cache/kernels/linux-image-none* 2>/dev/null)" ""
else
	skip "packages of kernels" "there is no dpkg-deb here"
fi
for name in "" a/b "a b" linux-image-amd64@ linux-image-amd64@-x linux-image-amd64@a/b linux-image-amd64@a@b \
	"linux-image-amd64@a
b"; do
	lab --fetch "$name" none
	is "no name of a package: $(echo "$name" | tr '\n' /)" "$code $(grep -c 'is not the name of a package' errors)" "125 1"
done
lab --fetch -oAPT none
is "nor is an option one" "$code $(grep -c guestprof errors) $([ -e none ] || echo nothing)" "2 1 nothing"

# --- the initramfs
kernel=$ARCHIVE/k
mkdir -p "$kernel/modules/kernel/net" "$kernel/modules/kernel/fs"
echo kernel >"$kernel/vmlinuz"
echo 6.1.0-test >"$kernel/version"
# module PATH DEPENDS: as far as the lab looks into it
module() {
	printf '\177ELF\0license=GPL\0depends=%s\0name=%s\0' "$2" "$1" >"$kernel/modules/kernel/$1"
}
archives() {
	find cache/lab -type f 2>/dev/null | grep -c .
}
# setup: makes the initramfs; its files are in out/
setup() {
	lab --kernel "$kernel" --setup
	rm -rf out
	mkdir out
	newest=$(find cache/lab -type f -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -n 1 | cut -d ' ' -f 2-)
	[ -z "$newest" ] || (cd out && cpio -id --quiet init 'bin/*' 'modules/*' <"../$newest" 2>/dev/null)
}
if command -v cpio >/dev/null && command -v busybox >/dev/null && command -v qemu-system-x86_64 >/dev/null; then
	echo nonsense >"$kernel/modules/kernel/fs/9p.ko.xz"
	setup
	is "a broken module is named" "$code $(grep -c 'modules/kernel/fs/9p.ko.xz' errors)" "125 1"
	is "and leaves no archive" "$(archives)" 0
	rm "$kernel/modules/kernel/fs/9p.ko.xz"

	module fs/9p.ko 9pnet,netfs
	module fs/netfs.ko fscache
	module fs/fscache.ko ""
	module net/9pnet.ko ""
	module net/9pnet-virtio.ko 9pnet # wanted as 9pnet_virtio
	module net/9pnetwork.ko ""       # not wanted
	setup
	is "the initramfs is made" "$code" 0
	is "each module comes behind what it depends on" "$(ls out/modules)" "00-9pnet.ko
01-9pnet_virtio.ko
02-fscache.ko
03-netfs.ko
04-9p.ko"
	is "as it is" "$(cmp out/modules/00-9pnet.ko "$kernel/modules/kernel/net/9pnet.ko" && echo same)" same
	is "with busybox and init" \
		"$(cmp out/bin/busybox "$(command -v busybox)" && cmp out/init "$top/tools/lab/init.sh" &&
			[ -x out/init ] && [ -x out/bin/busybox ] && echo same)" same
	setup
	is "of the same parts it is found again" "$code $(archives)" "0 1"
	echo "a longer kernel" >"$kernel/vmlinuz"
	setup
	is "of others it is another" "$code $(archives)" "0 2"

	if command -v xz >/dev/null && command -v zstd >/dev/null; then
		rm -r "$kernel/modules/kernel"/*/*
		module fs/9p.ko netfs
		module fs/netfs.ko overlay
		module fs/overlay.ko ""
		cp -r "$kernel/modules/kernel" plain
		xz "$kernel/modules/kernel/fs/9p.ko"
		zstd -q --rm "$kernel/modules/kernel/fs/netfs.ko"
		gzip "$kernel/modules/kernel/fs/overlay.ko"
		echo "a kernel whose modules are packed" >"$kernel/vmlinuz"
		setup
		is "packed modules are unpacked" "$(cmp out/modules/00-overlay.ko plain/fs/overlay.ko &&
			cmp out/modules/01-netfs.ko plain/fs/netfs.ko && cmp out/modules/02-9p.ko plain/fs/9p.ko && echo same)" same
	else
		skip "packed modules are unpacked" "there is no xz, or no zstd here"
	fi
else
	skip "the initramfs" "there is no cpio, busybox or qemu-system-x86_64 here"
fi
echo "1..$count"
