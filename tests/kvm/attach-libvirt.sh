#!/bin/sh
# guestprof attach with domains of a real libvirt daemon, as TAP: by name, UUID and ID, in each state, as
# the owner, as another user, and when the daemon hangs. A daemon of the session's kind, of a user who may
# use /dev/kvm, in folders of its own.
set -u
guestprof=${GUESTPROF:-build/guestprof}
guest=${guestprof%/*}/tests/guests/long4
name=guestprof-$$
daemon=
qemu=
. tests/support/tap.sh
# shellcheck disable=SC2034 # of tap.sh
shown="err virsh daemon.log"

for program in libvirtd virsh qemu-system-x86_64 setpriv; do
	PATH=$PATH:/usr/sbin command -v $program >/dev/null || skip_all "there is no $program here"
done
if ! (: <>/dev/kvm) 2>/dev/null; then
	skip_all "/dev/kvm cannot be opened"
fi

work=$(mktemp -d /tmp/attach-libvirt.XXXXXX) || exit 1 # short: sockets lie in it
cp "$guestprof" "$work/guestprof"
cp "$guest" "$work/guest"
mkdir -p "$work/run" "$work/config/libvirt"
# Without it a second daemon is started, for logs.
echo 'stdio_handler = "file"' >"$work/config/libvirt/qemu.conf"
chmod -R a+rX "$work"

# owner COMMAND...: as the user of the daemon. root's would be the system's.
if [ "$(id -u)" = 0 ]; then
	chown -R 65534 "$work"
	as_owner="setpriv --reuid=65534 --regid=$(stat -c %g /dev/kvm) --clear-groups"
else
	as_owner=
fi
owner() {
	# shellcheck disable=SC2086 # words
	$as_owner env -u LIBVIRT_DEFAULT_URI HOME="$work" XDG_RUNTIME_DIR="$work/run" XDG_CONFIG_HOME="$work/config" \
		XDG_CACHE_HOME="$work/cache" LANG=C "$@"
}
virsh() {
	owner timeout -k 5 60 virsh -q -c qemu:///session "$@" </dev/null >"$work/virsh" 2>&1
}
clean_up() {
	[ -z "$daemon" ] || kill -CONT "$daemon" 2>/dev/null
	for domain in "$name" "$name-tcg"; do
		[ -z "$daemon" ] || virsh destroy "$domain"
	done
	for process in $qemu $daemon; do
		kill -9 "$process" 2>/dev/null
	done
	rm -rf "$work"
}
trap clean_up EXIT

if [ -n "$as_owner" ] && ! owner sh -c ': <>/dev/kvm' 2>/dev/null; then
	skip_all "a user in the group of /dev/kvm cannot open it"
fi
owner env PATH="$PATH:/usr/sbin" libvirtd >"$work/daemon.log" 2>&1 &
tries=0
until virsh list; do
	tries=$((tries + 1))
	[ $tries -lt 50 ] || break
	sleep 0.2
done
daemon=$(cat "$work/run/libvirt/libvirtd.pid" 2>/dev/null)
if ! virsh list; then
	fail "libvirtd starts"
	echo "1..$count"
	exit 1
fi

# define NAME TYPE CPU
define() {
	cat >"$work/domain.xml" <<END
<domain type='$2'><name>$1</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='pc'>hvm</type><kernel>$work/guest</kernel><cmdline>run=tree rounds=0</cmdline></os>
<features><acpi/></features>$3
<devices><emulator>$(command -v qemu-system-x86_64)</emulator>
<serial type='file'><source path='$work/run/$1.console'/></serial><memballoon model='none'/></devices></domain>
END
	chmod a+r "$work/domain.xml"
	virsh define "$work/domain.xml"
}

# attach DOMAIN: as the owner; output in $work/out and $work/err, exit code in $code
attach() {
	code=0
	owner timeout -k 5 60 "$work/guestprof" attach --duration 2 -o "$work/run/trace.fxt" --symbols "$work/guest" \
		"$1" >"$work/out" 2>"$work/err" </dev/null || code=$?
}
# refused TEXT WHAT: the last attach was, for that reason, in one line
refused() {
	if [ "$code" = 21 ] && grep -q -F -e "$1" "$work/err" && [ "$(wc -l <"$work/err")" = 1 ]; then
		pass "$2"
	else
		fail "$2: exit code $code"
	fi
}

# IA32_ARCH_CAPABILITIES: as in attach-qemu.sh.
define "$name" kvm \
	"<cpu mode='host-passthrough'><feature policy='disable' name='arch-capabilities'/></cpu>"
attach "$name"
refused "domain '$name' is shut off (qemu:///session): 'virsh start $name'" "a domain that is shut off"

virsh start "$name"
tries=0
until grep -q 'guest started' "$work/run/$name.console" 2>/dev/null; do
	tries=$((tries + 1))
	if [ $tries -gt 600 ] || ! virsh domid "$name"; then
		fail "libvirt runs the guest"
		echo "1..$count"
		exit 1
	fi
	sleep 0.2
done
virsh domuuid "$name"
uuid=$(head -n 1 "$work/virsh")
virsh domid "$name"
id=$(head -n 1 "$work/virsh")
for machine in "name $name" "UUID $uuid" "ID $id"; do
	way=${machine%% *}
	attach "${machine#* }"
	if [ "$code" = 13 ] && grep -q "qemu-system-x86_64, $name:" "$work/err" &&
		owner "$work/guestprof" report "$work/run/trace.fxt" >"$work/out" 2>&1 &&
		grep -q 'leaf_70' "$work/out"; then
		pass "a domain that runs, called by its $way"
	else
		fail "a domain that runs, called by its $way: exit code $code"
	fi
done

if [ -n "$as_owner" ]; then
	setpriv --reuid=65533 --regid=65533 --clear-groups timeout -k 5 60 "$work/guestprof" attach "$name" \
		>"$work/out" 2>"$work/err" </dev/null
	code=$?
	refused "which may not be looked at: it is another user's (uid 65534)" "another user's domain"
fi

kill -STOP "$daemon"
attach "$name"
if [ "$code" = 13 ]; then
	pass "a daemon that hangs does not keep a domain from being found by name"
else
	fail "a daemon that hangs: exit code $code"
fi
attach "no-such-$name"
refused "libvirt does not answer within 10 seconds" "a daemon that hangs is reported"
kill -CONT "$daemon"

virsh suspend "$name"
attach "$name"
refused "domain '$name' is paused (qemu:///session)" "a domain that is paused"
virsh resume "$name"

owner qemu-system-x86_64 -accel tcg -S -display none -monitor none -serial none -name "guest=$name" \
	-pidfile "$work/run/qemu.pid" >"$work/out" 2>&1 &
tries=0
until [ -s "$work/run/qemu.pid" ] || [ $tries -gt 100 ]; do
	tries=$((tries + 1))
	sleep 0.1
done
qemu=$(cat "$work/run/qemu.pid")
attach "$name"
refused "2 virtual machines are called '$name'" "a name that two have"
attach "$uuid"
if [ "$code" = 13 ]; then
	pass "of two machines with one name the UUID selects one"
else
	fail "of two machines with one name the UUID: exit code $code"
fi
kill -9 "$qemu"
while kill -0 "$qemu" 2>/dev/null; do sleep 0.1; done
qemu=

define "$name-tcg" qemu ""
virsh start "$name-tcg"
attach "$name-tcg"
refused "which runs it without KVM (by emulation)" "a domain without KVM"
virsh destroy "$name-tcg"

virsh destroy "$name"
attach "$name"
refused "domain '$name' is shut off" "a domain that has been shut off"
attach "$uuid"
refused "domain '$name' is shut off" "and the same by its UUID"
kill "$daemon"
tries=0
while kill -0 "$daemon" 2>/dev/null && [ $tries -lt 100 ]; do
	tries=$((tries + 1))
	sleep 0.1
done
daemon=
attach "$name"
refused "libvirt does not answer: qemu:///system: " "no daemon"
echo "1..$count"
