#include "analysis/source_lines.h"

#include "base/cleanup.h"
#include "base/hash_table.h"
#include "base/vector.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXTS_MAX 64u /* source files that are kept open */
#define TEXT_BYTES_MAX ((off_t)16 << 20)
#define KERNEL_FILE UINT32_MAX /* number of the kernel's file */

struct file {
	struct debug_file *debug; /* NULL: none was found */
	bool tried;
	uint64_t slide; /* of the kernel: addresses are higher by it than in the file */
};

/* Places of one address. */
struct known {
	uint64_t address; /* in the file */
	uint64_t file;
	size_t first;
	size_t count;
};

struct text {
	char *name;
	const char *bytes;
	size_t size;
	size_t *lines; /* where each begins */
	size_t line_count;
};

struct source_lines {
	struct source_options options;
	const struct trace *trace;
	struct debug_library *library;
	struct source_counts counts;

	struct file kernel;
	VECTOR(struct file) files; /* by number */

	struct hash_table known; /* struct known */
	VECTOR(struct source_frame) places;

	struct text texts[TEXTS_MAX];
	unsigned text_count;
};

gp_status_t source_lines_create(const struct source_options *options, const struct trace *trace,
				struct source_lines **out, struct error *error)
{
	struct source_lines *self = calloc(1, sizeof(*self));
	gp_status_t status;

	if (!self)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for source lines");
	self->options = *options;
	self->trace = trace;
	hash_table_init(&self->known, offsetof(struct known, first), sizeof(struct known));
	status = debug_library_open(&self->library, error);
	if (status) {
		free(self);
		return status;
	}
	if (options->vmlinux) {
		self->kernel.debug = debug_file_open(self->library, options->vmlinux, NULL);
		if (!self->kernel.debug) {
			source_lines_destroy(self);
			return error_set(error, GP_ERR_NOT_FOUND,
					 "%s is not an ELF file with debug information",
					 options->vmlinux);
		}
	}
	*out = self;
	return GP_OK;
}

void source_lines_destroy(struct source_lines *self)
{
	if (!self)
		return;
	for (size_t i = 0; i < self->files.count; i++)
		debug_file_close(self->files.items[i].debug);
	debug_file_close(self->kernel.debug);
	debug_library_close(self->library);
	for (unsigned i = 0; i < self->text_count; i++) {
		free(self->texts[i].name);
		free(self->texts[i].lines);
		if (self->texts[i].bytes)
			munmap((void *)(uintptr_t)self->texts[i].bytes, self->texts[i].size);
	}
	free(self->files.items);
	hash_table_deinit(&self->known);
	free(self->places.items);
	free(self);
}

struct source_counts source_lines_counts(const struct source_lines *self)
{
	return self->counts;
}

/* Finding files. */

static struct debug_file *open_below(struct source_lines *self, const char *root, const char *path,
				     const struct build_id *build_id)
{
	AUTO_FREE char *whole = NULL;

	if (asprintf(&whole, "%s/%s", root, path) < 0) {
		whole = NULL;
		return NULL;
	}
	return debug_file_open(self->library, whole, build_id);
}

/* usr/lib/debug/.build-id/xx/yyyy.debug, below a directory. */
static struct debug_file *open_by_build_id(struct source_lines *self, const char *root,
					   const struct build_id *build_id)
{
	static const char *const places[] = {"usr/lib/debug/.build-id", ".build-id"};
	struct debug_file *found = NULL;

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && !found; i++) {
		char path[512];
		int used = snprintf(path, sizeof(path), "%s/%02x/", places[i], build_id->bytes[0]);

		for (size_t at = 1; at < build_id->size && used < (int)sizeof(path) - 16; at++)
			used += snprintf(path + used, sizeof(path) - (size_t)used, "%02x",
					 build_id->bytes[at]);
		snprintf(path + used, sizeof(path) - (size_t)used, ".debug");
		found = open_below(self, root, path, build_id);
	}
	return found;
}

/* One of `paths`, or by build id: below the user's directory, below the root, from a server. */
static struct debug_file *find_file(struct source_lines *self, const char *const *paths,
				    size_t count, const struct build_id *build_id)
{
	const char *roots[] = {self->options.symfs, ""};
	struct debug_file *found = NULL;
	AUTO_FREE char *fetched = NULL;

	if (!build_id->size)
		return NULL;
	for (size_t root = 0; root < 2; root++) {
		if (!roots[root])
			continue;
		for (size_t i = 0; i < count && !found; i++)
			found = open_below(self, roots[root], paths[i], build_id);
		if (!found)
			found = open_by_build_id(self, roots[root], build_id);
		if (found)
			return found;
	}
	fetched = debug_file_fetch(self->library, build_id);
	return fetched ? debug_file_open(self->library, fetched, build_id) : NULL;
}

