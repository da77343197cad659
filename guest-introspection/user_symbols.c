#include "guest-introspection/user_symbols.h"

/* Collects where else in a process one file is mapped. */
struct same_file {
	uint64_t inode;
	struct user_memory *memory;
};

static bool add_piece(void *context, const struct linux_mapping *mapping)
{
	struct same_file *same = context;

	if (mapping->file.inode == same->inode && mapping->kind == LINUX_MAPPING_FILE &&
	    !mapping->writable)
		user_memory_add(same->memory, mapping->start, mapping->end, mapping->offset);
	return true;
}

static gp_status_t read_from(const struct file_source *source, const struct linux_mapping *mapping,
			     struct user_symbols *out, struct error *error)
{
	struct user_symbols symbols = {0};
	gp_status_t status = elf_image_read(source, &symbols.image, error);

	if (status != GP_OK)
		return status;
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

gp_status_t user_symbols_read(const struct linux_mappings *mappings,
			      const struct linux_page_cache *cache, uint64_t mm,
			      const struct linux_mapping *mapping, struct user_symbols *out,
			      struct error *error)
{
	struct linux_cached_file cached;
	struct user_memory memory;
	struct file_layers layers;
	struct address_space space;

	if (mapping->kind == LINUX_MAPPING_SPECIAL) {
		if (strcmp(mapping->name, "[vdso]") != 0 ||
		    !linux_mappings_vdso(mappings, mm, &memory))
			return error_set(error, GP_ERR_NOT_FOUND, "no image is mapped here");
		return read_from(&memory.source, mapping, out, error);
	}
	if (mapping->kind != LINUX_MAPPING_FILE || !mapping->file.inode)
		return error_set(error, GP_ERR_NOT_FOUND, "no file is mapped here");
	linux_cached_file_init(&cached, cache, &mapping->file);
	if (!linux_mappings_space(mappings, mm, &space))
		return read_from(&cached.source, mapping, out, error);
	user_memory_init(&memory, cache->memory, &space);
	linux_mappings_walk(mappings, mm, add_piece,
			    &(struct same_file){.inode = mapping->file.inode, .memory = &memory});
	layers = file_layers_of(&cached.source, &memory.source);
	return read_from(&layers.source, mapping, out, error);
}

void user_symbols_deinit(struct user_symbols *symbols)
{
	symbol_table_deinit(&symbols->symbols);
}
