// Opens a trace with Perfetto's own trace processor, the program behind ui.perfetto.dev, and answers
// questions in SQL:
//
//   node trace_processor.mjs DIRECTORY TRACE NAME=SQL...
//
// Prints one JSON object: for each NAME its rows, each an object by column. DIRECTORY has the program as it
// is built for browsers, trace_processor.wasm and engine_bundle.node.js. It runs here as in a browser's worker;
// what it touches of a browser is a stand-in, and it is spoken to as the page does: messages of
// protos/perfetto/trace_processor/trace_processor.proto, each behind its length, on a port.
import fs from 'node:fs'
import path from 'node:path'
import vm from 'node:vm'

const [directory, file, ...questions] = process.argv.slice(2)

// What reads a file in a browser's worker.
class Request {
	open(method, name) { this.name = name }
	send() { this.response = new Uint8Array(fs.readFileSync(path.join(directory, path.basename(this.name)))).buffer }
}
const said = []
const worker = {
	console: {log() {}, warn: text => said.push(text), error: text => said.push(text)},
	location: {href: 'file:///worker.js'}, WorkerGlobalScope: class {}, importScripts() {}, XMLHttpRequest: Request,
	URL, TextDecoder, TextEncoder, performance, setTimeout, clearTimeout, crypto,
}
worker.self = worker.globalThis = worker
vm.createContext(worker)
// It asks whether memory can have addresses of 64 bits, by a module of 23 bytes. The program for that is
// another file.
vm.runInContext(`WebAssembly.Module = class extends WebAssembly.Module {
	constructor(bytes) {
		if (bytes.length === 23) throw new Error('32 bits')
		super(bytes)
	}
}`, worker)
vm.runInContext(fs.readFileSync(path.join(directory, 'engine_bundle.node.js'), 'utf8'), worker)
// Its arrays are not ours.
const toWorker = vm.runInContext('bytes => new Uint8Array(bytes)', worker)
let answers = []
const port = {postMessage: bytes => answers.push(Buffer.from(bytes))}
worker.onmessage({data: port})
// The port's handler comes with the message, the program is ready some turns later.
await new Promise(resolve => setTimeout(resolve, 0))

// Messages. Numbers below 2^28 are enough for what is sent.
const varint = number => {
	const bytes = []
	for (; number > 127; number = Math.floor(number / 128)) bytes.push(number % 128 | 128)
	return Buffer.from([...bytes, number])
}
const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)])
const bytes = (field, value) => Buffer.concat([varint(field * 8 + 2), varint(value.length), value])

function* fields(message) {
	let at = 0
	const read = () => {
		let value = 0n
		for (let shift = 0n;; shift += 7n) {
			const byte = message[at++]
			if (byte === undefined) throw new Error('a message is cut')
			value |= BigInt(byte & 127) << shift
			if (byte < 128) return value
		}
	}
	while (at < message.length) {
		const tag = Number(read())
		if ((tag & 7) === 0) {
			yield [tag >> 3, read()]
		} else {
			const size = (tag & 7) === 2 ? Number(read()) : (tag & 7) === 1 ? 8 : 4
			yield [tag >> 3, message.subarray(at, at += size)]
		}
	}
}
function* packed(message) {
	for (let at = 0; at < message.length; at++) {
		let value = 0n
		for (let shift = 0n;; shift += 7n, at++) {
			value |= BigInt(message[at] & 127) << shift
			if (message[at] < 128) break
		}
		yield value
	}
}

const METHOD = {append: 1, finish: 2, query: 3}
let sequence = 0
// The answers to a request, of which a query may have several, as lists of fields.
function call(method, ...args) {
	const message = Buffer.concat([number(1, sequence++), number(2, method), ...args])
	answers = []
	port.onmessage({data: toWorker(bytes(1, message))})
	return answers.flatMap(answer => [...fields(answer)]).map(([, message]) => {
		const found = [...fields(message)]
		const fatal = found.find(([field]) => field === 5)
		if (fatal) throw new Error(`trace processor: ${fatal[1]}\n${said.join('\n')}`)
		return found
	})
}

const CELL = {null: 1n, number: 2n, float: 3n, string: 4n, blob: 5n}
function addBatch(batch, cells) {
	let kinds = [], numbers = [], floats = [], strings = []
	for (const [field, value] of fields(batch)) {
		if (field === 1) kinds = [...packed(value)]
		else if (field === 2) numbers = [...packed(value)]
		else if (field === 3) floats = Array.from({length: value.length / 8}, (_, at) => value.readDoubleLE(at * 8))
		else if (field === 5) strings = value.toString('utf8').split('\0')
	}
	for (const kind of kinds) {
		if (kind === CELL.null) cells.push(null)
		else if (kind === CELL.number) cells.push(Number(BigInt.asIntN(64, numbers.shift())))
		else if (kind === CELL.float) cells.push(floats.shift())
		else if (kind === CELL.string) cells.push(strings.shift())
		else throw new Error(`a cell of kind ${kind}`)
	}
}
function query(sql) {
	const names = [], cells = []
	for (const answer of call(METHOD.query, bytes(103, bytes(1, Buffer.from(sql)))))
		for (const [field, result] of answer) {
			if (field !== 203) continue
			for (const [part, value] of fields(result)) {
				if (part === 1) names.push(value.toString())
				else if (part === 2 && value.length) throw new Error(`${value}\n${sql}`)
				else if (part === 3) addBatch(value, cells)
			}
		}
	const rows = []
	for (let at = 0; at < cells.length; at += names.length)
		rows.push(Object.fromEntries(names.map((name, index) => [name, cells[at + index]])))
	return rows
}

const trace = fs.readFileSync(file)
for (let at = 0; at < trace.length; at += 1 << 20)
	for (const answer of call(METHOD.append, bytes(101, trace.subarray(at, at + (1 << 20)))))
		for (const [field, result] of answer)
			if (field === 201)
				for (const [part, value] of fields(result))
					if (part === 2 && value.length) throw new Error(`trace processor: ${value}`)
call(METHOD.finish)
const found = {}
for (const question of questions) {
	const [name] = question.split('=', 1)
	found[name] = query(question.slice(name.length + 1))
}
console.log(JSON.stringify(found))
