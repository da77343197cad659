#include "naming/descriptors.h"

#include <sys/syscall.h>
#include <unistd.h>

void descriptors_keep(const int *fds, size_t count)
{
	unsigned first = 3, next;

	do {
		next = ~0u;
		for (size_t i = 0; i < count; i++)
			if (fds[i] >= (int)first && (unsigned)fds[i] < next)
				next = (unsigned)fds[i];
		if (next > first)
			syscall(SYS_close_range, first, next == ~0u ? next : next - 1, 0u);
		first = next + 1;
	} while (next != ~0u);
}
