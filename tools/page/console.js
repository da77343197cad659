/* The guest's console on the timeline: lines as marks above the lanes, one of them selected, and a list of
 * those in the window. Two marks make a range: a phase of the boot has a flame graph of its own. */

const MARK_REACH = 5, LINES_SHOWN = 400;

class Console {
	constructor(timeline, data) {
		this.timeline = timeline;
		this.marks = data.marks.map(([time, name]) => ({time, text: data.names[name]}));
		this.all = data.markCount;
		this.selected = -1;
		this.listed = "";
		this.labels = [];
		element("console").hidden = !this.marks.length;
		element("line-before").addEventListener("click", () => this.step(-1));
		element("line-after").addEventListener("click", () => this.step(1));
		element("line-zoom").addEventListener("click", () => this.zoom());
		element("lines").addEventListener("toggle", () => this.list());
		element("lines").querySelector("tbody").addEventListener("click", (event) => {
			const button = event.target.closest("button");
			if (button)
				this.choose(Number(button.value), event.shiftKey);
		});
	}
	/* The address holds the number of the line, from 1 on. */
	take(state) {
		const number = Number(state.m);
		this.selected = number >= 1 && number <= this.marks.length ? Math.floor(number) - 1 : -1;
		this.show();
		this.list();
	}
	seconds(mark) {
		return `${(mark.time * this.timeline.unit / 1e9).toFixed(6)} s`;
	}
	show() {
		const mark = this.marks[this.selected];
		element("line").textContent = mark ? `${this.seconds(mark)}  ${mark.text}` : "no line selected";
		element("line-zoom").disabled = !mark;
		element("line-before").disabled = this.selected === 0;
		element("line-after").disabled = this.selected === this.marks.length - 1;
	}
	/* The first mark at `time` or later. */
	first(time) {
		let low = 0, high = this.marks.length;
		while (low < high) {
			const middle = (low + high) >> 1;
			if (this.marks[middle].time < time)
				low = middle + 1;
			else
				high = middle;
		}
		return low;
	}
	/* Selects a line; with Shift the range from the line selected before to this one is zoomed to. */
	choose(index, extend) {
		const mark = this.marks[index], other = this.marks[this.selected], {timeline} = this;
		const [from, to] = timeline.window, changes = {m: String(index + 1)};
		if (extend && other && other.time !== mark.time)
			Object.assign(changes, timeline.windowState([other.time, mark.time].sort((a, b) => a - b)));
		else if (mark.time < from || mark.time > to)
			Object.assign(changes, timeline.windowState([mark.time - (to - from) / 2,
				mark.time + (to - from) / 2]));
		timeline.explorer.change(changes, !extend);
	}
	step(by) {
		const {marks, timeline} = this;
		const next = this.selected >= 0 ? this.selected + by
			: by > 0 ? this.first(timeline.window[0]) : this.first(timeline.window[1]) - 1;
		if (next >= 0 && next < marks.length)
			this.choose(next, false);
	}
	/* To the range from the selected line to the next one that has another time. */
	zoom() {
		const mark = this.marks[this.selected], {timeline} = this;
		if (!mark)
			return;
		const after = this.marks[this.first(mark.time + .5)];
		timeline.go([mark.time, after ? after.time : timeline.end]);
	}
	/* The mark at that place of the row of marks, by its line or its label, or -1. */
	at(x) {
		const {timeline} = this, label = this.labels.find(([left, right]) => x >= left && x < right);
		const unit = (timeline.window[1] - timeline.window[0]) / timeline.plot;
		const time = timeline.timeAt(x), near = this.first(time);
		let best = -1, reach = MARK_REACH * unit;
		for (const index of [near - 1, near])
			if (this.marks[index] && Math.abs(this.marks[index].time - time) <= reach) {
				best = index;
				reach = Math.abs(this.marks[index].time - time);
			}
		return best >= 0 ? best : label ? label[2] : -1;
	}
	hover(x, event) {
		const mark = this.marks[this.at(x)];
		if (mark)
			showTip(element("tip"), mark.text, [["time", this.seconds(mark)]], event.clientX,
				event.clientY);
		else
			element("tip").hidden = true;
	}
	/* A label has its place to itself; the selected line's comes first. */
	draw(context, height) {
		const {timeline} = this, [from, to] = timeline.window, chosen = this.marks[this.selected];
		let free = LANE_LABEL, last = -1, kept = [Infinity, Infinity];
		this.labels = [];
		const label = (index, x, before) => {
			const {text} = this.marks[index], short = text.length > 40 ? `${text.slice(0, 39)}…` : text;
			const end = x + context.measureText(short).width + 12;
			if (x < before[1] && end > before[0])
				return 0;
			context.fillText(short, x + 3, AXIS + MARK_ROW / 2);
			this.labels.push([x, end - 6, index]);
			return end;
		};
		if (chosen && chosen.time >= from && chosen.time <= to) {
			const x = Math.round(timeline.x(chosen.time));
			context.fillStyle = this.accent();
			context.fillRect(x, AXIS, 2, height);
			kept = [x, label(this.selected, x, kept)];
		}
		context.fillStyle = timeline.ink(true);
		for (let index = this.first(from); index < this.marks.length && this.marks[index].time <= to; index++) {
			const x = Math.round(timeline.x(this.marks[index].time));
			if (x === last || index === this.selected)
				continue;
			last = x;
			const end = x >= free ? label(index, x, kept) : 0;
			/* Only lines that can be read go through the lanes; the others leave the labels readable. */
			context.globalAlpha = .5;
			if (end)
				context.fillRect(x, AXIS, 1, height);
			else
				context.fillRect(x, AXIS + MARK_ROW - 3, 1, 3);
			context.globalAlpha = 1;
			free = end || free;
		}
	}
	accent() {
		return getComputedStyle(document.documentElement).getPropertyValue("--accent");
	}
	list() {
		const {marks, timeline} = this, [from, to] = timeline.window;
		if (!element("lines").open || !marks.length)
			return;
		const begin = this.first(from), end = this.first(to + .5), key = `${begin} ${end} ${this.selected}`;
		if (key === this.listed)
			return;
		this.listed = key;
		/* Around the selected line, when they are too many. */
		const middle = this.selected >= begin && this.selected < end ? this.selected - LINES_SHOWN / 2 : begin;
		const top = Math.max(begin, Math.min(middle, end - LINES_SHOWN));
		const shown = marks.slice(top, Math.min(end, top + LINES_SHOWN));
		element("lines-shown").textContent = `${count(shown.length)} of ${count(end - begin)} in this range` +
			(this.all > marks.length
				? `; ${count(marks.length)} of ${count(this.all)} lines are on this page` : "");
		element("lines").querySelector("tbody").replaceChildren(...shown.map((mark, offset) => {
			const row = document.createElement("tr"), time = document.createElement("td");
			const cell = document.createElement("td"), button = document.createElement("button");
			time.textContent = this.seconds(mark);
			button.type = "button";
			button.value = String(top + offset);
			button.textContent = mark.text;
			button.setAttribute("aria-pressed", top + offset === this.selected ? "true" : "false");
			cell.className = "name";
			cell.append(button);
			row.append(time, cell);
			return row;
		}));
	}
}
