/* The options of commands that sample: the same words with the same meaning everywhere. */
#ifndef TOOLS_RECORD_SAMPLING_OPTIONS_H
#define TOOLS_RECORD_SAMPLING_OPTIONS_H

#include <guestprof/sampler.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SAMPLING_SYMBOL_FILES_MAX 8
#define SAMPLING_VCPUS_MAX 1024
#define SAMPLING_OUTPUT "guestprof.fxt" /* unless -o gives another */

struct sampling_options {
	uint64_t period_ns;   /* 0: no samples; events for hardware events */
	bool frequency_given; /* -F */
	bool period_given;    /* --period */
	const char *event;    /* the tick source's name */
	gp_tick_source_t source;
	uint32_t jitter_percent;
	uint32_t sampled_vcpus[SAMPLING_VCPUS_MAX];
	size_t sampled_vcpu_count; /* 0: all */
	uint32_t depth;
	uint64_t duration_ns;
	const char *output;
	/* Not an option: somebody follows the trace, and waits here for a byte that says that it is
	 * open and empty; -1: nobody. */
	int ready_fd;
	bool json;
	const char *symbol_files[SAMPLING_SYMBOL_FILES_MAX]; /* FILE or FILE@BASE */
	unsigned symbol_file_count;
	const char
		*symfs; /* where copies of the guest's programs are; NULL: nowhere in particular */
};

/* Codes of long options; a command's own begin behind them. */
enum sampling_option {
	SAMPLING_OPTION_DEPTH = 256,
	SAMPLING_OPTION_DURATION,
	SAMPLING_OPTION_JSON,
	SAMPLING_OPTION_SYMBOLS,
	SAMPLING_OPTION_SYMFS,
	SAMPLING_OPTION_PERIOD,
	SAMPLING_OPTION_JITTER,
	SAMPLING_OPTION_SAMPLE_CPUS,
	SAMPLING_OPTION_END,
};

#define SAMPLING_SHORT_OPTIONS "F:e:o:"
/* Rows of a struct option array. */
#define SAMPLING_LONG_OPTIONS                                                          \
	{"frequency", required_argument, NULL, 'F'},                                   \
		{"period", required_argument, NULL, SAMPLING_OPTION_PERIOD},           \
		{"event", required_argument, NULL, 'e'},                               \
		{"jitter", required_argument, NULL, SAMPLING_OPTION_JITTER},           \
		{"sample-cpus", required_argument, NULL, SAMPLING_OPTION_SAMPLE_CPUS}, \
		{"depth", required_argument, NULL, SAMPLING_OPTION_DEPTH},             \
		{"duration", required_argument, NULL, SAMPLING_OPTION_DURATION},       \
		{"output", required_argument, NULL, 'o'},                              \
		{"json", no_argument, NULL, SAMPLING_OPTION_JSON},                     \
		{"symbols", required_argument, NULL, SAMPLING_OPTION_SYMBOLS},         \
	{                                                                              \
		"symfs", required_argument, NULL, SAMPLING_OPTION_SYMFS                \
	}

/* What --help says of those in the sampling part; -o, --duration and --json are the command's to
 * tell, with what they mean there. */
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

/* Takes one option, its argument in getopt's `optarg`. Returns -1 when it was one of these, else
 * the exit code (what is wrong was printed, as from `command`). Call it for these only:
 * sampling_options_has(). */
bool sampling_options_has(int option);
int sampling_options_take(const char *command, int option, char *argument,
			  struct sampling_options *options);

/* After the last one: those that exclude each other. The same codes. */
int sampling_options_check(const char *command, struct sampling_options *options);

/* For a command's own options. */
bool sampling_parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *value);
bool sampling_parse_seconds(const char *text, uint64_t *ns);
/* Prints what is wrong, `format` with one %s. Returns the exit code. */
int sampling_bad_option(const char *command, const char *format, const char *value);

#endif
