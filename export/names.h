/* Which names of processes and threads a file has already, for formats that give a name when it is
 * first needed and again when it changes. Fixed memory: an id that had to make room for another is
 * given again. Private to export/.
 */
#ifndef EXPORT_NAMES_H
#define EXPORT_NAMES_H

#include "export/export.h"

#define EXPORT_NAMES 4096 /* a power of two */

struct export_names {
	struct {
		bool known;
		uint64_t id;
		uint64_t process; /* of a thread */
		char name[sizeof(((struct export_task *)NULL)->thread_name)];
	} entries[EXPORT_NAMES];
};

/* True when that was not the last thing said about the id; now it is. */
static inline bool export_name_is_new(struct export_names *names, uint64_t id, uint64_t process,
				      const char *name)
{
	size_t at = id % EXPORT_NAMES;

	if (names->entries[at].known && names->entries[at].id == id &&
	    names->entries[at].process == process && !strcmp(names->entries[at].name, name))
		return false;
	names->entries[at].known = true;
	names->entries[at].id = id;
	names->entries[at].process = process;
	snprintf(names->entries[at].name, sizeof(names->entries[at].name), "%s", name);
	return true;
}

#endif
