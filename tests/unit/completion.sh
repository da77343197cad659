#!/bin/sh
# Shell completion, in the shells themselves, as TAP: every command and every option that --help
# lists is offered, and every value that is offered is one the command takes.
set -u
guestprof=${GUESTPROF:-build/guestprof}
case $guestprof in /*) ;; *) guestprof=$PWD/$guestprof ;; esac
here=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp tests/golden/tasks.fxt "$work/boot.fxt"
mkdir "$work/bin" "$work/traces"
ln -s "$guestprof" "$work/bin/guestprof"
PATH=$work/bin:$PATH
cd "$work" || exit 1
touch vmlinuz
count=0

check() { # TITLE MISSING: what should be empty
	count=$((count + 1))
	if [ -z "$2" ]; then
		echo "ok $count - $1"
	else
		echo "not ok $count - $1:$2"
	fi
}
skip() {
	count=$((count + 1))
	echo "ok $count - $1 # SKIP $2"
}

# What is offered for the last of these words, one a line.
cat >bash-offers <<END
. '$here/completion/guestprof.bash'
COMP_WORDS=("\$@")
COMP_CWORD=\$((\$# - 1))
_guestprof
printf '%s\n' "\${COMPREPLY[@]}"
END
# zsh's own functions need a terminal: here they print what they are given.
cat >zsh-offers <<END
_describe() { print -l -- "\${(@)\${(@P)2}%%:*}" }
compadd() { while [[ \$1 == -* && \$1 != -- ]]; do shift; done; shift; print -l -- "\$@" }
_files() { [[ \${1-} == -g ]] && print -l -- \${~2} *(/N) || print -l -- * }
compset() { : }
words=("\$@") CURRENT=\$#
functions[ask]="\$(<'$here/completion/_guestprof')"
ask
END

offers() { # SHELL WORD...
	shell=$1
	shift
	case $shell in
	bash) bash --norc ./bash-offers "$@" ;;
	zsh) zsh -f ./zsh-offers "$@" ;;
	esac
}

# has SHELL TITLE "EXPECTED..." WORD...
has() {
	shell=$1
	title=$2
	expected=$3
	shift 3
	offers "$shell" "$@" >offered 2>&1
	missing=
	for one in $expected; do
		grep -qxe "$one" offered || missing="$missing $one"
	done
	check "$shell: $title" "$missing"
}

commands=$("$guestprof" --help | awk '/^  [a-z]/ { print $1 }')
for shell in bash zsh; do
	if ! command -v $shell >/dev/null; then
		skip "completion in $shell" "no $shell (Debian package $shell)"
		continue
	fi
	has $shell "all commands" "$commands" guestprof ""
	for command in $commands; do
		# By another way than the completion's: all that looks like an option in the left column.
		options=$("$guestprof" "$command" --help | grep -oE '^ +-.*' | sed 's/\([^ ]\)  .*/\1/' |
			grep -oE -- '--[a-z][a-z-]+' | sort -u)
		has $shell "options of $command" "$options --help" guestprof "$command" --
	done
	has $shell "short options" "-k -i -p -c -m -d -F -e -o -h" guestprof record -
	has $shell "formats" "folded perf pprof json" guestprof export ""
	has $shell "traces and directories" "boot.fxt traces" guestprof report ""
	check "$shell: nothing but traces" "$(grep vmlinuz offered)"
	has $shell "files for a kernel" "vmlinuz" guestprof record -k ""
	has $shell "files for an output" "boot.fxt" guestprof flamegraph --output ""
	has $shell "commands of the lab" "record report" guestprof lab ""
	has $shell "options of the lab's command" "--kernel --until" guestprof lab record --
	offers $shell guestprof report -n "" >offered
	check "$shell: nothing for a number" "$(cat offered)"
	# What is offered must be taken.
	refused=
	for value in $(offers $shell guestprof report --by ""); do
		"$guestprof" report --by "$value" boot.fxt >out 2>&1 || refused="$refused --by $value"
	done
	for value in $(offers $shell guestprof export speedscope --by ""); do
		"$guestprof" export speedscope --by "$value" boot.fxt >out 2>&1 || refused="$refused --by $value"
	done
	for value in $(offers $shell guestprof report --mode ""); do
		"$guestprof" report --mode "$value" boot.fxt >out 2>&1 || refused="$refused --mode $value"
	done
	for value in $(offers $shell guestprof export ""); do
		"$guestprof" export "$value" boot.fxt >out 2>&1 || refused="$refused $value"
	done
	for value in $(offers $shell guestprof record -e ""); do
		"$guestprof" record -e "$value" 2>out
		grep -q 'give a kernel' out || refused="$refused -e $value"
	done
	if [ $shell = bash ]; then # comes as three words
		offers $shell guestprof diff --tree = "" >offered
	else
		offers $shell guestprof diff --tree= >offered
	fi
	for value in $(cat offered); do
		"$guestprof" diff --tree="$value" boot.fxt boot.fxt >out 2>&1 || refused="$refused --tree $value"
	done
	check "$shell: every value offered is taken" "$refused"
	check "$shell: and there are some" "$([ "$(wc -l <offered)" = 2 ] || cat offered)"
done
echo "1..$count"
