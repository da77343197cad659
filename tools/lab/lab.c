/* guestprof lab: the command line. See lab.h for the parts. */
#include "tools/lab/lab.h"

#include "tools/command.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
	"usage: guestprof lab [OPTIONS] COMMAND-OF-GUESTPROF [ARGUMENTS]\n"
	"       guestprof lab [OPTIONS] --exec COMMAND [ARGUMENTS]\n"
	"       guestprof lab --fetch PACKAGE DIRECTORY\n"
	"       guestprof lab [OPTIONS] --setup\n"
	"Runs a command on real KVM on a machine that has none: on a stock kernel with\n"
	"its own kvm_amd, in QEMU's emulation of a CPU with SVM. What the command writes\n"
	"below the current directory lands there; what it writes elsewhere is gone when\n"
	"it ends.\n"
	"\n"
	"  --cpus N            CPUs of the lab (2)\n"
	"  --memory SIZE       memory of the lab (4G)\n"
	"  --timeout SECONDS   end the command after that time, with exit code 124\n"
	"  --kernel WHAT       the lab's kernel: a Debian package, or a directory made\n"
	"                      by --fetch (linux-image-amd64)\n"
	"  --env NAME[=VALUE]  an environment variable for the command, as often as\n"
	"                      wanted\n"
	"  --verbose           show the console of the lab's kernel on stderr\n"
	"  --setup             only fetch and build the lab's parts\n"
	"  --fetch             unpack a Debian kernel package: vmlinuz, modules/,\n"
	"                      version; PACKAGE@SUITE: of another suite of Debian\n"
	"  --exec              run any command, not one of guestprof's\n"
	"\n"
	"Exit code: the command's; 128+N when signal N ended it; 124 timed out, 125 the\n"
	"lab failed, 126 the command cannot be executed, 127 there is none of that name.\n"
	"\n"
	"Examples: guestprof lab record -k vmlinuz -i initrd.img -c 2 -o boot.fxt\n"
	"          guestprof lab --fetch linux-image-6.12-amd64 kernel\n"
	"          guestprof lab --fetch linux-image-amd64@trixie-backports newest\n"
	"          guestprof lab --timeout 60 --exec sh -c 'uname -a'\n";

enum { OPTION_EXEC = 256, OPTION_FETCH, OPTION_SETUP, OPTION_INSIDE };

static const struct option long_options[] = {
	{"cpus", required_argument, NULL, 'c'},
	{"memory", required_argument, NULL, 'm'},
	{"timeout", required_argument, NULL, 't'},
	{"kernel", required_argument, NULL, 'k'},
	{"env", required_argument, NULL, 'e'},
	{"verbose", no_argument, NULL, 'v'},
	{"help", no_argument, NULL, 'h'},
	{"exec", no_argument, NULL, OPTION_EXEC},
	{"fetch", no_argument, NULL, OPTION_FETCH},
	{"setup", no_argument, NULL, OPTION_SETUP},
	{"inside", no_argument, NULL, OPTION_INSIDE},
	{0},
};

#define ENVIRONMENT_MAX 1024

struct environment {
	char *list[ENVIRONMENT_MAX + 1];
	unsigned count;
};

/* Adds NAME=VALUE; a later one replaces an earlier one. */
static bool environment_set(struct environment *environment, char *text)
{
	size_t name = strcspn(text, "=") + 1;

	for (unsigned i = 0; i < environment->count; i++) {
		if (!strncmp(environment->list[i], text, name)) {
			environment->list[i] = text;
			return true;
		}
	}
	if (environment->count == ENVIRONMENT_MAX)
		return false;
	environment->list[environment->count++] = text;
	environment->list[environment->count] = NULL;
	return true;
}

/* What passes without being asked for. */
static void environment_init(struct environment *environment)
{
	static const char *const whole[] = {
		"TERM=",          "LANG=",         "HOME=",        "ASAN_OPTIONS=",
		"UBSAN_OPTIONS=", "TSAN_OPTIONS=", "LSAN_OPTIONS="};
	static const char *const prefixes[] = {"GUESTPROF_", "CRITERION_", "LC_"};
	static char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	static char home[] = "HOME=/root";

	environment_set(environment, path);
	environment_set(environment, home);
	for (char **text = environ; *text; text++) {
		bool passes = false;

		for (unsigned i = 0; i < sizeof(whole) / sizeof(*whole); i++)
			passes |= !strncmp(*text, whole[i], strlen(whole[i]));
		for (unsigned i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++)
			passes |= !strncmp(*text, prefixes[i], strlen(prefixes[i]));
		if (passes)
			environment_set(environment, *text);
	}
}

/* --env NAME takes the value from here; a variable that is not set is left out. */
static bool environment_add(struct environment *environment, char *argument)
{
	const char *value;
	char *text;

	if (strchr(argument, '='))
		return environment_set(environment, argument);
	value = getenv(argument);
	if (!value)
		return true;
	if (asprintf(&text, "%s=%s", argument, value) < 0)
		return false;
	return environment_set(environment, text);
}

