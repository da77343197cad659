#!/bin/sh
# The packages of build/deb in a clean Debian system, as TAP: they install with apt-get, the command works,
# the library's example compiles, and removal leaves nothing.
#
# The system is a chroot made by debootstrap, with gcc and pkgconf. It is made once, for the release that runs here,
# and kept as build/package/SUITE.tar; packages that apt-get downloads into it are kept, too.
# Environment: MIRROR (http://deb.debian.org/debian).
set -u
cd "$(dirname "$0")/../.." || exit 1
mirror=${MIRROR-http://deb.debian.org/debian}
cache=$PWD/build/package

skip() {
	echo "1..0 # SKIP $1"
	exit 0
}
set -- build/deb/guestprof_*.deb
[ -e "$1" ] || skip "no packages in build/deb: make deb builds them"
version=$(dpkg-deb -f "$1" Version)
[ "$(id -u)" = 0 ] || skip "making a chroot needs root"
PATH=$PATH:/usr/sbin:/sbin
command -v debootstrap >/dev/null || skip "no debootstrap: setup/packages.sh deb installs it"
unshare --mount true 2>/dev/null || skip "this machine lets nobody mount anything"
suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)

mkdir -p "$cache/archives"
root=$(mktemp -d)
# Mounts of the chroot are in namespaces of their own, so that nothing but files is removed here.
trap 'rm -rf --one-file-system "$root"' EXIT
trap 'exit 1' INT TERM HUP

if [ ! -e "$cache/$suite.tar" ]; then
	debootstrap --variant=minbase --include=gcc,libc6-dev,pkgconf "$suite" "$root" "$mirror" >"$cache/debootstrap.log" 2>&1 || {
		tail -n 5 "$cache/debootstrap.log" >&2
		skip "debootstrap cannot make a Debian $suite here from $mirror"
	}
	# Nothing in there has to survive a power cut.
	echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
	rm -f "$root"/var/cache/apt/archives/*.deb
	tar -cf "$cache/$suite.tar.new" -C "$root" . && mv "$cache/$suite.tar.new" "$cache/$suite.tar"
else
	tar -xpf "$cache/$suite.tar" -C "$root" || exit 1
fi

# inside COMMAND: a line of shell in the chroot. What it says is in the file said.
said=$cache/said
inside() {
	# shellcheck disable=SC2016 # for the shell in the namespace
	unshare --mount sh -c 'mount -t proc proc "$1/proc" && exec chroot "$1" /usr/bin/env -i \
		PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LC_ALL=C DEBIAN_FRONTEND=noninteractive sh -c "$2"' \
		sh "$root" "$1" >"$said" 2>&1 </dev/null
}
count=0
# is WHAT CODE: 0 is a pass.
is() {
	count=$((count + 1))
	if [ "$2" = 0 ]; then
		echo "ok $count - package: $1"
	else
		echo "not ok $count - package: $1"
		tail -n 20 "$said" | sed 's/^/# /'
	fi
}
check() {
	inside "$2"
	is "$1" $?
}
files() {
	inside 'find / -xdev \( -path /proc -o -path /dev -o -path /packages -o -path /tmp -o -path /var/log -o -path /var/cache \
		-o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /etc/ld.so.cache \) -prune -o -print | sort'
	cp "$said" "$cache/$1"
}

files before
cp "$cache"/archives/*.deb "$root/var/cache/apt/archives/" 2>/dev/null
mkdir "$root/packages"
cp build/deb/*.deb tests/golden/tasks.fxt "$root/packages"
rm -f "$root"/packages/*-dbgsym_*
installing='apt-get install -y --no-install-recommends /packages/*.deb'
check "the packages install" "$installing || { apt-get update && $installing; }"
cp "$root"/var/cache/apt/archives/*.deb "$cache/archives/" 2>/dev/null
check "what they recommend can be had" 'apt-get install --simulate --install-recommends \
	$(dpkg-query -W -f "\${Recommends}" guestprof | sed "s/([^)]*)//g; s/,//g")'

check "guestprof says its version" "guestprof --version | grep -F 'guestprof ${version}'"
inside 'guestprof doctor; code=$?; [ $code = 0 ] || [ $code = 3 ] || [ $code = 4 ]' && grep -q lab-qemu "$said"
is "doctor says what this machine can do" $?
check "a trace is reported" "guestprof report /packages/tasks.fxt | grep '^ *[0-9.]* %'"
check "what a command lacks is named with its package" 'guestprof lab --setup 2>&1 | grep "apt-get install"'
check "every command has its manual page" 'for command in $(guestprof --help | sed -n "s/^  \([a-z]\{2,\}\) .*/\1/p"); do
	gzip -t /usr/share/man/man1/guestprof-$command.1.gz || exit 1; done; gzip -t /usr/share/man/man1/guestprof.1.gz'
check "completion is where shells look for it" \
	'bash -n /usr/share/bash-completion/completions/guestprof && [ -e /usr/share/zsh/vendor-completions/_guestprof ]'
check "the license is there" 'grep -q Expat /usr/share/doc/guestprof/copyright'

example=/usr/share/doc/libguestprof-dev/examples/sampler.c
check "the example compiles with the shared library" \
	"gcc -Wall -Wextra -Werror $example -o /tmp/shared \$(pkg-config --cflags --libs guestprof) &&
	ldd /tmp/shared | grep 'libguestprof.so.0 => /'"
check "and with the archive" \
	"gcc $example -o /tmp/archive \$(pkg-config --cflags guestprof) -Wl,-Bstatic -lguestprof -Wl,-Bdynamic \
	\$(pkg-config --static --libs guestprof | sed s/-lguestprof//) && ! ldd /tmp/archive | grep libguestprof"
check "both run, and say that there is no guest to boot" 'for program in shared archive; do
	/tmp/$program /none 2>&1 | grep "^sampler: no machine: " || exit 1; done'

check "the packages are purged" \
	'apt-get purge -y --auto-remove guestprof libguestprof0 libguestprof-dev; ! dpkg-query -W "*guestprof*" 2>/dev/null | grep .'
files after
diff "$cache/before" "$cache/after" >"$said"
is "nothing of them is left" $?
echo "1..$count"
