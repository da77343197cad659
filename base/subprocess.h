/* Programs that a subcommand needs as helpers: dpkg-deb, apt-get, cp, xz. */
#ifndef BASE_SUBPROCESS_H
#define BASE_SUBPROCESS_H

#include "base/error.h"

#include <stddef.h>

/* Runs argv[0] (looked up in PATH) in `directory` (NULL: here) with no input, and waits for
 * it. What it prints on stdout goes to `output`, cut at size - 1 bytes and terminated; with
 * output NULL it is dropped. When it fails, the error's text ends with the last line it
 * printed on stderr. */
gp_status_t subprocess_run(const char *const *argv, const char *directory, char *output,
			   size_t size, struct error *error);

/* The same without output; `tick` is called some times a second meanwhile. */
gp_status_t subprocess_run_watched(const char *const *argv, const char *directory,
				   void (*tick)(const void *context), const void *context,
				   struct error *error);

/* The same, for bytes instead of a text: at most `size` of them, *length tells how many. What
 * does not fit is dropped. */
gp_status_t subprocess_read(const char *const *argv, void *output, size_t size, size_t *length,
			    struct error *error);

#endif
