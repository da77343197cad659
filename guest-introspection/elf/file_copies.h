/* Copies of a guest's programs and libraries outside its memory: in an initial file system, a
 * directory, on the host. What is not in the guest's memory is read from a copy.
 *
 * What an implementation finds is only a candidate. file_copies_open() accepts one with the build
 * id of the guest's file, or, where that has none, one of the same size with the same bytes as all
 * those that are in the guest's memory. A name is never taken from another file.
 *
 * Cold; whether another thread may ask at the same time is the implementation's.
 */
#ifndef GUEST_INTROSPECTION_ELF_FILE_COPIES_H
#define GUEST_INTROSPECTION_ELF_FILE_COPIES_H

#include "guest-introspection/elf/elf_image.h"

#include <stdbool.h>
#include <stdint.h>

enum file_copy_result {
	FILE_COPY_NONE,
	FILE_COPY_LATER, /* it is being looked for: ask again in a while, for the same */
	FILE_COPY_FOUND,
};

struct file_copy_wanted {
	const char *path;       /* in the guest, untrusted; "" where it is not known */
	uint64_t size;          /* bytes of the guest's file; 0: not known (the vDSO) */
	unsigned build_id_size; /* 0: none, or not available: then by path and size */
	uint8_t build_id[ELF_BUILD_ID_LIMIT];
	/* What it is wanted for: what the process executes and what comes with it (.eh_frame). Else
	 * symbols, for which a file of debugging information will do. */
	bool code;
	/* All of the guest's file is available. Only another one with more symbols is of use. */
	bool whole;
};

struct file_copies {
	/* Milliseconds that find() may wait before it says later. Changed by the caller. */
	int patience_ms;

	/* Required. Looks for a file; `*out` stays readable until release(). */
	enum file_copy_result (*find)(struct file_copies *copies,
				      const struct file_copy_wanted *wanted,
				      const struct file_source **out);
	/* Required. */
	void (*release)(struct file_copies *copies, const struct file_source *source);
};

/* A copy of a file of the guest, of which `guest` has the bytes that are available. Found: `*image`
 * is the copy's, and release(`*out`) is for the caller to call. `copies` NULL: none. */
enum file_copy_result file_copies_open(struct file_copies *copies,
				       const struct file_copy_wanted *wanted,
				       const struct file_source *guest,
				       const struct file_source **out, struct elf_image *image);

#endif
