/* A trace may come from anybody: opening it, walking its samples and naming their frames must hold
 * for any bytes, and walking it twice must give the same. */
#include "profile/trace.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static uint64_t walk(struct trace *trace)
{
	struct fxt_sample sample;
	uint64_t ticks, sum = 0;

	while (trace_next_sample(trace, &sample, &ticks)) {
		sum += ticks;
		for (size_t i = 0; i < sample.depth; i++) {
			const struct trace_symbol *symbol = trace_find_symbol(trace, &sample, i);

			if (symbol && symbol->name_bytes)
				sum += (uint8_t)symbol->name[symbol->name_bytes - 1];
		}
	}
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	static struct trace trace;
	struct error error;
	char path[64];
	int fd = memfd_create("trace", MFD_CLOEXEC);
	uint64_t first;

	if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (!trace_open(path, &trace, &error)) {
		first = walk(&trace);
		trace_rewind(&trace);
		if (walk(&trace) != first || trace.info.good_bytes > trace.info.bytes)
			abort();
		trace_close(&trace);
	}
	close(fd);
	return 0;
}
