#include "guest-introspection/linux/linux_file.h"

#include "base/container.h"
#include "guest-introspection/linux/linux_reader.h"

#include <string.h>

#define NAME_LIMIT 255u     /* NAME_MAX */
#define STACKED_LIMIT 16u   /* mounts one over the other */
#define PID_LEVEL_LIMIT 32u /* MAX_PID_NS_LEVEL */
/* include/linux/fs.h. FMODE_BACKING would be the one to ask for, but moved from bit 25 to 24
 * in 6.14 and in stable releases before; every such file has this too. */
#define FMODE_NOACCOUNT (1u << 29)

gp_status_t linux_files_init(const struct guest_memory *memory, const struct linux_kernel *kernel,
			     const struct symbol_table *symbols, const struct btf *btf,
			     struct linux_files *out, struct error *error)
{
#define FIELD(name) offsetof(struct linux_files, name)
	static const struct linux_member members[] = {
		{"file", "f_path.mnt", 8, LINUX_REQUIRED, FIELD(file_mount)},
		{"file", "f_path.dentry", 8, LINUX_REQUIRED, FIELD(file_dentry)},
		{"file", "f_inode", 8, LINUX_REQUIRED, FIELD(file_inode)},
		{"file", "f_mapping", 8, LINUX_REQUIRED, FIELD(file_mapping)},
		{"file", "f_mode", 4, LINUX_REQUIRED, FIELD(file_mode)},
		{"backing_file", "user_path.mnt", 8, LINUX_OPTIONAL, FIELD(backing_mount)},
		{"backing_file", "user_path.dentry", 8, LINUX_OPTIONAL, FIELD(backing_dentry)},
		{"mount", "mnt", 0, LINUX_REQUIRED, FIELD(mount_vfsmount)},
		{"mount", "mnt_parent", 8, LINUX_REQUIRED, FIELD(mount_parent)},
		{"mount", "mnt_mountpoint", 8, LINUX_REQUIRED, FIELD(mount_mountpoint)},
		{"vfsmount", "mnt_root", 8, LINUX_REQUIRED, FIELD(vfsmount_root)},
		{"dentry", "d_parent", 8, LINUX_REQUIRED, FIELD(dentry_parent)},
		{"dentry", "d_name.name", 8, LINUX_REQUIRED, FIELD(dentry_name)},
		{"dentry", "d_name.len", 4, LINUX_REQUIRED, FIELD(dentry_name_length)},
		{"dentry", "d_hash.pprev", 8, LINUX_REQUIRED, FIELD(dentry_hashed)},
		{"dentry", "d_op", 8, LINUX_REQUIRED, FIELD(dentry_operations)},
		{"dentry", "d_inode", 8, LINUX_REQUIRED, FIELD(dentry_inode)},
		{"dentry", "d_sb", 8, LINUX_REQUIRED, FIELD(dentry_superblock)},
		{"vfsmount", "mnt_sb", 8, LINUX_REQUIRED, FIELD(vfsmount_superblock)},
		{"dentry_operations", "d_dname", 8, LINUX_REQUIRED, FIELD(operations_name)},
		{"inode", "i_ino", 8, LINUX_REQUIRED, FIELD(inode_number)},
		{"inode", "i_size", 8, LINUX_REQUIRED, FIELD(inode_size)},
		{"inode", "i_sb", 8, LINUX_REQUIRED, FIELD(inode_superblock)},
		{"super_block", "s_dev", 4, LINUX_REQUIRED, FIELD(superblock_device)},
	};
	/* Children: since 6.8; before, a list that ends where it begins. */
	static const struct linux_member path_members[] = {
		{"task_struct", "fs", 8, LINUX_REQUIRED, FIELD(task_fs)},
		{"task_struct", "thread_pid", 8, LINUX_REQUIRED, FIELD(task_pid)},
		{"fs_struct", "root.mnt", 8, LINUX_REQUIRED, FIELD(root_mount)},
		{"fs_struct", "root.dentry", 8, LINUX_REQUIRED, FIELD(root_dentry)},
		{"mount", "mnt_mounts.next", 8, LINUX_REQUIRED, FIELD(mount_children)},
		{"mount", "mnt_child.next", 8, LINUX_REQUIRED, FIELD(mount_sibling)},
		{"inode", "i_mapping", 8, LINUX_REQUIRED, FIELD(inode_mapping)},
		{"pid", "level", 4, LINUX_REQUIRED, FIELD(pid_level)},
		{"pid", "numbers", 0, LINUX_REQUIRED, FIELD(pid_numbers)},
		{"dentry", "d_children.first", 8, LINUX_REQUIRED, FIELD(children)},
		{"dentry", "d_subdirs.next", 8, LINUX_REQUIRED, FIELD(children)},
		{"dentry", "d_sib.next", 8, LINUX_REQUIRED, FIELD(sibling)},
		{"dentry", "d_child.next", 8, LINUX_REQUIRED, FIELD(sibling)},
	};
#undef FIELD
	struct linux_files files = {.memory = memory, .space = kernel->space};
	gp_status_t status = linux_find_members(btf, members, ARRAY_SIZE(members), &files, error);

