/* Scope guards: a resource declared with one of these is released when its scope ends,
 * on every path out of it. Hand it on with take_fd() / take_pointer(). */
#ifndef BASE_CLEANUP_H
#define BASE_CLEANUP_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free(void *pointer)
{
	free(*(void **)pointer);
}

static inline void cleanup_close(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void cleanup_fclose(FILE **file)
{
	if (*file)
		fclose(*file);
}

#define AUTO_FREE __attribute__((cleanup(cleanup_free)))
#define AUTO_CLOSE __attribute__((cleanup(cleanup_close)))
#define AUTO_FCLOSE __attribute__((cleanup(cleanup_fclose)))

/* For descriptors that live longer than a scope; -1: none, before and afterwards. */
static inline void close_fd(int *fd)
{
	cleanup_close(fd);
	*fd = -1;
}

/* Disarms the guard and gives the descriptor to the caller. */
static inline int take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

/* Disarms the guard and gives the pointer to the caller. */
#define take_pointer(pointer)                    \
	({                                       \
		__auto_type taken_ = *(pointer); \
		*(pointer) = NULL;               \
		taken_;                          \
	})

#endif
