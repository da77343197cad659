/* One ELF file with debug information, by libdw. Private to analysis/source_lines.c: the part that
 * knows libdw, which is loaded, not linked. One thread at a time. */
#ifndef ANALYSIS_DEBUG_FILE_H
#define ANALYSIS_DEBUG_FILE_H

#include "base/error.h"
#include "analysis/source_lines.h"

struct debug_library;

/* GP_ERR_NOT_SUPPORTED: it is not here. */
gp_status_t debug_library_open(struct debug_library **out, struct error *error);
void debug_library_close(struct debug_library *library);

struct build_id {
	const uint8_t *bytes;
	size_t size; /* 0: not known */
};

struct debug_file;

/* Opens an ELF file, and what libdw finds for it if its debug information is elsewhere. NULL: it is
 * not there, is none, has no debug information, or (where `build_id` is given) is another one. */
struct debug_file *debug_file_open(struct debug_library *library, const char *path,
				   const struct build_id *build_id);
void debug_file_close(struct debug_file *file);

/* The path of the debug information for a build id, from the servers of DEBUGINFOD_URLS; to be
 * freed. NULL: none is set, or they do not have it. */
char *debug_file_fetch(struct debug_library *library, const struct build_id *build_id);

/* The value of a symbol of the file; false: there is none, or several. */
bool debug_file_symbol(const struct debug_file *file, const char *name, uint64_t *address);

/* As source_lines_find(), of an address of the file. */
size_t debug_file_find(struct debug_file *file, uint64_t address,
		       struct source_frame out[SOURCE_FRAMES_MAX]);

#endif
