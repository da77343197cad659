/* What both pages have: the header, the tools above the flame graph, the flame graph, the table of
 * functions, and the view kept in the address, so that the back button and bookmarks work. */

const element = (id) => document.getElementById(id);

/* The samples' own account of themselves. */
function showHeader(profile) {
	const file = profile.files[0], facts = [];
	element("path").textContent = profile.files.length > 1
		? `${file.path}, against ${profile.files[1].path}` : file.path;
	element("path").title = element("path").textContent;
	element("banner").textContent = file.banner || file.kernel;
	element("banner").title = `${file.banner}\n${file.kernel}\n${file.commandLine}`;
	element("banner").hidden = !element("banner").textContent;
	if (["cycles", "instructions"].includes(file.tickSource))
		facts.push(["sampled every", `${count(file.periodNs)} ${file.tickSource}`]);
	else if (file.periodNs)
		facts.push(["rate", `${+(1e9 / file.periodNs).toFixed(2)} Hz`]);
	facts.push(["duration", seconds(file.durationNs)], ["vCPUs", count(file.vcpus)],
		["samples", count(file.stacks)], ["partial", count(file.partials)],
		["dropped", count(file.dropped)]);
	if (file.filtered)
		facts.push(["left out by filters", `${count(file.filtered)} of ` +
			`${count(file.filtered + file.ticks)} ticks`]);
	if (!file.ticks)
		element("empty").textContent = file.filtered ? "No samples here: the filters that this " +
			"page was made with have left out all of them." : "The trace has no samples.";
	/* Root and depth 1: whole. */
	const unfinished = file.ends.map((ticks, end) => [ticks, END_NAMES[end]])
		.filter(([ticks, name]) => ticks && name !== "root").sort((a, b) => b[0] - a[0]);
	const sum = unfinished.reduce((total, [ticks]) => total + ticks, 0);
	facts.push(["unfinished stacks", sum ? `${percent(sum, file.running)} (` + unfinished.map(
		([ticks, name]) => `${name} ${percent(ticks, file.running)}`).join(", ") + ")" : "none"]);
	if (file.consoleLines || file.consoleLost)
		facts.push(["console lines", count(file.consoleLines) +
			(file.consoleLost ? ` (${count(file.consoleLost)} left out)` : "")]);
	if (file.endReason)
		facts.push(["ended", file.endReason]);
	element("facts").replaceChildren(...facts.map(([name, value]) => {
		const box = document.createElement("div"), term = document.createElement("dt");
		const text = document.createElement("dd");
		term.textContent = name;
		text.textContent = value;
		box.append(term, text);
		return box;
	}));
	showWarning(profile, file);
}

function showWarning(profile, file) {
	const troubles = [], problem = file.problem ? `: ${file.problem}` : "";
	if (!file.complete) {
		const how = file.broken ? "is damaged" : file.cut ? "is cut" : "has no end record and stops";
		troubles.push(`Incomplete: the trace ${how} at byte ${count(file.goodBytes)} of ` +
			`${count(file.bytes)}${problem}. What comes before that is shown.`);
	} else if (file.badRecords) {
		troubles.push(`${count(file.badRecords)} damaged records were skipped${problem}.`);
	}
	if (profile.rareNodes)
		troubles.push(`${count(profile.rareNodes)} call paths of at most ${count(profile.rareTicks)}` +
			" ticks are folded into [rare], to keep this page small.");
	element("warning").textContent = troubles.join(" ");
	element("warning").hidden = !troubles.length;
}

/* A colour sample is a canvas: a style attribute would be against the page's own security policy. */
function colourKey(colour, text) {
	const key = document.createElement("span"), sample = document.createElement("canvas");
	const label = document.createElement("span");
	key.className = "key";
	sample.width = sample.height = 12;
	const context = sample.getContext("2d");
	context.fillStyle = colour;
	context.fillRect(0, 0, 12, 12);
	label.textContent = text;
	key.append(sample, label);
	return key;
}

