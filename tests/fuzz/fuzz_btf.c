/* BTF from hostile bytes: whatever is found lies inside its structure. */

#include "tests/btf_parse.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const structures[] = {"task_struct", "task_t", "page", "pt_regs", "s"};
	static const char *const paths[] = {"pid",  "se.second", "comm",    "flag", "deep",
					    "rest", "flags",     "mapping", "ip",   "a.b.c"};
	struct btf *btf;
	struct error error;
	int64_t value;

	if (btf_parse(data, size, &btf, &error) != GP_OK) {
		if (error.status != GP_ERR_NOT_FOUND)
			abort();
		return 0;
	}
	for (unsigned i = 0; i < sizeof(structures) / sizeof(structures[0]); i++) {
		uint32_t bytes = 0;
		bool known = btf_find_size(btf, structures[i], &bytes);

		for (unsigned k = 0; k < sizeof(paths) / sizeof(paths[0]); k++) {
			struct btf_member member;

			if (!btf_find_member(btf, structures[i], paths[k], &member))
				continue;
			if (!known || member.bits > 64 || member.size > UINT32_MAX - member.offset)
				abort();
		}
	}
	btf_find_enumerator(btf, "STATE_WIDE", &value);
	btf_destroy(btf);
	return 0;
}
