#include "export/functions.h"

#include <stdlib.h>
#include <string.h>

static int functions_compare_functions(const struct frame *a, const struct frame *b)
{
	int by_name;

	if (a->kind != b->kind)
		return a->kind < b->kind ? -1 : 1;
	if (a->id != b->id)
		return a->id < b->id ? -1 : 1;
	if (a->name_bytes != b->name_bytes)
		return a->name_bytes < b->name_bytes ? -1 : 1;
	if (a->is_inlined != b->is_inlined)
		return a->is_inlined ? 1 : -1;
	by_name = memcmp(a->name, b->name, a->name_bytes);
	return by_name ? by_name : strcmp(a->file ? a->file : "", b->file ? b->file : "");
}

static int functions_compare(const void *left, const void *right, void *context)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	const struct frames *frames = context;
	int order = functions_compare_functions(&frames->entries[a], &frames->entries[b]);

	return order ? order : a < b ? -1 : a > b;
}

uint32_t *export_functions(const struct frames *frames)
{
	size_t count = frames->count;
	uint32_t *sorted = calloc(count + 1, sizeof(*sorted));
	uint32_t *functions = calloc(count + 1, sizeof(*functions));

	if (!sorted || !functions) {
		free(sorted);
		free(functions);
		return NULL;
	}
	for (size_t i = 0; i < count; i++)
		sorted[i] = (uint32_t)i;
	qsort_r(sorted, count, sizeof(*sorted), functions_compare, (void *)(uintptr_t)frames);
	for (size_t i = 0; i < count; i++) {
		bool is_first = !i || functions_compare_functions(&frames->entries[sorted[i - 1]],
								  &frames->entries[sorted[i]]);

		functions[sorted[i]] = is_first ? sorted[i] : functions[sorted[i - 1]];
	}
	free(sorted);
	return functions;
}
