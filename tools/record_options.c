#include "record_options.h"

#include "command.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_FREQUENCY 1000
#define FREQUENCY_MAX 100000
#define DEFAULT_DEPTH 64
#define DEFAULT_EVENTS 2000000 /* about a thousand a second on a busy CPU of 2 GHz */
#define DEFAULT_MEMORY (UINT64_C(512) << 20)
#define DEFAULT_OUTPUT "guestprof.fxt"
#define DEFAULT_COMMAND_LINE "console=ttyS0"
#define NS_PER_SECOND 1e9

static const char help[] =
	"usage: guestprof record -k KERNEL [OPTIONS]\n"
	"Boots a guest under guestprof's own virtual machine monitor and samples its vCPUs from "
	"the\n"
	"first instruction on. The guest's console is standard output; Ctrl-A x ends it.\n"
	"\n"
	"Guest:\n"
	"  -k, --kernel FILE       bzImage (vmlinuz) or ELF with a PVH note\n"
	"  -i, --initrd FILE       initramfs\n"
	"  -p, --append TEXT       kernel command line, passed on as it is "
	"(default: " DEFAULT_COMMAND_LINE ")\n"
	"  -c, --cpus N            vCPUs (default: 1)\n"
	"  -m, --memory SIZE       guest memory, with K, M or G (default: 512M)\n"
	"  -d, --disk FILE[,ro]    raw image or block device as /dev/vda, vdb ...; more than once\n"
	"\n"
	"Sampling:\n"
	"  -F, --frequency HZ      samples per second and vCPU (default: 1000; 0: boot, write no "
	"trace)\n"
	"      --period N          instead of -F: nanoseconds, or events with -e cycles\n"
	"  -e, --event NAME        what ticks: timer (default), cpu-clock, cycles, instructions\n"
	"      --jitter PERCENT    displace each tick at random, 0 to 90 (default: 0)\n"
	"      --sample-cpus LIST  sample these vCPUs only, such as 0,2-3\n"
	"      --depth N           most frames per stack, 1 to 1024 (default: 64)\n"
	"      --symbols FILE[@BASE]  name addresses by this ELF file or System.map too\n"
	"      --symfs DIR         look for the guest's programs and their symbols in DIR too\n"
	"  -o, --output FILE       the trace (default: " DEFAULT_OUTPUT ")\n"
	"\n"
	"End:\n"
	"      --until TEXT        when TEXT appears on the console\n"
	"      --duration SECONDS  after that long\n"
	"      --timeout SECONDS   after that long, as a failure\n"
	"\n"
	"      --json              a summary as one line of JSON on standard output at the end\n"
	"      --no-sandbox        do not confine this process (loud)\n"
	"  -h, --help\n"
	"\n"
	"Exit codes: 0 powered off, 10 reset, 11 triple fault, 12 --until seen, 13 --duration "
	"over,\n"
	"14 --timeout over, 15 Ctrl-A x, 16 SIGINT or SIGTERM, 17 guest panic, 20 KVM failed,\n"
	"21 this machine cannot run guests, 2 bad input, 1 anything else.\n"
	"\n"
	"Example: guestprof record -k vmlinuz -i initrd.img -c 2 -F 4000 --timeout 60 -o "
	"boot.fxt\n";

static int bad(const char *format, const char *value)
{
	fputs("guestprof record: ", stderr);
	fprintf(stderr, format, value);
	fputs("; guestprof record --help lists the options\n", stderr);
	return EXIT_USAGE;
}

static bool parse_number(const char *text, uint64_t least, uint64_t most, uint64_t *value)
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

static bool parse_size(const char *text, uint64_t *value)
{
	unsigned shift = 0;
	unsigned long long number;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	number = strtoull(text, &end, 10);
	switch (*end) {
	case 'k':
	case 'K':
		shift = 10;
		end++;
		break;
	case 'm':
	case 'M':
		shift = 20;
		end++;
		break;
	case 'g':
	case 'G':
		shift = 30;
		end++;
		break;
	case 0:
		/* A bare number is MiB, as elsewhere with -m. */
		shift = 20;
		break;
	default:
		return false;
	}
	if (errno || *end || !number || number > (UINT64_C(1) << 46) >> shift)
		return false;
	*value = (uint64_t)number << shift;
	return true;
}

static bool parse_seconds(const char *text, uint64_t *ns)
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

