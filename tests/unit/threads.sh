#!/bin/sh
# The programs of tests/thread under ThreadSanitizer, as TAP. They are built by
# `make sanitized-tests`; each exits with 0 when all went well, with 77 when it lacks something.
set -u
directory=build/thread/tests/thread
count=0
for source in tests/thread/*.c; do
	name=${source##*/}
	name=${name%.c}
	count=$((count + 1))
	if [ ! -x "$directory/$name" ]; then
		echo "not ok $count - thread $name: $directory/$name was not built"
		continue
	fi
	code=0
	output=$("$directory/$name" 2>&1) || code=$?
	case $code in
	0) echo "ok $count - thread $name: $(echo "$output" | tail -n 1)" ;;
	77) echo "ok $count - thread $name # SKIP $(echo "$output" | tail -n 1)" ;;
	*)
		echo "$output" >&2
		echo "not ok $count - thread $name"
		;;
	esac
done
echo "1..$count"
