#include "naming/user_names.h"

#include "base/clock.h"
#include "fxt/code.h"
#include "fxt/record.h"
#include "naming/user_look.h"

#include <pthread.h>
#include <stdlib.h>

#define PROCESS_NAMES 8192u
#define SPACES_OF_A_LOOK 64u
/* After so long no sample is read any more that a snapshot holds for. */
#define TRIM_NS NS_PER_SECOND
#define SKIPPED_NS (2 * NS_PER_SECOND) /* more than any wait */

struct user_names {
	struct linux_guest *guest;
	/* The learner's. */
	struct user_look *look;
	unsigned next_list; /* where the next look begins */
	uint64_t skipped_ns;

	pthread_mutex_t lock; /* the rest, and what user_space.h says */
	struct user_spaces spaces;
	bool isolation_known;
	bool has_output;
	uint64_t output_words; /* at most so many wait for user_names_write() */
	/* Names as they came; a place is shared by processes, the last one has it. */
	struct {
		uint64_t process;
		uint64_t hash;
	} names[PROCESS_NAMES];
};

struct user_names *user_names_create(struct linux_guest *guest)
{
	struct user_names *self = calloc(1, sizeof(*self));

	if (!self)
		return NULL;
	self->look = user_look_create();
	if (!self->look) {
		free(self);
		return NULL;
	}
	self->guest = guest;
	pthread_mutex_init(&self->lock, NULL);
	return self;
}

void user_names_destroy(struct user_names *self)
{
	if (!self)
		return;
	user_spaces_deinit(&self->spaces);
	user_look_destroy(self->look);
	pthread_mutex_destroy(&self->lock);
	free(self);
}

/* The reader thread. */

bool user_names_see_sample(struct user_names *self, const struct fxt_sample *sample)
{
	const uint64_t needed = FXT_SAMPLE_PROCESS | FXT_SAMPLE_TIMESTAMP | FXT_SAMPLE_STACK |
				FXT_SAMPLE_ADDRESS_SPACE;
	size_t first = sample->mode == FXT_MODE_GUEST_USER        ? 0
		       : sample->flags & FXT_SAMPLE_KERNEL_FRAMES ? sample->kernel_frames
								  : sample->depth;
	struct user_space *space;
	bool added = false;

	if ((sample->flags & needed) != needed || !sample->process || first >= sample->depth)
		return false;
	pthread_mutex_lock(&self->lock);
	space = user_spaces_at(&self->spaces, sample->process,
			       sample->address_space & X86_TABLE_ADDRESS, sample->timestamp,
			       &added);
	self->has_output = self->has_output || added;
	if (space) {
		space->resampled = true;
		if (sample->timestamp > space->last_ns)
			space->last_ns = sample->timestamp;
	}
	/* The first user frame is where the program stands, the others are return addresses: behind
	 * their calls, which may be the functions' last bytes. */
	for (size_t i = first; space && i < sample->depth; i++)
		user_spaces_see(&self->spaces, space, sample->stack[i] - (i > first), i == first);
	pthread_mutex_unlock(&self->lock);
	return added;
}

void user_names_see_process(struct user_names *self, uint64_t process, const char *name,
			    size_t size)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
	struct user_space *current;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ (uint8_t)name[i]) * UINT64_C(0x100000001b3);
	pthread_mutex_lock(&self->lock);
	if (self->names[process % PROCESS_NAMES].process == process &&
	    self->names[process % PROCESS_NAMES].hash != hash) {
		current = user_spaces_current(&self->spaces, process);
		if (current)
			current->renamed = true;
	}
	self->names[process % PROCESS_NAMES].process = process;
	self->names[process % PROCESS_NAMES].hash = hash;
	pthread_mutex_unlock(&self->lock);
}

/* Where a record has its time. All are ours: blobs of symbols and of code, and module and mapping
 * records, whose second word it is. */
static size_t time_word(uint64_t header)
{
	if (fxt_header_type(header) != FXT_TYPE_BLOB)
		return 1;
	return fxt_bits(header, 16, 31) == FXT_STRING_PROCESS_SYMBOLS
		       ? FXT_PROCESS_SYMBOLS_VALID_FROM
		       : FXT_CODE_VALID_FROM;
}

