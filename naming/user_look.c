#include "naming/user_look.h"

#include "base/clock.h"
#include "fxt/symbol.h"
#include "fxt/writer.h"
#include "naming/dso.h"

#include <stdlib.h>
#include <string.h>

#define TASKS_MAX (1u << 16)
#define SYMBOLS_AT_ONCE 64u
/* A mapping snapshot holds for samples up to so much later than it, when the process has ended
 * meanwhile. */
#define SNAPSHOT_HOLDS_NS (100 * NS_PER_MILLISECOND)
/* When to try again: a process that is not there with its page tables, an address without a mapping
 * or a name, and one whose file is being looked for. */
#define NOT_FOUND_NS (200 * NS_PER_MILLISECOND)
#define NOT_FOUND_TRIES 8u
#define NO_NAME_NS NS_PER_SECOND
#define AWAITED_NS (50 * NS_PER_MILLISECOND)

struct user_look {
	const struct guest_programs *programs;
	struct dsos dsos;
	struct user_code code;
	uint64_t clock_ns;
	uint64_t now_ns;
	size_t looks;
	struct user_space *const *spaces;
	size_t count;

	/* The space that is being looked at. */
	struct user_space *space;
	struct dso_user user;
	uint64_t address_space;             /* as it is written */
	const struct address_space *tables; /* of a process that exists */
	struct mapping_snapshot snapshot;   /* being taken */
	struct fxt_symbol symbols[SYMBOLS_AT_ONCE];
	unsigned symbol_count;
	uint64_t record[FXT_RECORD_WORDS_MAX];
};

struct user_look *user_look_create(void)
{
	return calloc(1, sizeof(struct user_look));
}

void user_look_destroy(struct user_look *self)
{
	if (!self)
		return;
	dsos_deinit(&self->dsos);
	user_code_deinit(&self->code);
	mapping_snapshot_deinit(&self->snapshot);
	free(self);
}

bool user_look_begin(struct user_look *self, struct linux_guest *guest)
{
	self->programs = linux_guest_programs(guest);
	return self->programs;
}

bool user_look_isolated(const struct user_look *self)
{
	return self->programs->tasks.isolated;
}

struct code_totals user_look_code_totals(const struct user_look *self)
{
	return self->code.totals;
}

/* Records. What there is no memory for is left out. */

static void flush_symbols(struct user_look *self)
{
	const struct fxt_process_symbols of = {.process = self->space->process,
					       .address_space = self->address_space};

	for (size_t done = 0, taken = 0; done < self->symbol_count; done += taken) {
		size_t used = fxt_process_symbols_encode(&of, self->symbols + done,
							 self->symbol_count - done, self->record,
							 FXT_RECORD_WORDS_MAX, &taken);

		if (!used || !vector_append(&self->space->words, self->record, used))
			break;
	}
	self->symbol_count = 0;
}

/* `name` must last until flush_symbols(). */
static void add_symbol(struct user_look *self, uint64_t start, uint64_t size, uint32_t kind,
		       const char *name)
{
	self->symbols[self->symbol_count++] =
		(struct fxt_symbol){.start = start,
				    .size = size,
				    .kind = kind,
				    .name = name,
				    .name_bytes = (uint32_t)strlen(name)};
	if (self->symbol_count == SYMBOLS_AT_ONCE)
		flush_symbols(self);
}

/* Each function is written once for a space. */
static void add_function(struct user_look *self, const struct symbol *symbol, uint64_t bias)
{
	uint64_t start = symbol->start + bias;
	size_t before = self->space->functions.count;
	uint32_t number;

	if (!hash_table_add(&self->space->functions, &start, &number) ||
	    self->space->functions.count > before)
		add_symbol(self, start, symbol->size, FXT_SYMBOL_USER, symbol->name);
}

