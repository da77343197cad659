#!/bin/sh
# Stock Debian kernels boot under our machine, on all it promises: kernels, formats, vCPUs,
# memory, devices, ends. Prints TAP. One session for all; see tests/lab/support/guests.sh.
set -u
. tests/lab/support/guests.sh
guests_begin lab-boot

# --- what the guests get
head -c 3000000 /dev/urandom >"$work/random"
truncate -s 3000320 "$work/random" # whole sectors, not whole pages
input=$(sha256sum <"$work/random" | cut -d ' ' -f 1)
for name in a b; do
	cp "$work/random" "$work/source-$name"
	truncate -s 4M "$work/target-$name"
done
truncate -s 1536 "$work/tiny"
seq 1 60 | sed 's/$/ the quick brown fox jumps over the lazy dog/' >"$work/lines"
echo quit >>"$work/lines"

root_made=
line=0
if command -v mke2fs >/dev/null; then
	mkdir -p "$work/root/bin" "$work/root/sbin" "$work/root/dev" "$work/root/proc" \
		"$work/root/sys" "$work/root/run" "$work/root/etc"
	cp "$(command -v busybox)" "$work/root/bin/busybox"
	cat >"$work/root/sbin/init" <<-'INIT'
		#!/bin/busybox sh
		echo "root: $(/bin/busybox cat /etc/hello), pid $$"
		echo "root: $(/bin/busybox grep ' / ' /proc/mounts)"
		/bin/busybox seq 1 200000 >/written
		/bin/busybox sync
		/bin/busybox mount -o remount,ro /
		/bin/busybox poweroff -f
	INIT
	chmod 755 "$work/root/sbin/init"
	echo "hello from ext4" >"$work/root/etc/hello"
	truncate -s 32M "$work/root-6.1"
	# The device in it without being root here.
	mke2fs -q -t ext4 -d "$work/root" "$work/root-6.1" >&2 &&
		printf 'cd dev\nmknod console c 5 1\n' | debugfs -w -f - "$work/root-6.1" >&2 &&
		root_made=yes
	cp --sparse=always "$work/root-6.1" "$work/root-6.12"
fi

# --- the jobs, in two lines side by side
if [ -n "$root_made" ]; then
	for name in 6.1 6.12; do
		line=$((line % 2 + 1))
		tests/lab/support/initramfs-tools.sh "$parts/kernels/$name" "$parts/initramfs-tools-$name" \
			>"$work/initramfs-tools-$name.log" 2>&1 || continue
		job "$line" "tools-$name" <<-JOB
			boot -k \$kernels/$name/vmlinuz -i \$parts/initramfs-tools-$name -d root-$name -m 512M \
				-p "console=ttyS0 quiet panic=-1 root=/dev/vda rw"
		JOB
	done
fi
job 1 generic-6.1 <<'END_JOB'
boot -k $kernels/6.1/vmlinuz -i $initrds/6.1 -c 4 -m 128M -d source-a,ro -d target-a -d tiny \
	-p "console=ttyS0 quiet panic=-1 pti=on guestprof.cmd=report,disks,rng"
END_JOB
job 2 cloud-6.12 <<'END_JOB'
boot -k $kernels/6.12-cloud/vmlinuz -i $initrds/6.12-cloud -c 4 -m 512M -d source-b,ro -d target-b \
	-p "console=ttyS0 quiet panic=-1 pti=on guestprof.cmd=report,disks,rng"
END_JOB
job 1 cloud-6.1 <<'END_JOB'
boot -k $kernels/6.1-cloud/vmlinuz -i $initrds/6.1-cloud -c 2 -m 5G \
	-p "console=ttyS0 quiet panic=-1 nokaslr pti=off guestprof.cmd=report,rng"
END_JOB
job 2 generic-6.12 <<'END_JOB'
date +%s >started
boot -k $kernels/6.12/vmlinuz -i $initrds/6.12 -c 1 -m 3G \
	-p "console=ttyS0 quiet panic=-1 nopti guestprof.cmd=report,rng"
code=$?
date +%s >finished
exit $code
END_JOB
# A kernel in the ELF format needs no unpacking: the quickest way to a guest.
job 1 echo <<'END_JOB'
fifo=$(mktemp -u) # the lab's shared directory can hold none
mkfifo "$fifo"
boot -k $elf/6.1 -i $initrds/6.1 -c 2 -m 256M \
	-p "console=ttyS0 quiet panic=-1 guestprof.cmd=report,echo" <"$fifo" &
exec 3>"$fifo"
wait_for "init: echo" echo.out $! && cat lines >&3
rm "$fifo"
wait $!
END_JOB
for method in default acpi kbd pci triple; do
	line=$((line % 2 + 1))
	case $method in
	acpi | pci) elf_of=6.12-cloud ;;
	*) elf_of=6.1 ;;
	esac
	job "$line" "reset-$method" <<-JOB
		boot -k \$elf/$elf_of -i \$initrds/$elf_of -m 128M \
			-p "console=ttyS0 quiet $([ $method = default ] || echo reboot=$method) guestprof.cmd=reset"
	JOB
