#include "tools/filter_options.h"

#include "base/container.h"

#include <stdio.h>

bool filter_option(const char *program, int option, struct filter *filter)
{
	static const char *const names[] = {"pid",  "tid",  "comm", "cpu",
					    "mode", "from", "to",   "symbol"};
	struct error error = {0};

	if (option < FILTER_OPTION_FIRST || option >= FILTER_OPTION_FIRST + (int)ARRAY_SIZE(names))
		return false;
	if (!filter_set(filter, names[option - FILTER_OPTION_FIRST], optarg, &error))
		return true;
	fprintf(stderr, "%s: %s\n", program, error.text);
	return false;
}
