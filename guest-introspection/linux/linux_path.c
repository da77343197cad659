#include "guest-introspection/linux/linux_path.h"

#include "guest-introspection/linux/linux_layout.h"

#include <string.h>

#define NAME_LIMIT 255u     /* NAME_MAX */
#define STACKED_LIMIT 16u   /* mounts one over the other */
#define PID_LEVEL_LIMIT 32u /* MAX_PID_NS_LEVEL */

gp_status_t linux_paths_init(const struct linux_files *files, const struct btf *btf,
			     struct linux_paths *out, struct error *error)
{
#define MEMBER(structure, path, size, field)                                      \
	{                                                                         \
		structure, path, size, false, offsetof(struct linux_paths, field) \
	}
	static const struct linux_member members[] = {
		MEMBER("task_struct", "fs", 8, task_fs),
		MEMBER("task_struct", "thread_pid", 8, task_pid),
		MEMBER("fs_struct", "root.mnt", 8, root_mount),
		MEMBER("fs_struct", "root.dentry", 8, root_dentry),
		MEMBER("mount", "mnt_mounts.next", 8, mount_children),
		MEMBER("mount", "mnt_child.next", 8, mount_sibling),
		MEMBER("inode", "i_mapping", 8, inode_mapping),
		MEMBER("pid", "level", 4, pid_level),
		MEMBER("pid", "numbers", 0, pid_numbers),
	};
	/* Since 6.8; before, a list that ends where it begins. */
	static const struct linux_member children[] = {
		MEMBER("dentry", "d_children.first", 8, children),
		MEMBER("dentry", "d_sib.next", 8, sibling),
	};
	static const struct linux_member old_children[] = {
		MEMBER("dentry", "d_subdirs.next", 8, children),
		MEMBER("dentry", "d_child.next", 8, sibling),
	};
#undef MEMBER
	struct linux_paths paths = {.files = files};
	gp_status_t status = linux_layout_read(btf, members, sizeof(members) / sizeof(members[0]),
					       &paths, error);

	if (status != GP_OK)
		return status;
	status = linux_layout_read(btf, children, 2, &paths, NULL);
	if (status != GP_OK)
		status = linux_layout_read(btf, old_children, 2, &paths, error);
	if (status != GP_OK)
		return status;
	if (!btf_find_size(btf, "upid", &paths.pid_number_size) || paths.pid_number_size > 256)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "this kernel's pid namespaces are not as expected");
	*out = paths;
	return GP_OK;
}

/* One use of the above: a translation cache lives no longer. */
struct walk {
	const struct linux_paths *paths;
	const struct linux_files *files;
	struct translation_cache cache;
	unsigned left;
};

static bool read_bytes(struct walk *self, uint64_t address, void *buffer, size_t size)
{
	return guest_read_virtual(&self->files->space, &self->cache, self->files->memory,
				  gva(address), buffer, size) == TRANSLATE_OK;
}

static bool read_pointer(struct walk *self, uint64_t address, uint64_t *value)
{
	return read_bytes(self, address, value, sizeof(*value));
}

static bool has_name(struct walk *self, uint64_t dentry, const char *name, size_t length)
{
	char bytes[NAME_LIMIT];
	uint64_t address;
	uint32_t claimed;

	return read_bytes(self, dentry + self->files->dentry_name_length, &claimed,
			  sizeof(claimed)) &&
	       claimed == length && length <= sizeof(bytes) &&
	       read_pointer(self, dentry + self->files->dentry_name, &address) &&
	       read_bytes(self, address, bytes, length) && memcmp(bytes, name, length) == 0;
}

/* The entry `name` of the directory `dentry` that stands for a file. Both kinds of list end at a
 * link that is no child's: NULL, or the head itself. */
static bool find_child(struct walk *self, uint64_t *dentry, const char *name, size_t length)
{
	uint64_t head = *dentry + self->paths->children;
	uint64_t link;
	uint64_t inode;

	if (!read_pointer(self, head, &link))
		return false;
	while (link && link != head) {
		uint64_t child = link - self->paths->sibling;

		if (self->left == 0)
			return false;
		self->left--;
		if (has_name(self, child, name, length) &&
		    read_pointer(self, child + self->files->dentry_inode, &inode) && inode) {
			*dentry = child;
			return true;
		}
		if (!read_pointer(self, link, &link))
			return false;
	}
	return false;
}

