#include "guest-introspection/elf/symbol_table.h"

#include <stdlib.h>
#include <string.h>

/* The room that the last symbol gets when nothing says where it ends. */
#define LAST_SYMBOL_SIZE 4096

void symbol_table_deinit(struct symbol_table *table)
{
	free(table->entries);
	free(table->names);
	symbol_table_init(table);
}

static gp_status_t grow(void **pointer, size_t *capacity, size_t wanted, size_t element)
{
	void *grown;

	if (wanted <= *capacity)
		return GP_OK;
	grown = reallocarray(*pointer, wanted, element);
	if (!grown)
		return GP_ERR_NO_MEMORY;
	*pointer = grown;
	*capacity = wanted;
	return GP_OK;
}

gp_status_t symbol_table_reserve(struct symbol_table *table, size_t count, size_t names_size)
{
	gp_status_t status;
	void *entries = table->entries;
	void *names = table->names;

	if (count > SYMBOL_TABLE_LIMIT || names_size > SYMBOL_ARENA_LIMIT)
		return GP_ERR_OUT_OF_RANGE;
	status = grow(&entries, &table->capacity, count, sizeof(*table->entries));
	table->entries = entries;
	if (status != GP_OK)
		return status;
	status = grow(&names, &table->names_capacity, names_size, 1);
	table->names = names;
	return status;
}

/* Room for `wanted`, and some more when it has to grow. */
static size_t room_for(size_t wanted, size_t capacity, size_t spare, size_t limit)
{
	if (wanted <= capacity)
		return capacity;
	wanted += wanted / 2 + spare;
	return wanted < limit ? wanted : limit;
}

gp_status_t symbol_table_add(struct symbol_table *table, uint64_t start, uint64_t size, char kind,
			     const char *name, size_t length)
{
	size_t count = table->count + 1;
	size_t names_size = table->names_size + length + 1;
	gp_status_t status;

	if (length > SYMBOL_NAME_LIMIT || count > SYMBOL_TABLE_LIMIT ||
	    names_size > SYMBOL_ARENA_LIMIT)
		return GP_ERR_OUT_OF_RANGE;
	status = symbol_table_reserve(
		table, room_for(count, table->capacity, 64, SYMBOL_TABLE_LIMIT),
		room_for(names_size, table->names_capacity, 1024, SYMBOL_ARENA_LIMIT));
	if (status != GP_OK)
		return status;
	table->entries[table->count++] = (struct symbol_entry){
		.start = start, .size = size, .name = (uint32_t)table->names_size, .kind = kind};
	memcpy(table->names + table->names_size, name, length);
	table->names[table->names_size + length] = 0;
	table->names_size = names_size;
	return GP_OK;
}

gp_status_t symbol_table_error(gp_status_t status, struct error *error)
{
	if (status == GP_ERR_NO_MEMORY)
		return error_set(error, status, "no memory for the file's symbols");
	if (status != GP_OK)
		return error_set(error, status, "more than %u symbols, or names too long",
				 SYMBOL_TABLE_LIMIT);
	return GP_OK;
}

bool symbol_kind_is_text(char kind)
{
	return kind == 'T' || kind == 't' || kind == 'W' || kind == 'w' || kind == 'i';
}

static int kind_rank(char kind)
{
	switch (kind) {
	case 'T':
	case 'i':
		return 0;
	case 'W':
	case 'w':
		return 1;
	case 't':
		return 2;
	default:
		return 3;
	}
}

static int compare(const void *left, const void *right, void *names)
{
	const struct symbol_entry *a = left;
	const struct symbol_entry *b = right;
	const char *a_name = (const char *)names + a->name;
	const char *b_name = (const char *)names + b->name;
	size_t a_underscores;
	size_t b_underscores;
	int order;

	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	if (kind_rank(a->kind) != kind_rank(b->kind))
		return kind_rank(a->kind) - kind_rank(b->kind);
	/* A symbol with a size is a function; one without may be a label. */
	if (!a->size != !b->size)
		return a->size ? -1 : 1;
	a_underscores = strspn(a_name, "_");
	b_underscores = strspn(b_name, "_");
	if (a_underscores != b_underscores)
		return a_underscores < b_underscores ? -1 : 1;
	order = strcmp(a_name, b_name);
	if (order)
		return order;
	if (a->kind != b->kind)
		return a->kind - b->kind;
	return a->size < b->size ? -1 : a->size > b->size;
}

static void drop_inner_labels(struct symbol_table *table)
{
	uint64_t start = 0;
	uint64_t size = 0;
	size_t kept = 0;

	for (size_t i = 0; i < table->count; i++) {
		struct symbol_entry *entry = &table->entries[i];

		if (entry->size == 0 && entry->start > start && entry->start - start < size)
			continue;
		/* The sized text symbol that reaches furthest. */
		if (entry->size && symbol_kind_is_text(entry->kind) &&
		    (size == 0 || entry->start - start >= size ||
		     entry->size > size - (entry->start - start))) {
			start = entry->start;
			size = entry->size;
		}
		table->entries[kept++] = *entry;
	}
	table->count = kept;
}

void symbol_table_finish(struct symbol_table *table)
{
	uint64_t next = 0;
	bool next_known = false;

	if (table->count == 0)
		return;
	qsort_r(table->entries, table->count, sizeof(*table->entries), compare, table->names);
	drop_inner_labels(table);
	for (size_t i = table->count; i-- > 0;) {
		struct symbol_entry *entry = &table->entries[i];

		if (i + 1 < table->count && table->entries[i + 1].start != entry->start) {
			next = table->entries[i + 1].start;
			next_known = true;
		}
		if (entry->size == 0)
			entry->size = next_known ? next - entry->start : LAST_SYMBOL_SIZE;
	}
}

bool symbol_table_find(const struct symbol_table *table, uint64_t address, struct symbol *symbol)
{
	/* Functions within functions are rare and shallow; more is not looked through. */
	unsigned left = 64;
	size_t low = 0;
	size_t high = table->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (table->entries[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	/* `low` is behind the last symbol that starts at or below the address. */
	while (low > 0 && left-- > 0) {
		uint64_t start = table->entries[low - 1].start;
		size_t first = low - 1;

		while (first > 0 && table->entries[first - 1].start == start)
			first--;
		for (size_t i = first; i < low; i++) {
			const struct symbol_entry *entry = &table->entries[i];

			if (!symbol_kind_is_text(entry->kind) || address - start >= entry->size)
				continue;
			*symbol = symbol_table_get(table, i);
			return true;
		}
		low = first;
	}
	return false;
}

bool symbol_table_find_name(const struct symbol_table *table, const char *name,
			    struct symbol *symbol)
{
	for (size_t i = 0; i < table->count; i++) {
		if (strcmp(table->names + table->entries[i].name, name) != 0)
			continue;
		*symbol = symbol_table_get(table, i);
		return true;
	}
	return false;
}
