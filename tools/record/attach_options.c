#include "tools/record/attach_options.h"

#include "tools/command.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char command[] = "guestprof attach";

static const char help[] =
	"usage: guestprof attach [OPTIONS] PID|DOMAIN\n"
	"Samples the vCPUs of a KVM virtual machine that another process runs (QEMU and\n"
	"others), without that process taking part. 'guestprof ps' lists those of this\n"
	"host. Ctrl-C ends it; the machine goes on.\n"
	"\n"
	"Sampling:\n"
	"  -F, --frequency HZ      samples per second and vCPU (default: 1000)\n" SAMPLING_HELP
	"      --kick HOW          ptrace (default), or signal: the VMM's own kick\n"
	"  -o, --output FILE       the trace (default: " SAMPLING_OUTPUT ")\n"
	"      --duration SECONDS  end after that long\n"
	"\n"
	"      --json              a summary as one line of JSON on standard output at\n"
	"                          the end\n"
	"  -h, --help\n"
	"\n"
	"Exit codes: 0 the VMM exited, 10 the guest reset, 13 --duration over, 16 Ctrl-C\n"
	"or SIGTERM, 17 guest panic, 18 the VMM was killed, 21 it cannot be attached to,\n"
	"2 bad input, 1 anything else.\n"
	"\n"
	"Example: guestprof attach --duration 10 -o web.fxt web\n";

enum long_option {
	OPTION_KICK = SAMPLING_OPTION_END,
};

static const struct option long_options[] = {
	SAMPLING_LONG_OPTIONS,
	{"kick", required_argument, NULL, OPTION_KICK},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

int attach_options_parse(int argc, char **argv, struct attach_options *options)
{
	static char program[] = "guestprof attach";
	int option, code = -1;

	*options = (struct attach_options){0};
	sampling_options_init(&options->sampling);
	argv[0] = program; /* for getopt's messages */
	optind = 0;        /* getopt(3): 0 also forgets where it was in another command line */
	while (code < 0 && (option = getopt_long(argc, argv, "h" SAMPLING_SHORT_OPTIONS,
						 long_options, NULL)) != -1) {
		if (sampling_options_has(option)) {
			code = sampling_options_take(command, option, optarg, &options->sampling);
		} else if (option == OPTION_KICK) {
			options->signal_kick = !strcmp(optarg, "signal");
			if (!options->signal_kick && strcmp(optarg, "ptrace"))
				return sampling_bad_option(
					command, "--kick %s: give ptrace or signal", optarg);
		} else if (option == 'h') {
			fputs(help, stdout);
			return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
		} else {
			return EXIT_USAGE; /* getopt has said what is wrong */
		}
	}
	if (code >= 0)
		return code;
	if (optind >= argc)
		return sampling_bad_option(command, "%s", "give the PID or the name of a machine");
	if (optind + 1 < argc)
		return sampling_bad_option(command, "'%s': one machine at a time",
					   argv[optind + 1]);
	options->machine = argv[optind];
	if (!options->sampling.period_ns)
		return sampling_bad_option(command, "-F %s: nothing would be sampled", "0");
	/* Events would be those of our own threads. */
	if (options->sampling.source != GP_TICK_TIMER)
		return sampling_bad_option(command, "-e %s: only the timer ticks here",
					   options->sampling.event);
	return sampling_options_check(command, &options->sampling);
}
