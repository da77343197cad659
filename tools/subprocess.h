/* Programs that a subcommand needs as helpers: dpkg-deb, apt-get, cp. */
#ifndef TOOLS_SUBPROCESS_H
#define TOOLS_SUBPROCESS_H

#include "base/error.h"

#include <stddef.h>

/* Runs argv[0] (looked up in PATH) in `directory` (NULL: here) with no input, and waits for
 * it. What it prints on stdout goes to `output`, cut at size - 1 bytes and terminated; with
 * output NULL it is dropped. When it fails, the error's text ends with the last line it
 * printed on stderr. */
gp_status_t subprocess_run(const char *const *argv, const char *directory, char *output,
			   size_t size, struct error *error);

#endif
