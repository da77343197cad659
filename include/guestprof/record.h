/* Constants to walk the records of gp_sampler_read(). There is no parser.
 *
 * Everything is 64-bit little-endian words. A record begins with a header that has its type and
 * size, so any record can be skipped. Samples are blob records of blob type GP_BLOB_SAMPLE:
 *
 *     word 0   header
 *     word 1   flags, GP_SAMPLE_*
 *     then     one field per flag that is set, lowest bit first. A field is one word, but the
 *              stack is a count and that many program counters, leaf first
 *
 * So the stack of a sample with GP_SAMPLE_STACK begins at word
 * 2 + (number of bits set in flags & (GP_SAMPLE_STACK - 1)). docs/trace-format.md has the rest.
 * Reads hold whole records only, and their sizes can be trusted. The contents of a stack come from
 * the guest. Source: Fuchsia's trace format and RFC-0274.
 */
#ifndef GUESTPROF_RECORD_H
#define GUESTPROF_RECORD_H

#include <stdint.h>

#define GP_RECORD_MAGIC UINT64_C(0x0016547846040010) /* the first word of a trace */

#define GP_RECORD_TYPE(header) ((unsigned)((uint64_t)(header)&0xf))
/* Words of the record, its header included. */
#define GP_RECORD_WORDS(header) ((unsigned)((uint64_t)(header) >> 4 & 0xfff))

/* The type, and for a blob, its payload: bytes and type. */
#define GP_RECORD_BLOB 5
#define GP_BLOB_BYTES(header) ((unsigned)((uint64_t)(header) >> 32 & 0x7fff))
#define GP_BLOB_TYPE(header) ((unsigned)((uint64_t)(header) >> 48 & 0xff))
#define GP_BLOB_SAMPLE 4

#define GP_RECORD_IS_SAMPLE(header) \
	(GP_RECORD_TYPE(header) == GP_RECORD_BLOB && GP_BLOB_TYPE(header) == GP_BLOB_SAMPLE)

/* Flags of a sample. */
#define GP_SAMPLE_CONTINUATION (UINT64_C(1) << 0) /* partial: the stack is still to come */
#define GP_SAMPLE_COMPLETION (UINT64_C(1) << 1)   /* this is the stack of that partial sample */
#define GP_SAMPLE_PROCESS (UINT64_C(1) << 2)      /* guest process */
#define GP_SAMPLE_THREAD (UINT64_C(1) << 3)       /* guest thread */
#define GP_SAMPLE_TIMESTAMP (UINT64_C(1) << 4)    /* ns, CLOCK_BOOTTIME of the host */
#define GP_SAMPLE_STACK (UINT64_C(1) << 5)
#define GP_SAMPLE_VCPU (UINT64_C(1) << 6)
#define GP_SAMPLE_MODE (UINT64_C(1) << 7)          /* gp_mode_t */
#define GP_SAMPLE_STACK_END (UINT64_C(1) << 8)     /* gp_stack_end_t */
#define GP_SAMPLE_ADDRESS_SPACE (UINT64_C(1) << 9) /* physical address of the page tables */
#define GP_SAMPLE_ADDRESSING (UINT64_C(1) << 10)   /* see docs/trace-format.md */

/* What the vCPU was doing. */
typedef enum gp_mode {
	GP_MODE_UNKNOWN = 0,
	GP_MODE_GUEST_USER = 1,
	GP_MODE_GUEST_KERNEL = 2,
	GP_MODE_HALTED = 3,      /* waits for an interrupt; no stack */
	GP_MODE_IN_VMM = 4,      /* its VMM worked for it, at a device for example */
	GP_MODE_NOT_STARTED = 5, /* waits for another vCPU to start it */
} gp_mode_t;

/* Why a stack has no further frame. */
typedef enum gp_stack_end {
	GP_STACK_END_UNKNOWN = 0,
	GP_STACK_END_ROOT = 1,        /* complete */
	GP_STACK_END_DEPTH = 2,       /* the session's limit */
	GP_STACK_END_NOT_PRESENT = 3, /* a page is not mapped */
	GP_STACK_END_BAD_POINTER = 4, /* unaligned, not canonical, or not increasing */
	GP_STACK_END_OUTSIDE = 5,     /* an address where the guest has no memory */
	GP_STACK_END_NO_RULE = 6,     /* no unwind rule for that place */
	GP_STACK_END_NOT_WALKED = 7,  /* halted, not started, or the session stopped first */
} gp_stack_end_t;

#endif
