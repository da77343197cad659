/* guestprof report: where the time went, as text. */
#include "command.h"

#include "base/address.h"
#include "profile/trace.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

/* Documentation/arch/x86/x86_64/mm.rst: "module mapping space". */
#define MODULES_START UINT64_C(0xffffffffa0000000)
#define MODULES_END UINT64_C(0xffffffffff000000)
#define DEFAULT_LINES 30
#define MODES 6
#define STACK_ENDS 8

static const char help[] =
	"usage: guestprof report [OPTIONS] [FILE]\n"
	"Shows which functions of a recorded guest took the time. FILE is guestprof.fxt unless\n"
	"given.\n"
	"\n"
	"  -n, --lines N    functions to show (default: 30; 0: all)\n"
	"  -h, --help\n"
	"\n"
	"self: the guest was in the function itself; total: in it or in what it called. "
	"Percentages\n"
	"are of the samples in which a vCPU ran. Exit codes: 0 shown, 1 the file cannot be read,\n"
	"2 bad command line.\n"
	"\n"
	"Example: guestprof report -n 10 boot.fxt\n";

/* Samples whose address has no name are counted by what is known of it. */
enum unnamed {
	UNNAMED_USER,
	UNNAMED_MODULE,
	UNNAMED_KERNEL,
	UNNAMED_LOW,
	UNNAMED_KINDS,
};
static const char *const unnamed_names[UNNAMED_KINDS] = {
	"[user]", "[kernel module]", "[kernel, no symbol]", "[early boot, no symbol]"};

struct line {
	const char *name;
	uint32_t name_bytes;
	uint64_t self;
	uint64_t total;
	uint64_t last_sample; /* so that a recursive function counts once per sample */
};

/* The line of an address that was looked up before: most addresses come again and again. */
struct known {
	uint64_t address;
	struct line *line; /* NULL: none yet */
	bool inner;        /* a return address */
	bool user;
};
#define KNOWN_BITS 14

struct profile {
	struct known known[1 << KNOWN_BITS];
	/* One line per symbol of the trace, group by group, then the unnamed ones. */
	struct line *lines;
	size_t line_count;
	size_t group_start[TRACE_SYMBOL_GROUPS];
	uint64_t ticks;
	uint64_t running;
	uint64_t modes[MODES];
	uint64_t ends[STACK_ENDS];
};

static enum unnamed classify(const struct fxt_sample *sample, uint64_t address)
{
	if (address >= MODULES_START && address < MODULES_END)
		return UNNAMED_MODULE;
	if (address >= GUEST_KERNEL_HALF)
		return UNNAMED_KERNEL;
	return sample->mode == FXT_MODE_GUEST_USER ? UNNAMED_USER : UNNAMED_LOW;
}

static struct line *look_up(struct profile *profile, const struct trace *trace,
			    const struct fxt_sample *sample, size_t frame)
{
	const struct trace_symbol *symbol = trace_find_symbol(trace, sample, frame);

	if (!symbol)
		return &profile->lines[profile->line_count - UNNAMED_KINDS +
				       classify(sample, sample->stack[frame])];
	for (int group = 0; group < TRACE_SYMBOL_GROUPS; group++) {
		const struct trace_symbols *symbols = &trace->symbols[group];

		if (symbols->count && symbol >= symbols->entries &&
		    symbol < symbols->entries + symbols->count)
			return &profile->lines[profile->group_start[group] +
					       (size_t)(symbol - symbols->entries)];
	}
	return &profile->lines[profile->line_count - 1];
}

static struct line *line_of(struct profile *profile, const struct trace *trace,
			    const struct fxt_sample *sample, size_t frame)
{
	uint64_t address = sample->stack[frame];
	bool user = sample->mode == FXT_MODE_GUEST_USER;
	/* Fibonacci hashing: 2^64 / golden ratio. */
	struct known *known =
		&profile->known[address * UINT64_C(0x9e3779b97f4a7c15) >> (64 - KNOWN_BITS)];

	if (!known->line || known->address != address || known->inner != (frame > 0) ||
	    known->user != user)
		*known = (struct known){address, look_up(profile, trace, sample, frame), frame > 0,
					user};
	return known->line;
}

static void add_sample(struct profile *profile, const struct trace *trace,
		       const struct fxt_sample *sample, uint64_t ticks, uint64_t number)
{
	profile->ticks += ticks;
	profile->modes[sample->mode < MODES ? sample->mode : 0] += ticks;
	if (sample->mode == FXT_MODE_HALTED || sample->mode == FXT_MODE_NOT_STARTED ||
	    !sample->depth)
		return;
	profile->running += ticks;
	profile->ends[sample->stack_end < STACK_ENDS ? sample->stack_end : 0] += ticks;
	for (size_t frame = 0; frame < sample->depth; frame++) {
		struct line *line = line_of(profile, trace, sample, frame);

		if (!frame)
			line->self += ticks;
		if (line->last_sample != number)
			line->total += ticks;
		line->last_sample = number;
	}
}

static bool build(struct profile *profile, struct trace *trace)
{
	struct fxt_sample sample;
	uint64_t ticks, number = 0;
	size_t at = 0;

	for (int group = 0; group < TRACE_SYMBOL_GROUPS; group++)
		profile->line_count += trace->symbols[group].count;
	profile->line_count += UNNAMED_KINDS;
	profile->lines = calloc(profile->line_count, sizeof(*profile->lines));
	if (!profile->lines)
		return false;
	for (int group = 0; group < TRACE_SYMBOL_GROUPS; group++) {
		profile->group_start[group] = at;
		for (size_t i = 0; i < trace->symbols[group].count; i++, at++) {
			profile->lines[at].name = trace->symbols[group].entries[i].name;
			profile->lines[at].name_bytes = trace->symbols[group].entries[i].name_bytes;
		}
	}
	for (int i = 0; i < UNNAMED_KINDS; i++, at++) {
		profile->lines[at].name = unnamed_names[i];
		profile->lines[at].name_bytes = (uint32_t)strlen(unnamed_names[i]);
	}
	while (trace_next_sample(trace, &sample, &ticks))
		add_sample(profile, trace, &sample, ticks, ++number);
	return true;
}

