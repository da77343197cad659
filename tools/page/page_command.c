#include "tools/page/page_command.h"

#include "tools/command.h"
#include "tools/output.h"
#include "base/progress.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static gp_status_t read_trace(struct page_data *data, const char *path, struct filter *filter,
			      struct error *error)
{
	static struct trace trace; /* larger than a stack frame should be */
	gp_status_t status = trace_open_watched(path, progress_tell, &trace, error);

	if (status)
		return status;
	status = page_data_add(data, &trace, path, filter, error);
	trace_close(&trace);
	return status;
}

static gp_status_t write_output(const struct page_command *command, const struct page_data *data,
				const char *path, struct error *error)
{
	struct output output;
	gp_status_t status = output_open(&output, path, error);

	if (status)
		return status;
	status = command->write ? command->write(data, output.file, command->context, error)
				: page_write(data, command->type, output.file, error);
	return output_close(&output, status, error);
}

/* boot.fxt gives boot.html; any other name gets the suffix behind it. */
static gp_status_t default_output(const struct page_command *command, char *path, size_t size,
				  struct error *error)
{
	size_t length = strlen(command->trace);

	if (length > 4 && !strcmp(command->trace + length - 4, ".fxt"))
		length -= 4;
	if ((size_t)snprintf(path, size, "%.*s%s", (int)length, command->trace, command->suffix) >=
	    size)
		return error_set(error, GP_ERR_INVALID_ARGS, "the trace's name is too long");
	return GP_OK;
}

int page_command_run(struct page_command *command)
{
	const char *output = command->output;
	struct page_data *data = NULL;
	static char path[PATH_MAX];
	struct error error = {0};
	gp_status_t status = GP_OK;

	if (!output) {
		status = default_output(command, path, sizeof(path), &error);
		output = path;
	}
	progress_begin(command->program);
	if (!status)
		status = page_data_create(command->type == PAGE_TIMELINE, &data, &error);
	if (!status)
		status = read_trace(data, command->trace, &command->filter, &error);
	if (!status && command->base)
		status = read_trace(data, command->base, &command->filter, &error);
	if (!status)
		status = page_data_finish(data, PAGE_NODES_MAX, &error);
	if (!status)
		status = write_output(command, data, output, &error);
	page_data_destroy(data);
	filter_deinit(&command->filter);
	if (!status && !command->output)
		printf("%s\n", output);
	return command_end(command->program, status, &error);
}
