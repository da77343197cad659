/* The flame graph: a canvas that shows a View, moved about by mouse and keyboard. What it shows is
 * decided elsewhere: it asks for a zoom with onZoom(frame) and is told with show(). */

const ROW = 19, TEXT_SIZE = 12, LEAST_WIDTH = 0.5;

/* Hue, saturation and lightness of each kind. Text on them has a contrast of at least 7 to 1; the
 * hues stay apart for every kind of colour blindness, and lightness differs too. */
const COLOURS = {
	light: {kinds: [[34, 92, 68], [205, 75, 76], [0, 0, 82], [60, 8, 88]], vmm: [295, 50, 78],
		text: "#16181d", edge: "rgba(255,255,255,.9)", match: "#d6006c", faded: .45,
		selected: "#101319", neutral: [220, 8, 86], more: [8, 85, 72], less: [215, 80, 74]},
	dark: {kinds: [[26, 62, 33], [208, 58, 35], [0, 0, 28], [60, 4, 24]], vmm: [292, 38, 41],
		text: "#f5f6f8", edge: "rgba(20,22,27,.9)", match: "#ff5fb0", faded: .5,
		selected: "#ffffff", neutral: [220, 6, 27], more: [4, 58, 40], less: [215, 60, 42]},
};

const darkScheme = window.matchMedia("(prefers-color-scheme: dark)");

function colours() {
	return darkScheme.matches ? COLOURS.dark : COLOURS.light;
}

function hsl([hue, saturation, lightness], variation) {
	return `hsl(${hue} ${saturation}% ${lightness + variation}%)`;
}