static void write_space(const struct user_spaces *spaces, struct user_space *space,
			const struct user_names_output *output)
{
	const struct fxt_process_symbols beginning = {
		.process = space->process,
		.address_space = user_spaces_root(spaces, space->root) |
				 (spaces->isolated ? FXT_ADDRESS_SPACE_ISOLATED : 0),
		.valid_from = space->first_ns};
	uint64_t *words = space->words.items, empty[8];
	size_t taken;

	if (space->announce)
		output->write(output->context, empty,
			      fxt_process_symbols_encode(&beginning, NULL, 0, empty, 8, &taken));
	space->written = space->written || space->announce;
	space->announce = false;
	if (space->looked_at)
		return;
	for (size_t at = 0; at < space->words.count; at += fxt_header_words(words[at]))
		words[at + time_word(words[at])] = space->first_ns;
	if (space->words.count) {
		output->write(output->context, words, space->words.count);
		space->written = true;
	}
	for (size_t i = 0; i < space->named.count; i++)
		output->named(output->context, space->named.items[i]);
	vector_deinit(&space->words);
	vector_deinit(&space->named);
}

void user_names_write(struct user_names *self, const struct user_names_output *output)
{
	bool writes;

	pthread_mutex_lock(&self->lock);
	/* How address spaces are written is known from the first look on. */
	writes = self->has_output && self->isolation_known;
	for (unsigned i = 0; writes && i < USER_SPACE_LISTS; i++)
		for (struct user_space *at = self->spaces.lists[i]; at; at = at->next)
			write_space(&self->spaces, at, output);
	if (writes) {
		self->has_output = false;
		self->output_words = 0;
	}
	pthread_mutex_unlock(&self->lock);
}

/* The learner thread. */

/* A space whose samples are of two programs since it was looked at last: they belong to one without
 * names, and those from now on to a new one. */
static void end_space(struct user_names *self, struct user_space *space, uint64_t now)
{
	struct user_space **list = user_spaces_list(&self->spaces, space->process);
	uint64_t ended =
		space->verified_ns > space->first_ns ? space->verified_ns : space->first_ns;
	struct user_space *between;

	if (!space->current || now <= ended)
		return;
	between = user_spaces_add(&self->spaces, list, space->process, space->root, ended + 1);
	if (!between)
		return;
	space->ended_ns = ended;
	between->ambiguous = true;
	user_spaces_add(&self->spaces, list, space->process, space->root,
			now > ended + 1 ? now : ended + 2);
}

static bool is_due(struct user_space *space, uint64_t now)
{
	bool due;

	if (space->ambiguous || (!space->current && !space->snapshot.mappings.count))
		return false;
	due = user_space_take(space) || (space->waiting.count && now >= space->next_waiting_ns) ||
	      (space->resampled && space->identified && space->current);
	space->resampled = space->resampled && !due;
	return due;
}

static unsigned take_due(struct user_names *self, uint64_t clock, uint64_t now,
			 struct user_space **due)
{
	unsigned count = 0, list = 0;

	for (; list < USER_SPACE_LISTS && count < SPACES_OF_A_LOOK; list++) {
		struct user_space *at =
			self->spaces.lists[(self->next_list + list) % USER_SPACE_LISTS];

		for (; at && count < SPACES_OF_A_LOOK; at = at->next) {
			at->looked_at = is_due(at, now);
			if (at->looked_at)
				due[count++] = at;
			else if (!at->snapshot.trimmed && clock > at->snapshot.taken_ns + TRIM_NS)
				mapping_snapshot_trim(&at->snapshot);
		}
	}
	self->next_list = (self->next_list + list) % USER_SPACE_LISTS;
	return count;
}

bool user_names_look(struct user_names *self)
{
	uint64_t clock = boot_ns(), now = clock + self->skipped_ns;
	struct user_space *due[SPACES_OF_A_LOOK];
	unsigned count = 0;
	bool can_look = user_look_begin(self->look, self->guest);

	pthread_mutex_lock(&self->lock);
	user_spaces_make_room(&self->spaces);
	if (can_look) {
		self->isolation_known = true;
		self->spaces.isolated = user_look_isolated(self->look);
	}
	if (can_look && self->output_words <= USER_OUTPUT_MAX)
		count = take_due(self, clock, now, due);
	pthread_mutex_unlock(&self->lock);
	if (!count)
		return false;
	user_look_at(self->look, due, count, clock, now);
	clock = boot_ns();
	pthread_mutex_lock(&self->lock);
	for (unsigned i = 0; i < count; i++) {
		if (due[i]->replaced)
			end_space(self, due[i], clock);
		due[i]->looked_at = due[i]->replaced = false;
		self->output_words += due[i]->words.count;
	}
	self->has_output = true;
	pthread_mutex_unlock(&self->lock);
	return true;
}

void user_names_skip_waits(struct user_names *self)
{
	self->skipped_ns += SKIPPED_NS;
}

struct code_totals user_names_code_totals(const struct user_names *self)
{
	return user_look_code_totals(self->look);
}
