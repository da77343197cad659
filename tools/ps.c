/* guestprof ps: the KVM virtual machines of this host. */
#include "tools/command.h"

#include "attach/attached_vm.h"
#include "attach/process_rights.h"
#include "tools/options.h"
#include "trace/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"usage: guestprof ps [OPTIONS]\n"
	"Lists the KVM virtual machines of this host that this user may see, and for\n"
	"those that 'guestprof attach' cannot profile the reason.\n"
	"\n"
	"      --passive           only look at /proc: do not stop a vCPU for the moment\n"
	"                          that it takes to find the guest's memory and kernel\n"
	"  -h, --help\n"
	"\n"
	"Exit codes: 0 there are some, 1 something failed, 3 there are none, 2 bad\n"
	"input.\n"
	"\n"
	"Examples: guestprof ps\n"
	"          guestprof ps --passive\n";

enum { PS_NONE = 3 };

struct listing {
	bool passive;
	unsigned count;
};

/* The names are another process's choice. */
static void print_name(const char *name, int width)
{
	int length = (int)strlen(name);

	if (!length) {
		printf("%-*s", width, "-");
		return;
	}
	trace_print_name(stdout, name, strlen(name));
	for (; length < width; length++)
		putchar(' ');
}

static void print_memory(uint64_t bytes)
{
	if (bytes)
		printf(" %7llu M  ", (unsigned long long)(bytes >> 20));
	else
		printf(" %9s  ", "-");
}

static void print_machine(void *context, struct vm_process *process)
{
	struct attach_config config = {.pid = process->pid};
	struct listing *listing = context;
	struct attached_vm *vm = NULL;
	struct error error = {0};

	if (!listing->count++)
		printf("%7s  %-18s %-20s %5s %9s  %s\n", "PID", "VMM", "NAME", "VCPUS", "MEMORY",
		       "GUEST");
	printf("%7d  ", (int)process->pid);
	print_name(process->vmm, 18);
	putchar(' ');
	print_name(process->name, 20);
	printf(" %5u", process->vcpu_count);
	if (listing->passive) {
		print_memory(0);
		puts("-");
		return;
	}
	if (attached_vm_create(&config, &vm, &error)) {
		print_memory(0);
		printf("cannot be attached to: %s\n", error.text);
		return;
	}
	print_memory(attached_vm_info(vm)->memory_bytes);
	print_name(*attached_vm_info(vm)->banner ? attached_vm_info(vm)->banner
						 : "not recognised as Linux",
		   0);
	putchar('\n');
	attached_vm_destroy(vm);
}

static const char program[] = "guestprof ps";

static void tell_hidden(const struct hidden_processes *hidden)
{
	char rights[300];

	process_rights("/proc", hidden->first, rights, sizeof(rights));
	fprintf(stderr,
		"%s: %u process%s may not be looked at, and may run machines, too; process %d%s: "
		"%s\n",
		program, hidden->count, hidden->count == 1 ? "" : "es", (int)hidden->first,
		hidden->count == 1 ? "" : ", for one", rights);
}

int command_ps(int argc, char **argv)
{
	static struct listing listing;
	static const struct option_row rows[] = {
		OPTION("passive", 0, OPTION_FLAG, &listing.passive, ),
		OPTIONS_END,
	};
	struct error error = {0};
	struct hidden_processes hidden;
	int code = options_parse(
		&(struct command_line){.program = program, .help = help, .rows = rows}, argc, argv);

	if (code >= 0)
		return code;
	if (optind < argc)
		return option_bad(program, "'%s' is not an option", argv[optind]);
	if (vm_processes("/proc", print_machine, &listing, &hidden, &error))
		return command_end(program, error.status, &error);
	if (fflush(stdout))
		return EXIT_FAILURE;
	if (hidden.count)
		tell_hidden(&hidden);
	if (!listing.count)
		fprintf(stderr, "%s: no KVM virtual machine runs here that this user may see\n",
			program);
	return listing.count ? EXIT_SUCCESS : PS_NONE;
}
