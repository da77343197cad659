/* VMCOREINFO from hostile bytes. */
#include "guest-introspection/linux/vmcoreinfo.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* One structure of 8 bytes called "s" with the member "m": names compare with something. */
	static const uint8_t types[] = {
		0x9f, 0xeb, 1, 0, 24, 0, 0, 0, 0, 0, 0, 0, 40, 0,  0, 0, 40, 0, 0, 0,   5, 0,   0,
		0,    0,    0, 0, 0,  0, 0, 0, 1, 8, 0, 0, 0,  64, 0, 0, 0,  1, 0, 0,   0, 1,   0,
		0,    4,    8, 0, 0,  0, 3, 0, 0, 0, 1, 0, 0,  0,  0, 0, 0,  0, 0, 's', 0, 'm', 0};
	struct vmcoreinfo info;
	struct vmcoreinfo_comparison comparison;
	struct btf *btf;
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
	if (btf_parse(types, sizeof(types), &btf, &error) != GP_OK)
		abort();
	vmcoreinfo_compare(&info, btf, NULL, &comparison);
	btf_destroy(btf);
	return 0;
}
