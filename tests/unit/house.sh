#!/bin/sh
# tests/lint/house.sh on a small tree: two rooms and one violation at a time. As TAP.
set -u
script=$PWD/tests/lint/house.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
count=0

# tree: room low with one pair, room high with two, a document.
tree() {
	rm -rf ./low ./high ./docs ./known ./dependencies
	mkdir low high docs dependencies
	echo '/* see low/one.c and docs/page.md */' >low/one.h
	echo '#include "low/one.h"' >low/one.c
	echo '#include "low/one.h"' >high/two.h
	printf '%s\n' '#include "high/two.h"' '#include <stdio.h>' >high/two.c
	: >high/three.h
	: >high/four.h
	printf '%s\n' '#include "high/three.h"' '#include "high/two.h"' '#include "high/four.h"' >high/three.c
	echo 'See `high/two.h` and [the first](../low/one.h); kernel/low/none.c is not ours.' >docs/page.md
	: >known
}

# compiled OBJECT SOURCE HEADER...: what the compiler would say of it.
compiled() {
	object=$1
	shift
	{
		printf 'build/%s.o: %s' "$object" "$1"
		shift
		for header; do
			printf ' \\\n build/include/%s/%s' "${object%%/*}" "$header"
		done
		echo
		printf '%s:\n' "$@"
	} >"dependencies/$(echo "$object" | tr / -).d"
}

check() {
	compiled low/one low/one.c low/one.h
	compiled high/two high/two.c high/two.h low/one.h
	compiled high/three high/three.c high/three.h high/four.h high/two.h low/one.h
	code=0
	printf '%s\n' 'low: ' 'high: low' | sh "$script" known dependencies/*.d >output 2>&1 || code=$?
}

# is WHAT GOT WANTED
is() {
	count=$((count + 1))
	if [ "$2" = "$3" ]; then
		echo "ok $count - house: $1"
	else
		echo "not ok $count - house: $1"
		printf '%s\n' "got:" "$2" "wanted:" "$3" | sed 's/^/# /'
	fi
}
says() {
	check
	is "$1" "$code $(cat output)" "1 house: $2"
}

tree
check
is "a tree without violations passes" "$code $(cat output)" "0 "

echo '#include "high/three.h"' >>high/two.c
says "two files that include each other are a circle" \
	"circle: high/three -> high/two (high/three.c:2) -> high/three (high/two.c:3)"
echo 'circle high/two -> high/three' >known
check
is "a known arrow is accepted" "$code $(cat output)" "0 "
tree
echo 'circle high/two -> high/three' >known
says "a known arrow that closes no circle fails" \
	'known: "circle high/two -> high/three" is no longer needed: take the line out'

tree
echo '#include "high/four.h"' >>low/one.c
says "an include upwards fails" \
	"low/one.c includes high/four.h (low/one.c:2: low does not see high)"
echo 'low/one.c includes high/four.h' >known
check
is "a known violation is accepted" "$code $(cat output)" "0 "
tree
echo 'low/one.c includes high/four.h' >known
says "a known violation that is gone fails" \
	'known: "low/one.c includes high/four.h" is no longer needed: take the line out'

tree
echo '#include "two.h"' >>high/three.c
says "an include without its folder fails" \
	"high/three.c includes two.h without its folder (high/three.c:4)"

tree
echo '/* low/three.h has more */' >>high/two.c
says "a path in a comment that does not exist fails" \
	"high/two.c names low/three.h, which does not exist (line 3)"
tree
echo 'See [it](one.md#part).' >>docs/page.md
says "a link that leads to nothing fails" "docs/page.md links to one.md, which does not exist (line 2)"

tree
i=0
while [ $i -lt 201 ]; do echo; i=$((i + 1)); done >high/three.h
says "a long header fails" "high/three.h is longer than 200 lines (it has 201)"

tree
: >high/two.h
says "a file on a list that no #include of the list names fails" \
	"low/one.h is used and no #include line names it (build/high/three.o)"
echo "1..$count"
