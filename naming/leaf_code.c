#include "naming/leaf_code.h"

#include "base/clock.h"
#include "naming/code_copy.h"

#include <stdlib.h>

/* A stopped address without a name yet. */
struct leaf {
	uint64_t address;
	uint64_t root; /* page tables of its first sample */
	uint8_t kind;  /* enum address_kind */
	uint8_t addressing;
	bool user;
};

struct function {
	uint64_t start; /* as its symbol says */
	uint64_t size;
	uint64_t linear;   /* where it is read, in `space` */
	uint64_t hash;     /* of what is in the trace; 0: nothing is */
	bool kernel_space; /* the kernel's own page tables, which may change until the end */
	bool changed;
	struct address_space space;
};

struct leaf_code {
	struct namer *namer;
	const struct guest_memory *memory;
	void (*write)(void *context, const uint64_t *words, size_t count);
	void *context;

	struct address_set seen;
	struct leaf *waiting;
	size_t waiting_count;
	size_t waiting_capacity;
	size_t looked; /* of `waiting`, from the first: had no name at the last look */

	struct address_set known; /* starts of `functions` */
	struct function *functions;
	size_t function_count;
	size_t function_capacity;
	uint64_t unwanted; /* functions that had no room */
	size_t windows;
	uint64_t bytes;

	const struct function *reading;
	struct translation_cache translations;
	struct code_copier copier;
};

/* Room for one more in an array. False: no memory, or `most` are there. */
static bool make_room(void **array, size_t *capacity, size_t count, size_t most, size_t size)
{
	size_t larger = *capacity ? *capacity * 2 : 256;
	void *grown;

	if (count < *capacity)
		return true;
	if (count >= most)
		return false;
	grown = realloc(*array, larger * size);
	if (!grown)
		return false;
	*array = grown;
	*capacity = larger;
	return true;
}

/* A page that the guest may not execute (any more) holds no code: kernels free what they needed
 * for their start only, and Linux takes this right away first (arch/x86/mm/init.c:
 * free_init_pages()). */
static bool read_page(void *context, uint64_t address, void *buffer, size_t size)
{
	struct leaf_code *self = context;
	struct translation translation;

	if (guest_translate_cached(&self->reading->space, &self->translations, self->memory,
				   gva(address), &translation) != TRANSLATE_OK ||
	    (self->reading->kernel_space && !translation.executable))
		return false;
	return guest_memory_read(self->memory, translation.gpa, buffer, size);
}

static bool write_record(void *context, const uint64_t *words, size_t count)
{
	struct leaf_code *self = context;
	uint64_t size = (count - FXT_CODE_OVERHEAD_WORDS) * sizeof(*words);

	if (size > LEAF_CODE_BYTES_MAX - self->bytes)
		return false;
	self->bytes += size;
	self->write(self->context, words, count);
	return true;
}

static void see_target(void *context, uint64_t address)
{
	struct leaf_code *self = context;
	const struct function *function = self->reading;

	/* Startup code has its names at other addresses. */
	if (function->linear == function->start &&
	    (address < function->start || address - function->start >= function->size))
		namer_see_called(self->namer, address);
}

struct leaf_code *
leaf_code_create(struct namer *namer, const struct guest_memory *memory,
		 void (*write)(void *context, const uint64_t *words, size_t count), void *context)
{
	struct leaf_code *self = calloc(1, sizeof(*self));

	if (!self)
		return NULL;
	self->namer = namer;
	self->memory = memory;
	self->write = write;
	self->context = context;
	self->copier.read = read_page;
	self->copier.write = write_record;
	self->copier.target = see_target;
	self->copier.context = self;
	return self;
}

void leaf_code_destroy(struct leaf_code *self)
{
	if (!self)
		return;
	address_set_deinit(&self->seen);
	address_set_deinit(&self->known);
	free(self->waiting);
	free(self->functions);
	free(self);
}

void leaf_code_see(struct leaf_code *self, const struct fxt_sample *sample)
{
	bool user = sample->mode == FXT_MODE_GUEST_USER;
	size_t place, before = self->seen.count;

	/* What a vCPU that works for a device stands at is code as any other. */
	if (!(sample->flags & FXT_SAMPLE_STACK) || !sample->depth || !sample->stack[0] ||
	    sample->mode == FXT_MODE_HALTED || sample->mode == FXT_MODE_NOT_STARTED)
		return;
	if (!make_room((void **)&self->waiting, &self->waiting_capacity, self->waiting_count,
		       LEAF_CODE_WAITING_MAX, sizeof(*self->waiting)) ||
	    !address_set_place(&self->seen, sample->stack[0], &place) || self->seen.count == before)
		return;
	self->waiting[self->waiting_count++] = (struct leaf){
		.address = sample->stack[0],
		.root = sample->address_space,
		.kind = (uint8_t)namer_address_kind(user, sample->stack[0]),
		.addressing = (uint8_t)sample->addressing,
		.user = user,
	};
}

