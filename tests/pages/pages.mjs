/* Drives the pages; see pages.sh. Prints TAP. */
import {chromium} from "playwright-core";
import {execFileSync} from "node:child_process";
import {mkdtempSync, readdirSync, rmSync, statSync} from "node:fs";
import {join} from "node:path";

const {GUESTPROF: guestprof, SHOTS: shots, WORK: work} = process.env;
const trace = (name) => join(work, `${name}.fxt`);
let tests = 0, failed = 0;

async function test(title, body) {
	tests++;
	try {
		await body();
		console.log(`ok ${tests} - pages: ${title}`);
	} catch (error) {
		failed++;
		console.log(`not ok ${tests} - pages: ${title}`);
		console.log(String(error.stack || error).replace(/^/gm, "# "));
	}
}

function equal(got, wanted, what) {
	const [left, right] = [got, wanted].map((value) => JSON.stringify(value));
	if (left !== right)
		throw new Error(`${what}: got ${left}, wanted ${right}`);
}

function check(condition, what) {
	if (!condition)
		throw new Error(what);
}

function run(...words) {
	return execFileSync(guestprof, words, {encoding: "utf8", maxBuffer: 1 << 28});
}

/* What the text report says: for each name the self ticks, and the percentages of its lines. */
function reportLines(path) {
	const lines = new Map();
	for (const line of run("report", "-n", "0", path).split("\n")) {
		const match = line.match(/^ *([\d.]+ %) +([\d.]+ %) +(\d+) {2}(.*)$/);
		if (!match)
			continue;
		const found = lines.get(match[4]) || {self: 0, shown: []};
		found.self += Number(match[3]);
		found.shown.push(`${match[1]} ${match[2]}`);
		lines.set(match[4], found);
	}
	return lines;
}

const report = (path) => new Map([...reportLines(path)].map(([name, {self}]) => [name, self]));

