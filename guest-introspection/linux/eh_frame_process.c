#include "guest-introspection/linux/eh_frame_process.h"

#include "base/cleanup.h"
#include "base/container.h"
#include "guest-introspection/unwind/eh_frame_source.h"
#include "guest-introspection/linux/linux_mappings.h"

#include <string.h>

#define FILE_LIMIT 1024u

/* Files of one process that are looked for in its memory, too: each takes a walk over all of its
 * mappings. */
#define MEMORY_FILE_LIMIT 64u

/* A program is prepared anew when stacks of it still end early: it may have mapped more meanwhile,
 * or more of its files may be available. Less and less often. */
#define FIRST_WAIT_NS UINT64_C(500000000)
#define LONGEST_WAIT_NS UINT64_C(16000000000)
/* But soon, when a file is being looked for outside the guest. */
#define AWAITED_WAIT_NS UINT64_C(100000000)

/* What tells one file from another. A number is given again after a file is gone; what it says of
 * itself then differs. */
struct identity {
	uint64_t device;
	uint64_t number;
	uint64_t size;
	unsigned build_id_size;
	uint8_t build_id[ELF_BUILD_ID_LIMIT];
};

struct file {
	struct identity identity;
	struct eh_frame table;
	unsigned users; /* processes, once for each mapping */
	size_t bytes;
	struct file *next;
	/* Incomplete: the next process that maps it reads it again. */
	bool replaced;
};

struct eh_frame_files {
	struct file *first; /* the last one used comes first */
	unsigned count;
	size_t bytes;
};

struct eh_frame_process {
	struct unwind_program program;
	struct eh_frame_source source;
	struct eh_frame_process_counts counts;
	struct eh_frame_mapping *mappings;
	struct file **files; /* of each mapping */
};

gp_status_t eh_frame_files_create(struct eh_frame_files **out, struct error *error)
{
	struct eh_frame_files *files = calloc(1, sizeof(*files));

	if (!files)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for unwind rules");
	*out = files;
	return GP_OK;
}

static void file_destroy(struct file *file)
{
	eh_frame_deinit(&file->table);
	free(file);
}

void eh_frame_files_destroy(struct eh_frame_files *files)
{
	struct file *next;

	if (!files)
		return;
	for (struct file *file = files->first; file; file = next) {
		next = file->next;
		file_destroy(file);
	}
	free(files);
}

/* Drops files that nobody uses, the ones that were longest not used first, until all fits; and
 * those that have been replaced. */
static void make_room(struct eh_frame_files *files)
{
	unsigned count = 0;
	size_t bytes = 0;
	struct file **link = &files->first;

	while (*link) {
		struct file *file = *link;

		if (file->users == 0 && (file->replaced || count >= FILE_LIMIT ||
					 bytes + file->bytes > EH_FRAME_FILES_BYTES)) {
			*link = file->next;
			files->count--;
			files->bytes -= file->bytes;
			file_destroy(file);
			continue;
		}
		count++;
		bytes += file->bytes;
		link = &file->next;
	}
}

static void add_file(struct eh_frame_files *files, struct file *file)
{
	file->next = files->first;
	files->first = file;
	files->count++;
	files->bytes += file->bytes;
}

static struct file *find_file(struct eh_frame_files *files, const struct identity *identity)
{
	for (struct file **link = &files->first; *link; link = &(*link)->next) {
		struct file *file = *link;

		if (file->replaced || memcmp(&file->identity, identity, sizeof(*identity)) != 0)
			continue;
		*link = file->next;
		file->next = files->first;
		files->first = file;
		return file;
	}
	return NULL;
}

static size_t size_of(const struct eh_frame *table)
{
	return table->row_count * (sizeof(*table->addresses) + sizeof(*table->numbers)) +
	       table->rule_count * sizeof(*table->rules) + address_index_bytes(&table->index);
}

/* The rules of the file in `source`: those that are there, unless reading again gives more. A file
 * without rules is remembered, too. NULL: no memory. */
