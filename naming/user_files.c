#include "naming/user_files.h"

#include "base/clock.h"
#include "guest-introspection/elf/perf_map.h"
#include "sampler/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_READS_MAX 16u                 /* of one look; up to a million symbols each */
#define LOOK_NS (300 * NS_PER_MILLISECOND) /* then what is left waits for the next look */
/* Pages of a file come into the cache while it is used. */
#define READ_AGAIN_NS NS_PER_SECOND
#define READS_OF_A_FILE 3u
#define LATER_NS (50 * NS_PER_MILLISECOND)
#define WAITS_OF_A_FILE 200u

static void forget_file(struct user_files *self, unsigned index)
{
	self->bytes -= self->files[index].bytes;
	user_symbols_deinit(&self->files[index].symbols);
	free(self->files[index].path);
	self->files[index] = self->files[--self->count];
}

void user_files_deinit(struct user_files *self)
{
	while (self->count)
		forget_file(self, self->count - 1);
	for (unsigned i = 0; i < self->generated_count; i++)
		symbol_table_deinit(&self->generated[i].symbols);
	self->generated_count = 0;
}

static bool is_same_file(const struct linux_file *a, const struct linux_file *b)
{
	return a->inode == b->inode && a->mapping == b->mapping && a->number == b->number &&
	       a->size == b->size && a->device_major == b->device_major &&
	       a->device_minor == b->device_minor;
}

static uint64_t table_bytes(const struct symbol_table *table)
{
	return table->capacity * sizeof(*table->entries) + table->names_capacity;
}

static void make_room(struct user_files *self)
{
	while (self->count == USER_FILES_MAX ||
	       (self->count && self->bytes > USER_FILE_BYTES_MAX)) {
		unsigned oldest = 0;

		for (unsigned i = 1; i < self->count; i++)
			if (self->files[i].last_use < self->files[oldest].last_use)
				oldest = i;
		forget_file(self, oldest);
	}
}

struct user_file *user_files_known(struct user_files *self, const struct linux_file *key)
{
	for (unsigned i = 0; i < self->count; i++)
		if (is_same_file(&self->files[i].key, key))
			return &self->files[i];
	return NULL;
}

struct user_file *user_files_add(struct user_files *self, const struct linux_mapping *mapping)
{
	struct user_file *file = user_files_known(self, &mapping->file);

	if (file)
		return file;
	make_room(self);
	file = &self->files[self->count++];
	*file = (struct user_file){.key = mapping->file,
				   .path = mapping->name[0] ? strdup(mapping->name) : NULL,
				   .last_use = ++self->uses};
	return file;
}

/* Takes what was read of it in place of what there was. */
static void take_symbols(struct user_files *self, struct user_file *file,
			 const struct user_symbols *symbols)
{
	self->bytes -= file->bytes;
	file->symbols = *symbols;
	file->bytes = table_bytes(&file->symbols.symbols);
	self->bytes += file->bytes;
}

static void read_file(struct user_files *self, struct user_file *file,
		      const struct guest_programs *programs, uint64_t mm,
		      const struct linux_mapping *mapping)
{
	struct user_symbols symbols = {0};
	gp_status_t status = user_symbols_read(&programs->mappings, &programs->cache, mm, mapping,
					       programs->copies, &symbols, NULL);

	file->reads++;
	file->waiting = symbols.later && file->waits < WAITS_OF_A_FILE;
	file->next_read_ns = self->now + READ_AGAIN_NS;
	if (status == GP_OK) {
		user_symbols_deinit(&file->symbols);
		take_symbols(self, file, &symbols);
		file->readable = true;
		file->whole = !symbols.result.missing;
	}
	/* A copy is looked for: that takes as long as reading the initial file system. */
	if (file->waiting) {
		file->waits++;
		file->whole = false;
		file->next_read_ns = self->now + LATER_NS;
		return;
	}
	file->whole = file->whole || file->reads >= READS_OF_A_FILE + file->waits;
}

