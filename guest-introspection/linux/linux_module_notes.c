#include "guest-introspection/linux/linux_module_notes.h"

#include "base/cursor.h"
#include "guest-introspection/linux/linux_layout.h"

#include <elf.h>

#define ATTRIBUTES_MAX 16u /* sections of notes; modules have one to three */
#define NOTES_MAX 1024u    /* bytes of one that are looked at */

gp_status_t linux_module_notes_init(const struct btf *btf, struct linux_module_notes *out,
				    struct error *error)
{
#define FIELD(name) offsetof(struct linux_module_notes, name)
	/* include/linux/module.h, kernel/module/sysfs.c, include/linux/sysfs.h */
	static const struct linux_member members[] = {
		{"module", "notes_attrs", 8, false, FIELD(notes)},
		{"module_notes_attrs", "notes", 4, true, FIELD(count)},
		{"module_notes_attrs", "attrs", 0, false, FIELD(attributes)},
		{"module_notes_attrs", "grp.bin_attrs", 8, true, FIELD(list)},
		{"bin_attribute", "size", 8, false, FIELD(size)},
		{"bin_attribute", "private", 8, false, FIELD(contents)},
	};
#undef FIELD
	struct linux_module_notes notes = {0};
	gp_status_t status = linux_layout_read(btf, members, sizeof(members) / sizeof(members[0]),
					       &notes, error);

	if (status)
		return status;
	if (notes.count == LINUX_MEMBER_MISSING && notes.list == LINUX_MEMBER_MISSING)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "this kernel does not say how many notes a module has");
	if (!btf_find_size(btf, "bin_attribute", &notes.attribute_bytes) || !notes.attribute_bytes)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "this kernel has no struct bin_attribute");
	*out = notes;
	return GP_OK;
}

/* A section of notes: ELF specification, "Note Section". */
static unsigned find_build_id(const void *bytes, size_t size,
			      uint8_t build_id[LINUX_MODULE_BUILD_ID_LIMIT])
{
	struct cursor notes = cursor_over(bytes, size);

	while (cursor_left(&notes) && !notes.failed) {
		uint32_t name_size = cursor_u32(&notes), text_size = cursor_u32(&notes);
		uint32_t type = cursor_u32(&notes);
		const char *name = cursor_bytes(&notes, (size_t)name_size);
		const uint8_t *text;

		cursor_skip(&notes, -(size_t)name_size & 3);
		text = cursor_bytes(&notes, (size_t)text_size);
		if (notes.failed)
			return 0;
		if (type == NT_GNU_BUILD_ID && name_size == sizeof(ELF_NOTE_GNU) &&
		    !memcmp(name, ELF_NOTE_GNU, sizeof(ELF_NOTE_GNU)) && text_size &&
		    text_size <= LINUX_MODULE_BUILD_ID_LIMIT) {
			memcpy(build_id, text, text_size);
			return text_size;
		}
		cursor_skip(&notes, -(size_t)text_size & 3);
	}
	return 0;
}

/* A use of the above. */
struct reader {
	const struct linux_module_notes *notes;
	const struct address_space *kernel;
	const struct guest_memory *memory;
};

static bool read_value(const struct reader *reader, uint64_t address, void *value, size_t size)
{
	return guest_read_virtual(reader->kernel, NULL, reader->memory, gva(address), value,
				  size) == TRANSLATE_OK;
}

/* Where the struct bin_attribute number `index` is; 0: there is none any more. */
static uint64_t find_attribute(const struct reader *reader, uint64_t attributes, uint32_t index)
{
	const struct linux_module_notes *notes = reader->notes;
	uint64_t list, attribute;
	uint32_t count;

	if (notes->count != LINUX_MEMBER_MISSING)
		return read_value(reader, attributes + notes->count, &count, sizeof(count)) &&
				       index < count
			       ? attributes + notes->attributes +
					 (uint64_t)index * notes->attribute_bytes
			       : 0;
	if (!read_value(reader, attributes + notes->list, &list, sizeof(list)) || !list ||
	    !read_value(reader, list + (uint64_t)index * sizeof(attribute), &attribute,
			sizeof(attribute)))
		return 0;
	return attribute;
}

unsigned linux_module_build_id(const struct linux_module_notes *notes,
			       const struct address_space *kernel,
			       const struct guest_memory *memory, const struct linux_module *module,
			       uint8_t build_id[LINUX_MODULE_BUILD_ID_LIMIT])
{
	const struct reader reader = {.notes = notes, .kernel = kernel, .memory = memory};
	uint64_t attributes, attribute, size, contents;
	uint8_t bytes[NOTES_MAX];
	unsigned found = 0;

	if (!read_value(&reader, module->address + notes->notes, &attributes, sizeof(attributes)) ||
	    !attributes)
		return 0;
	for (uint32_t i = 0; i < ATTRIBUTES_MAX && !found; i++) {
		attribute = find_attribute(&reader, attributes, i);
		if (!attribute ||
		    !read_value(&reader, attribute + notes->size, &size, sizeof(size)) ||
		    !read_value(&reader, attribute + notes->contents, &contents, sizeof(contents)))
			return 0;
		if (size <= sizeof(bytes) && read_value(&reader, contents, bytes, (size_t)size))
			found = find_build_id(bytes, (size_t)size, build_id);
	}
	return found;
}
