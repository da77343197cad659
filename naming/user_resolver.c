#include "naming/user_resolver.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "fxt/symbol.h"
#include "fxt/writer.h"
#include "guest-introspection/linux/user_symbols.h"
#include "sampler/session.h"
#include "naming/user_files.h"
#include "naming/user_mapping.h"

#define TASKS_MAX (1u << 16) /* of one look */
#define BATCH 64u
#define PAGE_TABLES UINT64_C(0x000ffffffffff000) /* of CR3; Intel SDM vol. 3, 4.5.2 */
#define USER_TABLES UINT64_C(0x1000) /* arch/x86/entry/calling.h: PTI_USER_PGTABLE_BIT */
/* What was kept of a process that is gone holds for so long: it lived on for some of it. */
#define KEPT_NS (100 * NS_PER_MILLISECOND)

struct user_resolver {
	struct guest_programs programs;
	struct user_files files;
	uint64_t now;
	size_t looks;
	uint64_t scratch[FXT_RECORD_WORDS_MAX];
	struct user_code code;
};

struct user_resolver *user_resolver_create(void)
{
	return calloc(1, sizeof(struct user_resolver));
}

void user_resolver_destroy(struct user_resolver *self)
{
	if (self) {
		user_files_deinit(&self->files);
		user_code_deinit(&self->code);
	}
	free(self);
}

/* One generation's walk over its mappings. */

struct look {
	struct user_resolver *self;
	struct user_work *work;
	uint64_t address_space; /* as it is written */
	uint64_t mm;            /* 0: the process is gone, this is what was kept of it */
	uint64_t leader;        /* a task of it; 0: the same */
	bool changed;
	bool failed; /* no memory: what there is is good */
	struct user_kept *kept;
	struct fxt_symbol batch[BATCH];
	unsigned batched;
};

static void flush(struct look *look)
{
	const struct fxt_process_symbols process = {.process = look->work->process,
						    .address_space = look->address_space};
	unsigned done = 0;

	while (done < look->batched) {
		size_t taken = 0;
		size_t used = fxt_process_symbols_encode(&process, look->batch + done,
							 look->batched - done, look->self->scratch,
							 FXT_RECORD_WORDS_MAX, &taken);

		if (!used || !user_words_add(&look->work->words, look->self->scratch, used)) {
			look->failed = true;
			break;
		}
		done += (unsigned)taken;
	}
	look->batched = 0;
}

/* `name` must last until the next flush(). */
static void add_symbol(struct look *look, uint64_t start, uint64_t size, uint32_t kind,
		       const char *name)
{
	look->batch[look->batched++] = (struct fxt_symbol){.start = start,
							   .size = size,
							   .kind = kind,
							   .name = name,
							   .name_bytes = (uint32_t)strlen(name)};
	if (look->batched == BATCH)
		flush(look);
}

/* Fuchsia's records for a mapping of code: a module is a file, its id counts within the process. */
static void add_module(struct look *look, const struct linux_mapping *mapping, unsigned id,
		       const struct elf_image *image, uint64_t bias)
{
	size_t length = strlen(mapping->name);
	const char *name = mapping->name;
	struct fxt_module module = {
		.id = (uint16_t)id,
		.thread = {.process = look->work->process},
	};
	struct fxt_mmap mmap = {
		.module = (uint16_t)id,
		.flags = (uint8_t)(mapping->executable | mapping->writable << 1 |
				   mapping->readable << 2),
		.thread = {.process = look->work->process},
		.start = mapping->start,
		.range = mapping->end - mapping->start,
		.vaddr = image ? mapping->start - bias : mapping->offset,
	};
	size_t used;

	/* The end of a path says more than its beginning. */
	if (length > FXT_NAME_BYTES_MAX) {
		name += length - FXT_NAME_BYTES_MAX;
		length = FXT_NAME_BYTES_MAX;
	}
	module.name = fxt_bytes(name, length);
	if (image)
		module.build_id = fxt_bytes(image->build_id, image->build_id_size);
	used = fxt_encode_module(&module, look->self->scratch, FXT_RECORD_WORDS_MAX);
	if (!user_words_add(&look->work->words, look->self->scratch, used))
		look->failed = true;
	used = fxt_encode_mmap(&mmap, look->self->scratch, FXT_RECORD_WORDS_MAX);
	if (!user_words_add(&look->work->words, look->self->scratch, used))
		look->failed = true;
}

