#include "tools/record/record_options.h"

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
	"      --no-sandbox        do not confine this process\n"
	"  -h, --help\n"
	"\n"
	"Exit codes: 0 powered off, 10 reset, 11 triple fault, 12 --until seen,\n"
	"13 --duration over, 14 --timeout over, 15 Ctrl-A x, 16 SIGINT or SIGTERM,\n"
	"17 guest panic, 20 KVM failed, 21 this machine cannot run guests, 2 bad input,\n"
	"1 anything else.\n"
	"\n"
	"Example: guestprof record -k vmlinuz -i initrd.img -c 2 -F 4000 -o boot.fxt\n";

static const char program[] = "guestprof record";

static const char *take_disk(void *context, char *text)
{
	struct machine_config *machine = context;
	char *comma = strrchr(text, ',');
	bool read_only = comma && !strcmp(comma, ",ro");

	if (machine->disk_count == MACHINE_DISKS_MAX)
		return "too many disks, 15 are possible";
	if (read_only)
		*comma = 0;
	if (!*text)
		return "give a file";
	machine->disks[machine->disk_count++] = (struct machine_disk){text, read_only};
	return NULL;
}

int record_options_parse(int argc, char **argv, struct record_options *options)
{
	struct machine_config *machine = &options->machine;
	struct sampling_options *sampling = &options->sampling;
	bool no_sandbox = false;
	uint64_t vcpus = 1;
	const struct option_row rows[] = {
		OPTION("kernel", 'k', OPTION_TEXT, &machine->kernel, ),
		OPTION("initrd", 'i', OPTION_TEXT, &machine->initrd, ),
		OPTION("append", 'p', OPTION_TEXT, &machine->command_line, ),
		OPTION("cpus", 'c', OPTION_NUMBER, &vcpus, .least = 1, .most = UINT32_MAX,
		       .hint = "give a number of vCPUs"),
		OPTION("memory", 'm', OPTION_SIZE, &machine->memory, .least = 1,
		       .most = UINT64_C(1) << 46, .hint = "give a size such as 512M or 4G"),
		OPTION("disk", 'd', OPTION_CALL, machine, .take = take_disk),
		SAMPLING_ROWS(sampling),
		OPTION("until", 0, OPTION_TEXT, &machine->until, .least = 1, .most = 1024,
		       .hint = "give a text of 1 to 1024 bytes"),
		OPTION("timeout", 0, OPTION_SECONDS, &options->timeout_ns, .hint = "give seconds"),
		OPTION("no-sandbox", 0, OPTION_FLAG, &no_sandbox, ),
		OPTIONS_END,
	};
	int code;

	*options = (struct record_options){
		.machine = {.command_line = DEFAULT_COMMAND_LINE,
			    .memory = DEFAULT_MEMORY,
			    .console_input_fd = STDIN_FILENO,
			    .console_output_fd = STDOUT_FILENO},
	};
	sampling_options_init(sampling);
	code = options_parse(&(struct command_line){.program = program, .help = help, .rows = rows},
			     argc, argv);
	if (code >= 0)
		return code;
	machine->sandbox = !no_sandbox;
	machine->vcpus = (unsigned)vcpus;
	machine->until_size = machine->until ? strlen(machine->until) : 0;
	if (optind < argc)
		return option_bad(program, "'%s' is not an option", argv[optind]);
	if (!machine->kernel)
		return option_bad(program, "give a kernel with -k");
	for (size_t i = 0; i < sampling->sampled_vcpu_count; i++)
		if (sampling->sampled_vcpus[i] >= machine->vcpus)
			return option_bad(program,
					  "--sample-cpus names a vCPU that -c does not give");
	return sampling_options_check(program, sampling);
}
