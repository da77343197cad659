#include "naming/user_space.h"

#include <stdlib.h>
#include <string.h>

#define ROOM 64u /* processes that there is room for after a look */
#define TAKEN_AT_ONCE 1024u

static void free_space(struct user_spaces *self, struct user_space *space)
{
	self->address_count -= space->seen.count;
	intern_deinit(&space->seen);
	intern_deinit(&space->functions);
	mapping_snapshot_deinit(&space->snapshot);
	user_words_deinit(&space->words);
	user_words_deinit(&space->named);
	free(space->waiting);
	free(space);
}

/* The earliest `count` spaces of a process. */
static void forget_spaces(struct user_spaces *self, struct user_process *process, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		free_space(self, process->spaces[i]);
	process->count -= count;
	memmove(process->spaces, process->spaces + count,
		process->count * sizeof(process->spaces[0]));
	self->forgotten = true;
}

static void forget_process(struct user_spaces *self, struct user_process **at)
{
	struct user_process *process = *at;

	*at = process->next;
	forget_spaces(self, process, process->count);
	free(process);
	self->process_count--;
}

void user_spaces_deinit(struct user_spaces *self)
{
	for (unsigned i = 0; i < USER_SPACE_BUCKETS; i++)
		while (self->buckets[i])
			forget_process(self, &self->buckets[i]);
}

static void forget_oldest(struct user_spaces *self)
{
	struct user_process **oldest = NULL;

	for (unsigned i = 0; i < USER_SPACE_BUCKETS; i++)
		for (struct user_process **at = &self->buckets[i]; *at; at = &(*at)->next)
			if (!oldest || (*at)->last_ns < (*oldest)->last_ns)
				oldest = at;
	if (oldest)
		forget_process(self, oldest);
}

void user_spaces_make_room(struct user_spaces *self)
{
	for (unsigned i = 0; i < ROOM && (self->process_count > USER_PROCESSES_MAX - ROOM ||
					  self->address_count > USER_ADDRESSES_MAX / 8 * 7);
	     i++)
		forget_oldest(self);
	for (unsigned i = 0; i < USER_SPACE_BUCKETS; i++)
		for (struct user_process *process = self->buckets[i]; process;
		     process = process->next)
			if (process->count > USER_SPACES_MAX / 4 * 3)
				forget_spaces(self, process, USER_SPACES_MAX / 2);
}

struct user_process *user_spaces_process(const struct user_spaces *self, uint64_t id)
{
	struct user_process *process = self->buckets[id % USER_SPACE_BUCKETS];

	while (process && process->id != id)
		process = process->next;
	return process;
}

uint64_t user_spaces_root(const struct user_spaces *self, uint64_t root)
{
	return root & USER_PAGE_TABLES & ~(self->isolated ? USER_ISOLATED_TABLES : 0);
}

static struct user_process *add_process(struct user_spaces *self, uint64_t id)
{
	struct user_process **bucket = &self->buckets[id % USER_SPACE_BUCKETS], *process;

	if (self->process_count == USER_PROCESSES_MAX)
		return NULL;
	process = calloc(1, sizeof(*process));
	if (!process)
		return NULL;
	process->id = id;
	process->next = *bucket;
	*bucket = process;
	self->process_count++;
	return process;
}

struct user_space *user_spaces_add(struct user_spaces *self, struct user_process *process,
				   unsigned at, uint64_t root, uint64_t first_ns)
{
	struct user_space *space;

	if (process->count == USER_SPACES_MAX)
		return NULL;
	space = calloc(1, sizeof(*space));
	if (!space)
		return NULL;
	space->process = process->id;
	space->number = ++self->next_number;
	space->root = root;
	space->first_ns = first_ns;
	space->announce = self->forgotten;
	for (unsigned i = 0; i < process->count; i++)
		if (user_spaces_root(self, process->spaces[i]->root) ==
		    user_spaces_root(self, root))
			space->announce = true;
	intern_init(&space->seen, sizeof(struct user_address), sizeof(struct user_address));
	intern_init(&space->functions, sizeof(uint64_t), sizeof(uint64_t));
	memmove(process->spaces + at + 1, process->spaces + at,
		(process->count - at) * sizeof(process->spaces[0]));
	process->spaces[at] = space;
	process->count++;
	if (at > 0)
		process->spaces[at - 1]->current = false;
	space->current = at + 1 == process->count;
	return space;
}

struct user_space *user_spaces_at(struct user_spaces *self, uint64_t id, uint64_t root,
				  uint64_t time, bool *added)
{
	struct user_process *process = user_spaces_process(self, id);
	struct user_space *before, *after;
	unsigned at;

	if (!process)
		process = add_process(self, id);
	if (!process)
		return NULL;
	if (time > process->last_ns)
		process->last_ns = time;
	/* Nearly always the current one. */
	at = process->count;
	while (at > 0 && process->spaces[at - 1]->first_ns > time)
		at--;
	before = at > 0 ? process->spaces[at - 1] : NULL;
	after = at < process->count ? process->spaces[at] : NULL;
	if (process->renamed && !after) {
		process->renamed = false;
		if (before && before->first_ns < time)
			before = NULL;
	}
	if (before && user_spaces_root(self, before->root) == user_spaces_root(self, root))
		return before;
	/* Samples of different vCPUs are not in order. */
	if (after && !after->ambiguous &&
	    user_spaces_root(self, after->root) == user_spaces_root(self, root)) {
		if (!after->written)
			after->first_ns = time;
		return after;
	}
	*added = true;
	return user_spaces_add(self, process, at, root, time);
}

void user_spaces_see(struct user_spaces *self, struct user_space *space, uint64_t address,
		     bool leaf)
{
	const struct user_address key = {.address = address, .leaf = leaf};
	size_t before = space->seen.count;
	uint32_t number;

	if (address && !space->ambiguous && before < USER_SPACE_ADDRESSES_MAX &&
	    self->address_count < USER_ADDRESSES_MAX && intern_add(&space->seen, &key, &number))
		self->address_count += space->seen.count - before;
}

bool user_space_take(struct user_space *space)
{
	const struct user_address *seen = space->seen.entries;
	size_t left = space->seen.count - space->taken;
	size_t count = left < TAKEN_AT_ONCE ? left : TAKEN_AT_ONCE;

	if (space->waiting_capacity - space->waiting_count < count) {
		size_t capacity = space->waiting_capacity * 2 + count;
		struct sampled_address *larger =
			realloc(space->waiting, capacity * sizeof(*larger));

		if (!larger)
			return false;
		space->waiting = larger;
		space->waiting_capacity = capacity;
	}
	for (size_t i = 0; i < count; i++, space->taken++)
		space->waiting[space->waiting_count++] =
			(struct sampled_address){.address = seen[space->taken].address,
						 .leaf = seen[space->taken].leaf,
						 .latest_ns = space->last_ns};
	if (count)
		space->next_waiting_ns = 0;
	return count > 0;
}
