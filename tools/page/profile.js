"use strict";
/* The samples of a page: unpacking, and views of them. The form of the data is described in
 * export/page_json.c. Nothing here touches the document. */

const KIND_KERNEL = 0, KIND_USER = 1, KIND_IDLE = 2, KIND_OTHER = 3;
const KIND_NAMES = ["kernel", "user", "idle", ""];
/* By enum frame_kind: kernel, module, boot, user, process, thread, vCPU, mode, group. */
const KIND_OF_FRAME = [0, 0, 0, 1, 3, 3, 3, 2, 3];
const MODE_IN_VMM = 4;
const MODE_NAMES = ["unknown", "guest user", "guest kernel", "halted", "in VMM", "not started"];
const END_NAMES = ["unknown", "root", "depth limit", "not present", "bad pointer", "outside memory",
	"no rule", "not walked"];
const NO_NAME = -1;
/* Groups of a split view beyond these are one group. */
const GROUPS_MAX = 40;

/* Numbers packed as in LEB128, in base64. Multiplied and not shifted: they may have 53 bits. */
class Packed {
	constructor(text) {
		const binary = atob(text);
		this.bytes = new Uint8Array(binary.length);
		for (let i = 0; i < binary.length; i++)
			this.bytes[i] = binary.charCodeAt(i);
		this.at = 0;
	}
	next() {
		let byte = this.bytes[this.at++];
		if (byte < 128)
			return byte;
		let number = byte & 127, scale = 128;
		do {
			byte = this.bytes[this.at++];
			number += (byte & 127) * scale;
			scale *= 128;
		} while (byte >= 128);
		return number;
	}
}

/* Everything that the trace says. Nodes are call paths, depth first: the nodes below `node` are those
 * from node + 1 up to, not including, end[node]. Node 0 is the root. */
class Profile {
	constructor(data) {
		this.files = data.files;
		this.rareNodes = data.rareNodes;
		this.rareTicks = data.rareTicks;
		this.names = data.names;
		this.kinds = Uint8Array.from(data.kinds, (digit) => KIND_OF_FRAME[digit]);
		this.modules = Uint8Array.from(data.kinds, (digit) => digit === "1" ? 1 : 0);
		this.ids = new Map(data.ids);
		this.readNodes(data);
		this.readContexts(data);
		this.readCells(data);
	}
	readNodes(data) {
		const packed = new Packed(data.nodes), count = data.nodeCount, path = [0];
		this.nodeCount = count;
		this.parent = new Uint32Array(count);
		this.name = new Uint32Array(count);
		this.end = new Uint32Array(count).fill(count);
		for (let node = 1; node < count; node++) {
			for (let leave = packed.next(); leave > 0; leave--)
				this.end[path.pop()] = node;
			this.parent[node] = path[path.length - 1];
			this.name[node] = packed.next();
			path.push(node);
		}
	}
	readContexts(data) {
		const packed = new Packed(data.contexts), count = data.contextCount;
		this.contexts = [];
		for (let i = 0; i < count; i++)
			this.contexts.push({file: packed.next(), vcpu: packed.next(),
				process: packed.next(), thread: packed.next(), mode: packed.next()});
	}
	readCells(data) {
		const packed = new Packed(data.cells), count = data.cellCount;
		this.cellCount = count;
		this.cellNode = new Uint32Array(count);
		this.cellContext = new Uint32Array(count);
		this.cellTicks = new Float64Array(count);
		let node = 0;
		for (let i = 0; i < count; i++) {
			node += packed.next();
			this.cellNode[i] = node;
			this.cellContext[i] = packed.next();
			this.cellTicks[i] = packed.next();
		}
	}
	isIdle(cell) {
		return this.kinds[this.name[this.cellNode[cell]]] === KIND_IDLE;
	}
	/* What a person calls the process or the thread of a context. */
	processLabel(context) {
		return this.ownerLabel(context.process);
	}
	threadLabel(context) {
		return this.ownerLabel(context.thread);
	}
	ownerLabel(number) {
		const id = this.ids.get(number);
		return id === undefined ? this.names[number] : `${this.names[number]} (${id})`;
	}
	/* Names matched by what a person typed: a part of the name in any case, or /a pattern/. Null:
	 * nothing was typed, or the pattern is not finished. */
	match(text) {
		let matches;
		if (!text)
			return null;
		if (text.length > 2 && text[0] === "/" && text.endsWith("/")) {
			try {
				const pattern = new RegExp(text.slice(1, -1));
				matches = (name) => pattern.test(name);
			} catch {
				return null;
			}
		} else {
			const wanted = text.toLowerCase();
			matches = (name) => name.toLowerCase().includes(wanted);
		}
		return Uint8Array.from(this.names, (name) => matches(name) ? 1 : 0);
	}
}