void user_resolver_keep_code(struct user_resolver *self, const struct user_work *work)
{
	for (size_t i = 0; i < work->code_count; i++)
		user_code_keep(&self->code, work->code[i]);
}

struct user_code_totals user_resolver_code_totals(const struct user_resolver *self)
{
	return self->code.totals;
}

/* What the code of a mapping calls in the same file. */
struct called {
	struct look *look;
	const struct symbol_table *symbols;
	uint64_t bias;
};

static void name_called(void *context, uint64_t address)
{
	struct called *called = context;
	struct symbol symbol;

	if (symbol_table_find(called->symbols, address, &symbol) && symbol.start == address)
		add_symbol(called->look, symbol.start + called->bias, symbol.size, FXT_SYMBOL_USER,
			   symbol.name);
}

static void open_code(struct look *look, const struct linux_mapping *mapping,
		      const struct elf_image *image, uint64_t bias, struct user_code_source *source)
{
	user_code_open(&look->self->code, &look->self->programs, look->mm, mapping, source);
	source->image = image;
	source->bias = bias;
	source->file_identity = user_mapping_file_identity(mapping);
	source->of = (struct fxt_process_symbols){.process = look->work->process,
						  .address_space = look->address_space};
	source->words = &look->work->words;
}

/* Keys of what was copied: at most one for each address. */
static void note_code(struct user_work *work, uint64_t key)
{
	if (key)
		work->code[work->code_count++] = key;
}

static void name_nothing(void *context, uint64_t address)
{
	(void)context;
	(void)address;
}

/* Of code without functions, as a stripped program's or what a program made itself, some bytes from
 * each address on. */
static void copy_windows(struct look *look, const struct linux_mapping *mapping, size_t first,
			 size_t end, const struct elf_image *image, uint64_t bias)
{
	struct user_work *work = look->work;
	struct user_code_source source;

	open_code(look, mapping, image, bias, &source);
	source.called = name_nothing;
	for (size_t i = first; i < end; i++)
		if (work->stood[i] && work->marks[i] != USER_NAMED && work->marks[i] != USER_NEW &&
		    work->marks[i] != USER_AWAITED)
			note_code(work, user_code_copy_window(&source, work->addresses[i]));
	look->failed = look->failed || source.failed;
}

/* The names of addresses [first, end) of the work, which are in code of an ELF image. */
static void name_functions(struct look *look, const struct linux_mapping *mapping, size_t first,
			   size_t end, const struct symbol_table *symbols,
			   const struct elf_image *image, uint64_t bias, uint8_t unnamed)
{
	struct user_work *work = look->work;
	struct called called = {look, symbols, bias};
	struct user_code_source source;
	uint64_t last = 0;
	bool any = false;

	open_code(look, mapping, image, bias, &source);
	source.called = name_called;
	source.context = &called;
	for (size_t i = first; i < end; i++) {
		struct symbol symbol;

		if (!symbol_table_find(symbols, work->addresses[i] - bias, &symbol)) {
			work->marks[i] = unnamed;
			continue;
		}
		work->marks[i] = USER_NAMED;
		if (work->stood[i])
			note_code(work, user_code_copy(&source, &symbol));
		if (any && symbol.start == last)
			continue;
		any = true;
		last = symbol.start;
		add_symbol(look, symbol.start + bias, symbol.size, FXT_SYMBOL_USER, symbol.name);
	}
	look->failed = look->failed || source.failed;
	flush(look);
}

