/* Guest addresses as distinct types, so that the compiler refuses to mix them up.
 *
 * gpa_t: guest-physical. gva_t: guest-virtual (linear, after segmentation).
 * Host pointers stay pointers.
 */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

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
