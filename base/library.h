/* A shared library that is loaded when it is needed, so that commands which do not need it neither
 * load nor require it. */
#ifndef BASE_LIBRARY_H
#define BASE_LIBRARY_H

#include "base/error.h"

#include <stddef.h>

struct library {
	void *handle; /* of dlopen() */
};

struct library_symbol {
	const char *name;
	void *function; /* the address of a pointer to a function */
};

#define LIBRARY_TEXT_(number) #number
#define LIBRARY_TEXT(number) LIBRARY_TEXT_(number)

/* Loads the library and fills in the functions. GP_ERR_NOT_SUPPORTED: it is not here, or lacks
 * one; the text names the Debian package to install. */
gp_status_t library_load(struct library *library, const char *file, const char *package,
			 const struct library_symbol *symbols, size_t count, struct error *error);
void library_unload(struct library *library);

#endif