static bool parse_number(const char *text, unsigned long minimum, unsigned long maximum,
			 unsigned *number)
{
	unsigned long value;
	char *end;

	errno = 0;
	value = strtoul(text, &end, 10);
	if (errno || end == text || *end || !isdigit((unsigned char)*text) || value < minimum ||
	    value > maximum)
		return false;
	*number = (unsigned)value;
	return true;
}

/* 512M, 4G; a bare number is MiB, as QEMU has it. */
static bool parse_memory(const char *text, uint64_t *mib)
{
	unsigned long long value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || end == text || !isdigit((unsigned char)*text) || value > 1u << 24)
		return false;
	if (*end == 'G' || *end == 'g')
		value *= 1024;
	else if (*end && *end != 'M' && *end != 'm')
		return false;
	if (*end && end[1])
		return false;
	if (value < 512 || value > 1u << 24)
		return false;
	*mib = value;
	return true;
}

static int usage(const char *format, const char *what)
{
	fprintf(stderr, "guestprof lab: ");
	fprintf(stderr, format, what);
	fprintf(stderr, "; guestprof lab --help describes it\n");
	return EXIT_USAGE;
}

static int run_setup(const char *kernel_wanted)
{
	struct error error = {0};
	struct lab_kernel kernel;
	char path[PATH_MAX];

	if (lab_find_program("qemu-system-x86_64", "qemu-system-x86", path, &error) != GP_OK ||
	    lab_kernel_find(kernel_wanted, &kernel, &error) != GP_OK ||
	    lab_initramfs_find(&kernel, path, &error) != GP_OK) {
		fprintf(stderr, "guestprof lab: %s\n", error.text);
		return LAB_EXIT_FAILED;
	}
	return 0;
}

static int run_fetch(const char *package, const char *directory)
{
	struct error error = {0};

	if (lab_kernel_fetch(package, directory, &error) == GP_OK)
		return 0;
	fprintf(stderr, "guestprof lab: %s\n", error.text);
	return LAB_EXIT_FAILED;
}

/* Runs `guestprof ARGUMENTS` inside, by the path under which this program is seen there. */
static int run_guestprof(struct lab_options *options, int count, char **arguments)
{
	static char program[PATH_MAX];
	char **command = calloc((size_t)count + 2, sizeof(*command));
	ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
	int exit_code;

	if (!command || length < 0) {
		fprintf(stderr, "guestprof lab: cannot find this program's own path\n");
		free(command);
		return LAB_EXIT_FAILED;
	}
	program[length] = 0;
	command[0] = program;
	memcpy(command + 1, arguments, (size_t)count * sizeof(*command));
	options->command = command;
	exit_code = lab_run(options);
	free(command);
	return exit_code;
}

int command_lab(int argc, char **argv)
{
	static struct environment environment;
	struct lab_options options = {
		.cpus = 2,
		.memory_mib = 4096,
		.kernel = LAB_KERNEL_DEFAULT,
		.environment = environment.list,
	};
	int option, what = 0;

	environment_init(&environment);
	/* The first word that is no option begins the command; so does --exec. */
	while (what != OPTION_EXEC &&
	       (option = getopt_long(argc, argv, "+c:m:t:k:e:vh", long_options, NULL)) != -1) {
		switch (option) {
		case 'c':
			if (!parse_number(optarg, 1, 254, &options.cpus))
				return usage("--cpus %s is not a number from 1 to 254", optarg);
			break;
		case 'm':
			if (!parse_memory(optarg, &options.memory_mib))
				return usage("--memory %s is not a size such as 4G, 512M or more",
					     optarg);
			break;
		case 't':
			if (!parse_number(optarg, 1, 1000000, &options.timeout_seconds))
				return usage("--timeout %s is not a number of seconds", optarg);
			break;
		case 'k':
			options.kernel = optarg;
			break;
		case 'e':
			if (!*optarg || *optarg == '=' || !environment_add(&environment, optarg))
				return usage("--env %s cannot be passed", optarg);
			break;
		case 'v':
			options.verbose = true;
			break;
		case 'h':
			fputs(help, stdout);
			return EXIT_SUCCESS;
		case OPTION_EXEC:
		case OPTION_FETCH:
		case OPTION_SETUP:
			what = option;
			break;
		case OPTION_INSIDE:
			lab_inside();
		default:
			return EXIT_USAGE; /* getopt has said why */
		}
	}
	argc -= optind;
	argv += optind;
	if (what == OPTION_EXEC && argc && !strcmp(argv[0], "--")) {
		argc--;
		argv++;
	}
	if (what == OPTION_SETUP)
		return argc ? usage("--setup takes no '%s'", argv[0]) : run_setup(options.kernel);
	if (what == OPTION_FETCH)
		return argc == 2 ? run_fetch(argv[0], argv[1])
				 : usage("--fetch takes a package and a directory%s", "");
	if (!argc)
		return usage("no command%s", "");
	if (what == OPTION_EXEC) {
		options.command = argv;
		return lab_run(&options);
	}
	return run_guestprof(&options, argc, argv);
}
