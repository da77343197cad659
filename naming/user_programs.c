#include "naming/user_programs.h"

#include <stdlib.h>
#include <string.h>

static void free_generation(struct user_programs *programs, struct generation *generation)
{
	programs->address_count -= generation->addresses.count;
	address_set_deinit(&generation->addresses);
	free(generation->places);
	free(generation->kept);
	free(generation);
}

static void free_process(struct user_programs *programs, struct process *process)
{
	for (unsigned i = 0; i < process->count; i++)
		free_generation(programs, process->generations[i]);
	free(process);
}

void user_programs_deinit(struct user_programs *programs)
{
	for (unsigned i = 0; i < USER_PROGRAMS_BUCKETS; i++) {
		while (programs->buckets[i]) {
			struct process *process = programs->buckets[i];

			programs->buckets[i] = process->next;
			free_process(programs, process);
		}
	}
}

static struct process **bucket_of(struct user_programs *programs, uint64_t id)
{
	return &programs->buckets[id % USER_PROGRAMS_BUCKETS];
}

struct process *user_programs_find(const struct user_programs *programs, uint64_t id)
{
	struct process *process = programs->buckets[id % USER_PROGRAMS_BUCKETS];

	while (process && process->id != id)
		process = process->next;
	return process;
}

struct generation *user_programs_find_generation(const struct process *process, uint64_t number)
{
	for (unsigned i = 0; process && i < process->count; i++)
		if (process->generations[i]->number == number)
			return process->generations[i];
	return NULL;
}

void user_programs_forget_oldest(struct user_programs *programs)
{
	struct process **oldest = NULL, *process;

	for (unsigned i = 0; i < USER_PROGRAMS_BUCKETS; i++)
		for (struct process **at = &programs->buckets[i]; *at; at = &(*at)->next)
			if (!oldest || (*at)->last_ns < (*oldest)->last_ns)
				oldest = at;
	if (!oldest)
		return;
	process = *oldest;
	*oldest = process->next;
	free_process(programs, process);
	programs->process_count--;
	programs->forgotten = true;
}

struct process *user_programs_add(struct user_programs *programs, uint64_t id)
{
	struct process *process = calloc(1, sizeof(*process)), **bucket = bucket_of(programs, id);

	if (!process)
		return NULL;
	if (programs->process_count >= USER_PROCESSES_MAX)
		user_programs_forget_oldest(programs);
	process->id = id;
	process->next = *bucket;
	*bucket = process;
	programs->process_count++;
	return process;
}

static bool is_same_root(const struct user_programs *programs, uint64_t a, uint64_t b)
{
	uint64_t mask = USER_PAGE_TABLES & ~(programs->isolated ? USER_ISOLATED_TABLES : 0);

	return (a & mask) == (b & mask);
}

struct generation *user_programs_add_generation(struct user_programs *programs,
						struct process *process, unsigned at, uint64_t root,
						uint64_t first_ns)
{
	struct generation *generation = calloc(1, sizeof(*generation));
	bool tell = programs->forgotten;

	if (!generation)
		return NULL;
	if (process->count == USER_GENERATIONS_MAX) {
		if (at == 0) {
			free(generation);
			return NULL;
		}
		free_generation(programs, process->generations[0]);
		process->count--;
		at--;
		memmove(process->generations, process->generations + 1,
			process->count * sizeof(process->generations[0]));
		programs->forgotten = tell = true;
	}
	for (unsigned i = 0; i < process->count && !tell; i++)
		tell = is_same_root(programs, process->generations[i]->root, root);
	*generation = (struct generation){.number = ++programs->next_number,
					  .root = root,
					  .first_ns = first_ns,
					  .tell = tell};
	memmove(process->generations + at + 1, process->generations + at,
		(process->count - at) * sizeof(process->generations[0]));
	process->generations[at] = generation;
	process->count++;
	return generation;
}

struct generation *user_programs_generation_at(struct user_programs *programs,
					       struct process *process, uint64_t root,
					       uint64_t time, bool *added)
{
	unsigned at = process->count;
	struct generation *before, *after;

	/* Nearly always the latest. */
	while (at > 0 && process->generations[at - 1]->first_ns > time)
		at--;
	before = at > 0 ? process->generations[at - 1] : NULL;
	after = at < process->count ? process->generations[at] : NULL;
	if (process->renamed && !after) {
		process->renamed = false;
		if (before && before->first_ns < time)
			before = NULL;
	}
	if (before && is_same_root(programs, before->root, root))
		return before;
	/* Samples of different vCPUs are not in order. */
	if (after && !after->nameless && is_same_root(programs, after->root, root)) {
		if (!after->written)
			after->first_ns = time;
		return after;
	}
	*added = true;
	return user_programs_add_generation(programs, process, at, root, time);
}

void user_programs_see(struct user_programs *programs, struct generation *generation,
		       uint64_t address, bool stood)
{
	size_t place, before = generation->addresses.count;

	if (!address || generation->nameless || before >= USER_PROGRAM_ADDRESSES_MAX ||
	    !address_set_place(&generation->addresses, address, &place))
		return;
	if (stood)
		generation->addresses.marks[place] |= USER_STOOD;
	if (generation->addresses.count == before)
		return;
	generation->new_count++;
	programs->address_count++;
}
