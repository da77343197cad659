/* Directories and mounts of hostile guest memory: looking for a path ends, whatever they are linked
 * to. Input: guest memory without paging (tests/linux_layouts.h): a task at 0. */
#include "guest-introspection/linux/linux_file.h"
#include "tests/linux_layouts.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buffer_memory memory = buffer_memory_over((uint8_t *)(uintptr_t)data, size);
	struct linux_files files = layout_files(&memory.memory);
	struct linux_file file;
	uint64_t reads = 0;
	uint32_t pid;

	files.paths_known = true;
	files.task_pid = 8;
	files.root_dentry = 8;
	files.children = 56;
	files.sibling = 64;
	files.mount_children = 40;
	files.mount_sibling = 48;
	files.inode_mapping = 24;
	files.pid_numbers = 8;
	files.pid_number_size = 16;
	memory.reads = &reads;
	if (linux_path_find(&files, 0, "/a/b", &file) && file.size > INT64_MAX)
		abort();
	/* Each entry of a directory or a mount takes at most five. */
	if (reads > 5 * (LINUX_PATH_ENTRIES + 16))
		abort();
	linux_path_own_pid(&files, 0, &pid);
	return 0;
}
