# bash completion for guestprof(1).
#
# Commands, options and formats are asked of the program itself: --help is the one list of them, so
# that no option can be forgotten here. Only the values that some options take are listed below.
# shellcheck shell=bash

# _guestprof_commands: "record", "report" ...
_guestprof_commands() {
	"$1" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\)  *.*/\1/p'
}

# _guestprof_options PROGRAM COMMAND: what a line of the help has before its description.
_guestprof_options() {
	"$1" "$2" --help 2>/dev/null | sed -n 's/^ \{2,\}\(-.*\)$/\1/p' | sed 's/   *[^ ].*$//' |
		grep -oE -e '(^|[ ,])--?[A-Za-z][A-Za-z-]*' | tr -d ' ,'
	echo --help
}

# _guestprof_placeholder PROGRAM COMMAND OPTION: what stands for its value in the help; nothing when
# it takes none.
_guestprof_placeholder() {
	"$1" "$2" --help 2>/dev/null | sed -n 's/^ \{2,\}\(-.*\)$/\1/p' | sed 's/   *[^ ].*$//' |
		awk -v option="$3" '
			{ gsub(",", " ") }
			{ for (i = 1; i <= NF; i++) if ($i == option) found = 1 }
			found { if ($NF !~ /^-/) print $NF; exit }'
}

_guestprof_values() {
	case "$1 $2" in
	"report --by") echo "function process command thread vcpu mode module" ;;
	"export --by") echo "thread vcpu" ;;
	"record -e" | "record --event" | "top -e" | "top --event")
		echo "timer cpu-clock cycles instructions" ;;
	*" --mode") echo "user kernel halted vmm not-started" ;;
	*" --tree") echo "callees callers" ;;
	esac
}

_guestprof() {
	local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
	local command='' joined='' commands first=0 at value

	COMPREPLY=()
	commands=$(_guestprof_commands "$program")
	# The command; that of `lab` stands behind it.
	for ((at = 1; at < COMP_CWORD; at++)); do
		if [[ " ${commands//$'\n'/ } " == *" ${COMP_WORDS[at]} "* ]] &&
			[[ -z $command || $command == lab ]]; then
			command=${COMP_WORDS[at]}
			first=$at
		fi
	done
	# --option=value comes as three words.
	if [[ $word == = ]]; then
		word='' joined=1
	elif [[ $before == = ]]; then
		before=${COMP_WORDS[COMP_CWORD - 2]} joined=1
	fi
	if [[ -z $command ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$commands --help --version" -- "$word")
		return
	fi
	value=$(_guestprof_values "$command" "$before")
	# The value of --tree can only stand behind a '='.
	if [[ -n $value && ($before != --tree || -n $joined) ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$value" -- "$word")
		return
	fi
	if [[ $word == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_guestprof_options "$program" "$command")" -- "$word")
		return
	fi
	case $(_guestprof_placeholder "$program" "$command" "$before") in
	'') ;;                                     # the option before takes no value
	FILE* | OUT | BASE* | DIR* | PATH* | WHAT) # of --kernel: a directory, too
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
		return
		;;
	*) return ;; # a number or a name of the user's own
	esac
	if [[ $command == lab ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word")
	elif [[ $command == export && $((first + 1)) == "$COMP_CWORD" ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$("$program" export --help |
			sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p')" -- "$word")
	else
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -X '!*.fxt' -- "$word"; compgen -d -- "$word")
	fi
}

complete -F _guestprof guestprof
