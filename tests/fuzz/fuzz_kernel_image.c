/* Kernel files are whatever the user was given: any bytes must be told from a kernel, and what is
 * accepted must lie inside the file and above 1 MiB. */
#include "vmm/boot/kernel_image.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct kernel_image image;
	struct error error;

	if (kernel_image_parse("input", bytes, size, &image, &error))
		return 0;
	if (!image.segment_count || image.segment_count > KERNEL_SEGMENTS_MAX ||
	    image.entry < image.start || image.entry >= image.end)
		abort();
	for (unsigned i = 0; i < image.segment_count; i++) {
		const struct kernel_segment *segment = &image.segments[i];

		if (segment->file_offset > size ||
		    segment->file_size > size - segment->file_offset ||
		    segment->file_size > segment->memory_size || segment->gpa < 0x100000 ||
		    segment->gpa < image.start || segment->gpa + segment->memory_size > image.end)
			abort();
	}
	return 0;
}
