#include "guest-introspection/linux/linux_layout.h"

#include <string.h>

gp_status_t linux_layout_read(const struct btf *btf, const struct linux_member *members,
			      size_t count, void *out, struct error *error)
{
	for (size_t i = 0; i < count; i++) {
		const struct linux_member *wanted = &members[i];
		struct btf_member found;
		uint32_t offset = LINUX_MEMBER_MISSING;

		if (btf_find_member(btf, wanted->structure, wanted->path, &found) &&
		    (!wanted->size || found.size == wanted->size) && !found.bits)
			offset = found.offset;
		else if (!wanted->optional)
			return error_set(error, GP_ERR_NOT_SUPPORTED,
					 "this kernel has no %s.%s as expected", wanted->structure,
					 wanted->path);
		memcpy((char *)out + wanted->field, &offset, sizeof(offset));
	}
	return GP_OK;
}

uint64_t linux_layout_value(const void *bytes, size_t size, uint32_t offset, size_t width)
{
	uint64_t value = 0;

	if (width <= sizeof(value) && offset <= size && width <= size - offset)
		memcpy(&value, (const char *)bytes + offset, width);
	return value;
}
