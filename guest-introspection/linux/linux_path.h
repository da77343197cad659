/* Finds a file of a Linux guest by its path, as far as the guest's directory cache has it: from a
 * process's root directory down through the children of each dentry and into what is mounted there
 * (fs/namei.c). Symbolic links are not followed.
 *
 * Read without the guest's locks while it may be running: a directory that changes meanwhile may be
 * seen in part. Every walk is bounded. Nothing here allocates or locks; any thread; cold.
 */
#ifndef GUEST_INTROSPECTION_LINUX_LINUX_PATH_H
#define GUEST_INTROSPECTION_LINUX_LINUX_PATH_H

#include "guest-introspection/linux/linux_file.h"

/* Entries of directories and mounts that one path may cost. */
#define LINUX_PATH_ENTRIES (1u << 16)

/* Where things are in this kernel. Read-only once made. */
struct linux_paths {
	const struct linux_files *files;
	uint32_t task_fs; /* offsets */
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
	uint32_t pid_number_size;
};

/* `files` must outlive `out`. GP_ERR_NOT_SUPPORTED: a kernel without a member that is needed. */
gp_status_t linux_paths_init(const struct linux_files *files, const struct btf *btf,
			     struct linux_paths *out, struct error *error);

/* The file at `path`, absolute, as the task at `task` would find it. False, `out` untouched: it is
 * not there, or not in the cache. */
bool linux_path_find(const struct linux_paths *paths, uint64_t task, const char *path,
		     struct linux_file *out);

/* What the task at `task` is called in its own pid namespace. False, `pid` untouched: not readable.
 */
bool linux_path_own_pid(const struct linux_paths *paths, uint64_t task, uint32_t *pid);

#endif