	if (status != GP_OK)
		return status;
	files.paths_known = linux_find_members(btf, path_members, ARRAY_SIZE(path_members), &files,
					       NULL) == GP_OK &&
			    btf_find_size(btf, "upid", &files.pid_number_size) &&
			    files.pid_number_size <= 256;
	files.simple_name = linux_symbol_address(symbols, "simple_dname");
	files.anonymous_name = linux_symbol_address(symbols, "anon_inodefs_dname");
	*out = files;
	return GP_OK;
}

/* One use of the above. */
struct walk {
	const struct linux_files *files;
	struct linux_reader reader;
	unsigned left; /* entries that may still be looked at */
};

static struct walk walk_begin(const struct linux_files *files)
{
	return (struct walk){.files = files,
			     .reader = linux_reader_of(files->memory, &files->space)};
}

/* The path that was opened. Of a file below another file system (overlayfs) that is in the struct
 * backing_file, of which the struct file is the first member (since 6.8; before, f_path is it).
 * Whether it is one: mount and dentry there are of the same superblock. */
static bool find_path(struct walk *self, uint64_t file, uint64_t *mount, uint64_t *dentry,
		      bool *backing)
{
	const struct linux_files *files = self->files;
	uint64_t mount_superblock;
	uint64_t dentry_superblock;
	uint32_t mode;

	*backing = false;
	if (!linux_read_u32(&self->reader, file + files->file_mode, &mode))
		return false;
	if (mode & FMODE_NOACCOUNT && files->backing_mount != LINUX_MEMBER_MISSING &&
	    files->backing_dentry != LINUX_MEMBER_MISSING &&
	    linux_read_u64(&self->reader, file + files->backing_mount, mount) &&
	    linux_read_u64(&self->reader, file + files->backing_dentry, dentry) &&
	    linux_read_u64(&self->reader, *mount + files->vfsmount_superblock, &mount_superblock) &&
	    linux_read_u64(&self->reader, *dentry + files->dentry_superblock, &dentry_superblock) &&
	    mount_superblock && mount_superblock == dentry_superblock) {
		*backing = true;
		return true;
	}
	return linux_read_u64(&self->reader, file + files->file_mount, mount) &&
	       linux_read_u64(&self->reader, file + files->file_dentry, dentry);
}

/* What the struct inode at `address` says of itself. */
static bool read_inode(struct walk *self, uint64_t address, struct linux_file *file)
{
	const struct linux_files *files = self->files;
	uint64_t superblock;
	uint32_t device;

	if (!linux_read_u64(&self->reader, address + files->inode_number, &file->number) ||
	    !linux_read_u64(&self->reader, address + files->inode_size, &file->size) ||
	    !linux_read_u64(&self->reader, address + files->inode_superblock, &superblock) ||
	    !linux_read_u32(&self->reader, superblock + files->superblock_device, &device))
		return false;
	/* include/linux/kdev_t.h */
	file->device_major = device >> 20;
	file->device_minor = device & 0xfffff;
	return true;
}

bool linux_file_read(const struct linux_files *files, uint64_t address, struct linux_file *out)
{
	struct walk walk = walk_begin(files);
	struct linux_file file;
	uint64_t mount, dentry, shown, size;
	bool backing;

	if (!linux_read_u64(&walk.reader, address + files->file_inode, &file.inode) ||
	    !linux_read_u64(&walk.reader, address + files->file_mapping, &file.mapping) ||
	    !linux_read_u64(&walk.reader, file.inode + files->inode_size, &size) ||
	    !find_path(&walk, address, &mount, &dentry, &backing))
		return false;
	shown = file.inode;
	if (backing && !linux_read_u64(&walk.reader, dentry + files->dentry_inode, &shown))
		return false;
	if (!read_inode(&walk, shown, &file))
		return false;
	file.size = size > INT64_MAX ? 0 : size;
	*out = file;
	return true;
}

bool linux_file_is_there(const struct linux_files *files, const struct linux_file *file)
{
	struct walk walk = walk_begin(files);
	struct linux_file now;

	return read_inode(&walk, file->inode, &now) && now.number == file->number &&
	       now.size == file->size && now.device_major == file->device_major &&
	       now.device_minor == file->device_minor;
}

