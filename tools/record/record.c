/* guestprof record: boots a guest and profiles it. */
#include "tools/command.h"

#include "tools/end_signals.h"
#include "tools/output.h"
#include "base/progress.h"
#include "tools/record/record.h"
#include "tools/record/record_status.h"
#include "tools/record/sampling.h"
#include "tools/record/sampling_summary.h"
#include "vmm/devices/console.h"
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
#define EXIT_GUEST_PANIC 17
#define EXIT_CANNOT_RUN 21
static const int exit_codes[] = {
	[GUEST_RUNNING] = EXIT_FAILURE,
	[GUEST_POWERED_OFF] = EXIT_SUCCESS,
	[GUEST_RESET] = 10,
	[GUEST_TRIPLE_FAULT] = 11,
	[GUEST_TEXT_SEEN] = 12,
	[GUEST_DURATION] = 13,
	[GUEST_TIMED_OUT] = 14,
	[GUEST_USER_QUIT] = 15,
	[GUEST_SIGNALLED] = 16,
	[GUEST_ERROR] = 20, /* KVM failed */
};

/* Everything that has to be released, in one place. */
struct recording {
	struct record_options options;
	struct machine *machine;
	enum machine_fault fault; /* when there is none */
	struct sampling sampling;
	_Atomic bool panic_on_console;
	struct record_status line; /* main's */
	struct record_status key;  /* the device thread's, for Ctrl-A s */
	_Atomic bool key_ready;
};

static int failure(const struct error *error, int code)
{
	fprintf(stderr, "guestprof record: %s\n", error->text);
	return code;
}

/* Lines go into the trace. And a guest whose reboot was a panic's: its kernel says so on the
 * console before it resets. The kernel's own memory is asked first, see recorder_summary.panicked.
 */
static void watch_console(void *context, uint64_t boot_ns, const char *text, size_t size)
{
	static const char panic[] = "Kernel panic - not syncing";
	struct recording *recording = context;

	if (recording->sampling.recorder)
		recorder_note_line(recording->sampling.recorder, boot_ns, text, size);
	if (memmem(text, size, panic, sizeof(panic) - 1))
		atomic_store(&recording->panic_on_console, true);
}

static size_t answer_key(void *context, char *text, size_t size)
{
	struct recording *recording = context;

	/* Keys are taken before the guest runs. */
	if (!atomic_load(&recording->key_ready))
		return 0;
	return record_status_text(&recording->key, text, size);
}

static void draw_line(void *context)
{
	struct recording *recording = context;

	record_status_draw(&recording->line);
}

static void end_in_order(void *machine)
{
	machine_request_end(machine, GUEST_SIGNALLED);
}

static gp_status_t confine_reader(void *context, struct error *error)
{
	const struct recording *recording = context;

	if (!recording->options.machine.sandbox)
		return GP_OK;
	return sandbox_enter_thread(SANDBOX_READER, NULL, error);
}

static gp_status_t start_sampling(struct recording *recording, struct error *error)
{
	const struct machine_config *machine = &recording->options.machine;
	struct recorder_config config = {
		.target = machine_target(recording->machine),
		.about = {.memory_bytes = machine->memory,
			  .kernel = machine->kernel,
			  .command_line = machine->command_line},
		.on_thread_start = confine_reader,
		.context = recording,
	};

	machine_kernel_range(recording->machine, &config.names.startup_start,
			     &config.names.startup_end);
	return sampling_start(&recording->sampling, &config, error);
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
	if (!status && options->sampling.period_ns)
		status = start_sampling(recording, error);
	record_status_init(&recording->line, recording->sampling.session,
			   recording->sampling.recorder, options->machine.vcpus);
	recording->key = recording->line;
	atomic_store(&recording->key_ready, true);
	if (!status && options->machine.sandbox && sandbox_is_supported())
		status = sandbox_enter_thread(SANDBOX_MAIN, NULL, error);
	return status;
}

static void print_json(const struct recording *recording, const char *end, int code,
		       const struct recorder_summary *summary)
{
	putchar('{');
	sampling_print_json(end, code, summary);
	printf(",\"console_dropped\":%llu,\"console_lines\":%llu,\"console_lines_lost\":%llu}\n",
	       (unsigned long long)machine_console_dropped(recording->machine),
	       (unsigned long long)summary->console.lines,
	       (unsigned long long)summary->console.lost);
}

