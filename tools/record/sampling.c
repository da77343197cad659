#include "tools/record/sampling.h"

#include "tools/output.h"
#include "vmm/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static gp_status_t start_helper(struct sampling *sampling, const struct machine_config *machine,
				struct error *error)
{
	const char *disks[MACHINE_DISKS_MAX];
	struct program_files_places places = {
		.symfs = sampling->options->symfs, .disks = disks, .confine = sandbox_disk_reader};
	const char *problem;
	gp_status_t status;

	if (machine) {
		places.initrd = machine->initrd;
		places.disk_count = machine->disk_count;
		for (unsigned i = 0; i < machine->disk_count; i++)
			disks[i] = machine->disks[i].path;
	}
	status = program_files_start(&places, &sampling->programs, error);
	problem = status ? NULL : program_files_no_disks(sampling->programs);
	if (problem)
		fprintf(stderr,
			"%s: programs are not looked for on the disks (-d), and stacks of those "
			"there may end early: %s\n",
			sampling->command, problem);
	return status;
}

gp_status_t sampling_init(struct sampling *sampling, const char *command,
			  const struct machine_config *machine,
			  const struct sampling_options *options, struct error *error)
{
	gp_status_t status = GP_OK;

	*sampling = (struct sampling){.command = command, .options = options, .output_fd = -1};
	for (unsigned i = 0; !status && i < options->symbol_file_count; i++)
		status = symbol_files_add(&sampling->symbols, options->symbol_files[i], error);
	/* Before a guest has memory of which the helper would hold a share. */
	if (!status && options->period_ns)
		status = start_helper(sampling, machine, error);
	return status;
}

gp_status_t sampling_use_kernel(struct sampling *sampling, const char *path, struct error *error)
{
	if (!sampling->options->period_ns)
		return GP_OK;
	return symbol_files_read_kernel(path, &sampling->kernel_file, &sampling->has_kernel_file,
					error);
}

void sampling_deinit(struct sampling *sampling)
{
	struct recorder_summary summary;

	sampling_finish(sampling, "not started", &summary);
	program_files_end(sampling->programs);
	sampling->programs = NULL;
	symbol_files_deinit(&sampling->symbols);
	if (sampling->has_kernel_file)
		symbol_table_deinit(&sampling->kernel_file);
	sampling->has_kernel_file = false;
	if (sampling->output_fd >= 0)
		close(sampling->output_fd);
	sampling->output_fd = -1;
}

gp_status_t sampling_open_output(struct sampling *sampling, struct error *error)
{
	const char *path = sampling->options->output;
	struct stat file;

	for (unsigned i = 0; i < sampling->options->symbol_file_count; i++)
		output_protect(sampling->options->symbol_files[i]);
	if (output_is_protected(path))
		return error_set(
			error, GP_ERR_INVALID_ARGS,
			"%s is what is read, and would be lost; give another trace with -o", path);
	sampling->output_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (sampling->output_fd < 0)
		return error_set_errno(error, errno, "cannot write the trace %s (-o)", path);
	/* An old trace goes only now that everything else was found good. */
	if (fstat(sampling->output_fd, &file) || !S_ISREG(file.st_mode))
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "the trace %s is not a regular file; give another with -o", path);
	if (ftruncate(sampling->output_fd, 0))
		return error_set_errno(error, errno, "cannot empty the old trace %s (-o)", path);
	/* The reader may have gone meanwhile: no error. */
	if (sampling->options->ready_fd >= 0 && write(sampling->options->ready_fd, "", 1) < 0)
		return GP_OK;
	return GP_OK;
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

bool sampling_is_compressed(const struct sampling_options *options)
{
	size_t length = strlen(options->output);

	return length > 3 && !strcmp(options->output + length - 3, ".gz");
}

gp_status_t sampling_start(struct sampling *sampling, struct recorder_config *config,
			   struct error *error)
{
	const struct sampling_options *options = sampling->options;
	gp_sampler_config_t session = {
		.size = sizeof(session),
		.period_ns = options->period_ns,
		.max_depth = (uint32_t)options->depth,
		.source = options->source,
		.jitter_percent = (uint32_t)options->jitter_percent,
		.vcpus = options->sampled_vcpu_count ? options->sampled_vcpus : NULL,
		.vcpu_count = options->sampled_vcpu_count,
	};
	gp_status_t status;

	config->fd = sampling->output_fd;
	config->copies = program_files_copies(sampling->programs);
	config->compress = sampling_is_compressed(options);
	config->about.period_ns = options->period_ns;
	config->about.tick_source = options->event;
	config->about.depth = (uint32_t)options->depth;
	config->names.tables = sampling->symbols.tables;
	config->names.table_count = sampling->symbols.count;
	if (sampling->has_kernel_file)
		config->names.kernel_file = &sampling->kernel_file;
	status = gp_sampler_create(config->target, 0, &session, &sampling->session);
	if (status)
		return error_set(error, status, "cannot open a sampler session: %s",
				 gp_status_string(status));
	config->session = sampling->session;
	status = recorder_start(config, &sampling->recorder, error);
	if (status)
		return status;
	status = gp_sampler_start(sampling->session, 0);
	if (status)
		return start_error(status, options->event, error);
	return GP_OK;
}

void sampling_finish(struct sampling *sampling, const char *end_reason,
		     struct recorder_summary *summary)
{
	*summary = (struct recorder_summary){0};
	if (sampling->session)
		gp_sampler_stop(sampling->session, 0);
	if (sampling->recorder)
		recorder_finish(sampling->recorder, end_reason, summary);
	sampling->recorder = NULL;
	gp_sampler_close(sampling->session);
	sampling->session = NULL;
}
