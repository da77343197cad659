/* guestprof record: boots a guest and profiles it. */
#include "command.h"

#include "record_options.h"

#include "base/cleanup.h"
#include "program_files.h"
#include "sampler/recorder.h"
#include "symbol_files.h"
#include "vmm/console.h"
#include "vmm/machine.h"
#include "vmm/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Documented in guestprof-record(1) and stable. */
enum record_exit {
	RECORD_POWERED_OFF = 0,
	RECORD_FAILED = 1,
	RECORD_USAGE = EXIT_USAGE,
	RECORD_RESET = 10,
	RECORD_TRIPLE_FAULT = 11,
	RECORD_TEXT_SEEN = 12,
	RECORD_DURATION = 13,
	RECORD_TIMED_OUT = 14,
	RECORD_USER_QUIT = 15,
	RECORD_SIGNALLED = 16,
	RECORD_PANIC = 17,
	RECORD_KVM_FAILED = 20,
	RECORD_CANNOT_RUN = 21,
};

/* Everything that has to be released, in one place. */
struct recording {
	struct record_options options;
	struct machine *machine;
	enum machine_fault fault; /* when there is none */
	gp_sampler_t *session;
	struct recorder *recorder;
	struct symbol_files symbols;
	struct program_files *programs; /* NULL without sampling */
	int output_fd;
	_Atomic bool panic_on_console;
};

static int exit_code(enum machine_end end, bool panicked)
{
	if (panicked)
		return RECORD_PANIC;
	switch (end) {
	case MACHINE_POWERED_OFF:
		return RECORD_POWERED_OFF;
	case MACHINE_RESET:
		return RECORD_RESET;
	case MACHINE_TRIPLE_FAULT:
		return RECORD_TRIPLE_FAULT;
	case MACHINE_TEXT_SEEN:
		return RECORD_TEXT_SEEN;
	case MACHINE_DURATION:
		return RECORD_DURATION;
	case MACHINE_TIMED_OUT:
		return RECORD_TIMED_OUT;
	case MACHINE_USER_QUIT:
		return RECORD_USER_QUIT;
	case MACHINE_SIGNALLED:
		return RECORD_SIGNALLED;
	case MACHINE_ERROR:
		return RECORD_KVM_FAILED;
	case MACHINE_RUNNING:
		break;
	}
	return RECORD_FAILED;
}

static int failure(const struct error *error, int code)
{
	fprintf(stderr, "guestprof record: %s\n", error->text);
	return code;
}

/* A guest whose reboot was a panic's: its kernel says so on the console before it resets. The
 * kernel's own memory is asked first, see recorder_summary.panicked. */
static void watch_console(void *context, uint64_t boot_ns, const char *text, size_t size)
{
	static const char panic[] = "Kernel panic - not syncing";
	struct recording *recording = context;

	(void)boot_ns;
	if (memmem(text, size, panic, sizeof(panic) - 1))
		atomic_store(&recording->panic_on_console, true);
}

static void restore_terminal_and_die(int signal)
{
	console_restore();
	raise(signal); /* SA_RESETHAND: the default action now */
}

static void guard_terminal(void)
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGQUIT};
	struct sigaction action = {.sa_handler = restore_terminal_and_die,
				   .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &action, NULL);
	atexit(console_restore);
}

static _Atomic(struct machine *) signalled_machine;
static volatile sig_atomic_t signalled;

static void end_in_order(int signal)
{
	struct machine *machine = signalled_machine;

	(void)signal;
	signalled = 1;
	if (machine)
		machine_request_end(machine, MACHINE_SIGNALLED);
}

/* SIGINT, SIGTERM and SIGHUP end the recording in order. Handlers, not a signalfd: every tick of
 * every vCPU would wake a thread that polls one, whatever its mask (fs/signalfd.c). */
static void catch_signals(void)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = end_in_order, .sa_flags = SA_RESTART};

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

static gp_status_t open_output(struct recording *recording, struct error *error)
{
	const char *path = recording->options.output;
	struct stat file;

	recording->output_fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (recording->output_fd < 0)
		return error_set_errno(error, errno, "cannot write the trace %s (-o)", path);
	/* An old trace goes only now that everything else was found good. */
	if (fstat(recording->output_fd, &file) || !S_ISREG(file.st_mode))
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "the trace %s is not a regular file; give another with -o", path);
	if (ftruncate(recording->output_fd, 0))
		return error_set_errno(error, errno, "cannot empty the old trace %s (-o)", path);
	return GP_OK;
}

static gp_status_t confine_reader(void *context, struct error *error)
{
	const struct recording *recording = context;

	if (!recording->options.machine.sandbox)
		return GP_OK;
	return sandbox_enter_thread(SANDBOX_READER, NULL, error);
}

