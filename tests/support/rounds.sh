# shellcheck shell=sh
# shellcheck disable=SC2154 # $guestprof and $guest are those of who sources this
# How much a tiny guest has to do to take a while, for tests in the shell: sourced.

# rounds_of MILLISECONDS OPTION...: prints how many rounds of the tiny guest $guest, with these words on
# its command line, take about as long on this machine's KVM: CPUs and emulators are thousands of times apart.
rounds_of() {
	wanted=$1
	shift
	rounds=1 took=0
	while :; do
		begin=$(date +%s%N)
		"$guestprof" record -F 0 -m 16M -k "$guest" -p "$* rounds=$rounds" --timeout 60 \
			>/dev/null 2>&1 </dev/null || break
		took=$((($(date +%s%N) - begin) / 1000000))
		# A machine has to be made as well.
		[ $took -lt $((wanted / 2 + 200)) ] && [ $rounds -lt 100000000 ] || break
		rounds=$((rounds * 4))
	done
	if [ $took -gt 0 ]; then
		rounds=$((rounds * wanted / took))
	fi
	[ $rounds -gt 0 ] || rounds=1
	echo $rounds
}