function fillSelect(select, choices) {
	select.replaceChildren(...choices.map(([value, text]) => {
		const option = document.createElement("option");
		option.value = value;
		option.textContent = text;
		return option;
	}));
}

class Explorer {
	constructor(profile) {
		this.profile = profile;
		this.ticks = null; /* per cell; null: the whole trace */
		this.state = {};
		this.onState = () => {};
		this.flame = new Flame(element("flame"), element("tip"), {
			onZoom: (frame) => this.zoom(frame),
			onSelect: (text) => { element("status").textContent = text; },
		});
		showHeader(profile);
		this.fillChoices();
		this.listen();
		this.showLegend();
		darkScheme.addEventListener("change", () => this.showLegend());
	}
	start() {
		addEventListener("hashchange", () => {
			if (location.hash !== this.applied)
				this.apply();
		});
		this.apply();
	}
	fillChoices() {
		const {profile} = this, byProcess = new Map(), vcpus = new Set();
		for (let cell = 0; cell < profile.cellCount; cell++) {
			const context = profile.contexts[profile.cellContext[cell]];
			const label = profile.processLabel(context);
			byProcess.set(label, (byProcess.get(label) || 0) + profile.cellTicks[cell]);
			vcpus.add(context.vcpu);
		}
		/* The values are numbers, so that the address stays short. */
		this.processes = [...byProcess].sort((a, b) => b[1] - a[1]).map(([label]) => label);
		fillSelect(element("process"), [["", "all"],
			...this.processes.slice(0, 500).map((label, index) => [String(index), label])]);
		fillSelect(element("vcpu"), [["", "all"],
			...[...vcpus].sort((a, b) => a - b).map((vcpu) => [String(vcpu), String(vcpu)])]);
	}
	showLegend() {
		const palette = colours(), keys = this.profile.files.length > 1 ? [
			colourKey(hsl(palette.more, 0), "more than the base"),
			colourKey(hsl(palette.neutral, 0), "as much"),
			colourKey(hsl(palette.less, 0), "less"),
		] : [
			colourKey(hsl(palette.kinds[KIND_KERNEL], 0), "kernel"),
			colourKey(hsl(palette.kinds[KIND_USER], 0), "user"),
			colourKey(hsl(palette.vmm, 0), "mostly in VMM"),
			colourKey(hsl(palette.kinds[KIND_IDLE], 0), "idle"),
		];
		element("legend").replaceChildren(...keys);
	}
	listen() {
		let typing = 0;
		element("search").addEventListener("input", () => {
			clearTimeout(typing);
			typing = setTimeout(() => this.change({q: element("search").value}, true), 120);
		});
		element("search").addEventListener("keydown", (event) => {
			if (event.key === "Escape") {
				element("search").value = "";
				this.change({q: ""}, true);
				element("flame").focus();
			} else if (event.key === "Enter") {
				this.change({q: element("search").value}, true);
				element("flame").focus();
			}
			event.stopPropagation();
		});
		for (const id of ["process", "vcpu", "split"])
			element(id).addEventListener("change", () =>
				this.change({[id]: element(id).value, z: ""}));
		for (const id of ["callers", "upright", "idle"])
			element(id).addEventListener("click", () => this.toggle(id));
		element("reset").addEventListener("click", () => this.change({z: ""}));
		element("help-open").addEventListener("click", () => element("help").showModal());
		element("table").addEventListener("toggle", () => this.showTable());
		document.addEventListener("keydown", (event) => this.key(event));
	}
	toggle(id) {
		this.change({[id]: this.state[id] ? "" : "1", z: id === "upright" ? this.state.z : ""});
	}
	key(event) {
		if (event.ctrlKey || event.altKey || event.metaKey || element("help").open ||
		    event.target.matches("input, select"))
			return;
		const actions = {
			"/": () => { element("search").focus(); element("search").select(); },
			"c": () => this.toggle("callers"),
			"f": () => this.toggle("upright"),
			"i": () => this.toggle("idle"),
			"t": () => { element("table").open = !element("table").open; },
			"0": () => this.change({z: ""}),
			"Escape": () => this.change({z: ""}),
			"?": () => element("help").showModal(),
		};
		if (!actions[event.key])
			return;
		event.preventDefault();
		actions[event.key]();
	}
	zoom(frame) {
		/* The top one again: one step back out. */
		const target = frame === this.flame.focus && frame.parent ? frame.parent : frame;
		const keys = [];
		for (let at = target; at.parent; at = at.parent)
			keys.unshift(at.key);
		this.change({z: keys.join(".")});
	}
	/* Changes the address, which changes the view. `quietly`: not a step for the back button. */
	change(changes, quietly) {
		const parameters = new URLSearchParams(), next = {...this.state, ...changes};
		for (const name of Object.keys(next).sort())
			if (next[name])
				parameters.set(name, next[name]);
		const hash = `#${parameters}`;
		if (hash === (location.hash || "#"))
			return;
		if (quietly)
			history.replaceState(null, "", hash);
		else
			location.hash = hash;
		/* At once: the event comes later, perhaps after the next key. */
		this.apply();
	}
	/* Makes the page what the address says. */
	apply() {
		const state = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
		this.state = state;
		this.applied = location.hash;
		for (const id of ["callers", "upright", "idle"])
			element(id).setAttribute("aria-pressed", state[id] ? "true" : "false");
		for (const id of ["process", "vcpu", "split"])
			element(id).value = state[id] || "";
		if (element("search") !== document.activeElement || !state.q)
			element("search").value = state.q || "";
		this.onState(state);
		this.makeView();
		const matched = this.profile.match(state.q);
		this.flame.upright = Boolean(state.upright);
		this.flame.matched = matched;
		this.flame.show(this.view, this.focus());
		this.showShown(matched);
		this.showTable();
	}
	makeView() {
		const {state} = this, options = {
			ticks: this.ticks,
			vcpu: state.vcpu ? Number(state.vcpu) : null,
			process: state.process && this.processes[state.process] !== undefined
				? this.processes[state.process] : null,
			split: ["process", "thread", "vcpu"].includes(state.split) ? state.split : "",
			callers: Boolean(state.callers),
			idle: Boolean(state.idle),
		};
		const same = this.view && Object.keys(options).every((name) =>
			options[name] === this.view.options[name]);
		if (!same)
			this.view = new View(this.profile, options);
	}
	focus() {
		this.flame.view = this.view;
		return this.flame.find(this.state.z ? this.state.z.split(".") : []);
	}
	showShown(matched) {
		const {root, hidden} = this.view, {focus} = this.flame;
		const parts = [`${count(root.total)} ticks in view`];
		if (hidden)
			parts.push(`${count(hidden)} idle hidden`);
		if (focus !== root)
			parts.push(`zoom: ${count(focus.total)} ticks, ${percent(focus.total, root.total)}`);
		element("shown").textContent = parts.join(" · ");
		element("empty").hidden = root.total > 0;
		element("reset").disabled = focus === root;
		const ticks = matched ? this.view.matchedTicks(matched) : 0;
		element("matched").textContent = matched
			? `matched ${percent(ticks, root.total)} (${count(ticks)} ticks)`
			: this.state.q ? "not a pattern yet" : "";
	}
	showTable() {
		if (!element("table").open)
			return;
		const {view} = this, base = this.profile.files.length > 1;
		const body = element("table").querySelector("tbody");
		for (const cell of element("table").querySelectorAll("th.base"))
			cell.hidden = !base;
		body.replaceChildren(...view.functions().slice(0, 100).map((row) => {
			const line = document.createElement("tr"), texts = [
				percent(row.self, view.root.total), percent(row.total, view.root.total),
				count(row.self), count(row.total)];
			if (base)
				texts.push(percent(row.base, view.root.base));
			texts.push(KIND_NAMES[row.kind], row.name);
			for (const text of texts) {
				const cell = document.createElement("td");
				cell.textContent = text;
				line.append(cell);
			}
			line.lastChild.className = "name";
			return line;
		}));
	}
}