const home = mkdtempSync(join(work, "chromium-"));
const browser = await chromium.launchPersistentContext(home, {
	executablePath: process.env.CHROMIUM, headless: true, offline: true,
	viewport: {width: 1280, height: 800},
	args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

/* A page that notes everything that should not happen on it. */
async function newPage() {
	const page = await browser.newPage();
	page.troubles = [];
	page.on("console", (message) => {
		if (["error", "warning"].includes(message.type()))
			page.troubles.push(message.text());
	});
	page.on("pageerror", (error) => page.troubles.push(error.stack));
	page.on("dialog", (dialog) => { page.troubles.push(`alert: ${dialog.message()}`); dialog.dismiss(); });
	page.on("request", (request) => {
		if (!/^(file|data):/.test(request.url()))
			page.troubles.push(`request: ${request.url()}`);
	});
	return page;
}

async function open(path, scheme) {
	const page = await newPage();
	await page.emulateMedia({colorScheme: scheme || "light"});
	await page.goto(`file://${path}`);
	await page.waitForFunction(() => window.guestprof);
	return page;
}

async function close(page) {
	equal(page.troubles, [], "troubles on the page");
	await page.close();
}

/* Where a frame is: the first of that label that is drawn. */
function placeOf(page, label) {
	return page.evaluate((wanted) => {
		const {flame} = window.guestprof.explorer, area = flame.canvas.getBoundingClientRect();
		for (const row of flame.drawn)
			for (const {frame, x, width} of row)
				if (frame.label === wanted)
					return {x: area.left + x + width / 2,
						y: area.top + flame.y(frame.depth) - flame.box.scrollTop + 8};
		return null;
	}, label);
}

async function clickFrame(page, label) {
	const place = await placeOf(page, label);
	check(place, `no frame '${label}' is drawn`);
	await page.mouse.click(place.x, place.y);
}

const focus = (page) => page.evaluate(() => window.guestprof.explorer.flame.focus.label);

/* Waits until that frame is zoomed to. */
async function zoomed(page, label, when) {
	try {
		await page.waitForFunction((wanted) =>
			window.guestprof.explorer.flame.focus.label === wanted, label, {timeout: 5000});
	} catch {
		throw new Error(`${when}: at '${await focus(page)}' instead of '${label}'`);
	}
}
const shown = (page) => page.locator("#shown").textContent();

const goldens = readdirSync(work).filter((name) => /^golden-.*\.fxt$/.test(name))
	.map((name) => name.replace(/\.fxt$/, ""));
for (const name of ["hostile", "large", "wild", ...goldens])
	for (const command of ["flamegraph", "timeline"])
		run(command, "-o", join(work, `${name}-${command}.html`), trace(name));
run("flamegraph", "--diff", trace("base"), "-o", join(work, "diff.html"), trace("hostile"));
run("flamegraph", "--svg", "-o", join(work, "hostile.svg"), trace("hostile"));
run("flamegraph", "--svg", "--callers", "--idle", "-o", join(work, "callers.svg"), trace("hostile"));
const flamePage = join(work, "hostile-flamegraph.html");
const timelinePage = join(work, "hostile-timeline.html");

await test("hostile names are text: no element, no script, nothing loaded", async () => {
	for (const path of [flamePage, timelinePage, join(work, "diff.html")]) {
		const page = await open(path);
		await page.keyboard.press("t");
		await page.waitForSelector("tbody tr td.name");
		equal(await page.evaluate(() => [document.images.length, document.scripts.length,
			document.querySelectorAll("svg, i, main b, header b, .rows script").length]),
		[0, 2, 0], "images, scripts, foreign elements");
		const names = await page.locator(".rows td.name").allTextContents();
		check(names.includes("</script><img src=x onerror=alert(1)>"), "the name is shown as it is");
		check(names.includes("__proto__"), "so is __proto__");
		check((await page.locator("#banner").textContent()).startsWith("<script>"), "the banner too");
		await close(page);
	}
});

await test("the header has rate, duration, samples, partials, drops, unfinished stacks", async () => {
	const page = await open(flamePage);
	const facts = await page.locator("#facts").innerText();
	for (const fact of ["1000 Hz", "0.999 s", "1,950", "4", "50", "none"])
		check(facts.includes(fact), `${fact} is missing in ${facts}`);
	equal(await page.locator("#warning").isHidden(), true, "no warning");
	await close(page);
});

await test("figures are those of the report, to the tick", async () => {
	for (const name of ["hostile", "large", ...goldens]) {
		const page = await open(join(work, `${name}-flamegraph.html`));
		const wanted = reportLines(trace(name)), got = await page.evaluate(() => {
			const {view} = window.guestprof.explorer;
			return view.functions().map((row) => [row.name, row.self,
				[row.self, row.total].map((ticks) =>
					`${(100 * ticks / view.root.total).toFixed(2)} %`).join(" ")]);
		});
		const sums = new Map(), shown = new Map();
		for (const [text, self, line] of got) {
			sums.set(text, (sums.get(text) || 0) + self);
			shown.set(text, [...(shown.get(text) || []), line]);
		}
		const whole = [...wanted.values()].reduce((sum, {self}) => sum + self, 0);
		check(whole > 0, `${name}: the report has figures`);
		equal([...sums.values()].reduce((a, b) => a + b, 0), whole, `${name}: sum`);
		/* In the large one some are folded. */
		for (const [text, {self, shown: lines}] of name === "large" ? [] : wanted) {
			equal(sums.get(text) || 0, self, `${name}: self ticks of ${text}`);
			equal(shown.get(text).sort(), lines.sort(), `${name}: percentages of ${text}`);
		}
		await close(page);
	}
});

await test("numbers that no guest has do no harm", async () => {
	for (const command of ["flamegraph", "timeline"]) {
		const page = await open(join(work, `wild-${command}.html`));
		const total = await page.evaluate(() => window.guestprof.explorer.view.root.total);
		check(total > 0 && total < 1000, `${total} ticks`);
		equal(await page.locator("#warning").isVisible(), true, "it has no end, which is said");
		for (const key of ["c", "f", "i", "t"])
			await page.keyboard.press(key);
		await page.waitForFunction(() => window.guestprof.explorer.state.idle);
		await page.keyboard.press("c");
		await page.waitForFunction(() => !window.guestprof.explorer.state.callers);
		equal(await page.evaluate(() => window.guestprof.explorer.flame.drawn.length), 1025,
			"frames of the deepest stack and the root");
		await page.screenshot({path: join(shots, `wild-${command}.png`)});
		if (command === "timeline") {
			await page.focus("#lanes");
			for (const key of ["+", "+", "ArrowRight", "ArrowLeft", "-"])
				await page.keyboard.press(key);
			await page.waitForFunction(() => window.guestprof.explorer.state.t);
		}
		await close(page);
	}
});

await test("search tells the matched share", async () => {
	const page = await open(flamePage);
	await page.keyboard.press("/");
	await page.keyboard.type("SPIN");
	await page.waitForFunction(() => document.getElementById("matched").textContent);
	/* The same by another way: stack by stack. */
	const functions = await page.evaluate(() => {
		const {view, state} = window.guestprof.explorer;
		const matched = view.profile.match(state.q);
		let sum = 0;
		for (let cell = 0; cell < view.profile.cellCount; cell++) {
			let node = view.profile.cellNode[cell];
			while (node && !matched[view.profile.name[node]])
				node = view.profile.parent[node];
			sum += node && !view.profile.isIdle(cell) ? view.profile.cellTicks[cell] : 0;
		}
		return [sum, view.root.total];
	});
	equal(await page.locator("#matched").textContent(),
		`matched ${(100 * functions[0] / functions[1]).toFixed(2)} % (${functions[0].toLocaleString("en-US")} ticks)`,
		"matched");
	check(functions[0] > 0 && functions[0] < functions[1], "a part of all");
	await page.fill("#search", "/^spin$/");
	await page.waitForFunction(() => location.hash.includes("%5E"));
	check((await page.locator("#matched").textContent()).startsWith("matched"), "a pattern");
	await page.fill("#search", "/(/");
	await page.waitForFunction(() => document.getElementById("matched").textContent.startsWith("not"));
	await page.screenshot({path: join(shots, "search.png")});
	await page.focus("#search");
	await page.keyboard.press("Escape");
	equal(await page.locator("#matched").textContent(), "", "cleared");
	await close(page);
});

await test("a click zooms, back and forward follow, Escape resets", async () => {
	const page = await open(flamePage);
	await zoomed(page, "all", "at first");
	await clickFrame(page, "schedule");
	await zoomed(page, "schedule", "after the click");
	check((await shown(page)).includes("zoom: 504 ticks"), await shown(page));
	await clickFrame(page, "__proto__");
	await zoomed(page, "__proto__", "one further");
	await page.goBack();
	await zoomed(page, "schedule", "back");
	await page.goBack();
	await zoomed(page, "all", "back at the beginning");
	await page.goForward();
	await zoomed(page, "schedule", "forward");
	await page.reload();
	await page.waitForFunction(() => window.guestprof);
	await zoomed(page, "schedule", "the address holds the view");
	await page.keyboard.press("Escape");
	await zoomed(page, "all", "reset");
	equal(await page.locator("#reset").isDisabled(), true, "nothing to reset");
	await close(page);
});

await test("keys alone: move, zoom, out again; what is selected is said", async () => {
	const page = await open(flamePage);
	await page.focus("#flame");
	await page.keyboard.press("ArrowDown");
	const first = await page.locator("#status").textContent();
	check(/: total [\d,]+ ticks/.test(first), `said: ${first}`);
	await page.keyboard.press("ArrowRight");
	check(await page.locator("#status").textContent() !== first, "the neighbour is another one");
	await page.keyboard.press("ArrowLeft");
	equal(await page.locator("#status").textContent(), first, "back to the first");
	await page.keyboard.press("Enter");
	await zoomed(page, first.split(": total")[0], "zoomed");
	await page.screenshot({path: join(shots, "keyboard.png")});
	await page.keyboard.press("Backspace");
	await zoomed(page, "all", "out");
	await page.keyboard.press("?");
	equal(await page.locator("#help").isVisible(), true, "help");
	await page.screenshot({path: join(shots, "help.png")});
	await page.keyboard.press("Escape");
	equal(await page.locator("#help").isVisible(), false, "help closed");
	await close(page);
});

await test("callers: the same ticks from the leaves up", async () => {
	const page = await open(flamePage), wanted = report(trace("hostile"));
	await page.keyboard.press("c");
	await page.waitForFunction(() => window.guestprof.explorer.view.options.callers);
	const rows = await page.evaluate(() => window.guestprof.explorer.view.root.children
		.map((frame) => [frame.label, frame.total, frame.children.reduce((a, b) => a + b.total, 0)]));
	const sums = new Map();
	for (const [label, total] of rows)
		sums.set(label, (sums.get(label) || 0) + total);
	equal([...sums].sort(), [...wanted].filter(([, self]) => self).sort(), "first row");
	check(rows.every(([, total, callers]) => callers <= total), "callers do not add up to more");
	await page.screenshot({path: join(shots, "callers.png")});
	await page.click("#callers");
	await page.waitForFunction(() => !window.guestprof.explorer.view.options.callers);
	await close(page);
});

await test("a flame stands on its root, an icicle hangs from it", async () => {
	const page = await open(flamePage);
	await page.waitForFunction(() => window.guestprof.explorer.flame.drawn.length);
	const before = await placeOf(page, "all");
	await page.keyboard.press("f");
	await page.waitForFunction(() => window.guestprof.explorer.flame.upright);
	const after = await placeOf(page, "all"), child = await placeOf(page, "schedule");
	check(after.y > before.y && child.y < after.y, "the root is below");
	await clickFrame(page, "schedule");
	await zoomed(page, "schedule", "clicks hit in a flame, too");
	await page.screenshot({path: join(shots, "flame.png")});
	await close(page);
});

await test("views of one process, of one vCPU, split, and with idle vCPUs", async () => {
	const page = await open(flamePage), total = () => page.evaluate(() =>
		window.guestprof.explorer.view.root.total);
	equal(await total(), 1654, "all that ran: 1,004 and 650");
	await page.selectOption("#process", {label: "<i>evil</i> (7)"});
	await page.waitForFunction(() => window.guestprof.explorer.view.options.process);
	equal(await total(), 500, "process 7");
	await page.selectOption("#process", "");
	await page.selectOption("#vcpu", "1");
	await page.waitForFunction(() => window.guestprof.explorer.view.options.vcpu === 1);
	equal(await total(), 650, "vCPU 1");
	await page.click("#idle");
	await page.waitForFunction(() => window.guestprof.explorer.view.options.idle);
	equal(await total(), 950, "and idle");
	await page.selectOption("#vcpu", "");
	await page.selectOption("#split", "process");
	await page.waitForFunction(() => window.guestprof.explorer.view.options.split);
	const groups = await page.evaluate(() => Object.fromEntries(
		window.guestprof.explorer.view.root.children.map((frame) => [frame.label, frame.total])));
	equal([groups["<i>evil</i> (7)"], groups["recursive (8)"]], [500, 650], "by process");
	await page.screenshot({path: join(shots, "split.png")});
	await clickFrame(page, "recursive (8)");
	await zoomed(page, "recursive (8)", "a group can be zoomed to");
	await page.goBack();
	await zoomed(page, "all", "and back");
	await close(page);
});

await test("hovering tells self, total and the share in the VMM", async () => {
	const page = await open(flamePage), place = await placeOf(page, "spin");
	await page.mouse.move(place.x, place.y);
	const tip = await page.locator("#tip").innerText();
	check(/self/.test(tip) && /total/.test(tip) && /%/.test(tip), tip);
	await page.mouse.move(5, 5);
	equal(await page.locator("#tip").isHidden(), true, "gone");
	await close(page);
});

await test("a comparison colours what took more and what took less", async () => {
	const page = await open(join(work, "diff.html"));
	const [more, less] = await page.evaluate(() => {
		const {view, flame} = window.guestprof.explorer, {root} = view;
		const frames = root.children.flatMap((frame) => [frame, ...frame.children]);
		const change = (frame) => frame.total / root.total - frame.base / root.base;
		frames.sort((a, b) => change(b) - change(a));
		return [frames[0], frames[frames.length - 1]].map((frame) => flame.fill(frame));
	});
	check(more !== less, `${more} and ${less}`);
	check((await page.locator("#legend").textContent()).includes("more than the base"), "legend");
	await page.keyboard.press("t");
	await page.waitForSelector("th.base:visible");
	await page.waitForSelector("tbody tr:nth-child(5)");
	await page.screenshot({path: join(shots, "diff.png")});
	await close(page);
});

await test("the pictures are well-formed, show names as text and hold no script", async () => {
	for (const name of ["hostile", "callers"]) {
		const page = await newPage();
		await page.goto(`file://${join(work, `${name}.svg`)}`);
		const found = await page.evaluate(() => [
			document.querySelectorAll("parsererror, script, img, a").length,
			[...document.querySelectorAll("title")].map((title) => title.textContent.split("\n")[0])]);
		equal(found[0], 0, "foreign elements");
		check(found[1].includes("</script><img src=x onerror=alert(1)>"), "the name");
		equal(found[1].includes("halted"), name === "callers", "idle only if asked for");
		await page.screenshot({path: join(shots, `${name}-svg.png`)});
		await close(page);
	}
});

const windowOf = (page) => page.evaluate(() => window.guestprof.timeline.window
	.map((time) => time * window.guestprof.timeline.unit / 1e6));

await test("no lane goes back, and its ticks are all there", async () => {
	for (const name of ["hostile", "large"]) {
		const page = await open(join(work, `${name}-timeline.html`));
		const lanes = await page.evaluate(() => window.guestprof.timeline.lanes.map((lane) => ({
			vcpu: lane.vcpu, ticks: lane.ticks.reduce((a, b) => a + b, 0),
			forward: lane.to.every((time, i) => time >= lane.from[i] && (!i || lane.from[i] >= lane.to[i - 1])),
		})));
		check(lanes.every((lane) => lane.forward), "forward");
		equal(lanes.map((lane) => lane.ticks), name === "large" ? [250000, 250000, 250000, 250000]
			: [1004, 950], "ticks");
		await close(page);
	}
});

await test("a range by mouse: its flame graph, and back", async () => {
	const page = await open(timelinePage), area = await page.locator("#lanes canvas").boundingBox();
	const x = (ms) => page.evaluate((at) => {
		const {timeline} = window.guestprof;
		return timeline.canvas.getBoundingClientRect().left + timeline.x(at * 1e6 / timeline.unit);
	}, ms);
	await page.mouse.move(await x(0), area.y + 60);
	await page.mouse.down();
	await page.mouse.move(await x(200), area.y + 60, {steps: 4});
	await page.screenshot({path: join(shots, "timeline-drag.png")});
	await page.mouse.up();
	await page.waitForFunction(() => window.guestprof.explorer.state.t);
	const [from, to] = await windowOf(page);
	check(Math.abs(from) < 2 && Math.abs(to - 200) < 2, `window ${from} to ${to}`);
	/* vCPU 0's first 200 ticks and the partial ones that they complete; vCPU 1 is halted. The first sample
	 * is at 1 ms, where the axis begins. */
	const [total, wanted] = await page.evaluate(() => {
		const {timeline, explorer} = window.guestprof, lane = timeline.lanes[0];
		let sum = 0;
		for (let i = 0; i < lane.to.length; i++)
			if (lane.to[i] >= timeline.window[0] && lane.to[i] <= timeline.window[1])
				sum += lane.ticks[i];
		return [explorer.view.root.total, sum];
	});
	equal(total, wanted, "ticks in the flame graph");
	check(total >= 200 && total <= 205, `${total} ticks`);
	await page.screenshot({path: join(shots, "timeline-range.png")});
	await page.goBack();
	await page.waitForFunction(() => !window.guestprof.explorer.state.t);
	equal(await page.evaluate(() => window.guestprof.explorer.view.root.total), 1654, "all again");
	await close(page);
});

await test("a range by keyboard, and by numbers", async () => {
	const page = await open(timelinePage);
	await page.focus("#lanes");
	await page.keyboard.press("+");
	await page.waitForFunction(() => window.guestprof.explorer.state.t);
	let [from, to] = await windowOf(page);
	check(Math.abs(to - from - 499.5) < 2, `half of it: ${from} to ${to}`);
	await page.keyboard.press("ArrowRight");
	await page.waitForFunction((before) => window.guestprof.timeline.window[0] *
		window.guestprof.timeline.unit / 1e6 > before + 1, from);
	const [later] = await windowOf(page);
	check(Math.abs(later - from - 99.9) < 2, `a fifth later: ${later}`);
	await page.keyboard.press("-");
	await page.keyboard.press("Home");
	await page.waitForFunction(() => !window.guestprof.explorer.state.t);
	await page.fill("#from", "0.599");
	await page.fill("#to", "0.651");
	await page.keyboard.press("Enter");
	await page.waitForFunction(() => window.guestprof.explorer.state.t);
	[from, to] = await windowOf(page);
	check(Math.abs(from - 599) < .1 && Math.abs(to - 651) < .1, `${from} to ${to}`);
	await page.screenshot({path: join(shots, "timeline-drops.png")});
	await close(page);
});

/* Where the mark of a console line is, in the row of marks. */
const markAt = (page, index) => page.evaluate((number) => {
	const {timeline} = window.guestprof, area = timeline.canvas.getBoundingClientRect();
	return [area.left + timeline.x(timeline.console.marks[number].time), area.top + 30];
}, index);

await test("console lines are marks: selected by mouse, keys and list, a phase between two of them", async () => {
	const page = await open(timelinePage), line = () => page.locator("#line").textContent();
	equal(await line(), "no line selected", "at first");
	await page.mouse.move(...await markAt(page, 1));
	check((await page.locator("#tip").innerText()).includes("<b>console</b></script>"), "its text");
	await page.mouse.click(...await markAt(page, 1));
	equal(await line(), "0.499000 s  <b>console</b></script>", "by mouse");
	equal(await windowOf(page).then(([from]) => from), 0, "no zoom");
	await page.screenshot({path: join(shots, "timeline-mark.png")});
	await page.focus("#lanes");
	await page.keyboard.press(".");
	equal(await line(), "0.799000 s  the last phase", "the next one, without its escape sequences");
	await page.keyboard.press(".");
	equal(await line(), "0.799000 s  the last phase", "it is the last one");
	await page.keyboard.press(",");
	await page.keyboard.press(",");
	equal(await line(), "0.199000 s  [    0.200000] the first phase", "back");
	await page.keyboard.press("n");
	await page.waitForFunction(() => window.guestprof.explorer.state.t);
	let [from, to] = await windowOf(page);
	check(Math.abs(from - 199) < .1 && Math.abs(to - 499) < .1, `up to the next line: ${from} to ${to}`);
	check(await page.evaluate(() => window.guestprof.explorer.view.root.total <
		window.guestprof.profile.files[0].running), "the flame graph of that phase");
	await page.goBack();
	await page.waitForFunction(() => !window.guestprof.explorer.state.t);
	await page.mouse.click(...await markAt(page, 1));
	await page.keyboard.down("Shift");
	await page.mouse.click(...await markAt(page, 2));
	await page.keyboard.up("Shift");
	await page.waitForFunction(() => window.guestprof.explorer.state.t);
	[from, to] = await windowOf(page);
	check(Math.abs(from - 499) < .1 && Math.abs(to - 799) < .1, `between two lines: ${from} to ${to}`);
	await page.click("#lines summary");
	const rows = page.locator("#lines tbody tr");
	await rows.first().waitFor();
	equal(await rows.count(), 2, "lines in the range");
	await rows.nth(0).locator("button").click();
	check((await line()).includes("<b>console"), "by the list");
	await page.screenshot({path: join(shots, "timeline-lines.png")});
	/* Selected from outside the window: it comes into view. */
	await page.keyboard.press("Escape");
	await page.focus("#lanes");
	await page.keyboard.press(",");
	[from, to] = await windowOf(page);
	check(from <= 199 && to >= 199, `in view: ${from} to ${to}`);
	await close(page);
});

await test("the lines of a guest that talks are thinned out and listed in part", async () => {
	const page = await open(join(work, "large-timeline.html"));
	check(await page.evaluate(() => window.guestprof.timeline.console.marks.length) <= 5000, "marks");
	check((await page.locator("#facts").innerText()).includes("5,000"), "console lines in the header");
	await page.click("#lines summary");
	await page.locator("#lines tbody tr").first().waitFor();
	equal(await page.locator("#lines tbody tr").count(), 400, "listed");
	await page.screenshot({path: join(shots, "timeline-many-lines.png")});
	await close(page);
});

await test("a lane says who ran, and where ticks were dropped", async () => {
	const page = await open(timelinePage), tipAt = async (ms, lane) => {
		const place = await page.evaluate(([at, row]) => {
			const {timeline} = window.guestprof, area = timeline.canvas.getBoundingClientRect();
			return [area.left + timeline.x(at * 1e6 / timeline.unit), area.top + timeline.head + row * 44 + 15];
		}, [ms, lane]);
		await page.mouse.move(...place);
		return page.locator("#tip").innerText();
	};
	check((await tipAt(800, 0)).includes("<i>evil</i> (7)"), "process 7 on vCPU 0");
	check((await tipAt(100, 1)).includes("halted"), "vCPU 1 is halted");
	check((await tipAt(625, 1)).includes("50 records"), "dropped");
	await close(page);
});

await test("a page that filters have left without samples says so", async () => {
	const path = join(work, "filtered.html");
	for (const command of ["flamegraph", "timeline"]) {
		run(command, "--pid", "99999", "-o", path, trace("hostile"));
		const page = await open(path);
		check((await page.locator("#empty").innerText()).includes("filters"), "the reason");
		check(/left out by filters\s*([\d,]+) of \1 ticks/.test(await page.locator("#facts").innerText()),
			await page.locator("#facts").innerText());
		await close(page);
	}
	run("flamegraph", "--pid", "7", "-o", path, trace("hostile"));
	const page = await open(path);
	check(await page.locator("#empty").isHidden(), "samples are there");
	check((await page.locator("#facts").innerText()).includes("left out by filters"), "some are left out");
	await close(page);
});

await test("a page of a million samples has at most 5 MB", async () => {
	const path = join(work, "large-flamegraph.html"), {size} = statSync(path), times = [];
	check(size <= 5e6, `${size} bytes`);
	for (let i = 0; i < 3; i++) {
		const page = await open(path);
		times.push(await page.evaluate(() => performance.timing.domInteractive -
			performance.timing.navigationStart));
		if (!i)
			await page.screenshot({path: join(shots, "large.png")});
		await close(page);
	}
	console.log(`# ${size} bytes; ready after ${times.join(", ")} ms`);
});

await test("pictures of all pages, light and dark", async () => {
	const pages = [["flamegraph", flamePage], ["timeline", timelinePage],
		["large-timeline", join(work, "large-timeline.html")]];
	if (process.env.PAGES_TRACE) {
		const svg = join(work, "own.svg"), page = await browser.newPage();
		run("flamegraph", "--svg", "-o", svg, process.env.PAGES_TRACE);
		await page.goto(`file://${svg}`);
		await page.screenshot({path: join(shots, "own-svg.png")});
		await page.close();
		for (const command of ["flamegraph", "timeline"]) {
			const path = join(work, `own-${command}.html`);
			run(command, "-o", path, process.env.PAGES_TRACE);
			pages.push([`own-${command}`, path]);
		}
	}
	for (const [name, path] of pages)
		for (const scheme of ["light", "dark"]) {
			const page = await open(path, scheme);
			await page.evaluate(() => new Promise(requestAnimationFrame));
			await page.screenshot({path: join(shots, `${name}-${scheme}.png`)});
			await close(page);
		}
});

await browser.close();
rmSync(home, {recursive: true, force: true});
console.log(`1..${tests}`);
process.exitCode = failed ? 1 : 0;