static gp_status_t start_error(gp_status_t status, const char *event, struct error *error)
{
	switch (status) {
	case GP_ERR_ACCESS_DENIED:
		return error_set(
			error, status,
			"-e %s: this user may not count events; 'sysctl "
			"kernel.perf_event_paranoid=1' or CAP_PERFMON allows it, -e timer needs "
			"nothing",
			event);
	case GP_ERR_NOT_SUPPORTED:
		return error_set(error, status,
				 "-e %s: this host does not count that event (no performance "
				 "monitoring unit?); -e timer and -e cpu-clock need none",
				 event);
	default:
		return error_set(
			error, status,
			"cannot start the ticks (%s): the limit of pending signals (ulimit -i) "
			"or of descriptors (ulimit -n) may be reached",
			gp_status_string(status));
	}
}

static gp_status_t start_sampling(struct recording *recording, struct error *error)
{
	const struct record_options *options = &recording->options;
	gp_sampler_config_t config = {
		.size = sizeof(config),
		.period_ns = options->period_ns,
		.max_depth = options->depth,
		.source = options->source,
		.jitter_percent = options->jitter_percent,
		.vcpus = options->sampled_vcpu_count ? options->sampled_vcpus : NULL,
		.vcpu_count = options->sampled_vcpu_count,
	};
	struct recorder_config recorder = {
		.target = machine_target(recording->machine),
		.fd = recording->output_fd,
		.period_ns = options->period_ns,
		.tick_source = options->event,
		.depth = options->depth,
		.memory_bytes = options->machine.memory,
		.kernel = options->machine.kernel,
		.command_line = options->machine.command_line,
		.copies = program_files_copies(recording->programs),
		.on_thread_start = confine_reader,
		.context = recording,
	};
	gp_status_t status;

	machine_kernel_range(recording->machine, &recorder.startup_start, &recorder.startup_end);
	for (unsigned i = 0; i < recording->symbols.count; i++)
		recorder.tables[recorder.table_count++] = &recording->symbols.tables[i];
	status = gp_sampler_create(machine_target(recording->machine), 0, &config,
				   &recording->session);
	if (status)
		return error_set(error, status, "cannot open a sampler session: %s",
				 gp_status_string(status));
	recorder.session = recording->session;
	status = recorder_start(&recorder, &recording->recorder, error);
	if (status)
		return status;
	status = gp_sampler_start(recording->session, 0);
	if (status)
		return start_error(status, options->event, error);
	return GP_OK;
}

/* The machine has been created: everything from here on leaves a closed trace behind. */
static gp_status_t start(struct recording *recording, struct error *error)
{
	const struct record_options *options = &recording->options;
	gp_status_t status = GP_OK;

	if (options->machine.sandbox && sandbox_is_supported())
		status = sandbox_enter_process(error);
	if (!status)
		status = machine_start(recording->machine, error);
	if (!status && options->period_ns)
		status = start_sampling(recording, error);
	if (!status && options->machine.sandbox && sandbox_is_supported())
		status = sandbox_enter_thread(SANDBOX_MAIN, NULL, error);
	return status;
}

static void print_summary(const struct recording *recording, const char *end,
			  const struct recorder_summary *summary)
{
	const char *path = recording->options.output;
	const gp_sampler_totals_t *totals = &summary->totals;

	fprintf(stderr, "\nguestprof record: %s\n", end);
	if (!recording->recorder && !recording->options.period_ns)
		return;
	fprintf(stderr, "  %llu ticks = %llu stacks + %llu partial + %llu dropped\n",
		(unsigned long long)totals->ticks, (unsigned long long)totals->full,
		(unsigned long long)totals->partial, (unsigned long long)totals->dropped);
	if (summary->symbols_found)
		fprintf(stderr, "  %llu addresses, %llu of them without a name\n",
			(unsigned long long)summary->addresses,
			(unsigned long long)summary->unnamed);
	else
		fprintf(stderr, "  %llu addresses; no kernel symbols: %s\n",
			(unsigned long long)summary->addresses,
			summary->no_names.status ? summary->no_names.text : "not found");
	if (summary->symbols_found && summary->no_tasks.status)
		fprintf(stderr, "  no processes and threads: %s\n", summary->no_tasks.text);
	if (summary->symbols_found && summary->no_programs.status)
		fprintf(stderr, "  no functions of user programs: %s\n", summary->no_programs.text);
	if (summary->symbols_found && summary->no_stacks.status)
		fprintf(stderr, "  kernel stacks by frame pointers only: %s\n",
			summary->no_stacks.text);
	fprintf(stderr, "  trace %s, %llu bytes; guestprof report %s shows where the time went\n",
		path, (unsigned long long)summary->file_bytes, path);
}

