/* Small traces for the tests of profile/ and of the commands that read traces: made record by
 * record, opened from memory. */
#ifndef TESTS_UNIT_TRACE_FILE_H
#define TESTS_UNIT_TRACE_FILE_H

#include "fxt/metadata.h"
#include "fxt/writer.h"
#include "trace/trace.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define KERNEL UINT64_C(0xffffffff81000000)

enum { WORDS = 16384 };

struct file {
	uint64_t words[WORDS];
	size_t used;
	int fd;
	char path[64];
};

static struct trace trace; /* too large for a stack */

static inline void add_words(struct file *file, size_t words)
{
	cr_assert_gt(words, 0);
	file->used += words;
}

static inline uint64_t *next_word(struct file *file)
{
	return file->words + file->used;
}

static inline size_t room(const struct file *file)
{
	return WORDS - file->used;
}

static inline void begin(struct file *file)
{
	file->used = 0;
	file->fd = -1;
	add_words(file, fxt_write_preamble(next_word(file), room(file)));
}

static inline void add_sample(struct file *file, struct fxt_sample sample)
{
	sample.flags |= FXT_SAMPLE_TIMESTAMP | FXT_SAMPLE_VCPU | FXT_SAMPLE_MODE;
	add_words(file, fxt_sample_encode(&sample, next_word(file), room(file)));
}

static inline void add_stack(struct file *file, uint64_t vcpu, uint64_t time, const uint64_t *stack,
			     size_t depth)
{
	add_sample(file, (struct fxt_sample){.flags = FXT_SAMPLE_STACK,
					     .timestamp = time,
					     .vcpu = vcpu,
					     .mode = FXT_MODE_GUEST_KERNEL,
					     .stack = stack,
					     .depth = depth});
}

static inline void add_symbol(struct file *file, uint32_t kind, uint64_t start, uint64_t size,
			      const char *name)
{
	struct fxt_symbol symbol = {.start = start,
				    .size = size,
				    .kind = kind,
				    .name = name,
				    .name_bytes = (uint32_t)strlen(name)};
	size_t taken;

	add_words(file, fxt_symbols_encode(&symbol, 1, next_word(file), room(file), &taken));
}

static inline void add_metadata(struct file *file, const char *name,
				const struct fxt_argument *arguments, size_t count)
{
	add_words(file, fxt_metadata_encode(name, 1, FXT_VCPU_PROCESS, arguments, count,
					    next_word(file), room(file)));
}

static inline void put(struct file *file, const void *bytes, size_t size)
{
	if (file->fd >= 0)
		close(file->fd);
	file->fd = memfd_create("trace", MFD_CLOEXEC);
	cr_assert_geq(file->fd, 0);
	cr_assert_eq(write(file->fd, bytes, size), (ssize_t)size);
	snprintf(file->path, sizeof(file->path), "/proc/self/fd/%d", file->fd);
}

static inline void open_trace(struct file *file)
{
	struct error error = {0};

	put(file, file->words, file->used * 8);
	cr_assert_eq(trace_open(file->path, &trace, &error), GP_OK, "%s", error.text);
}

static inline void end(struct file *file)
{
	trace_close(&trace);
	close(file->fd);
}

static inline void add_process_name(struct file *file, uint64_t process, const char *name)
{
	add_words(file,
		  fxt_encode_process_name(process, fxt_text(name), next_word(file), room(file)));
}

static inline void add_thread_name(struct file *file, uint64_t process, uint64_t thread,
				   const char *name)
{
	add_words(file, fxt_encode_thread_name(process, thread, fxt_text(name), next_word(file),
					       room(file)));
}

#endif