class Flame {
	constructor(box, tip, callbacks) {
		this.box = box;
		this.tip = tip;
		this.callbacks = callbacks;
		this.canvas = box.querySelector("canvas");
		this.spacer = box.querySelector(".spacer");
		this.context = this.canvas.getContext("2d");
		this.upright = false;
		this.matched = null;
		this.drawn = []; /* per row: frames with their place, left to right */
		this.selected = null;
		this.variations = new Map();
		box.addEventListener("scroll", () => this.draw());
		box.addEventListener("keydown", (event) => this.key(event));
		box.addEventListener("focus", () => this.draw());
		box.addEventListener("blur", () => this.draw());
		this.canvas.addEventListener("mousemove", (event) => this.hover(event));
		this.canvas.addEventListener("mouseleave", () => this.hideTip());
		this.canvas.addEventListener("click", (event) => this.click(event));
		darkScheme.addEventListener("change", () => this.draw());
		new ResizeObserver(() => this.draw()).observe(box);
	}
	show(view, focus) {
		this.view = view;
		this.focus = focus || view.root;
		if (this.selected && this.selected.view !== view)
			this.selected = null;
		this.settle = true;
		this.hideTip();
		this.draw();
	}
	setMatched(matched) {
		this.matched = matched;
		this.draw();
	}
	/* Follows the path of keys from the root as far as it goes. */
	find(keys) {
		let frame = this.view.root;
		for (const key of keys) {
			const child = frame.children.find((candidate) => candidate.key === key);
			if (!child)
				break;
			frame = child;
		}
		return frame;
	}
	place() {
		const width = this.box.clientWidth, rows = [], {focus} = this;
		const scale = focus.total ? width / focus.total : 0, work = [];
		for (let above = focus.parent; above; above = above.parent)
			(rows[above.depth] = rows[above.depth] || []).push({frame: above, x: 0, width,
				faded: true});
		work.push(focus);
		while (work.length) {
			const frame = work.pop(), x = (frame.start - focus.start) * scale;
			const row = rows[frame.depth] = rows[frame.depth] || [];
			row.push({frame, x, width: frame.total * scale, faded: false});
			/* The rows are drawn from left to right, so the work is taken from the left. */
			const {children} = frame, shown = [];
			for (const child of children) {
				if (child.total * scale < LEAST_WIDTH)
					break; /* they come by size */
				shown.push(child);
			}
			for (let i = shown.length - 1; i >= 0; i--)
				work.push(shown[i]);
		}
		this.drawn = rows;
	}
	y(depth) {
		return (this.upright ? this.drawn.length - 1 - depth : depth) * ROW + this.offset;
	}
	draw() {
		const {box, canvas, context} = this;
		if (!this.view || !box.clientWidth)
			return;
		this.place();
		const width = box.clientWidth, height = box.clientHeight, ratio = devicePixelRatio || 1;
		const needed = this.drawn.length * ROW;
		this.spacer.style.height = `${Math.max(0, needed - height)}px`;
		/* A flame stands on the lower edge. */
		this.offset = this.upright ? Math.max(0, height - needed) : 0;
		if (this.settle) {
			this.settle = false;
			box.scrollTop = this.upright ? box.scrollHeight : 0;
		}
		if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
			canvas.width = Math.round(width * ratio);
			canvas.height = Math.round(height * ratio);
			canvas.style.width = `${width}px`;
			canvas.style.height = `${height}px`;
		}
		context.setTransform(ratio, 0, 0, ratio, 0, 0);
		context.clearRect(0, 0, width, height);
		context.font = `${TEXT_SIZE}px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace`;
		context.textBaseline = "middle";
		this.letter = context.measureText("m").width;
		for (let depth = 0; depth < this.drawn.length; depth++) {
			const y = this.y(depth) - box.scrollTop;
			if (y > -ROW && y < height)
				for (const item of this.drawn[depth])
					this.drawFrame(item, y);
		}
		if (this.selected)
			this.drawSelection();
	}
	variation(frame) {
		let value = this.variations.get(frame.label);
		if (value === undefined) {
			let hash = 0;
			for (let i = 0; i < frame.label.length; i++)
				hash = (hash * 31 + frame.label.charCodeAt(i)) | 0;
			value = ((hash >>> 3) % 7) - 3;
			this.variations.set(frame.label, value);
		}
		return value;
	}
	fill(frame) {
		const palette = colours(), {root} = this.view;
		if (this.view.profile.files.length > 1) {
			if (frame === root)
				return hsl(palette.neutral, 0);
			const before = root.base ? frame.base * root.total / root.base : 0;
			const change = (frame.total - before) / Math.max(frame.total, before, 1);
			const [hue, saturation, lightness] = change > 0 ? palette.more : palette.less;
			const strength = Math.min(1, Math.abs(change) * 2.5);
			const neutral = palette.neutral[2];
			return hsl([hue, saturation * strength,
				neutral + (lightness - neutral) * strength], 0);
		}
		if (frame.kind <= KIND_USER && frame.vmm * 2 > frame.total)
			return hsl(palette.vmm, this.variation(frame));
		return hsl(palette.kinds[frame.kind],
			frame.kind <= KIND_USER ? this.variation(frame) : 0);
	}
	drawFrame({frame, x, width, faded}, y) {
		const {context} = this, palette = colours(), gap = width > 3 ? 1 : 0;
		const matched = this.matched && frame.name !== NO_NAME && this.matched[frame.name];
		context.globalAlpha = faded || (this.matched && !matched) ? palette.faded : 1;
		context.fillStyle = this.fill(frame);
		context.fillRect(x, y, Math.max(width - gap, LEAST_WIDTH), ROW - 1);
		if (frame.vmm && width > 3) {
			context.fillStyle = hsl(palette.vmm, darkScheme.matches ? 14 : -28);
			context.fillRect(x, y + ROW - 3, (width - gap) * frame.vmm / frame.total, 2);
		}
		context.globalAlpha = 1;
		if (matched) {
			context.fillStyle = palette.match;
			context.fillRect(x, y, Math.max(width - gap, 1), 2);
		}
		const letters = Math.floor((width - 8) / this.letter);
		if (letters < 2)
			return;
		const {label} = frame;
		context.globalAlpha = faded ? .75 : 1;
		context.fillStyle = palette.text;
		context.fillText(label.length <= letters ? label : `${label.slice(0, letters - 1)}…`, x + 4,
			y + ROW / 2);
		context.globalAlpha = 1;
	}
	placed(frame) {
		const row = this.drawn[frame.depth];
		return row && row.find((item) => item.frame === frame);
	}
	drawSelection() {
		const {context} = this, item = this.placed(this.selected);
		if (!item)
			return;
		context.strokeStyle = colours().selected;
		context.lineWidth = 2;
		context.strokeRect(item.x + 1, this.y(this.selected.depth) - this.box.scrollTop + 1,
			Math.max(item.width - 3, 1), ROW - 3);
	}
	at(event) {
		const area = this.canvas.getBoundingClientRect();
		const x = event.clientX - area.left;
		const y = event.clientY - area.top + this.box.scrollTop - this.offset;
		let depth = Math.floor(y / ROW);
		if (this.upright)
			depth = this.drawn.length - 1 - depth;
		const row = this.drawn[depth];
		const item = row && row.find(({x: left, width}) => x >= left && x < left + Math.max(width, 1));
		return item && item.frame;
	}
	hover(event) {
		const frame = this.at(event);
		this.canvas.style.cursor = frame ? "pointer" : "default";
		if (!frame) {
			this.hideTip();
			return;
		}
		this.showTip(frame, event.clientX, event.clientY);
	}
	describe(frame) {
		const {root, profile} = this.view, lines = [];
		const kind = frame.name === NO_NAME ? "" : KIND_NAMES[frame.kind];
		const share = (ticks) => `${count(ticks)} ticks, ${percent(ticks, root.total)}`;
		lines.push(["total", share(frame.total)]);
		if (frame.self || !this.view.options.callers)
			lines.push(["self", share(frame.self)]);
		if (this.focus !== root)
			lines.push(["of the zoom", percent(frame.total, this.focus.total)]);
		if (frame.parent && frame.parent !== root)
			lines.push([this.view.options.callers ? "of its callee" : "of its caller",
				percent(frame.total, frame.parent.total)]);
		if (kind)
			lines.push(["runs in", kind]);
		if (frame.vmm)
			lines.push(["in VMM", share(frame.vmm)]);
		if (profile.files.length > 1)
			lines.push(["base", `${count(frame.base)} ticks, ${percent(frame.base, root.base)}`]);
		return lines;
	}
	showTip(frame, x, y) {
		showTip(this.tip, frame.label, this.describe(frame), x, y);
	}
	hideTip() {
		this.tip.hidden = true;
	}
	click(event) {
		const frame = this.at(event);
		if (!frame)
			return;
		this.select(frame, false);
		this.callbacks.onZoom(frame);
	}
	select(frame, byKeyboard) {
		this.selected = frame;
		const lines = this.describe(frame).map(([name, value]) => `${name} ${value}`);
		this.callbacks.onSelect(`${frame.label}: ${lines.join("; ")}`);
		if (byKeyboard) {
			const y = this.y(frame.depth);
			if (y < this.box.scrollTop)
				this.box.scrollTop = y;
			else if (y + ROW > this.box.scrollTop + this.box.clientHeight)
				this.box.scrollTop = y + ROW - this.box.clientHeight;
		}
		this.draw();
		const item = byKeyboard && this.placed(frame);
		if (item) {
			const area = this.canvas.getBoundingClientRect();
			this.showTip(frame, area.left + item.x + Math.min(item.width / 2, 120),
				area.top + this.y(frame.depth) - this.box.scrollTop + ROW);
		}
	}
	/* The neighbour that is drawn beside it. */
	beside(frame, step) {
		const row = this.drawn[frame.depth] || [];
		const at = row.findIndex((item) => item.frame === frame);
		const item = at < 0 ? null : row[at + step];
		return item && item.frame;
	}
	key(event) {
		if (event.ctrlKey || event.altKey || event.metaKey || !this.view)
			return;
		const from = this.selected && this.placed(this.selected) ? this.selected : this.focus;
		const towardsRoot = this.upright ? "ArrowDown" : "ArrowUp";
		const away = this.upright ? "ArrowUp" : "ArrowDown";
		let next = null;
		if (event.key === towardsRoot)
			next = from.parent;
		else if (event.key === away)
			next = from.children.find((child) => this.placed(child));
		else if (event.key === "ArrowLeft")
			next = this.beside(from, -1);
		else if (event.key === "ArrowRight")
			next = this.beside(from, 1);
		else if (event.key === "Enter" || event.key === " ")
			this.callbacks.onZoom(from);
		else if (event.key === "Backspace" && this.focus.parent)
			this.callbacks.onZoom(this.focus.parent);
		else
			return;
		event.preventDefault();
		if (next)
			this.select(next, true);
		else if (event.key.startsWith("Arrow") && !this.selected)
			this.select(from, true);
	}
}

/* Text only: names are the guest's and never become markup. */
function showTip(tip, title, lines, x, y) {
	tip.replaceChildren();
	const heading = document.createElement("strong");
	heading.textContent = title;
	tip.append(heading);
	const list = document.createElement("dl");
	for (const [name, value] of lines) {
		const term = document.createElement("dt"), text = document.createElement("dd");
		term.textContent = name;
		text.textContent = value;
		list.append(term, text);
	}
	tip.append(list);
	tip.hidden = false;
	const left = Math.min(x + 14, innerWidth - tip.offsetWidth - 8);
	let top = y + 16;
	if (top + tip.offsetHeight > innerHeight - 8)
		top = y - tip.offsetHeight - 10;
	tip.style.left = `${Math.max(8, left)}px`;
	tip.style.top = `${Math.max(8, top)}px`;
}
