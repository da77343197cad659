/* The timeline: a lane for each vCPU. A sample stands for the time since its tick before; what has
 * no samples is left empty. */

const LANE = 44, AXIS = 24, MARK_ROW = 14, LANE_LABEL = 74;
const GUEST_MODES = [[1, "user"], [2, "kernel"], [4, "in VMM"], [3, "halted"], [5, "not started"],
	[0, "unknown"]];
/* The narrowest window, in periods. */
const LEAST_PERIODS = 4;

/* The samples of one vCPU, by time. Each covers from[i] to to[i], and none reaches back over the one
 * before it. */
class Lane {
	constructor(data, periodUnits) {
		const packed = new Packed(data.data), size = data.count;
		this.vcpu = data.vcpu;
		this.from = new Float64Array(size);
		this.to = new Float64Array(size);
		this.cell = new Uint32Array(size);
		this.ticks = new Float64Array(size);
		let time = 0, end = -Infinity;
		for (let i = 0; i < size; i++) {
			const step = packed.next(), many = step % 2;
			time += (step - many) / 2;
			this.cell[i] = packed.next();
			this.ticks[i] = many ? packed.next() : 1;
			let begin = time - this.ticks[i] * periodUnits;
			/* Ticks are not on the dot: a gap of less than a period is none. */
			if (begin < end + periodUnits)
				begin = end;
			this.from[i] = begin;
			this.to[i] = time;
			end = time;
		}
	}
	/* The first sample that was taken at `time` or later. */
	first(time) {
		let low = 0, high = this.to.length;
		while (low < high) {
			const middle = (low + high) >> 1;
			if (this.to[middle] < time)
				low = middle + 1;
			else
				high = middle;
		}
		return low;
	}
}

