#include "naming/user_code.h"

#include "base/clock.h"
#include "sampler/session.h"

void user_code_deinit(struct user_code *self)
{
	address_set_deinit(&self->known);
}

static bool read_page(void *context, uint64_t address, void *buffer, size_t size)
{
	const struct user_code_source *source = context;
	uint64_t offset;

	if (source->has_space && guest_read_virtual(&source->space, NULL, source->memory,
						    gva(address), buffer, size) == TRANSLATE_OK)
		return true;
	/* Code that a program made is in no image. */
	return source->has_file && source->image &&
	       elf_image_offset(source->image, address - source->bias, &offset) &&
	       file_source_read(&source->file.source, offset, buffer, size) == size;
}

static bool write_record(void *context, const uint64_t *words, size_t count)
{
	struct user_code_source *source = context;
	uint64_t size = (count - FXT_CODE_OVERHEAD_WORDS) * sizeof(*words);

	if (size > USER_CODE_BYTES_MAX - source->code->totals.bytes)
		return false;
	if (!user_words_add(source->words, words, count)) {
		source->failed = true;
		return false;
	}
	source->code->totals.bytes += size;
	return true;
}

static void see_target(void *context, uint64_t address)
{
	const struct user_code_source *source = context;

	source->called(source->context, address - source->bias);
}

void user_code_open(struct user_code *self, const struct guest_programs *programs, uint64_t mm,
		    const struct linux_mapping *mapping, struct user_code_source *source)
{
	*source = (struct user_code_source){.memory = programs->memory, .code = self};
	source->has_space = mm && linux_mappings_space(&programs->mappings, mm, &source->space);
	source->has_file = mapping->kind == LINUX_MAPPING_FILE;
	if (source->has_file)
		linux_cached_file_init(&source->file, &programs->cache, &mapping->file);
}

/* 0 is no member of a set. */
static uint64_t make_key(uint64_t owner, uint64_t start)
{
	return ((owner ^ start) * UINT64_C(0x9e3779b97f4a7c15)) | 1;
}

static uint64_t copy(struct user_code_source *source, uint64_t key, uint64_t address, uint64_t size,
		     uint64_t counts)
{
	struct user_code *self = source->code;
	size_t place;

	if (!address_set_place(&self->known, key, &place) || self->known.marks[place])
		return 0;
	self->copier.read = read_page;
	self->copier.write = write_record;
	self->copier.target = see_target;
	self->copier.context = source;
	if (code_copy(&self->copier, &source->of, boot_ns(), address, size, address, 0).bytes) {
		self->totals.functions += counts;
		return key;
	}
	if (!source->failed) {
		self->known.marks[place] = 1;
		self->totals.left_out += counts;
	}
	return 0;
}

uint64_t user_code_copy(struct user_code_source *source, const struct symbol *symbol)
{
	return copy(source, make_key(source->file_identity, symbol->start),
		    symbol->start + source->bias, symbol->size, 1);
}

uint64_t user_code_copy_window(struct user_code_source *source, uint64_t address)
{
	/* What a program made is its own, and goes with it. */
	uint64_t owner = source->file_identity;
	uint64_t start = address - source->bias;

	if (!source->has_file)
		owner += source->of.process * UINT64_C(0xff51afd7ed558ccd) +
			 source->of.address_space;
	/* Functions of the same file begin at these addresses, too. */
	return copy(source, make_key(~owner, start), address, CODE_WINDOW_BYTES, 0);
}

void user_code_keep(struct user_code *self, uint64_t key)
{
	size_t place;

	if (address_set_place(&self->known, key, &place))
		self->known.marks[place] = 1;
}
