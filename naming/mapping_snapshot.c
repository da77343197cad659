#include "naming/mapping_snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mapping_snapshot_deinit(struct mapping_snapshot *self)
{
	vector_deinit(&self->mappings);
	*self = (struct mapping_snapshot){0};
}

/* The first mapping that ends behind the address. */
static size_t first_behind(const struct mapping_snapshot *self, uint64_t address)
{
	size_t low = 0, high = self->mappings.count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (self->mappings.items[middle].area.end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool insert(struct mapping_snapshot *self, size_t at, struct mapping mapping)
{
	struct mapping *items;

	if (self->mappings.count == MAPPING_SNAPSHOT_MAX || !vector_reserve(&self->mappings, 1))
		return false;
	items = self->mappings.items;
	memmove(items + at + 1, items + at, (self->mappings.count++ - at) * sizeof(*items));
	items[at] = mapping;
	return true;
}

bool mapping_snapshot_add(struct mapping_snapshot *self, const struct linux_mapping *area,
			  bool sampled)
{
	struct mapping mapping = {.area = *area, .sampled = sampled};

	if (!sampled && self->mappings.count >= MAPPING_SNAPSHOT_EXECUTABLE_MAX)
		return false;
	if (area->kind == LINUX_MAPPING_SPECIAL)
		snprintf(mapping.name, sizeof(mapping.name), "%s", area->name);
	mapping.area.name = "";
	return insert(self, self->mappings.count, mapping);
}

struct mapping *mapping_snapshot_find(const struct mapping_snapshot *self, uint64_t address)
{
	size_t at = first_behind(self, address);

	return at < self->mappings.count && self->mappings.items[at].area.start <= address
		       ? &self->mappings.items[at]
		       : NULL;
}

static uint64_t mix(uint64_t hash, uint64_t part)
{
	hash = (hash ^ part) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ hash >> 29;
}

uint64_t mapping_file_identity(const struct linux_mapping *area)
{
	uint64_t device = (uint64_t)area->file.device_major << 32 | area->file.device_minor;

	return mix(mix(mix(mix(0, (uint64_t)area->kind), area->file.inode), area->file.number),
		   device);
}

/* The same file with the same shift, or the same kind of memory. */
static bool is_same(const struct linux_mapping *a, const struct linux_mapping *b)
{
	return mapping_file_identity(a) == mapping_file_identity(b) &&
	       (a->kind != LINUX_MAPPING_FILE || a->start - a->offset == b->start - b->offset);
}

bool mapping_snapshot_contradicts(const struct mapping_snapshot *self,
				  const struct linux_mapping *area)
{
	for (size_t i = first_behind(self, area->start);
	     i < self->mappings.count && self->mappings.items[i].area.start < area->end; i++)
		if (self->mappings.items[i].sampled &&
		    !is_same(&self->mappings.items[i].area, area))
			return true;
	return false;
}

void mapping_snapshot_update(struct mapping_snapshot *self, struct mapping_snapshot *later)
{
	for (size_t i = 0; i < self->mappings.count; i++) {
		const struct mapping *old = &self->mappings.items[i];
		size_t first = first_behind(later, old->area.start), at = first;

		for (; old->sampled && at < later->mappings.count &&
		       later->mappings.items[at].area.start < old->area.end;
		     at++) {
			struct mapping *same = &later->mappings.items[at];

			same->sampled = true;
			same->written = same->written ||
					(old->written && same->area.start == old->area.start &&
					 same->area.end == old->area.end);
		}
		if (old->sampled && at == first)
			insert(later, at, *old);
	}
	vector_deinit(&self->mappings);
	*self = *later;
	*later = (struct mapping_snapshot){0};
}

void mapping_snapshot_trim(struct mapping_snapshot *self)
{
	struct mapping_snapshot sampled = {.taken_ns = self->taken_ns, .trimmed = true};

	for (size_t i = 0; i < self->mappings.count; i++)
		if (self->mappings.items[i].sampled)
			insert(&sampled, sampled.mappings.count, self->mappings.items[i]);
	vector_deinit(&self->mappings);
	*self = sampled;
}

void mapping_label(const struct linux_mapping *area, char *out, size_t size)
{
	const char *slash = strrchr(area->name, '/');

	switch (area->kind) {
	case LINUX_MAPPING_FILE:
		snprintf(out, size, "[%.255s]",
			 slash && slash[1] ? slash + 1
			 : area->name[0]   ? area->name
					   : "file");
		break;
	case LINUX_MAPPING_HEAP:
		snprintf(out, size, area->executable ? "[jit]" : "[heap]");
		break;
	case LINUX_MAPPING_STACK:
		snprintf(out, size, "[stack]");
		break;
	case LINUX_MAPPING_SPECIAL:
		snprintf(out, size, "%.255s", area->name[0] ? area->name : "[kernel page]");
		break;
	case LINUX_MAPPING_ANONYMOUS:
	default:
		snprintf(out, size, area->executable ? "[jit]" : "[anonymous]");
	}
}