static void mark_all(struct user_work *work, size_t first, size_t end, uint8_t mark)
{
	memset(work->marks + first, mark, end - first);
}

static void name_addresses(struct look *look, const struct linux_mapping *mapping, size_t first,
			   size_t end)
{
	struct user_resolver *self = look->self;
	struct user_work *work = look->work;
	struct user_symbols special = {0};
	const struct elf_image *image = NULL;
	const struct symbol_table *symbols = NULL;
	uint64_t bias = 0, identity = user_mapping_identity(mapping);
	uint8_t unnamed = USER_MAPPED;
	bool is_known = false, generated = false;
	char name[300];

	if (mapping->executable && mapping->kind == LINUX_MAPPING_FILE && mapping->file.inode) {
		struct user_file *file =
			user_files_of(&self->files, &self->programs, look->mm, mapping);

		/* What is being looked for comes at another look, soon. */
		work->awaited = work->awaited || !file || file->waiting;
		if (!file && !self->files.reads_left)
			mark_all(work, first, end, USER_AWAITED);
		if (!file)
			return;
		unnamed = file->waiting ? USER_AWAITED : file->whole ? USER_MAPPED : USER_MISSED;
		generated = !file->readable;
		if (file->readable && elf_image_bias(&file->symbols.image, mapping->start,
						     mapping->offset, true, &bias)) {
			image = &file->symbols.image;
			symbols = &file->symbols.symbols;
		}
	} else if (look->mm && mapping->executable && mapping->kind == LINUX_MAPPING_SPECIAL &&
		   user_symbols_read(&self->programs.mappings, &self->programs.cache, look->mm,
				     mapping, NULL, &special, NULL) == GP_OK) {
		image = &special.image;
		symbols = &special.symbols;
		bias = special.bias;
	}
	/* Some map memory that is shared, or a file of their own, to make code in. */
	if (mapping->executable && (generated || mapping->kind == LINUX_MAPPING_ANONYMOUS ||
				    mapping->kind == LINUX_MAPPING_HEAP)) {
		symbols = user_files_generated(&self->files, &self->programs, look->leader,
					       work->process, work->number);
		unnamed = symbols ? USER_MISSED : unnamed;
	}
	for (unsigned i = 0; i < work->place_count && !is_known; i++)
		is_known = work->places[i].start == mapping->start &&
			   work->places[i].end == mapping->end &&
			   work->places[i].identity == identity;
	if (!is_known && work->place_count < USER_PLACES_MAX) {
		if (mapping->executable && (image || mapping->kind == LINUX_MAPPING_FILE))
			add_module(look, mapping, work->place_count, image, bias);
		work->places[work->place_count++] =
			(struct user_place){mapping->start, mapping->end, identity};
		user_mapping_name(mapping, name, sizeof(name));
		add_symbol(look, mapping->start, mapping->end - mapping->start, FXT_SYMBOL_MAPPING,
			   name);
		flush(look);
	}
	mark_all(work, first, end, unnamed);
	if (symbols)
		name_functions(look, mapping, first, end, symbols, image, bias, unnamed);
	if (mapping->executable)
		copy_windows(look, mapping, first, end, image, bias);
	symbol_table_deinit(&special.symbols);
}