static int run(struct recording *recording)
{
	const struct record_options *options = &recording->options;
	struct machine_limits limits = {
		.duration_ns = options->sampling.duration_ns,
		.timeout_ns = options->timeout_ns,
	};
	struct recorder_summary summary = {0};
	struct error error = {0};
	enum guest_end end;
	const char *how;
	bool panicked;
	int code;

	if (progress_has_place(options->machine.console_output_fd, STDERR_FILENO)) {
		limits.watch = draw_line;
		limits.watch_context = recording;
		limits.watch_ns = RECORD_STATUS_NS;
	}
	end = machine_run(recording->machine, &limits, &error);
	progress_end();
	panicked = (end == GUEST_RESET || end == GUEST_TRIPLE_FAULT) &&
		   atomic_load(&recording->panic_on_console);
	sampling_finish(&recording->sampling, guest_end_string(end), &summary);
	if (summary.symbols_found)
		panicked = summary.panicked;
	console_restore();
	code = panicked ? EXIT_GUEST_PANIC : exit_codes[end];
	how = panicked ? "guest panic" : guest_end_string(end);
	sampling_print_summary(&recording->sampling, how, &summary);
	if (options->sampling.json)
		print_json(recording, how, code, &summary);
	if (machine_console_dropped(recording->machine))
		fprintf(stderr,
			"guestprof record: %llu bytes of console output were lost to a slow "
			"reader\n",
			(unsigned long long)machine_console_dropped(recording->machine));
	if (end == GUEST_ERROR) {
		fprintf(stderr,
			"guestprof record: %s; where KVM emulates guests in software, 'guestprof "
			"lab record ...' runs the same on real KVM ('guestprof doctor' tells)\n",
			error.text);
	}
	if (summary.problem.status) {
		fprintf(stderr, "guestprof record: %s: %s\n", options->sampling.output,
			summary.problem.text);
		if (code == EXIT_SUCCESS)
			code = EXIT_FAILURE;
	}
	return code;
}

/* The trace must not take the place of what the guest boots from. */
static void protect_inputs(const struct machine_config *machine)
{
	output_protect(machine->kernel);
	if (machine->initrd)
		output_protect(machine->initrd);
	for (unsigned i = 0; i < machine->disk_count; i++)
		output_protect(machine->disks[i].path);
}

static gp_status_t prepare(struct recording *recording, struct error *error)
{
	struct record_options *options = &recording->options;
	gp_status_t status = sampling_init(&recording->sampling, "guestprof record",
					   &options->machine, &options->sampling, error);

	if (!status)
		status = sampling_use_kernel(&recording->sampling, options->machine.kernel, error);
	if (status)
		return status;
	crash_signals_catch(console_restore);
	atexit(console_restore);
	end_signals_catch(end_in_order);
	options->machine.console_line = watch_console;
	options->machine.console_line_context = recording;
	options->machine.console_status = answer_key;
	options->machine.console_status_context = recording;
	status = machine_create(&options->machine, &recording->machine, &recording->fault, error);
	if (status)
		return status;
	end_signals_aim(recording->machine);
	protect_inputs(&options->machine);
	if (options->sampling.period_ns)
		status = sampling_open_output(&recording->sampling, error);
	return status;
}

static void release(struct recording *recording)
{
	struct recorder_summary summary;

	sampling_finish(&recording->sampling, "not started", &summary);
	end_signals_aim(NULL);
	machine_destroy(recording->machine);
	sampling_deinit(&recording->sampling);
}

int record_run(const struct record_options *options)
{
	struct recording recording = {.options = *options, .sampling = {.output_fd = -1}};
	struct error error = {0};
	int code;

	if (prepare(&recording, &error)) {
		code = failure(&error, recording.fault == MACHINE_FAULT_HOST ? EXIT_CANNOT_RUN
									     : EXIT_USAGE);
	} else {
		if (!recording.options.machine.sandbox)
			fputs("guestprof record: WARNING: --no-sandbox: a guest that breaks out of "
			      "KVM has all of your rights\n",
			      stderr);
		else if (!sandbox_is_supported())
			fputs("guestprof record: WARNING: this build cannot be confined "
			      "(sanitizers): no sandbox\n",
			      stderr);
		code = start(&recording, &error) ? failure(&error, EXIT_FAILURE) : run(&recording);
	}
	release(&recording);
	return code;
}

int command_record(int argc, char **argv)
{
	struct record_options options;
	int code = record_options_parse(argc, argv, &options);

	return code >= 0 ? code : record_run(&options);
}