/* Cells, by node, with sums over any range of nodes. */
class Group {
	constructor(profile, label, cells, ticks) {
		this.label = label;
		this.nodes = new Uint32Array(cells.length);
		this.sums = new Float64Array(cells.length + 1);
		this.vmmSums = new Float64Array(cells.length + 1);
		this.baseSums = new Float64Array(cells.length + 1);
		for (let i = 0; i < cells.length; i++) {
			const cell = cells[i], context = profile.contexts[profile.cellContext[cell]];
			const base = context.file > 0;
			this.nodes[i] = profile.cellNode[cell];
			this.sums[i + 1] = this.sums[i] + (base ? 0 : ticks[cell]);
			this.vmmSums[i + 1] = this.vmmSums[i] +
				(!base && context.mode === MODE_IN_VMM ? ticks[cell] : 0);
			this.baseSums[i + 1] = this.baseSums[i] + (base ? ticks[cell] : 0);
		}
	}
	/* The first cell whose node is not below `node`. */
	first(node) {
		let low = 0, high = this.nodes.length;
		while (low < high) {
			const middle = (low + high) >> 1;
			if (this.nodes[middle] < node)
				low = middle + 1;
			else
				high = middle;
		}
		return low;
	}
	get total() {
		return this.sums[this.nodes.length];
	}
	get baseTotal() {
		return this.baseSums[this.nodes.length];
	}
}

/* A frame of the picture. Its children are made when they are first looked at. */
class Frame {
	constructor(view, parent, name, label, kind) {
		this.view = view;
		this.parent = parent;
		this.name = name; /* number, or NO_NAME for the root and for groups */
		this.label = label;
		this.kind = kind;
		this.depth = parent ? parent.depth + 1 : 0;
		this.total = 0;
		this.self = 0;
		this.vmm = 0;
		this.base = 0;
		this.key = String(name);
		this.start = 0; /* ticks to its left, in the whole picture */
		this.made = null;
	}
	get children() {
		if (!this.made) {
			this.made = this.view.makeChildren(this);
			this.made.sort((a, b) => b.total - a.total || a.name - b.name);
			let start = this.start;
			for (const child of this.made) {
				child.start = start;
				start += child.total;
			}
		}
		return this.made;
	}
}

/* Samples that pass a filter, as a tree of frames. `options`:
 *   ticks     per cell; default: all of the trace
 *   vcpu      number, or null for all
 *   process   label, or null for all
 *   idle      true: also vCPUs that are halted, not started, or without a stack
 *   callers   true: from the functions in which time was spent up to who called them
 *   split     "", "process", "thread" or "vcpu": one tree for each
 */
