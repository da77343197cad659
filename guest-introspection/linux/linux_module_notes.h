/* The build ids of a Linux kernel's modules, out of the notes that it keeps for
 * /sys/module/NAME/notes. Cold; allocates nothing; the guest may run meanwhile: what changes is not
 * found. */
#ifndef GUEST_INTROSPECTION_LINUX_LINUX_MODULE_NOTES_H
#define GUEST_INTROSPECTION_LINUX_LINUX_MODULE_NOTES_H

#include "guest-introspection/linux/btf.h"
#include "guest-introspection/linux/linux_modules.h"

#define LINUX_MODULE_BUILD_ID_LIMIT 32u /* bytes; SHA-1 has 20 */

/* Offsets of members, in bytes. A plain value. */
struct linux_module_notes {
	uint32_t notes; /* in struct module: pointer to struct module_notes_attrs */
	/* In that: an array of struct bin_attribute and how many there are; without a count, as in
	 * 6.18, a pointer to pointers to them, of which a null one is the last. */
	uint32_t count;
	uint32_t attributes;
	uint32_t list;
	uint32_t attribute_bytes; /* of a struct bin_attribute */
	uint32_t size;            /* in that, as what follows */
	uint32_t contents;
};

/* GP_ERR_NOT_SUPPORTED: this kernel keeps no notes, or not as they are known. */
gp_status_t linux_module_notes_init(const struct btf *btf, struct linux_module_notes *out,
				    struct error *error);

/* Returns the bytes of the module's build id; 0: it has none, or it cannot be read. */
unsigned linux_module_build_id(const struct linux_module_notes *notes,
			       const struct address_space *kernel,
			       const struct guest_memory *memory, const struct linux_module *module,
			       uint8_t build_id[LINUX_MODULE_BUILD_ID_LIMIT]);

#endif
