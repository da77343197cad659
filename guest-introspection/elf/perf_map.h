/* Names of code that a program makes while it runs: what it writes for perf(1) into
 * /tmp/perf-PID.map, a line for each piece of code, "START SIZE name" with both numbers
 * hexadecimal (tools/perf/Documentation/jit-interface.txt of the kernel).
 *
 * Memory of such code is used again: of lines whose code overlaps the later one counts. The file is
 * untrusted and may be there in part: lines that are not whole, or not well formed, are left out.
 * Cold: allocates; any thread.
 */
#ifndef GUEST_INTROSPECTION_ELF_PERF_MAP_H
#define GUEST_INTROSPECTION_ELF_PERF_MAP_H

#include "base/error.h"
#include "guest-introspection/elf/file_source.h"
#include "guest-introspection/elf/symbol_table.h"

#define PERF_MAP_LINES (1u << 18) /* others are not read */
#define PERF_MAP_BYTES (UINT64_C(64) << 20)

/* Reads a file of `size` bytes into `out`, a finished table at linear addresses for the caller to
 * deinit; empty when there are no names. `out` is untouched on failure: GP_ERR_NO_MEMORY. */
gp_status_t perf_map_read(const struct file_source *source, uint64_t size, struct symbol_table *out,
			  struct error *error);

#endif
