/* guestprof top: where the time goes, live in the terminal. */
#include "tools/command.h"

#include "base/clock.h"
#include "tools/record/attach.h"
#include "base/container.h"
#include "analysis/filter.h"
#include "tools/options.h"
#include "tools/record/record.h"
#include "tools/record/sampling.h"
#include "tools/top/curses.h"
#include "tools/top/display.h"
#include "tools/top/source.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXIT_SIGNALLED 16 /* as record's */
#define INTERVAL_NS NS_PER_SECOND
#define INTERVAL_LEAST_NS (100 * NS_PER_MILLISECOND)
#define WINDOW_MOST_NS (3600 * NS_PER_SECOND)

static const char help[] =
	"usage: guestprof top [OPTIONS] -k KERNEL [OPTIONS OF RECORD]\n"
	"       guestprof top [OPTIONS] attach PID|DOMAIN [OPTIONS OF ATTACH]\n"
	"       guestprof top [OPTIONS] FILE\n"
	"Shows where the time of the last seconds went: functions, threads, vCPUs. Boots\n"
	"a guest as guestprof record does, attaches to a virtual machine as guestprof\n"
	"attach does, or shows a trace that is being written, or the end of a whole one.\n"
	"Its own options come first.\n"
	"\n"
	"      --window SECONDS    length of the window (default: 5)\n"
	"      --interval SECONDS  between two updates (default: 1)\n"
	"      --pid LIST          only these processes, such as 1,40-49\n"
	"      --comm TEXT         only processes and threads with TEXT in their names\n"
	"  -h, --help\n"
	"\n"
	"Of the others' options -o keeps the trace; without it nothing is written to\n"
	"disk. Keys: q quits, c shows the guest's console, h lists the others. The guest\n"
	"has no input: to type to it, run guestprof record -o FILE, and guestprof top\n"
	"FILE in another terminal.\n"
	"\n"
	"Exit codes: 0 quit by q, 16 by SIGINT, SIGTERM or SIGHUP; of a recording that\n"
	"failed its own, see guestprof record and attach; 2 bad command line, 1 anything\n"
	"else.\n"
	"\n"
	"Examples:\n"
	"  guestprof top -k vmlinuz -i initrd.img -c 2 -p \"console=ttyS0\"\n"
	"  guestprof top --window 10 -k vmlinuz -o boot.fxt\n"
	"  guestprof top attach web\n"
	"  guestprof top boot.fxt\n";

static const char program[] = "guestprof top";

struct top_options {
	uint64_t window_ns;
	uint64_t interval_ns;
	const char *pids;
	const char *command;
	int rest; /* of argv: what is shown */
};

static const char *take_window(void *window_ns, char *text)
{
	uint64_t *ns = window_ns;

	return filter_parse_time(text, ns) && *ns && *ns <= WINDOW_MOST_NS
		       ? NULL
		       : "give seconds, at most an hour";
}

static const char *take_interval(void *interval_ns, char *text)
{
	uint64_t *ns = interval_ns;

	return filter_parse_time(text, ns) && *ns >= INTERVAL_LEAST_NS
		       ? NULL
		       : "give seconds, 0.1 or more";
}

static const char *take_pids(void *pids, char *text)
{
	struct filter filter = {0};

	*(const char **)pids = text;
	if (strlen(text) >= TOP_TEXT_MAX)
		return "too long";
	return filter_set(&filter, "pid", text, NULL) ? "give numbers such as 1,40-49" : NULL;
}

/* The row of an option of ours, and its value; NULL: it is the next argument. */
static const struct option_row *find_own(const struct option_row *row, char *argument, char **value)
{
	if (strncmp(argument, "--", 2))
		return NULL;
	for (; row->name; row++) {
		size_t length = strlen(row->name) + 2;

		if (strncmp(argument + 2, row->name, length - 2) ||
		    (argument[length] && argument[length] != '='))
			continue;
		*value = argument[length] ? argument + length + 1 : NULL;
		return row;
	}
	return NULL;
}

