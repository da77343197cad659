#!/bin/bash
# Makes the memory images that tests of introspection and the benchmark read.
#
#   tests/images/make-image.sh              all images of the list below that are missing
#   tests/images/make-image.sh NAME...      these of them, anew
#   tests/images/make-image.sh --missing NAME...   these of them that are missing
#
# Each boots a stock Debian kernel in plain QEMU (software emulation, no KVM needed), takes
# /proc/kallsyms as root for the truth, stops all vCPUs and saves to build/images/NAME:
#
#   memory      guest-physical memory from 0 up
#   registers   "info registers -a" of QEMU, all vCPUs
#   kallsyms    what the guest itself says, one symbol per line
#   console     what it printed, its /proc/version included
#
# vCPU 0 or 1 runs a user loop, the other one is idle. Kernels are kept in build/kernels.
#
# Images whose name ends in "-tasks" have a small living system instead, on three vCPUs: modules, mounts
# of several file systems, and processes that sleep, spin and map in known ways (tasks.c, compiled as
# listed below). All is quiet when it is stopped. What the guest says of it (truth.c) comes with it:
#
#   tasks       TGID TID PPID KTHREAD STATE CPU COMM: a line per thread; KTHREAD is 0 or 1
#   stacks      /proc/TGID/task/TID/stack, each below a line "== TGID TID"
#   syscalls    TGID TID and /proc/TGID/task/TID/syscall: NUMBER ARGUMENTS SP PC, or "running"
#   maps        /proc/TGID/maps, each below a line "== TGID"
#   programs    TGID and what /proc/TGID/exe points to
#   calltrees   user stacks known beforehand: see tasks.c
#   modules     /proc/modules
#   mounts      /proc/self/mountinfo
#   cached      PATH SIZE, and 1 or 0 for each page that is or is not in the page cache
#   files/      copies of the programs, the libraries and the files that are mapped
#
# Gone or another at the stop, so that the truth may differ: "truth", "gzip", kworkers, and "init", the
# shell that had all this written, which is "sleep" by then.
#
# Needs: guestprof (make), qemu-system-x86, busybox-static, cpio, gzip, gcc, e2fsprogs, xz-utils, and
# apt for kernels not downloaded yet. With gcc-multilib, a 32-bit program is in the images too.
set -euo pipefail

cd "$(dirname "$0")/../.."
readonly KERNELS=$PWD/build/kernels IMAGES=$PWD/build/images
readonly GUESTPROF=${GUESTPROF:-$PWD/build/guestprof}
readonly MEMORY=256 # MiB
readonly TIMEOUT=400 # seconds for one boot

# name | package of the kernel | CPU model | further command line
# A name ending in "-tasks" gets the living system.
readonly LIST='
6.1|linux-image-amd64|max|
6.1-pti-la48|linux-image-amd64|max|pti=on no5lvl
6.1-pti|linux-image-amd64|max|pti=on
6.1-qemu64|linux-image-amd64|qemu64|
6.1-nokaslr|linux-image-amd64|max|nokaslr
6.1-cloud|linux-image-cloud-amd64|max|
6.12|linux-image-6.12-amd64|max|
6.12-pti-la48|linux-image-6.12-amd64|max|pti=on no5lvl
6.12-cloud|linux-image-6.12-cloud-amd64|qemu64|
6.1-tasks|linux-image-amd64|max|
6.12-tasks|linux-image-6.12-amd64|max|
6.1-pti-tasks|linux-image-amd64|max|pti=on no5lvl
6.12-pti-tasks|linux-image-6.12-amd64|max|pti=on no5lvl
6.1-cloud-tasks|linux-image-cloud-amd64|max|pti=on vsyscall=xonly
6.12-cloud-tasks|linux-image-6.12-cloud-amd64|max|pti=on vsyscall=emulate
7.3|linux-image-7.3.4+deb13-amd64@trixie-backports|max|
7.3-tasks|linux-image-7.3.4+deb13-amd64@trixie-backports|max|
7.3-cloud-tasks|linux-image-7.3.4+deb13-cloud-amd64@trixie-backports|max|pti=on vsyscall=xonly
'

