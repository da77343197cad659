#include "tools/options.h"

#include "tools/command.h"
#include "tools/output.h"

#include <stdlib.h>
#include <string.h>

int options_parse(const struct options *options, int argc, char **argv)
{
	int option;

	argv[0] = options->program;
	optind = 1;
	while ((option = getopt_long(argc, argv, options->letters, options->names, NULL)) != -1) {
		bool good;

		if (option == 'h') {
			if (options->help)
				fputs(options->help, stdout);
			else
				options->print_help(stdout);
			return EXIT_SUCCESS;
		}
		if (option == '?') /* getopt has said what is wrong */
			return EXIT_USAGE;
		if (option >= FILTER_OPTION_FIRST)
			good = filter_option(options->program, option, options->filter);
		else
			good = options->take(options->context, option);
		if (!good)
			return EXIT_USAGE;
	}
	return -1;
}

static bool is_digit(char letter)
{
	return letter >= '0' && letter <= '9';
}

bool option_number(const char *program, const char *name, const char *text, size_t *number)
{
	char *end;
	size_t value = strtoul(text, &end, 10);

	if (*end || !is_digit(*text)) {
		fprintf(stderr, "%s: %s %s: give a number\n", program, name, text);
		return false;
	}
	*number = value;
	return true;
}

bool option_percent(const char *program, const char *name, const char *text, double most,
		    double *percent)
{
	char *end;
	double value = strtod(text, &end);

	if (*end == '%')
		end++;
	if (*end || !is_digit(*text) || !(value >= 0 && value <= most)) {
		fprintf(stderr, "%s: %s %s: give percent, 0 to %g\n", program, name, text, most);
		return false;
	}
	*percent = value;
	return true;
}

bool option_tree(const char *program, const char *text, enum option_shape *shape)
{
	if (text && strcmp(text, "callees") && strcmp(text, "callers")) {
		fprintf(stderr, "%s: --tree=%s: give callers or callees\n", program, text);
		return false;
	}
	*shape = text && !strcmp(text, "callers") ? SHAPE_CALLERS : SHAPE_CALLEES;
	return true;
}

bool option_trace(const char *program, int argc, char **argv, const char **path)
{
	if (optind < argc)
		*path = argv[optind++];
	if (optind < argc) {
		fprintf(stderr, "%s: '%s': give one trace\n", program, argv[optind]);
		return false;
	}
	if (!**path) {
		fprintf(stderr, "%s: '': give a trace\n", program);
		return false;
	}
	output_protect(*path);
	return true;
}
