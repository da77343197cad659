/* Output files: whole or not there. */
#include "tools/output.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[64];
static char path[128];

static void make_directory(void)
{
	snprintf(directory, sizeof(directory), "/tmp/guestprof-output-XXXXXX");
	cr_assert(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/page.html", directory);
}

static size_t count_files(void)
{
	DIR *stream = opendir(directory);
	struct dirent *entry;
	size_t count = 0;

	cr_assert(stream);
	while ((entry = readdir(stream)))
		count += entry->d_name[0] != '.';
	closedir(stream);
	return count;
}

static void remove_directory(void)
{
	unlink(path);
	rmdir(directory);
}

static void put(const char *text)
{
	FILE *file = fopen(path, "w");

	cr_assert(file);
	fputs(text, file);
	fclose(file);
}

static void assert_holds(const char *text)
{
	char found[64] = "";
	FILE *file = fopen(path, "r");

	cr_assert(file);
	cr_assert(fgets(found, sizeof(found), file));
	fclose(file);
	cr_assert_str_eq(found, text);
}

TestSuite(output, .init = make_directory, .fini = remove_directory);

Test(output, has_its_name_when_all_of_it_is_written)
{
	struct error error = {0};
	struct output output;
	struct stat present;

	umask(027);
	cr_assert_eq(output_open(&output, path, &error), GP_OK, "%s", error.text);
	fputs("whole", output.file);
	cr_assert_neq(access(path, F_OK), 0, "not before");
	cr_assert_eq(output_finish(&output, &error), GP_OK, "%s", error.text);
	assert_holds("whole");
	cr_assert_eq(stat(path, &present), 0);
	cr_assert_eq(present.st_mode & 0777, 0640, "as the user's umask says");
	cr_assert_eq(count_files(), 1);
}

Test(output, a_full_disk_leaves_the_earlier_file_and_nothing_else)
{
	struct rlimit limit = {.rlim_cur = 1 << 16, .rlim_max = RLIM_INFINITY};
	struct error error = {0};
	struct output output;

	put("earlier");
	signal(SIGXFSZ, SIG_IGN);
	cr_assert_eq(output_open(&output, path, &error), GP_OK, "%s", error.text);
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	for (int i = 0; i < 1 << 17; i++)
		putc('x', output.file);
	cr_assert_neq(output_finish(&output, &error), GP_OK);
	limit.rlim_cur = RLIM_INFINITY;
	setrlimit(RLIMIT_FSIZE, &limit);
	cr_assert(strstr(error.text, path), "%s", error.text);
	assert_holds("earlier");
	cr_assert_eq(count_files(), 1);
}

Test(output, an_abandoned_one_is_gone)
{
	struct error error = {0};
	struct output output;

	put("earlier");
	cr_assert_eq(output_open(&output, path, &error), GP_OK, "%s", error.text);
	fputs("half", output.file);
	output_abandon(&output);
	assert_holds("earlier");
	cr_assert_eq(count_files(), 1);
}

Test(output, what_is_no_regular_file_is_written_directly)
{
	struct error error = {0};
	struct output output;

	cr_assert_eq(output_open(&output, "/dev/null", &error), GP_OK, "%s", error.text);
	fputs("text", output.file);
	cr_assert_eq(output_finish(&output, &error), GP_OK, "%s", error.text);
	cr_assert_eq(output_open(&output, "/dev/full", &error), GP_OK, "%s", error.text);
	fputs("text", output.file);
	cr_assert_neq(output_finish(&output, &error), GP_OK);
	cr_assert(strstr(error.text, "/dev/full"), "%s", error.text);
}

Test(output, a_pipe_behind_a_link_is_written_directly)
{
	char text[8] = "", name[32];
	struct error error = {0};
	struct output output;
	int ends[2];

	cr_assert_eq(pipe(ends), 0);
	snprintf(name, sizeof(name), "/proc/self/fd/%d", ends[1]);
	cr_assert_eq(output_open(&output, name, &error), GP_OK, "%s", error.text);
	fputs("text", output.file);
	cr_assert_eq(output_finish(&output, &error), GP_OK, "%s", error.text);
	cr_assert_eq(read(ends[0], text, sizeof(text) - 1), 4);
	cr_assert_str_eq(text, "text");
	close(ends[0]);
	close(ends[1]);
}

Test(output, through_a_link_the_target_is_replaced)
{
	char link_path[160];
	struct error error = {0};
	struct output output;
	struct stat present;

	put("earlier");
	snprintf(link_path, sizeof(link_path), "%s/link", directory);
	cr_assert_eq(symlink("page.html", link_path), 0);
	cr_assert_eq(output_open(&output, link_path, &error), GP_OK, "%s", error.text);
	fputs("whole", output.file);
	cr_assert_eq(output_finish(&output, &error), GP_OK, "%s", error.text);
	assert_holds("whole");
	cr_assert_eq(lstat(link_path, &present), 0);
	cr_assert(S_ISLNK(present.st_mode));
	unlink(link_path);
}

Test(output, a_directory_that_is_not_there_is_named)
{
	struct error error = {0};
	struct output output;

	cr_assert_neq(output_open(&output, "/nowhere/page.html", &error), GP_OK);
	cr_assert(strstr(error.text, "/nowhere/page.html"), "%s", error.text);
}