/* Returns -1 to go on, or the exit code. Ends at the first argument that is none of ours: a file,
 * or an option of record, which getopt() could not leave alone. */
static int parse(int argc, char **argv, struct top_options *options)
{
	const struct option_row rows[] = {
		OPTION("window", 0, OPTION_CALL, &options->window_ns, .take = take_window),
		OPTION("interval", 0, OPTION_CALL, &options->interval_ns, .take = take_interval),
		OPTION("pid", 0, OPTION_CALL, &options->pids, .take = take_pids),
		OPTION("comm", 0, OPTION_TEXT, &options->command, .most = TOP_TEXT_MAX - 1,
		       .hint = "too long"),
		OPTIONS_END,
	};
	const struct option_row *row;
	char *value;
	int at = 1;

	*options = (struct top_options){.window_ns = LIVE_WINDOW_NS, .interval_ns = INTERVAL_NS};
	for (; at < argc && (row = find_own(rows, argv[at], &value)); at++) {
		if (!value && at + 1 == argc)
			return option_bad(program, "%s needs a value", argv[at]);
		if (!option_take(program, row, value ? value : argv[++at]))
			return EXIT_USAGE;
	}
	if (at == argc)
		return option_bad(program, "give a kernel to boot with -k, a trace, or attach PID");
	if (!strcmp(argv[at], "--help") || !strcmp(argv[at], "-h")) {
		fputs(help, stdout);
		return EXIT_SUCCESS;
	}
	if (argv[at][0] != '-' && strcmp(argv[at], "attach") && at + 1 < argc)
		return option_bad(program, "'%s' is one argument too many", argv[at + 1]);
	options->rest = at;
	return -1;
}

static volatile sig_atomic_t signalled;

static void note_signal(int signal)
{
	(void)signal;
	signalled = 1;
}

/* Without SA_RESTART: waiting for a key ends. */
static void catch_signals(void)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = note_signal};

	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		sigaction(signals[i], &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* A terminal that takes no output now, behind a stalled ssh for instance, is not waited for: the
 * trace goes on being read. */
static bool takes_output(void)
{
	struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};

	return poll(&output, 1, 0) > 0 && output.revents & POLLOUT;
}

/* Draws until a key or a signal ends it. */
static void show(struct top_display *display, struct top_source *source, uint64_t interval_ns)
{
	uint64_t next = 0;

	curses.wtimeout(curses.screen, 0);
	top_source_follow(source, -1, 0);
	while (!display->quit && !signalled) {
		uint64_t before = monotonic_ns();
		int key;

		if (before >= next) {
			uint64_t cost;

			top_display_refresh(display);
			cost = monotonic_ns() - before;
			/* At most a quarter of one CPU. */
			next = before + (interval_ns > 4 * cost ? interval_ns : 4 * cost);
		}
		if (takes_output())
			top_pages_draw(display);
		/* A terminal that is gone is like SIGHUP. */
		if (top_source_follow(source, STDIN_FILENO, next) & (POLLHUP | POLLERR | POLLNVAL))
			signalled = 1;
		while (!signalled && (key = curses.wgetch(curses.screen)) != ERR)
			top_display_key(display, key);
	}
}

static int fail(const struct error *error)
{
	return command_end(program, error->status, error);
}

static void print_lines(const struct terminal_lines *lines)
{
	for (size_t i = 0; i < terminal_lines_count(lines); i++)
		fprintf(stderr, "%s\n", terminal_lines_get(lines, i));
}

/* Shows what there is until the end, and ends it. `kept`: the trace of a recording, or NULL. */
static int run(struct top_source *source, const struct top_options *options, const char *title,
	       const char *kept)
{
	static struct top_display display; /* larger than a stack frame should be */
	static struct top_state state;
	struct error error = {0};
	int code = EXIT_SUCCESS, recorded;

	if (top_display_init(&display, source, title, options->pids, options->command, &error) ||
	    top_curses_begin(&error)) {
		code = fail(&error);
	} else {
		show(&display, source, options->interval_ns);
		top_curses_end();
	}
	top_display_deinit(&display);
	top_source_close(source, &state);
	recorded = state.is_recording && !state.was_told_to ? state.exit_code : EXIT_SUCCESS;
	if (state.is_recording && (kept || top_is_failure(recorded)))
		print_lines(&state.messages);
	else if (state.is_recording)
		fputs("guestprof top: the trace was not saved; -o FILE saves it\n", stderr);
	if (code)
		return code;
	if (top_is_failure(recorded))
		return recorded;
	return signalled ? EXIT_SIGNALLED : EXIT_SUCCESS;
}

