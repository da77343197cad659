#include "naming/cpio.h"

#include "base/hexadecimal.h"

#include <errno.h>
#include <string.h>
#include <sys/sysmacros.h>

#define HEADER_SIZE 110u /* the magic number's 6 digits and 13 fields of 8 */
#define MAGIC_SIZE 6u
#define FIELD_SIZE 8u
#define FIELD_MODE 1u
#define FIELD_FILE_SIZE 6u
#define FIELD_NAME_SIZE 11u

void cpio_reader_init(struct cpio_reader *reader, struct cpio_stream *stream)
{
	*reader = (struct cpio_reader){.stream = stream};
}

static size_t take(struct cpio_reader *reader, void *buffer, size_t size)
{
	size_t got = reader->stream->read(reader->stream, buffer, size);

	reader->offset += got;
	return got;
}

static bool skip(struct cpio_reader *reader, uint64_t size)
{
	char dropped[16384];

	while (size) {
		size_t step = size < sizeof(dropped) ? (size_t)size : sizeof(dropped);

		if (take(reader, dropped, step) != step)
			return false;
		size -= step;
	}
	return true;
}

/* Names and contents end at a multiple of four bytes. */
static bool skip_padding(struct cpio_reader *reader)
{
	return skip(reader, -reader->offset & 3);
}

static bool read_field(const char *header, unsigned field, uint32_t *value)
{
	const char *digits = header + MAGIC_SIZE + field * FIELD_SIZE;

	*value = 0;
	for (unsigned i = 0; i < FIELD_SIZE; i++) {
		int digit = hexadecimal_digit(digits[i]);

		if (digit < 0)
			return false;
		*value = *value << 4 | (unsigned)digit;
	}
	return true;
}

static bool read_entry(struct cpio_reader *reader, const char *header, struct cpio_entry *entry)
{
	char name[PATH_MAX];
	uint32_t size;
	uint32_t name_size;
	const char *begin = name;

	if (!read_field(header, FIELD_MODE, &entry->mode) ||
	    !read_field(header, FIELD_FILE_SIZE, &size) ||
	    !read_field(header, FIELD_NAME_SIZE, &name_size) || name_size == 0 ||
	    name_size > sizeof(name) || take(reader, name, name_size) != name_size ||
	    name[name_size - 1] || !skip_padding(reader))
		return false;
	while (*begin == '/' || (begin[0] == '.' && begin[1] == '/'))
		begin += *begin == '/' ? 1 : 2;
	memcpy(entry->name, begin, strlen(begin) + 1);
	entry->size = reader->left = size;
	return true;
}

enum cpio_next cpio_reader_next(struct cpio_reader *reader, struct cpio_entry *entry)
{
	char header[HEADER_SIZE];
	size_t got;

	if (reader->left && (!skip(reader, reader->left) || !skip_padding(reader)))
		return CPIO_BROKEN;
	reader->left = 0;
	/* Zeros may stand between archives. */
	do {
		got = take(reader, header, 4);
		if (got < 4)
			return got == 0 ? CPIO_END : CPIO_BROKEN;
	} while (memcmp(header, "\0\0\0\0", 4) == 0);
	if (memcmp(header, "0707", 4) != 0) {
		reader->offset -= 4;
		return CPIO_OTHER;
	}
	/* 070702 has a checksum, which is not looked at. */
	if (take(reader, header + 4, HEADER_SIZE - 4) != HEADER_SIZE - 4 || header[4] != '0' ||
	    (header[5] != '1' && header[5] != '2') || !read_entry(reader, header, entry))
		return CPIO_BROKEN;
	/* The end of one archive is an entry without bytes like any other. */
	return CPIO_ENTRY;
}

size_t cpio_reader_read(struct cpio_reader *reader, void *buffer, size_t size)
{
	size_t got;

	if (size > reader->left)
		size = (size_t)reader->left;
	got = take(reader, buffer, size);
	reader->left -= got;
	/* The stream is at its end. */
	if (got < size)
		reader->left = 0;
	else if (reader->left == 0 && got)
		skip_padding(reader);
	return got;
}

/* Writes bytes, then zeros up to a multiple of four bytes. `before` were written since the last
 * such one. */
static bool put_padded(FILE *to, size_t before, const void *bytes, size_t size)
{
	static const char zeros[4];
	size_t padding = -(before + size) & 3;

	return (!size || fwrite(bytes, 1, size, to) == size) &&
	       fwrite(zeros, 1, padding, to) == padding;
}

gp_status_t cpio_put(FILE *to, const char *name, mode_t mode, dev_t device, const void *bytes,
		     size_t size, struct error *error)
{
	size_t name_size = strlen(name) + 1;
	char header[HEADER_SIZE + 1];

	if (name_size > PATH_MAX || size > UINT32_MAX)
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "%.60s is too large for a cpio archive: %zu bytes", name, size);
	/* Inode 0 for all: the kernel looks at it only where there is more than one link. */
	snprintf(header, sizeof(header),
		 "070701"
		 "%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		 0u, (unsigned)mode, 0u, 0u, 1u, 0u, (unsigned)size, 0u, 0u, major(device),
		 minor(device), (unsigned)name_size, 0u);
	if (fwrite(header, 1, HEADER_SIZE, to) != HEADER_SIZE ||
	    !put_padded(to, HEADER_SIZE, name, name_size) || !put_padded(to, 0, bytes, size))
		return error_set_errno(error, errno, "cannot write %s to the archive", name);
	return GP_OK;
}

gp_status_t cpio_end(FILE *to, struct error *error)
{
	gp_status_t status = cpio_put(to, "TRAILER!!!", 0, 0, NULL, 0, error);

	if (status == GP_OK && fflush(to))
		status = error_set_errno(error, errno, "cannot write the archive's end");
	return status;
}