class View {
	constructor(profile, options) {
		this.profile = profile;
		this.options = options;
		this.ticks = options.ticks || profile.cellTicks;
		this.choose();
		this.root = new Frame(this, null, NO_NAME, "all", KIND_OTHER);
		this.root.key = "";
		this.root.total = this.all.total;
		this.root.base = this.all.baseTotal;
		this.root.vmm = this.all.vmmSums[this.all.nodes.length];
		this.root.node = 0;
		this.root.group = this.all;
		if (options.callers)
			this.root.entries = this.leaves(this.all);
	}
	choose() {
		const {profile, options} = this, groups = new Map(), all = [];
		const accepted = profile.contexts.map((context) =>
			(options.vcpu === null || context.vcpu === options.vcpu) &&
			(options.process === null || profile.processLabel(context) === options.process));
		const labels = options.split ? profile.contexts.map((context) => this.label(context)) : [];
		this.hidden = 0; /* idle ticks that are not shown */
		for (let cell = 0; cell < profile.cellCount; cell++) {
			const context = profile.cellContext[cell];
			if (!accepted[context] || !this.ticks[cell])
				continue;
			if (!options.idle && profile.isIdle(cell)) {
				if (!profile.contexts[context].file)
					this.hidden += this.ticks[cell];
				continue;
			}
			all.push(cell);
			if (options.split) {
				const label = labels[context], cells = groups.get(label);
				if (cells)
					cells.push(cell);
				else
					groups.set(label, [cell]);
			}
		}
		this.all = new Group(profile, "all", all, this.ticks);
		this.groups = null;
		if (options.split)
			this.makeGroups(groups);
	}
	label(context) {
		switch (this.options.split) {
		case "vcpu": return `vCPU ${context.vcpu}`;
		case "thread": return `${this.profile.processLabel(context)}: ` +
			this.profile.threadLabel(context);
		default: return this.profile.processLabel(context);
		}
	}
	makeGroups(byLabel) {
		let groups = [...byLabel].map(([label, cells]) => ({label, cells,
			total: cells.reduce((sum, cell) => sum + this.ticks[cell], 0)}));
		groups.sort((a, b) => b.total - a.total);
		if (groups.length > GROUPS_MAX) {
			const others = groups.slice(GROUPS_MAX - 1);
			const cells = others.flatMap((group) => group.cells).sort((a, b) => a - b);
			groups = groups.slice(0, GROUPS_MAX - 1);
			groups.push({label: `${others.length} others`, cells});
		}
		this.groups = groups.map(({label, cells}) =>
			new Group(this.profile, label, cells, this.ticks));
	}
	makeChildren(frame) {
		if (frame === this.root && this.groups)
			return this.groupFrames();
		return this.options.callers ? this.callerFrames(frame) : this.calleeFrames(frame);
	}
	groupFrames() {
		return this.groups.map((group, index) => {
			const frame = new Frame(this, this.root, NO_NAME, group.label, KIND_OTHER);
			frame.key = `g${index}`;
			frame.total = group.total;
			frame.base = group.baseTotal;
			frame.vmm = group.vmmSums[group.nodes.length];
			frame.node = 0;
			frame.group = group;
			if (this.options.callers)
				frame.entries = this.leaves(group);
			return frame;
		}).filter((frame) => frame.total > 0);
	}
	newFrame(parent, name) {
		return new Frame(this, parent, name, this.profile.names[name], this.profile.kinds[name]);
	}
	calleeFrames(frame) {
		const {profile} = this, {group} = frame, frames = [];
		const end = profile.end[frame.node];
		for (let node = frame.node + 1; node < end; node = profile.end[node]) {
			const from = group.first(node), to = group.first(profile.end[node]);
			const total = group.sums[to] - group.sums[from];
			if (!total)
				continue;
			const own = group.first(node + 1), child = this.newFrame(frame, profile.name[node]);
			child.total = total;
			child.self = group.sums[own] - group.sums[from];
			child.vmm = group.vmmSums[to] - group.vmmSums[from];
			child.base = group.baseSums[to] - group.baseSums[from];
			child.node = node;
			child.group = group;
			frames.push(child);
		}
		return frames;
	}
	/* The ends of all stacks. Entry i stands for ticks[i] samples, and goes on at node at[i]. */
	leaves(group) {
		const count = group.nodes.length, differences = (sums) => {
			const values = new Float64Array(count);
			for (let i = 0; i < count; i++)
				values[i] = sums[i + 1] - sums[i];
			return values;
		};
		return {at: group.nodes, ticks: differences(group.sums), vmm: differences(group.vmmSums),
			base: differences(group.baseSums)};
	}
	callerFrames(frame) {
		const {profile} = this, {entries} = frame, counts = new Map(), frames = [];
		for (const node of entries.at)
			if (node)
				counts.set(profile.name[node], (counts.get(profile.name[node]) || 0) + 1);
		const makings = new Map();
		for (const [name, count] of counts)
			makings.set(name, {used: 0, at: new Uint32Array(count),
				ticks: new Float64Array(count), vmm: new Float64Array(count),
				base: new Float64Array(count)});
		for (let i = 0; i < entries.at.length; i++) {
			const node = entries.at[i];
			if (!node)
				continue;
			const making = makings.get(profile.name[node]), slot = making.used++;
			making.at[slot] = profile.parent[node];
			making.ticks[slot] = entries.ticks[i];
			making.vmm[slot] = entries.vmm[i];
			making.base[slot] = entries.base[i];
		}
		const sum = (values) => values.reduce((a, b) => a + b, 0);
		const first = !frame.parent || frame.name === NO_NAME;
		for (const [name, making] of makings) {
			const child = this.newFrame(frame, name);
			child.total = sum(making.ticks);
			if (!child.total)
				continue;
			child.self = first ? child.total : 0;
			child.vmm = sum(making.vmm);
			child.base = sum(making.base);
			child.entries = making;
			frames.push(child);
		}
		return frames;
	}
	/* Ticks of each node and those below it. */
	nodeTotals(sums) {
		const {profile, all} = this, totals = new Float64Array(profile.nodeCount);
		for (let i = 0; i < all.nodes.length; i++)
			totals[all.nodes[i]] += sums[i + 1] - sums[i];
		for (let node = profile.nodeCount - 1; node > 0; node--)
			totals[profile.parent[node]] += totals[node];
		return totals;
	}
	/* Ticks with a matched function anywhere on the stack. */
	matchedTicks(matched) {
		const {profile} = this, totals = this.nodeTotals(this.all.sums);
		let sum = 0;
		for (let node = 1; node < profile.nodeCount;) {
			if (matched[profile.name[node]]) {
				sum += totals[node];
				node = profile.end[node];
			} else {
				node++;
			}
		}
		return sum;
	}
	/* Per function: ticks in it, and ticks with it on the stack; one that calls itself counts once.
	 * The hottest first. */
	functions() {
		const {profile, all} = this, count = profile.names.length;
		const onPath = new Uint32Array(count), path = [];
		const rows = profile.names.map((name, number) => ({number, name,
			kind: profile.kinds[number], self: 0, total: 0, base: 0, baseTotal: 0}));
		const totals = this.nodeTotals(all.sums), baseTotals = this.nodeTotals(all.baseSums);
		for (let node = 1; node < profile.nodeCount; node++) {
			const name = profile.name[node];
			while (path.length && profile.end[path[path.length - 1]] <= node)
				onPath[profile.name[path.pop()]]--;
			if (!onPath[name]) {
				rows[name].total += totals[node];
				rows[name].baseTotal += baseTotals[node];
			}
			onPath[name]++;
			path.push(node);
		}
		for (let i = 0; i < all.nodes.length; i++) {
			const row = rows[profile.name[all.nodes[i]]];
			row.self += all.sums[i + 1] - all.sums[i];
			row.base += all.baseSums[i + 1] - all.baseSums[i];
		}
		return rows.filter((row) => row.total || row.baseTotal)
			.sort((a, b) => b.self - a.self || b.total - a.total);
	}
}

function percent(part, whole) {
	return `${(whole ? 100 * part / whole : 0).toFixed(2)} %`;
}

function count(number) {
	return Math.round(number).toLocaleString("en-US");
}

function seconds(ns) {
	return `${(ns / 1e9).toFixed(3)} s`;
}
