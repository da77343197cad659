#!/bin/sh
# guestprof export: what it writes, checked against the report of the same samples and read by programs
# that are not ours: speedscope and the Firefox profiler (npm packages, fetched once into build/npm),
# go tool pprof. As TAP; what a reader is missing for is skipped with that reason.
set -u
top=$PWD
guestprof=${GUESTPROF:-build/guestprof}
case $guestprof in /*) ;; *) guestprof=$top/$guestprof ;; esac
readers=$top/tests/unit/readers
golden=$top/tests/golden
npm=$top/build/npm
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$golden/tasks.fxt" "$work/tasks.fxt"
cd "$work" || exit 1
export HOME="$work"
count=0

ok() {
	count=$((count + 1))
	echo "ok $count - export: $1"
}
not_ok() {
	count=$((count + 1))
	echo "not ok $count - export: $1"
	[ ! -s log ] || sed 's/^/# /' log | head -n 30 >&2
}
skip() {
	count=$((count + 1))
	echo "ok $count - export: $1 # SKIP $2"
}
# result TITLE COMMAND...
result() {
	title=$1
	shift
	if "$@" >log 2>&1; then ok "$title"; else not_ok "$title"; fi
}

export_to() {
	"$guestprof" export "$1" -o "$2" tasks.fxt
}

# fetch PACKAGE@VERSION: a program from npm, kept in build/npm
fetch() {
	[ ! -e "$npm/node_modules/${1%@*}/package.json" ] || return 0
	command -v npm >/dev/null || return 1
	mkdir -p "$npm" && timeout 120 npm install --prefix "$npm" --no-audit --no-fund --no-save "$1" >&2
}

# What is written, byte by byte.
for format in folded perf; do
	export_to $format out >log 2>&1
	result "golden $format" cmp out "$golden/tasks.$format"
done

fold() {
	"$guestprof" export perf "$@" tasks.fxt | awk -v period=1000000 -f "$readers/fold.awk" | LC_ALL=C sort >a
	"$guestprof" export folded "$@" tasks.fxt | LC_ALL=C sort >b
	[ -s b ] && cmp a b
}
result "perf, folded, is folded" fold
result "and so with filters" fold --pid 100 --mode kernel,user --from 25ms

sums() { # all formats hold the same samples
	folded=$("$guestprof" export folded "$@" tasks.fxt | awk '{ sum += $NF } END { print sum }')
	"$guestprof" report --json "$@" tasks.fxt | grep -q "\"running\": $folded,"
}
result "folded holds what the report counts" sums
result "and so with filters" sums --comm make --symbol recurse

# Read by our own program as far as it goes: the samples are records that only others know.
export_to fuchsia out.fxt
result "fuchsia is a whole trace of no samples of ours" sh -c \
	"'$guestprof' report out.fxt | grep -q '^# ticks: *0 stacks + 0 partial + 5 dropped'"

if command -v node >/dev/null; then
	"$guestprof" report -n 0 --json tasks.fxt >report.json
	for format in json fuchsia perfetto firefox; do
		export_to $format out
		[ $format != firefox ] || gzip -dc <out >out.unzipped
		[ ! -e out.unzipped ] || mv out.unzipped out
		result "$format agrees with the report" node "$readers/check.mjs" $format report.json out
	done
	"$guestprof" export speedscope --by vcpu tasks.fxt >by-vcpu
	result "a profile for each vCPU" node -e '
		const names = JSON.parse(fs.readFileSync("by-vcpu")).profiles.map(profile => profile.name)
		if (names.join() !== "vCPU 0,vCPU 1") throw names'
else
	skip "json, fuchsia, perfetto and firefox agree with the report" "no node (Debian package nodejs)"
fi

if ! command -v node >/dev/null; then
	skip "read by speedscope" "no node (Debian package nodejs)"
elif ! fetch speedscope@1.25.0 2>log; then
	skip "read by speedscope" "npm package speedscope cannot be fetched"
else
	for format in speedscope perf pprof; do
		export_to $format out
		node "$readers/speedscope.mjs" "$npm/node_modules/speedscope" out 2>log | grep '^\[' >found
		result "$format, read by speedscope, agrees with the report" \
			node "$readers/check.mjs" $format report.json found
	done
fi

if ! command -v node >/dev/null; then
	skip "read by the Firefox profiler" "no node (Debian package nodejs)"
elif ! fetch @firefox-devtools/profiler-cli@0.10.0 2>log; then
	skip "read by the Firefox profiler" "npm package @firefox-devtools/profiler-cli cannot be fetched"
else
	# Its commands talk to a process of its own that "load" starts, within half a second or not at all.
	cli=$npm/node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js
	export_to firefox out.json.gz
	loaded=
	for _ in 1 2 3 4; do
		timeout 30 node "$cli" load out.json.gz >log 2>&1 && loaded=1 && break
	done
	firefox() {
		timeout 30 node "$cli" thread list >list &&
			thread=$(awk '/make/ { sub(/^\* */, ""); print $1 }' list) &&
			timeout 30 node "$cli" thread functions --thread "$thread" >functions &&
			grep -q 'compute - self: 40 ' functions && grep -q 'ext4_read - self: 20 ' functions &&
			grep -q 'main - self: 0 .*total: 60 ' functions
	}
	if [ -z "$loaded" ] && grep -q 'did not become ready' log; then
		skip "firefox, read by the Firefox profiler" "this machine is too busy for its half second"
	else
		result "firefox, read by the Firefox profiler, has the report's figures" firefox
	fi
	cat list functions >>log 2>/dev/null
	timeout 30 node "$cli" stop --all >/dev/null 2>&1
