/* guestprof attach: profiles a virtual machine that another process runs. */
#include "tools/command.h"

#include "tools/record/attach.h"
#include "attach/attached_vm.h"
#include "attach/domain.h"
#include "attach/libvirt.h"
#include "tools/end_signals.h"
#include "tools/record/sampling.h"
#include "tools/record/sampling_summary.h"
#include "vmm/sandbox.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char program[] = "guestprof attach";

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

/* Documented in guestprof-attach(1) and stable; where they mean the same as those of guestprof
 * record they are the same. */
#define EXIT_GUEST_PANIC 17
#define EXIT_CANNOT_ATTACH 21
static const int exit_codes[] = {
	[GUEST_RUNNING] = EXIT_FAILURE,
	[GUEST_VMM_EXITED] = EXIT_SUCCESS,
	[GUEST_RESET] = 10,
	[GUEST_DURATION] = 13,
	[GUEST_SIGNALLED] = 16,
	[GUEST_VMM_KILLED] = 18,
};

static int failure(const struct error *error, int code)
{
	fprintf(stderr, "%s: %s\n", program, error->text);
	return code;
}

static void end_in_order(void *vm)
{
	attached_vm_request_end(vm, GUEST_SIGNALLED);
}

static void tell_event(void *context, const char *text)
{
	(void)context;
	fprintf(stderr, "%s: %s\n", program, text);
}

static gp_status_t attach(const struct attach_options *options, struct attached_vm **vm,
			  struct error *error)
{
	struct attach_config config = {
		.signal_kick = options->signal_kick,
		.on_event = tell_event,
	};
	const char *uris[LIBVIRT_CONNECTIONS_MAX];
	const struct domain_places places = domain_places_here(uris);
	gp_status_t status = domain_find(&places, options->machine, &config.pid, error);

	if (!status && sandbox_is_supported())
		status = sandbox_enter_process(error);
	if (status)
		return status;
	end_signals_catch(end_in_order);
	return attached_vm_create(&config, vm, error);
}

static gp_status_t check_vcpus(const struct sampling_options *options,
			       const struct attached_info *info, struct error *error)
{
	for (size_t i = 0; i < options->sampled_vcpu_count; i++)
		if (options->sampled_vcpus[i] >= info->process->vcpu_count)
			return error_set(error, GP_ERR_INVALID_ARGS,
					 "--sample-cpus names vCPU %u; the machine has %u",
					 options->sampled_vcpus[i], info->process->vcpu_count);
	return GP_OK;
}

/* Those that read what the guest has laid out need no more than the trace and its memory, which are
 * open. The threads that stop vCPUs need ptrace() all the time. */
static gp_status_t confine_reader(void *context, struct error *error)
{
	(void)context;
	return sandbox_is_supported() ? sandbox_enter_thread(SANDBOX_READER, NULL, error) : GP_OK;
}

/* What the trace says of where it comes from. */
static void describe(const struct attached_info *info, char *text, size_t size)
{
	const struct vm_process *process = info->process;

	snprintf(text, size, "process %d, %s%s%s: %s", (int)process->pid,
		 *process->vmm ? process->vmm : "unknown VMM", *process->name ? ", " : "",
		 process->name, info->method);
}

static void print_counts(const struct attached_vm *vm)
{
	struct attached_counts counts;

	attached_vm_counts(vm, &counts);
	fprintf(stderr, "  %llu ticks found a vCPU asleep, %llu its VMM at work; %llu kicks missed",
		(unsigned long long)counts.halted, (unsigned long long)counts.in_vmm,
		(unsigned long long)counts.missed);
	if (counts.stale)
		fprintf(stderr, ", %llu times without registers", (unsigned long long)counts.stale);
	fputc('\n', stderr);
}

static void print_json(const struct attached_vm *vm, const char *end, int code,
		       const struct recorder_summary *summary)
{
	struct attached_counts counts;

	attached_vm_counts(vm, &counts);
	putchar('{');
	sampling_print_json(end, code, summary);
	printf(",\"pid\":%d,\"asleep\":%llu,\"in_vmm\":%llu,\"missed\":%llu,\"stale\":%llu,"
	       "\"signals\":%llu,\"pauses\":%llu}\n",
	       (int)attached_vm_info(vm)->process->pid, (unsigned long long)counts.halted,
	       (unsigned long long)counts.in_vmm, (unsigned long long)counts.missed,
	       (unsigned long long)counts.stale, (unsigned long long)counts.signals,
	       (unsigned long long)counts.pauses);
}

