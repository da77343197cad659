#!/bin/sh
# The example program of the documentation, as TAP: installed headers and libraries, compiled outside
# of the tree with what pkg-config says, run on a tiny guest. And what make uninstall leaves.
set -u
guestprof=${GUESTPROF:-build/guestprof}
build=${guestprof%/*}
guest=$(cd "$build" && pwd)/tests/guests/long4
work=$(mktemp -d "${TMPDIR:-/tmp}/example-test.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
example=$(pwd)/docs/example/sampler.c
cc=${CC:-cc}
. tests/support/tap.sh
. tests/support/rounds.sh

for tool in make "$cc" pkg-config; do
	command -v "$tool" >/dev/null || {
		skip_all "there is no $tool"
	}
done

# With a prefix that is there, and with a packager's DESTDIR.
make --no-print-directory BUILD="$build" PREFIX="$work/installed" install \
	>"$work/out" 2>"$work/err" &&
	make --no-print-directory BUILD="$build" PREFIX=/opt/g DESTDIR="$work/package" install \
		>>"$work/out" 2>>"$work/err"
if [ -x "$work/installed/bin/guestprof" ] && [ -f "$work/package/opt/g/include/guestprof/machine.h" ] &&
	grep -q '^prefix=/opt/g$' "$work/package/opt/g/lib/pkgconfig/guestprof.pc"; then
	pass "make install, with PREFIX and DESTDIR"
else
	fail "make install, with PREFIX and DESTDIR"
fi

# The archive alone, for programs that link it.
cp -R "$work/installed" "$work/archive"
rm "$work"/archive/lib/*.so*
sed -i "s|^prefix=.*|prefix=$work/archive|" "$work/archive/lib/pkgconfig/guestprof.pc"

# compiles NAME DIRECTORY OPTION...
compiles() {
	name=$1
	directory=$2
	shift 2
	flags=$(PKG_CONFIG_PATH=$work/$directory/lib/pkgconfig pkg-config "$@" --cflags --libs guestprof)
	# shellcheck disable=SC2086 # words
	if (cd "$work" && "$cc" -std=c11 -Wall -Wextra -Werror "$example" $flags -o "$directory-example") \
		>"$work/out" 2>"$work/err"; then
		pass "the example compiles against the $name"
	else
		fail "the example compiles against the $name"
	fi
}
compiles "shared library" installed
compiles "archive" archive --static

# Nothing but the public names leaves the library.
if nm -D --defined-only "$work/installed/lib/libguestprof.so" | awk '{ print $3 }' >"$work/out" &&
	grep -q '^gp_machine_create$' "$work/out" && ! grep -v '^gp_' "$work/out" >"$work/err"; then
	pass "the shared library exports gp_ names only"
else
	fail "the shared library exports gp_ names only"
fi

# Each header by itself, in C and in C++.
alone() { # LANGUAGE COMPILER...
	language=$1
	shift
	for header in "$work"/installed/include/guestprof/*.h; do
		printf '#include <guestprof/%s>\n' "${header##*/}" >"$work/alone.$language"
		"$@" -Wall -Wextra -Werror -pedantic -I"$work/installed/include" -fsyntax-only \
			"$work/alone.$language" >>"$work/out" 2>>"$work/err" || return 1
	done
	printf '#include <guestprof/%s>\n' machine.h record.h sampler.h status.h >"$work/alone.$language"
	"$@" -Wall -Wextra -Werror -pedantic -I"$work/installed/include" -fsyntax-only \
		"$work/alone.$language" >>"$work/out" 2>>"$work/err"
}
: >"$work/out"
: >"$work/err"
if alone c "$cc" -std=c11; then pass "each header by itself in C11"; else fail "each header by itself in C11"; fi
if ! command -v g++ >/dev/null; then
	skip "each header by itself in C++" "there is no g++"
elif alone cc g++ -std=c++11; then
	pass "each header by itself in C++"
else
	fail "each header by itself in C++"
fi

# runs NAME PROGRAM
runs() {
	if ! (: <>/dev/kvm) 2>/dev/null; then
		skip "the example runs with the $1" "/dev/kvm cannot be opened"
		return
	fi
	if LD_LIBRARY_PATH="$work/installed/lib" timeout 60 "$work/$2" "$guest" "run=tree rounds=$rounds" \
		>"$work/out" 2>"$work/err" </dev/null &&
		grep -q '^the guest ended: powered off$' "$work/out" &&
		grep -q '^[1-9][0-9]* samples$' "$work/out" &&
		awk '/^ *[0-9]+  0x[0-9a-f]+$/ { if (lines++ && $1 > last) bad = 1; last = $1; sum += $1 }
			/samples$/ { samples = $1 }
			END { exit bad || lines < 2 || lines > 10 || sum > samples }' "$work/out"; then
		pass "the example runs with the $1"
	else
		fail "the example runs with the $1"
	fi
}
(: <>/dev/kvm) 2>/dev/null && rounds=$(rounds_of 1500)
runs "shared library" installed-example
runs "archive" archive-example

if (: <>/dev/kvm) 2>/dev/null && ! LD_LIBRARY_PATH="$work/installed/lib" "$work/installed-example" \
	"$work/none" >"$work/out" 2>"$work/err" </dev/null && grep -q "$work/none" "$work/err"; then
	pass "the example says what is wrong with a kernel"
elif ! (: <>/dev/kvm) 2>/dev/null; then
	skip "the example says what is wrong with a kernel" "/dev/kvm cannot be opened"
else
	fail "the example says what is wrong with a kernel"
fi

make --no-print-directory BUILD="$build" PREFIX="$work/installed" uninstall >"$work/out" 2>"$work/err" &&
	make --no-print-directory BUILD="$build" PREFIX=/opt/g DESTDIR="$work/package" uninstall \
		>>"$work/out" 2>>"$work/err"
find "$work/installed" "$work/package" ! -type d >"$work/out"
find "$work/installed" "$work/package" -name '*guestprof*' >>"$work/out"
if [ ! -s "$work/out" ]; then pass "make uninstall leaves nothing"; else fail "make uninstall leaves nothing"; fi
echo "1..$count"
