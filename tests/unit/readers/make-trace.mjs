// Makes a trace of a small kernel whose file is on this machine, so that its functions have places in the
// source, with lines on its console:
//
//   nm -S FILE | node make-trace.mjs TRACE FUNCTION... [-- CALLER]
//
// Every byte of the FUNCTIONs is sampled once, called from the end of CALLER. The kernel is not where its file
// says. Written from docs/trace-format.md with no code of the project's, so that it checks the reader as well.
import fs from 'node:fs'

const [file, ...words] = process.argv.slice(2)
const functions = words.slice(0, words.indexOf('--')), [caller] = words.slice(words.indexOf('--') + 1)
const TEXT = 0xffffffff82000000n, PERIOD = 1_000_000n, BEGIN = 1_000_000_000n, SESSION = 0x40000000n
const symbols = new Map()
for (const line of fs.readFileSync(0, 'utf8').split('\n')) {
	const found = line.match(/^([0-9a-f]+) ([0-9a-f]+) [Tt] (\S+)$/)
	if (found) symbols.set(found[3], {start: BigInt(`0x${found[1]}`), size: BigInt(`0x${found[2]}`)})
}
const slide = TEXT - symbols.get('_text').start

const parts = []
const numbers = (...values) => {
	const bytes = Buffer.alloc(values.length * 8)
	values.forEach((value, index) => bytes.writeBigUInt64LE(BigInt.asUintN(64, BigInt(value)), index * 8))
	return bytes
}
const padded = text => {
	const bytes = Buffer.from(text, 'latin1')
	return Buffer.concat([bytes, Buffer.alloc(-bytes.length & 7)])
}
const reference = text => text.length ? BigInt(0x8000 | text.length) : 0n
const record = (type, bits, ...body) => {
	const bytes = Buffer.concat(body)
	parts.push(numbers(BigInt(type) | BigInt(1 + bytes.length / 8) << 4n | bits), bytes)
}
const argument = (name, value) => {
	const head = typeof value === 'string' ? 6n | reference(value) << 32n : 4n
	const body = Buffer.concat([padded(name), typeof value === 'string' ? padded(value) : numbers(value)])
	return Buffer.concat([numbers(head | BigInt(1 + body.length / 8) << 4n | reference(name) << 16n), body])
}
const event = (time, name, values) => record(4,
	BigInt(Object.keys(values).length) << 20n | reference('guestprof') << 32n | reference(name) << 48n,
	numbers(time, SESSION, SESSION), padded('guestprof'), padded(name),
	...Object.entries(values).map(([key, value]) => argument(key, value)))
const blob = (type, name, payload) => record(5,
	reference(name) << 16n | BigInt(payload.length) << 32n | BigInt(type) << 48n, padded(name), payload)
const log = (time, text) => record(9, BigInt(text.length) << 16n, numbers(time, SESSION, SESSION), padded(text))
const sample = (time, stack) => blob(4, 'guestprof.sample',
	numbers(0x10 | 0x20 | 0x40 | 0x80 | 0x100, time, stack.length, ...stack, 0, 2, 1))

parts.push(numbers(0x0016547846040010n))
record(0, 1n << 16n | 1n << 20n | 9n << 52n, padded('guestprof'))
record(1, 0n, numbers(1_000_000_000))
event(1, 'session', {version: '0.1.0', period_ns: PERIOD, depth: 64, vcpus: 1, wall_clock_ns: 1_700_000_000_000_000_000n})
let time = BEGIN
log(BEGIN - 500n, 'Linux version 6.1.0')
for (const name of functions) {
	const {start, size} = symbols.get(name), end = symbols.get(caller)
	// Of the caller the return address: behind its call, which is its last instruction but a jump.
	for (let at = start; at < start + size; at++, time += PERIOD)
		sample(time, [at + slide, end.start + end.size - 1n + slide])
	log(time - 1n, `[    1.000000] ${name}: "done"\x1b[0m \xe4`)
}
log(time + PERIOD, 'the end')
blob(1, 'guestprof.symbols', Buffer.concat([...symbols].map(([name, {start, size}]) => Buffer.concat([
	numbers(start + slide, size, BigInt(name.length) << 32n), padded(name)]))))
event(time, 'guest', {banner: 'Linux version 6.1.0 (gcc)', text_base: TEXT, build_id: ''})
event(time, 'session_end', {reason: 'powered off'})
fs.writeFileSync(file, Buffer.concat(parts))