/* What does not come from the command line of the command that samples. */
static void redirect(struct sampling_options *sampling, const char *trace, int ready_fd)
{
	sampling->output = trace;
	sampling->ready_fd = ready_fd;
}

static int run_record(void *context, const char *trace, int ready_fd)
{
	struct record_options *options = context;

	redirect(&options->sampling, trace, ready_fd);
	return record_run(options);
}

static int run_attach(void *context, const char *trace, int ready_fd)
{
	struct attach_options *options = context;

	redirect(&options->sampling, trace, ready_fd);
	return attach_run(options);
}

static const char *file_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Starts a subcommand whose command line has been read, and shows what it writes. */
static int start(struct top_recorder *recorder, const struct sampling_options *sampling,
		 const char *title, const struct top_options *options)
{
	static struct top_state state;
	struct top_source *source = NULL;
	struct error error = {0};

	if (!sampling->period_ns)
		return option_bad(program, "-F 0 takes no samples: there is nothing to show");
	if (sampling_is_compressed(sampling))
		return option_bad(program,
				  "-o %s: a compressed trace cannot be followed; give another name",
				  sampling->output);
	if (top_curses_load(&error))
		return fail(&error);
	recorder->trace = *sampling->output ? sampling->output : NULL;
	catch_signals();
	if (top_source_record(recorder, options->window_ns, &state, &source, &error))
		return fail(&error);
	if (source)
		return run(source, options, title, recorder->trace);
	print_lines(&state.messages);
	return state.exit_code;
}

/* Boots a guest as record does, or attaches to one as attach does, with their options. */
static int top_start(bool attach, int count, char **arguments, const struct top_options *options)
{
	static char first[] = "guestprof", output[] = "-o", not_kept[] = "";
	static struct record_options to_record;
	static struct attach_options to_attach;
	struct top_recorder recorder = {.run = run_record, .context = &to_record};
	char **argv = calloc((size_t)count + 4, sizeof(*argv));
	int code;

	if (!argv)
		return EXIT_FAILURE;
	/* A later -o takes the place of this one. */
	argv[0] = first;
	argv[1] = output;
	argv[2] = not_kept;
	memcpy(argv + 3, arguments, (size_t)count * sizeof(*argv));
	if (attach) {
		recorder = (struct top_recorder){.run = run_attach, .context = &to_attach};
		code = attach_options_parse(count + 3, argv, &to_attach);
		if (code < 0)
			code = start(&recorder, &to_attach.sampling, to_attach.machine, options);
	} else {
		code = record_options_parse(count + 3, argv, &to_record);
		if (code < 0)
			code = start(&recorder, &to_record.sampling,
				     file_name(to_record.machine.kernel), options);
	}
	free(argv);
	return code;
}

static int top_file(const char *path, const struct top_options *options)
{
	struct top_source *source;
	struct error error = {0};

	if (top_curses_load(&error) || top_source_open(path, options->window_ns, &source, &error))
		return fail(&error);
	catch_signals();
	return run(source, options, file_name(path), NULL);
}

int command_top(int argc, char **argv)
{
	struct top_options options;
	int code = parse(argc, argv, &options);

	if (code >= 0)
		return code;
	if (argv[options.rest][0] == '-')
		return top_start(false, argc - options.rest, argv + options.rest, &options);
	if (!strcmp(argv[options.rest], "attach"))
		return top_start(true, argc - options.rest - 1, argv + options.rest + 1, &options);
	return top_file(argv[options.rest], &options);
}