static struct file *file_of(struct eh_frame_files *files, const struct file_source *source,
			    const struct elf_image *image, const struct identity *identity)
{
	struct file *before = find_file(files, identity);
	struct file *file;
	gp_status_t status;

	if (before && before->table.complete)
		return before;
	file = calloc(1, sizeof(*file));
	if (!file)
		return before;
	status = eh_frame_read(source, image, &file->table, NULL);
	if (before &&
	    (status != GP_OK || file->table.function_count <= before->table.function_count)) {
		file_destroy(file);
		return before;
	}
	if (status == GP_ERR_NO_MEMORY) {
		file_destroy(file);
		return NULL;
	}
	if (before)
		before->replaced = true;
	file->identity = *identity;
	file->bytes = sizeof(*file) + size_of(&file->table);
	add_file(files, file);
	return file;
}

/* One walk over the mappings of a process. */
struct walk {
	const struct linux_mappings *mappings;
	struct file_copies *copies;
	uint64_t mm;
	unsigned count;
	unsigned memory_files;
	bool cut;
	bool copy_pending;
	struct linux_mapping *code; /* those of code */
	bool *is_vdso;
};

static bool collect(void *context, const struct linux_mapping *mapping)
{
	struct walk *walk = context;
	bool is_vdso =
		mapping->kind == LINUX_MAPPING_SPECIAL && strcmp(mapping->name, "[vdso]") == 0;

	if (!mapping->executable ||
	    !(is_vdso || (mapping->kind == LINUX_MAPPING_FILE && mapping->file.inode)))
		return true;
	if (walk->count == EH_FRAME_PROCESS_MAPPINGS) {
		walk->cut = true;
		return false;
	}
	walk->is_vdso[walk->count] = is_vdso;
	walk->code[walk->count] = *mapping;
	walk->code[walk->count++].name = "";
	return true;
}

/* The file of one mapping and its bias; NULL: it has no rules, or (`*missing`) its headers are not
 * available. */
static struct file *file_of_source(struct eh_frame_files *files, const struct file_source *source,
				   const struct linux_mapping *mapping, uint64_t *bias,
				   bool *missing)
{
	struct elf_image image;
	struct identity identity = {0};
	gp_status_t status = elf_image_read(source, &image, NULL);
	struct file *file;

	*missing = status == GP_ERR_NOT_FOUND;
	if (status != GP_OK || !image.is_64 ||
	    !elf_image_bias(&image, mapping->start, mapping->offset, true, bias))
		return NULL;
	identity.device = (uint64_t)mapping->file.device_major << 32 | mapping->file.device_minor;
	identity.number = mapping->file.number;
	identity.size = mapping->file.size;
	identity.build_id_size = image.build_id_size;
	memcpy(identity.build_id, image.build_id, image.build_id_size);
	file = file_of(files, source, &image, &identity);
	*missing = !file || !file->table.complete;
	return file;
}

/* The same from a copy, which has the rules whole. NULL, `*missing` as it was: there is none. */
static struct file *file_of_copy(struct eh_frame_files *files, struct walk *walk,
				 const struct file_source *guest,
				 const struct linux_mapping *mapping, uint64_t *bias, bool *missing)
{
	unsigned steps = LINUX_PATH_STEPS;
	char path[LINUX_PATH_SIZE];
	struct file_copy_wanted wanted = {.path = path, .size = mapping->file.size, .code = true};
	const struct file_source *copy;
	struct elf_image image;
	struct file *file;
	bool still_missing;

	if (elf_image_read(guest, &image, NULL) == GP_OK) {
		wanted.build_id_size = image.build_id_size;
		memcpy(wanted.build_id, image.build_id, sizeof(wanted.build_id));
	}
	if (!linux_file_path(walk->mappings->files, mapping->file_address, &steps, path))
		path[0] = '\0';
	switch (file_copies_open(walk->copies, &wanted, guest, &copy, &image)) {
	case FILE_COPY_FOUND:
		break;
	case FILE_COPY_LATER:
		walk->copy_pending = true;
		return NULL;
	case FILE_COPY_NONE:
		return NULL;
	}
	file = file_of_source(files, copy, mapping, bias, &still_missing);
	walk->copies->release(walk->copies, copy);
	if (file)
		*missing = still_missing;
	return file;
}

