/* Takes the README's pictures; see make.sh. */
import {chromium} from "playwright-core";
import {join} from "node:path";

const {CHROMIUM: executablePath, WORK: work} = process.env;
const browser = await chromium.launch({executablePath, headless: true,
	args: ["--no-sandbox", "--disable-gpu", "--no-first-run"]});

async function take(name, prepare) {
	const page = await browser.newPage({viewport: {width: 1200, height: 700}, colorScheme: "light"});
	await page.goto(`file://${join(work, `${name}.html`)}`);
	await page.waitForFunction(() => window.guestprof);
	if (prepare)
		await prepare(page);
	await page.evaluate(() => new Promise(requestAnimationFrame));
	await page.screenshot({path: join(work, `${name}.png`)});
	await page.close();
}

await take("flamegraph");
await take("timeline", async (page) => {
	/* The first line of the guest's own programs, the next ones, and what they did around them. */
	const line = () => page.locator("#line").textContent();
	await page.focus("#lanes");
	for (let before = ""; !(await line()).includes("init: first line") && before !== await line();) {
		before = await line();
		await page.keyboard.press(".");
	}
	await page.keyboard.press("n");
	await page.waitForFunction(() => window.guestprof.explorer.state.t);
	const zoomed = await page.evaluate(() => window.guestprof.explorer.state.t);
	await page.keyboard.press("-");
	await page.waitForFunction((before) => window.guestprof.explorer.state.t !== before, zoomed);
	await page.evaluate(() => document.activeElement.blur());
});
await browser.close();
