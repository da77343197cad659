#!/bin/sh
# Checks the rules of the house (docs/architecture.md) that the compiler does not: `make lint` runs it.
#
#   tests/lint/house.sh KNOWN DEPENDENCY-FILE...     the rooms on standard input
#
# Standard input: one line "ROOM: ROOM..." for each room, lowest first, with the rooms that it sees.
# The dependency files are the compiler's (-MMD), one for each object of the product. From the top
# of the tree it checks that
#
# - an include goes to the same room, to a room that this one sees, or to the public headers, and a
#   room sees only rooms below it;
# - there is no circle among files, X.c and X.h being one;
# - an include names a folder;
# - a folder holds at most 30 source files, a .c file 600 lines, a header 200;
# - paths of this tree that comments, scripts and documents name exist, and so do the targets of links
#   in documents.
#
# The compiler's lists hold indirect includes as well, so the arrows are the #include lines of each file
# on a list. A list with a file that no such line explains fails: the graph would lack an arrow.
#
# KNOWN lists the violations that are accepted for now, as this script prints them, and, as
# "circle A -> B", the arrows without which there is no circle. One that is no longer needed fails, too.
set -u
export LC_ALL=C

if [ $# -lt 2 ]; then
	echo "usage: tests/lint/house.sh KNOWN DEPENDENCY-FILE..." >&2
	exit 2
fi
known=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/rooms"
for list; do
	[ -e "$list" ] || {
		echo "house: no $list: build first" >&2
		exit 2
	}
done

# The project's files of each object: "OBJECT FILE". Rooms are reached through BUILD/include/ROOM/.
sed -E 's/\\$//; s,[^ ]*/include/[^ /]+/([^ ]),\1,g' "$@" | awk '
	/^[^ ]+:$/ { next } # -MP
	{ first = 1 }
	/^[^ ]+\.o:/ { object = $1; sub(/:$/, "", object); first = 2 }
	{ for (i = first; i <= NF; i++) if ($i !~ /^\//) print object, $i }
' | sed 's, guestprof/, include/guestprof/,' | sort -u >"$work/uses"
cut -d ' ' -f 2 "$work/uses" | sort -u >"$work/files"
xargs grep -Hn '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' <"$work/files" |
	sed -nE 's/^([^:]*):([0-9]+):[[:space:]]*#[[:space:]]*include[[:space:]]*(["<])([^">]*).*/\1 \2 \3 \4/p' >"$work/includes"
xargs wc -l <"$work/files" | awk '$2 != "total" { print $2, $1 }' >"$work/lengths"

awk -v rooms="$work/rooms" -v uses="$work/uses" -v lengths="$work/lengths" '
	function node(file) { sub(/\.[chS]$/, "", file); return file }
	function room_of(file, name) {
		for (name = file; sub(/\/[^\/]*$/, "", name);)
			if (name in order)
				return name
		return ""
	}
	function violation(text, detail) { print text "\t" detail }
	BEGIN {
		while ((getline line <rooms) > 0) {
			split(line, part, ": *")
			order[part[1]] = ++count
			n = split(part[2], seen, " ")
			for (i = 1; i <= n; i++) {
				sees[part[1], seen[i]] = 1
				if (!(seen[i] in order))
					violation("room " part[1] " sees " seen[i], "which is not below it")
			}
		}
		while ((getline line <uses) > 0) {
			split(line, part, " ")
			used[part[1], part[2]] = 1
			file[part[2]] = 1
			n_uses++
			use_object[n_uses] = part[1]
			use_file[n_uses] = part[2]
		}
		while ((getline line <lengths) > 0) {
			split(line, part, " ")
			limit = part[1] ~ /\.h$/ ? 200 : part[1] ~ /\.c$/ ? 600 : 0
			if (limit && part[2] > limit)
				violation(part[1] " is longer than " limit " lines", "it has " part[2])
			folder = part[1]
			sub(/\/[^\/]*$/, "", folder)
			sources[folder]++
		}
		for (folder in sources)
			if (sources[folder] > 30)
				violation("folder " folder " holds more than 30 source files", "it holds " sources[folder])
	}
	{
		from = $1; to = $4; at = $1 ":" $2
		if (to ~ /^guestprof\//)
			to = "include/" to
		else if ($3 == "<")
			next
		else if (to !~ /\// || to ~ /^\.\.?\//) {
			violation(from " includes " to " without its folder", at)
			next
		}
		if (!(to in file))
			next # not in this build
		includers[to] = includers[to] " " from
		if (node(from) != node(to))
			print "arrow", node(from), node(to), at
		mine = room_of(from); other = room_of(to)
		if (mine != other && other != "" && (mine == "" || !((mine, other) in sees)))
			violation(from " includes " to, at ": " (mine == "" ? "a public header" : mine) " does not see " other)
	}
	END {
		for (i = 1; i <= n_uses; i++) {
			n = split(includers[use_file[i]], includer, " ")
			for (found = use_file[i] ~ /\.[cS]$/; n && !found; n--)
				found = (use_object[i], includer[n]) in used
			if (!found)
				violation(use_file[i] " is used and no #include line names it", use_object[i])
		}
	}
' "$work/includes" >"$work/found"
sed -n 's/^arrow //p' "$work/found" | sort -u -k 1,2 >"$work/arrows"
grep -v '^arrow ' "$work/found" | sort -u -t '	' -k 1,1 >"$work/violations"

# Paths in comments and documents. Nothing that could be part of a longer path stands before one. Linux has tools/perf and
# tools/lib/perf, Fuchsia a docs/reference.
text_files() {
	find . \( -path ./build -o -path ./.git -o -path ./tests/golden -o -path ./tests/fuzz/corpus \) -prune -o \
		-type f \( -name '*.[chS1]' -o -name '*.md' -o -name '*.sh' -o -name '*.mk' -o -name Makefile \
		-o -path ./tests/run -o -path './tests/*/run' -o -path './.ci/run' -o -path './debian/*' \) -print | sed 's,^\./,,'
}
folders=$(find . -maxdepth 1 -type d -name '[a-z]*' ! -name build ! -name include |
	sed 's,^\./,,' | tr '\n' '|')
folders="${folders}include/guestprof|profile"
text_files | xargs grep -HnoE "(^|[^A-Za-z0-9_./\$}-])($folders)(/[A-Za-z0-9_.-]+)+\.(c|h|S|sh|md|py|mjs|js|css|mk)([^A-Za-z0-9_*]|\$)" |
	sed -E 's/^([^:]*):([0-9]+):[^A-Za-z0-9]?(.*[A-Za-z0-9])[^A-Za-z0-9]?$/\1 \2 \3/' |
	grep -vE ' (tools/(lib/)?perf|docs/reference)/' | grep -v '^tests/unit/house\.sh ' |
	while read -r file line path; do
		[ -e "$path" ] || printf '%s names %s, which does not exist\tline %s\n' "$file" "$path" "$line"
	done >>"$work/violations"
# Links of documents: [text](target), from the folder of the document.
text_files | grep '\.md$' | xargs grep -HnoE '\]\([^)#: ]+[)#]' | sed -E 's/^([^:]*):([0-9]+):\]\(([^)#]*).*/\1 \2 \3/' |
	while read -r file line target; do
		[ -e "$(dirname "$file")/$target" ] || printf '%s links to %s, which does not exist\tline %s\n' "$file" "$target" "$line"
	done >>"$work/violations"

# Circles: files that no arrow leads to, or from, are taken away until nothing changes. What is left
# holds a circle, and a walk finds it.
awk -v known="$known" -v violations="$work/violations" '
	BEGIN {
		while ((getline line <known) > 0) {
			if (line ~ /^[ \t]*(#|$)/)
				continue
			if (split(line, part, " ") == 4 && part[1] == "circle" && part[3] == "->")
				exempt[part[2] " " part[4]] = 1
			else
				accepted[line] = 1
		}
	}
	{ if (($1 " " $2) in exempt) taken[$1 " " $2] = $3; else { n++; from[n] = $1; to[n] = $2; at[n] = $3 } }
	# What is left of the arrows when all that are in no circle are gone; alive[] says which.
	function prune(   i, changed) {
		for (i = 1; i <= n; i++)
			alive[i] = 1
		do {
			changed = 0
			split("", into); split("", out_of)
			for (i = 1; i <= n; i++)
				if (alive[i]) { into[to[i]] = 1; out_of[from[i]] = 1 }
			for (i = 1; i <= n; i++)
				if (alive[i] && !((from[i] in into) && (to[i] in out_of))) { alive[i] = 0; changed = 1 }
		} while (changed)
	}
	function reaches(start, goal,   i, changed, reached) {
		reached[start] = 1
		do {
			changed = 0
			for (i = 1; i <= n; i++)
				if ((from[i] in reached) && !(to[i] in reached)) { reached[to[i]] = 1; changed = 1 }
		} while (changed)
		return goal in reached
	}
	function fail(text) { print "house: " text; failures++ }
	END {
		for (;;) {
			prune()
			for (i = 1; i <= n && !alive[i]; i++)
				;
			if (i > n)
				break
			# Follow arrows until a file comes again.
			split("", seen); length_of_path = 0; place = from[i]
			while (!(place in seen)) {
				seen[place] = ++length_of_path
				for (i = 1; i <= n; i++)
					if (alive[i] && from[i] == place) { path[length_of_path] = i; place = to[i]; break }
			}
			text = "circle: " place
			for (i = seen[place]; i <= length_of_path; i++)
				text = text " -> " to[path[i]] " (" at[path[i]] ")"
			fail(text)
			# Look for the next one without the last arrow of this one.
			to[path[length_of_path]] = "-"
		}
		for (arrow in exempt) {
			split(arrow, part, " ")
			if (!(arrow in taken) || !reaches(part[2], part[1])) {
				fail(known ": \"circle " part[1] " -> " part[2] "\" is no longer needed: take the line out")
				n++; from[n] = part[1]; to[n] = part[2]
			}
		}
		while ((getline line <violations) > 0) {
			split(line, part, "\t")
			if (part[1] in accepted)
				needed[part[1]] = 1
			else
				fail(part[1] " (" part[2] ")")
		}
		for (line in accepted)
			if (!(line in needed))
				fail(known ": \"" line "\" is no longer needed: take the line out")
		exit failures > 0
	}
' "$work/arrows"
