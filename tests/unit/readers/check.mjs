// Checks what guestprof exports against what it reports of the same samples:
//
//   node check.mjs WHAT REPORT EXPORT [MORE]
//
// REPORT is the output of `guestprof report -n 0 --json`. WHAT is: json (the lines), fuchsia (the
// file, decoded here from docs/trace-format.md), speedscope or pprof (EXPORT is what readers/speedscope.mjs
// printed), perfetto (the file, decoded here), perf (likewise; names and threads only, as that reader takes times, not periods), firefox
// (the file, unzipped), or pprof-top (what `go tool pprof -top` printed). Prints nothing when all is
// well.
import fs from 'node:fs'
import assert from 'node:assert/strict'

const [what, reportFile, exportFile] = process.argv.slice(2)
const report = JSON.parse(fs.readFileSync(reportFile, 'utf8'))
const text = () => fs.readFileSync(exportFile, 'utf8')

// Functions of one name in kernel and program are rows of their own.
const expected = {}
for (const row of report.rows) {
	expected[row.name] ??= {self: 0, total: 0}
	expected[row.name].self += row.self
	expected[row.name].total += row.total
}
assert.ok(Object.keys(expected).length > 5)

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
	let count = 0, lost = 0n, names = 0, last = 0n
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
			lost++
		} else if (type === 7n) {
			names++
		}
		at += size
	}
	return {count, lost, names}
}

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

switch (what) {
case 'json': {
	const lines = text().trimEnd().split('\n').map(line => JSON.parse(line))
	assert.equal(lines[0].type, 'trace')
	const end = lines.at(-1)
	assert.deepEqual([end.type, end.ticks, end.running], ['end', report.ticks, report.running])
	const self = {}
	let ticks = 0, lost = 0, last = 0
	for (const line of lines.slice(1, -1)) {
		assert.ok(line.time_ns >= last, 'in order of time')
		last = line.time_ns
		if (line.type === 'lost') {
			lost += line.ticks
			continue
		}
		assert.equal(line.type, 'sample')
		ticks += line.ticks
		if (line.stack)
			self[line.stack[0].name] = (self[line.stack[0].name] ?? 0) + line.ticks
	}
	assert.equal(ticks, report.ticks)
	assert.equal(lost, report.dropped)
	assertSelf(self, 1)
	break
}
case 'fuchsia': {
	const found = backtraces(fs.readFileSync(exportFile))
	assert.equal(found.count, report.running)
	assert.equal(found.lost > 0, report.dropped > 0)
	assert.ok(found.names >= 4)
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
		assert.ok(names.has(name.replaceAll(';', '\\x3b')), `${name} is there`)
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
	break
}
case 'pprof-top': {
	const found = {}
	for (const line of text().split('\n')) {
		const row = line.match(/^ *(\d+) +[\d.]+% +[\d.]+% +(\d+) +[\d.]+% +(.*)$/)
		if (row)
			found[row[3].replace(/ \(inline\)$/, '')] = {self: +row[1], total: +row[2]}
	}
	for (const [name, row] of Object.entries(expected))
		// What looks like the parameters of a template is left out there.
		assert.deepEqual(found[name] ?? found[name.replace(/<.*>$/, '')], row, name)
	assert.equal(Object.keys(found).length, Object.keys(expected).length)
	break
}
default:
	throw new Error(`nothing is known of ${what}`)
}