/* Fuchsia's records for a mapping of code: a module is a file, its id counts within the space. */
static void add_module(struct user_look *self, const struct linux_mapping *area,
		       const struct elf_image *image, uint64_t bias)
{
	size_t length = strlen(area->name);
	/* The end of a path says more than its beginning. */
	size_t cut = length > FXT_NAME_BYTES_MAX ? length - FXT_NAME_BYTES_MAX : 0;
	struct fxt_module module = {
		.id = self->space->modules,
		.thread = {.process = self->space->process},
		.name = fxt_bytes(area->name + cut, length - cut),
	};
	struct fxt_mmap mmap = {
		.module = self->space->modules++,
		.flags = (uint8_t)(area->executable | area->writable << 1 | area->readable << 2),
		.thread = {.process = self->space->process},
		.start = area->start,
		.range = area->end - area->start,
		.vaddr = image ? area->start - bias : area->offset,
	};

	if (image)
		module.build_id = fxt_bytes(image->build_id, image->build_id_size);
	vector_append(&self->space->words, self->record,
		      fxt_encode_module(&module, self->record, FXT_RECORD_WORDS_MAX));
	vector_append(&self->space->words, self->record,
		      fxt_encode_mmap(&mmap, self->record, FXT_RECORD_WORDS_MAX));
}

static void add_mapping(struct user_look *self, struct mapping *mapping,
			const struct elf_image *image, uint64_t bias)
{
	const struct linux_mapping *area = &mapping->area;
	char label[300];

	if (mapping->written)
		return;
	mapping->written = true;
	if (area->executable && (image || area->kind == LINUX_MAPPING_FILE))
		add_module(self, area, image, bias);
	mapping_label(area, label, sizeof(label));
	add_symbol(self, area->start, area->end - area->start, FXT_SYMBOL_MAPPING, label);
	flush_symbols(self);
}

/* Names. */

static void name_called(void *context, const struct symbol *symbol, uint64_t bias)
{
	add_function(context, symbol, bias);
}

static bool is_due(const struct user_look *self, const struct sampled_address *sampled,
		   enum sampled_state state)
{
	return sampled->state == state && self->now_ns >= sampled->next_ns;
}

/* No function is known there. */
static void miss(const struct user_look *self, struct sampled_address *sampled,
		 enum dso_outlook outlook)
{
	if (outlook == DSO_SOON)
		sampled->next_ns = self->now_ns + AWAITED_NS;
	else if (outlook == DSO_LATER && ++sampled->misses < 2)
		sampled->next_ns = self->now_ns + NO_NAME_NS;
	else
		sampled->state = SAMPLED_DONE;
}

/* Sampled addresses [first, end) of one mapping. */
static void name_addresses(struct user_look *self, struct mapping *mapping,
			   struct sampled_address *first, const struct sampled_address *end)
{
	struct linux_mapping *area = &mapping->area;
	struct user_code_source source = {
		.code = &self->code,
		.programs = self->programs,
		.area = area,
		.space = self->tables,
		.of = {.process = self->space->process, .address_space = self->address_space},
		.called = name_called,
		.context = self};
	enum dso_outlook outlook;
	struct symbol symbol;
	const struct dso *dso;

	area->name = area->kind == LINUX_MAPPING_SPECIAL ? mapping->name
							 : dsos_path(&self->dsos, &area->file);
	dso = dsos_get(&self->dsos, self->programs, &self->user, area, &outlook);
	if (dso && dso->readable &&
	    elf_image_bias(&dso->symbols.image, area->start, area->offset, true, &source.bias))
		source.image = &dso->symbols.image;
	if (source.image || (dso && dso->owner))
		source.symbols = &dso->symbols.symbols;
	if (dso || outlook == DSO_FINAL)
		add_mapping(self, mapping, source.image, source.bias);
	for (struct sampled_address *sampled = first; sampled < end; sampled++) {
		if (!is_due(self, sampled, SAMPLED_LOCATED))
			continue;
		if (source.symbols &&
		    symbol_table_find(source.symbols, sampled->address - source.bias, &symbol)) {
			sampled->state = SAMPLED_DONE;
			vector_append(&self->space->named, &sampled->address, 1);
			add_function(self, &symbol, source.bias);
			if (sampled->leaf)
				user_code_copy(&source, &symbol);
			continue;
		}
		miss(self, sampled, outlook);
		/* Code without functions, as a stripped program's or what a program generated. */
		if (sampled->leaf && area->executable && outlook != DSO_SOON)
			user_code_copy_window(&source, sampled->address);
	}
	flush_symbols(self);
	area->name = "";
}