/* Where and how a sample's addresses are read. */
static bool space_of(const struct leaf *leaf, struct address_space *space)
{
	static const struct {
		bool known;
		enum addressing_mode mode;
	} modes[] = {
		[FXT_ADDRESSING_REAL] = {true, ADDRESSING_REAL},
		[FXT_ADDRESSING_PROTECTED_UNPAGED] = {true, ADDRESSING_PROTECTED},
		[FXT_ADDRESSING_PAGED_32] = {true, ADDRESSING_32_BIT},
		[FXT_ADDRESSING_PAE] = {true, ADDRESSING_PAE},
		[FXT_ADDRESSING_LONG_4] = {true, ADDRESSING_4_LEVEL},
		[FXT_ADDRESSING_LONG_5] = {true, ADDRESSING_5_LEVEL},
		[FXT_ADDRESSING_COMPATIBILITY_4] = {true, ADDRESSING_4_LEVEL},
		[FXT_ADDRESSING_COMPATIBILITY_5] = {true, ADDRESSING_5_LEVEL},
	};

	if (leaf->addressing >= sizeof(modes) / sizeof(modes[0]) || !modes[leaf->addressing].known)
		return false;
	*space = address_space_at(leaf->root, modes[leaf->addressing].mode);
	return true;
}

/* Where the code of a named leaf is to be read. False: it is not known, or not ours. */
static bool locate(const struct leaf_code *self, const struct leaf *leaf,
		   const struct fxt_symbol *symbol, struct function *function)
{
	const struct linux_guest *view = self->namer->config.view;

	*function = (struct function){
		.start = symbol->start, .size = symbol->size, .linear = symbol->start};
	if (symbol->kind == FXT_SYMBOL_FILE) {
		/* Tables of a Linux process may be another's by now. */
		if (view->kernel_found && (leaf->user || leaf->address < GUEST_KERNEL_HALF))
			return false;
		return space_of(leaf, &function->space);
	}
	if (symbol->kind == FXT_SYMBOL_BOOT)
		function->linear += view->kernel.text_base - view->kernel_physical;
	function->kernel_space = true;
	function->space = view->kernel.space;
	return true;
}

static void copy_function(struct leaf_code *self, struct function *function)
{
	const struct fxt_process_symbols nobody = {0};
	struct code_copied copied;

	translation_cache_clear(&self->translations);
	self->reading = function;
	copied = code_copy(&self->copier, &nobody, boot_ns(), function->linear, function->size,
			   function->start, function->hash);
	if (!copied.bytes)
		return;
	function->changed = function->hash && function->hash != copied.hash;
	function->hash = copied.hash;
}

/* "[kernel startup]" is megabytes that unpack themselves over each other: what is there now is
 * the sample's code, what is there later is not. */
static void copy_window(struct leaf_code *self, const struct leaf *leaf)
{
	struct function window = {
		.start = leaf->address, .size = CODE_WINDOW_BYTES, .linear = leaf->address};

	if (self->windows == LEAF_CODE_WINDOWS_MAX || !space_of(leaf, &window.space))
		return;
	self->windows++;
	copy_function(self, &window);
}

/* True: the leaf has a name, and nothing is left to do for it. */
static bool copy_leaf(struct leaf_code *self, const struct leaf *leaf)
{
	struct function function;
	struct fxt_symbol symbol;
	size_t place, before;

	if (!namer_find(self->namer, (enum address_kind)leaf->kind, leaf->address, &symbol))
		return false;
	if (symbol.name_bytes && symbol.name[0] == '[') {
		copy_window(self, leaf);
		return true;
	}
	if (!locate(self, leaf, &symbol, &function))
		return true;
	before = self->known.count;
	if (address_set_place(&self->known, function.start, &place) && self->known.count == before)
		return true;
	if (!make_room((void **)&self->functions, &self->function_capacity, self->function_count,
		       LEAF_CODE_FUNCTIONS_MAX, sizeof(*self->functions))) {
		self->unwanted++;
		return true;
	}
	copy_function(self, &function);
	self->functions[self->function_count++] = function;
	return true;
}

void leaf_code_copy(struct leaf_code *self, bool again)
{
	size_t at = again ? 0 : self->looked, kept = at;

	if (at == self->waiting_count)
		return;
	/* Symbols lie in the view's tables. */
	linux_guest_lock(self->namer->config.view);
	for (; at < self->waiting_count; at++)
		if (!copy_leaf(self, &self->waiting[at]))
			self->waiting[kept++] = self->waiting[at];
	linux_guest_unlock(self->namer->config.view);
	self->looked = self->waiting_count = kept;
}

void leaf_code_finish(struct leaf_code *self, struct leaf_code_totals *totals)
{
	leaf_code_copy(self, true);
	*totals = (struct leaf_code_totals){.left_out = self->unwanted};
	for (size_t i = 0; i < self->function_count; i++) {
		struct function *function = &self->functions[i];

		if (function->kernel_space) {
			linux_guest_lock(self->namer->config.view);
			function->space = self->namer->config.view->kernel.space;
			linux_guest_unlock(self->namer->config.view);
		}
		copy_function(self, function);
		totals->changed += function->changed;
		totals->functions += function->hash != 0;
		totals->left_out += !function->hash;
	}
	totals->bytes = self->bytes;
}
