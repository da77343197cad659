/* BTF: the types of a Linux kernel as it carries them in its own memory, from which the offsets of
 * structure members are taken (Documentation/bpf/btf.rst, include/uapi/linux/btf.h).
 *
 * Layouts move between versions, configurations and distributions, so members are asked for by
 * name; what is not there is not there. A cold path: parsing copies and allocates. A parsed
 * `struct btf` is read-only, and any thread may look things up in it.
 */
#ifndef GUEST_INTROSPECTION_ELF_BTF_H
#define GUEST_INTROSPECTION_ELF_BTF_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Debian's have 4 to 6 MiB; what the kernel lets programs load has the same limit. */
#define BTF_LIMIT (16u << 20)
#define BTF_HEADER_SIZE 24

struct btf;

/* Where a member lies in the structure that was asked for. */
struct btf_member {
	uint32_t offset;     /* bytes from the start of that structure */
	uint32_t size;       /* bytes of the member; of an array, all of it, which may be 0 */
	uint32_t bit_offset; /* bit fields: bits from `offset` on, bits wide; else both 0. */
	uint32_t bits;       /* At most 64; `size` bytes hold them all, up to 9. */
	uint32_t elements;   /* of an array, its first dimension; 1 otherwise */
};

/* Parses a whole BTF blob, header included, which malloc() gave, and takes it over, whatever comes
 * of it. GP_ERR_NOT_FOUND, GP_ERR_NO_MEMORY. The BTF of a module ("split") is refused: its types
 * refer to those of vmlinux. */
gp_status_t btf_adopt(void *blob, size_t size, struct btf **out, struct error *error);

/* Bytes of the blob that begins with this header; 0: it is none, or not as compilers and pahole
 * write it, without gaps. */
size_t btf_blob_size(const uint8_t bytes[static BTF_HEADER_SIZE]);

/* NULL is ignored. */
void btf_destroy(struct btf *btf);

/* The member `path` of `structure` (a struct, a union, or a typedef of one). Members of anonymous
 * structures and unions are found by their own name. A path goes into embedded structures
 * with dots, "se.vruntime", but never through a pointer or an array. False, `out` untouched:
 * none. What is found lies inside the structure: offset + size <= its size. Where several
 * structures have this name, the first that has the member counts. Costs a bounded time. */
bool btf_find_member(const struct btf *btf, const char *structure, const char *path,
		     struct btf_member *out);

/* Bytes of the struct, union or typedef of one that is called `name`; false, `size` untouched:
 * there is none. */
bool btf_find_size(const struct btf *btf, const char *name, uint32_t *size);

/* The value of an enumerator of any enumeration, named or not. */
bool btf_find_enumerator(const struct btf *btf, const char *name, int64_t *value);

#endif
