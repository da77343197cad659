/* The initramfs that L1 boots from: busybox, a few modules of its kernel and /init. */
#include "lab.h"

#include "base/cleanup.h"
#include "base/container.h"

#include <archive.h>
#include <archive_entry.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What L1 needs; what these depend on comes by itself. A name that the kernel has built in
 * is not there as a file and not missed: if it is really missing, /init says what for. */
static const char *const wanted_modules[] = {
	"virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", "kvm-amd",
};

#define MODULES_MAX 64
#define MODULE_BYTES_MAX (32u << 20)

struct module {
	char name[64]; /* as in its file's name, without .ko */
	char *bytes;
	size_t size;
};

struct modules {
	unsigned count;
	struct module list[MODULES_MAX]; /* in the order of loading */
};

static void modules_deinit(struct modules *modules)
{
	for (unsigned i = 0; i < modules->count; i++)
		free(modules->list[i].bytes);
}

/* Module names are the same with '-' and with '_'. */
static bool same_name(const char *a, const char *b, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		char x = a[i] == '-' ? '_' : a[i], y = b[i] == '-' ? '_' : b[i];

		if (x != y || !x)
			return false;
	}
	return !a[length] || a[length] == '.';
}

/* Finds NAME.ko, compressed or not, below the modules directory. */
static bool find_module(const char *directory, const char *name, char path[static PATH_MAX])
{
	char *const roots[] = {(char *)directory, NULL};
	FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	FTSENT *entry;
	size_t length = strlen(name);
	bool found = false;

	if (!tree)
		return false;
	while (!found && (entry = fts_read(tree))) {
		if (entry->fts_info == FTS_F && entry->fts_namelen > length &&
		    same_name(entry->fts_name, name, length) &&
		    !strncmp(entry->fts_name + length, ".ko", 3))
			found = snprintf(path, PATH_MAX, "%s", entry->fts_path) < PATH_MAX;
	}
	fts_close(tree);
	return found;
}

/* Reads a file, decompressed when it is (Debian 13 ships .ko.xz). */
static gp_status_t read_module(const char *path, char **bytes, size_t *size, struct error *error)
{
	struct archive *archive = archive_read_new();
	struct archive_entry *entry;
	AUTO_FREE char *read = malloc(MODULE_BYTES_MAX);
	ssize_t got = -1;

	if (!archive || !read) {
		archive_read_free(archive);
		return error_set(error, GP_ERR_NO_MEMORY, "no memory to read %s", path);
	}
	archive_read_support_filter_all(archive);
	archive_read_support_format_raw(archive);
	if (archive_read_open_filename(archive, path, 65536) == ARCHIVE_OK &&
	    archive_read_next_header(archive, &entry) == ARCHIVE_OK)
		got = archive_read_data(archive, read, MODULE_BYTES_MAX);
	if (got <= 0 || got == MODULE_BYTES_MAX) {
		error_set(error, GP_ERR_IO, "cannot read %s: %s", path,
			  archive_error_string(archive) ? archive_error_string(archive)
							: "its size is wrong");
		archive_read_free(archive);
		return GP_ERR_IO;
	}
	archive_read_free(archive);
	*size = (size_t)got;
	*bytes = take_pointer(&read);
	return GP_OK;
}

/* The value of depends= in .modinfo (include/linux/module.h, MODULE_INFO): NUL-terminated
 * strings one after the other. "" when there is none. */
static const char *module_depends(const struct module *module)
{
	static const char mark[] = "\0depends=";
	const char *at = memmem(module->bytes, module->size, mark, sizeof(mark) - 1);

	if (!at)
		return "";
	at += sizeof(mark) - 1;
	return memchr(at, 0, module->size - (size_t)(at - module->bytes)) ? at : "";
}

/* Adds a module behind what it depends on. */
static gp_status_t add_module(struct modules *modules, const char *directory, const char *name,
			      unsigned depth, struct error *error)
{
	struct module module = {0};
	char path[PATH_MAX], dependency[64];
	gp_status_t status = GP_OK;

	for (unsigned i = 0; i < modules->count; i++) {
		if (strlen(modules->list[i].name) == strlen(name) &&
		    same_name(modules->list[i].name, name, strlen(name)))
			return GP_OK;
	}
	if (depth > 8)
		return error_set(error, GP_ERR_INTERNAL, "the module %s depends on itself", name);
	if (!find_module(directory, name, path))
		return GP_OK;
	if (read_module(path, &module.bytes, &module.size, error) != GP_OK)
		return error->status;
	snprintf(module.name, sizeof(module.name), "%s", name);
	for (const char *at = module_depends(&module); *at && status == GP_OK;) {
		size_t length = strcspn(at, ",");

		if (length && length < sizeof(dependency)) {
			memcpy(dependency, at, length);
			dependency[length] = 0;
			status = add_module(modules, directory, dependency, depth + 1, error);
		}
		at += length + (at[length] == ',');
	}
	if (status == GP_OK && modules->count == MODULES_MAX)
		status = error_set(error, GP_ERR_NO_RESOURCES, "more than %d modules", MODULES_MAX);
	if (status != GP_OK) {
		free(module.bytes);
		return status;
	}
	modules->list[modules->count++] = module;
	return GP_OK;
}

