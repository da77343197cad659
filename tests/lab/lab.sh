#!/bin/sh
# The lab itself: what goes in and comes out of it. Prints TAP. Each boot takes seconds, so
# many things are looked at in one, and most of the time two run side by side.
set -u

guestprof=${GUESTPROF:-$PWD/build/guestprof}
case $guestprof in /*) ;; *) guestprof=$PWD/$guestprof ;; esac

if ! command -v qemu-system-x86_64 >/dev/null; then
	echo "1..0 # SKIP no qemu-system-x86_64 (Debian package qemu-system-x86)"
	exit 0
fi
if ! "$guestprof" lab --setup >&2; then
	echo "1..0 # SKIP the lab's parts cannot be had here"
	exit 0
fi

# Below the repository: what is in /tmp of the lab is not what is in /tmp here.
work=$(mktemp -d "$PWD/build/lab-test.XXXXXX")
trap 'rm -rf "$work" "/tmp/guestprof-lab-test.$$"' EXIT
cd "$work" || exit 1
count=0

# is WHAT GOT WANTED
is() {
	count=$((count + 1))
	if [ "$2" = "$3" ]; then
		echo "ok $count - $1"
	else
		echo "not ok $count - $1"
		printf '%s\n' "got:" "$2" "wanted:" "$3" | sed 's/^/# /'
	fi
}

# holds WHAT FILE TEXT
holds() {
	count=$((count + 1))
	if grep -q -F -e "$3" "$2"; then
		echo "ok $count - $1"
	else
		echo "not ok $count - $1"
		sed 's/^/# /' "$2"
	fi
}

# --- one boot: streams, exit code, files, surroundings
mkdir "a directory, with odd; characters"
cd "a directory, with odd; characters" || exit 1
echo before >present
cat >inside.sh <<'END'
printf 'out\0\r\n\377' 
printf 'err\0\r\n\376' >&2
{
	echo "kvm $([ -w /dev/kvm ] && echo yes)"
	echo "pwd $(pwd)"
	echo "present $(cat present)"
	echo "passed $PASSED/$GUESTPROF_TEST_AUTOMATIC/${NOT_PASSED-unset}"
	echo "terminal $([ -t 0 ] || [ -t 1 ] || echo none)"
	echo "loopback $(cat /sys/class/net/lo/flags)"
	echo "nodes $([ -c /dev/null ] && [ -c /dev/urandom ] && [ -c /dev/ptmx ] && echo yes)"
	echo "argument $1|$2"
	echo "cpus $(nproc) $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)"
} >facts
mkdir -p new/deep && echo landed >new/deep/file
rm present
echo gone >"/tmp/guestprof-lab-test.$2"
echo gone >/etc/guestprof-lab-test
exit 41
END
(
	# Much data through all three streams at a time, in another lab.
	cd "$work" && mkdir data && cd data || exit 1
	head -c 20000000 /dev/urandom >big
	sha256sum <big >wanted
	"$guestprof" lab --exec sh -c 'tee /dev/stderr; echo status $? >status' <big >big.out 2>big.err
	sha256sum <big.out >out
	sha256sum <big.err >err
	rm -f big big.out big.err
) &
PASSED=wrong NOT_PASSED=x GUESTPROF_TEST_AUTOMATIC=auto \
	"$guestprof" lab --cpus 3 --memory 1G --env PASSED="a b" --exec sh inside.sh "one two" $$ \
	</dev/null >out 2>err
is "the exit code passes through" "$?" 41
wait
printf 'out\0\r\n\377' >out.wanted
printf 'err\0\r\n\376' >err.wanted
is "stdout is exact" "$(cmp out out.wanted 2>&1)" ""
is "stderr is exact, without noise" "$(cmp err err.wanted 2>&1)" ""
is "the command sees what it should" "$(cat facts)" "kvm yes
pwd $PWD
present before
passed a b/auto/unset
terminal none
loopback 0x9
nodes yes
argument one two|$$
cpus 3 1-3"
is "files below the current directory arrive on the host" "$(cat new/deep/file)" landed
is "and are removed" "$([ -e present ] || echo removed)" removed
is "files elsewhere do not land" \
	"$(ls "/tmp/guestprof-lab-test.$$" /etc/guestprof-lab-test 2>/dev/null)" ""
cd "$work" || exit 1

is "20 MB of input reach stdout" "$(cat data/out)" "$(cat data/wanted)"
is "and stderr" "$(cat data/err)" "$(cat data/wanted)"
is "and the command sees their end" "$(cat data/status)" "status 0"

# --- two labs at a time, one forwarding a signal, one ended by --timeout
cat >signals.sh <<'END'
trap 'echo got TERM; exit 43' TERM
trap 'echo got INT' INT
echo ready >ready
while :; do sleep 0.1; done
END
mkdir one two
(
	cd one || exit 1
	env --default-signal=INT "$guestprof" lab --exec sh ../signals.sh </dev/null >out 2>err &
	lab=$!
	for _ in $(seq 600); do
		[ ! -e ready ] || break
		sleep 0.1
	done
	kill -INT $lab
	sleep 1
	kill -TERM $lab
	wait $lab
	echo $? >code
) &
(
	cd two || exit 1
	"$guestprof" lab --timeout 12 --exec sh -c 'echo x >started; sleep 1000' </dev/null >out 2>err
	echo $? >code
)
wait
# signals.sh lies above the shared directory and is seen read-only.
is "SIGINT and SIGTERM reach the command" "$(cat one/out)" "got INT
got TERM"
is "whose exit code counts" "$(cat one/code)" 43
is "--timeout ends the lab with 124" "$(cat two/code)" 124
holds "and says so" two/err "12 seconds are over"

# --- the lab's own failures and other ends
# in_lab DIRECTORY COMMAND...: in a lab of its own; out, err and code are in the directory.
in_lab() {
	mkdir "$1" && cd "$1" || exit 1
	shift
	"$guestprof" lab --exec "$@" </dev/null >out 2>err
	echo $? >code
	cd "$work" || exit 1
}
(
	in_lab missing no-such-command
	in_lab killed sh -c 'kill -KILL $$'
) &
in_lab panic sh -c 'echo c >/proc/sysrq-trigger; sleep 100'
mkdir closed && cd closed || exit 1
"$guestprof" lab --exec sh -c 'seq 1 10000000 && echo survived >survived' </dev/null 2>err | head -n 1 >first
cd "$work" || exit 1
wait
is "no such command gives 127" "$(cat missing/code)" 127
holds "and says which" missing/err no-such-command
is "a signal gives 128 + its number" "$(cat killed/code)" 137
is "a panic of the lab's kernel gives 125" "$(cat panic/code)" 125
holds "and says so" panic/err "the lab's kernel panicked"
is "and nothing on stdout" "$(cat panic/out)" ""
is "a closed stdout ends the command's writing" "$(cat closed/first; ls closed/survived 2>/dev/null)" 1

"$guestprof" lab --kernel /no/such/kernel --exec true </dev/null >out 2>err
is "no kernel gives 125" "$?" 125
is "with one line" "$(wc -l <err)" 1
mkdir bin
printf '#!/bin/sh\necho fake qemu broke >&2\nexit 1\n' >bin/qemu-system-x86_64
chmod +x bin/qemu-system-x86_64
PATH=$PWD/bin:$PATH "$guestprof" lab --exec true </dev/null >out 2>err
is "QEMU dying gives 125" "$?" 125
holds "and shows what it said" err "fake qemu broke"
PATH=/nowhere "$guestprof" lab --exec true </dev/null >out 2>err
is "no QEMU gives 125" "$?" 125
holds "and names the package" err "apt-get install qemu-system-x86"
"$guestprof" lab </dev/null >out 2>err
is "no command gives 2" "$?" 2

# --- a terminal; the lab killed outright
if command -v script >/dev/null; then
	script -qec "stty rows 33 cols 77; '$guestprof' lab --exec sh -c 'stty size; tty; sleep 0.2; exit 6'" \
		/dev/null </dev/null >out 2>&1
	is "the exit code passes through a terminal" "$?" 6
	holds "the window's size is passed" out "33 77"
	holds "the command has a terminal" out "/dev/pts/"
else
	count=$((count + 1))
	echo "ok $count - a terminal # SKIP no script(1) (Debian package bsdutils)"
fi
"$guestprof" lab --exec sh -c 'echo x >alive; sleep 1000' </dev/null >out 2>err &
lab=$!
for _ in $(seq 600); do
	[ ! -e alive ] || break
	sleep 0.1
done
qemu=$(cat "/proc/$lab/task/$lab/children")
kill -KILL $lab
wait $lab 2>/dev/null
sleep 1
# A zombie, which an init that does not reap leaves behind, is dead too.
is "the machine dies with the lab" \
	"$(for p in $qemu; do sed 's/.*) //; s/ .*//; /[ZX]/d' "/proc/$p/stat" 2>/dev/null; done)" ""
is "and there was one" "$([ -n "$qemu" ] && echo yes)" yes
echo "1..$count"