static size_t first_from(const struct user_work *work, uint64_t address)
{
	size_t low = 0, high = work->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (work->addresses[middle] < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void keep(struct look *look, const struct linux_mapping *mapping)
{
	struct user_kept *kept = look->kept;

	if (!mapping->executable || kept->count == USER_KEPT_MAX)
		return;
	if (mapping->kind == LINUX_MAPPING_FILE && mapping->file.inode)
		user_files_add(&look->self->files, mapping); /* its path */
	kept->mappings[kept->count] = *mapping;
	kept->mappings[kept->count++].name = strcmp(mapping->name, "[vdso]") ? "" : "[vdso]";
}

static bool see_mapping(void *context, const struct linux_mapping *mapping)
{
	struct look *look = context;
	struct user_work *work = look->work;
	size_t first = first_from(work, mapping->start), end = first_from(work, mapping->end);

	for (unsigned i = 0; i < work->place_count; i++)
		if (work->places[i].start < mapping->end && mapping->start < work->places[i].end &&
		    work->places[i].identity != user_mapping_identity(mapping))
			look->changed = true;
	if (look->changed)
		return false;
	if (look->mm)
		keep(look, mapping);
	if (first < end)
		name_addresses(look, mapping, first, end);
	return !look->changed && !look->failed;
}

/* Processes. */

/* What a walk over all tasks finds for the work, which is in the order of processes. */
struct finding {
	struct user_identity identity;
	uint64_t task;
};

struct search {
	const struct user_work *work;
	struct finding *found;
	size_t count;
};

static bool see_task(void *context, const struct linux_task *task)
{
	struct search *search = context;
	size_t low = 0, high = search->count;
	struct finding *found;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (search->work[middle].process < (uint32_t)task->pid)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == search->count || search->work[low].process != (uint32_t)task->pid)
		return true;
	found = &search->found[low];
	if (task->tid == task->pid)
		found->identity.start_time = task->start_time;
	/* The first thread may have ended before the others. */
	if (task->mm && !found->identity.mm) {
		found->identity.mm = task->mm;
		found->identity.leader = task->leader;
		found->task = task->address;
	}
	return true;
}

static bool read_u64(const struct guest_programs *programs, uint64_t address, uint64_t *value)
{
	return guest_read_virtual(&programs->files.space, NULL, programs->memory, gva(address),
				  value, sizeof(*value)) == TRANSLATE_OK;
}

/* Whether the task found has the memory that the samples say, and which program's it is. */
static bool verify(const struct guest_programs *programs, uint64_t root, struct finding *found,
		   uint64_t *address_space)
{
	struct address_space space;
	uint64_t mm, tables;

	if (!found->identity.mm || !read_u64(programs, found->task + programs->tasks.mm, &mm) ||
	    mm != found->identity.mm || !linux_mappings_space(&programs->mappings, mm, &space) ||
	    !linux_mappings_stack(&programs->mappings, mm, &found->identity.stack))
		return false;
	tables = space.root & PAGE_TABLES;
	*address_space = tables | (programs->tasks.isolated ? FXT_ADDRESS_SPACE_ISOLATED : 0);
	root &= PAGE_TABLES;
	return root == tables || (programs->tasks.isolated && root == (tables | USER_TABLES));
}

static bool is_same_program(const struct user_identity *a, const struct user_identity *b)
{
	return a->mm == b->mm && a->leader == b->leader && a->start_time == b->start_time &&
	       a->stack == b->stack;
}

static const char *kept_name(struct user_resolver *self, const struct linux_mapping *mapping)
{
	const struct user_file *file;

	if (mapping->kind != LINUX_MAPPING_FILE)
		return mapping->name;
	file = user_files_known(&self->files, &mapping->file);
	return file && file->path ? file->path : "";
}

/* Only what was in a mapping when the process was there, and waits for that one's file; it is given
 * up unless that is found to wait on. */
static void keep_awaited(struct user_work *work)
{
	size_t count = 0;

	for (size_t i = 0; i < work->count; i++)
		if (work->marks[i] == USER_AWAITED) {
			work->addresses[count] = work->addresses[i];
			work->stood[count++] = work->stood[i];
		}
	work->count = count;
	mark_all(work, 0, count, USER_NOWHERE);
}

/* A process that is gone, from what was kept of it. */
static void look_back(struct user_resolver *self, struct user_work *work)
{
	const struct user_kept *kept = work->kept;
	struct look look = {.self = self, .work = work};

	if (!work->identity_known || !kept->count)
		return;
	if (self->now - kept->walked_ns > KEPT_NS) {
		keep_awaited(work);
		if (!work->count)
			return;
	}
	look.address_space =
		(work->root & PAGE_TABLES & ~(self->programs.tasks.isolated ? USER_TABLES : 0)) |
		(self->programs.tasks.isolated ? FXT_ADDRESS_SPACE_ISOLATED : 0);
	for (unsigned i = 0; i < kept->count; i++) {
		struct linux_mapping mapping = kept->mappings[i];

		mapping.name = kept_name(self, &mapping);
		/* Nothing is known of some pages of the kernel's and some files any more. */
		if (!mapping.name[0] &&
		    (mapping.kind == LINUX_MAPPING_FILE || mapping.kind == LINUX_MAPPING_SPECIAL))
			continue;
		if (!see_mapping(&look, &mapping))
			break;
	}
	work->result = USER_REMEMBERED;
}

static void look_at(struct user_resolver *self, struct user_work *work, struct finding *found)
{
	AUTO_FREE struct user_kept *kept = calloc(1, sizeof(*kept));
	struct look look = {.self = self,
			    .work = work,
			    .mm = found->identity.mm,
			    .leader = found->identity.leader,
			    .kept = kept};
	const struct user_identity before = found->identity;
	struct linux_mappings_walk walk;
	uint64_t address_space;

	work->result = USER_GONE;
	if (!kept)
		return;
	if (!verify(&self->programs, work->root, found, &look.address_space)) {
		look_back(self, work);
		return;
	}
	if (work->identity_known && !is_same_program(&work->identity, &found->identity)) {
		work->result = USER_CHANGED;
		return;
	}
	work->identity = found->identity;
	mark_all(work, 0, work->count, USER_NEW);
	if (!work->count) {
		work->result = USER_LOOKED;
		return;
	}
	walk = linux_mappings_walk(&self->programs.mappings, look.mm, see_mapping, &look);
	if (look.changed) {
		work->result = USER_CHANGED;
		return;
	}
	/* Memory is read while the guest runs: the process may have become another meanwhile. */
	found->identity = before;
	if (!verify(&self->programs, work->root, found, &address_space) ||
	    !is_same_program(&work->identity, &found->identity))
		return;
	work->result = USER_LOOKED;
	kept->walked_ns = self->now;
	*work->kept = *kept;
	for (size_t i = 0; walk.complete && i < work->count; i++)
		if (work->marks[i] == USER_NEW && self->files.reads_left)
			work->marks[i] = USER_MISSED;
}

static int compare_work(const void *left, const void *right)
{
	const struct user_work *a = left, *b = right;

	return a->process < b->process ? -1 : a->process > b->process;
}

bool user_resolver_look(struct user_resolver *self, struct linux_guest *view, uint64_t now,
			struct user_work *work, size_t count)
{
	struct search search = {.work = work, .count = count};

	if (!linux_guest_programs(view, &self->programs))
		return false;
	search.found = calloc(count ? count : 1, sizeof(*search.found));
	if (!search.found)
		return false;
	self->now = now;
	user_files_begin(&self->files, now);
	qsort(work, count, sizeof(*work), compare_work);
	/* A list that changes meanwhile ends early: what was not found is looked for again. */
	linux_task_walk(&self->programs.tasks, self->programs.memory, TASKS_MAX, see_task, &search,
			NULL);
	/* Each time from another one on, so that none that is slow stands before the others. */
	self->looks++;
	for (size_t i = 0; i < count && (i == 0 || boot_ns() < self->files.deadline); i++) {
		size_t at = (self->looks + i) % count;

		look_at(self, &work[at], &search.found[at]);
	}
	free(search.found);
	return true;
}

void user_resolver_hurry(struct user_resolver *self)
{
	user_files_hurry(&self->files);
}

bool user_resolver_isolated(const struct user_resolver *self)
{
	return self->programs.tasks.isolated;
}
