/* The options of commands that sample: the same words with the same meaning everywhere. */
#ifndef TOOLS_RECORD_SAMPLING_OPTIONS_H
#define TOOLS_RECORD_SAMPLING_OPTIONS_H

#include "tools/options.h"

#include <guestprof/sampler.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SAMPLING_SYMBOL_FILES_MAX 8
#define SAMPLING_VCPUS_MAX 1024
#define SAMPLING_OUTPUT "guestprof.fxt" /* unless -o gives another */

struct sampling_options {
	/* As they were given. */
	uint64_t frequency;   /* 0: no samples */
	bool frequency_given; /* -F */
	uint64_t period;      /* --period: nanoseconds, or events */
	bool period_given;
	/* Of these two: 0: no samples; nanoseconds, or events with hardware events. */
	uint64_t period_ns;
	gp_tick_source_t source;
	const char *event; /* the source's name */
	uint64_t jitter_percent;
	uint32_t sampled_vcpus[SAMPLING_VCPUS_MAX];
	size_t sampled_vcpu_count; /* 0: all */
	uint64_t depth;
	uint64_t duration_ns;
	const char *output;
	/* Not an option: a process that follows the trace waits here for a byte, which says that
	 * the trace is open and empty; -1: there is none. */
	int ready_fd;
	bool json;
	const char *symbol_files[SAMPLING_SYMBOL_FILES_MAX]; /* FILE or FILE@BASE */
	unsigned symbol_file_count;
	const char *symfs; /* a directory with copies of the guest's programs; may be NULL */
};

/* Rows of a command's table of options. */
#define SAMPLING_ROWS(sampling)                                                                  \
	OPTION("frequency", 'F', OPTION_NUMBER, &(sampling)->frequency, .most = 100000,          \
	       .hint = "give samples per second, 1 to 100000, or 0",                             \
	       .given = &(sampling)->frequency_given),                                           \
		OPTION("period", 0, OPTION_NUMBER, &(sampling)->period,                          \
		       .least = GP_SAMPLER_PERIOD_MIN_NS, .most = GP_SAMPLER_PERIOD_MAX_NS,      \
		       .hint = "give 10000 (ns or events) or more",                              \
		       .given = &(sampling)->period_given),                                      \
		OPTION("event", 'e', OPTION_WORD, &(sampling)->source, .words = sampling_events, \
		       .hint = "give timer, cpu-clock, cycles or instructions"),                 \
		OPTION("jitter", 0, OPTION_NUMBER, &(sampling)->jitter_percent,                  \
		       .most = GP_SAMPLER_JITTER_MAX,                                            \
		       .hint = "give percent of the period, 0 to 90"),                           \
		OPTION("sample-cpus", 0, OPTION_CALL, sampling, .take = sampling_take_vcpus),    \
		OPTION("depth", 0, OPTION_NUMBER, &(sampling)->depth, .least = 1,                \
		       .most = GP_SAMPLER_DEPTH_MAX,                                             \
		       .hint = "give a number of frames, 1 to 1024"),                            \
		OPTION("duration", 0, OPTION_SECONDS, &(sampling)->duration_ns,                  \
		       .hint = "give seconds"),                                                  \
		OPTION("output", 'o', OPTION_TEXT, &(sampling)->output, ),                       \
		OPTION("json", 0, OPTION_FLAG, &(sampling)->json, ),                             \
		OPTION("symbols", 0, OPTION_CALL, sampling, .take = sampling_take_symbols),      \
		OPTION("symfs", 0, OPTION_TEXT, &(sampling)->symfs, )

extern const char *const sampling_events[];
const char *sampling_take_vcpus(void *sampling, char *text);
const char *sampling_take_symbols(void *sampling, char *text);

/* What --help says of those in the sampling part; -o, --duration and --json are in
 * each command's own help, with what they mean there. */
#define SAMPLING_HELP                                                                      \
	"      --period N          instead of -F: nanoseconds, or events with -e cycles\n" \
	"  -e, --event NAME        what ticks: timer (default), cpu-clock, cycles,\n"      \
	"                          instructions\n"                                         \
	"      --jitter PERCENT    displace each tick at random, 0 to 90 (default: 0)\n"   \
	"      --sample-cpus LIST  sample these vCPUs only, such as 0,2-3\n"               \
	"      --depth N           most frames per stack, 1 to 1024 (default: 64)\n"       \
	"      --symbols FILE[@BASE]  name addresses by this ELF file or System.map too\n" \
	"      --symfs DIR         look for the guest's programs and their symbols in\n"   \
	"                          DIR too\n"

void sampling_options_init(struct sampling_options *options);

/* After parsing: sets period_ns and event. Returns -1, or the exit code when some of the options
 * exclude each other (what is wrong is printed). */
int sampling_options_check(const char *program, struct sampling_options *options);

#endif
