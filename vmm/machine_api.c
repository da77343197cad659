/* The public face of machine.h: guestprof/machine.h. Nothing but a translation, and the states that
 * a program from outside may get wrong. */
#include "vmm/machine.h"
#include "vmm/sandbox.h"

#include <guestprof/machine.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNTIL_BYTES_MAX 1024

enum state { CREATED, STARTED, START_FAILED, RUN };

struct gp_machine {
	struct machine *machine;
	enum state state;
	bool sandbox;
};

static gp_status_t machine_api_tell(const struct error *error, char *text, size_t size)
{
	if (text && size)
		snprintf(text, size, "%s", error->text);
	return error->status;
}

static gp_status_t translate(const gp_machine_config_t *from, struct machine_config *to,
			     struct error *error)
{
	if (!from || from->size < sizeof(*from))
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "no configuration: gp_machine_config_init() makes one");
	if (!from->kernel)
		return error_set(error, GP_ERR_INVALID_ARGS, "no kernel given");
	if (from->flags & ~GP_MACHINE_SANDBOX)
		return error_set(error, GP_ERR_INVALID_ARGS, "flags 0x%x: not known", from->flags);
	if (from->disk_count > MACHINE_DISKS_MAX || (from->disk_count && !from->disks))
		return error_set(error, GP_ERR_INVALID_ARGS, "%zu disks: up to %d are possible",
				 from->disk_count, MACHINE_DISKS_MAX);
	if (from->until && (!*from->until || strlen(from->until) > UNTIL_BYTES_MAX))
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "a text that ends the machine has 1 to %d bytes", UNTIL_BYTES_MAX);
	if ((from->flags & GP_MACHINE_SANDBOX) && !sandbox_is_supported())
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "a build with sanitizers cannot be confined");
	*to = (struct machine_config){
		.kvm_path = from->kvm_path,
		.kernel = from->kernel,
		.initrd = from->initrd,
		.command_line = from->command_line ? from->command_line : "",
		.vcpus = from->vcpus,
		.memory = from->memory_bytes,
		.disk_count = (unsigned)from->disk_count,
		.sandbox = (from->flags & GP_MACHINE_SANDBOX) != 0,
		.console_input_fd = from->console_input_fd,
		.console_output_fd = from->console_output_fd,
		.until = from->until,
		.until_size = from->until ? strlen(from->until) : 0,
		.console_line = from->console_line,
		.console_line_context = from->console_line_context,
	};
	for (size_t i = 0; i < from->disk_count; i++) {
		if (!from->disks[i].path || from->disks[i].read_only > 1)
			return error_set(error, GP_ERR_INVALID_ARGS, "disk %zu: no path", i);
		to->disks[i] =
			(struct machine_disk){from->disks[i].path, from->disks[i].read_only != 0};
	}
	return GP_OK;
}

gp_status_t gp_machine_create(const gp_machine_config_t *config, gp_machine_t **out,
			      char *error_text, size_t error_size)
{
	struct machine_config internal;
	struct gp_machine *machine;
	struct error error = {0};

	if (!out) {
		error_set(&error, GP_ERR_INVALID_ARGS, "`out` is NULL");
		return machine_api_tell(&error, error_text, error_size);
	}
	if (translate(config, &internal, &error))
		return machine_api_tell(&error, error_text, error_size);
	machine = calloc(1, sizeof(*machine));
	if (!machine) {
		error_set(&error, GP_ERR_NO_MEMORY, "no memory for a machine");
		return machine_api_tell(&error, error_text, error_size);
	}
	machine->sandbox = internal.sandbox;
	if (machine_create(&internal, &machine->machine, NULL, &error)) {
		free(machine);
		return machine_api_tell(&error, error_text, error_size);
	}
	*out = machine;
	return GP_OK;
}

gp_status_t gp_machine_start(gp_machine_t *machine, char *error_text, size_t error_size)
{
	struct error error = {0};
	gp_status_t status = GP_OK;

	if (!machine || machine->state != CREATED) {
		error_set(&error, machine ? GP_ERR_BAD_STATE : GP_ERR_INVALID_ARGS,
			  "a machine can be started once");
		return machine_api_tell(&error, error_text, error_size);
	}
	if (machine->sandbox)
		status = sandbox_enter_process(&error);
	if (!status)
		status = machine_start(machine->machine, &error);
	machine->state = status ? START_FAILED : STARTED;
	return status ? machine_api_tell(&error, error_text, error_size) : GP_OK;
}

_Static_assert((int)GUEST_POWERED_OFF == GP_MACHINE_END_POWERED_OFF &&
		       (int)GUEST_RESET == GP_MACHINE_END_RESET &&
		       (int)GUEST_TRIPLE_FAULT == GP_MACHINE_END_TRIPLE_FAULT &&
		       (int)GUEST_TEXT_SEEN == GP_MACHINE_END_TEXT_SEEN &&
		       (int)GUEST_DURATION == GP_MACHINE_END_TIME_OVER &&
		       (int)GUEST_SIGNALLED == GP_MACHINE_END_REQUESTED &&
		       (int)GUEST_USER_QUIT == GP_MACHINE_END_USER_QUIT,
	       "one numbering of ends");

gp_status_t gp_machine_run(gp_machine_t *machine, uint64_t limit_ns, gp_machine_end_t *end,
			   char *error_text, size_t error_size)
{
	struct machine_limits limits = {.duration_ns = limit_ns};
	struct error error = {0};
	enum guest_end reason;

	if (!machine || !end || machine->state != STARTED) {
		error_set(&error, machine && end ? GP_ERR_BAD_STATE : GP_ERR_INVALID_ARGS,
			  "a machine can be run once, after it was started");
		return machine_api_tell(&error, error_text, error_size);
	}
	machine->state = RUN;
	reason = machine_run(machine->machine, &limits, &error);
	if (reason == GUEST_ERROR) {
		if (!error.status)
			error_set(&error, GP_ERR_INTERNAL, "the machine failed without a reason");
		return machine_api_tell(&error, error_text, error_size);
	}
	*end = (gp_machine_end_t)reason;
	return GP_OK;
}

void gp_machine_request_end(gp_machine_t *machine)
{
	machine_request_end(machine->machine, GUEST_SIGNALLED);
}

gp_target_t *gp_machine_target(gp_machine_t *machine)
{
	return machine_target(machine->machine);
}

const char *gp_machine_end_string(gp_machine_end_t end)
{
	if (end == GP_MACHINE_END_TIME_OVER)
		return "time over";
	if (end == GP_MACHINE_END_REQUESTED)
		return "end requested";
	return end >= GP_MACHINE_END_POWERED_OFF && end <= GP_MACHINE_END_USER_QUIT
		       ? guest_end_string((enum guest_end)end)
		       : "unknown";
}

void gp_machine_destroy(gp_machine_t *machine)
{
	if (!machine)
		return;
	machine_destroy(machine->machine);
	free(machine);
}
