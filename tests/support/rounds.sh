# shellcheck shell=sh
# shellcheck disable=SC2154 # $guestprof and $guest are those of who sources this
# How much a tiny guest has to do to take a while, for tests in the shell: sourced.

# rounds_of MILLISECONDS OPTION...: prints how many rounds of the tiny guest $guest, with these words on
# its command line, take about as long on this machine's KVM: CPUs and emulators are thousands of times apart.
rounds_of() {
	wanted=$1 rounds=1 took=0
	shift
	# Making a machine takes its time, too.
	time_rounds "$@"
	base=$took
	until [ $((took - base)) -ge $((wanted / 3)) ] || [ $rounds -ge 100000000 ]; do
		rounds=$((rounds * 4))
		time_rounds "$@" || break
	done
	[ $took -le "$base" ] || rounds=$((rounds * wanted / (took - base)))
	echo $((rounds > 0 ? rounds : 1))
}

# For rounds_of: sets $took, in milliseconds.
time_rounds() {
	begin=$(date +%s%N)
	"$guestprof" record -F 0 -m 16M -k "$guest" -p "$* rounds=$rounds" --timeout 60 \
		>/dev/null 2>&1 </dev/null || return 1
	took=$((($(date +%s%N) - begin) / 1000000))
}
