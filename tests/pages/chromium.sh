# shellcheck shell=sh disable=SC2154
# Finds Chromium and node, and fetches playwright-core, for scripts that drive pages: sourced.
#
#     $out      where node_modules is to be: build/tests/pages
#     skip()    is called with what is missing, and does not return
#
# Sets $chromium.
playwright=1.65.1

chromium=
for name in chromium chromium-browser google-chrome; do
	[ -n "$chromium" ] || chromium=$(command -v "$name") || chromium=
done
[ -n "$chromium" ] || skip "no chromium (Debian package chromium)"
command -v node >/dev/null || skip "no node (Debian package nodejs)"
if [ ! -e "$out/node_modules/playwright-core/package.json" ]; then
	command -v npm >/dev/null || skip "no npm (Debian package npm), and playwright-core is not there"
	mkdir -p "$out"
	timeout 120 npm install --silent --no-save --no-audit --no-fund --prefix "$out" \
		"playwright-core@$playwright" >"$out/npm.log" 2>&1 ||
		skip "playwright-core cannot be fetched with npm (see $out/npm.log)"
fi
