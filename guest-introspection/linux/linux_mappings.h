/* The mappings of a Linux process: what /proc/PID/maps says, from guest memory.
 *
 * Kernels since 6.1 keep them in a maple tree (lib/maple_tree.c), older ones in a list. Read
 * without the guest's locks while it may be running: what changes meanwhile may be missing or there
 * twice in another shape, never out of order; every walk is bounded. Nothing here allocates or
 * locks. A walk takes about 8 KiB of stack. Any thread; cold: not for a stopped vCPU.
 */
#ifndef GUEST_INTROSPECTION_LINUX_LINUX_MAPPINGS_H
#define GUEST_INTROSPECTION_LINUX_LINUX_MAPPINGS_H

#include "base/error.h"
#include "guest-introspection/elf/btf.h"
#include "guest-introspection/elf/file_source.h"
#include "guest-introspection/linux/linux_file.h"

#include <stdbool.h>
#include <stdint.h>

/* Bounds of one walk. Linux allows 65530 mappings unless told otherwise. */
#define LINUX_MAPPINGS_LIMIT (1u << 17)

/* Where things are in this kernel. Read-only once made. */
struct linux_mappings {
	const struct linux_files *files;
	uint64_t special_operations; /* special_mapping_vmops; 0: not there */
	uint64_t legacy_operations;  /* legacy_special_mapping_vmops; 0: not there */
	bool vsyscall;               /* processes may have a page at LINUX_VSYSCALL_PAGE */
	bool vsyscall_readable;
	bool name_shares_tree; /* vm_area_struct.anon_name means something only without a file */
	uint32_t area_size;    /* bytes of vm_area_struct */
	uint32_t range_slots;  /* of a maple tree's node: entries of its arrays */
	uint32_t range_pivots;
	uint32_t allocation_slots;
	uint32_t allocation_pivots;
	uint32_t mm_tree; /* offsets from here on; LINUX_MEMBER_MISSING where optional */
	uint32_t mm_list;
	uint32_t mm_heap_start;
	uint32_t mm_heap_end;
	uint32_t mm_stack_start;
	uint32_t mm_context_flags;
	uint32_t mm_page_tables;
	uint32_t mm_vdso;
	uint32_t area_start;
	uint32_t area_end;
	uint32_t area_mm;
	uint32_t area_flags;
	uint32_t area_offset;
	uint32_t area_file;
	uint32_t area_operations;
	uint32_t area_private;
	uint32_t area_next;
	uint32_t area_name;
	uint32_t name_text;
	uint32_t special_name;
	uint32_t vdso_bytes;
	uint32_t vdso_size;
	uint32_t node_range_pivots;
	uint32_t node_range_slots;
	uint32_t node_allocation_pivots;
	uint32_t node_allocation_slots;
};

/* `files` must outlive `out`. GP_ERR_NOT_SUPPORTED: a kernel without a member that is needed. */
gp_status_t linux_mappings_init(const struct linux_files *files, const struct symbol_table *symbols,
				const struct btf *btf, struct linux_mappings *out,
				struct error *error);

#define LINUX_VSYSCALL_PAGE UINT64_C(0xffffffffff600000)

enum linux_mapping_kind {
	LINUX_MAPPING_FILE,
	LINUX_MAPPING_ANONYMOUS,
	LINUX_MAPPING_HEAP,
	LINUX_MAPPING_STACK,   /* the first thread's */
	LINUX_MAPPING_SPECIAL, /* the kernel's own: [vdso], [vvar], [vsyscall], [uprobes] */
};

struct linux_mapping {
	uint64_t start; /* linear */
	uint64_t end;
	uint64_t offset; /* of `start` in the file, bytes; 0 without a file */
	bool readable;
	bool writable;
	bool executable;
	bool shared;
	enum linux_mapping_kind kind;
	uint64_t file_address;  /* of its struct file, for linux_file.h; 0 without a file */
	struct linux_file file; /* zeroes without a file or where it is not readable */
	/* As in /proc/PID/maps, unescaped: a path, "[heap]", "[vdso]", "[anon:name]"; "" where
	 * there is none, or it is not readable. Valid during the call. */
	const char *name;
};

/* Called in the order of addresses. False ends the walk. */
typedef bool linux_mapping_callback(void *context, const struct linux_mapping *mapping);

struct linux_mappings_walk {
	unsigned count; /* calls of the callback */
	/* All was walked: the callback did not end it, nothing was unreadable, no limit reached.
	 * A running guest can make one walk incomplete; the next may be whole. */
	bool complete;
};

/* Walks the mappings of the struct mm_struct at `mm`. */
struct linux_mappings_walk linux_mappings_walk(const struct linux_mappings *mappings, uint64_t mm,
					       linux_mapping_callback *callback, void *context);

/* The address space of the processes that share `mm`, for reading their memory. With page-table
 * isolation these are the kernel's tables, in which user pages are never executable. False,
 * `out` untouched: not readable. */
bool linux_mappings_space(const struct linux_mappings *mappings, uint64_t mm,
			  struct address_space *out);

/* Where the first stack of the processes that share `mm` was laid, which chance decides: of two
 * programs one after another in the same struct, which the kernel uses again, it tells the one from
 * the other. False, `out` untouched: not readable. */
bool linux_mappings_stack(const struct linux_mappings *mappings, uint64_t mm, uint64_t *out);

/* An image as a process has it in memory, as a struct file_source: the vDSO, which is in no file,
 * and pieces of a file that is mapped but not in the page cache. */
#define USER_MEMORY_PIECES 16

/* Pages that a process has touched, found by the file's offset. Use it where it stays. */
struct user_memory {
	struct file_source source;
	const struct guest_memory *memory;
	struct address_space space; /* the process's */
	unsigned count;
	struct {
		uint64_t start; /* linear */
		uint64_t size;
		uint64_t offset; /* in the file */
	} pieces[USER_MEMORY_PIECES];
};

/* `memory` must outlive `self`. */
void user_memory_init(struct user_memory *self, const struct guest_memory *memory,
		      const struct address_space *space);

/* Adds the mapping of [start, end) of what is in the file from `offset` on. Leave out writable
 * mappings: their pages may have been changed. False: there is no room, or it is none. */
bool user_memory_add(struct user_memory *self, uint64_t start, uint64_t end, uint64_t offset);

/* The ELF image that is mapped as [vdso] in the processes that share `mm`, from the kernel's own
 * copy: a process's page tables have it only once it was used. False, `out` untouched: none. */
bool linux_mappings_vdso(const struct linux_mappings *mappings, uint64_t mm,
			 struct user_memory *out);

/* The file of `inode` (linux_file.inode) as far as the processes that share `mm`, whose address
 * space is `space`, map it unwritable. */
void linux_mappings_file(const struct linux_mappings *mappings, uint64_t mm,
			 const struct address_space *space, uint64_t inode,
			 struct user_memory *out);

#endif
