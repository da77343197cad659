/* guestprof lab: the command line. See lab.h for the parts. */
#include "tools/lab/lab.h"

#include "tools/command.h"
#include "tools/options.h"

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

static const char program[] = "guestprof lab";

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

static const char *take_variable(void *environment, char *text)
{
	return *text && *text != '=' && environment_add(environment, text) ? NULL
									   : "it cannot be passed";
}

static const char *take_inside(void *context, char *text)
{
	(void)context;
	(void)text;
	lab_inside();
}

static int run_setup(const char *kernel_wanted)
{
	struct error error = {0};
	struct lab_kernel kernel;
	char path[PATH_MAX];

	if (lab_find_program("qemu-system-x86_64", "qemu-system-x86", path, &error) != GP_OK ||
	    lab_kernel_find(kernel_wanted, &kernel, &error) != GP_OK ||
	    lab_initramfs_find(&kernel, path, &error) != GP_OK) {
		fprintf(stderr, "%s: %s\n", program, error.text);
		return LAB_EXIT_FAILED;
	}
	return 0;
}

static int run_fetch(const char *package, const char *directory)
{
	struct error error = {0};

	if (lab_kernel_fetch(package, directory, &error) == GP_OK)
		return 0;
	fprintf(stderr, "%s: %s\n", program, error.text);
	return LAB_EXIT_FAILED;
}

/* Runs `guestprof ARGUMENTS` inside, by the path under which this program is seen there. */
static int run_guestprof(struct lab_options *options, int count, char **arguments)
{
	static char path[PATH_MAX];
	char **command = calloc((size_t)count + 2, sizeof(*command));
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
	int exit_code;

	if (!command || length < 0) {
		fprintf(stderr, "%s: cannot find this program's own path\n", program);
		free(command);
		return LAB_EXIT_FAILED;
	}
	path[length] = 0;
	command[0] = path;
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
		.kernel = LAB_KERNEL_DEFAULT,
		.environment = environment.list,
	};
	uint64_t cpus = 2, memory = UINT64_C(4) << 30, timeout = 0;
	bool exec = false, fetch = false, setup = false;
	const struct option_row rows[] = {
		OPTION("cpus", 'c', OPTION_NUMBER, &cpus, .least = 1, .most = 254,
		       .hint = "give a number from 1 to 254"),
		OPTION("memory", 'm', OPTION_SIZE, &memory, .least = UINT64_C(512) << 20,
		       .most = UINT64_C(1) << 44, .hint = "give a size such as 4G, 512M or more"),
		OPTION("timeout", 't', OPTION_NUMBER, &timeout, .least = 1, .most = 1000000,
		       .hint = "give a number of seconds"),
		OPTION("kernel", 'k', OPTION_TEXT, &options.kernel, ),
		OPTION("env", 'e', OPTION_CALL, &environment, .take = take_variable),
		OPTION("verbose", 'v', OPTION_FLAG, &options.verbose, ),
		OPTION("exec", 0, OPTION_LAST, &exec, ),
		OPTION("fetch", 0, OPTION_FLAG, &fetch, ),
		OPTION("setup", 0, OPTION_FLAG, &setup, ),
		OPTION("inside", 0, OPTION_CALL, NULL, .take = take_inside, .has_no_text = true),
		OPTIONS_END,
	};
	/* The first word that is no option begins the command; so does --exec. */
	const struct command_line line = {
		.program = program, .help = help, .rows = rows, .in_order = true};
	int code;

	environment_init(&environment);
	code = options_parse(&line, argc, argv);
	if (code >= 0)
		return code;
	options.cpus = (unsigned)cpus;
	options.memory_mib = memory >> 20;
	options.timeout_seconds = (unsigned)timeout;
	argc -= optind;
	argv += optind;
	if (exec && argc && !strcmp(argv[0], "--")) {
		argc--;
		argv++;
	}
	if (setup)
		return argc ? option_bad(program, "--setup takes no '%s'", argv[0])
			    : run_setup(options.kernel);
	if (fetch)
		return argc == 2 ? run_fetch(argv[0], argv[1])
				 : option_bad(program, "--fetch takes a package and a directory");
	if (!argc)
		return option_bad(program, "no command");
	if (!exec)
		return run_guestprof(&options, argc, argv);
	options.command = argv;
	return lab_run(&options);
}
