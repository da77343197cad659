#!/bin/sh
# The programs of tests/thread under ThreadSanitizer, as TAP. They are built by
# `make sanitized-tests`; each exits with 0 when all went well.
set -u
directory=build/thread/tests/thread
count=0
for source in tests/thread/*.c; do
	name=${source##*/}
	name=${name%.c}
	count=$((count + 1))
	if [ ! -x "$directory/$name" ]; then
		echo "not ok $count - thread $name: $directory/$name was not built"
	elif output=$("$directory/$name" 2>&1); then
		echo "ok $count - thread $name: $(echo "$output" | tail -n 1)"
	else
		echo "$output" >&2
		echo "not ok $count - thread $name"
	fi
done
echo "1..$count"