/* A path grows from its end to its beginning. */
struct path_buffer {
	char *bytes;
	size_t begin;
};

static bool prepend(struct path_buffer *path, const char *text, size_t length)
{
	if (length > path->begin)
		return false;
	path->begin -= length;
	memcpy(path->bytes + path->begin, text, length);
	return true;
}

/* The name of a dentry: 1 to 255 bytes without a zero among them. */
static bool read_name(struct walk *self, uint64_t dentry, char *name, size_t *length)
{
	uint64_t address;
	uint32_t claimed;

	if (!linux_read_u64(&self->reader, dentry + self->files->dentry_name, &address) ||
	    !linux_read(&self->reader, dentry + self->files->dentry_name_length, &claimed,
			sizeof(claimed)) ||
	    claimed == 0 || claimed > NAME_LIMIT ||
	    !linux_read(&self->reader, address, name, claimed))
		return false;
	*length = strnlen(name, claimed);
	return *length > 0;
}

/* Files that were never in a directory name themselves (dentry_operations.d_dname). */
static bool name_itself(struct walk *self, uint64_t dentry, uint64_t function,
			struct path_buffer *path)
{
	char name[NAME_LIMIT];
	size_t length;

	if (!read_name(self, dentry, name, &length))
		return false;
	if (function == self->files->simple_name)
		return prepend(path, " (deleted)", 10) && prepend(path, name, length) &&
		       prepend(path, "/", 1);
	if (!prepend(path, name, length))
		return false;
	return function != self->files->anonymous_name || prepend(path, "anon_inode:", 11);
}

/* The way of fs/d_path.c: up through the parents, and from the root of a mount to where it is
 * mounted. */
static bool walk_up(struct walk *self, uint64_t mount, uint64_t dentry, unsigned *steps,
		    struct path_buffer *path)
{
	const struct linux_files *files = self->files;
	size_t end = path->begin;

	for (;;) {
		char name[NAME_LIMIT];
		size_t length;
		uint64_t root;
		uint64_t parent;

		if (*steps == 0)
			return false;
		--*steps;
		if (!linux_read_u64(&self->reader,
				    mount + files->mount_vfsmount + files->vfsmount_root, &root))
			return false;
		if (dentry == root) {
			if (!linux_read_u64(&self->reader, mount + files->mount_parent, &parent))
				return false;
			if (parent == mount)
				break;
			if (!linux_read_u64(&self->reader, mount + files->mount_mountpoint,
					    &dentry))
				return false;
			mount = parent;
			continue;
		}
		if (!linux_read_u64(&self->reader, dentry + files->dentry_parent, &parent))
			return false;
		if (parent == dentry)
			break;
		if (!read_name(self, dentry, name, &length) || !prepend(path, name, length) ||
		    !prepend(path, "/", 1))
			return false;
		dentry = parent;
	}
	return path->begin < end || prepend(path, "/", 1);
}

static bool build_path(struct walk *self, uint64_t address, unsigned *steps,
		       struct path_buffer *path)
{
	const struct linux_files *files = self->files;
	uint64_t vfsmount;
	uint64_t dentry;
	uint64_t root;
	uint64_t parent;
	uint64_t operations;
	uint64_t function = 0;
	uint64_t hashed;
	bool backing;

	if (!find_path(self, address, &vfsmount, &dentry, &backing) ||
	    !linux_read_u64(&self->reader, vfsmount + files->vfsmount_root, &root) ||
	    !linux_read_u64(&self->reader, dentry + files->dentry_parent, &parent) ||
	    !linux_read_u64(&self->reader, dentry + files->dentry_operations, &operations) ||
	    !linux_read_u64(&self->reader, dentry + files->dentry_hashed, &hashed))
		return false;
	if (operations &&
	    !linux_read_u64(&self->reader, operations + files->operations_name, &function))
		return false;
	if (function && (parent != dentry || dentry != root))
		return name_itself(self, dentry, function, path);
	if (!hashed && parent != dentry && !prepend(path, " (deleted)", 10))
		return false;
	return walk_up(self, vfsmount - files->mount_vfsmount, dentry, steps, path);
}

size_t linux_file_path(const struct linux_files *files, uint64_t address, unsigned *steps,
		       char path[LINUX_PATH_SIZE])
{
	struct walk walk = walk_begin(files);
	struct path_buffer buffer = {.bytes = path, .begin = LINUX_PATH_SIZE - 1};
	size_t length;

	if (!build_path(&walk, address, steps, &buffer))
		return 0;
	length = LINUX_PATH_SIZE - 1 - buffer.begin;
	memmove(path, path + buffer.begin, length);
	path[length] = '\0';
	return length;
}