static struct file *file_of_mapping(struct eh_frame_files *files, struct walk *walk,
				    const struct linux_page_cache *cache,
				    const struct address_space *space,
				    const struct linux_mapping *mapping, bool is_vdso,
				    uint64_t *bias, bool *missing)
{
	struct linux_cached_file cached;
	struct user_memory memory;
	struct file_layers layers;
	struct file *file;
	struct file *copied;

	*missing = true;
	if (is_vdso)
		return linux_mappings_vdso(walk->mappings, walk->mm, &memory)
			       ? file_of_source(files, &memory.source, mapping, bias, missing)
			       : NULL;
	linux_cached_file_init(&cached, cache, &mapping->file);
	file = file_of_source(files, &cached.source, mapping, bias, missing);
	if (!*missing || walk->memory_files == MEMORY_FILE_LIMIT)
		return file;
	walk->memory_files++;
	linux_mappings_file(walk->mappings, walk->mm, space, mapping->file.inode, &memory);
	layers = file_layers_of(&cached.source, &memory.source);
	file = file_of_source(files, &layers.source, mapping, bias, missing);
	if (!*missing)
		return file;
	copied = file_of_copy(files, walk, &layers.source, mapping, bias, missing);
	return copied ? copied : file;
}

void eh_frame_process_destroy(struct eh_frame_files *files, struct eh_frame_process *process)
{
	if (!process)
		return;
	for (unsigned i = 0; i < process->counts.with_rules; i++)
		process->files[i]->users--;
	free(process->mappings);
	free(process->files);
	free(process);
	make_room(files);
}

static void add_mappings(struct eh_frame_files *files, struct walk *walk,
			 const struct linux_page_cache *cache, const struct address_space *space,
			 struct eh_frame_process *process)
{
	for (unsigned i = 0; i < walk->count; i++) {
		const struct linux_mapping *mapping = &walk->code[i];
		unsigned at = process->counts.with_rules;
		uint64_t bias;
		struct file *file;
		bool missing;

		/* In order, whatever the guest did meanwhile. */
		if (at > 0 && mapping->start < process->mappings[at - 1].end)
			continue;
		file = file_of_mapping(files, walk, cache, space, mapping, walk->is_vdso[i], &bias,
				       &missing);
		if (missing)
			process->counts.complete = false;
		if (!file || file->table.row_count == 0)
			continue;
		file->users++;
		process->files[at] = file;
		process->mappings[at] = (struct eh_frame_mapping){.start = mapping->start,
								  .end = mapping->end,
								  .bias = bias,
								  .table = &file->table};
		process->counts.with_rules++;
	}
}

gp_status_t eh_frame_process_create(struct eh_frame_files *files,
				    const struct linux_mappings *mappings,
				    const struct linux_page_cache *cache,
				    struct file_copies *copies, uint64_t mm,
				    struct eh_frame_process **out, struct error *error)
{
	AUTO_FREE struct linux_mapping *code = calloc(EH_FRAME_PROCESS_MAPPINGS, sizeof(*code));
	AUTO_FREE bool *is_vdso = calloc(EH_FRAME_PROCESS_MAPPINGS, sizeof(*is_vdso));
	struct walk walk = {
		.mappings = mappings, .copies = copies, .mm = mm, .code = code, .is_vdso = is_vdso};
	struct eh_frame_process *process = calloc(1, sizeof(*process));
	struct linux_mappings_walk walked;
	struct address_space space;

	if (!code || !is_vdso || !process)
		goto no_memory;
	if (!linux_mappings_space(mappings, mm, &space)) {
		free(process);
		return error_set(error, GP_ERR_NOT_FOUND, "the address space is gone");
	}
	walked = linux_mappings_walk(mappings, mm, collect, &walk);
	process->mappings = calloc(walk.count + 1, sizeof(*process->mappings));
	process->files = calloc(walk.count + 1, sizeof(*process->files));
	if (!process->mappings || !process->files)
		goto no_memory;
	process->counts = (struct eh_frame_process_counts){
		.code_mappings = walk.count, .complete = walked.complete && !walk.cut};
	add_mappings(files, &walk, cache, &space, process);
	process->counts.copy_pending = walk.copy_pending;
	make_room(files);
	if (process->counts.with_rules == 0) {
		eh_frame_process_destroy(files, process);
		return error_set(error, walk.copy_pending ? GP_ERR_UNAVAILABLE : GP_ERR_NOT_FOUND,
				 "no unwind rules of the program can be read");
	}
	eh_frame_source_init(&process->source, process->mappings, process->counts.with_rules);
	process->program = (struct unwind_program){
		.mm = mm, .root = space.root, .source = &process->source.source};
	*out = process;
	return GP_OK;
no_memory:
	if (process) {
		free(process->mappings);
		free(process->files);
		free(process);
	}
	return error_set(error, GP_ERR_NO_MEMORY, "no memory for unwind rules");
}

