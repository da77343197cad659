#!/bin/sh
# The command line of guestprof record: what each option takes and refuses. As TAP. An accepted line
# gets as far as its kernel, which is not there; what the values do is tests/kvm/record.sh.
set -u
guestprof=${GUESTPROF:-build/guestprof}
case $guestprof in /*) ;; *) guestprof=$PWD/$guestprof ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
count=0
echo "0000000000001000 T f" >symbols
mkdir directory

# result TITLE CONDITION...: what was printed is shown when the condition fails
result() {
	title=$1
	shift
	count=$((count + 1))
	if "$@"; then
		echo "ok $count - $title"
	else
		echo "not ok $count - $title: exit code $code"
		sed 's/^/# /' errors
	fi
}
record() {
	code=0
	"$guestprof" record "$@" >output 2>errors </dev/null || code=$?
}
one_line() {
	[ "$code" = 2 ] && [ "$(wc -l <errors)" = 1 ] && [ ! -s output ] && grep -q -F -e "$1" errors
}
accept() {
	record -k no-kernel "$@"
	result "accepted: $(echo "$*" | cut -c 1-100)" one_line "cannot open the kernel no-kernel"
}
# refuse NAMING ARGUMENT...: one line that names the option or the value
refuse() {
	naming=$1
	shift
	record -k no-kernel "$@"
	result "refused: $(echo "$*" | cut -c 1-100)" refused
}
refused() {
	one_line "$naming" && grep -q '^guestprof record: ' errors && ! grep -q no-kernel errors
}

accept
accept --initrd i --append "a b=c" --cpus 3 --memory 2G --disk d,ro --disk e --frequency 4000 --event timer \
	--jitter 10 --sample-cpus 2,0-1 --depth 5 --symbols symbols@0x10 --symfs directory --output o --until login: \
	--duration 1.5 --timeout 60 --json --no-sandbox

# Sizes have units, and are MiB without.
for size in 64 64m 2048K 2048k 3g 65536G; do
	accept -m $size
done
for size in "" 0 -1 M 12X 12MM 1.5 65537G " 12" 0x10 99999999999999999999; do
	refuse -m -m "$size"
done

for words in "-c 1" "-F 0" "-F 1" "-F 100000" "--period 10000" "--depth 1" "--depth 1024" "--jitter 0" \
	"--jitter 90" "--period 3600000000000"; do
	# shellcheck disable=SC2086 # words
	accept $words
done
for words in "-c 0" "-c -1" "-c two" "-c 4294967296" "-F -1" "-F 100001" "-F 1e3" "--period 9999" "--period 0" \
	"--period 3600000000001" "--depth 0" "--depth 1025" "--depth +5" "--jitter 91" "--jitter 10%" "--jitter -5"; do
	# shellcheck disable=SC2086
	refuse "${words% *}" $words
done
refuse -c -c ""
refuse -F -F ""

# Times are seconds.
accept --duration .25 --timeout 1e3
for time in "" 0 -1 1s nan inf 1e10 0x1 +1; do
	refuse --duration --duration "$time"
	refuse --timeout --timeout "$time"
done

for event in timer cpu-clock cycles instructions; do
	accept -e $event
done
refuse cache-misses -e cache-misses
refuse -e -e ""
accept -e cycles --period 500000

# What excludes each other, in either order.
refuse exclude --jitter 5 -e cycles
refuse exclude -F 1000 --period 20000
refuse "give --period EVENTS" -F 1000 -e cycles
refuse "give --period EVENTS" -e instructions -F 1000
refuse exclude -e cpu-clock --jitter 5
accept -e cpu-clock --jitter 0

# Sampled vCPUs are ones that are there.
accept -c 4 --sample-cpus 3
accept --sample-cpus 0-3 -c 4
refuse --sample-cpus -c 4 --sample-cpus 4
refuse --sample-cpus --sample-cpus 0,1
for list in "" "," a 1- -1 2-1 64 0-64 1,,x; do
	refuse --sample-cpus -c 64 --sample-cpus "$list"
done

# As many disks and symbol files as can be.
disks=$(for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do echo "-d disk"; done)
files=$(for _ in 1 2 3 4 5 6 7 8; do echo "--symbols symbols"; done)
# shellcheck disable=SC2086
accept $disks
# shellcheck disable=SC2086
refuse one-more $disks -d one-more
# shellcheck disable=SC2086
accept $files
# shellcheck disable=SC2086
refuse one-more $files --symbols one-more
refuse -d -d ""
refuse -d -d ,ro

text=$(head -c 1024 /dev/zero | tr '\0' x)
accept --until "$text"
refuse --until --until "${text}x"
refuse --until --until ""

refuse frequency --frequency
refuse Z -Z
refuse --no-such-option --no-such-option
refuse stray stray
refuse json --json=yes
record -c 2
result "a kernel is missing" one_line -k
record -k
result "its name is missing" one_line k

record --help
result "help is no error" [ "$code" = 0 ]
for name in kernel initrd append cpus memory disk frequency period event jitter depth sample-cpus symbols symfs \
	output until json duration timeout no-sandbox; do
	result "help explains --$name" grep -q -e "--$name" output
done
echo "1..$count"