static int parse_disk(char *text, struct machine_config *machine)
{
	char *comma = strrchr(text, ',');
	bool read_only = comma && !strcmp(comma, ",ro");

	if (read_only)
		*comma = 0;
	if (!*text)
		return bad("-d '%s': give a file", text);
	if (machine->disk_count == MACHINE_DISKS_MAX)
		return bad("-d %s: too many disks, 15 are possible", text);
	machine->disks[machine->disk_count++] = (struct machine_disk){text, read_only};
	return -1;
}

/* Adds vCPU `first` to `last`. */
static bool add_vcpus(struct record_options *options, uint64_t first, uint64_t last)
{
	for (uint64_t vcpu = first; vcpu <= last; vcpu++) {
		if (options->sampled_vcpu_count == MACHINE_VCPUS_MAX)
			return false;
		options->sampled_vcpus[options->sampled_vcpu_count++] = (uint32_t)vcpu;
	}
	return first <= last;
}

/* A list such as 0,2-3. */
static bool parse_vcpus(char *text, struct record_options *options)
{
	char *save = NULL;

	for (char *item = strtok_r(text, ",", &save); item; item = strtok_r(NULL, ",", &save)) {
		char *dash = strchr(item, '-');
		uint64_t first, last;

		if (dash)
			*dash = 0;
		if (!parse_number(item, 0, MACHINE_VCPUS_MAX - 1, &first))
			return false;
		last = first;
		if (dash && !parse_number(dash + 1, 0, MACHINE_VCPUS_MAX - 1, &last))
			return false;
		if (!add_vcpus(options, first, last))
			return false;
	}
	return options->sampled_vcpu_count > 0;
}

static bool parse_event(const char *name, struct record_options *options)
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

enum long_option {
	OPTION_DEPTH = 256,
	OPTION_DURATION,
	OPTION_UNTIL,
	OPTION_TIMEOUT,
	OPTION_JSON,
	OPTION_SYMBOLS,
	OPTION_SYMFS,
	OPTION_NO_SANDBOX,
	OPTION_PERIOD,
	OPTION_JITTER,
	OPTION_SAMPLE_CPUS,
};

