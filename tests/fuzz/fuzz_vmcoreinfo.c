/* VMCOREINFO from hostile bytes. */
#include "guest-introspection/linux/vmcoreinfo.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vmcoreinfo info;
	struct error error;
	size_t length;
	const char *value;

	if (vmcoreinfo_parse((const char *)data, size, &info, &error) != GP_OK)
		return 0;
	if (info.build_id_size > BUILD_ID_LIMIT)
		abort();
	value = vmcoreinfo_find(&info, "PAGESIZE", &length);
	if (value && (value < info.text || length > info.size))
		abort();
	return 0;
}
