/* Descriptors that a child process is left with. */
#ifndef TOOLS_DESCRIPTORS_H
#define TOOLS_DESCRIPTORS_H

#include <stddef.h>

/* Closes all from the fourth on, wherever they are, but these (-1: none). */
void descriptors_keep(const int *fds, size_t count);

#endif