const struct unwind_program *eh_frame_process_program(const struct eh_frame_process *process)
{
	return &process->program;
}

struct eh_frame_process_counts eh_frame_process_counts(const struct eh_frame_process *process)
{
	return process->counts;
}

/* The programs that were asked for. */

static void retire(struct program_rules *rules, struct eh_frame_process *process)
{
	if (process)
		rules->retired[rules->retired_count++] = process;
}

void program_rules_free_retired(struct program_rules *rules)
{
	for (unsigned i = 0; i < rules->retired_count; i++)
		eh_frame_process_destroy(rules->files, rules->retired[i]);
	rules->retired_count = 0;
}

void program_rules_deinit(struct program_rules *rules)
{
	program_rules_free_retired(rules);
	for (unsigned i = 0; i < rules->count; i++)
		eh_frame_process_destroy(rules->files, rules->entries[i].process);
	eh_frame_files_destroy(rules->files);
	*rules = (struct program_rules){0};
}

/* The entry of `mm`, or a new one, in whose place somebody else's may have been. */
static struct program_rules_entry *entry_of(struct program_rules *rules, uint64_t mm)
{
	struct program_rules_entry *oldest = &rules->entries[0];

	for (unsigned i = 0; i < rules->count; i++) {
		if (rules->entries[i].mm == mm)
			return &rules->entries[i];
		if (rules->entries[i].asked_ns < oldest->asked_ns)
			oldest = &rules->entries[i];
	}
	if (rules->count < PROGRAM_RULES_MAX)
		oldest = &rules->entries[rules->count++];
	else
		retire(rules, oldest->process);
	*oldest = (struct program_rules_entry){.mm = mm, .wait_ns = FIRST_WAIT_NS};
	return oldest;
}

bool program_rules_want(struct program_rules *rules, const struct linux_mappings *mappings,
			const struct linux_page_cache *cache, struct file_copies *copies,
			uint64_t mm, uint64_t now)
{
	struct program_rules_entry *entry;
	struct eh_frame_process *process;
	struct error error;
	gp_status_t status;
	uint64_t stack = 0;

	/* Room for what this may take off the list: the entry's own and the oldest. */
	if (rules->retired_count + 2 > PROGRAM_RULES_MAX ||
	    (!rules->files && eh_frame_files_create(&rules->files, &error)))
		return false;
	entry = entry_of(rules, mm);
	entry->asked_ns = now;
	/* The kernel has given the struct to another process. Its rules are to be had at once, as
	 * for any new one. */
	if (linux_mappings_stack(mappings, mm, &stack) && stack != entry->stack) {
		entry->stack = stack;
		entry->again_ns = 0;
		entry->wait_ns = FIRST_WAIT_NS;
	}
	if (now < entry->again_ns)
		return false;
	status = eh_frame_process_create(rules->files, mappings, cache, copies, mm, &process,
					 &error);
	if (status ? status == GP_ERR_UNAVAILABLE : eh_frame_process_counts(process).copy_pending) {
		entry->again_ns = now + AWAITED_WAIT_NS;
	} else {
		entry->again_ns = now + entry->wait_ns;
		if (entry->wait_ns < LONGEST_WAIT_NS)
			entry->wait_ns *= 2;
	}
	if (status)
		return false;
	retire(rules, entry->process);
	entry->process = process;
	return true;
}

static int compare_programs(const void *left, const void *right)
{
	const struct unwind_program *const *a = left, *const *b = right;

	return (*a)->mm < (*b)->mm ? -1 : (*a)->mm > (*b)->mm;
}

unsigned program_rules_list(const struct program_rules *rules,
			    const struct unwind_program *list[static PROGRAM_RULES_MAX])
{
	unsigned count = 0;

	for (unsigned i = 0; i < rules->count; i++)
		if (rules->entries[i].process)
			list[count++] = eh_frame_process_program(rules->entries[i].process);
	qsort(list, count, sizeof(*list), compare_programs);
	return count;
}