/* Pending addresses whose mapping the snapshot has. */
static void locate_addresses(struct user_look *self, bool exists, bool complete)
{
	struct user_space *space = self->space;
	uint64_t until = space->snapshot.taken_ns + SNAPSHOT_HOLDS_NS;

	if (space->ended_ns && space->ended_ns < until)
		until = space->ended_ns;
	for (size_t i = 0; i < space->waiting.count; i++) {
		struct sampled_address *sampled = &space->waiting.items[i];
		struct mapping *mapping = mapping_snapshot_find(&space->snapshot, sampled->address);

		if (!is_due(self, sampled, SAMPLED_PENDING))
			continue;
		if (mapping && (exists || sampled->latest_ns <= until)) {
			sampled->state = SAMPLED_LOCATED;
			sampled->misses = 0;
			mapping->sampled = true;
		} else if (exists && complete) {
			miss(self, sampled, DSO_LATER);
		} else if (exists) {
			sampled->next_ns = self->now_ns + NO_NAME_NS;
		} else if (space->current && ++sampled->misses < NOT_FOUND_TRIES) {
			sampled->next_ns = self->now_ns + NOT_FOUND_NS;
		} else {
			sampled->state = SAMPLED_DONE;
		}
	}
}

static void name_located(struct user_look *self)
{
	struct user_space *space = self->space;
	struct sampled_address *end = space->waiting.items + space->waiting.count, *next;

	for (struct sampled_address *at = space->waiting.items; at < end; at = next) {
		struct mapping *mapping = mapping_snapshot_find(&space->snapshot, at->address);
		bool due = false;

		for (next = at;
		     next == at || (mapping && next < end && next->address < mapping->area.end);
		     next++)
			due = due || is_due(self, next, SAMPLED_LOCATED);
		if (due && mapping)
			name_addresses(self, mapping, at, next);
		else if (due)
			at->state = SAMPLED_DONE; /* unmapped meanwhile */
	}
}

/* mmap events. */

static bool see_mapping(void *context, const struct linux_mapping *seen)
{
	struct user_look *self = context;
	struct user_space *space = self->space;
	struct linux_mapping area = *seen;
	size_t low = 0, high = space->waiting.count;
	bool sampled;

	if (mapping_snapshot_contradicts(&space->snapshot, seen)) {
		space->replaced = true;
		return false;
	}
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (space->waiting.items[middle].address < seen->start)
			low = middle + 1;
		else
			high = middle;
	}
	sampled = low < space->waiting.count && space->waiting.items[low].address < seen->end;
	if (!seen->executable && !sampled)
		return true;
	dsos_note(&self->dsos, self->programs, self->user.mm, &area);
	mapping_snapshot_add(&self->snapshot, &area, sampled);
	return true;
}

/* Processes. */

static bool see_task(void *context, const struct linux_task *task)
{
	struct user_look *self = context;
	for (size_t i = 0; i < self->count; i++) {
		struct user_space *space = self->spaces[i];

		if (space->process != (uint32_t)task->pid)
			continue;
		if (task->tid == task->pid)
			space->found.start_time = task->start_time;
		/* The first thread may have ended before the others. */
		if (task->mm && !space->task) {
			space->found.mm = task->mm;
			space->found.leader = task->leader;
			space->task = task->address;
		}
	}
	return true;
}

/* Whether the task that was found has the page tables of the samples, and where its stack is. */
static bool verify(const struct user_look *self, uint64_t *stack)
{
	const struct guest_programs *programs = self->programs;
	const struct user_space *space = self->space;
	uint64_t root = space->root & X86_TABLE_ADDRESS, tables, mm;
	struct address_space found;

	if (!space->task ||
	    guest_read_virtual(&programs->files.space, NULL, programs->memory,
			       gva(space->task + programs->tasks.mm), &mm,
			       sizeof(mm)) != TRANSLATE_OK ||
	    mm != space->found.mm || !linux_mappings_space(&programs->mappings, mm, &found) ||
	    !linux_mappings_stack(&programs->mappings, mm, stack))
		return false;
	tables = found.root & X86_TABLE_ADDRESS;
	return root == tables || (programs->tasks.isolated && root == (tables | X86_ISOLATION_BIT));
}

/* Memory is read while the guest runs: the process may have become another meanwhile. */
static bool is_still_there(const struct user_look *self)
{
	uint64_t stack;

	return verify(self, &stack) && stack == self->space->found.stack;
}

