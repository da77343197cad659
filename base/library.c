#include "base/library.h"

#include <dlfcn.h>
#include <string.h>

gp_status_t library_load(struct library *library, const char *file, const char *package,
			 const struct library_symbol *symbols, size_t count, struct error *error)
{
	/* Some keep state of their own that nothing frees (libdebuginfod's libcurl): they stay. */
	void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

	if (!handle)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "%s is not installed here; apt-get install %s", file, package);
	for (size_t i = 0; i < count; i++) {
		void *function = dlsym(handle, symbols[i].name);

		if (!function) {
			dlclose(handle);
			return error_set(error, GP_ERR_NOT_SUPPORTED, "%s is too old: it lacks %s",
					 file, symbols[i].name);
		}
		/* POSIX has dlsym() give functions as object pointers. */
		memcpy(symbols[i].function, &function, sizeof(function));
	}
	library->handle = handle;
	return GP_OK;
}

void library_unload(struct library *library)
{
	if (library->handle)
		dlclose(library->handle);
	library->handle = NULL;
}
