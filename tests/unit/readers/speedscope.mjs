// Reads profiles with speedscope's own importers and prints what they found, as JSON: for each profile
// its name, unit, total weight, and functions and places in the source by self weight.
//
//   node speedscope.mjs DIRECTORY-OF-THE-NPM-PACKAGE FILE
//
// The package is a page for browsers. Its script is run here up to where the importers are there and the
// page would be drawn; what it touches of a browser until then is a stand-in.
import fs from 'node:fs'
import path from 'node:path'
import vm from 'node:vm'

const [directory, file] = process.argv.slice(2)
const release = path.join(directory, 'dist/release')
const bundle = fs.readdirSync(release).find(name => /^speedscope-.*\.js$/.test(name))
const source = fs.readFileSync(path.join(release, bundle), 'utf8')
const exported = source.match(/([\w$]+)=\{\};[\w$]+\(\1,\{[^}]*importProfileGroupFromText:/)[1]
const start = new RegExp(`var [\\w$]+=Promise\\.resolve\\(\\)\\.then\\(\\(\\)=>\\(([\\w$]+)\\(\\),${exported.replace('$', '\\$')}\\)\\)`)
const place = source.match(start)
if (!place) throw new Error('the importers are not where this version of the reader looks for them')
const cut = source.slice(0, place.index) +
	`;globalThis.importers=(${place[1]}(),${exported});throw globalThis.enough;` +
	source.slice(place.index)

const enough = new Error('enough')
const anything = () => new Proxy(function () {}, {
	// A library looks for another one there.
	get: (target, key) => key === 'dcodeIO' || key === 'Long' ? undefined : key === Symbol.toPrimitive ? () => '' : key === 'prototype' ? target.prototype : anything(),
	apply: () => anything(),
	construct: () => anything(),
	set: () => true,
})
const context = {
	enough, console, TextDecoder, TextEncoder, URL, setTimeout, clearTimeout, performance, atob, btoa,
	window: anything(), document: anything(), navigator: {userAgent: '', platform: ''},
	location: {hash: '', protocol: 'file:', search: ''}, localStorage: anything(), HTMLElement: class {},
	requestAnimationFrame: () => 0, matchMedia: () => anything(), Uint8Array, ArrayBuffer, DataView,
	DecompressionStream, Response, Blob, ReadableStream,
}
context.globalThis = context.self = context
vm.createContext(context)
try {
	vm.runInContext(cut, context)
} catch (error) {
	if (error !== enough) throw error
}

const bytes = fs.readFileSync(file)
const group = await context.importers.importProfilesFromArrayBuffer(
	path.basename(file), bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length))
if (!group) throw new Error(`speedscope does not know what ${file} is`)
const profiles = group.profiles.map(profile => {
	const functions = {}, places = {}
	profile.forEachFrame(frame => {
		functions[frame.name] = {
			self: (functions[frame.name]?.self ?? 0) + frame.getSelfWeight(),
			total: (functions[frame.name]?.total ?? 0) + frame.getTotalWeight(),
		}
		const place = `${frame.file}:${frame.line}`
		places[place] = (places[place] ?? 0) + frame.getSelfWeight()
	})
	return {name: profile.getName(), unit: profile.getWeightUnit(), weight: profile.getTotalNonIdleWeight(), functions, places}
})
console.log(JSON.stringify(profiles))