static size_t parse_hexadecimal(const char *text, uint8_t *out, size_t size)
{
	size_t count = 0;
	unsigned byte;

	while (count < size && text[0] && text[1] && sscanf(text, "%2x", &byte) == 1) {
		out[count++] = (uint8_t)byte;
		text += 2;
	}
	return count;
}

/* "Linux version 6.1.0-56-amd64 (...": the third word, if it can be a part of a path. */
static bool release_of(const char *banner, char *out, size_t size)
{
	static const char before[] = "Linux version ";
	size_t length;

	if (strncmp(banner, before, sizeof(before) - 1))
		return false;
	banner += sizeof(before) - 1;
	length = strcspn(banner, " /");
	if (!length || length >= size || banner[length] == '/' || banner[0] == '.')
		return false;
	memcpy(out, banner, length);
	out[length] = 0;
	return true;
}

static struct debug_file *find_kernel(struct source_lines *self)
{
	static const char *const forms[] = {
		"usr/lib/debug/boot/vmlinux-%s",
		"usr/lib/debug/lib/modules/%s/vmlinux",
		"lib/modules/%s/build/vmlinux",
		"boot/vmlinux-%s",
	};
	enum { FORMS = sizeof(forms) / sizeof(forms[0]) };
	const struct trace_info *info = &self->trace->info;
	char paths[FORMS][TRACE_TEXT_MAX + 64], release[TRACE_TEXT_MAX];
	const char *list[FORMS + 1] = {"vmlinux"};
	struct build_id build_id;
	uint8_t bytes[TRACE_TEXT_MAX / 2];
	size_t count = 1;

	build_id.bytes = bytes;
	build_id.size = parse_hexadecimal(info->kernel_build_id, bytes, sizeof(bytes));
	if (release_of(info->banner, release, sizeof(release)))
		for (size_t i = 0; i < FORMS; i++) {
			snprintf(paths[i], sizeof(paths[i]), forms[i], release);
			list[count++] = paths[i];
		}
	return find_file(self, list, count, &build_id);
}

/* The kernel's file, once. */
static struct file *kernel_file(struct source_lines *self)
{
	struct file *file = &self->kernel;
	uint64_t text;

	if (file->tried)
		return file;
	file->tried = true;
	if (!file->debug)
		file->debug = find_kernel(self);
	self->counts.files++;
	self->counts.found += file->debug != NULL;
	/* KASLR. A guest other than Linux is where its file says. */
	if (file->debug && self->trace->info.kernel_text_base &&
	    debug_file_symbol(file->debug, "_text", &text))
		file->slide = self->trace->info.kernel_text_base - text;
	return file;
}

/* A path of the guest's that stays below the directory it is put behind. */
static bool is_plain_path(const char *path, size_t size)
{
	if (!size || memchr(path, 0, size))
		return false;
	return !memmem(path, size, "/../", 4) && (size < 3 || memcmp(path, "../", 3));
}

static struct file *module_file(struct source_lines *self, const struct trace_module *module)
{
	const struct build_id build_id = {module->build_id, module->build_id_bytes};
	AUTO_FREE char *path = NULL, *debug = NULL;
	const char *paths[2];
	struct file *file;
	size_t count = 0;

	if (!vector_extend(&self->files, (size_t)module->file + 1))
		return NULL;
	file = &self->files.items[module->file];
	if (file->tried)
		return file;
	file->tried = true;
	if (is_plain_path(module->name, module->name_bytes)) {
		if (asprintf(&debug, "usr/lib/debug/%.*s.debug", (int)module->name_bytes,
			     module->name) < 0)
			debug = NULL;
		path = strndup(module->name, module->name_bytes);
		if (path)
			paths[count++] = path;
		if (debug)
			paths[count++] = debug;
	}
	self->counts.files++;
	file->debug = find_file(self, paths, count, &build_id);
	self->counts.found += file->debug != NULL;
	return file;
}

/* Looking up. */

/* The address in a kernel module's file of one in the guest: "ext4_iget [ext4]" is ext4_iget there.
 */
