#include "guest-introspection/linux/user_symbols.h"

#include "guest-introspection/elf/elf_sections.h"

static gp_status_t read_image(const struct file_source *source, const struct linux_mapping *mapping,
			      const struct elf_image *image, struct user_symbols *out,
			      struct error *error)
{
	struct user_symbols symbols = {.image = *image};
	gp_status_t status;

	if (!elf_image_bias(&symbols.image, mapping->start, mapping->offset, mapping->executable,
			    &symbols.bias))
		return error_set(error, GP_ERR_IO_DATA_INTEGRITY,
				 "no segment of the file is mapped at %#llx",
				 (unsigned long long)mapping->start);
	status = elf_symbols_read(source, &symbols.image, symbols.bias, &symbols.symbols,
				  &symbols.result, error);
	if (status != GP_OK && status != GP_ERR_NOT_FOUND)
		return status;
	*out = symbols;
	return GP_OK;
}

static gp_status_t read_from(const struct file_source *source, const struct linux_mapping *mapping,
			     struct user_symbols *out, struct error *error)
{
	struct elf_image image;
	gp_status_t status = elf_image_read(source, &image, error);

	return status != GP_OK ? status : read_image(source, mapping, &image, out, error);
}

/* What a file of debugging information does not have: dynamic symbols and linkage tables. */
static void add_symbols(struct user_symbols *to, const struct user_symbols *from)
{
	for (size_t i = 0; i < from->symbols.count; i++) {
		struct symbol symbol = symbol_table_get(&from->symbols, i);

		if (symbol_table_add(&to->symbols, symbol.start, symbol.size, symbol.kind,
				     symbol.name, strlen(symbol.name)) != GP_OK)
			break;
	}
	symbol_table_finish(&to->symbols);
}

/* The symbols of `copy` in place of those in `symbols`, if they are better. */
static void read_copy(const struct file_source *copy, struct elf_image *image,
		      const struct linux_mapping *mapping, bool known, struct user_symbols *symbols)
{
	bool without_code = elf_contents_read(copy, image).without_code;
	struct user_symbols better;

	/* Its program headers still tell where in the file that was. */
	if (without_code)
		image->dynamic = image->exception_frames = (struct elf_part){0};
	/* Where the file is mapped is what the guest's says: objcopy empties segments. */
	if (without_code && known) {
		memcpy(image->segments, symbols->image.segments, sizeof(image->segments));
		image->segment_count = symbols->image.segment_count;
	}
	if (read_image(copy, mapping, image, &better, NULL) != GP_OK)
		return;
	if (!better.result.full && better.symbols.count <= symbols->symbols.count) {
		user_symbols_deinit(&better);
		return;
	}
	if (without_code && known) {
		add_symbols(&better, symbols);
		better.image = symbols->image;
	}
	symbol_table_deinit(&symbols->symbols);
	better.copied = true;
	*symbols = better;
}

/* What of the file that is mapped is not in the guest's memory. True: symbols of a copy. */
static bool ask(struct file_copies *copies, const struct file_source *guest,
		const struct linux_mapping *mapping, bool known, struct user_symbols *symbols)
{
	struct file_copy_wanted wanted = {
		.path = mapping->name, .size = mapping->file.size, .whole = symbols->whole};
	const struct file_source *copy;
	struct elf_image image;

	if (known) {
		wanted.build_id_size = symbols->image.build_id_size;
		memcpy(wanted.build_id, symbols->image.build_id, sizeof(wanted.build_id));
	}
	symbols->later = false;
	switch (file_copies_open(copies, &wanted, guest, &copy, &image)) {
	case FILE_COPY_NONE:
		return false;
	case FILE_COPY_LATER:
		symbols->later = true;
		return false;
	case FILE_COPY_FOUND:
		read_copy(copy, &image, mapping, known, symbols);
		copies->release(copies, copy);
	}
	return symbols->copied;
}

static void look_elsewhere(struct file_copies *copies, const struct file_source *guest,
			   const struct linux_mapping *mapping, gp_status_t *status,
			   struct user_symbols *symbols)
{
	bool known = *status == GP_OK;

	if (known && symbols->result.full && !symbols->result.missing)
		return;
	if (known)
		symbols->whole =
			!symbols->result.missing && elf_contents_read(guest, &symbols->image).known;
	else
		*symbols = (struct user_symbols){0};
	if (ask(copies, guest, mapping, known, symbols))
		*status = GP_OK;
}

void user_symbols_read_copy(const struct linux_mapping *mapping, struct file_copies *copies,
			    struct user_symbols *symbols)
{
	if (symbols->image.build_id_size)
		ask(copies, NULL, mapping, true, symbols);
	else
		symbols->later = false;
}

gp_status_t user_symbols_read(const struct linux_mappings *mappings,
			      const struct linux_page_cache *cache, uint64_t mm,
			      const struct linux_mapping *mapping, struct file_copies *copies,
			      struct user_symbols *out, struct error *error)
{
	struct linux_cached_file cached;
	struct user_memory memory;
	struct file_layers layers;
	struct user_symbols symbols = {0};
	const struct file_source *source = &cached.source;
	struct address_space space;
	gp_status_t status;

	if (mapping->kind == LINUX_MAPPING_SPECIAL) {
		if (strcmp(mapping->name, "[vdso]") != 0 ||
		    !linux_mappings_vdso(mappings, mm, &memory))
			return error_set(error, GP_ERR_NOT_FOUND, "no image is mapped here");
		return read_from(&memory.source, mapping, out, error);
	}
	if (mapping->kind != LINUX_MAPPING_FILE || !mapping->file.inode)
		return error_set(error, GP_ERR_NOT_FOUND, "no file is mapped here");
	linux_cached_file_init(&cached, cache, &mapping->file);
	if (linux_mappings_space(mappings, mm, &space)) {
		linux_mappings_file(mappings, mm, &space, mapping->file.inode, &memory);
		layers = file_layers_of(&cached.source, &memory.source);
		source = &layers.source;
	}
	status = read_from(source, mapping, &symbols, error);
	if (status == GP_OK || status == GP_ERR_NOT_FOUND)
		look_elsewhere(copies, source, mapping, &status, &symbols);
	if (status == GP_OK || symbols.later)
		*out = symbols;
	return status;
}

void user_symbols_deinit(struct user_symbols *symbols)
{
	symbol_table_deinit(&symbols->symbols);
}
