/* Error values for cold paths.
 *
 * A function that can fail in a way that a person will read about takes a `struct error *`
 * as its last parameter and returns the status. The text is one line: what went wrong,
 * where, and what to do about it. Its storage is the caller's, so that reporting an error
 * allocates nothing. A NULL error is allowed: the status alone is returned then.
 *
 * Hot paths (anything that runs while a vCPU is stopped) return small enums instead.
 * Nothing below tools/ prints an error or exits because of one.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <guestprof/status.h>

struct error {
	gp_status_t status;
	char text[512]; /* one line, no newline at its end, always terminated */
};

/* Sets `error` (when not NULL) and returns `status`, for `return error_set(...)`. */
gp_status_t error_set(struct error *error, gp_status_t status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* As error_set(), the status derived from `errno_value` and its description appended
 * as ": No such file or directory". */
gp_status_t error_set_errno(struct error *error, int errno_value, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Puts "context: " in front of the text that is there. Returns error's status. */
gp_status_t error_prefix(struct error *error, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The status that stands for an errno value: EACCES gives GP_ERR_ACCESS_DENIED. */
gp_status_t status_from_errno(int errno_value);

#endif
