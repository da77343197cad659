#include "guest-introspection/linux/linux_file.h"

#include "guest-introspection/linux/linux_layout.h"

#include <string.h>

#define NAME_LIMIT 255 /* NAME_MAX */
/* include/linux/fs.h. FMODE_BACKING would be the one to ask for, but moved from bit 25 to 24
 * in 6.14 and in stable releases before; every such file has this too. */
#define FMODE_NOACCOUNT (1u << 29)

gp_status_t linux_files_init(const struct guest_memory *memory, const struct linux_kernel *kernel,
			     const struct symbol_table *symbols, const struct btf *btf,
			     struct linux_files *out, struct error *error)
{
#define MEMBER(structure, path, size, field)                                      \
	{                                                                         \
		structure, path, size, false, offsetof(struct linux_files, field) \
	}
#define OPTIONAL(structure, path, size, field)                                   \
	{                                                                        \
		structure, path, size, true, offsetof(struct linux_files, field) \
	}
	static const struct linux_member members[] = {
		MEMBER("file", "f_path.mnt", 8, file_mount),
		MEMBER("file", "f_path.dentry", 8, file_dentry),
		MEMBER("file", "f_inode", 8, file_inode),
		MEMBER("file", "f_mapping", 8, file_mapping),
		MEMBER("file", "f_mode", 4, file_mode),
		OPTIONAL("backing_file", "user_path.mnt", 8, backing_mount),
		OPTIONAL("backing_file", "user_path.dentry", 8, backing_dentry),
		MEMBER("mount", "mnt", 0, mount_vfsmount),
		MEMBER("mount", "mnt_parent", 8, mount_parent),
		MEMBER("mount", "mnt_mountpoint", 8, mount_mountpoint),
		MEMBER("vfsmount", "mnt_root", 8, vfsmount_root),
		MEMBER("dentry", "d_parent", 8, dentry_parent),
		MEMBER("dentry", "d_name.name", 8, dentry_name),
		MEMBER("dentry", "d_name.len", 4, dentry_name_length),
		MEMBER("dentry", "d_hash.pprev", 8, dentry_hashed),
		MEMBER("dentry", "d_op", 8, dentry_operations),
		MEMBER("dentry", "d_inode", 8, dentry_inode),
		MEMBER("dentry", "d_sb", 8, dentry_superblock),
		MEMBER("vfsmount", "mnt_sb", 8, vfsmount_superblock),
		MEMBER("dentry_operations", "d_dname", 8, operations_name),
		MEMBER("inode", "i_ino", 8, inode_number),
		MEMBER("inode", "i_size", 8, inode_size),
		MEMBER("inode", "i_sb", 8, inode_superblock),
		MEMBER("super_block", "s_dev", 4, superblock_device),
	};
#undef MEMBER
#undef OPTIONAL
	struct linux_files files = {.memory = memory, .space = kernel->space};
	struct symbol symbol;
	gp_status_t status = linux_layout_read(btf, members, sizeof(members) / sizeof(members[0]),
					       &files, error);

	if (status != GP_OK)
		return status;
	if (symbol_table_find_name(symbols, "simple_dname", &symbol))
		files.simple_name = symbol.start;
	if (symbol_table_find_name(symbols, "anon_inodefs_dname", &symbol))
		files.anonymous_name = symbol.start;
	*out = files;
	return GP_OK;
}

/* One use of the above: a translation cache lives no longer. */
struct reader {
	const struct linux_files *files;
	struct translation_cache cache;
};

static bool read_bytes(struct reader *self, uint64_t address, void *buffer, size_t size)
{
	return guest_read_virtual(&self->files->space, &self->cache, self->files->memory,
				  gva(address), buffer, size) == TRANSLATE_OK;
}

static bool read_pointer(struct reader *self, uint64_t address, uint64_t *value)
{
	return read_bytes(self, address, value, sizeof(*value));
}

/* The path that was opened. Of a file below another file system (overlayfs) that is in the struct
 * backing_file, of which the struct file is the first member (since 6.8; before, f_path is it).
 * Whether it is one: mount and dentry there are of the same superblock. */
static bool find_path(struct reader *self, uint64_t file, uint64_t *mount, uint64_t *dentry,
		      bool *backing)
{
	const struct linux_files *files = self->files;
	uint64_t mount_superblock;
	uint64_t dentry_superblock;
	uint32_t mode;

	*backing = false;
	if (!read_bytes(self, file + files->file_mode, &mode, sizeof(mode)))
		return false;
	if (mode & FMODE_NOACCOUNT && files->backing_mount != LINUX_MEMBER_MISSING &&
	    files->backing_dentry != LINUX_MEMBER_MISSING &&
	    read_pointer(self, file + files->backing_mount, mount) &&
	    read_pointer(self, file + files->backing_dentry, dentry) &&
	    read_pointer(self, *mount + files->vfsmount_superblock, &mount_superblock) &&
	    read_pointer(self, *dentry + files->dentry_superblock, &dentry_superblock) &&
	    mount_superblock && mount_superblock == dentry_superblock) {
		*backing = true;
		return true;
	}
	return read_pointer(self, file + files->file_mount, mount) &&
	       read_pointer(self, file + files->file_dentry, dentry);
}