static bool is_same_program(const struct user_identity *a, const struct user_identity *b)
{
	return a->mm == b->mm && a->leader == b->leader && a->start_time == b->start_time &&
	       a->stack == b->stack;
}

/* The process of the space as it is now. False: it is not there, or nothing is known of it. */
static bool look_at_process(struct user_look *self, bool *complete)
{
	struct user_space *space = self->space;
	bool pending = false;

	*complete = true;
	if (!space->current || !verify(self, &space->found.stack))
		return false;
	self->user.mm = space->found.mm;
	self->user.leader = space->found.leader;
	if (space->identified && !is_same_program(&space->identity, &space->found)) {
		space->replaced = true;
		return false;
	}
	for (size_t i = 0; i < space->waiting.count; i++)
		pending = pending || is_due(self, &space->waiting.items[i], SAMPLED_PENDING);
	if (pending) {
		*complete = linux_mappings_walk(&self->programs->mappings, self->user.mm,
						see_mapping, self)
				    .complete;
		/* A sample on other page tables meanwhile: this may be a third program, on those of
		 * the first. */
		if (space->replaced || !is_still_there(self) || !space->current)
			return false;
		self->snapshot.taken_ns = self->clock_ns;
		mapping_snapshot_update(&space->snapshot, &self->snapshot);
	}
	space->identity = space->found;
	space->identified = true;
	space->verified_ns = self->clock_ns;
	return true;
}

/* Removes addresses that are done with. */
static void keep_waiting(struct user_space *space)
{
	size_t left = 0;

	space->next_waiting_ns = UINT64_MAX;
	for (size_t i = 0; i < space->waiting.count; i++) {
		const struct sampled_address *sampled = &space->waiting.items[i];

		if (sampled->state == SAMPLED_DONE)
			continue;
		if (sampled->next_ns < space->next_waiting_ns)
			space->next_waiting_ns = sampled->next_ns;
		space->waiting.items[left++] = *sampled;
	}
	space->waiting.count = left;
}

static int compare_addresses(const void *left, const void *right)
{
	const struct sampled_address *a = left, *b = right;

	return a->address < b->address ? -1 : a->address > b->address;
}

static void look_at_space(struct user_look *self, struct user_space *space)
{
	struct address_space tables;
	bool exists, complete;

	self->space = space;
	self->user = (struct dso_user){.space = space->number};
	self->tables = NULL;
	self->address_space = (space->root & X86_TABLE_ADDRESS &
			       ~(self->programs->tasks.isolated ? X86_ISOLATION_BIT : 0)) |
			      (self->programs->tasks.isolated ? FXT_ADDRESS_SPACE_ISOLATED : 0);
	qsort(space->waiting.items, space->waiting.count, sizeof(*space->waiting.items),
	      compare_addresses);
	exists = look_at_process(self, &complete);
	self->snapshot.mappings.count = 0;
	if (space->replaced)
		return;
	if (!exists)
		self->user.mm = self->user.leader = 0;
	if (exists && linux_mappings_space(&self->programs->mappings, self->user.mm, &tables))
		self->tables = &tables;
	locate_addresses(self, exists, complete);
	name_located(self);
	user_code_end(&self->code, !exists || is_still_there(self), &space->words);
	keep_waiting(space);
}

void user_look_at(struct user_look *self, struct user_space *const *spaces, size_t count,
		  uint64_t clock_ns, uint64_t now_ns)
{
	self->clock_ns = clock_ns;
	self->now_ns = now_ns;
	self->spaces = spaces;
	self->count = count;
	dsos_begin(&self->dsos, now_ns);
	for (size_t i = 0; i < count; i++) {
		spaces[i]->task = 0;
		spaces[i]->found = (struct user_identity){0};
	}
	/* A list that changes meanwhile ends early: what was not found is looked for again. */
	linux_task_walk(&self->programs->tasks, self->programs->memory, TASKS_MAX, see_task, self,
			NULL);
	/* Each time from another one on, so that none that is slow stands before the others. */
	self->looks++;
	for (size_t i = 0; i < count && (i == 0 || boot_ns() < self->dsos.deadline); i++)
		look_at_space(self, spaces[(self->looks + i) % count]);
}