/* A file by its path. */

static bool has_name(struct walk *self, uint64_t dentry, const char *name, size_t length)
{
	char bytes[NAME_LIMIT];
	uint64_t address;
	uint32_t claimed;

	return linux_read(&self->reader, dentry + self->files->dentry_name_length, &claimed,
			  sizeof(claimed)) &&
	       claimed == length && length <= sizeof(bytes) &&
	       linux_read_u64(&self->reader, dentry + self->files->dentry_name, &address) &&
	       linux_read(&self->reader, address, bytes, length) &&
	       memcmp(bytes, name, length) == 0;
}

/* The entry `name` of the directory `dentry` that is of a file. Both kinds of list end at a
 * link that is no child's: NULL, or the head itself. */
static bool find_child(struct walk *self, uint64_t *dentry, const char *name, size_t length)
{
	uint64_t head = *dentry + self->files->children;
	uint64_t link;
	uint64_t inode;

	if (!linux_read_u64(&self->reader, head, &link))
		return false;
	while (link && link != head) {
		uint64_t child = link - self->files->sibling;

		if (self->left == 0)
			return false;
		self->left--;
		if (has_name(self, child, name, length) &&
		    linux_read_u64(&self->reader, child + self->files->dentry_inode, &inode) &&
		    inode) {
			*dentry = child;
			return true;
		}
		if (!linux_read_u64(&self->reader, link, &link))
			return false;
	}
	return false;
}

/* Goes from a directory to the root of what is mounted over it, if something is. False: not
 * readable. */
static bool enter_mount(struct walk *self, uint64_t *mount, uint64_t *dentry, bool *entered)
{
	uint64_t head = *mount + self->files->mount_children;
	uint64_t link;

	*entered = false;
	if (!linux_read_u64(&self->reader, head, &link))
		return false;
	while (link && link != head) {
		uint64_t child = link - self->files->mount_sibling;
		uint64_t point;

		if (self->left == 0 ||
		    !linux_read_u64(&self->reader, child + self->files->mount_mountpoint, &point))
			return false;
		self->left--;
		if (point == *dentry) {
			*mount = child;
			*entered = true;
			return linux_read_u64(&self->reader,
					      child + self->files->mount_vfsmount +
						      self->files->vfsmount_root,
					      dentry);
		}
		if (!linux_read_u64(&self->reader, link, &link))
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

static bool read_dentry(struct walk *self, uint64_t dentry, struct linux_file *out)
{
	const struct linux_files *files = self->files;
	struct linux_file file;

	if (!linux_read_u64(&self->reader, dentry + files->dentry_inode, &file.inode) ||
	    !linux_read_u64(&self->reader, file.inode + files->inode_mapping, &file.mapping) ||
	    !read_inode(self, file.inode, &file))
		return false;
	if (file.size > INT64_MAX)
		file.size = 0;
	*out = file;
	return true;
}

bool linux_path_find(const struct linux_files *files, uint64_t task, const char *path,
		     struct linux_file *out)
{
	struct walk walk = walk_begin(files);
	uint64_t fs, mount, dentry;

	walk.left = LINUX_PATH_ENTRIES;
	if (!files->paths_known || !linux_read_u64(&walk.reader, task + files->task_fs, &fs) ||
	    !fs || !linux_read_u64(&walk.reader, fs + files->root_mount, &mount) ||
	    !linux_read_u64(&walk.reader, fs + files->root_dentry, &dentry))
		return false;
	mount -= files->mount_vfsmount;
	for (;;) {
		size_t length;

		path += strspn(path, "/");
		length = strcspn(path, "/");
		if (length == 0)
			return read_dentry(&walk, dentry, out);
		if (!find_child(&walk, &dentry, path, length) ||
		    !enter_mounts(&walk, &mount, &dentry))
			return false;
		path += length;
	}
}

bool linux_path_own_pid(const struct linux_files *files, uint64_t task, uint32_t *pid)
{
	struct walk walk = walk_begin(files);
	uint64_t structure;
	uint32_t level;

	return files->paths_known &&
	       linux_read_u64(&walk.reader, task + files->task_pid, &structure) && structure &&
	       linux_read_u32(&walk.reader, structure + files->pid_level, &level) &&
	       level <= PID_LEVEL_LIMIT &&
	       linux_read_u32(&walk.reader,
			      structure + files->pid_numbers +
				      (uint64_t)level * files->pid_number_size,
			      pid);
}
