# Folds the text of perf script as FlameGraph's stackcollapse-perf.pl does, with every sample weighing
# its period: awk -v period=NS -f fold.awk
/^#/ { next }
/^\t/ {
	sub(/^\t *[0-9a-f]+ /, "")
	sub(/ \([^()]*\)$/, "")
	sub(/\+0x[0-9a-f]+$/, "")
	frames[++depth] = $0
	next
}
/^$/ {
	if (depth) {
		stack = command
		for (; depth > 0; depth--)
			stack = stack ";" frames[depth]
		ticks[stack] += weight
	}
	next
}
{
	match($0, / +[0-9]+\/[0-9]+ +\[[0-9]+\] +[0-9.]+: /)
	command = substr($0, 1, RSTART - 1)
	gsub(/ /, "_", command)
	weight = $(NF - 1) / period
}
END {
	for (stack in ticks)
		print stack, ticks[stack]
}
