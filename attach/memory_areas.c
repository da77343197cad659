#include "attach/memory_areas.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

/* One line; false: not of interest. */
static bool parse_line(const char *line, struct memory_area *out)
{
	uint64_t start, end, offset, inode;
	unsigned major_number, minor_number;
	char rights[5];
	int consumed = 0;
	const char *name;

	if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64 "%n", &start,
		   &end, rights, &offset, &major_number, &minor_number, &inode, &consumed) != 7 ||
	    end <= start)
		return false;
	name = line + consumed;
	name += strspn(name, " ");
	/* Code is no guest memory, nor are what the process has for itself and its vCPUs' pages. */
	if (strncmp(rights, "rw-", 3) || !strncmp(name, "[heap]", 6) ||
	    !strncmp(name, "[stack]", 7) || !strncmp(name, "anon_inode:", 11))
		return false;
	*out = (struct memory_area){
		.start = start,
		.size = end - start,
		.shared = rights[3] == 's',
		.device = makedev(major_number, minor_number),
		.inode = inode,
		.offset = offset,
	};
	return true;
}

/* Whether `next` goes on where `area` ends, in memory and in what backs both. */
static bool continues(const struct memory_area *area, const struct memory_area *next)
{
	if (area->start + area->size != next->start || area->shared != next->shared ||
	    area->device != next->device || area->inode != next->inode)
		return false;
	return area->inode && area->offset + area->size == next->offset;
}

/* Keeps the list in order of size. */
static void insert(struct memory_areas *areas, const struct memory_area *area)
{
	unsigned at = areas->count;

	if (area->size < MEMORY_AREA_MIN)
		return;
	if (at == MEMORY_AREAS_MAX) {
		if (areas->areas[--at].size >= area->size)
			return;
	} else {
		areas->count++;
	}
	for (; at > 0 && areas->areas[at - 1].size < area->size; at--)
		areas->areas[at] = areas->areas[at - 1];
	areas->areas[at] = *area;
}

void memory_areas_parse(const char *maps, struct memory_areas *out)
{
	struct memory_area current = {0}, next;

	*out = (struct memory_areas){0};
	for (const char *line = maps; line && *line; line = strchr(line, '\n')) {
		if (*line == '\n')
			line++;
		if (!parse_line(line, &next))
			continue;
		if (current.size && continues(&current, &next)) {
			current.size += next.size;
			continue;
		}
		insert(out, &current);
		current = next;
	}
	insert(out, &current);
}
