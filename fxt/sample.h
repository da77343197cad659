/* The sample record: one tick of one vCPU, as a blob record (type 5) of blob type 4.
 *
 * The payload is words: the flags, then one field per flag bit that is set, in bit order. Bits 0 to
 * 5 are those of Fuchsia's RFC-0274 in its order; from 6 up they are ours, each one word. The
 * blob's name is string FXT_STRING_SAMPLE of the table, so that a record starts with two words:
 *
 *     word 0   blob header: type 5, size, name reference 5, payload bytes, blob type 4
 *     word 1   flags
 *     then     0 continuation id                    more to come
 *              1 continuation completion id         completes the partial sample of that id
 *              2 guest process id
 *              3 guest thread id
 *              4 time, ns
 *              5 call stack: count, then that many program counters, leaf first
 *              6 vCPU number
 *              7 mode                               enum fxt_sample_mode
 *              8 why the stack ended                enum fxt_stack_end
 *              9 address space                      physical address of the root page table
 *             10 addressing mode                    enum fxt_addressing
 *             11 kernel frames                      the frames before this index are the kernel's,
 *                                                   the others are of the program that it
 *                                                   serves, if any could be read
 *          12-63 not assigned
 *
 * Bits that a reader does not know: their fields lie behind all the ones it knows, because fields
 * come in bit order. It takes what it knows, ignores the rest of the payload, and says which
 * bits it did not know (fxt_sample.unknown_flags). A payload that goes on although no unknown
 * bit is set is damaged. Values of enumerations that a reader does not know are passed on.
 */
#ifndef FXT_SAMPLE_H
#define FXT_SAMPLE_H

#include "fxt/value.h"

#define FXT_SAMPLE_DEPTH_MAX 1024

enum fxt_sample_flag {
	FXT_SAMPLE_CONTINUATION = 1 << 0,
	FXT_SAMPLE_COMPLETION = 1 << 1,
	FXT_SAMPLE_PROCESS = 1 << 2,
	FXT_SAMPLE_THREAD = 1 << 3,
	FXT_SAMPLE_TIMESTAMP = 1 << 4,
	FXT_SAMPLE_STACK = 1 << 5,
	FXT_SAMPLE_VCPU = 1 << 6,
	FXT_SAMPLE_MODE = 1 << 7,
	FXT_SAMPLE_STACK_END = 1 << 8,
	FXT_SAMPLE_ADDRESS_SPACE = 1 << 9,
	FXT_SAMPLE_ADDRESSING = 1 << 10,
	FXT_SAMPLE_KERNEL_FRAMES = 1 << 11,
};
#define FXT_SAMPLE_KNOWN_FLAGS 0xfffull

/* What the vCPU was doing at the tick. */
enum fxt_sample_mode {
	FXT_MODE_UNKNOWN = 0,
	FXT_MODE_GUEST_USER = 1,   /* CPL 3 */
	FXT_MODE_GUEST_KERNEL = 2, /* CPL 0 to 2, real mode included */
	FXT_MODE_HALTED = 3,       /* HLT: waiting for an interrupt; no stack is walked */
	FXT_MODE_IN_VMM = 4,      /* the host worked for it: a device access, or off the host CPU */
	FXT_MODE_NOT_STARTED = 5, /* waits for INIT and SIPI from another vCPU */
};

/* Why a call stack has no further frame. */
enum fxt_stack_end {
	FXT_STACK_END_UNKNOWN = 0,
	FXT_STACK_END_ROOT = 1,        /* complete: the outermost frame was reached */
	FXT_STACK_END_DEPTH = 2,       /* the session's depth limit */
	FXT_STACK_END_NOT_PRESENT = 3, /* a page of the stack is not mapped in the guest */
	FXT_STACK_END_BAD_POINTER = 4, /* unaligned, not canonical, or not increasing */
	FXT_STACK_END_OUTSIDE = 5,     /* a guest-physical address with no memory behind it */
	FXT_STACK_END_NO_RULE = 6,     /* no way known to unwind from that address */
	FXT_STACK_END_NOT_WALKED = 7,  /* halted, not started, or not asked for */
};

/* How the addresses of the sample are to be read. */
enum fxt_addressing {
	FXT_ADDRESSING_UNKNOWN = 0,
	FXT_ADDRESSING_REAL = 1,              /* real or virtual-8086 mode: linear = CS base + IP */
	FXT_ADDRESSING_PROTECTED_UNPAGED = 2, /* protected mode, paging off: physical addresses */
	FXT_ADDRESSING_PAGED_32 = 3,          /* 32-bit paging, 2 levels */
	FXT_ADDRESSING_PAE = 4,               /* 32-bit addresses, 3 levels */
	FXT_ADDRESSING_LONG_4 = 5,            /* 64-bit code, 4 levels */
	FXT_ADDRESSING_LONG_5 = 6,            /* 64-bit code, 5 levels */
	FXT_ADDRESSING_COMPATIBILITY_4 = 7,   /* 16- or 32-bit code in long mode, 4 levels */
	FXT_ADDRESSING_COMPATIBILITY_5 = 8,   /* the same, 5 levels */
};

/* A field counts only if its flag is set. */
struct fxt_sample {
	uint64_t flags; /* enum fxt_sample_flag */
	uint64_t continuation;
	uint64_t completion;
	uint64_t process;
	uint64_t thread;
	uint64_t timestamp; /* ns, the same clock as every timestamp of the file */
	const uint64_t *stack;
	size_t depth; /* <= FXT_SAMPLE_DEPTH_MAX */
	uint64_t vcpu;
	uint64_t mode;
	uint64_t stack_end;
	uint64_t address_space;
	uint64_t addressing;
	uint64_t kernel_frames; /* <= depth */
	uint64_t unknown_flags; /* set by fxt_sample_decode(); ignored by fxt_sample_encode() */
};

/* The most words a sample of `depth` frames takes: for scratch memory. */
#define FXT_SAMPLE_WORDS(depth) (14 + (depth))

/* Encodes the blob record. Returns its words, or 0: too little room, too deep, or a flag set that
 * has no meaning. Any thread, also with a vCPU stopped. */
size_t fxt_sample_encode(const struct fxt_sample *sample, uint64_t *words, size_t capacity);

/* True for blobs that are samples, by their type. */
bool fxt_blob_is_sample(const struct fxt_blob *blob);

/* Decodes a blob's payload (aligned to 8 bytes, as the reader gives it). The stack points into it;
 * fields without their flag are zero. Returns NULL, or what is wrong (static text), and then
 * leaves `sample` untouched. */
const char *fxt_sample_decode(const struct fxt_blob *blob, struct fxt_sample *sample);

#endif