/* Of one that is not there any more nothing comes but the copy that is looked for. */
static struct user_file *file_that_is_gone(struct user_files *self, struct user_file *file,
					   const struct guest_programs *programs,
					   const struct linux_mapping *mapping)
{
	struct user_symbols symbols;

	if (!file || !file->reads)
		return NULL;
	if (!file->waiting || !file->readable)
		return file;
	self->reads_left--;
	symbols = file->symbols;
	user_symbols_read_copy(mapping, programs->copies, &symbols);
	take_symbols(self, file, &symbols);
	file->waiting = symbols.later && ++file->waits < WAITS_OF_A_FILE;
	file->next_read_ns = self->now + LATER_NS;
	return file;
}

struct user_file *user_files_of(struct user_files *self, const struct guest_programs *programs,
				uint64_t mm, const struct linux_mapping *mapping)
{
	struct user_file *file = user_files_known(self, &mapping->file);

	if (file)
		file->last_use = ++self->uses;
	if (file && (file->whole || self->now < file->next_read_ns || !self->reads_left))
		return file->reads ? file : NULL;
	if (boot_ns() > self->deadline)
		self->reads_left = 0;
	if (!self->reads_left)
		return NULL;
	/* Read before, or never. */
	if (!mm && !linux_file_is_there(&programs->files, &mapping->file))
		return file_that_is_gone(self, file, programs, mapping);
	self->reads_left--;
	if (!file)
		file = user_files_add(self, mapping);
	file->last_use = ++self->uses;
	read_file(self, file, programs, mm, mapping);
	return file;
}

void user_files_begin(struct user_files *self, uint64_t now)
{
	self->now = now;
	self->deadline = boot_ns() + LOOK_NS;
	self->reads_left = FILE_READS_MAX;
}

void user_files_hurry(struct user_files *self)
{
	for (unsigned i = 0; i < self->count; i++)
		self->files[i].next_read_ns = 0;
	for (unsigned i = 0; i < self->generated_count; i++)
		self->generated[i].next_read_ns = 0;
}

/* The entry of a generation, or a new one, in whose place another one's may have been. */
static struct user_generated *generated_of(struct user_files *self, uint64_t process,
					   uint64_t number)
{
	struct user_generated *oldest = &self->generated[0];

	for (unsigned i = 0; i < self->generated_count; i++) {
		struct user_generated *entry = &self->generated[i];

		if (entry->process == process && entry->number == number)
			return entry;
		if (entry->last_use < oldest->last_use)
			oldest = entry;
	}
	if (self->generated_count < USER_GENERATED_MAX)
		oldest = &self->generated[self->generated_count++];
	symbol_table_deinit(&oldest->symbols);
	*oldest = (struct user_generated){.process = process, .number = number};
	return oldest;
}

static void read_generated(struct user_files *self, const struct guest_programs *programs,
			   uint64_t task, struct user_generated *entry)
{
	struct linux_cached_file cached;
	struct symbol_table symbols;
	struct linux_file file;
	char path[64];
	uint32_t pid;

	entry->next_read_ns = self->now + READ_AGAIN_NS;
	if (!programs->paths_known || !linux_path_own_pid(&programs->paths, task, &pid))
		return;
	snprintf(path, sizeof(path), "/tmp/perf-%u.map", pid);
	if (!linux_path_find(&programs->paths, task, path, &file) ||
	    is_same_file(&file, &entry->key))
		return;
	linux_cached_file_init(&cached, &programs->cache, &file);
	if (perf_map_read(&cached.source, file.size, &symbols, NULL) != GP_OK)
		return;
	symbol_table_deinit(&entry->symbols);
	entry->symbols = symbols;
	entry->key = file;
}

const struct symbol_table *user_files_generated(struct user_files *self,
						const struct guest_programs *programs,
						uint64_t task, uint64_t process, uint64_t number)
{
	struct user_generated *entry = generated_of(self, process, number);

	entry->last_use = ++self->uses;
	if (task && self->now >= entry->next_read_ns && self->reads_left) {
		self->reads_left--;
		read_generated(self, programs, task, entry);
	}
	return entry->symbols.count ? &entry->symbols : NULL;
}