class Timeline {
	constructor(profile, data, explorer) {
		this.profile = profile;
		this.explorer = explorer;
		this.unit = data.unitNs;
		const file = profile.files[0];
		this.periodUnits = Math.max(1, file.periodNs / this.unit);
		this.end = Math.max(1, file.durationNs / this.unit);
		this.lanes = data.lanes.map((lane) => new Lane(lane, this.periodUnits));
		this.drops = data.drops;
		this.window = [0, this.end];
		this.dragging = null;
		this.box = element("lanes");
		this.canvas = this.box.querySelector("canvas");
		this.spacer = this.box.querySelector(".spacer");
		this.context = this.canvas.getContext("2d");
		this.console = new Console(this, data);
		this.head = AXIS + (data.marks.length ? MARK_ROW : 0);
		this.numberProcesses();
		this.listen();
		explorer.onState = (state) => this.take(state);
	}
	/* Processes by how much they ran; a colour for each, by the golden angle, so that the first ones are far
	 * apart. */
	numberProcesses() {
		const {profile} = this, ticks = new Map();
		this.labels = profile.contexts.map((context) => profile.processLabel(context));
		for (let cell = 0; cell < profile.cellCount; cell++)
			if (!profile.isIdle(cell)) {
				const label = this.labels[profile.cellContext[cell]];
				ticks.set(label, (ticks.get(label) || 0) + profile.cellTicks[cell]);
			}
		const order = [...ticks].sort((a, b) => b[1] - a[1]).map(([label]) => label);
		const number = new Map(order.map((label, index) => [label, index]));
		this.processes = order;
		this.known = order.map((label) => label !== "[no process known]");
		this.processOf = this.labels.map((label) => number.get(label) ?? -1);
		this.idleCell = Uint8Array.from({length: profile.cellCount},
			(_, cell) => profile.isIdle(cell) ? 1 : 0);
	}
	processColour(process) {
		if (!this.known[process])
			return darkScheme.matches ? "hsl(220 8% 48%)" : "hsl(220 10% 62%)";
		const hue = (process * 137.508 + 150) % 360;
		return darkScheme.matches ? `hsl(${hue} 48% ${48 + process % 3 * 5}%)`
			: `hsl(${hue} 58% ${50 + process % 3 * 6}%)`;
	}
	modeColour(mode) {
		const palette = colours(), shift = darkScheme.matches ? 14 : -10;
		switch (mode) {
		case 1: return hsl(palette.kinds[KIND_USER], shift);
		case 2: return hsl(palette.kinds[KIND_KERNEL], shift);
		case 4: return hsl(palette.vmm, shift);
		default: return hsl(palette.kinds[KIND_IDLE], 0);
		}
	}
	/* The address holds the window in nanoseconds. */
	take(state) {
		const [from, to] = (state.t || "").split("-").map(Number);
		this.window = from >= 0 && to > from ? this.clamp([from / this.unit, to / this.unit])
			: [0, this.end];
		this.explorer.ticks = state.t ? this.ticksInWindow() : null;
		const [begin, end] = this.window.map((time) => time * this.unit);
		element("window").textContent = `${seconds(begin)} – ${seconds(end)}`;
		element("from").value = (begin / 1e9).toFixed(6);
		element("to").value = (end / 1e9).toFixed(6);
		element("whole").disabled = !state.t;
		this.console.take(state);
		this.draw();
		this.showProcesses();
	}
	clamp([from, to]) {
		const least = Math.min(this.end, LEAST_PERIODS * this.periodUnits);
		const width = Math.min(Math.max(to - from, least), this.end);
		const begin = Math.min(Math.max(from - (width - (to - from)) / 2, 0), this.end - width);
		return [begin, begin + width];
	}
	/* The samples taken in the window. The ends belong to it. */
	ticksInWindow() {
		const ticks = new Float64Array(this.profile.cellCount), [from, to] = this.window;
		for (const lane of this.lanes)
			for (let i = lane.first(from); i < lane.to.length && lane.to[i] <= to; i++)
				ticks[lane.cell[i]] += lane.ticks[i];
		return ticks;
	}
	windowState(window) {
		const [from, to] = this.clamp(window);
		const whole = from <= 0 && to >= this.end;
		return {z: "", t: whole ? "" : `${Math.floor(from * this.unit)}-${Math.ceil(to * this.unit)}`};
	}
	go(window, quietly) {
		this.explorer.change(this.windowState(window), quietly);
	}
	scale(factor, around, quietly) {
		const [from, to] = this.window;
		this.go([around - (around - from) * factor, around + (to - around) * factor], quietly);
	}
	move(part) {
		const [from, to] = this.window, width = to - from;
		const begin = Math.min(Math.max(from + part * width, 0), this.end - width);
		this.go([begin, begin + width]);
	}
	middle() {
		return (this.window[0] + this.window[1]) / 2;
	}
	listen() {
		const {canvas, box} = this;
		canvas.addEventListener("mousedown", (event) => {
			const mark = event.button === 0 ? this.markAt(event) : -1;
			if (mark >= 0)
				this.console.choose(mark, event.shiftKey);
			else if (event.button === 0)
				this.dragging = [this.time(event), this.time(event), event.clientX];
		});
		addEventListener("mousemove", (event) => {
			if (!this.dragging)
				return;
			this.dragging[1] = this.time(event);
			this.draw();
		});
		addEventListener("mouseup", (event) => {
			const {dragging} = this;
			this.dragging = null;
			if (dragging && Math.abs(event.clientX - dragging[2]) > 4)
				this.go(dragging.slice(0, 2).sort((a, b) => a - b));
			else if (dragging)
				this.draw();
		});
		canvas.addEventListener("mousemove", (event) => this.hover(event));
		canvas.addEventListener("mouseleave", () => { element("tip").hidden = true; });
		canvas.addEventListener("dblclick", (event) => {
			if (this.markAt(event) >= 0)
				this.console.zoom();
			else
				this.scale(.25, this.time(event));
		});
		canvas.addEventListener("wheel", (event) => {
			if (event.ctrlKey || event.shiftKey || !event.deltaY)
				return;
			event.preventDefault();
			this.scale(event.deltaY > 0 ? 1.3 : 1 / 1.3, this.time(event), true);
		}, {passive: false});
		box.addEventListener("keydown", (event) => this.key(event));
		box.addEventListener("scroll", () => this.draw());
		element("zoom-in").addEventListener("click", () => this.scale(.5, this.middle()));
		element("zoom-out").addEventListener("click", () => this.scale(2, this.middle()));
		element("whole").addEventListener("click", () => this.go([0, this.end]));
		for (const id of ["from", "to"])
			element(id).addEventListener("change", () => {
				const window = ["from", "to"].map((end) =>
					Number(element(end).value) * 1e9 / this.unit);
				if (window[1] > window[0])
					this.go(window);
			});
		darkScheme.addEventListener("change", () => { this.draw(); this.showProcesses(); });
		new ResizeObserver(() => this.draw()).observe(box);
	}
	key(event) {
		if (event.ctrlKey || event.altKey || event.metaKey)
			return;
		const width = event.shiftKey ? 1 : .2, actions = {
			"+": () => this.scale(.5, this.middle()),
			"=": () => this.scale(.5, this.middle()),
			"-": () => this.scale(2, this.middle()),
			"ArrowLeft": () => this.move(-width),
			"ArrowRight": () => this.move(width),
			"Home": () => this.go([0, this.end]),
			",": () => this.console.step(-1),
			".": () => this.console.step(1),
			"n": () => this.console.zoom(),
		};
		if (!actions[event.key])
			return;
		event.preventDefault();
		actions[event.key]();
	}
	get plot() {
		return Math.max(1, this.box.clientWidth - LANE_LABEL);
	}
	x(time) {
		const [from, to] = this.window;
		return LANE_LABEL + (time - from) / (to - from) * this.plot;
	}
	timeAt(x) {
		const [from, to] = this.window, part = (x - LANE_LABEL) / this.plot;
		return from + Math.min(Math.max(part, 0), 1) * (to - from);
	}
	time(event) {
		return this.timeAt(event.clientX - this.canvas.getBoundingClientRect().left);
	}
	/* The line whose mark is under the pointer, in the row of marks, or -1. */
	markAt(event) {
		const area = this.canvas.getBoundingClientRect(), y = event.clientY - area.top;
		return y >= AXIS && y < this.head ? this.console.at(event.clientX - area.left) : -1;
	}
	draw() {
		const {box, canvas, context} = this, width = box.clientWidth;
		if (!width)
			return;
		const needed = this.head + this.lanes.length * LANE + 4, ratio = devicePixelRatio || 1;
		const height = Math.min(needed, Math.max(150, innerHeight * .44));
		this.spacer.style.height = `${Math.max(0, needed - height)}px`;
		if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
			canvas.width = Math.round(width * ratio);
			canvas.height = Math.round(height * ratio);
			canvas.style.width = `${width}px`;
			canvas.style.height = `${height}px`;
		}
		context.setTransform(ratio, 0, 0, ratio, 0, 0);
		context.clearRect(0, 0, width, height);
		context.font = `${TEXT_SIZE}px system-ui, "Segoe UI", "DejaVu Sans", sans-serif`;
		context.textBaseline = "middle";
		for (let i = 0; i < this.lanes.length; i++) {
			const y = this.head + i * LANE - box.scrollTop;
			if (y > -LANE && y < height)
				this.drawLane(this.lanes[i], y);
		}
		this.drawHead(width, height);
		if (this.dragging)
			this.drawDrag(height);
	}
	ink(quiet) {
		return getComputedStyle(document.documentElement).getPropertyValue(quiet ? "--quiet" : "--ink");
	}
	/* Per pixel: how much of it each process and each mode has. The process with most gives the upper part
	 * its colour, as high as vCPU was busy; the modes share the lower part. */
	drawLane(lane, y) {
		const {context} = this, columns = this.plot, [from, to] = this.window;
		const modes = MODE_NAMES.map(() => new Float32Array(columns + 1));
		const busy = new Float32Array(columns + 1), best = new Float32Array(columns + 1);
		const winner = new Int32Array(columns + 1).fill(-1), scale = columns / (to - from);
		let share = new Map(), column = -1;
		const settle = () => {
			for (const [process, amount] of share)
				if (amount > best[column]) {
					best[column] = amount;
					winner[column] = process;
				}
			share = new Map();
		};
		for (let i = lane.first(from); i < lane.to.length && lane.from[i] < to; i++) {
			const cell = lane.cell[i], number = this.profile.cellContext[cell];
			const {mode} = this.profile.contexts[number], process = this.processOf[number];
			const begin = Math.max(0, (lane.from[i] - from) * scale);
			const end = Math.min(columns, (lane.to[i] - from) * scale);
			for (let at = Math.floor(begin); at < end; at++) {
				const amount = Math.min(end, at + 1) - Math.max(begin, at);
				if (at !== column) {
					if (column >= 0)
						settle();
					column = at;
				}
				modes[mode][at] += amount;
				if (!this.idleCell[cell]) {
					busy[at] += amount;
					share.set(process, (share.get(process) || 0) + amount);
				}
			}
		}
		if (column >= 0)
			settle();
		context.fillStyle = darkScheme.matches ? "#2a2e36" : "#eef0f3";
		context.fillRect(LANE_LABEL, y + 2, columns, 26);
		context.fillRect(LANE_LABEL, y + 30, columns, 9);
		this.fillColumns(columns, (at) => winner[at] < 0 ? "" : this.processColour(winner[at]),
			(at) => { const high = 26 * Math.min(1, busy[at]); return [y + 28 - high, high]; });
		let below = new Float32Array(columns + 1);
		for (const [mode] of GUEST_MODES) {
			const colour = this.modeColour(mode), base = below.slice();
			this.fillColumns(columns, (at) => modes[mode][at] > .01 ? colour : "",
				(at) => [y + 30 + 9 * Math.min(1, base[at]), 9 * Math.min(1, modes[mode][at])]);
			below = below.map((sum, at) => sum + modes[mode][at]);
		}
		context.fillStyle = this.ink(false);
		context.fillText(`vCPU ${lane.vcpu}`, 6, y + 15);
		this.drawDrops(lane, y);
	}
	/* Neighbours that look the same are one rectangle. */
	fillColumns(columns, colourAt, placeAt) {
		const {context} = this;
		for (let at = 0; at < columns;) {
			const colour = colourAt(at), [top, high] = placeAt(at);
			let end = at + 1;
			while (end < columns && colourAt(end) === colour && placeAt(end)[0] === top &&
			       placeAt(end)[1] === high)
				end++;
			if (colour) {
				context.fillStyle = colour;
				context.fillRect(LANE_LABEL + at, top, end - at, high);
			}
			at = end;
		}
	}
	drawDrops(lane, y) {
		const {context} = this, [from, to] = this.window;
		context.fillStyle = colours().match;
		for (const [vcpu, first, last] of this.drops) {
			if (vcpu !== lane.vcpu || last < from || first > to)
				continue;
			const left = Math.max(LANE_LABEL, this.x(first));
			const right = Math.min(LANE_LABEL + this.plot, this.x(last));
			context.fillRect(left, y, Math.max(2, right - left), 3);
			context.fillRect(left, y, 2, 40);
		}
	}
	drawHead(width, height) {
		const {context} = this, [from, to] = this.window, span = (to - from) * this.unit / 1e9;
		context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--panel");
		context.fillRect(0, 0, width, this.head);
		/* Steps of 1, 2 or 5 of a power of ten, about 110 pixels apart. */
		const wanted = span * 110 / this.plot, power = 10 ** Math.floor(Math.log10(wanted));
		const step = power * [1, 2, 5, 10].find((factor) => power * factor >= wanted);
		const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
		const begin = from * this.unit / 1e9;
		for (let k = Math.ceil(begin / step); k * step <= begin + span; k++) {
			const x = Math.round(this.x(k * step * 1e9 / this.unit)) + .5;
			context.strokeStyle = darkScheme.matches ? "rgba(255,255,255,.14)" : "rgba(0,0,0,.12)";
			context.lineWidth = 1;
			context.beginPath();
			context.moveTo(x, 16);
			context.lineTo(x, height);
			context.stroke();
			const text = `${(k * step).toFixed(digits)} s`, wide = context.measureText(text).width;
			if (x + wide / 2 > width)
				continue;
			context.fillStyle = this.ink(true);
			context.fillText(text, Math.max(4, x - wide / 2), 9);
		}
		this.console.draw(context, height);
	}
	drawDrag(height) {
		const {context} = this, [left, right] = this.dragging.slice(0, 2).map((time) => this.x(time))
			.sort((a, b) => a - b);
		context.fillStyle = darkScheme.matches ? "rgba(139,184,255,.28)" : "rgba(22,87,184,.2)";
		context.fillRect(left, AXIS, Math.max(1, right - left), height);
	}
	hover(event) {
		const area = this.canvas.getBoundingClientRect();
		const row = Math.floor((event.clientY - area.top + this.box.scrollTop - this.head) / LANE);
		const lane = this.lanes[row], time = this.time(event);
		const i = lane ? lane.first(time) : -1;
		if (!this.dragging && this.markAt(event) >= 0) {
			this.console.hover(event.clientX - area.left, event);
			return;
		}
		if (this.dragging || !lane || event.clientX - area.left < LANE_LABEL ||
		    event.clientY - area.top < this.head) {
			element("tip").hidden = true;
			return;
		}
		const lines = [["time", seconds(time * this.unit)]];
		const drop = this.drops.find(([vcpu, first, last]) =>
			vcpu === lane.vcpu && time >= first && time <= last);
		if (drop)
			lines.push(["dropped", `${count(drop[3])} records`]);
		if (i < lane.to.length && lane.from[i] <= time) {
			const {profile} = this, cell = lane.cell[i];
			const context = profile.contexts[profile.cellContext[cell]];
			lines.push(["was", MODE_NAMES[context.mode]], ["process", profile.processLabel(context)]);
			lines.push(["thread", profile.threadLabel(context)]);
			if (!this.idleCell[cell])
				lines.push(["function", profile.names[profile.name[profile.cellNode[cell]]]]);
			if (lane.ticks[i] > 1)
				lines.push(["ticks", count(lane.ticks[i])]);
		} else {
			lines.push(["", "no sample"]);
		}
		showTip(element("tip"), `vCPU ${lane.vcpu}`, lines, event.clientX, event.clientY);
	}
	/* Who ran in the window. */
	showProcesses() {
		const ticks = this.explorer.ticks || this.profile.cellTicks, sums = new Map();
		let whole = 0;
		for (let cell = 0; cell < this.profile.cellCount; cell++) {
			const process = this.processOf[this.profile.cellContext[cell]];
			if (this.idleCell[cell] || !ticks[cell])
				continue;
			sums.set(process, (sums.get(process) || 0) + ticks[cell]);
			whole += ticks[cell];
		}
		const rows = [...sums].sort((a, b) => b[1] - a[1]), shown = rows.slice(0, 14);
		const keys = shown.map(([process, sum]) => colourKey(this.processColour(process),
			`${this.processes[process]} ${percent(sum, whole)}`));
		if (rows.length > shown.length)
			keys.push(`and ${rows.length - shown.length} more`);
		element("processes").replaceChildren(...keys);
	}
}

const data = JSON.parse(element("data").textContent);
const profile = new Profile(data);
const explorer = new Explorer(profile);
const timeline = new Timeline(profile, data, explorer);
explorer.start();
/* For a person at the browser's console, and for the tests. */
window.guestprof = {profile, explorer, timeline};
