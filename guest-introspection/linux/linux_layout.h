/* Offsets of several structure members at once, as a table asks for them. For the modules that
 * read Linux's structures; cold. */
#ifndef GUEST_INTROSPECTION_LINUX_LINUX_LAYOUT_H
#define GUEST_INTROSPECTION_LINUX_LINUX_LAYOUT_H

#include "base/error.h"
#include "guest-introspection/linux/btf.h"

#include <stddef.h>
#include <stdint.h>

/* What an offset is when the kernel has no such member. */
#define LINUX_MEMBER_MISSING UINT32_MAX

struct linux_member {
	const char *structure;
	const char *path; /* as of btf_find_member() */
	uint32_t size;    /* bytes that it must have; 0: any */
	bool optional;
	size_t field; /* offset of a uint32_t in the caller's structure */
};

/* Fills in the fields that `members` name. GP_ERR_NOT_SUPPORTED says which required one is
 * missing or of another size; some fields may be written then. */
gp_status_t linux_layout_read(const struct btf *btf, const struct linux_member *members,
			      size_t count, void *out, struct error *error);

/* Value at `offset` of a copied structure; 0 when it is not wholly inside. */
uint64_t linux_layout_value(const void *bytes, size_t size, uint32_t offset, size_t width);

#endif
