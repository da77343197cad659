#include "naming/dso.h"

#include "base/clock.h"
#include "guest-introspection/elf/perf_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READS_OF_A_LOOK 16u                /* up to a million symbols each */
#define LOOK_NS (300 * NS_PER_MILLISECOND) /* then what is left waits for the next look */
/* Pages of a file come into the cache while it is used. */
#define READ_AGAIN_NS NS_PER_SECOND
#define READS_OF_A_FILE 3u
/* A copy that is being looked for: that takes as long as reading the initial file system. */
#define AWAITED_NS (50 * NS_PER_MILLISECOND)
#define WAITS_OF_A_FILE 200u

static void forget_dso(struct dsos *self, unsigned index)
{
	self->bytes -= self->dsos[index].bytes;
	user_symbols_deinit(&self->dsos[index].symbols);
	free(self->dsos[index].path);
	self->dsos[index] = self->dsos[--self->count];
}

void dsos_deinit(struct dsos *self)
{
	while (self->count)
		forget_dso(self, self->count - 1);
}

void dsos_begin(struct dsos *self, uint64_t now)
{
	self->now = now;
	self->deadline = boot_ns() + LOOK_NS;
	self->reads_left = READS_OF_A_LOOK;
}

bool dsos_are_exhausted(struct dsos *self)
{
	if (boot_ns() > self->deadline)
		self->reads_left = 0;
	return !self->reads_left;
}

static bool is_same_file(const struct linux_file *a, const struct linux_file *b)
{
	return a->inode == b->inode && a->mapping == b->mapping && a->number == b->number &&
	       a->size == b->size && a->device_major == b->device_major &&
	       a->device_minor == b->device_minor;
}

/* NULL: not known. */
static struct dso *find_dso(struct dsos *self, const struct linux_file *key, uint64_t owner)
{
	for (unsigned i = 0; i < self->count; i++)
		if (self->dsos[i].owner == owner && is_same_file(&self->dsos[i].key, key))
			return &self->dsos[i];
	return NULL;
}

static struct dso *add_dso(struct dsos *self, const struct linux_file *key, uint64_t owner,
			   const char *path)
{
	struct dso *dso = find_dso(self, key, owner);

	while (!dso && (self->count == DSOS_MAX || (self->count && self->bytes > DSO_BYTES_MAX))) {
		unsigned oldest = 0;

		for (unsigned i = 1; i < self->count; i++)
			if (self->dsos[i].last_use < self->dsos[oldest].last_use)
				oldest = i;
		forget_dso(self, oldest);
	}
	if (!dso) {
		dso = &self->dsos[self->count++];
		*dso = (struct dso){
			.key = *key, .owner = owner, .path = path[0] ? strdup(path) : NULL};
	}
	dso->last_use = ++self->uses;
	return dso;
}

void dsos_note(struct dsos *self, const struct guest_programs *programs, uint64_t mm,
	       struct linux_mapping *area)
{
	struct user_memory image;

	if (area->kind == LINUX_MAPPING_SPECIAL && !strcmp(area->name, "[vdso]") &&
	    linux_mappings_vdso(&programs->mappings, mm, &image))
		area->file = (struct linux_file){.mapping = image.pieces[0].start,
						 .size = image.pieces[0].size};
	if (area->file.mapping)
		add_dso(self, &area->file, 0, area->name);
}

const char *dsos_path(struct dsos *self, const struct linux_file *file)
{
	const struct dso *dso = find_dso(self, file, 0);

	return dso && dso->path ? dso->path : "";
}

/* Takes what was read of it in place of what there was. */
static void take_symbols(struct dsos *self, struct dso *dso, const struct user_symbols *symbols)
{
	const struct symbol_table *table = &symbols->symbols;

	self->bytes -= dso->bytes;
	dso->symbols = *symbols;
	dso->bytes = table->capacity * sizeof(*table->entries) + table->names_capacity;
	self->bytes += dso->bytes;
}

static void await_copy(const struct dsos *self, struct dso *dso, bool later)
{
	dso->awaited = later && dso->waits++ < WAITS_OF_A_FILE;
	dso->next_read_ns = self->now + (dso->awaited ? AWAITED_NS : READ_AGAIN_NS);
}

