#include "recording/symbol_files.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "guest-introspection/elf/symbols_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SYMBOL_FILE_MAX ((size_t)2 << 30)

/* Splits FILE@BASE at the last @ behind which a number stands; a file may have an @ in its
 * name. Changes `argument`. */
static bool split_base(char *argument, struct symbols_base *base)
{
	char *at = strrchr(argument, '@'), *end;

	*base = (struct symbols_base){0};
	if (!at)
		return true;
	errno = 0;
	base->address = strtoull(at + 1, &end, 0);
	if (errno || *end || end == at + 1 || at[1] == '-' || at[1] == '+')
		return access(argument, F_OK) == 0;
	base->given = true;
	*at = 0;
	return true;
}

static bool is_elf(const char *path)
{
	static const char magic[] = {0x7f, 'E', 'L', 'F'};
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char start[sizeof(magic)];

	return fd >= 0 && pread(fd, start, sizeof(start), 0) == (ssize_t)sizeof(start) &&
	       !memcmp(start, magic, sizeof(magic));
}

gp_status_t symbol_files_add(struct symbol_files *files, const char *argument, struct error *error)
{
	AUTO_FREE char *path = strdup(argument);
	AUTO_FREE void *bytes = NULL;
	struct symbols_base base;
	gp_status_t status;
	size_t size = 0;

	if (!path)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory");
	if (files->count == SYMBOL_FILES_MAX)
		return error_set(error, GP_ERR_NO_RESOURCES, "more than %d symbol files",
				 SYMBOL_FILES_MAX);
	if (!split_base(path, &base))
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "--symbols %s: what follows the @ is not an address such as "
				 "0xffffffff81000000",
				 argument);
	status = io_read_file("the symbol file", path, SYMBOL_FILE_MAX, &bytes, &size, error);
	if (status)
		return status;
	status = symbols_file_parse(bytes, size, base, &files->tables[files->count], error);
	if (status) {
		error_prefix(error, "--symbols %s", argument);
		return status;
	}
	files->count++;
	return GP_OK;
}

gp_status_t symbol_files_read_kernel(const char *path, struct symbol_table *out, bool *found,
				     struct error *error)
{
	AUTO_FREE void *bytes = NULL;
	struct error ignored;
	gp_status_t status;
	size_t size = 0;

	*found = false;
	if (!is_elf(path))
		return GP_OK;
	status = io_read_file("the symbol file", path, SYMBOL_FILE_MAX, &bytes, &size, error);
	if (status)
		return status;
	status = symbols_file_parse(bytes, size, (struct symbols_base){0}, out, &ignored);
	if (status == GP_ERR_NO_MEMORY)
		return error_set(error, status, "no memory for the symbols of %s", path);
	/* If it is no kernel, booting it will fail. */
	*found = status == GP_OK;
	return GP_OK;
}

void symbol_files_deinit(struct symbol_files *files)
{
	for (unsigned i = 0; i < files->count; i++)
		symbol_table_deinit(&files->tables[i]);
	files->count = 0;
}
