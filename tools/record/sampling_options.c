#include "tools/record/sampling_options.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_FREQUENCY 1000
#define DEFAULT_DEPTH 64
#define DEFAULT_EVENTS 2000000 /* about a thousand a second on a busy CPU of 2 GHz */

/* By gp_tick_source_t. */
const char *const sampling_events[] = {
	[GP_TICK_TIMER] = "timer",
	[GP_TICK_CPU_CLOCK] = "cpu-clock",
	[GP_TICK_CYCLES] = "cycles",
	[GP_TICK_INSTRUCTIONS] = "instructions",
	NULL,
};

static bool parse_vcpu(const char *text, uint64_t *vcpu)
{
	char *end;

	*vcpu = strtoul(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && *vcpu < SAMPLING_VCPUS_MAX;
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
const char *sampling_take_vcpus(void *sampling, char *text)
{
	static const char hint[] = "give vCPUs such as 0,2-3";
	struct sampling_options *options = sampling;
	char *save = NULL;

	for (char *item = strtok_r(text, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
		char *dash = strchr(item, '-');
		uint64_t first, last;

		if (dash)
			*dash = 0;
		if (!parse_vcpu(item, &first) || !parse_vcpu(dash ? dash + 1 : item, &last) ||
		    !add_vcpus(options, first, last))
			return hint;
	}
	return options->sampled_vcpu_count ? NULL : hint;
}

const char *sampling_take_symbols(void *sampling, char *text)
{
	struct sampling_options *options = sampling;

	if (options->symbol_file_count == SAMPLING_SYMBOL_FILES_MAX)
		return "too many, 8 are possible";
	options->symbol_files[options->symbol_file_count++] = text;
	return NULL;
}

void sampling_options_init(struct sampling_options *options)
{
	*options = (struct sampling_options){
		.frequency = DEFAULT_FREQUENCY,
		.depth = DEFAULT_DEPTH,
		.output = SAMPLING_OUTPUT,
		.ready_fd = -1,
	};
}

int sampling_options_check(const char *program, struct sampling_options *options)
{
	bool counts_events =
		options->source == GP_TICK_CYCLES || options->source == GP_TICK_INSTRUCTIONS;

	options->event = sampling_events[options->source];
	if (options->jitter_percent && options->source != GP_TICK_TIMER)
		return option_bad(program, "--jitter and -e %s exclude each other", options->event);
	if (options->frequency_given && options->period_given)
		return option_bad(program, "-F and --period exclude each other");
	if (options->frequency_given && counts_events)
		return option_bad(program,
				  "-F counts time and -e %s does not: give --period EVENTS",
				  options->event);
	if (options->period_given)
		options->period_ns = options->period;
	else if (counts_events)
		options->period_ns = DEFAULT_EVENTS;
	else
		options->period_ns = options->frequency ? NS_PER_SECOND / options->frequency : 0;
	return -1;
}
