// Checks what guestprof exports against what it reports of the same samples:
//
//   node check.mjs WHAT REPORT EXPORT [MORE]
//
// REPORT is the output of `guestprof report -n 0 --json`. For fuchsia, firefox and trace-processor MORE is the
// file of json lines. WHAT is: json (the lines), fuchsia (the
// file, decoded here from docs/trace-format.md), speedscope or pprof (EXPORT is what readers/speedscope.mjs
// printed), perfetto (the file, decoded here), trace-processor (EXPORT is what readers/trace_processor.mjs
// printed), perf (likewise; names and threads only, as that reader takes times, not periods), firefox
// (the file, unzipped), pprof-top (what `go tool pprof -top` printed), or places (the places of leaves in the
// source, against `report --by line`; MORE says of what format). Prints nothing when all is well.
import fs from 'node:fs'
import assert from 'node:assert/strict'

const [what, reportFile, exportFile, moreFile] = process.argv.slice(2)
const report = JSON.parse(fs.readFileSync(reportFile, 'utf8'))
const add = (sums, key, by) => { sums[key] = (sums[key] ?? 0) + by }
const leaf = frame => `${frame.file}:${frame.line}`
const text = () => fs.readFileSync(exportFile, 'utf8')

// Functions of one name in kernel and program are rows of their own.
const expected = {}
for (const row of report.rows) {
	expected[row.name] ??= {self: 0, total: 0}
	expected[row.name].self += row.self
	expected[row.name].total += row.total
}
assert.ok(Object.keys(expected).length > 3)

function assertSelf(found, unit) {
	const names = new Set([...Object.keys(expected), ...Object.keys(found)])
	for (const name of names)
		assert.equal(Math.round((found[name] ?? 0) / unit), expected[name]?.self ?? 0, `self of ${name}`)
}

function sumFunctions(profiles) {
	const sums = {}
	for (const profile of profiles)
		for (const [name, weights] of Object.entries(profile.functions))
			sums[name] = (sums[name] ?? 0) + weights.self
	return sums
}

function backtraces(bytes) {
	const words = new BigUint64Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length))
	let count = 0, lost = 0n, names = 0, last = 0n, logs = 0
	const states = {}
	assert.equal(words[0], 0x0016547846040010n)
	for (let at = 0; at < words.length;) {
		const header = words[at], size = Number(header >> 4n & 0xfffn), type = header & 15n
		assert.ok(size > 0 && at + size <= words.length)
		if (type === 10n) {
			assert.equal(header >> 16n & 15n, 2n)
			assert.ok(words[at + 1] >= last, 'in order of time')
			last = words[at + 1]
			const frames = Number(header >> 28n & 255n)
			assert.ok(frames > 0 && size === 4 + frames)
			count++
		} else if (type === 4n) {
			// Categories and names of drop records are in the table of strings, those of states are not.
			if (header >> 32n & 0x8000n) addState(words.subarray(at, at + size), states)
			else lost++
		} else if (type === 9n) {
			logs++
		} else if (type === 7n) {
			names++
		}
		at += size
	}
	return {count, lost, names, logs, states}
}

// The name of a duration and the number in its only argument, which is its last but one word.
function addState(words, states) {
	const text = (at, bytes) => Buffer.from(words.slice(at).buffer, 0, bytes).toString()
	const bytes = number => Number(words[0] >> number & 0x7fffn)
	assert.equal(words[0] >> 16n & 15n, 4n)
	assert.equal(text(4, bytes(32n)), 'vcpu')
	assert.ok(words.at(-1) >= words[1])
	add(states, text(4 + Math.ceil(bytes(32n) / 8), bytes(48n)), Number(words.at(-2)))
}

