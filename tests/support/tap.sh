# shellcheck shell=sh disable=SC2154 # work: of who sources it
# Sourced by shell tests: results as TAP, and where one fails the last lines of what was
# printed. `shown` names the files, below $work.
count=0
shown="err out"

pass() {
	count=$((count + 1))
	echo "ok $count - $1"
}
fail() {
	count=$((count + 1))
	echo "not ok $count - $1"
	for file in $shown; do
		[ ! -e "$work/$file" ] || tail -n 30 "$work/$file"
	done | sed 's/^/# /'
}
skip() {
	count=$((count + 1))
	echo "ok $count - $1 # SKIP $2"
}
skip_all() {
	echo "1..0 # SKIP $1"
	exit 0
}
