#include "naming/leaf_code.h"

#include "base/clock.h"
#include "naming/code_copy.h"

#include <stdlib.h>

/* A stopped address. */
struct leaf {
	uint64_t address; /* key */
	uint64_t root;    /* page tables of its first sample */
	uint8_t kind;     /* enum address_kind */
	uint8_t addressing;
	bool user;
	bool done;
};

struct function {
	uint64_t start; /* key: as its symbol says */
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

	struct hash_table leaves;
	size_t looked;  /* of `leaves`, from the first: had no name at the last look */
	size_t waiting; /* of `leaves`: without a name yet */
	struct hash_table functions;
	uint64_t unwanted; /* functions that had no room */
	size_t windows;

	const struct function *reading;
	struct translation_cache translations;
	struct code_copier copier;
};

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
	hash_table_init(&self->leaves, sizeof(uint64_t), sizeof(struct leaf));
	hash_table_init(&self->functions, sizeof(uint64_t), sizeof(struct function));
	self->copier.written_max = LEAF_CODE_BYTES_MAX;
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
	hash_table_deinit(&self->leaves);
	hash_table_deinit(&self->functions);
	free(self);
}

void leaf_code_see(struct leaf_code *self, const struct fxt_sample *sample)
{
	bool user = sample->mode == FXT_MODE_GUEST_USER;
	size_t before = self->leaves.count;
	uint32_t number;

	/* What a vCPU that works for a device stands at is code as any other. */
	if (!(sample->flags & FXT_SAMPLE_STACK) || !sample->depth || !sample->stack[0] ||
	    sample->mode == FXT_MODE_HALTED || sample->mode == FXT_MODE_NOT_STARTED ||
	    self->waiting >= LEAF_CODE_WAITING_MAX || before >= LEAF_CODE_LEAVES_MAX ||
	    !hash_table_add(&self->leaves, sample->stack, &number) || self->leaves.count == before)
		return;
	self->waiting++;
	((struct leaf *)self->leaves.entries)[number] = (struct leaf){
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
	const struct linux_guest *guest = self->namer->config.guest;

	*function = (struct function){
		.start = symbol->start, .size = symbol->size, .linear = symbol->start};
	if (symbol->kind == FXT_SYMBOL_FILE) {
		/* Tables of a Linux process may be another's by now. */
		if (!guest->missing.kernel.status &&
		    (leaf->user || leaf->address < GUEST_KERNEL_HALF))
			return false;
		return space_of(leaf, &function->space);
	}
	if (symbol->kind == FXT_SYMBOL_BOOT)
		function->linear += guest->kernel.text_base - guest->kernel_physical;
	function->kernel_space = true;
	function->space = guest->kernel.space;
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
	uint32_t number;

	if (!namer_find(self->namer, (enum address_kind)leaf->kind, leaf->address, &symbol))
		return false;
	if (symbol.name_bytes && symbol.name[0] == '[') {
		copy_window(self, leaf);
		return true;
	}
	if (!locate(self, leaf, &symbol, &function))
		return true;
	if (hash_table_find(&self->functions, &function.start))
		return true;
	if (self->functions.count == LEAF_CODE_FUNCTIONS_MAX ||
	    !hash_table_add(&self->functions, &function.start, &number)) {
		self->unwanted++;
		return true;
	}
	copy_function(self, &function);
	((struct function *)self->functions.entries)[number] = function;
	return true;
}

void leaf_code_copy(struct leaf_code *self, bool again)
{
	struct leaf *leaves = self->leaves.entries;
	size_t at = again ? 0 : self->looked;

	if (at == self->leaves.count || !self->waiting)
		return;
	/* Symbols lie in tables that the lock holds for. */
	linux_guest_lock(self->namer->config.guest);
	for (; at < self->leaves.count; at++)
		if (!leaves[at].done && copy_leaf(self, &leaves[at])) {
			leaves[at].done = true;
			self->waiting--;
		}
	linux_guest_unlock(self->namer->config.guest);
	self->looked = self->leaves.count;
}

void leaf_code_finish(struct leaf_code *self, struct code_totals *totals)
{
	struct function *functions;

	leaf_code_copy(self, true);
	*totals = (struct code_totals){.left_out = self->unwanted};
	functions = self->functions.entries;
	for (size_t i = 0; i < self->functions.count; i++) {
		struct function *function = &functions[i];

		if (function->kernel_space) {
			linux_guest_lock(self->namer->config.guest);
			function->space = self->namer->config.guest->kernel.space;
			linux_guest_unlock(self->namer->config.guest);
		}
		copy_function(self, function);
		totals->changed += function->changed;
		totals->functions += function->hash != 0;
		totals->left_out += !function->hash;
	}
	totals->bytes = self->copier.written;
}
