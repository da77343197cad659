#!/bin/sh
# The command lines of guestprof attach and ps, as TAP: what is wrong is reported in one line that names it, with
# exit code 2, and nothing is attached to.
set -u
guestprof=${GUESTPROF:-build/guestprof}
work=$(mktemp -d "${TMPDIR:-/tmp}/attach-options.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
count=0

# refused CODE TEXT ARGUMENT...: one line with TEXT, no trace
refused() {
	want=$1
	text=$2
	shift 2
	count=$((count + 1))
	code=0
	(cd "$work" && timeout 30 "$guestprof" "$@" >out 2>err) || code=$?
	if [ "$code" = "$want" ] && grep -q -F -e "$text" "$work/err" &&
		[ "$(wc -l <"$work/err")" = 1 ] && [ ! -e "$work/guestprof.fxt" ]; then
		echo "ok $count - $*"
	else
		echo "not ok $count - $*: exit code $code"
		sed 's/^/# /' "$work/err"
	fi
}
case $guestprof in /*) ;; *) guestprof=$PWD/$guestprof ;; esac

refused 2 "give the PID or the name" attach
refused 2 "one machine at a time" attach web mail
refused 2 "-F 0: nothing would be sampled" attach -F 0 web
refused 2 "-e cycles: only the timer ticks here" attach -e cycles web
refused 2 "--kick strace: give ptrace or signal" attach --kick strace web
refused 2 "--duration -1: give seconds" attach --duration -1 web
refused 2 "--jitter 91" attach --jitter 91 web
refused 2 "--depth 0" attach --depth 0 web
refused 2 "unrecognized option" attach --kernel vmlinuz web
refused 21 "no virtual machine is called 'no-such-machine-$$'" attach "no-such-machine-$$"
refused 21 "runs no KVM virtual machine" attach $$
refused 2 "'web' is not an option" ps web
for command in attach ps; do
	count=$((count + 1))
	if "$guestprof" $command --help | grep -q "^usage: guestprof $command"; then
		echo "ok $count - $command --help"
	else
		echo "not ok $count - $command --help"
	fi
done
echo "1..$count"
