#!/bin/sh
# setup/packages.sh on machines that only pretend: nothing installed, half of it, other users, no
# lists of packages, no network. As TAP; nothing is installed here.
set -u
script=$PWD/setup/packages.sh
readme=$PWD/README.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
count=0

# The machine is these files: installed (packages), known (to apt-get), uid, lists/.
mkdir bin lists
for tool in sh cat sed tr grep awk tail mktemp rm; do
	ln -s "$(command -v $tool)" bin/$tool
done
cat >bin/dpkg-query <<'END'
#!/bin/sh
# dpkg-query -W -f FORMAT NAME...
shift 3
for name; do
	if grep -qx "$name" installed; then
		echo "$name installed"
	elif grep -qx "$name" removed; then
		echo "$name config-files"
	else
		missing=1
	fi
done
[ -z "${missing-}" ]
END
cat >bin/apt-get <<'END'
#!/bin/sh
echo "apt-get $*" >>calls
cat output >>said-before 2>/dev/null
case " $* " in
*" update "*)
	[ ! -e no-network ] || exit 0 # as apt-get does
	: >lists/mirror_main_Packages
	;;
*" install "*)
	[ -e lists/mirror_main_Packages ] || { echo "E: Unable to locate package" >&2; exit 100; }
	[ ! -e no-network ] || { echo "E: Failed to fetch it" >&2; exit 100; }
	while [ $# -gt 0 ] && [ "$1" != --no-install-recommends ]; do shift; done
	shift
	for name; do
		! grep -qx "$name" unknown || { echo "E: no $name" >&2; exit 100; }
	done
	for name; do echo "$name" >>installed; done
	;;
esac
END
cat >bin/apt-config <<'END'
#!/bin/sh
echo "lists='$PWD/lists/'"
END
printf '#!/bin/sh\ncat uid\n' >bin/id
chmod +x bin/dpkg-query bin/apt-get bin/apt-config bin/id

# machine UID LISTS: nothing is installed on it.
machine() {
	rm -rf lists/* calls no-network unknown said-before
	: >installed
	: >removed
	: >calls
	: >unknown
	echo "$1" >uid
	[ "$2" = none ] || : >lists/mirror_main_Packages
}

# run ARGUMENT...: what it says is in the file output.
run() {
	: >calls
	: >said-before
	code=0
	PATH=$work/bin sh "$script" "$@" >output 2>&1 </dev/null || code=$?
}

# is WHAT GOT WANTED
is() {
	count=$((count + 1))
	if [ "$2" = "$3" ]; then
		echo "ok $count - setup: $1"
	else
		echo "not ok $count - setup: $1"
		printf '%s\n' "got:" "$2" "wanted:" "$3" "output:" "$(cat output)" "calls:" "$(cat calls)" |
			sed 's/^/# /'
	fi
}
calls() {
	sed 's/^apt-get -qq -o DPkg::Lock::Timeout=600 //; s/ -y --no-install-recommends//' calls
}

building="gcc make pkg-config libc6-dev libelf-dev libseccomp-dev zlib1g-dev libncurses-dev libcapstone-dev libdw-dev"
optional="libvirt-dev libext2fs-dev libblkid-dev"
later="install libvirt-dev
install libext2fs-dev
install libblkid-dev"

machine 1000 there
run build
is "without root: the line to run" "$(tail -n 1 output)" \
	"  apt-get update && apt-get install -y --no-install-recommends $building $optional"
is "without root: exit code 1" "$code" 1
is "without root: nothing is done" "$(cat calls)" ""

machine 0 there
run build
is "as root: one installation of all, then what is optional" "$(calls)" "install $building
$later"
is "as root: exit code 0" "$code" 0
is "what will be installed is named before" "$(head -n 1 said-before)" \
	"Installing Debian packages: $building"
run build
is "the second time nothing is installed" "$(cat calls)" ""
is "the second time nothing is printed" "$code $(cat output)" "0 "
echo 1000 >uid
run build
is "nor without root" "$code $(cat output)" "0 "

machine 0 none
run build
is "without lists they are fetched first" "$(calls)" "update
install $building
$later"

machine 0 there
echo libelf-dev >removed
printf '%s\n' gcc make pkg-config libc6-dev libseccomp-dev zlib1g-dev libncurses-dev libcapstone-dev libdw-dev libvirt-dev libext2fs-dev libblkid-dev >installed
run build
is "only what is missing, and a removed package is" "$(calls)" "install libelf-dev"

machine 0 there
echo libelf-dev >unknown
run build
is "lists that are too old are fetched again" "$(calls)" "install $building
update
install $building"
is "a package that does not exist is a failure" "$code" 1
is "and is named, with the reason" "$(tail -n 2 output)" "E: no libelf-dev
setup/packages.sh: apt-get install failed: $building"

machine 0 none
: >no-network
run build
is "no network: a failure" "$code" 1
is "no network: nothing is installed" "$(cat installed)" ""

machine 0 there
echo spin >unknown
run test
is "an optional package that does not exist is not a failure" "$code" 0
is "and is named" "$(tail -n 1 output)" "setup/packages.sh: goes on without spin"
is "the others are there" "$(grep -cx -e libcriterion-dev -e g++ installed)" 2
run test
is "lists are not fetched for it again" "$(calls)" "install spin"
echo 1000 >uid
run test
is "without root an optional package is not asked for" "$code $(cat output)" "0 "

machine 0 there
run no-such-group
is "an unknown group" "$code" 2
rm bin/apt-get
run build
is "not a Debian system: exit code 3" "$code" 3
is "not a Debian system: what is needed is named" "$(cat output)" \
	"setup/packages.sh: not a Debian system; you need what these packages hold: $building [libvirt-dev] [libext2fs-dev] [libblkid-dev]"

run --list
is "the README's list is the script's" \
	"$(sed -n '/^build gcc/,/^```/p' "$readme" | grep -v '^```')" "$(cat output)"
echo "1..$count"
