/* One ELF file with debug information, by libdw. The part of source lines that
 * knows libdw, which is loaded, not linked. One thread at a time. */
#ifndef ANALYSIS_DEBUG_FILE_H
#define ANALYSIS_DEBUG_FILE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Inlined functions within each other, and the function itself. */
#define SOURCE_FRAMES_MAX 16

/* One step of the way from an instruction to the function that it was compiled into. */
struct source_frame {
	/* Of an inlined function; NULL for the outermost, which the symbol names. */
	const char *function;
	const char *file; /* NULL: not known. As the compiler saw it, absolute if it says so. */
	unsigned line;    /* 0: not known */
	/* Of that file: where the function (above, or the symbol's) begins; 0: not known, or in
	 * another file. */
	unsigned begin;
};

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

/* The places of an address of the file, innermost first. Returns how many; 0: not known. */
size_t debug_file_find(struct debug_file *file, uint64_t address,
		       struct source_frame out[SOURCE_FRAMES_MAX]);

#endif
