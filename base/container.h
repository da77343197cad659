/* Small compile-time helpers that C lacks. */
#ifndef BASE_CONTAINER_H
#define BASE_CONTAINER_H

#include <stddef.h>

/* The structure that holds `member` at `pointer`. */
#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))

#endif