# Modules of the living system, in the order of their dependencies; those a kernel has built in, or
# has not, are passed over.
readonly MODULES='crc16 crc32c_generic libcrc32c mbcache jbd2 ext4 loop virtio_ring virtio
virtio_mmio netfs fscache 9pnet 9pnet_virtio 9p failover net_failover virtio_net overlay'

# The ways tasks.c is compiled: name | compiler flags
readonly PROGRAMS='
static-fp|-static -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer
static-nofp|-static -fomit-frame-pointer
dynamic-fp|-fPIE -pie -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer
dynamic-nofp|-fPIE -pie -fomit-frame-pointer
static-32|-m32 -static -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer
'

fail() {
	echo "make-image.sh: $*" >&2
	exit 1
}

# Prints the directory of a package's kernel; fetches it when missing.
kernel_of() {
	"$GUESTPROF" lab --fetch "$1" "$KERNELS/$1" >&2 || fail "no kernel of the package $1"
	echo "$KERNELS/$1"
}

make_initramfs() {
	local root=$WORK/root
	mkdir -p "$root"/{bin,proc,dev,sys}
	cp "$(command -v busybox)" "$root/bin/busybox"
	cat >"$root/init" <<'END'
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
echo 0 >/proc/sys/kernel/kptr_restrict
/bin/busybox stty -F /dev/ttyS1 raw
/bin/busybox gzip -c </proc/kallsyms >/dev/ttyS1
/bin/busybox sleep 1
/bin/busybox cat /proc/version
echo "GUEST READY"
while :; do :; done
END
	chmod +x "$root/init"
	(cd "$root" && find . | sort | cpio --quiet -o -H newc -R 0:0) >"$WORK/initramfs"
}

compile_programs() {
	local name flags common='-std=gnu17 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -pthread'
	mkdir -p "$WORK/programs"
	# shellcheck disable=SC2086 # flags are words
	gcc $common -static -o "$WORK/programs/truth" tests/images/truth.c ||
		fail "truth.c does not compile"
	while IFS='|' read -r name flags; do
		[ -n "$name" ] || continue
		# shellcheck disable=SC2086
		if gcc $common -fno-optimize-sibling-calls $flags -Wl,--build-id \
			-o "$WORK/programs/tasks-$name" tests/images/tasks.c 2>"$WORK/errors"; then
			continue
		fi
		[ "$name" = static-32 ] || fail "tasks.c: $(cat "$WORK/errors")"
		echo "make-image.sh: no 32-bit program in the images (apt-get install gcc-multilib)" >&2
	done <<<"$PROGRAMS"
}

# A file of $1 KiB whose pieces of 16 bytes say where they are.
pattern() {
	awk -v bytes=$(($1 * 1024)) 'BEGIN { for (i = 0; i < bytes; i += 16) printf "%014d.\n", i }'
}

