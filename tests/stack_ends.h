/* Names of the reasons why stacks end. */
#ifndef TESTS_STACK_ENDS_H
#define TESTS_STACK_ENDS_H

#include "guest-introspection/unwind/unwind.h"

static inline const char *stack_end_string(enum stack_end end)
{
	switch (end) {
	case STACK_END_ROOT:
		return "root reached";
	case STACK_END_DEPTH_LIMIT:
		return "depth limit";
	case STACK_END_NOT_PRESENT:
		return "page not present";
	case STACK_END_BAD_POINTER:
		return "bad pointer";
	case STACK_END_OUTSIDE_MEMORY:
		return "outside memory";
	case STACK_END_NO_RULE:
		return "no rule";
	}
	return "unknown";
}

#endif
