#include "tools/record/record_options.h"

#include "tools/command.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_MEMORY (UINT64_C(512) << 20)
#define DEFAULT_COMMAND_LINE "console=ttyS0"

static const char help[] =
	"usage: guestprof record -k KERNEL [OPTIONS]\n"
	"Boots a guest under guestprof's own virtual machine monitor and samples its\n"
	"vCPUs from the first instruction on. The guest's console is standard output;\n"
	"Ctrl-A x ends it.\n"
	"\n"
	"Guest:\n"
	"  -k, --kernel FILE       bzImage (vmlinuz), ELF with a PVH note, Multiboot\n"
	"  -i, --initrd FILE       initramfs\n"
	"  -p, --append TEXT       kernel command line, passed on as it is (default:\n"
	"                          " DEFAULT_COMMAND_LINE ")\n"
	"  -c, --cpus N            vCPUs (default: 1)\n"
	"  -m, --memory SIZE       guest memory, with K, M or G (default: 512M)\n"
	"  -d, --disk FILE[,ro]    raw image or block device as /dev/vda, vdb ...; more\n"
	"                          than once\n"
	"\n"
	"Sampling:\n"
	"  -F, --frequency HZ      samples per second and vCPU (default: 1000; 0: boot,\n"
	"                          write no trace)\n" SAMPLING_HELP
	"  -o, --output FILE       the trace (default: " SAMPLING_OUTPUT ")\n"
	"\n"
	"End:\n"
	"      --until TEXT        when TEXT appears on the console\n"
	"      --duration SECONDS  after that long\n"
	"      --timeout SECONDS   after that long, as a failure\n"
	"\n"
	"      --json              a summary as one line of JSON on standard output at\n"
	"                          the end\n"
	"      --no-sandbox        do not confine this process (loud)\n"
	"  -h, --help\n"
	"\n"
	"Exit codes: 0 powered off, 10 reset, 11 triple fault, 12 --until seen,\n"
	"13 --duration over, 14 --timeout over, 15 Ctrl-A x, 16 SIGINT or SIGTERM,\n"
	"17 guest panic, 20 KVM failed, 21 this machine cannot run guests, 2 bad input,\n"
	"1 anything else.\n"
	"\n"
	"Example: guestprof record -k vmlinuz -i initrd.img -c 2 -F 4000 -o boot.fxt\n";

static int bad(const char *format, const char *value)
{
	return sampling_bad_option("guestprof record", format, value);
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

enum long_option {
	OPTION_UNTIL = SAMPLING_OPTION_END,
	OPTION_TIMEOUT,
	OPTION_NO_SANDBOX,
};

static const struct option long_options[] = {
	{"kernel", required_argument, NULL, 'k'},
	{"initrd", required_argument, NULL, 'i'},
	{"append", required_argument, NULL, 'p'},
	{"cpus", required_argument, NULL, 'c'},
	{"memory", required_argument, NULL, 'm'},
	{"disk", required_argument, NULL, 'd'},
	SAMPLING_LONG_OPTIONS,
	{"until", required_argument, NULL, OPTION_UNTIL},
	{"timeout", required_argument, NULL, OPTION_TIMEOUT},
	{"no-sandbox", no_argument, NULL, OPTION_NO_SANDBOX},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

/* One option; -1 to go on. */
static int parse_option(int option, struct record_options *options)
{
	struct machine_config *machine = &options->machine;
	uint64_t number;

	if (sampling_options_has(option))
		return sampling_options_take("guestprof record", option, optarg,
					     &options->sampling);
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
		if (!sampling_parse_number(optarg, 1, UINT32_MAX, &number))
			return bad("-c %s: give a number of vCPUs", optarg);
		machine->vcpus = (unsigned)number;
		return -1;
	case 'm':
		if (!parse_size(optarg, &machine->memory))
			return bad("-m %s: give a size such as 512M or 4G", optarg);
		return -1;
	case 'd':
		return parse_disk(optarg, machine);
	case OPTION_TIMEOUT:
		if (!sampling_parse_seconds(optarg, &options->timeout_ns))
			return bad("--timeout %s: give seconds", optarg);
		return -1;
	case OPTION_UNTIL:
		if (!*optarg || strlen(optarg) > 1024)
			return bad("--until '%s': give a text of 1 to 1024 bytes", optarg);
		machine->until = optarg;
		machine->until_size = strlen(optarg);
		return -1;
	case OPTION_NO_SANDBOX:
		machine->sandbox = false;
		return -1;
	case 'h':
		fputs(help, stdout);
		return EXIT_SUCCESS;
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
	};
	sampling_options_init(&options->sampling);
	argv[0] = program; /* for getopt's messages */
	optind = 0;        /* getopt(3): 0 also forgets where it was in another command line */
	while ((option = getopt_long(argc, argv, "k:i:p:c:m:d:h" SAMPLING_SHORT_OPTIONS,
				     long_options, NULL)) != -1) {
		int code = parse_option(option, options);

		if (code >= 0)
			return code;
	}
	if (optind < argc)
		return bad("'%s' is not an option", argv[optind]);
	if (!options->machine.kernel)
		return bad("%s", "give a kernel with -k");
	for (size_t i = 0; i < options->sampling.sampled_vcpu_count; i++)
		if (options->sampling.sampled_vcpus[i] >= options->machine.vcpus)
			return bad("%s", "--sample-cpus names a vCPU that -c does not give");
	return sampling_options_check("guestprof record", &options->sampling);
}
