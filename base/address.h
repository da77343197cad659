/* Guest addresses as distinct types, so that the compiler refuses to mix them up.
 *
 * gpa_t: guest-physical. gva_t: guest-virtual (linear, after segmentation).
 * Host pointers stay pointers.
 */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

/* The kernel's half of a 64-bit guest's linear addresses begins here (4-level paging; with
 * 5 levels it begins lower, but kernels keep their code above). */
#define GUEST_KERNEL_HALF UINT64_C(0xffff800000000000)

typedef struct {
	uint64_t value;
} gpa_t;

typedef struct {
	uint64_t value;
} gva_t;

static inline gpa_t gpa(uint64_t value)
{
	return (gpa_t){value};
}

static inline gva_t gva(uint64_t value)
{
	return (gva_t){value};
}

#endif
