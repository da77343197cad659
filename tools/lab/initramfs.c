/* The initramfs that L1 boots from: busybox, a few modules of its kernel and /init. */
#include "tools/lab/lab.h"
#include "naming/cpio.h"
#include "base/subprocess.h"

#include "base/cleanup.h"
#include "base/container.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* What L1 needs; what these depend on comes by itself. A name that the kernel has built in
 * is not there as a file and not missed: if it is really missing, /init says what for. */
static const char *const wanted_modules[] = {
	"virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay", "kvm-amd",
};

#define MODULES_MAX 64
#define FILE_BYTES_MAX (32u << 20)

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

/* How module files may be packed (the kernel's CONFIG_MODULE_COMPRESS): Debian 13 has .ko.xz. */
static const struct packer {
	const char *suffix, *program, *package;
} packers[] = {
	{".gz", "gzip", "gzip"},
	{".xz", "xz", "xz-utils"},
	{".zst", "zstd", "zstd"},
};

static const struct packer *find_packer(const char *path)
{
	const char *suffix = strrchr(path, '.');

	for (size_t i = 0; suffix && i < ARRAY_SIZE(packers); i++) {
		if (!strcmp(suffix, packers[i].suffix))
			return &packers[i];
	}
	return NULL;
}

/* Reads a file; unpacks it when its name says that it is packed. */
static gp_status_t read_file(const char *path, char **bytes, size_t *size, struct error *error)
{
	const struct packer *packer = find_packer(path);
	AUTO_FREE void *content = NULL;
	char program[PATH_MAX];

	if (packer) {
		const char *const unpack[] = {program, "-dc", path, NULL};

		content = malloc(FILE_BYTES_MAX);
		if (!content)
			return error_set(error, GP_ERR_NO_MEMORY, "no memory to read %s", path);
		if (lab_find_program(packer->program, packer->package, program, error) ||
		    subprocess_read(unpack, content, FILE_BYTES_MAX, size, error))
			return error_prefix(error, "cannot read %s", path);
	} else if (io_read_file("the file", path, FILE_BYTES_MAX, &content, size, error)) {
		return error->status;
	}
	if (!*size || *size == FILE_BYTES_MAX)
		return error_set(error, GP_ERR_IO, "cannot read %s: its size is wrong", path);
	*bytes = take_pointer(&content);
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
	if (read_file(path, &module.bytes, &module.size, error) != GP_OK)
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

/* Not compressed: in the lab, where every instruction is emulated, to unpack takes longer. */
static gp_status_t write_archive(FILE *to, const struct modules *modules, const char *busybox,
				 size_t busybox_size, struct error *error)
{
	static const char *const directories[] = {"bin",  "dev",  "host", "modules",
						  "proc", "root", "rw",   "sys"};
	gp_status_t status = GP_OK;
	char name[128];

	for (unsigned i = 0; i < ARRAY_SIZE(directories) && status == GP_OK; i++)
		status = cpio_put(to, directories[i], S_IFDIR | 0755, 0, NULL, 0, error);
	if (status == GP_OK)
		status = cpio_put(to, "dev/console", S_IFCHR | 0600, makedev(5, 1), NULL, 0, error);
	if (status == GP_OK)
		status = cpio_put(to, "init", S_IFREG | 0755, 0, lab_init_script,
				  strlen(lab_init_script), error);
	if (status == GP_OK)
		status = cpio_put(to, "bin/busybox", S_IFREG | 0755, 0, busybox, busybox_size,
				  error);
	for (unsigned i = 0; i < modules->count && status == GP_OK; i++) {
		snprintf(name, sizeof(name), "modules/%02u-%s.ko", i, modules->list[i].name);
		status = cpio_put(to, name, S_IFREG | 0644, 0, modules->list[i].bytes,
				  modules->list[i].size, error);
	}
	return status == GP_OK ? cpio_end(to, error) : status;
}

gp_status_t lab_initramfs_find(const struct lab_kernel *kernel, char path[static PATH_MAX],
			       struct error *error)
{
	char busybox_path[PATH_MAX], directory[PATH_MAX], made[PATH_MAX + 16];
	AUTO_FREE char *busybox = NULL;
	struct modules modules = {0};
	struct stat image;
	size_t busybox_size;
	uint64_t hash = FNV_START;
	gp_status_t status = GP_OK;

	if (lab_find_busybox(busybox_path, error) != GP_OK ||
	    lab_cache_path("lab", directory, error) != GP_OK ||
	    read_file(busybox_path, &busybox, &busybox_size, error) != GP_OK)
		return error->status;
	if (stat(kernel->image, &image) < 0)
		return error_set_errno(error, errno, "cannot find %s", kernel->image);
	/* All that goes in, except the modules' bytes: their kernel's own time and size stand
	 * for them, so that a hit costs no walk through the modules. */
	hash = fnv_add(hash, lab_init_script, strlen(lab_init_script));
	hash = fnv_add(hash, busybox, busybox_size);
	hash = fnv_add(hash, kernel->modules, strlen(kernel->modules));
	hash = fnv_add(hash, &image.st_size, sizeof(image.st_size));
	hash = fnv_add(hash, &image.st_mtim, sizeof(image.st_mtim));
	for (unsigned i = 0; i < ARRAY_SIZE(wanted_modules); i++)
		hash = fnv_add(hash, wanted_modules[i], strlen(wanted_modules[i]) + 1);
	if (snprintf(path, PATH_MAX, "%s/%s-%016llx.cpio", directory, kernel->release,
		     (unsigned long long)hash) >= PATH_MAX)
		return error_set(error, GP_ERR_INVALID_ARGS, "the path %s is too long", directory);
	if (access(path, R_OK) == 0)
		return GP_OK;

	for (unsigned i = 0; i < ARRAY_SIZE(wanted_modules) && status == GP_OK; i++)
		status = add_module(&modules, kernel->modules, wanted_modules[i], 0, error);
	snprintf(made, sizeof(made), "%s.XXXXXX", path);
	if (status == GP_OK) {
		AUTO_CLOSE int fd = mkostemp(made, O_CLOEXEC);
		AUTO_FCLOSE FILE *to = fd < 0 ? NULL : fdopen(fd, "w");

		if (to)
			take_fd(&fd);
		if (!to)
			status = error_set_errno(error, errno, "cannot write in %s", directory);
		else
			status = write_archive(to, &modules, busybox, busybox_size, error);
		if (status == GP_OK && rename(made, path) < 0)
			status = error_set_errno(error, errno, "cannot make %s", path);
		if (status != GP_OK)
			unlink(made);
	}
	modules_deinit(&modules);
	return status;
}