static const struct option long_options[] = {
	{"kernel", required_argument, NULL, 'k'},
	{"initrd", required_argument, NULL, 'i'},
	{"append", required_argument, NULL, 'p'},
	{"cpus", required_argument, NULL, 'c'},
	{"memory", required_argument, NULL, 'm'},
	{"disk", required_argument, NULL, 'd'},
	{"frequency", required_argument, NULL, 'F'},
	{"period", required_argument, NULL, OPTION_PERIOD},
	{"event", required_argument, NULL, 'e'},
	{"jitter", required_argument, NULL, OPTION_JITTER},
	{"sample-cpus", required_argument, NULL, OPTION_SAMPLE_CPUS},
	{"depth", required_argument, NULL, OPTION_DEPTH},
	{"duration", required_argument, NULL, OPTION_DURATION},
	{"until", required_argument, NULL, OPTION_UNTIL},
	{"timeout", required_argument, NULL, OPTION_TIMEOUT},
	{"output", required_argument, NULL, 'o'},
	{"json", no_argument, NULL, OPTION_JSON},
	{"symbols", required_argument, NULL, OPTION_SYMBOLS},
	{"symfs", required_argument, NULL, OPTION_SYMFS},
	{"no-sandbox", no_argument, NULL, OPTION_NO_SANDBOX},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

/* One option; -1 to go on. */
static int parse_option(int option, struct record_options *options)
{
	struct machine_config *machine = &options->machine;
	uint64_t number;

	switch (option) {
	case 'k':
		machine->kernel = optarg;
		return -1;
	case 'i':
		machine->initrd = optarg;
		return -1;
	case 'p':
		machine->command_line = optarg;
		return -1;
	case 'c':
		if (!parse_number(optarg, 1, UINT32_MAX, &number))
			return bad("-c %s: give a number of vCPUs", optarg);
		machine->vcpus = (unsigned)number;
		return -1;
	case 'm':
		if (!parse_size(optarg, &machine->memory))
			return bad("-m %s: give a size such as 512M or 4G", optarg);
		return -1;
	case 'd':
		return parse_disk(optarg, machine);
	case 'F':
		if (!parse_number(optarg, 0, FREQUENCY_MAX, &number))
			return bad("-F %s: give samples per second, 1 to 100000, or 0", optarg);
		options->period_ns = number ? (uint64_t)NS_PER_SECOND / number : 0;
		options->frequency_given = true;
		return -1;
	case OPTION_PERIOD:
		if (!parse_number(optarg, GP_SAMPLER_PERIOD_MIN_NS, GP_SAMPLER_PERIOD_MAX_NS,
				  &options->period_ns))
			return bad("--period %s: give 10000 (ns or events) or more", optarg);
		options->period_given = true;
		return -1;
	case 'e':
		if (!parse_event(optarg, options))
			return bad("-e %s: give timer, cpu-clock, cycles or instructions", optarg);
		return -1;
	case OPTION_JITTER:
		if (!parse_number(optarg, 0, GP_SAMPLER_JITTER_MAX, &number))
			return bad("--jitter %s: give percent of the period, 0 to 90", optarg);
		options->jitter_percent = (uint32_t)number;
		return -1;
	case OPTION_SAMPLE_CPUS:
		if (!parse_vcpus(optarg, options))
			return bad("--sample-cpus %s: give vCPUs such as 0,2-3", optarg);
		return -1;
	case OPTION_DEPTH:
		if (!parse_number(optarg, 1, 1024, &number))
			return bad("--depth %s: give a number of frames, 1 to 1024", optarg);
		options->depth = (uint32_t)number;
		return -1;
	case OPTION_DURATION:
		if (!parse_seconds(optarg, &options->duration_ns))
			return bad("--duration %s: give seconds", optarg);
		return -1;
	case OPTION_TIMEOUT:
		if (!parse_seconds(optarg, &options->timeout_ns))
			return bad("--timeout %s: give seconds", optarg);
		return -1;
	case OPTION_UNTIL:
		if (!*optarg || strlen(optarg) > 1024)
			return bad("--until '%s': give a text of 1 to 1024 bytes", optarg);
		machine->until = optarg;
		machine->until_size = strlen(optarg);
		return -1;
	case 'o':
		options->output = optarg;
		return -1;
	case OPTION_JSON:
		options->json = true;
		return -1;
	case OPTION_SYMBOLS:
		if (options->symbol_file_count == RECORD_SYMBOL_FILES_MAX)
			return bad("--symbols %s: too many, 8 are possible", optarg);
		options->symbol_files[options->symbol_file_count++] = optarg;
		return -1;
	case OPTION_SYMFS:
		options->symfs = optarg;
		return -1;
	case OPTION_NO_SANDBOX:
		machine->sandbox = false;
		return -1;
	case 'h':
		fputs(help, stdout);
		return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
	default:
		/* getopt has said what is wrong. */
		return EXIT_USAGE;
	}
}

int record_options_parse(int argc, char **argv, struct record_options *options)
{
	static char program[] = "guestprof record";
	int option;

	*options = (struct record_options){
		.machine = {.command_line = DEFAULT_COMMAND_LINE,
			    .vcpus = 1,
			    .memory = DEFAULT_MEMORY,
			    .sandbox = true,
			    .console_input_fd = STDIN_FILENO,
			    .console_output_fd = STDOUT_FILENO},
		.period_ns = (uint64_t)NS_PER_SECOND / DEFAULT_FREQUENCY,
		.event = "timer",
		.depth = DEFAULT_DEPTH,
		.output = DEFAULT_OUTPUT,
	};
	argv[0] = program; /* for getopt's messages */
	optind = 0;        /* getopt(3): 0 also forgets where it was in another command line */
	while ((option = getopt_long(argc, argv, "k:i:p:c:m:d:F:e:o:h", long_options, NULL)) !=
	       -1) {
		int code = parse_option(option, options);

		if (code >= 0)
			return code;
	}
	if (optind < argc)
		return bad("'%s' is not an option", argv[optind]);
	if (!options->machine.kernel)
		return bad("%s", "give a kernel with -k");
	for (size_t i = 0; i < options->sampled_vcpu_count; i++)
		if (options->sampled_vcpus[i] >= options->machine.vcpus)
			return bad("%s", "--sample-cpus names a vCPU that -c does not give");
	if (options->jitter_percent && options->source != GP_TICK_TIMER)
		return bad("--jitter and -e %s exclude each other", options->event);
	if (options->frequency_given && options->period_given)
		return bad("%s", "-F and --period exclude each other");
	if (options->source == GP_TICK_CYCLES || options->source == GP_TICK_INSTRUCTIONS) {
		if (options->frequency_given)
			return bad("-F counts time and -e %s does not: give --period EVENTS",
				   options->event);
		if (!options->period_given)
			options->period_ns = DEFAULT_EVENTS;
	}
	return -1;
}
