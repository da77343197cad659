#include "fxt/sample.h"

/* 12 single words would be all flags; the stack's count is one of them. */
_Static_assert(FXT_SAMPLE_WORDS(0) == 2 + 12, "header, flags, one word per known bit");
_Static_assert(FXT_SAMPLE_WORDS(FXT_SAMPLE_DEPTH_MAX) <= FXT_RECORD_WORDS_MAX &&
		       FXT_SAMPLE_WORDS(FXT_SAMPLE_DEPTH_MAX) * 8 <= FXT_STRING_BYTES_MAX,
	       "the deepest sample fits in one record");

size_t fxt_sample_encode(const struct fxt_sample *sample, uint64_t *words, size_t capacity)
{
	uint64_t flags = sample->flags;
	size_t depth = flags & FXT_SAMPLE_STACK ? sample->depth : 0;
	uint64_t *next = words + 2;
	size_t size;

	if ((flags & ~FXT_SAMPLE_KNOWN_FLAGS) != 0 || depth > FXT_SAMPLE_DEPTH_MAX ||
	    ((flags & FXT_SAMPLE_KERNEL_FRAMES) && sample->kernel_frames > depth))
		return 0;
	/* Every field is one word and the stack's program counters: checked once, here. */
	size = 2 + (size_t)__builtin_popcountll(flags) + depth;
	if (size > capacity)
		return 0;
	words[0] = fxt_blob_header(FXT_STRING_SAMPLE, FXT_BLOB_SAMPLE, size);
	words[1] = flags;
	if (flags & FXT_SAMPLE_CONTINUATION)
		*next++ = sample->continuation;
	if (flags & FXT_SAMPLE_COMPLETION)
		*next++ = sample->completion;
	if (flags & FXT_SAMPLE_PROCESS)
		*next++ = sample->process;
	if (flags & FXT_SAMPLE_THREAD)
		*next++ = sample->thread;
	if (flags & FXT_SAMPLE_TIMESTAMP)
		*next++ = sample->timestamp;
	if (flags & FXT_SAMPLE_STACK) {
		*next++ = depth;
		if (depth != 0)
			memcpy(next, sample->stack, depth * sizeof(uint64_t));
		next += depth;
	}
	if (flags & FXT_SAMPLE_VCPU)
		*next++ = sample->vcpu;
	if (flags & FXT_SAMPLE_MODE)
		*next++ = sample->mode;
	if (flags & FXT_SAMPLE_STACK_END)
		*next++ = sample->stack_end;
	if (flags & FXT_SAMPLE_ADDRESS_SPACE)
		*next++ = sample->address_space;
	if (flags & FXT_SAMPLE_ADDRESSING)
		*next++ = sample->addressing;
	if (flags & FXT_SAMPLE_KERNEL_FRAMES)
		*next++ = sample->kernel_frames;
	return size;
}

bool fxt_blob_is_sample(const struct fxt_blob *blob)
{
	return blob->type == FXT_BLOB_SAMPLE;
}

const char *fxt_sample_decode(const struct fxt_blob *blob, struct fxt_sample *sample)
{
	const uint64_t *next = blob->payload;
	size_t left = blob->size / sizeof(uint64_t);
	struct fxt_sample result = {0};
	uint64_t flags;

	if (blob->size % sizeof(uint64_t) != 0)
		return "a sample's payload is not whole words";
	if (left == 0)
		return "a sample without flags";
	flags = *next++;
	left--;
	/* The single words first: once they are known to be there, they are taken unchecked. */
	if ((size_t)__builtin_popcountll(flags & FXT_SAMPLE_KNOWN_FLAGS) > left)
		return "a sample's flags promise more fields than there are";
	left -= (size_t)__builtin_popcountll(flags & FXT_SAMPLE_KNOWN_FLAGS);
	result.flags = flags & FXT_SAMPLE_KNOWN_FLAGS;
	result.unknown_flags = flags & ~FXT_SAMPLE_KNOWN_FLAGS;
	if (flags & FXT_SAMPLE_CONTINUATION)
		result.continuation = *next++;
	if (flags & FXT_SAMPLE_COMPLETION)
		result.completion = *next++;
	if (flags & FXT_SAMPLE_PROCESS)
		result.process = *next++;
	if (flags & FXT_SAMPLE_THREAD)
		result.thread = *next++;
	if (flags & FXT_SAMPLE_TIMESTAMP)
		result.timestamp = *next++;
	if (flags & FXT_SAMPLE_STACK) {
		uint64_t depth = *next++;

		if (depth > FXT_SAMPLE_DEPTH_MAX)
			return "a sample's call stack is deeper than 1024";
		if (depth > left)
			return "a sample's call stack goes beyond its record";
		result.depth = depth;
		result.stack = next;
		next += depth;
		left -= depth;
	}
	if (flags & FXT_SAMPLE_VCPU)
		result.vcpu = *next++;
	if (flags & FXT_SAMPLE_MODE)
		result.mode = *next++;
	if (flags & FXT_SAMPLE_STACK_END)
		result.stack_end = *next++;
	if (flags & FXT_SAMPLE_ADDRESS_SPACE)
		result.address_space = *next++;
	if (flags & FXT_SAMPLE_ADDRESSING)
		result.addressing = *next++;
	if (flags & FXT_SAMPLE_KERNEL_FRAMES) {
		result.kernel_frames = *next++;
		if (result.kernel_frames > result.depth)
			return "a sample has more kernel frames than frames";
	}
	if (left != 0 && result.unknown_flags == 0)
		return "a sample's payload goes on behind its last field";
	*sample = result;
	return NULL;
}