# The living system for the kernel in directory $1.
make_tasks_initramfs() {
	local kernel=$1 root=$WORK/tasks-root file
	[ -d "$WORK/programs" ] || compile_programs
	rm -rf "$root"
	mkdir -p "$root"/{bin,proc,dev,sys,tmp,data,truth,modules,mnt/{bind,tmp,huge,ext4,overlay}}
	cp "$(command -v busybox)" "$root/bin/busybox"
	cp "$WORK"/programs/* "$root/bin/"
	for file in $(ldd "$root/bin/tasks-dynamic-fp" | grep -o '/[^ ]*'); do
		mkdir -p "$root/$(dirname "$file")"
		cp -L "$file" "$root/$file"
	done
	for file in $MODULES; do
		find "$kernel/modules/kernel" \( -name "$file.ko" -o -name "$file.ko.xz" \) \
			-exec cp -t "$root/modules" {} +
	done
	find "$root/modules" -name '*.xz' -exec xz -d {} +
	pattern 64 >"$root/data/plain"
	mkdir -p "$WORK/ext4/dir" "$WORK/ext4/inner"
	pattern 4096 >"$WORK/ext4/pattern"
	pattern 4 >"$WORK/ext4/dir/small"
	cp "$WORK/programs/tasks-static-fp" "$WORK/ext4/program"
	truncate -s 8M "$root/data/ext4"
	mkfs.ext4 -q -F -O ^has_journal -d "$WORK/ext4" "$root/data/ext4"
	printf '%s\n' "$MODULES" >"$root/modules/order"
	cat >"$root/init" <<'END'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
mount -t sysfs sysfs /sys
echo 0 >/proc/sys/kernel/kptr_restrict
for module in $(cat /modules/order); do
	[ ! -e "/modules/$module.ko" ] || insmod "/modules/$module.ko"
done
rm -rf /modules
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /mnt/tmp
mount -t tmpfs -o huge=always tmpfs /mnt/huge
mount --bind /data /mnt/bind
mount -t ext4 -o loop,ro /data/ext4 /mnt/ext4
mount -t tmpfs tmpfs /mnt/ext4/inner
mkdir -p /mnt/tmp/deep/er/and/deeper
for file in file deep/er/and/deeper/file 'a
b c\d'; do
	cp /data/plain "/mnt/tmp/$file"
done
cp /data/plain /mnt/ext4/inner/mounted
mkdir -p /mnt/tmp/upper /mnt/tmp/work
cp /data/plain /mnt/tmp/upper/above
mount -t overlay -o lowerdir=/data,upperdir=/mnt/tmp/upper,workdir=/mnt/tmp/work overlay /mnt/overlay
cat /mnt/ext4/pattern /mnt/ext4/pattern >/mnt/huge/pattern
echo 3 >/proc/sys/vm/drop_caches
dd if=/mnt/ext4/pattern of=/dev/null bs=4k skip=300 count=20 2>/dev/null
for program in static-fp static-nofp dynamic-fp dynamic-nofp static-32; do
	[ -e /bin/tasks-$program ] || continue
	/bin/tasks-$program $program sleepers &
	/bin/tasks-$program $program mappings &
done
(exec -a other-name /bin/tasks-static-fp static-fp spin) &
/bin/tasks-dynamic-nofp dynamic-nofp spin-libc &
/mnt/ext4/program ext4 raw & # of which only the pages that it uses are cached
stty -F /dev/ttyS1 raw
(
	gzip -c </proc/kallsyms >/dev/ttyS1
	sleep 4
	truth /data/plain /data/ext4 /mnt/tmp/file /mnt/tmp/deep/er/and/deeper/file \
		/mnt/huge/pattern /mnt/ext4/pattern /mnt/ext4/dir/small /mnt/ext4/inner/mounted \
		/mnt/ext4/program \
		/bin/tasks-* /lib/x86_64-linux-gnu/* >/tmp/truth
	gzip -c </tmp/truth >/dev/ttyS1
	sleep 3
	cat /proc/version
	echo "GUEST READY"
	exec sleep 1000000
) &
exec sleep 1000001
END
	chmod +x "$root/init"
	(cd "$root" && find . | sort | cpio --quiet -o -H newc -R 0:0) >"$WORK/tasks-initramfs"
}

# What truth.c wrote, the standard input, as files in $1; and the files that are mapped.
store_truth() {
	local output=$1 file
	awk -v output="$output" '/^==== / { name = output "/" $2; printf "" >name; next }
		{ print >name }'
	[ -e "$output/end" ] || return 1
	rm "$output/end"
	mkdir "$output/files"
	cp "$WORK"/programs/tasks-* "$WORK/tasks-root/bin/busybox" "$WORK/tasks-root/data/plain" \
		"$output/files/"
	cp "$WORK/ext4/pattern" "$WORK/ext4/program" "$output/files/"
	while read -r file; do
		cp "$WORK/tasks-root/$file" "$output/files/"
	done < <(cd "$WORK/tasks-root" && find lib lib64 -type f 2>/dev/null)
}

# Sends one QMP command to the running QEMU and prints the answer's line.
qmp() {
	local line
	# Unset when QEMU has ended.
	echo "$1" >&"${QEMU[1]:-/dev/null}"
	while [ -n "${QEMU[0]:-}" ] && read -r -t 60 line <&"${QEMU[0]}"; do
		case $line in
		*'"return"'*)
			echo "$line"
			return 0
			;;
		*'"error"'*) fail "QEMU: $line" ;;
		esac
	done
	fail "QEMU does not answer $1"
}

make_image() {
	local name=$1 meta=$2 cpu=$3 append=$4 kernel text pid waited=0 output=$WORK/out
	local initramfs=$WORK/initramfs vcpus=2
	kernel=$(kernel_of "$meta")
	rm -rf "$output"
	mkdir -p "$output"
	if [[ $name == *-tasks ]]; then
		make_tasks_initramfs "$kernel"
		initramfs=$WORK/tasks-initramfs vcpus=3
	fi
	echo "make-image.sh: $name: booting $(cat "$kernel/version")"
	coproc QEMU { exec qemu-system-x86_64 -M q35 -accel tcg -cpu "$cpu" -smp "$vcpus" -m "$MEMORY" \
		-nodefaults -display none -qmp stdio \
		-serial "file:$output/console" -serial "file:$output/serial" \
		-kernel "$kernel/vmlinuz" -initrd "$initramfs" \
		-append "console=ttyS0 panic=-1 quiet $append" 2>"$output/errors"; }
	# The shell forgets its number as soon as it sees that it has ended.
	pid=${QEMU_PID:-}
	qmp '{"execute":"qmp_capabilities"}' >/dev/null
	until grep -q 'GUEST READY' "$output/console" 2>/dev/null; do
		kill -0 "$pid" 2>/dev/null || fail "$name: QEMU ended: $(cat "$output/errors")"
		[ "$waited" -lt $((TIMEOUT * 2)) ] || fail "$name: not ready after $TIMEOUT s"
		waited=$((waited + 1))
		sleep 0.5
	done
	qmp '{"execute":"stop"}' >/dev/null
	text=$(qmp '{"execute":"human-monitor-command","arguments":{"command-line":"info registers -a"}}')
	text=${text#*'"return": "'}
	text=${text%'"'*}
	printf '%b' "$text" | tr -d '\r' >"$output/registers"
	qmp '{"execute":"pmemsave","arguments":{"val":0,"size":'$((MEMORY << 20))',"filename":"'"$output/memory"'"}}' >/dev/null
	qmp '{"execute":"quit"}' >/dev/null
	wait "$pid" 2>/dev/null || true
	gzip -dc "$output/serial" >"$output/serial.text" 2>/dev/null || true
	sed '/^==== /,$d' "$output/serial.text" >"$output/kallsyms"
	if [[ $name == *-tasks ]]; then
		sed -n '/^==== /,$p' "$output/serial.text" | store_truth "$output" ||
			fail "$name: the guest's truth did not arrive"
	fi
	[ "$(wc -l <"$output/kallsyms")" -gt 10000 ] || fail "$name: the guest's kallsyms did not arrive"
	fallocate -d "$output/memory" # holes for zero pages
	rm -f "$output/serial" "$output/serial.text" "$output/errors"
	mkdir -p "$IMAGES"
	rm -rf "${IMAGES:?}/$name"
	mv "$output" "$IMAGES/$name"
}

[ -x "$GUESTPROF" ] || fail "no $GUESTPROF (run make)"
for tool in qemu-system-x86_64 busybox cpio gzip; do
	command -v "$tool" >/dev/null || fail "$tool is missing (apt-get install qemu-system-x86 busybox-static cpio gzip)"
done
mkdir -p build
WORK=$(mktemp -d build/make-image.XXXXXX)
WORK=$PWD/$WORK
QEMU_PID=
trap '[ -z "${QEMU_PID:-}" ] || kill "$QEMU_PID" 2>/dev/null; rm -rf "$WORK"' EXIT
make_initramfs
missing=
if [ $# -eq 0 ] || [ "$1" = --missing ]; then
	missing=yes
	shift $(($# > 0))
fi
while IFS='|' read -r name meta cpu append <&3; do
	[ -n "$name" ] || continue
	if [ $# -gt 0 ]; then
		case " $* " in *" $name "*) ;; *) continue ;; esac
	fi
	[ -z "$missing" ] || [ ! -e "$IMAGES/$name/kallsyms" ] || continue
	make_image "$name" "$meta" "$cpu" "$append"
done 3<<<"$LIST"