bool linux_file_read(const struct linux_files *files, uint64_t address, struct linux_file *out)
{
	struct reader reader = {.files = files};
	struct linux_file file;
	uint64_t mount;
	uint64_t dentry;
	uint64_t shown;
	uint64_t superblock;
	uint32_t device;
	bool backing;

	translation_cache_clear(&reader.cache);
	if (!read_pointer(&reader, address + files->file_inode, &file.inode) ||
	    !read_pointer(&reader, address + files->file_mapping, &file.mapping) ||
	    !read_pointer(&reader, file.inode + files->inode_size, &file.size) ||
	    !find_path(&reader, address, &mount, &dentry, &backing))
		return false;
	shown = file.inode;
	if (backing && !read_pointer(&reader, dentry + files->dentry_inode, &shown))
		return false;
	if (!read_pointer(&reader, shown + files->inode_number, &file.number) ||
	    !read_pointer(&reader, shown + files->inode_superblock, &superblock) ||
	    !read_bytes(&reader, superblock + files->superblock_device, &device, sizeof(device)))
		return false;
	/* include/linux/kdev_t.h */
	file.device_major = device >> 20;
	file.device_minor = device & 0xfffff;
	if (file.size > INT64_MAX)
		file.size = 0;
	*out = file;
	return true;
}

bool linux_file_is_there(const struct linux_files *files, const struct linux_file *file)
{
	struct reader reader = {.files = files};
	uint64_t number;
	uint64_t size;
	uint64_t superblock;
	uint32_t device;

	translation_cache_clear(&reader.cache);
	return read_pointer(&reader, file->inode + files->inode_number, &number) &&
	       read_pointer(&reader, file->inode + files->inode_size, &size) &&
	       read_pointer(&reader, file->inode + files->inode_superblock, &superblock) &&
	       read_bytes(&reader, superblock + files->superblock_device, &device,
			  sizeof(device)) &&
	       number == file->number && size == file->size && device >> 20 == file->device_major &&
	       (device & 0xfffff) == file->device_minor;
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
static bool read_name(struct reader *self, uint64_t dentry, char *name, size_t *length)
{
	uint64_t address;
	uint32_t claimed;

	if (!read_pointer(self, dentry + self->files->dentry_name, &address) ||
	    !read_bytes(self, dentry + self->files->dentry_name_length, &claimed,
			sizeof(claimed)) ||
	    claimed == 0 || claimed > NAME_LIMIT || !read_bytes(self, address, name, claimed))
		return false;
	*length = strnlen(name, claimed);
	return *length > 0;
}

/* Files that were never in a directory name themselves (dentry_operations.d_dname). */
static bool name_itself(struct reader *self, uint64_t dentry, uint64_t function,
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
static bool walk_up(struct reader *self, uint64_t mount, uint64_t dentry, unsigned *steps,
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
		if (!read_pointer(self, mount + files->mount_vfsmount + files->vfsmount_root,
				  &root))
			return false;
		if (dentry == root) {
			if (!read_pointer(self, mount + files->mount_parent, &parent))
				return false;
			if (parent == mount)
				break;
			if (!read_pointer(self, mount + files->mount_mountpoint, &dentry))
				return false;
			mount = parent;
			continue;
		}
		if (!read_pointer(self, dentry + files->dentry_parent, &parent))
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

static bool build_path(struct reader *self, uint64_t address, unsigned *steps,
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
	    !read_pointer(self, vfsmount + files->vfsmount_root, &root) ||
	    !read_pointer(self, dentry + files->dentry_parent, &parent) ||
	    !read_pointer(self, dentry + files->dentry_operations, &operations) ||
	    !read_pointer(self, dentry + files->dentry_hashed, &hashed))
		return false;
	if (operations && !read_pointer(self, operations + files->operations_name, &function))
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
	struct reader reader = {.files = files};
	struct path_buffer buffer = {.bytes = path, .begin = LINUX_PATH_SIZE - 1};
	size_t length;

	translation_cache_clear(&reader.cache);
	if (!build_path(&reader, address, steps, &buffer))
		return 0;
	length = LINUX_PATH_SIZE - 1 - buffer.begin;
	memmove(path, path + buffer.begin, length);
	path[length] = '\0';
	return length;
}
