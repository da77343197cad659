#include "tools/record/sampling_options.h"

#include "tools/command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_FREQUENCY 1000
#define FREQUENCY_MAX 100000
#define DEFAULT_DEPTH 64
#define DEFAULT_EVENTS 2000000 /* about a thousand a second on a busy CPU of 2 GHz */
#define NS_PER_SECOND 1e9

int sampling_bad_option(const char *command, const char *format, const char *value)
{
	fprintf(stderr, "%s: ", command);
	fprintf(stderr, format, value);
	fprintf(stderr, "; %s --help lists the options\n", command);
	return EXIT_USAGE;
}

bool sampling_parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *value)
{
	char *end;
	unsigned long long number;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno || *end || number < least || number > most)
		return false;
	*value = number;
	return true;
}

bool sampling_parse_seconds(const char *text, uint64_t *ns)
{
	char *end;
	double seconds;

	/* Decimal: strtod() also knows hexadecimal numbers, infinities and spaces in front. */
	if (!*text || text[strspn(text, "0123456789.eE+-")] || *text == '+')
		return false;
	seconds = strtod(text, &end);
	if (*end || !(seconds > 0) || seconds > 1e9)
		return false;
	*ns = (uint64_t)(seconds * NS_PER_SECOND);
	return *ns > 0;
}

/* Adds vCPU `first` to `last`. */
static bool add_vcpus(struct sampling_options *options, uint64_t first, uint64_t last)
{
	for (uint64_t vcpu = first; vcpu <= last; vcpu++) {
		if (options->sampled_vcpu_count == SAMPLING_VCPUS_MAX)
			return false;
		options->sampled_vcpus[options->sampled_vcpu_count++] = (uint32_t)vcpu;
	}
	return first <= last;
}

/* A list such as 0,2-3. */
static bool parse_vcpus(char *text, struct sampling_options *options)
{
	char *save = NULL;

	for (char *item = strtok_r(text, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
		char *dash = strchr(item, '-');
		uint64_t first, last;

		if (dash)
			*dash = 0;
		if (!sampling_parse_number(item, 0, SAMPLING_VCPUS_MAX - 1, &first))
			return false;
		last = first;
		if (dash && !sampling_parse_number(dash + 1, 0, SAMPLING_VCPUS_MAX - 1, &last))
			return false;
		if (!add_vcpus(options, first, last))
			return false;
	}
	return options->sampled_vcpu_count > 0;
}

static bool parse_event(const char *name, struct sampling_options *options)
{
	static const char *const names[] = {
		[GP_TICK_TIMER] = "timer",
		[GP_TICK_CPU_CLOCK] = "cpu-clock",
		[GP_TICK_CYCLES] = "cycles",
		[GP_TICK_INSTRUCTIONS] = "instructions",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(name, names[i]))
			continue;
		options->source = (gp_tick_source_t)i;
		options->event = names[i];
		return true;
	}
	return false;
}

void sampling_options_init(struct sampling_options *options)
{
	*options = (struct sampling_options){
		.period_ns = (uint64_t)NS_PER_SECOND / DEFAULT_FREQUENCY,
		.event = "timer",
		.depth = DEFAULT_DEPTH,
		.output = SAMPLING_OUTPUT,
		.ready_fd = -1,
	};
}

bool sampling_options_has(int option)
{
	return (option >= SAMPLING_OPTION_DEPTH && option < SAMPLING_OPTION_END) || option == 'F' ||
	       option == 'e' || option == 'o';
}

int sampling_options_take(const char *command, int option, char *argument,
			  struct sampling_options *options)
{
	uint64_t number;

	switch (option) {
	case 'F':
		if (!sampling_parse_number(argument, 0, FREQUENCY_MAX, &number))
			return sampling_bad_option(
				command, "-F %s: give samples per second, 1 to 100000, or 0",
				argument);
		options->period_ns = number ? (uint64_t)NS_PER_SECOND / number : 0;
		options->frequency_given = true;
		return -1;
	case SAMPLING_OPTION_PERIOD:
		if (!sampling_parse_number(argument, GP_SAMPLER_PERIOD_MIN_NS,
					   GP_SAMPLER_PERIOD_MAX_NS, &options->period_ns))
			return sampling_bad_option(command,
						   "--period %s: give 10000 (ns or events) or more",
						   argument);
		options->period_given = true;
		return -1;
	case 'e':
		if (!parse_event(argument, options))
			return sampling_bad_option(
				command, "-e %s: give timer, cpu-clock, cycles or instructions",
				argument);
		return -1;
	case SAMPLING_OPTION_JITTER:
		if (!sampling_parse_number(argument, 0, GP_SAMPLER_JITTER_MAX, &number))
			return sampling_bad_option(
				command, "--jitter %s: give percent of the period, 0 to 90",
				argument);
		options->jitter_percent = (uint32_t)number;
		return -1;
	case SAMPLING_OPTION_SAMPLE_CPUS:
		if (!parse_vcpus(argument, options))
			return sampling_bad_option(
				command, "--sample-cpus %s: give vCPUs such as 0,2-3", argument);
		return -1;
	case SAMPLING_OPTION_DEPTH:
		if (!sampling_parse_number(argument, 1, GP_SAMPLER_DEPTH_MAX, &number))
			return sampling_bad_option(command,
						   "--depth %s: give a number of frames, 1 to 1024",
						   argument);
		options->depth = (uint32_t)number;
		return -1;
	case SAMPLING_OPTION_DURATION:
		if (!sampling_parse_seconds(argument, &options->duration_ns))
			return sampling_bad_option(command, "--duration %s: give seconds",
						   argument);
		return -1;
	case 'o':
		options->output = argument;
		return -1;
	case SAMPLING_OPTION_JSON:
		options->json = true;
		return -1;
	case SAMPLING_OPTION_SYMFS:
		options->symfs = argument;
		return -1;
	case SAMPLING_OPTION_SYMBOLS:
		if (options->symbol_file_count == SAMPLING_SYMBOL_FILES_MAX)
			return sampling_bad_option(
				command, "--symbols %s: too many, 8 are possible", argument);
		options->symbol_files[options->symbol_file_count++] = argument;
		return -1;
	default:
		return EXIT_USAGE;
	}
}

int sampling_options_check(const char *command, struct sampling_options *options)
{
	if (options->jitter_percent && options->source != GP_TICK_TIMER)
		return sampling_bad_option(command, "--jitter and -e %s exclude each other",
					   options->event);
	if (options->frequency_given && options->period_given)
		return sampling_bad_option(command, "%s", "-F and --period exclude each other");
	if (options->source == GP_TICK_CYCLES || options->source == GP_TICK_INSTRUCTIONS) {
		if (options->frequency_given)
			return sampling_bad_option(
				command, "-F counts time and -e %s does not: give --period EVENTS",
				options->event);
		if (!options->period_given)
			options->period_ns = DEFAULT_EVENTS;
	}
	return -1;
}
