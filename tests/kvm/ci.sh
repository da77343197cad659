#!/bin/sh
# The CI job of docs/ci.md, as it stands there, with a tiny guest: as TAP. A first run, an equal one,
# one that got slower, and a guest that does not come up.
set -u
guestprof=${GUESTPROF:-build/guestprof}
case $guestprof in /*) ;; *) guestprof=$PWD/$guestprof ;; esac
guest=${guestprof%/*}/tests/guests/long4
document=$PWD/docs/ci.md
. tests/support/rounds.sh
work=$(mktemp -d "${TMPDIR:-/tmp}/ci-test.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
count=0

check() { # TITLE CONDITION...
	count=$((count + 1))
	title=$1
	shift
	if "$@"; then
		echo "ok $count - $title"
	else
		echo "not ok $count - $title"
		sed 's/^/# /' "$work/out" | tail -n 20
	fi
}

# The first block of that language in the document.
block() {
	awk -v begin="\`\`\`$1" '$0 == "```" { if (inside) exit } inside { print } $0 == begin { inside = 1 }' "$document"
}

block sh >"$work/boot-profile.sh"
block yaml >"$work/job.yaml"
check "the document has the script" grep -q '^guestprof .*record' "$work/boot-profile.sh"
check "the job runs the script" grep -q 'run: sh ci/boot-profile.sh' "$work/job.yaml"
if command -v shellcheck >/dev/null; then
	check "shellcheck accepts it" shellcheck -S warning "$work/boot-profile.sh"
fi
# Variables of the job that the script knows, and what it leaves that the job keeps.
for word in KERNEL INITRD UNTIL UPDATE baseline.fxt boot.fxt console.log difference.html; do
	check "the job and the script agree on $word" [ "$(grep -l "$word" "$work/boot-profile.sh" \
		"$work/job.yaml" | wc -l)" = 2 ]
done
if python3 -c 'import yaml' 2>/dev/null; then
	check "the job is YAML" python3 -c 'import sys, yaml; yaml.safe_load(open(sys.argv[1]))["jobs"]["boot"]["steps"]' "$work/job.yaml"
fi

if ! (: <>/dev/kvm) 2>/dev/null; then
	count=$((count + 1))
	echo "ok $count - the script with a guest # SKIP /dev/kvm cannot be opened"
	echo "1..$count"
	exit 0
fi

# A second or more, on whatever KVM.
tree=$(rounds_of 1500)
nested=$(rounds_of 1500 run=nested)

mkdir "$work/bin"
ln -s "$guestprof" "$work/bin/guestprof"
PATH=$work/bin:$PATH
cd "$work" || exit 1
export KERNEL="$guest" RECORD="-m 16M --symbols $guest" TIMEOUT=60 LAB=no LIMIT=10%
unset GITHUB_STEP_SUMMARY

# run NAME=VALUE...: exit code in $code, output in out
run() {
	rm -f summary.md difference.html
	code=0
	env "$@" sh boot-profile.sh >out 2>&1 || code=$?
}

run APPEND="rounds=$tree" UPDATE=yes
check "the first run passes and becomes the baseline" [ "$code $(ls baseline.fxt)" = "0 baseline.fxt" ]
check "its summary is a report" grep -q '| leaf.*70 |$' summary.md
cp baseline.fxt first.fxt
run APPEND="rounds=$tree"
check "an equal run passes" [ "$code" = 0 ]
check "its summary is a comparison" grep -q 'functions changed by more than sampling explains' summary.md
check "no update was asked for" cmp -s baseline.fxt first.fxt
run APPEND="rounds=$nested run=nested" UPDATE=yes
check "another function takes the time: exit code 3" [ "$code" = 3 ]
check "it is named" grep -q 'slower by more than 10%' out
check "the summary shows it in bold" grep -q '\*\*+' summary.md
check "there is a page of the difference" grep -q '</html>' difference.html
check "the baseline stays the good one" cmp -s baseline.fxt first.fxt
run APPEND="rounds=$nested run=nested" COMPARE="--tree"
check "the same by call paths" [ "$code" = 3 ]
run APPEND="rounds=$((tree * 2))"
check "twice the work has the same share" [ "$code" = 0 ]
run APPEND="rounds=0" UNTIL="guest started" BASELINE=none.fxt UPDATE=yes
check "the text of UNTIL ends the boot with success" [ "$code $(ls none.fxt)" = "0 none.fxt" ]
run APPEND="end=halt" TIMEOUT=1
check "a guest that hangs: exit code 1" [ "$code" = 1 ]
check "with the end of its console" grep -q 'guest started' out
check "and a line in the summary" grep -q 'did not come up' summary.md
echo "1..$count"
