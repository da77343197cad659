#include "naming/user_space.h"

#include <stdlib.h>
#include <string.h>

#define ROOM 64u /* for new ones after a look */
#define TAKEN_AT_ONCE 1024u

static void free_space(struct user_spaces *self, struct user_space *space)
{
	self->address_count -= space->seen.count;
	hash_table_deinit(&space->seen);
	hash_table_deinit(&space->functions);
	mapping_snapshot_deinit(&space->snapshot);
	vector_deinit(&space->words);
	vector_deinit(&space->named);
	vector_deinit(&space->waiting);
	free(space);
}

static void forget(struct user_spaces *self, struct user_space **at)
{
	struct user_space *space = *at;

	*at = space->next;
	free_space(self, space);
	self->count--;
	self->forgotten = true;
}

void user_spaces_deinit(struct user_spaces *self)
{
	for (unsigned i = 0; i < USER_SPACE_LISTS; i++)
		while (self->lists[i])
			forget(self, &self->lists[i]);
}

void user_spaces_make_room(struct user_spaces *self)
{
	for (unsigned round = 0; round < ROOM && (self->count > USER_SPACES_MAX - ROOM ||
						  self->address_count > USER_ADDRESSES_MAX / 8 * 7);
	     round++) {
		struct user_space **oldest = NULL;

		for (unsigned i = 0; i < USER_SPACE_LISTS; i++)
			for (struct user_space **at = &self->lists[i]; *at; at = &(*at)->next)
				if (!oldest || (*at)->last_ns < (*oldest)->last_ns)
					oldest = at;
		forget(self, oldest);
	}
}

struct user_space *user_spaces_current(const struct user_spaces *self, uint64_t process)
{
	struct user_space *space = self->lists[process % USER_SPACE_LISTS];

	while (space && space->process != process)
		space = space->next;
	return space;
}

uint64_t user_spaces_root(const struct user_spaces *self, uint64_t root)
{
	return root & X86_TABLE_ADDRESS & ~(self->isolated ? X86_ISOLATION_BIT : 0);
}

struct user_space *user_spaces_add(struct user_spaces *self, struct user_space **at,
				   uint64_t process, uint64_t root, uint64_t first_ns)
{
	struct user_space *space = self->count < USER_SPACES_MAX ? calloc(1, sizeof(*space)) : NULL;
	bool current = true;

	if (!space)
		return NULL;
	space->process = process;
	space->number = ++self->next_number;
	space->root = root;
	space->first_ns = first_ns;
	space->announce = self->forgotten;
	hash_table_init(&space->seen, sizeof(struct user_address), sizeof(struct user_address));
	hash_table_init(&space->functions, sizeof(uint64_t), sizeof(uint64_t));
	space->next = *at;
	*at = space;
	self->count++;
	for (struct user_space *other = *user_spaces_list(self, process); other;
	     other = other->next) {
		if (other->process != process)
			continue;
		other->current = current;
		current = false;
		if (other != space &&
		    user_spaces_root(self, other->root) == user_spaces_root(self, root))
			space->announce = true;
	}
	return space;
}

struct user_space *user_spaces_at(struct user_spaces *self, uint64_t process, uint64_t root,
				  uint64_t time, bool *added)
{
	struct user_space **at = user_spaces_list(self, process), *before, *after = NULL;

	/* Nearly always the current one. */
	for (; *at && ((*at)->process != process || (*at)->first_ns > time); at = &(*at)->next)
		if ((*at)->process == process)
			after = *at;
	before = *at;
	if (before && before->renamed && !after) {
		before->renamed = false;
		if (before->first_ns < time)
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
	return user_spaces_add(self, at, process, root, time);
}

void user_spaces_see(struct user_spaces *self, struct user_space *space, uint64_t address,
		     bool leaf)
{
	const struct user_address key = {.address = address, .leaf = leaf};
	size_t before = space->seen.count;
	uint32_t number;

	if (address && !space->ambiguous && before < USER_SPACE_ADDRESSES_MAX &&
	    self->address_count < USER_ADDRESSES_MAX && hash_table_add(&space->seen, &key, &number))
		self->address_count += space->seen.count - before;
}

bool user_space_take(struct user_space *space)
{
	const struct user_address *seen = space->seen.entries;
	size_t left = space->seen.count - space->taken;
	size_t count = left < TAKEN_AT_ONCE ? left : TAKEN_AT_ONCE;

	if (!vector_reserve(&space->waiting, count))
		return false;
	for (size_t i = 0; i < count; i++, space->taken++)
		vector_add(&space->waiting,
			   (struct sampled_address){.address = seen[space->taken].address,
						    .leaf = seen[space->taken].leaf,
						    .latest_ns = space->last_ns});
	if (count)
		space->next_waiting_ns = 0;
	return count > 0;
}