/* Goes from a directory to the root of what is mounted over it, if something is. False: not
 * readable. */
static bool enter_mount(struct walk *self, uint64_t *mount, uint64_t *dentry, bool *entered)
{
	uint64_t head = *mount + self->paths->mount_children;
	uint64_t link;

	*entered = false;
	if (!read_pointer(self, head, &link))
		return false;
	while (link && link != head) {
		uint64_t child = link - self->paths->mount_sibling;
		uint64_t point;

		if (self->left == 0 ||
		    !read_pointer(self, child + self->files->mount_mountpoint, &point))
			return false;
		self->left--;
		if (point == *dentry) {
			*mount = child;
			*entered = true;
			return read_pointer(self,
					    child + self->files->mount_vfsmount +
						    self->files->vfsmount_root,
					    dentry);
		}
		if (!read_pointer(self, link, &link))
			return false;
	}
	return true;
}

static bool enter_mounts(struct walk *self, uint64_t *mount, uint64_t *dentry)
{
	bool entered = true;

	for (unsigned i = 0; entered && i < STACKED_LIMIT; i++)
		if (!enter_mount(self, mount, dentry, &entered))
			return false;
	return true;
}

static bool read_file(struct walk *self, uint64_t dentry, struct linux_file *out)
{
	const struct linux_files *files = self->files;
	struct linux_file file;
	uint64_t superblock;
	uint32_t device;

	if (!read_pointer(self, dentry + files->dentry_inode, &file.inode) ||
	    !read_pointer(self, file.inode + self->paths->inode_mapping, &file.mapping) ||
	    !read_pointer(self, file.inode + files->inode_size, &file.size) ||
	    !read_pointer(self, file.inode + files->inode_number, &file.number) ||
	    !read_pointer(self, file.inode + files->inode_superblock, &superblock) ||
	    !read_bytes(self, superblock + files->superblock_device, &device, sizeof(device)))
		return false;
	/* include/linux/kdev_t.h */
	file.device_major = device >> 20;
	file.device_minor = device & 0xfffff;
	if (file.size > INT64_MAX)
		file.size = 0;
	*out = file;
	return true;
}

bool linux_path_find(const struct linux_paths *paths, uint64_t task, const char *path,
		     struct linux_file *out)
{
	struct walk walk = {.paths = paths, .files = paths->files, .left = LINUX_PATH_ENTRIES};
	uint64_t fs;
	uint64_t mount;
	uint64_t dentry;

	translation_cache_clear(&walk.cache);
	if (!read_pointer(&walk, task + paths->task_fs, &fs) || !fs ||
	    !read_pointer(&walk, fs + paths->root_mount, &mount) ||
	    !read_pointer(&walk, fs + paths->root_dentry, &dentry))
		return false;
	mount -= paths->files->mount_vfsmount;
	for (;;) {
		size_t length;

		path += strspn(path, "/");
		length = strcspn(path, "/");
		if (length == 0)
			return read_file(&walk, dentry, out);
		if (!find_child(&walk, &dentry, path, length) ||
		    !enter_mounts(&walk, &mount, &dentry))
			return false;
		path += length;
	}
}

bool linux_path_own_pid(const struct linux_paths *paths, uint64_t task, uint32_t *pid)
{
	struct walk walk = {.paths = paths, .files = paths->files};
	uint64_t structure;
	uint32_t level;

	translation_cache_clear(&walk.cache);
	return read_pointer(&walk, task + paths->task_pid, &structure) && structure &&
	       read_bytes(&walk, structure + paths->pid_level, &level, sizeof(level)) &&
	       level <= PID_LEVEL_LIMIT &&
	       read_bytes(&walk,
			  structure + paths->pid_numbers + (uint64_t)level * paths->pid_number_size,
			  pid, sizeof(*pid));
}
