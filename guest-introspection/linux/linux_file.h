/* Open files of a Linux guest, as its `struct file` describes them: path, inode, size.
 *
 * Everything is read without the guest's locks while it may be running: a path may be of two
 * moments when the guest renames meanwhile, but every loop is bounded. Nothing here allocates
 * (except _init, which is cold and allocates nothing either) or locks; any thread.
 */
#ifndef GUEST_INTROSPECTION_LINUX_LINUX_FILE_H
#define GUEST_INTROSPECTION_LINUX_LINUX_FILE_H

#include "base/error.h"
#include "guest-introspection/linux/btf.h"
#include "guest-introspection/x86/guest_memory.h"
#include "guest-introspection/linux/linux_kernel.h"
#include "guest-introspection/elf/symbol_table.h"
#include "guest-introspection/x86/translate.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* PATH_MAX of Linux, and room for " (deleted)". */
#define LINUX_PATH_SIZE 4112

/* Where things are in this kernel. Read-only once made. */
struct linux_files {
	const struct guest_memory *memory;
	struct address_space space; /* the kernel's */
	uint64_t simple_name;       /* simple_dname(); 0: not there */
	uint64_t anonymous_name;    /* anon_inodefs_dname(); 0: not there */
	uint32_t file_mount;        /* offsets from here on */
	uint32_t file_dentry;
	uint32_t file_inode;
	uint32_t file_mapping;
	uint32_t file_mode;
	uint32_t backing_mount; /* LINUX_MEMBER_MISSING before 6.8, also the next */
	uint32_t backing_dentry;
	uint32_t mount_vfsmount;
	uint32_t mount_parent;
	uint32_t mount_mountpoint;
	uint32_t vfsmount_root;
	uint32_t vfsmount_superblock;
	uint32_t dentry_parent;
	uint32_t dentry_name;
	uint32_t dentry_name_length;
	uint32_t dentry_hashed;
	uint32_t dentry_operations;
	uint32_t dentry_inode;
	uint32_t dentry_superblock;
	uint32_t operations_name;
	uint32_t inode_number;
	uint32_t inode_size;
	uint32_t inode_superblock;
	uint32_t superblock_device;
};

/* `memory` must outlive `out`. GP_ERR_NOT_SUPPORTED: a kernel without a member that is needed. */
gp_status_t linux_files_init(const struct guest_memory *memory, const struct linux_kernel *kernel,
			     const struct symbol_table *symbols, const struct btf *btf,
			     struct linux_files *out, struct error *error);

struct linux_file {
	uint64_t inode;   /* linear address of its struct inode */
	uint64_t mapping; /* of its struct address_space, for linux_page_cache.h */
	uint64_t number;  /* inode number */
	uint64_t size;    /* bytes */
	uint32_t device_major;
	uint32_t device_minor;
	/* Where a file lies below another file system (overlayfs), `inode`, `mapping` and `size`
	 * are the lower one's, which has the pages; the numbers are what /proc/PID/maps shows. */
};

/* What the struct file at `address` stands for. False, `out` untouched: not readable. */
bool linux_file_read(const struct linux_files *files, uint64_t address, struct linux_file *out);

/* Whether the struct inode of `file` still is one of that number, size and device: its struct file
 * may be gone, and an inode's memory given to another file. Of a file below another file system
 * never. */
bool linux_file_is_there(const struct linux_files *files, const struct linux_file *file);

/* What one path may cost, in steps from name to name. */
#define LINUX_PATH_STEPS 4096u

/* The path of the struct file at `address` from the root of all its mounts, as /proc/PID/maps
 * shows it to a process there, but nothing is escaped: " (deleted)" behind one that
 * is unlinked, "/memfd:name (deleted)", "anon_inode:[io_uring]". Terminated; bytes of a path may be
 * anything but 0. Its length, or 0 with `path` unspecified: not readable or too long. `steps` is
 * what it may cost at most, LINUX_PATH_STEPS or what is left of a budget for many, and is lowered
 * by what it did. */
size_t linux_file_path(const struct linux_files *files, uint64_t address, unsigned *steps,
		       char path[LINUX_PATH_SIZE]);

#endif
