/* Error values: one line, never cut open, status passed on. */
#include "base/error.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

Test(error, text_and_status_are_set)
{
	struct error error;

	cr_assert_eq(error_set(&error, GP_ERR_BAD_STATE, "in %s", "here"), GP_ERR_BAD_STATE);
	cr_assert_eq(error.status, GP_ERR_BAD_STATE);
	cr_assert_str_eq(error.text, "in here");
}

Test(error, errno_is_described)
{
	struct error error;

	cr_assert_eq(error_set_errno(&error, ENOENT, "cannot open x"), GP_ERR_NOT_FOUND);
	cr_assert_str_eq(error.text, "cannot open x: No such file or directory");
	cr_assert_eq(error_prefix(&error, "disk %d", 2), GP_ERR_NOT_FOUND);
	cr_assert_str_eq(error.text, "disk 2: cannot open x: No such file or directory");
}

Test(error, a_long_text_is_cut_and_terminated)
{
	struct error error;
	char text[2000];

	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	error_set_errno(&error, EIO, "%s", text);
	cr_assert_eq(strlen(error.text), sizeof(error.text) - 1);
	error_prefix(&error, "%s", text);
	cr_assert_eq(strlen(error.text), sizeof(error.text) - 1);
}

Test(error, nobody_has_to_listen)
{
	cr_assert_eq(error_set(NULL, GP_ERR_IO, "x"), GP_ERR_IO);
	cr_assert_eq(error_set_errno(NULL, EACCES, "x"), GP_ERR_ACCESS_DENIED);
}