static int run(struct sampling *sampling, struct attached_vm *vm)
{
	const struct sampling_options *options = sampling->options;
	enum guest_end end = attached_vm_wait(vm, options->duration_ns);
	struct recorder_summary summary;
	bool panicked;
	const char *text;
	int code;

	sampling_finish(sampling, guest_end_string(end), &summary);
	/* A guest that panicked long ago was attached to nevertheless: only an end that may be the
	 * panic's doing counts. */
	panicked = summary.panicked && (end == GUEST_RESET || end == GUEST_VMM_EXITED);
	text = panicked ? "guest panic" : guest_end_string(end);
	code = panicked ? EXIT_GUEST_PANIC : exit_codes[end];
	sampling_print_summary(sampling, text, &summary);
	print_counts(vm);
	if (options->json)
		print_json(vm, text, code, &summary);
	if (summary.problem.status) {
		fprintf(stderr, "%s: %s: %s\n", program, options->output, summary.problem.text);
		code = EXIT_FAILURE;
	}
	return code;
}

static int record(struct sampling *sampling, struct attached_vm *vm)
{
	const struct attached_info *info = attached_vm_info(vm);
	char source[512];
	struct recorder_config config = {
		.target = attached_vm_target(vm),
		.about = {.memory_bytes = info->memory_bytes, .source = source},
		.on_thread_start = confine_reader,
	};
	struct error error = {0};

	describe(info, source, sizeof(source));
	if (check_vcpus(sampling->options, info, &error) || sampling_open_output(sampling, &error))
		return failure(&error, EXIT_USAGE);
	if (sampling_start(sampling, &config, &error))
		return failure(&error, EXIT_FAILURE);
	fprintf(stderr, "%s: %u vCPU%s of %s\n", program, info->process->vcpu_count,
		info->process->vcpu_count == 1 ? "" : "s", source);
	return run(sampling, vm);
}

int attach_run(const struct attach_options *options)
{
	struct attached_vm *vm = NULL;
	struct sampling sampling;
	struct error error = {0};
	int code;

	if (sampling_init(&sampling, program, NULL, &options->sampling, &error)) {
		code = failure(&error, EXIT_USAGE);
	} else if (attach(options, &vm, &error)) {
		code = failure(&error, EXIT_CANNOT_ATTACH);
	} else {
		end_signals_aim(vm);
		code = record(&sampling, vm);
	}
	sampling_deinit(&sampling);
	end_signals_aim(NULL);
	attached_vm_destroy(vm);
	return code;
}

int attach_options_parse(int argc, char **argv, struct attach_options *options)
{
	static const char *const kicks[] = {"ptrace", "signal", NULL};
	struct sampling_options *sampling = &options->sampling;
	unsigned kick = 0;
	const struct option_row rows[] = {
		SAMPLING_ROWS(sampling),
		OPTION("kick", 0, OPTION_WORD, &kick, .words = kicks,
		       .hint = "give ptrace or signal"),
		OPTIONS_END,
	};
	int code;

	*options = (struct attach_options){0};
	sampling_options_init(sampling);
	code = options_parse(&(struct command_line){.program = program, .help = help, .rows = rows},
			     argc, argv);
	if (code < 0)
		code = sampling_options_check(program, sampling);
	if (code >= 0)
		return code;
	if (optind >= argc)
		return option_bad(program, "give the PID or the name of a machine");
	if (optind + 1 < argc)
		return option_bad(program, "'%s': one machine at a time", argv[optind + 1]);
	if (!sampling->period_ns)
		return option_bad(program, "-F 0: nothing would be sampled");
	/* Events would be those of our own threads. */
	if (sampling->source != GP_TICK_TIMER)
		return option_bad(program, "-e %s: only the timer ticks here", sampling->event);
	options->machine = argv[optind];
	options->signal_kick = kick;
	return -1;
}

int command_attach(int argc, char **argv)
{
	struct attach_options options;
	int code = attach_options_parse(argc, argv, &options);

	return code >= 0 ? code : attach_run(&options);
}
