/* The guestprof command: finds the subcommand and runs it. */
#include "tools/command.h"

#include "base/container.h"
#include "tools/output.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct command commands[] = {
	{"record", "boot a guest and profile it", command_record},
	{"attach", "profile a virtual machine that is already running", command_attach},
	{"ps", "list the virtual machines that can be attached to", command_ps},
	{"top", "where the time goes, live in the terminal", command_top},
	{"report", "where the time went, as text", command_report},
	{"flamegraph", "where the time went, as one HTML file or an SVG", command_flamegraph},
	{"timeline", "who ran on which vCPU when, as one HTML file", command_timeline},
	{"annotate", "which instructions took the time of a function", command_annotate},
	{"diff", "what takes more or less of the time in a second trace", command_diff},
	{"export", "a trace in the format of another tool", command_export},
	{"doctor", "what this machine can do, and how to get the rest", command_doctor},
	{"lab", "run any command on real KVM on a machine that has none", command_lab},
};

static void print_help(FILE *to)
{
	fputs("usage: guestprof COMMAND [OPTIONS]\n"
	      "Profiles whole guest operating systems from outside.\n\n",
	      to);
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(to, "  %-11s %s\n", commands[i].name, commands[i].summary);
	fputs("\nguestprof COMMAND --help describes one; guestprof --version prints the version.\n",
	      to);
}

/* A closed pipe is an error like any other, reported in a line. Not SIG_IGN: the programs that
 * are started from here would inherit it. */
static void stay_alive(int signal)
{
	(void)signal;
}

/* A standard descriptor that was closed would be given to the next file that is opened, and a
 * guest's console would go there. As it is now, using it fails. */
static void fill_standard_descriptors(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

static int run(int argc, char **argv)
{
	if (argc < 2) {
		print_help(stderr);
		return EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		print_help(stdout);
		return EXIT_SUCCESS;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		printf("guestprof %s\n", GUESTPROF_VERSION);
		return EXIT_SUCCESS;
	}
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].run(argc - 1, argv + 1);
	}
	fprintf(stderr, "guestprof: no command '%s'; guestprof --help lists them\n", argv[1]);
	return EXIT_USAGE;
}

int main(int argc, char **argv)
{
	struct error error = {0};
	int code;

	fill_standard_descriptors();
	signal(SIGPIPE, stay_alive);
	code = run(argc, argv);
	if (output_settle(&error))
		return code;
	fprintf(stderr, "guestprof: %s\n", error.text);
	return code ? code : EXIT_FAILURE;
}