done
job 2 panic-sampled <<'END_JOB'
boot -F 100 -o panic.fxt -k $elf/6.1 -i $initrds/6.1 -m 128M \
	-p "console=ttyS0 quiet panic=-1 guestprof.cmd=panic"
code=$?
$guestprof report -n 5 panic.fxt >panic.report
exit $code
END_JOB
job 2 panic-no-root <<'END_JOB'
boot -k $elf/6.1 -m 128M -p "console=ttyS0 quiet panic=-1"
END_JOB

# --- ends that need not wait for the guest
job 1 until <<'END_JOB'
boot -F 100 -o until.fxt -k $elf/6.1 -m 128M -p "console=ttyS0" --until "Command line:"
code=$?
$guestprof report -n 5 until.fxt >until.report
exit $code
END_JOB
job 1 limits <<'END_JOB'
boot -F 100 -o duration.fxt -k $elf/6.1 -m 128M --duration 1 >duration.console
echo "duration: $?"
boot -F 100 -o timeout.fxt -k $elf/6.1 -m 128M --timeout 1 >timeout.console
echo "timeout: $?"
for name in duration timeout; do
	$guestprof report -n 5 $name.fxt >$name.report
done
END_JOB
job 2 signals <<'END_JOB'
for signal in INT TERM; do
	# A shell starts what is in the background with SIGINT ignored.
	env --default-signal=INT "$guestprof" record -F 100 -o $signal.fxt -k $elf/6.1 -m 128M \
		-p "console=ttyS0 earlyprintk=ttyS0" >$signal.console &
	recording=$!
	wait_for "Linux version" $signal.console
	[ $signal = TERM ] || for task in /proc/$recording/task/*; do
		echo "confined: $(cat $task/comm) $(awk '/^(NoNewPrivs|Seccomp|CapEff):/ { printf "%s ", $2 }' \
			$task/status)"
	done
	kill -$signal $recording
	wait $recording
	echo "SIG$signal: $?"
	$guestprof report -n 5 $signal.fxt >$signal.report
done
END_JOB
job 1 terminal <<'END_JOB'
cat >in-terminal <<'END'
stty -g >terminal-before
"$guestprof" record -F 0 -k $elf/6.1 -m 128M -p "console=ttyS0 earlyprintk=ttyS0"
echo $? >terminal-code
stty -g >terminal-after
END
export guestprof elf
fifo=$(mktemp -u)
mkfifo "$fifo"
script -qec "sh in-terminal" /dev/null <"$fifo" &
exec 3>"$fifo"
wait_for "Linux version" terminal.out $! && printf '\001x' >&3
rm "$fifo"
wait
END_JOB
job 1 no-sandbox <<'END_JOB'
boot --no-sandbox -k $elf/6.1 -m 128M --duration 1 >/dev/null
END_JOB
run_jobs

# --- kernels, vCPUs, memory, KASLR, PTI
# booted JOB WHAT CPUS PTI LEAST-KIB
booted() {
	ends_with "$2 powers off" "$1" 0
	is "$2: all vCPUs are online" \
		"$(word_of "$1" "report: online") $(word_of "$1" "report: cpus")" \
		"$([ "$3" = 1 ] && echo 0 || echo "0-$(($3 - 1))") $3" "$1"
	is "$2: page table isolation" "$(word_of "$1" "report: pti")" "$4" "$1"
	at_least "$2: the guest sees its memory" \
		"$(word_of "$1" "report: MemTotal:" | cut -d ' ' -f 1)" "$5" "$1"
	is "$2: the clock source" "$(word_of "$1" "report: clocksource")" kvm-clock "$1"
}
booted generic-6.1 "6.1, 4 vCPUs, 128 MiB" 4 yes 70000
booted cloud-6.1 "6.1 cloud, 2 vCPUs, 5 GiB" 2 no 4900000
booted generic-6.12 "6.12, 1 vCPU, 3 GiB" 1 no 2900000
booted cloud-6.12 "6.12 cloud, 4 vCPUs, 512 MiB" 4 yes 430000
for pair in generic-6.1=6.1 cloud-6.1=6.1-cloud generic-6.12=6.12 cloud-6.12=6.12-cloud; do
	is "${pair#*=} is the kernel that was asked for" "$(word_of "${pair%%=*}" "report: release")" \
		"$(cat "$parts/kernels/${pair#*=}/version")" "${pair%%=*}"
done

text_of() {
	sed -n 's/^report: \([0-9a-f]*\) T _text$/\1/p' "$work/$1.text"
}
is "nokaslr leaves the kernel where it was linked" "$(text_of cloud-6.1)" ffffffff81000000 cloud-6.1
# One in five hundred boots ends up where it was linked; three never do.
is "KASLR moves it" "$({ text_of generic-6.1 && text_of generic-6.12 && text_of cloud-6.12; } |
	grep -c '^ffffffff') $({ text_of generic-6.1 && text_of generic-6.12 && text_of cloud-6.12; } |
	sort -u | grep -q -v ffffffff81000000 && echo moved)" "3 moved" generic-6.1

# --- the same kernel as ELF
booted echo "6.1 as ELF with a PVH note, 2 vCPUs" 2 no 180000

# --- disks, random numbers, clock
disk_results() {
	is "$2: a read-only disk is read exactly" "$(word_of "$1" "disks: vda")" \
		"5860 sectors, read-only 1, $input  -" "$1"
	is "$2: a disk is written exactly" \
		"$(head -c 3000320 "$work/$3" | sha256sum | cut -d ' ' -f 1)" "$input" "$1"
	is "$2: and only at the place that was asked for" \
		"$(tail -c +3000321 "$work/$3" | tr -d '\0' | wc -c)" 0 "$1"
	holds "$2: the guest saw no error" "$1" text "disks: copied"
	holds "$2: a read-only disk refuses to be written" "$1" text "disks: vda refuses to be written"
	is "$2: and is as it was" "$(sha256sum <"$work/$4" | cut -d ' ' -f 1)" "$input" "$1"
}
disk_results generic-6.1 6.1 target-a source-a
disk_results cloud-6.12 "6.12 cloud" target-b source-b
is "a third disk, of three sectors" \
	"$(word_of generic-6.1 "disks: vdc" | cut -d , -f 1,2)" "3 sectors, read-only 0" generic-6.1
for name in generic-6.1 cloud-6.1 generic-6.12 cloud-6.12; do
	is "$name: random numbers" "$(word_of $name "rng:")" "64 bytes from virtio_rng.0" $name
done
guest_date=$(word_of generic-6.12 "report: date")
at_least "the guest's clock is not behind ours" "$guest_date" \
	"$(($(cat "$work/started") - 60))" generic-6.12
at_least "nor ahead of it" "$(($(cat "$work/finished") + 60))" "${guest_date:-9999999999}" generic-6.12

# --- the console's two ways
sed -n 's/^got: //p' "$work/echo.text" >"$work/echoed"
is "60 lines typed at once arrive in the guest and come back" \
	"$(sha256sum <"$work/echoed")" "$(grep -v quit "$work/lines" | sha256sum)" echo

# --- initramfs-tools, ext4 root
for name in 6.1 6.12; do
	if [ ! -e "$work/tools-$name.code" ]; then
		skip "$name: an initramfs of initramfs-tools and an ext4 root" \
			"$(tail -n 1 "$work/initramfs-tools-$name.log" 2>/dev/null || echo 'no mke2fs (Debian package e2fsprogs)')"
		continue
	fi
	ends_with "$name: initramfs-tools, ext4 root" "tools-$name" 0
	holds "$name: its init runs from the root disk" "tools-$name" text "root: hello from ext4, pid 1"
	is "$name: mounted as ext4, to be written" \
		"$(word_of "tools-$name" "root: /dev/vda / ext4" | cut -c 1-3)" "rw," "tools-$name"
	is "$name: the file system is clean afterwards" \
		"$(e2fsck -fn "$work/root-$name" >"$work/e2fsck" 2>&1 || cat "$work/e2fsck")" ""
	debugfs -R 'cat /written' "$work/root-$name" >"$work/written" 2>/dev/null
	is "$name: and holds what the guest wrote" \
		"$(sha256sum <"$work/written")" "$(seq 1 200000 | sha256sum)"
done

# --- ends
trace_is_whole() {
	is "$1: the trace is whole" "$(grep -c '^# ended:' "$work/$2.report") $(grep -c INCOMPLETE \
		"$work/$2.report")" "1 0"
}
ends_with "reset as the kernel likes" reset-default 10
ends_with "reset by ACPI" reset-acpi 10
ends_with "reset by the keyboard controller" reset-kbd 10
ends_with "reset by port 0xcf9" reset-pci 10
ends_with "triple fault" reset-triple 11
ends_with "guest panic, sampled" panic-sampled 17
trace_is_whole "guest panic" panic
ends_with "guest panic, not sampled" panic-no-root 17
ends_with "--until" until 12
holds "--until: the text is on the console" until text "Command line:"
trace_is_whole "--until" until
is "--duration and --timeout" "$(cat "$work/limits.text")" "duration: 13
timeout: 14" limits
trace_is_whole "--duration" duration
trace_is_whole "--timeout" timeout
is "SIGINT and SIGTERM" "$(grep SIG "$work/signals.text")" "SIGINT: 16
SIGTERM: 16" signals
trace_is_whole SIGINT INT
trace_is_whole SIGTERM TERM
is "every thread is confined" \
	"$(awk '/^confined:/ { print $(NF - 2), $(NF - 1), $NF }' "$work/signals.text" | sort | uniq -c |
		sed 's/^ *//')" \
	"5 0000000000000000 1 2" signals
is "Ctrl-A x on a terminal" "$(cat "$work/terminal-code" 2>/dev/null)" 15 terminal
is "which is as it was before" "$(cat "$work/terminal-after" 2>/dev/null)" \
	"$(cat "$work/terminal-before" 2>/dev/null || echo none)" terminal
ends_with "--no-sandbox" no-sandbox 13
holds "--no-sandbox is loud" no-sandbox err "WARNING: --no-sandbox"
guests_end
