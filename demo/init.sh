#!/bin/busybox sh
# shellcheck shell=dash
# The first program of the demo's guest. The kernel's command line says what it does:
#
#   guestprof.cmd=demo       run the workload on every CPU, then power off (the default)
#   guestprof.cmd=poweroff   power off at once
#   guestprof.cmd=reset      restart
#   guestprof.cmd=panic      crash the kernel (with panic=-1 it restarts)
#   guestprof.cmd=sleep      sleep guestprof.arg seconds, then power off
#   guestprof.cmd=spin       run the workload on every CPU for ever
#   guestprof.cmd=echo       print "got: LINE" for each line of the console until "quit"
#   guestprof.cmd=report     print CPUs, memory, kernel addresses
#   guestprof.cmd=disk       mount /dev/vda (ext4, read-only), print the file guestprof.arg
#   guestprof.cmd=diskrun    run the program guestprof.arg of /dev/vda (ext4, read-only)
#   guestprof.cmd=diskwrite  write the text guestprof.arg to the start of /dev/vda
#   guestprof.cmd=diskread   print the first line of /dev/vda, and the size of every /dev/vd?
#   guestprof.cmd=disks      print each disk's sha256, copy /dev/vda (read-only) to /dev/vdb
#   guestprof.cmd=kallsyms   write the kernel's own list of its symbols to /dev/vda
#   guestprof.cmd=rng        print the count of bytes got from /dev/hwrng
#
# Several, with commas between them, run one after the other.
# guestprof.arg for demo and spin: how long the workload is, in hundreds of rounds.
echo "init: first line"
/bin/busybox --install -s /bin
export PATH=/bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys

cmd=demo
arg=
for word in $(cat /proc/cmdline); do
	case $word in
	guestprof.cmd=*) cmd=${word#*=} ;;
	guestprof.arg=*) arg=${word#*=} ;;
	esac
done

load_modules() {
	for module in /modules/*.ko; do
		[ -e "$module" ] || continue
		# Those that are built in, or loaded already, refuse.
		insmod "$module" 2>/dev/null
	done
	# The probe of a device is finished a little later.
	tries=0
	while [ ! -e "$1" ] && [ $tries -lt 100 ]; do
		usleep 50000
		tries=$((tries + 1))
	done
	[ -e "$1" ] || echo "init: no $1"
}

on_every_cpu() {
	for cpu in /sys/devices/system/cpu/cpu[0-9]*; do
		[ ! -e "$cpu/online" ] || [ "$(cat "$cpu/online")" = 1 ] || continue
		taskset -c "${cpu##*/cpu}" "$@" &
	done
	wait
}

run_command() {
	case $1 in
	demo) on_every_cpu /bin/workload "${arg:-20}" ;;
	spin) on_every_cpu /bin/workload 4000000000 ;;
	poweroff) ;;
	reset) echo "init: reset" && reboot -f ;;
	panic)
		echo "init: panic"
		echo c >/proc/sysrq-trigger
		;;
	sleep) sleep "${arg:-10}" ;;
	echo)
		stty -echo # what is typed would stand between what is printed
		echo "init: echo"
		while read -r line; do
			[ "$line" != quit ] || break
			echo "got: $line"
		done
		;;
	report)
		echo "report: online $(cat /sys/devices/system/cpu/online)"
		echo "report: cpus $(grep -c ^processor /proc/cpuinfo)"
		grep -E 'MemTotal' /proc/meminfo | sed 's/^/report: /'
		grep -E ' (_text|start_kernel|do_idle|schedule)$' /proc/kallsyms | sed 's/^/report: /'
		echo "report: release $(uname -r)"
		echo "report: clocksource $(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)"
		echo "report: cmdline $(cat /proc/cmdline)"
		echo "report: pti $(grep -qw pti /proc/cpuinfo && echo yes || echo no)"
		echo "report: date $(date +%s)"
		;;
	disk)
		load_modules /dev/vda
		mkdir -p /mnt
		mount -t ext4 -o ro /dev/vda /mnt && cat "/mnt/${arg:-hello}"
		umount /mnt
		;;
	diskrun)
		load_modules /dev/vda
		mkdir -p /mnt
		mount -t ext4 -o ro /dev/vda /mnt && "/mnt/$arg"
		umount /mnt
		;;
	diskwrite)
		load_modules /dev/vda
		echo "${arg:-written}" | dd of=/dev/vda conv=notrunc,fsync 2>/dev/null && echo "disk: written"
		;;
	diskread)
		load_modules /dev/vda
		echo "disk: $(head -n 1 /dev/vda)"
		for disk in /sys/block/vd?; do
			echo "disk: ${disk##*/} $(cat "$disk/size") sectors, read-only $(cat "$disk/ro")"
		done
		;;
	disks)
		load_modules /dev/vdb
		for disk in /sys/block/vd?; do
			name=${disk##*/}
			echo "disks: $name $(cat "$disk/size") sectors, read-only $(cat "$disk/ro"), $(sha256sum <"/dev/$name")"
		done
		# Single sectors first, then large requests.
		dd if=/dev/vda of=/dev/vdb bs=512 count=64 conv=notrunc,fsync 2>/dev/null &&
			dd if=/dev/vda of=/dev/vdb bs=32k seek=1 skip=1 conv=notrunc,fsync 2>/dev/null &&
			echo "disks: copied"
		dd if=/dev/zero of=/dev/vda bs=512 count=1 conv=notrunc,fsync 2>/dev/null ||
			echo "disks: vda refuses to be written"
		;;
	kallsyms)
		load_modules /dev/vda
		cat /proc/kallsyms >/dev/vda && sync && echo "kallsyms: written"
		;;
	rng)
		load_modules /dev/hwrng
		echo "rng: $(dd if=/dev/hwrng bs=64 count=1 2>/dev/null | wc -c) bytes from $(cat /sys/class/misc/hw_random/rng_current)"
		;;
	*) echo "init: unknown guestprof.cmd=$1" ;;
	esac
}

for command in $(echo "$cmd" | tr , " "); do
	run_command "$command"
done
echo "init: last line"
sync
poweroff -f
