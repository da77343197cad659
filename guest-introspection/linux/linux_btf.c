/* Where a kernel has its BTF. */
#include "guest-introspection/linux/btf.h"

#include <stdlib.h>
#include <string.h>

#define PAGE UINT64_C(4096)
#define SCAN_ATTEMPTS 8

/* Copies and parses the BTF in [start, end), linear addresses. */
static gp_status_t read_range(const struct guest_memory *memory, const struct linux_kernel *kernel,
			      uint64_t start, uint64_t end, struct btf **out, struct error *error)
{
	struct translation_cache cache;
	uint8_t *bytes;

	if (start < kernel->text_base || end > kernel->image_end || start >= end ||
	    end - start > BTF_LIMIT)
		return error_set(error, GP_ERR_NOT_FOUND, "no BTF can be from 0x%llx to 0x%llx",
				 (unsigned long long)start, (unsigned long long)end);
	bytes = malloc(end - start);
	if (!bytes)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory to copy the guest's BTF");
	translation_cache_clear(&cache);
	if (guest_read_virtual(&kernel->space, &cache, memory, gva(start), bytes, end - start) !=
	    TRANSLATE_OK) {
		free(bytes);
		return error_set(error, GP_ERR_NOT_FOUND, "the BTF at 0x%llx cannot be read",
				 (unsigned long long)start);
	}
	return btf_adopt(bytes, end - start, out, error);
}

/* Goes through the image for a BTF header and tries what it finds. */
static gp_status_t scan(const struct guest_memory *memory, const struct linux_kernel *kernel,
			struct btf **out, struct error *error)
{
	static const uint8_t magic[] = {0x9f, 0xeb, 1, 0};
	const size_t kept = BTF_HEADER_SIZE - 1;
	struct translation_cache cache;
	/* The end of the page before, then this page. */
	uint8_t bytes[BTF_HEADER_SIZE + PAGE];
	unsigned attempts = 0;
	bool kept_valid = false;

	translation_cache_clear(&cache);
	for (uint64_t page = kernel->text_base; page < kernel->image_end; page += PAGE) {
		const uint8_t *end = bytes + kept + PAGE;
		const uint8_t *at = kept_valid ? bytes : bytes + kept;

		kept_valid = false;
		if (guest_read_virtual(&kernel->space, &cache, memory, gva(page), bytes + kept,
				       PAGE) != TRANSLATE_OK)
			continue;
		while ((at = memmem(at, (size_t)(end - at), magic, sizeof(magic))) != NULL &&
		       end - at >= BTF_HEADER_SIZE) {
			uint64_t start = page - kept + (uint64_t)(at - bytes);
			size_t size = btf_blob_size(at);
			gp_status_t status;

			at++;
			if (size == 0)
				continue;
			if (++attempts > SCAN_ATTEMPTS)
				return error_set(error, GP_ERR_NOT_FOUND,
						 "too much in the kernel looks like BTF and is "
						 "none");
			status = read_range(memory, kernel, start, start + size, out, NULL);
			if (status == GP_OK)
				return status;
			if (status == GP_ERR_NO_MEMORY)
				return error_set(error, status, "no memory to read BTF");
		}
		memmove(bytes, bytes + PAGE, kept);
		kept_valid = true;
	}
	return error_set(error, GP_ERR_NOT_FOUND,
			 "no BTF in the kernel at 0x%llx: built without CONFIG_DEBUG_INFO_BTF?",
			 (unsigned long long)kernel->text_base);
}

gp_status_t linux_btf_read(const struct guest_memory *memory, const struct linux_kernel *kernel,
			   const struct symbol_table *symbols, struct btf **out,
			   struct error *error)
{
	struct symbol start;
	struct symbol stop;

	if (symbols && symbol_table_find_name(symbols, "__start_BTF", &start) &&
	    symbol_table_find_name(symbols, "__stop_BTF", &stop))
		return read_range(memory, kernel, start.start, stop.start, out, error);
	return scan(memory, kernel, out, error);
}
