#!/bin/bash
# Makes the memory images that tests/unit/kernel_image.c and the benchmark read.
#
#   tests/images/make-image.sh              all images of the list below that are missing
#   tests/images/make-image.sh NAME...      these of them
#
# Each boots a stock Debian kernel in plain QEMU (software emulation, no KVM needed), takes
# /proc/kallsyms as root for the truth, stops all vCPUs and saves to build/images/NAME:
#
#   memory      guest-physical memory from 0 up
#   registers   "info registers -a" of QEMU, all vCPUs
#   kallsyms    what the guest itself says, one symbol per line
#   console     what it printed, its /proc/version included
#
# vCPU 0 or 1 runs a user loop, the other one is idle. Packages are kept in build/kernels.
# Needs: qemu-system-x86, busybox-static, cpio, gzip, and apt for kernels not downloaded yet.
set -euo pipefail

cd "$(dirname "$0")/../.."
readonly KERNELS=$PWD/build/kernels IMAGES=$PWD/build/images
readonly MEMORY=256 # MiB
readonly TIMEOUT=180 # seconds for one boot

# name | meta package of the kernel | CPU model | further command line
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
'

fail() {
	echo "make-image.sh: $*" >&2
	exit 1
}

# Prints the path of the kernel that a meta package depends on; fetches it when missing.
kernel_of() {
	local package archive directory
	package=$(apt-cache depends --important "$1" 2>/dev/null |
		sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
	[ -n "$package" ] || fail "apt knows no kernel for $1 (try: apt-get update)"
	directory=$KERNELS/$package
	if ! ls "$directory"/boot/vmlinuz-* >/dev/null 2>&1; then
		mkdir -p "$KERNELS"
		archive=$(find "$KERNELS" -maxdepth 1 -name "${package}_*.deb" | head -n 1)
		if [ -z "$archive" ]; then
			(cd "$KERNELS" && apt-get download "$package" >&2) ||
				fail "cannot download $package"
			archive=$(find "$KERNELS" -maxdepth 1 -name "${package}_*.deb" | head -n 1)
		fi
		rm -rf "$directory.new"
		dpkg-deb -x "$archive" "$directory.new"
		# Only the kernel itself is needed, not its hundreds of megabytes of modules.
		rm -rf "$directory.new/lib" "$directory.new/usr"
		rm -rf "$directory"
		mv "$directory.new" "$directory"
	fi
	ls "$directory"/boot/vmlinuz-*
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

# Sends one QMP command to the running QEMU and prints the answer's line.
qmp() {
	local line
	echo "$1" >&"${QEMU[1]}"
	while read -r -t 60 line <&"${QEMU[0]}"; do
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
	local name=$1 meta=$2 cpu=$3 append=$4 kernel text waited=0 output=$WORK/out
	kernel=$(kernel_of "$meta")
	rm -rf "$output"
	mkdir -p "$output"
	echo "make-image.sh: $name: booting $(basename "$kernel")"
	coproc QEMU { exec qemu-system-x86_64 -M q35 -accel tcg -cpu "$cpu" -smp 2 -m "$MEMORY" \
		-nodefaults -display none -qmp stdio \
		-serial "file:$output/console" -serial "file:$output/serial" \
		-kernel "$kernel" -initrd "$WORK/initramfs" \
		-append "console=ttyS0 panic=-1 quiet $append" 2>"$output/errors"; }
	qmp '{"execute":"qmp_capabilities"}' >/dev/null
	until grep -q 'GUEST READY' "$output/console" 2>/dev/null; do
		kill -0 "$QEMU_PID" 2>/dev/null || fail "$name: QEMU ended: $(cat "$output/errors")"
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
	wait "$QEMU_PID" 2>/dev/null || true
	gzip -dc "$output/serial" >"$output/kallsyms" 2>/dev/null || true
	[ "$(wc -l <"$output/kallsyms")" -gt 10000 ] || fail "$name: the guest's kallsyms did not arrive"
	fallocate -d "$output/memory" # holes for zero pages
	rm -f "$output/serial" "$output/errors"
	mkdir -p "$IMAGES"
	rm -rf "${IMAGES:?}/$name"
	mv "$output" "$IMAGES/$name"
}

for tool in qemu-system-x86_64 busybox cpio gzip; do
	command -v "$tool" >/dev/null || fail "$tool is missing (apt-get install qemu-system-x86 busybox-static cpio gzip)"
done
mkdir -p build
WORK=$(mktemp -d build/make-image.XXXXXX)
WORK=$PWD/$WORK
QEMU_PID=
trap '[ -z "${QEMU_PID:-}" ] || kill "$QEMU_PID" 2>/dev/null; rm -rf "$WORK"' EXIT
make_initramfs
while IFS='|' read -r name meta cpu append <&3; do
	[ -n "$name" ] || continue
	if [ $# -gt 0 ]; then
		case " $* " in *" $name "*) ;; *) continue ;; esac
	elif [ -e "$IMAGES/$name/kallsyms" ]; then
		continue
	fi
	make_image "$name" "$meta" "$cpu" "$append"
done 3<<<"$LIST"