fi

if ! command -v go >/dev/null; then
	skip "read by go tool pprof" "no go (Debian package golang-go)"
elif ! command -v node >/dev/null; then
	skip "read by go tool pprof" "no node (Debian package nodejs)"
else
	export_to pprof out.pb.gz
	go tool pprof -top -sample_index=samples -nodecount=100000 -nodefraction=0 out.pb.gz >found 2>log
	result "pprof, read by go tool pprof, agrees with the report" \
		node "$readers/check.mjs" pprof-top report.json found
	go tool pprof -tags out.pb.gz >tags 2>log
	result "processes and threads are labels" grep -q ' 201$' tags
fi
if command -v protoc >/dev/null; then
	"$guestprof" export pprof tasks.fxt | gzip -dc | protoc --decode_raw >raw 2>log
	# Nothing left undecoded, and one field 2 for each distinct stack of each thread.
	stacks=$("$guestprof" export folded tasks.fxt | wc -l)
	result "pprof, decoded by protoc" [ "$(grep -c '^2 {' raw)" = "$stacks" ]
	export_to perfetto out
	protoc -I"$readers" --decode=Trace perfetto.proto <out >decoded 2>log
	# One for each tick, the last for what was lost. What the schema does not know stands there as a number.
	result "perfetto, decoded by protoc" [ "$(grep -c '^  perf_sample {' decoded)" = 166 ]
	result "with the published fields and values only" sh -c "! grep -nE '^ *[0-9]+( \\{|:)' decoded"
else
	skip "pprof, decoded by protoc" "no protoc (Debian package protobuf-compiler)"
fi

# Where the output goes.
fails() { # CODE TITLE WORDS COMMAND...: exit code, and one line with the words
	wanted=$1
	title=$2
	text=$3
	shift 3
	code=0
	"$@" >out 2>log || code=$?
	if [ "$code" = "$wanted" ] && [ "$(wc -l <log)" = 1 ] && grep -q -e "$text" log; then
		ok "$title"
	else
		echo "exit code $code" >>log
		not_ok "$title"
	fi
}
fails 2 "no format" "give a format" "$guestprof" export
fails 2 "an unknown format" "no format 'svg'" "$guestprof" export svg tasks.fxt
fails 2 "an unknown subject" "--by process" "$guestprof" export speedscope --by process tasks.fxt
fails 1 "a foreign file" "$golden/kallsyms-6.1.txt" "$guestprof" export folded -o none "$golden/kallsyms-6.1.txt"
result "leaves no output" [ ! -e none ]
fails 1 "a folder that is not there" "none/out" "$guestprof" export folded -o none/out tasks.fxt
for format in folded perf speedscope firefox pprof perfetto fuchsia json; do
	fails 1 "$format on a full disk" "No space left" "$guestprof" export $format -o /dev/full tasks.fxt
done
fails 1 "standard output on a full disk" "No space left" sh -c \
	"'$guestprof' export json tasks.fxt >/dev/full"
mkfifo pipe
exec 3<>pipe 4>pipe 3<&- # its only reader is gone
fails 1 "a closed pipe" "Broken pipe" sh -c "'$guestprof' export json tasks.fxt >&4"
exec 4>&-

mkdir small
if mount -t tmpfs -o size=16k tmpfs small 2>/dev/null; then
	echo before >small/out
	fails 1 "a disk that becomes full" "No space left" "$guestprof" export json -o small/out tasks.fxt
	result "leaves what was there, and nothing else" \
		sh -c '[ "$(cat small/out)" = before ] && [ "$(ls -A small)" = out ]'
	umount small
else
	skip "a disk that becomes full" "mounting is not allowed here"
fi
umask 027
export_to folded new
result "a new file has the usual rights" [ "$(stat -c %a new)" = 640 ]
ln -s new link
export_to json link
result "a link stays one" [ -L link ]
head -c 9000 tasks.fxt >cut.fxt
fails 0 "a cut trace gives what is there, and says so" "incomplete" "$guestprof" export folded -o cut cut.fxt
result "and the output is there" [ -s cut ]
if command -v script >/dev/null; then
	code=0
	script -qec "'$guestprof' export pprof tasks.fxt" /dev/null </dev/null >log 2>&1 || code=$?
	result "no binary on a terminal" [ "$code" = 1 ]
else
	skip "no binary on a terminal" "no script(1)"
fi
result "--help has examples" sh -c "'$guestprof' export --help | grep -q '^Examples: '"
echo "1..$count"