static void print_json(const struct recording *recording, const char *end, int code,
		       const struct recorder_summary *summary)
{
	printf("{\"end\":\"%s\",\"exit_code\":%d,\"ticks\":%llu,\"stacks\":%llu,\"partials\":%llu,"
	       "\"dropped\":%llu,\"addresses\":%llu,\"unnamed\":%llu,\"bytes\":%llu,"
	       "\"console_dropped\":%llu}\n",
	       end, code, (unsigned long long)summary->totals.ticks,
	       (unsigned long long)summary->totals.full,
	       (unsigned long long)summary->totals.partial,
	       (unsigned long long)summary->totals.dropped, (unsigned long long)summary->addresses,
	       (unsigned long long)summary->unnamed, (unsigned long long)summary->file_bytes,
	       (unsigned long long)machine_console_dropped(recording->machine));
}

static int run(struct recording *recording)
{
	const struct record_options *options = &recording->options;
	struct machine_limits limits = {
		.duration_ns = options->duration_ns,
		.timeout_ns = options->timeout_ns,
	};
	struct recorder_summary summary = {0};
	struct error error = {0};
	enum machine_end end;
	bool panicked;
	int code;

	end = machine_run(recording->machine, &limits, &error);
	panicked = end == MACHINE_RESET || end == MACHINE_TRIPLE_FAULT
			   ? atomic_load(&recording->panic_on_console)
			   : false;
	if (recording->session)
		gp_sampler_stop(recording->session, 0);
	if (recording->recorder) {
		recorder_finish(recording->recorder, machine_end_string(end), &summary);
		recording->recorder = NULL;
		if (summary.symbols_found)
			panicked = summary.panicked;
	}
	gp_sampler_close(recording->session);
	recording->session = NULL;
	console_restore();
	code = exit_code(end, panicked);
	print_summary(recording, panicked ? "guest panic" : machine_end_string(end), &summary);
	if (options->json)
		print_json(recording, panicked ? "guest panic" : machine_end_string(end), code,
			   &summary);
	if (machine_console_dropped(recording->machine))
		fprintf(stderr,
			"guestprof record: %llu bytes of console output were lost to a slow "
			"reader\n",
			(unsigned long long)machine_console_dropped(recording->machine));
	if (end == MACHINE_ERROR) {
		fprintf(stderr,
			"guestprof record: %s; where KVM emulates guests in software, 'guestprof "
			"lab record ...' runs the same on real KVM ('guestprof doctor' tells)\n",
			error.text);
	}
	if (summary.problem.status) {
		fprintf(stderr, "guestprof record: %s: %s\n", options->output,
			summary.problem.text);
		if (code == RECORD_POWERED_OFF)
			code = RECORD_FAILED;
	}
	if (options->json && fflush(stdout))
		code = code ? code : RECORD_FAILED;
	return code;
}

static gp_status_t prepare(struct recording *recording, struct error *error)
{
	struct record_options *options = &recording->options;
	gp_status_t status = GP_OK;

	for (unsigned i = 0; !status && i < options->symbol_file_count; i++)
		status = symbol_files_add(&recording->symbols, options->symbol_files[i], error);
	/* Before the guest has memory of which a helper would hold a share. */
	if (!status && options->period_ns)
		status = program_files_start(options->machine.initrd, options->symfs,
					     &recording->programs, error);
	if (status)
		return status;
	guard_terminal();
	catch_signals();
	options->machine.console_line = watch_console;
	options->machine.console_line_context = recording;
	status = machine_create(&options->machine, &recording->machine, &recording->fault, error);
	if (status)
		return status;
	signalled_machine = recording->machine;
	if (signalled) /* before there was a machine to end */
		machine_request_end(recording->machine, MACHINE_SIGNALLED);
	if (options->period_ns)
		status = open_output(recording, error);
	return status;
}

static void release(struct recording *recording)
{
	struct recorder_summary summary;

	gp_sampler_close(recording->recorder ? NULL : recording->session);
	if (recording->recorder) {
		gp_sampler_stop(recording->session, 0);
		recorder_finish(recording->recorder, "not started", &summary);
		gp_sampler_close(recording->session);
	}
	signalled_machine = NULL;
	program_files_end(recording->programs);
	machine_destroy(recording->machine);
	symbol_files_deinit(&recording->symbols);
	if (recording->output_fd >= 0)
		close(recording->output_fd);
}

int command_record(int argc, char **argv)
{
	struct recording recording = {.output_fd = -1};
	struct error error = {0};
	int code;

	code = record_options_parse(argc, argv, &recording.options);
	if (code >= 0)
		return code;
	if (prepare(&recording, &error)) {
		code = failure(&error, recording.fault == MACHINE_FAULT_HOST ? RECORD_CANNOT_RUN
									     : RECORD_USAGE);
	} else {
		if (!recording.options.machine.sandbox)
			fputs("guestprof record: WARNING: --no-sandbox: a guest that breaks out of "
			      "KVM has all of your rights\n",
			      stderr);
		else if (!sandbox_is_supported())
			fputs("guestprof record: WARNING: this build cannot be confined "
			      "(sanitizers): no sandbox\n",
			      stderr);
		code = start(&recording, &error) ? failure(&error, RECORD_FAILED) : run(&recording);
	}
	release(&recording);
	return code;
}
