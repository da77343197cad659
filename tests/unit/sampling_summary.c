/* What a command that samples says at its end, of a trace with figures that are known
 * (tests/golden/tasks.fxt). */
#include "tools/record/sampling_summary.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char said[4096];
static int ready_fd = -1;

static void print(const struct recorder_summary *summary, int trace_fd)
{
	struct sampling_options options = {.output = "boot.fxt", .ready_fd = ready_fd};
	struct sampling sampling = {
		.command = "guestprof record", .options = &options, .output_fd = trace_fd};
	int saved = dup(STDERR_FILENO), file = memfd_create("said", MFD_CLOEXEC);
	ssize_t size;

	cr_assert_geq(dup2(file, STDERR_FILENO), 0);
	sampling_print_summary(&sampling, "powered off", summary);
	fflush(stderr);
	dup2(saved, STDERR_FILENO);
	size = pread(file, said, sizeof(said) - 1, 0);
	said[size > 0 ? size : 0] = 0;
	close(file);
	close(saved);
}

static struct recorder_summary of_golden(int *fd)
{
	struct recorder_summary summary = {
		.totals = {200, 193, 2, 5, 0}, .symbols_found = true, .tasks_found = true};
	struct stat file;

	*fd = open("tests/golden/tasks.fxt", O_RDONLY | O_CLOEXEC);
	cr_assert_geq(*fd, 0, "run from the top of the sources");
	cr_assert_eq(fstat(*fd, &file), 0);
	summary.file_bytes = (uint64_t)file.st_size;
	return summary;
}

Test(sampling_summary, has_five_lines_with_where_the_time_went)
{
	int fd;
	struct recorder_summary summary = of_golden(&fd);

	print(&summary, fd);
	cr_assert(strstr(said, "\nguestprof record: powered off\n"
			       "  200 ticks = 193 stacks + 2 partial + 5 dropped\n"
			       "  functions: recurse 24.2 %, compute 24.2 %, "),
		  "%s", said);
	cr_assert(strstr(said, "\n  processes: "), "%s", said);
	cr_assert(strstr(said, " make (pid 100) "), "%s", said);
	cr_assert(strstr(said, "\n  trace boot.fxt, "), "%s", said);
	cr_assert(!strchr(said, '\033'), "names of the guest are escaped");
	close(fd);
}

Test(sampling_summary, says_why_something_is_missing)
{
	int fd;
	struct recorder_summary summary = of_golden(&fd);

	summary.symbols_found = summary.tasks_found = false;
	error_set(&summary.no_names, GP_ERR_NOT_FOUND, "it has none");
	print(&summary, fd);
	cr_assert(strstr(said, "\n  no kernel symbols: it has none\n"), "%s", said);
	cr_assert(!strstr(said, "processes:"), "%s", said);
	close(fd);
}

Test(sampling_summary, is_two_lines_without_a_trace)
{
	struct recorder_summary summary = {0};

	print(&summary, -1);
	cr_assert_str_eq(said, "\nguestprof record: powered off\n");
}

Test(sampling_summary, copes_with_a_trace_that_cannot_be_read)
{
	struct recorder_summary summary = {.totals = {.ticks = 1}, .file_bytes = 8192};
	int fd = memfd_create("noise", MFD_CLOEXEC);

	cr_assert_eq(ftruncate(fd, 8192), 0);
	print(&summary, fd);
	cr_assert(strstr(said, "where the time went could not be told: "), "%s", said);
	close(fd);
}

/* Who follows a trace may keep only what it has not read yet. */
Test(sampling_summary, leaves_a_trace_alone_that_is_followed)
{
	int fd;
	struct recorder_summary summary = of_golden(&fd);

	ready_fd = 1;
	print(&summary, fd);
	cr_assert(strstr(said, "\n  200 ticks = "), "%s", said);
	cr_assert(!strstr(said, "functions:"), "%s", said);
	close(fd);
}
