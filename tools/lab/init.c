/* The first program of L1: /init of its initramfs, for busybox's shell.
 *
 * It loads the modules, lays a tmpfs over the host's file tree (overlayfs), and makes the
 * guestprof found there process 1 (see inside.c). Nothing is left behind of the
 * initramfs: the command sees a root of its own, where pivot_root() and user name spaces
 * work, which they do not in a chroot.
 *
 * $agent comes from the kernel's command line: octal escapes, because a path may hold what
 * the command line may not. */
#include "tools/lab/lab.h"
#include "tools/lab/protocol.h"

const char lab_init_script[] =
	"#!/bin/busybox sh\n"
	"bb=/bin/busybox\n"
	"fail() {\n"
	"	echo \"" LAB_FAILURE_MARK "$*\" >/dev/console\n"
	"	$bb sleep 1\n"
	"	$bb poweroff -f\n"
	"}\n"
	"$bb mount -t devtmpfs dev /dev || fail 'no devtmpfs in this kernel'\n"
	"$bb mount -t proc proc /proc\n"
	"$bb mount -t sysfs sys /sys\n"
	"for module in /modules/*; do\n"
	"	case $module in\n"
	"	*-kvm-amd.ko) $bb insmod $module || fail 'kvm_amd does not load' ;;\n"
	/* A vCPU that waits would keep an emulated CPU busy with looking whether it still does. */
	"	*-kvm.ko) $bb insmod $module halt_poll_ns=0 || fail 'kvm does not load' ;;\n"
	"	*) $bb insmod $module || fail \"$module does not load\" ;;\n"
	"	esac\n"
	"done\n"
	"$bb mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,access=any,"
	"cache=loose,ro " LAB_SHARE_ROOT " /host || fail 'this kernel cannot mount the host over "
	"9p (Debian'\\''s cloud kernels cannot)'\n"
	"$bb mount -t tmpfs -o size=80% tmpfs /rw\n"
	"$bb mkdir /rw/upper /rw/work\n"
	"$bb mount -t overlay -o lowerdir=/host,upperdir=/rw/upper,workdir=/rw/work root /root "
	"|| fail 'cannot mount the overlay'\n"
	"for place in proc sys dev run tmp; do\n"
	"	[ -d /root/$place ] || $bb mkdir /root/$place\n"
	"done\n"
	"$bb mount -t proc proc /root/proc\n"
	"$bb mount -t sysfs sys /root/sys\n"
	"$bb mount -t devtmpfs dev /root/dev\n"
	"$bb mkdir -p /root/dev/pts /root/dev/shm\n"
	"$bb mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /root/dev/pts\n"
	"$bb mount -t tmpfs -o mode=1777 tmpfs /root/dev/shm\n"
	"$bb mount -t tmpfs -o mode=755 tmpfs /root/run\n"
	"$bb mount -t debugfs debugfs /root/sys/kernel/debug 2>/dev/null\n"
	"$bb mount -t tracefs tracefs /root/sys/kernel/tracing 2>/dev/null\n"
	"$bb ln -s /proc/self/fd /root/dev/fd 2>/dev/null\n"
	"for n in 0:stdin 1:stdout 2:stderr; do\n"
	"	$bb ln -s /proc/self/fd/${n%%:*} /root/dev/${n#*:} 2>/dev/null\n"
	"done\n"
	"$bb ip link set lo up\n"
	"$bb hostname lab\n"
	"for word in $($bb cat /proc/cmdline); do\n"
	"	case $word in\n"
	"	guestprof.agent=*) agent=$($bb printf '%b.' \"${word#*=}\") ;;\n"
	"	esac\n"
	"done\n"
	"agent=${agent%.}\n"
	"[ -x \"/root$agent\" ] || fail \"cannot see $agent over 9p\"\n"
	"$bb umount -l /host /rw /proc /sys\n"
	"cd /root\n"
	"exec $bb switch_root -c /dev/console /root \"$agent\" lab --inside\n"
	"fail 'switch_root does not work'\n";