static int compare_lines(const void *left, const void *right)
{
	const struct line *a = left, *b = right;

	if (a->self != b->self)
		return a->self < b->self ? 1 : -1;
	if (a->total != b->total)
		return a->total < b->total ? 1 : -1;
	return a->name < b->name ? -1 : a->name > b->name;
}

static double percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

static void print_text(const char *label, const char *text)
{
	if (!*text)
		return;
	printf("# %s", label);
	trace_print_name(stdout, text, strlen(text));
	putchar('\n');
}

static void print_header(const char *path, const struct trace *trace, const struct profile *profile)
{
	static const char *const mode_names[MODES] = {"unknown", "guest user", "guest kernel",
						      "halted",  "in VMM",     "not started"};
	static const char *const end_names[STACK_ENDS] = {
		"unknown",     "root",           "depth limit", "not present",
		"bad pointer", "outside memory", "no rule",     "not walked"};
	const struct trace_info *info = &trace->info;

	print_text("trace:    ", path);
	print_text("guest:    ", info->banner);
	print_text("kernel:   ", info->kernel);
	print_text("command:  ", info->command_line);
	printf("# sampled:  %llu vCPU(s), every %.3f us, %.3f s\n", (unsigned long long)info->vcpus,
	       (double)info->period_ns / 1e3, (double)(info->last_ns - info->first_ns) / 1e9);
	printf("# ticks:    %llu stacks + %llu partial + %llu dropped\n",
	       (unsigned long long)info->stacks, (unsigned long long)info->partials,
	       (unsigned long long)info->dropped_records);
	printf("# vCPUs:   ");
	for (int mode = 0; mode < MODES; mode++)
		if (profile->modes[mode])
			printf(" %s %.1f %%", mode_names[mode],
			       percent(profile->modes[mode], profile->ticks));
	printf("\n# stacks:  ");
	for (int end = 0; end < STACK_ENDS; end++)
		if (profile->ends[end])
			printf(" %s %.1f %%", end_names[end],
			       percent(profile->ends[end], profile->running));
	putchar('\n');
	print_text("ended:    ", info->end_reason);
	if (!info->complete)
		printf("# INCOMPLETE: the trace %s at byte %zu of %zu%s%s\n",
		       info->broken ? "is damaged"
		       : info->cut  ? "is cut"
				    : "has no end record and stops",
		       info->good_bytes, info->bytes, info->problem ? ": " : "",
		       info->problem ? info->problem : "");
	else if (info->bad_records)
		printf("# DAMAGED: %llu record(s) skipped; the last at byte %zu: %s\n",
		       (unsigned long long)info->bad_records, info->problem_offset, info->problem);
}

static void print_lines(struct profile *profile, size_t most)
{
	size_t shown = 0, left = 0;

	qsort(profile->lines, profile->line_count, sizeof(*profile->lines), compare_lines);
	printf("#\n#   self     total   samples  function\n");
	for (size_t i = 0; i < profile->line_count; i++) {
		const struct line *line = &profile->lines[i];

		if (!line->total)
			continue;
		if (most && shown == most) {
			left++;
			continue;
		}
		shown++;
		printf("%6.2f %%  %6.2f %%  %8llu  ", percent(line->self, profile->running),
		       percent(line->total, profile->running), (unsigned long long)line->self);
		trace_print_name(stdout, line->name, line->name_bytes);
		putchar('\n');
	}
	if (left)
		printf("# and %zu more; -n 0 shows all\n", left);
}

int command_report(int argc, char **argv)
{
	static const struct option options[] = {
		{"lines", required_argument, NULL, 'n'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	static char program[] = "guestprof report";
	const char *path = "guestprof.fxt";
	static struct profile profile; /* larger than a stack frame should be */
	size_t most = DEFAULT_LINES;
	struct error error = {0};
	static struct trace trace; /* larger than a stack frame should be */
	int option;

	argv[0] = program;
	optind = 1;
	while ((option = getopt_long(argc, argv, "n:h", options, NULL)) != -1) {
		char *end;

		switch (option) {
		case 'n':
			most = strtoul(optarg, &end, 10);
			if (*end || *optarg < '0' || *optarg > '9') {
				fprintf(stderr, "guestprof report: -n %s: give a number of lines\n",
					optarg);
				return EXIT_USAGE;
			}
			break;
		case 'h':
			fputs(help, stdout);
			return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
		default:
			return EXIT_USAGE;
		}
	}
	if (optind < argc)
		path = argv[optind++];
	if (optind < argc) {
		fprintf(stderr, "guestprof report: '%s': give one trace\n", argv[optind]);
		return EXIT_USAGE;
	}
	if (trace_open(path, &trace, &error)) {
		fprintf(stderr, "guestprof report: %s\n", error.text);
		return EXIT_FAILURE;
	}
	if (!build(&profile, &trace)) {
		fputs("guestprof report: no memory\n", stderr);
		trace_close(&trace);
		return EXIT_FAILURE;
	}
	print_header(path, &trace, &profile);
	print_lines(&profile, most);
	free(profile.lines);
	trace_close(&trace);
	if (fflush(stdout) || ferror(stdout)) {
		perror("guestprof report: cannot write");
		return EXIT_FAILURE;
	}
	return EXIT_SUCCESS;
}
