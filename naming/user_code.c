#include "naming/user_code.h"

#include "base/clock.h"
#include "naming/mapping_snapshot.h"

struct known_code {
	uint64_t key;
	uint64_t done;
};

void user_code_deinit(struct user_code *self)
{
	hash_table_deinit(&self->known);
	vector_deinit(&self->records);
	vector_deinit(&self->keys);
}

static bool read_page(void *context, uint64_t address, void *buffer, size_t size)
{
	const struct user_code_source *source = context;
	struct linux_cached_file file;
	uint64_t offset;

	if (source->space && guest_read_virtual(source->space, NULL, source->programs->memory,
						gva(address), buffer, size) == TRANSLATE_OK)
		return true;
	/* Code that a program generated is in no image. */
	if (source->area->kind != LINUX_MAPPING_FILE || !source->image ||
	    !elf_image_offset(source->image, address - source->bias, &offset))
		return false;
	linux_cached_file_init(&file, &source->programs->cache, &source->area->file);
	return file_source_read(&file.source, offset, buffer, size) == size;
}

static bool write_record(void *context, const uint64_t *words, size_t count)
{
	struct user_code_source *source = context;

	return vector_append(&source->code->records, words, count);
}

static void see_target(void *context, uint64_t address)
{
	const struct user_code_source *source = context;

	struct symbol symbol;

	if (source->symbols &&
	    symbol_table_find(source->symbols, address - source->bias, &symbol) &&
	    symbol.start == address - source->bias)
		source->called(source->context, &symbol, source->bias);
}

static void copy(struct user_code_source *source, uint64_t owner, uint64_t start, uint64_t size,
		 bool function)
{
	struct user_code *self = source->code;
	uint64_t key = (owner ^ start) * UINT64_C(0x9e3779b97f4a7c15);
	uint64_t address = start + source->bias;
	struct known_code *known;
	uint32_t number;

	if (!self->known.key_bytes)
		hash_table_init(&self->known, sizeof(key), sizeof(*known));
	if (!hash_table_add(&self->known, &key, &number))
		return;
	known = (struct known_code *)self->known.entries + number;
	if (known->done || !vector_append(&self->keys, &(uint64_t){number}, 1))
		return;
	known->done = true;
	self->copier.written = self->totals.bytes;
	self->copier.written_max = USER_CODE_BYTES_MAX;
	self->copier.read = read_page;
	self->copier.write = write_record;
	self->copier.target = see_target;
	self->copier.context = source;
	if (code_copy(&self->copier, &source->of, boot_ns(), address, size, address, 0).bytes)
		self->totals.functions += function;
	else
		self->totals.left_out += function;
	self->totals.bytes = self->copier.written;
}

void user_code_copy(struct user_code_source *source, const struct symbol *symbol)
{
	copy(source, mapping_file_identity(source->area), symbol->start, symbol->size, true);
}

void user_code_copy_window(struct user_code_source *source, uint64_t address)
{
	uint64_t owner = mapping_file_identity(source->area);

	/* What a program generated is its own, and goes with it. */
	if (source->area->kind != LINUX_MAPPING_FILE)
		owner += source->of.process * UINT64_C(0xff51afd7ed558ccd) +
			 source->of.address_space;
	/* Functions of the same file begin at these addresses, too. */
	copy(source, ~owner, address - source->bias, CODE_WINDOW_BYTES, false);
}

void user_code_end(struct user_code *self, bool good, struct word_vector *words)
{
	good = good && vector_append(words, self->records.items, self->records.count);
	for (size_t i = 0; !good && i < self->keys.count; i++)
		((struct known_code *)self->known.entries)[self->keys.items[i]].done = false;
	if (!good)
		self->totals = self->totals_before;
	self->totals_before = self->totals;
	self->records.count = self->keys.count = 0;
}
