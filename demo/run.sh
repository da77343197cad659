#!/bin/sh
# What `make demo` runs: boots Debian's stock kernel with a workload of known shares under
# guestprof, samples it from its first instruction, prints where the time went, and writes a flame
# graph and a timeline.
#
#   demo/run.sh [GUESTPROF]      default: build/guestprof
#
# Environment: KERNEL (a Debian package, linux-image-amd64), FREQUENCY (1000), CPUS (2).
# Files: demo/boot.fxt, boot.html and timeline.html are the result; the parts lie in build/demo and
# are used again.
set -eu

cd "$(dirname "$0")/.."
guestprof=${1-build/guestprof}
kernel=${KERNEL-linux-image-amd64}
parts=build/demo
console=$parts/console.log

mkdir -p "$parts"
"$guestprof" lab --fetch "$kernel" "$parts/$kernel"
if [ ! -e "$parts/initramfs.gz" ] || [ -n "$(find demo -newer "$parts/initramfs.gz" \
	\( -name '*.sh' -o -name '*.c' \))" ]; then
	demo/initramfs.sh "$parts/initramfs.gz"
fi

run=$guestprof
case $("$guestprof" doctor --floor) in
native) ;;
emulated)
	echo "demo: /dev/kvm here emulates guests in software, so this runs in the lab" >&2
	run="$guestprof lab"
	;;
*)
	echo "demo: there is no usable /dev/kvm here, so this runs in the lab" >&2
	run="$guestprof lab"
	;;
esac

echo "demo: booting $kernel ($(cat "$parts/$kernel/version")) with ${CPUS-2} vCPUs," \
	"sampling each at ${FREQUENCY-1000} Hz" >&2
record() {
	code=0
	# shellcheck disable=SC2086 # two words
	$run record -k "$parts/$kernel/vmlinuz" -i "$parts/initramfs.gz" \
		-F "${FREQUENCY-1000}" -c "${CPUS-2}" -m 512M \
		--timeout 400 \
		-p "console=ttyS0 quiet panic=-1" -o demo/boot.fxt </dev/null >"$console" || code=$?
}
record
# The lab may lock up (docs/design/lab.md), or a guest in it hang until the time is over.
case $run,$code in
"$guestprof lab",14 | "$guestprof lab",125)
	echo "demo: it ended with exit code $code, as labs sometimes do" \
		"(docs/design/lab.md): trying once more" >&2
	record
	;;
esac
if [ "$code" != 0 ]; then
	tail -n 20 "$console" >&2
	echo "demo: guestprof record ended with exit code $code" >&2
	exit "$code"
fi
grep -a 'workload:' "$console" || {
	echo "demo: the guest ended before its workload began; see $console" >&2
	exit 1
}
"$guestprof" flamegraph -o demo/boot.html demo/boot.fxt
"$guestprof" timeline -o demo/timeline.html demo/boot.fxt
"$guestprof" report demo/boot.fxt
echo "demo: written: demo/boot.fxt, demo/boot.html (flame graph) and demo/timeline.html" >&2