static gp_status_t put(struct archive *archive, const char *name, mode_t mode, const void *bytes,
		       size_t size, struct error *error)
{
	struct archive_entry *entry = archive_entry_new();
	bool ok;

	if (!entry)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the initramfs");
	archive_entry_set_pathname(entry, name);
	archive_entry_set_mode(entry, mode);
	archive_entry_set_nlink(entry, 1);
	if (S_ISCHR(mode)) { /* only /dev/console */
		archive_entry_set_rdevmajor(entry, 5);
		archive_entry_set_rdevminor(entry, 1);
	}
	archive_entry_set_size(entry, (int64_t)size);
	ok = archive_write_header(archive, entry) == ARCHIVE_OK &&
	     (!size || archive_write_data(archive, bytes, size) == (ssize_t)size);
	archive_entry_free(entry);
	if (!ok)
		return error_set(error, GP_ERR_IO, "cannot write the initramfs: %s",
				 archive_error_string(archive));
	return GP_OK;
}

static gp_status_t write_archive(const char *path, const struct modules *modules,
				 const char *busybox, size_t busybox_size, struct error *error)
{
	static const char *const directories[] = {"bin",  "dev",  "host", "modules",
						  "proc", "root", "rw",   "sys"};
	struct archive *archive = archive_write_new();
	gp_status_t status = GP_OK;
	char name[128];

	if (!archive)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the initramfs");
	archive_write_set_format_cpio_newc(archive);
	archive_write_add_filter_gzip(archive);
	archive_write_set_filter_option(archive, "gzip", "compression-level", "1");
	if (archive_write_open_filename(archive, path) != ARCHIVE_OK)
		status = error_set(error, GP_ERR_IO, "cannot write %s: %s", path,
				   archive_error_string(archive));
	for (unsigned i = 0; i < ARRAY_SIZE(directories) && status == GP_OK; i++)
		status = put(archive, directories[i], S_IFDIR | 0755, NULL, 0, error);
	if (status == GP_OK)
		status = put(archive, "dev/console", S_IFCHR | 0600, NULL, 0, error);
	if (status == GP_OK)
		status = put(archive, "init", S_IFREG | 0755, lab_init_script,
			     strlen(lab_init_script), error);
	if (status == GP_OK)
		status = put(archive, "bin/busybox", S_IFREG | 0755, busybox, busybox_size, error);
	for (unsigned i = 0; i < modules->count && status == GP_OK; i++) {
		snprintf(name, sizeof(name), "modules/%02u-%s.ko", i, modules->list[i].name);
		status = put(archive, name, S_IFREG | 0644, modules->list[i].bytes,
			     modules->list[i].size, error);
	}
	if (archive_write_close(archive) != ARCHIVE_OK && status == GP_OK)
		status = error_set(error, GP_ERR_IO, "cannot write %s: %s", path,
				   archive_error_string(archive));
	archive_write_free(archive);
	return status;
}

/* FNV-1a, 64 bits: tells one content from another, no more than that. */
static uint64_t hash_add(uint64_t hash, const void *bytes, size_t size)
{
	const uint8_t *at = bytes;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ at[i]) * 0x100000001b3u;
	return hash;
}

gp_status_t lab_initramfs_find(const struct lab_kernel *kernel, char path[static PATH_MAX],
			       struct error *error)
{
	char busybox_path[PATH_MAX], directory[PATH_MAX], made[PATH_MAX + 16];
	AUTO_FREE char *busybox = NULL;
	struct modules modules = {0};
	struct stat image;
	size_t busybox_size;
	uint64_t hash = 0xcbf29ce484222325u;
	gp_status_t status = GP_OK;

	if (lab_find_busybox(busybox_path, error) != GP_OK ||
	    lab_cache_path("lab", directory, error) != GP_OK ||
	    read_module(busybox_path, &busybox, &busybox_size, error) != GP_OK)
		return error->status;
	if (stat(kernel->image, &image) < 0)
		return error_set_errno(error, errno, "cannot find %s", kernel->image);
	/* All that goes in, except the modules' bytes: their kernel's own time and size stand
	 * for them, so that a hit costs no walk through the modules. */
	hash = hash_add(hash, lab_init_script, strlen(lab_init_script));
	hash = hash_add(hash, busybox, busybox_size);
	hash = hash_add(hash, kernel->modules, strlen(kernel->modules));
	hash = hash_add(hash, &image.st_size, sizeof(image.st_size));
	hash = hash_add(hash, &image.st_mtim, sizeof(image.st_mtim));
	for (unsigned i = 0; i < ARRAY_SIZE(wanted_modules); i++)
		hash = hash_add(hash, wanted_modules[i], strlen(wanted_modules[i]) + 1);
	if (snprintf(path, PATH_MAX, "%s/%s-%016llx.cpio.gz", directory, kernel->release,
		     (unsigned long long)hash) >= PATH_MAX)
		return error_set(error, GP_ERR_INVALID_ARGS, "the path %s is too long", directory);
	if (access(path, R_OK) == 0)
		return GP_OK;

	for (unsigned i = 0; i < ARRAY_SIZE(wanted_modules) && status == GP_OK; i++)
		status = add_module(&modules, kernel->modules, wanted_modules[i], 0, error);
	snprintf(made, sizeof(made), "%s.XXXXXX", path);
	if (status == GP_OK) {
		AUTO_CLOSE int fd = mkostemp(made, O_CLOEXEC);

		if (fd < 0)
			status = error_set_errno(error, errno, "cannot write in %s", directory);
		else
			status = write_archive(made, &modules, busybox, busybox_size, error);
		if (status == GP_OK && rename(made, path) < 0)
			status = error_set_errno(error, errno, "cannot make %s", path);
		if (fd >= 0 && status != GP_OK)
			unlink(made);
	}
	modules_deinit(&modules);
	return status;
}