static void read_dso(struct dsos *self, struct dso *dso, const struct guest_programs *programs,
		     uint64_t mm, const struct linux_mapping *area)
{
	struct user_symbols symbols = {0};
	gp_status_t status = user_symbols_read(&programs->mappings, &programs->cache, mm, area,
					       programs->copies, &symbols, NULL);

	dso->reads++;
	if (status == GP_OK) {
		user_symbols_deinit(&dso->symbols);
		take_symbols(self, dso, &symbols);
		dso->readable = true;
	}
	await_copy(self, dso, symbols.later);
	dso->complete = !dso->awaited && ((status == GP_OK && !symbols.result.missing) ||
					  dso->reads >= READS_OF_A_FILE + dso->waits);
}

/* Its inode is gone: nothing more comes but the copy that is looked for. */
static void read_copy(struct dsos *self, struct dso *dso, const struct guest_programs *programs,
		      const struct linux_mapping *area)
{
	struct user_symbols symbols = dso->symbols;

	user_symbols_read_copy(area, programs->copies, &symbols);
	take_symbols(self, dso, &symbols);
	await_copy(self, dso, symbols.later);
}

/* NULL: never read. */
static const struct dso *get_file(struct dsos *self, const struct guest_programs *programs,
				  uint64_t mm, const struct linux_mapping *area,
				  enum dso_outlook *outlook)
{
	struct dso *dso = add_dso(self, &area->file, 0, area->name);
	bool due = !dso->complete && self->now >= dso->next_read_ns;
	bool exists = mm || linux_file_is_there(&programs->files, &area->file);

	if (due && (exists || (dso->awaited && dso->readable))) {
		if (dsos_are_exhausted(self)) {
			*outlook = DSO_SOON;
			return dso->reads ? dso : NULL;
		}
		self->reads_left--;
		if (exists)
			read_dso(self, dso, programs, mm, area);
		else
			read_copy(self, dso, programs, area);
	}
	*outlook = dso->awaited && (exists || dso->readable) ? DSO_SOON
		   : dso->complete || !exists                ? DSO_FINAL
							     : DSO_LATER;
	return dso->reads ? dso : NULL;
}

/* The symbols that a process has given to code that it generated: read again when the file has
 * grown. NULL: there are none. */
static const struct dso *get_generated(struct dsos *self, const struct guest_programs *programs,
				       const struct dso_user *user)
{
	struct dso *dso = add_dso(self, &(struct linux_file){0}, user->space, "");
	struct user_symbols symbols = {0};
	struct linux_cached_file cached;
	struct linux_file file;
	char path[64];
	uint32_t pid;

	if (user->leader && self->now >= dso->next_read_ns && self->reads_left) {
		self->reads_left--;
		dso->next_read_ns = self->now + READ_AGAIN_NS;
		/* In the process's own namespaces of paths and of pids. */
		if (linux_path_own_pid(&programs->files, user->leader, &pid) &&
		    snprintf(path, sizeof(path), "/tmp/perf-%u.map", pid) > 0 &&
		    linux_path_find(&programs->files, user->leader, path, &file) &&
		    !is_same_file(&file, &dso->perf_map)) {
			linux_cached_file_init(&cached, &programs->cache, &file);
			if (perf_map_read(&cached.source, file.size, &symbols.symbols, NULL) ==
			    GP_OK) {
				user_symbols_deinit(&dso->symbols);
				take_symbols(self, dso, &symbols);
				dso->perf_map = file;
			}
		}
	}
	return dso->symbols.symbols.count ? dso : NULL;
}

const struct dso *dsos_get(struct dsos *self, const struct guest_programs *programs,
			   const struct dso_user *user, const struct linux_mapping *area,
			   enum dso_outlook *outlook)
{
	const struct dso *dso;

	*outlook = DSO_FINAL;
	if (!area->executable)
		return NULL;
	if (area->file.mapping) {
		dso = get_file(self, programs, user->mm, area, outlook);
		if (!dso || dso->readable || area->kind != LINUX_MAPPING_FILE)
			return dso;
	} else if (area->kind != LINUX_MAPPING_ANONYMOUS && area->kind != LINUX_MAPPING_HEAP) {
		return NULL;
	}
	/* Some programs map memory that is shared, or a file of their own, to make code in. */
	dso = get_generated(self, programs, user);
	if (!dso)
		return area->file.mapping ? find_dso(self, &area->file, 0) : NULL;
	if (*outlook == DSO_FINAL)
		*outlook = DSO_LATER;
	return dso;
}
