/* Files of a Linux guest: path, inode and size of an open one (`struct file`), and a file by its
 * path.
 *
 * Everything is read without the guest's locks while it may be running: a path may be of two
 * moments when the guest renames meanwhile, but every loop is bounded. Nothing here allocates or
 * locks; any thread; cold.
 */
#ifndef GUEST_INTROSPECTION_LINUX_LINUX_FILE_H
#define GUEST_INTROSPECTION_LINUX_LINUX_FILE_H

#include "base/error.h"
#include "guest-introspection/elf/btf.h"
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
	/* For linux_path_find() and linux_path_own_pid(), which else find nothing. */
	bool paths_known;
	uint32_t task_fs;
	uint32_t task_pid;
	uint32_t root_mount;
	uint32_t root_dentry;
	uint32_t children; /* of a dentry: the pointer to the first one */
	uint32_t sibling;  /* the pointer to the next one */
	uint32_t mount_children;
	uint32_t mount_sibling;
	uint32_t inode_mapping;
	uint32_t pid_level;
	uint32_t pid_numbers;
	uint32_t pid_number_size; /* bytes of a struct upid */
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

/* The file of the struct file at `address`. False, `out` untouched: not readable. */
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

/* Entries of directories and mounts that one look-up may cost. */
#define LINUX_PATH_ENTRIES (1u << 16)

/* The file at `path`, absolute, as the task at `task` would find it, as far as the guest's
 * directory cache has it: from the process's root directory down through the children of each
 * dentry and into what is mounted there (fs/namei.c). Symbolic links are not followed. False, `out`
 * untouched: it is not there, or not in the cache. */
bool linux_path_find(const struct linux_files *files, uint64_t task, const char *path,
		     struct linux_file *out);

/* The pid of the task at `task` in its own pid namespace. False, `pid` untouched: not readable. */
bool linux_path_own_pid(const struct linux_files *files, uint64_t task, uint32_t *pid);

#endif
