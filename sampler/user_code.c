#include "sampler/user_code.h"

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

uint64_t user_code_copy(struct user_code_source *source, const struct symbol *symbol)
{
	struct user_code *self = source->code;
	uint64_t address = symbol->start + source->bias;
	/* 0 is no member of a set. */
	uint64_t key = ((source->file_identity ^ symbol->start) * UINT64_C(0x9e3779b97f4a7c15)) | 1;
	size_t place;

	if (!address_set_place(&self->known, key, &place) || self->known.marks[place])
		return 0;
	self->copier.read = read_page;
	self->copier.write = write_record;
	self->copier.target = see_target;
	self->copier.context = source;
	if (code_copy(&self->copier, &source->of, boot_time_ns(), address, symbol->size, address, 0)
		    .bytes) {
		self->totals.functions++;
		return key;
	}
	if (!source->failed) {
		self->known.marks[place] = 1;
		self->totals.left_out++;
	}
	return 0;
}

void user_code_keep(struct user_code *self, uint64_t key)
{
	size_t place;

	if (address_set_place(&self->known, key, &place))
		self->known.marks[place] = 1;
}
