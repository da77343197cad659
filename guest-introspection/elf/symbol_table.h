/* Symbols sorted by address, names in one arena.
 *
 * Fill with symbol_table_add(), then symbol_table_finish() once; look-ups after that are
 * read-only and may come from any thread. A table that was never filled finds nothing.
 */
#ifndef GUEST_INTROSPECTION_ELF_SYMBOL_TABLE_H
#define GUEST_INTROSPECTION_ELF_SYMBOL_TABLE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Hard limits, whatever a guest or a file claims. */
#define SYMBOL_TABLE_LIMIT 1000000u
#define SYMBOL_NAME_LIMIT 4096u
#define SYMBOL_ARENA_LIMIT (64u << 20)

struct symbol {
	uint64_t start; /* linear address */
	uint64_t size;  /* bytes; after symbol_table_finish() never 0 */
	const char *name;
	char kind; /* as nm(1) prints it: T and t text, W and w weak, D d B b R r data, A */
};

struct symbol_entry {
	uint64_t start;
	uint64_t size;
	uint32_t name; /* offset in the arena */
	char kind;
};

struct symbol_table {
	struct symbol_entry *entries; /* sorted by start; the preferred name first */
	size_t count;
	size_t capacity;
	char *names; /* terminated strings */
	size_t names_size;
	size_t names_capacity;
};

static inline void symbol_table_init(struct symbol_table *table)
{
	*table = (struct symbol_table){0};
}

void symbol_table_deinit(struct symbol_table *table);

/* Room for `count` symbols with `names_size` bytes of names (terminators included), so that
 * a table of known size takes no more memory than it needs. Optional. */
gp_status_t symbol_table_reserve(struct symbol_table *table, size_t count, size_t names_size);

/* Adds a copy. `size` 0 means unknown: until the next symbol. GP_ERR_NO_MEMORY, or
 * GP_ERR_OUT_OF_RANGE past a limit above; the table stays as it was. */
gp_status_t symbol_table_add(struct symbol_table *table, uint64_t start, uint64_t size, char kind,
			     const char *name, size_t length);

/* The text for what symbol_table_add() returned when it read a file. GP_OK stays. */
gp_status_t symbol_table_error(gp_status_t status, struct error *error);

/* Sorts, drops unsized labels inside a sized function, and gives every symbol a size. All names
 * of one address stay; which one comes first depends on the names alone, not on the order
 * of adding: text, global, weak, local; fewest leading underscores; alphabet. */
void symbol_table_finish(struct symbol_table *table);

/* Whether symbols of this kind are code. */
bool symbol_kind_is_text(char kind);

/* The text symbol that `address` lies in. Data symbols never name an address, they only end
 * the text before them. False, and `symbol` untouched: none. */
bool symbol_table_find(const struct symbol_table *table, uint64_t address, struct symbol *symbol);

/* The first symbol of any kind with this name, by address. Looks at all of them. */
bool symbol_table_find_name(const struct symbol_table *table, const char *name,
			    struct symbol *symbol);

/* Symbol number `index` < count. */
static inline struct symbol symbol_table_get(const struct symbol_table *table, size_t index)
{
	const struct symbol_entry *entry = &table->entries[index];

	return (struct symbol){.start = entry->start,
			       .size = entry->size,
			       .name = table->names + entry->name,
			       .kind = entry->kind};
}

#endif
