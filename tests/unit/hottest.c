/* The line that says where the time went, of a trace with figures that are known
 * (tests/golden/tasks.fxt). */
#include "analysis/hottest.h"

#include <criterion/criterion.h>
#include <string.h>

static char text[4096];

static void print(bool processes)
{
	static struct trace trace;
	FILE *out = fmemopen(text, sizeof(text), "w");
	struct error error = {0};

	cr_assert(out);
	cr_assert_eq(trace_open("tests/golden/tasks.fxt", &trace, &error), GP_OK,
		     "run from the top of the sources: %s", error.text);
	cr_assert_eq(hottest_print(out, &trace, processes, &error), GP_OK, "%s", error.text);
	fclose(out);
	trace_close(&trace);
}

Test(hottest, functions_with_their_shares)
{
	print(false);
	cr_assert(strstr(text, "  functions: recurse 24.2 %, compute 24.2 %, ") == text, "%s",
		  text);
	cr_assert(strchr(text, '\n') == text + strlen(text) - 1, "one line: %s", text);
}

Test(hottest, processes_whose_names_are_escaped)
{
	print(true);
	cr_assert(strstr(text, "  processes: ") == text, "%s", text);
	cr_assert(strstr(text, " make (pid 100) "), "%s", text);
	cr_assert(!strchr(text, '\033'), "%s", text);
}
