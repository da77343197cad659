/* Descriptors that a child process is left with. */
#ifndef NAMING_DESCRIPTORS_H
#define NAMING_DESCRIPTORS_H

#include <stddef.h>

/* Closes all from the fourth on, wherever they are, but these (-1: none). */
void descriptors_keep(const int *fds, size_t count);

#endif
