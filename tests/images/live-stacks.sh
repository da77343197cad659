#!/bin/bash
# Stacks of a stock kernel at work: boots one in plain QEMU with a busy program, stops it many times at
# any instruction, and unwinds each time all vCPUs through the guest's memory.
#
#   tests/images/live-stacks.sh VMLINUZ [STOPS [SEED [MORE OF THE COMMAND LINE]]]
#
# CPU is QEMU's CPU model, BUSY_CFLAGS more flags for the program: -m32 for a 32-bit one. With
# START_AFTER seconds the kernel is looked at while it boots.
#
# Fails when less than 99 % of the kernel's stacks are complete. Needs: qemu-system-x86, cpio, gcc, and
# build/tests/images/live_stacks (make).
set -euo pipefail
VMLINUZ=$(realpath "${1:?kernel}")
readonly VMLINUZ STOPS=${2:-300} SEED=${3:-1} APPEND=${4:-pti=on}

cd "$(dirname "$0")/../.."
PROGRAM=$PWD/build/tests/images/live_stacks
[ -x "$PROGRAM" ] || { echo "live-stacks.sh: $PROGRAM is missing: make build/tests/images/live_stacks" >&2; exit 2; }
WORK=$(mktemp -d /dev/shm/live-stacks.XXXXXX)
QEMU=
clean_up() {
	if [ -n "$QEMU" ]; then
		kill "$QEMU" 2>/dev/null || true
		wait "$QEMU" 2>/dev/null || true
	fi
	rm -rf "$WORK"
}
trap clean_up EXIT
mkdir "$WORK/root"
gcc ${BUSY_CFLAGS:-} -O1 -static -D_GNU_SOURCE -o "$WORK/root/init" tests/images/busy.c
(cd "$WORK/root" && find . | cpio --quiet -o -H newc -R 0:0) >"$WORK/initramfs"
qemu-system-x86_64 -M q35,memory-backend=ram -accel tcg -cpu "${CPU:-max}" -smp 2 -m 256 \
	-object memory-backend-file,id=ram,size=256M,share=on,mem-path="$WORK/memory" \
	-nodefaults -display none -serial "file:$WORK/console" \
	-qmp "unix:$WORK/qmp,server=on,wait=off" -kernel "$VMLINUZ" -initrd "$WORK/initramfs" \
	-append "console=ttyS0 panic=-1 quiet $APPEND" 2>"$WORK/errors" &
QEMU=$!
for _ in $(seq 360); do
	[ -z "${START_AFTER:-}" ] || { sleep "$START_AFTER"; break; }
	grep -q 'GUEST READY' "$WORK/console" 2>/dev/null && break
	kill -0 "$QEMU" 2>/dev/null || { cat "$WORK/errors" >&2; exit 2; }
	sleep 0.5
done
[ -n "${START_AFTER:-}" ] || sleep 1
"$PROGRAM" "$WORK/memory" "$WORK/qmp" "$STOPS" "$SEED"
