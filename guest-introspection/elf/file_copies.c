#include "guest-introspection/elf/file_copies.h"

#include "guest-introspection/elf/elf_sections.h"

#define PAGE_SIZE 4096u
/* A file without a build id is compared up to here: behind it are debugging information and symbols
 * of the largest. */
#define COMPARED_LIMIT (UINT64_C(64) << 20)
/* And so much of it has to be there to be compared. */
#define COMPARED_PAGES 4u

static bool has_size(const struct file_source *source, uint64_t size)
{
	uint8_t byte;

	return size > 0 && file_source_read(source, size - 1, &byte, 1) == 1 &&
	       file_source_read(source, size, &byte, 1) == 0;
}

/* Whether every byte that the guest has available is the copy's. */
static bool has_same_bytes(const struct file_source *guest, const struct file_source *copy,
			   uint64_t size)
{
	uint64_t end = size < COMPARED_LIMIT ? size : COMPARED_LIMIT;
	uint64_t pages = (size + PAGE_SIZE - 1) / PAGE_SIZE;
	uint64_t same = 0;

	for (uint64_t at = 0; at < end; at += PAGE_SIZE) {
		uint8_t theirs[PAGE_SIZE];
		uint8_t ours[PAGE_SIZE];
		size_t wanted = end - at < PAGE_SIZE ? (size_t)(end - at) : PAGE_SIZE;
		size_t got = file_source_read(guest, at, theirs, wanted);

		if (got == 0)
			continue;
		if (file_source_read(copy, at, ours, got) != got || memcmp(theirs, ours, got) != 0)
			return false;
		same++;
	}
	return same >= (pages < COMPARED_PAGES ? pages : COMPARED_PAGES);
}

static bool matches(const struct file_copy_wanted *wanted, const struct file_source *guest,
		    const struct file_source *copy, const struct elf_image *image)
{
	struct elf_contents contents = elf_contents_read(copy, image);

	if (wanted->code && contents.without_code)
		return false;
	if (wanted->build_id_size)
		return image->build_id_size == wanted->build_id_size &&
		       memcmp(image->build_id, wanted->build_id, image->build_id_size) == 0;
	return !contents.without_code && has_size(copy, wanted->size) &&
	       has_same_bytes(guest, copy, wanted->size);
}

enum file_copy_result file_copies_open(struct file_copies *copies,
				       const struct file_copy_wanted *wanted,
				       const struct file_source *guest,
				       const struct file_source **out, struct elf_image *image)
{
	const struct file_source *copy;
	struct elf_image found;
	enum file_copy_result result;

	/* Nothing to know it by. */
	if (!copies || (!wanted->build_id_size && (!wanted->size || wanted->whole)))
		return FILE_COPY_NONE;
	result = copies->find(copies, wanted, &copy);
	if (result != FILE_COPY_FOUND)
		return result;
	if (elf_image_read(copy, &found, NULL) != GP_OK || !matches(wanted, guest, copy, &found)) {
		copies->release(copies, copy);
		return FILE_COPY_NONE;
	}
	*image = found;
	*out = copy;
	return FILE_COPY_FOUND;
}
