#include "naming/user_mapping.h"

#include <stdio.h>
#include <string.h>

static uint64_t mix(uint64_t hash, uint64_t part)
{
	hash = (hash ^ part) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ hash >> 29;
}

uint64_t user_mapping_file_identity(const struct linux_mapping *mapping)
{
	uint64_t device = (uint64_t)mapping->file.device_major << 32 | mapping->file.device_minor;

	return mix(mix(mix(mix(0, (uint64_t)mapping->kind), mapping->file.inode),
		       mapping->file.number),
		   device);
}

uint64_t user_mapping_identity(const struct linux_mapping *mapping)
{
	return mix(user_mapping_file_identity(mapping),
		   mapping->kind == LINUX_MAPPING_FILE ? mapping->start - mapping->offset : 0);
}

void user_mapping_name(const struct linux_mapping *mapping, char *out, size_t size)
{
	const char *slash = strrchr(mapping->name, '/');

	switch (mapping->kind) {
	case LINUX_MAPPING_FILE:
		snprintf(out, size, "[%.255s]",
			 slash && slash[1]  ? slash + 1
			 : mapping->name[0] ? mapping->name
					    : "file");
		break;
	case LINUX_MAPPING_HEAP:
		snprintf(out, size, mapping->executable ? "[jit]" : "[heap]");
		break;
	case LINUX_MAPPING_STACK:
		snprintf(out, size, "[stack]");
		break;
	case LINUX_MAPPING_SPECIAL:
		snprintf(out, size, "%.255s", mapping->name[0] ? mapping->name : "[kernel page]");
		break;
	case LINUX_MAPPING_ANONYMOUS:
	default:
		snprintf(out, size, mapping->executable ? "[jit]" : "[anonymous]");
	}
}
