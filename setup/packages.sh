#!/bin/sh
# Installs the Debian packages that guestprof needs, when they are missing.
#
#   setup/packages.sh [GROUP]...           default: build; others: test, lab, lint, fuzz, pages, deb
#   setup/packages.sh --list [GROUP]...    prints them, one "GROUP PACKAGE..." a line
#
# Says what is missing before it installs it. Without root it prints the line to run and
# exits 1, having changed nothing. Silent when nothing is missing. A package in brackets is optional: it is installed
# when that works, and its absence is not an error. Where there is no dpkg or apt nothing can be
# looked up: a line says so, exit code 3, and callers go on with what is there.
#
# The README's list is the output of --list.
set -u

packages() {
	case $1 in
	build) echo "gcc make pkg-config libc6-dev libelf-dev libseccomp-dev zlib1g-dev libncurses-dev libcapstone-dev libdw-dev [libvirt-dev] [libext2fs-dev] [libblkid-dev]" ;;
	test) echo "libcriterion-dev acpica-tools e2fsprogs coreutils [fdisk] [g++] [spin] [zsh]" ;;
	lab) echo "qemu-system-x86 busybox-static cpio gzip xz-utils zstd dpkg apt" ;;
	lint) echo "clang-format shellcheck mandoc" ;;
	fuzz) echo "clang libclang-rt-dev" ;;
	pages) echo "[chromium] [nodejs] [npm]" ;;
	deb) echo "debhelper dpkg-dev libvirt-dev libext2fs-dev libblkid-dev lintian debootstrap" ;;
	*) return 1 ;;
	esac
}

list=
if [ "${1-}" = --list ]; then
	list=1
	shift
	[ $# -gt 0 ] || set -- build test lab lint fuzz pages deb
fi
[ $# -gt 0 ] || set -- build

wanted=
for group; do
	if ! members=$(packages "$group"); then
		echo "setup/packages.sh: no group '$group'; there are build, test, lab, lint, fuzz, pages and deb" >&2
		exit 2
	fi
	[ -z "$list" ] || echo "$group $members"
	wanted="$wanted $members"
done
[ -z "$list" ] || exit 0

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
	echo "setup/packages.sh: not a Debian system; you need what these packages hold:$wanted" >&2
	exit 3
fi

# One dpkg-query for all; one line for each that is installed.
names=$(echo "$wanted" | tr -d '[]')
# shellcheck disable=SC2086 # a list of words
installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' $names 2>/dev/null |
	sed -n 's/ installed$//p')
needed=
optional=
for package in $wanted; do
	name=$(echo "$package" | tr -d '[]')
	case "
$installed
" in
	*"
$name
"*) continue ;;
	esac
	case $package in
	\[*) optional="$optional $name" ;;
	*) needed="$needed $name" ;;
	esac
done

# pkg-config is a name that pkgconf may stand in for.
case $needed in
*" pkg-config"*) ! command -v pkg-config >/dev/null || needed=$(echo "$needed" | sed 's/ pkg-config//') ;;
esac
[ -n "$needed$optional" ] || exit 0

if [ "$(id -u)" != 0 ]; then
	[ -n "$needed" ] || exit 0
	echo "These packages are missing; run this as root:" >&2
	echo "  apt-get update && apt-get install -y --no-install-recommends$needed$optional" >&2
	exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# A machine that has just started may be updating itself: apt-get waits for that to end.
apt() {
	DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 "$@" >>"$log" 2>&1 </dev/null
}
install() {
	apt install -y --no-install-recommends "$@"
}
updated=
update() {
	echo "Running apt-get update" >&2
	apt update
	updated=1
}

[ -z "$needed" ] || echo "Installing Debian packages:$needed" >&2
[ -z "$optional" ] || echo "Installing optional Debian packages:$optional" >&2

# A fresh machine has no lists of packages yet.
lists=/var/lib/apt/lists
eval "$(apt-config shell lists Dir::State::lists/d)"
set -- "$lists"/*_Packages*
[ -e "$1" ] || update

if [ -n "$needed" ]; then
	# Lists may be older than what the mirror has.
	# shellcheck disable=SC2086 # a list of words
	if ! install $needed && { [ -n "$updated" ] || ! update || ! install $needed; }; then
		grep '^[EW]:' "$log" | awk '!seen[$0]++' | tail -n 6 >&2
		echo "setup/packages.sh: apt-get install failed:$needed" >&2
		exit 1
	fi
fi
for package in $optional; do
	install "$package" || echo "setup/packages.sh: goes on without $package" >&2
done
exit 0