// What vCPUs did, in ticks, by the lines of json; and the texts of the console's lines as others have them.
const stateOf = line => ['halted', 'in VMM', 'not started'].includes(line.mode) ? line.mode : 'running'
function statesOf(lines) {
	const states = {}
	for (const line of lines)
		if (line.type === 'sample') add(states, stateOf(line), line.ticks)
		else if (line.type === 'lost') add(states, 'ticks lost', line.ticks)
	return states
}
const consoleOf = lines => lines.filter(line => line.type === 'console')
	.map(line => [line.time_ns, line.text.replace(/\\x1b\[[0-9;]*[@-~]/g, '')])
const linesOf = file => fs.readFileSync(file, 'utf8').trimEnd().split('\n').map(line => JSON.parse(line))

// The fields of a protocol buffer message: [number, value] with bytes for what has a length.
function* fields(bytes) {
	let at = 0
	const varint = () => {
		let value = 0n
		for (let shift = 0n;; shift += 7n) {
			const byte = bytes[at++]
			value |= BigInt(byte & 0x7f) << shift
			if (byte < 0x80) return value
		}
	}
	while (at < bytes.length) {
		const tag = Number(varint())
		assert.ok([0, 2].includes(tag & 7))
		let value = varint()
		if ((tag & 7) === 2) {
			const size = Number(value)
			assert.ok(at + size <= bytes.length)
			value = bytes.subarray(at, at + size)
			at += size
		}
		yield [tag >> 3, value]
	}
}
const message = bytes => {
	const found = {}
	for (const [number, value] of fields(bytes)) (found[number] ??= []).push(value)
	return found
}

// What Perfetto's own program found against the lines of our json: the same samples, each as often, with the
// same times, vCPUs, processes, threads, modes and stacks.
function assertTraceProcessor(found, lines) {
	const VCPUS = 1 << 30, PERIOD = report.period_ns
	const frames = new Map(found.frames.map(row => [row.id, row]))
	const sites = new Map(found.callsites.map(row => [row.id, row]))
	const stackOf = id => {
		const names = []
		for (; id !== null; id = sites.get(id).parent_id) names.push(frames.get(sites.get(id).frame_id).name)
		return names
	}
	const counted = new Map(), count = (key, by) => counted.set(key, (counted.get(key) ?? 0) + by)
	const key = (...parts) => JSON.stringify(parts)
	const running = lines.filter(line => line.type === 'sample' && line.stack)
	const mode = {'guest user': 'user', 'guest kernel': 'kernel'}
	for (const line of running) {
		const pid = line.pid ?? VCPUS, tid = line.tid ?? line.pid ?? VCPUS + 1 + line.vcpu
		count(key(line.time_ns, line.vcpu, pid, tid, mode[line.mode] ?? 'unknown',
			line.stack.map(frame => frame.name)), line.ticks)
	}
	for (const row of found.samples) {
		count(key(row.ts, row.cpu, row.pid, row.tid, row.cpu_mode, stackOf(row.callsite_id)), -1)
		assert.equal(row.unwind_error, null) // of this trace all stacks are whole
	}
	assert.deepEqual([...counted].filter(([, ticks]) => ticks), [])
	assert.equal(found.samples.length, report.running)

	// The last names that were given.
	const names = new Map()
	for (const line of running) {
		if (line.pid !== undefined) names.set(`process ${line.pid}`, line.process)
		if (line.tid !== undefined) names.set(`thread ${line.tid}`, line.thread)
	}
	for (const row of found.samples) {
		assert.equal(row.process, names.get(`process ${row.pid}`) ?? '[no process known]')
		assert.equal(row.thread, names.get(`thread ${row.tid}`) ?? `vCPU ${row.tid - VCPUS - 1}`)
	}
	// Objects by the functions in them.
	const objects = {kernel: '/[kernel.kallsyms]', module: '/[kernel.modules]', boot: '/[early.boot]', user: '/[user]'}
	const known = new Set(running.flatMap(line => line.stack).map(frame => `${objects[frame.kind]} ${frame.name}`))
	assert.deepEqual(new Set(found.frames.map(row => `${row.object} ${row.name}`)), known)
	// The counter of a vCPU has the time that it ran.
	const times = new Map()
	for (const line of running) times.set(line.vcpu, (times.get(line.vcpu) ?? 0) + line.ticks * PERIOD)
	assert.deepEqual(new Map(found.counters.map(row => [row.cpu, row.value])), times)
	// What the vCPUs did, one thing at a time.
	const states = {}, last = new Map()
	for (const row of found.slices) {
		add(states, row.name, row.ticks)
		assert.equal(row.depth, 0)
		assert.ok(row.ts >= (last.get(row.track) ?? 0), 'one behind the other')
		last.set(row.track, row.ts + row.dur)
	}
	assert.deepEqual(states, statesOf(lines))
	assert.deepEqual(found.console.map(row => [row.ts, row.name]), consoleOf(lines))
	// Nothing was wrong with the file, and what was lost is what we lost.
	const stats = found.stats.map(row => [row.name, row.severity, row.value])
	assert.deepEqual(stats, report.dropped ? [['perf_cpu_lost_records', 'data_loss', report.dropped]] : [])
}

// The places of leaves with what they weigh, and the weight of a tick.
const placesOf = {
	json() {
		const sums = {}
		for (const line of text().trimEnd().split('\n').map(line => JSON.parse(line)))
			if (line.stack) add(sums, leaf(line.stack[0]), line.ticks)
		return [sums, 1]
	},
	// Behind the line of a leaf, which follows the line of its sample.
	perf() {
		const sums = {}, lines = text().split('\n')
		lines.forEach((line, index) => {
			const period = line.match(/ (\d+) cpu-clock:$/)
			if (period) add(sums, lines[index + 2].match(/^ {2}(\S+:\d+)$/)[1], +period[1])
		})
		return [sums, report.period_ns]
	},
	firefox() {
		const sums = {}
		for (const {samples, stackTable, frameTable, funcTable, stringArray} of JSON.parse(text()).threads)
			samples.stack.forEach((stack, index) => {
				const frame = stackTable.frame[stack], func = frameTable.func[frame]
				assert.ok(funcTable.lineNumber[func] <= frameTable.line[frame], 'a function begins before its lines')
				assert.equal(frameTable.inlineDepth[frame], +stringArray[funcTable.name[func]].endsWith(' (inlined)'))
				add(sums, `${stringArray[funcTable.fileName[func]]}:${frameTable.line[frame]}`, samples.weight[index])
			})
		return [sums, 1]
	},
	speedscope() {
		const sums = {}
		for (const profile of JSON.parse(text()))
			for (const [place, weight] of Object.entries(profile.places)) add(sums, place, weight)
		// Callers have places as well.
		for (const place of Object.keys(sums)) if (!sums[place]) delete sums[place]
		return [sums, report.period_ns]
	},
	pprof() {
		const sums = {}
		for (const line of text().split('\n')) {
			const row = line.match(/^ *([1-9]\d*) +[\d.]+% +[\d.]+% +\d+ +[\d.]+% +\S+ (\S+:\d+)( \(inline\))?$/)
			if (row) add(sums, row[2], +row[1])
		}
		return [sums, 1]
	},
	perfetto() {
		const found = JSON.parse(text())
		assert.deepEqual(found.stats, [])
		return [Object.fromEntries(found.leaves.map(row => [row.place, row.count])), 1]
	},
}

switch (what) {
case 'json': {
	const lines = text().trimEnd().split('\n').map(line => JSON.parse(line))
	assert.equal(lines[0].type, 'trace')
	const end = lines.at(-1)
	assert.deepEqual([end.type, end.ticks, end.running], ['end', report.ticks, report.running])
	const self = {}
	let ticks = 0, lost = 0, last = 0, consoleLines = 0
	for (const line of lines.slice(1, -1)) {
		assert.ok(line.time_ns >= last, 'in order of time')
		last = line.time_ns
		if (line.type === 'lost') {
			lost += line.ticks
			continue
		}
		if (line.type === 'console') {
			consoleLines++
			continue
		}
		assert.equal(line.type, 'sample')
		ticks += line.ticks
		if (line.stack)
			self[line.stack[0].name] = (self[line.stack[0].name] ?? 0) + line.ticks
	}
	assert.equal(ticks, report.ticks)
	assert.equal(lost, report.dropped)
	assert.equal(consoleLines, report.console_lines)
	assert.equal(end.console_lines, report.console_lines)
	assertSelf(self, 1)
	break
}
case 'fuchsia': {
	const found = backtraces(fs.readFileSync(exportFile))
	assert.equal(found.count, report.running)
	assert.equal(found.lost > 0, report.dropped > 0)
	assert.ok(found.names >= 2)
	assert.equal(found.logs, report.console_lines)
	const {'ticks lost': _, ...states} = statesOf(linesOf(moreFile))
	assert.deepEqual(found.states, states)
	break
}
case 'perfetto': {
	const names = new Map(), frames = new Map(), stacks = new Map(), threads = new Map(), self = {}
	let ticks = 0, lost = 0, last = 0n
	for (const [number, bytes] of fields(fs.readFileSync(exportFile))) {
		assert.equal(number, 1)
		const packet = message(bytes)
		for (const interned of (packet[12] ?? []).map(message)) {
			for (const name of (interned[5] ?? []).map(message)) names.set(name[1][0], name[2][0].toString())
			for (const frame of (interned[6] ?? []).map(message)) frames.set(frame[1][0], names.get(frame[2][0]))
			for (const stack of (interned[7] ?? []).map(message)) stacks.set(stack[1][0], frames.get(stack[2].at(-1)))
		}
		for (const tree of (packet[2] ?? []).map(message))
			for (const thread of (tree[2] ?? []).map(message)) threads.set(thread[1]?.[0] ?? 0n, thread[2][0].toString())
		for (const sample of (packet[66] ?? []).map(message)) {
			assert.ok(packet[8][0] >= last, 'in order of time')
			last = packet[8][0]
			if (sample[17]) {
				lost += Number(sample[17][0])
				continue
			}
			const leaf = stacks.get(sample[4][0])
			assert.ok(leaf && threads.has(sample[3]?.[0] ?? 0n))
			self[leaf] = (self[leaf] ?? 0) + 1
			ticks++
		}
	}
	assert.equal(ticks, report.running)
	assert.equal(lost, report.dropped)
	assertSelf(self, 1)
	break
}
case 'trace-processor': {
	assertTraceProcessor(JSON.parse(text()), linesOf(moreFile))
	break
}
case 'speedscope':
case 'pprof': {
	const profiles = JSON.parse(text())
	const weight = profiles.reduce((sum, profile) => sum + profile.weight, 0)
	assert.equal(weight, report.running * report.period_ns)
	profiles.forEach(profile => assert.equal(profile.unit, 'nanoseconds'))
	assertSelf(sumFunctions(profiles), report.period_ns)
	break
}
case 'perf': {
	const profiles = JSON.parse(text())
	const names = new Set(profiles.flatMap(profile => Object.keys(profile.functions)))
	for (const name of Object.keys(expected))
		assert.ok(names.has(name.replaceAll(';', '\\x3b').replace(/ \(inlined\)$/, '')), `${name} is there`)
	assert.equal(names.size, Object.keys(expected).length)
	break
}
case 'firefox': {
	const profile = JSON.parse(text())
	const self = {}
	let ticks = 0
	for (const thread of profile.threads) {
		const {samples, stackTable, frameTable, funcTable, stringArray} = thread
		for (const table of [samples, stackTable, frameTable, funcTable])
			for (const column of Object.values(table))
				if (Array.isArray(column))
					assert.equal(column.length, table.length)
		stackTable.prefix.forEach((prefix, index) => assert.ok(prefix === null || prefix < index))
		samples.stack.forEach((stack, index) => {
			const name = stringArray[funcTable.name[frameTable.func[stackTable.frame[stack]]]]
			self[name] = (self[name] ?? 0) + samples.weight[index]
			ticks += samples.weight[index]
		})
		samples.time.forEach((time, index) => assert.ok(!index || time >= samples.time[index - 1]))
	}
	assert.equal(ticks, report.running)
	assertSelf(self, 1)
	// The last thread has the markers.
	const {markers, stringArray} = profile.threads.at(-1), found = [], states = {}
	for (const column of Object.values(markers))
		if (Array.isArray(column)) assert.equal(column.length, markers.length)
	markers.data.forEach((data, index) => {
		if (data.type === 'console') {
			assert.equal(stringArray[markers.name[index]], 'console')
			found.push([markers.startTime[index], data.text])
			return
		}
		assert.match(stringArray[markers.name[index]], /^vCPU \d+$/)
		assert.ok(markers.endTime[index] >= markers.startTime[index])
		add(states, data.state, data.ticks)
	})
	const lines = linesOf(moreFile)
	assert.deepEqual(states, statesOf(lines))
	assert.deepEqual(found, consoleOf(lines).map(([time, text]) => [(time - lines[0].first_ns) / 1e6, text]))
	break
}
case 'pprof-top': {
	const found = {}
	for (const line of text().split('\n')) {
		const row = line.match(/^ *(\d+) +[\d.]+% +[\d.]+% +(\d+) +[\d.]+% +(.*)$/)
		if (row)
			found[row[3].replace(/ \(inline\)$/, '')] = {self: +row[1], total: +row[2]}
	}
	for (const [shown, row] of Object.entries(expected)) {
		const name = shown.replace(/ \(inlined\)$/, '')
		// What looks like the parameters of a template is left out there.
		assert.deepEqual(found[name] ?? found[name.replace(/<.*>$/, '')], row, name)
	}
	assert.equal(Object.keys(found).length, Object.keys(expected).length)
	break
}
case 'places':
	assertSelf(...placesOf[moreFile]())
	break
default:
	throw new Error(`nothing is known of ${what}`)
}
