/* A made-up kernel's layout, for tests and fuzzers of what reads Linux's structures: small
 * structures in a buffer without paging, where linear addresses are offsets in it. */
#ifndef TESTS_LINUX_LAYOUTS_H
#define TESTS_LINUX_LAYOUTS_H

#include "guest-introspection/linux/linux_reader.h"
#include "guest-introspection/linux/linux_mappings.h"
#include "guest-introspection/linux/linux_page_cache.h"
#include "tests/buffer_memory.h"

/* dentry_operations.d_dname and vm_operations_struct of the made-up kernel. */
#define LAYOUT_SIMPLE_NAME 0x1111
#define LAYOUT_ANONYMOUS_NAME 0x2222
#define LAYOUT_SPECIAL_OPERATIONS 0x3333

static inline struct linux_files layout_files(const struct guest_memory *memory)
{
	return (struct linux_files){.memory = memory,
				    .space = {.mode = ADDRESSING_PROTECTED},
				    .simple_name = LAYOUT_SIMPLE_NAME,
				    .anonymous_name = LAYOUT_ANONYMOUS_NAME,
				    .file_mount = 0,
				    .file_dentry = 8,
				    .file_inode = 16,
				    .file_mapping = 24,
				    .file_mode = 32,
				    .backing_mount = 40,
				    .backing_dentry = 48,
				    .mount_parent = 0,
				    .mount_mountpoint = 8,
				    .mount_vfsmount = 16,
				    .vfsmount_root = 8,
				    .vfsmount_superblock = 0,
				    .dentry_parent = 0,
				    .dentry_name = 8,
				    .dentry_name_length = 16,
				    .dentry_hashed = 24,
				    .dentry_operations = 32,
				    .dentry_inode = 40,
				    .dentry_superblock = 48,
				    .operations_name = 0,
				    .inode_number = 0,
				    .inode_size = 8,
				    .inode_superblock = 16,
				    .superblock_device = 0};
}

#define LAYOUT_MM_SIZE 72
#define LAYOUT_AREA_SIZE 80

static inline struct linux_mappings layout_mappings(const struct linux_files *files)
{
	return (struct linux_mappings){.files = files,
				       .special_operations = LAYOUT_SPECIAL_OPERATIONS,
				       .area_size = LAYOUT_AREA_SIZE,
				       .range_slots = 16,
				       .range_pivots = 15,
				       .allocation_slots = 10,
				       .allocation_pivots = 9,
				       .mm_tree = 0,
				       .mm_list = 8,
				       .mm_heap_start = 16,
				       .mm_heap_end = 24,
				       .mm_stack_start = 32,
				       .mm_context_flags = 40,
				       .mm_page_tables = 48,
				       .mm_vdso = 56,
				       .area_start = 0,
				       .area_end = 8,
				       .area_mm = 16,
				       .area_flags = 24,
				       .area_offset = 32,
				       .area_file = 40,
				       .area_operations = 48,
				       .area_private = 56,
				       .area_next = 64,
				       .area_name = 72,
				       .name_text = 8,
				       .special_name = 0,
				       .vdso_bytes = 0,
				       .vdso_size = 8,
				       .node_range_pivots = 8,
				       .node_range_slots = 128,
				       .node_allocation_pivots = 8,
				       .node_allocation_slots = 80};
}

/* Struct pages of 64 bytes from `page_array` on. */
static inline struct linux_page_cache layout_page_cache(const struct guest_memory *memory,
							uint64_t page_array)
{
	return (struct linux_page_cache){.memory = memory,
					 .space = {.mode = ADDRESSING_PROTECTED},
					 .page_array = page_array,
					 .page_size = 64,
					 .chunk_shift = 6,
					 .mapping_head = 0,
					 .node_shift = 0,
					 .node_slots = 8,
					 .page_index = 32,
					 .page_mapping = 24};
}

#endif