static bool find_in_module(const struct debug_file *file, const struct trace_symbol *function,
			   uint64_t address, uint64_t *in_file)
{
	const char *end = memmem(function->name, function->name_bytes, " [", 2);
	AUTO_FREE char *name = NULL;
	uint64_t start;

	if (!end)
		return false;
	name = strndup(function->name, (size_t)(end - function->name));
	if (!name || !debug_file_symbol(file, name, &start))
		return false;
	*in_file = start + (address - function->start);
	return true;
}

/* From what is known, or from the file. `address` is the file's, but of kernel modules, whose
 * sections lie anywhere: there it is the guest's, and `function` leads to the file's. */
static size_t find(struct source_lines *self, struct file *file, uint32_t number, uint64_t address,
		   const struct trace_symbol *function, struct source_frame out[SOURCE_FRAMES_MAX])
{
	struct known known = {.address = address, .file = number}, *found;
	uint64_t in_file = address;
	uint32_t added;

	if (!file || !file->debug)
		return 0;
	found = hash_table_find(&self->known, &known);
	if (found) {
		if (found->count)
			memcpy(out, self->places.items + found->first, found->count * sizeof(*out));
		return found->count;
	}
	known.first = self->places.count;
	known.count = !function || find_in_module(file->debug, function, address, &in_file)
			      ? debug_file_find(file->debug, in_file, out)
			      : 0;
	/* Without memory it is looked up again. */
	if (vector_append(&self->places, out, known.count) &&
	    hash_table_add(&self->known, &known, &added))
		((struct known *)self->known.entries)[added] = known;
	return known.count;
}

size_t source_lines_find(struct source_lines *self, const struct trace_program *program,
			 const struct trace_symbol *symbol, uint64_t address,
			 struct source_frame out[SOURCE_FRAMES_MAX])
{
	bool is_module = !program && symbol && symbol->kind == FXT_SYMBOL_MODULE;
	const struct trace_module *module;
	struct file *file;

	if (program || is_module) {
		module = trace_find_module(&self->trace->code, program, address);
		if (!module)
			return 0;
		file = module_file(self, module);
		if (is_module)
			return find(self, file, module->file, address, symbol, out);
		return find(self, file, module->file,
			    address - module->start + module->file_address, NULL, out);
	}
	/* Startup code is where it was loaded. */
	if (symbol && symbol->kind == FXT_SYMBOL_BOOT)
		return 0;
	file = kernel_file(self);
	return find(self, file, KERNEL_FILE, address - file->slide, NULL, out);
}

/* Source text. */

static void read_text(struct text *text, const char *path)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat file;
	void *bytes;
	size_t count = 0;

	if (fd < 0 || fstat(fd, &file) || !S_ISREG(file.st_mode) || file.st_size <= 0 ||
	    file.st_size > TEXT_BYTES_MAX)
		return;
	bytes = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (bytes == MAP_FAILED)
		return;
	text->bytes = bytes;
	text->size = (size_t)file.st_size;
	for (size_t i = 0; i < text->size; i++)
		count += text->bytes[i] == '\n';
	text->lines = calloc(count + 2, sizeof(*text->lines));
	if (!text->lines)
		return;
	for (size_t i = 0; i < text->size; i++)
		if (i == 0 || text->bytes[i - 1] == '\n')
			text->lines[text->line_count++] = i;
}

static struct text *text_of(struct source_lines *self, const char *file)
{
	AUTO_FREE char *path = NULL;
	struct text *text;

	for (unsigned i = 0; i < self->text_count; i++)
		if (!strcmp(self->texts[i].name, file))
			return &self->texts[i];
	if (self->text_count == TEXTS_MAX)
		return NULL;
	text = &self->texts[self->text_count];
	text->name = strdup(file);
	if (!text->name)
		return NULL;
	self->text_count++;
	if (self->options.symfs && asprintf(&path, "%s/%s", self->options.symfs, file) < 0)
		path = NULL;
	if (path)
		read_text(text, path);
	if (!text->bytes)
		read_text(text, file);
	return text;
}

const char *source_lines_text(struct source_lines *self, const char *file, unsigned line,
			      size_t *size)
{
	const struct text *text = text_of(self, file);
	const char *begin, *end;

	if (!text || !line || line > text->line_count)
		return NULL;
	begin = text->bytes + text->lines[line - 1];
	end = memchr(begin, '\n', text->size - text->lines[line - 1]);
	*size = end ? (size_t)(end - begin) : text->size - text->lines[line - 1];
	return begin;
}
