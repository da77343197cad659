#!/bin/busybox sh
# shellcheck shell=dash
# The first program of L1: /init of its initramfs, for busybox's shell.
#
# It loads the modules, lays a tmpfs over the host's file tree (overlayfs), and makes the guestprof
# found there process 1 (see inside.c). Nothing is left behind of the initramfs: the command sees a
# root of its own, where pivot_root() and user name spaces work, which they do not in a chroot.
#
# The marks and tags are those of protocol.h.
bb=/bin/busybox
fail() {
	echo "guestprof-lab failed: $*" >/dev/console
	$bb sleep 1
	$bb poweroff -f
}
$bb mount -t devtmpfs dev /dev || fail 'no devtmpfs in this kernel'
$bb mount -t proc proc /proc
$bb mount -t sysfs sys /sys
for module in /modules/*; do
	case $module in
	*-kvm-amd.ko) $bb insmod "$module" || fail 'kvm_amd does not load' ;;
	# A vCPU that waits would keep an emulated CPU busy with looking whether it still does.
	*-kvm.ko) $bb insmod "$module" halt_poll_ns=0 || fail 'kvm does not load' ;;
	*) $bb insmod "$module" || fail "$module does not load" ;;
	esac
done
$bb mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,access=any,cache=loose,ro hostroot /host ||
	fail 'this kernel cannot mount the host over 9p (Debian'\''s cloud kernels cannot)'
$bb mount -t tmpfs -o size=80% tmpfs /rw
$bb mkdir /rw/upper /rw/work
$bb mount -t overlay -o lowerdir=/host,upperdir=/rw/upper,workdir=/rw/work root /root ||
	fail 'cannot mount the overlay'
for place in proc sys dev run tmp; do
	[ -d /root/$place ] || $bb mkdir /root/$place
done
$bb mount -t proc proc /root/proc
$bb mount -t sysfs sys /root/sys
$bb mount -t devtmpfs dev /root/dev
$bb mkdir -p /root/dev/pts /root/dev/shm
$bb mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /root/dev/pts
$bb mount -t tmpfs -o mode=1777 tmpfs /root/dev/shm
$bb mount -t tmpfs -o mode=755 tmpfs /root/run
$bb mount -t debugfs debugfs /root/sys/kernel/debug 2>/dev/null
$bb mount -t tracefs tracefs /root/sys/kernel/tracing 2>/dev/null
$bb ln -s /proc/self/fd /root/dev/fd 2>/dev/null
for n in 0:stdin 1:stdout 2:stderr; do
	$bb ln -s "/proc/self/fd/${n%%:*}" "/root/dev/${n#*:}" 2>/dev/null
done
$bb ip link set lo up
$bb hostname lab
# The agent's path comes from the kernel's command line: octal escapes, because a path may hold what
# the command line may not.
agent=
for word in $($bb cat /proc/cmdline); do
	case $word in
	guestprof.agent=*) agent=$($bb printf '%b.' "${word#*=}") ;;
	esac
done
agent=${agent%.}
[ -x "/root$agent" ] || fail "cannot see $agent over 9p"
$bb umount -l /host /rw /proc /sys
cd /root || fail "there is no root"
# shellcheck disable=SC2093
exec $bb switch_root -c /dev/console /root "$agent" lab --inside
fail 'switch_root does not work'
