#include "naming/user_namer.h"

#include "base/clock.h"
#include "fxt/code.h"
#include "fxt/record.h"
#include "sampler/session.h"
#include "naming/user_programs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define NAMES 8192u
#define WORK_MAX 64u             /* generations of one look */
#define WORK_ADDRESSES_MAX 1024u /* of a generation, at one look */
#define KEEPERS 512u             /* generations whose mappings are kept */
#define ATTEMPTS_MAX 3u
#define RETRY_NS NS_PER_SECOND
/* A process that is not found with its page tables, one whose mappings give nothing, and one of
 * which a file is being looked for. */
#define GONE_NS (200 * NS_PER_MILLISECOND)
#define NOTHING_NS NS_PER_SECOND
#define AWAITED_NS (50 * NS_PER_MILLISECOND)

/* What the reader thread is to write: of one generation. No words: only that it began. */
struct item {
	uint64_t process;
	uint64_t number;
	struct user_words words;
	uint64_t *named;
	size_t named_count;
	struct item *next;
};

struct user_namer {
	struct linux_guest *view;
	struct user_resolver *resolver; /* learner thread */

	pthread_mutex_t lock; /* the rest */
	struct user_programs programs;
	bool isolation_known;
	unsigned next_bucket; /* where the next look begins */
	struct item *first_item;
	struct item **last_item;
	uint64_t waiting_words;
	/* Generations of which something is kept, the last ones. */
	struct {
		uint64_t process;
		uint64_t number;
	} keepers[KEEPERS];
	unsigned next_keeper;
	/* Names as they came; a place is shared by processes, the last one has it. */
	struct {
		uint64_t process;
		uint64_t hash;
	} names[NAMES];
};

struct user_namer *user_namer_create(struct linux_guest *view)
{
	struct user_namer *namer = calloc(1, sizeof(*namer));

	if (!namer)
		return NULL;
	namer->resolver = user_resolver_create();
	if (!namer->resolver) {
		free(namer);
		return NULL;
	}
	namer->view = view;
	namer->last_item = &namer->first_item;
	pthread_mutex_init(&namer->lock, NULL);
	return namer;
}

static void free_item(struct item *item)
{
	user_words_deinit(&item->words);
	free(item->named);
	free(item);
}

void user_namer_destroy(struct user_namer *namer)
{
	if (!namer)
		return;
	user_programs_deinit(&namer->programs);
	while (namer->first_item) {
		struct item *item = namer->first_item;

		namer->first_item = item->next;
		free_item(item);
	}
	user_resolver_destroy(namer->resolver);
	pthread_mutex_destroy(&namer->lock);
	free(namer);
}

static struct item *add_item(struct user_namer *namer, uint64_t process, uint64_t number)
{
	struct item *item = calloc(1, sizeof(*item));

	if (!item)
		return NULL;
	item->process = process;
	item->number = number;
	*namer->last_item = item;
	namer->last_item = &item->next;
	return item;
}

static bool is_of_a_program(const struct fxt_sample *sample)
{
	const uint64_t needed = FXT_SAMPLE_PROCESS | FXT_SAMPLE_TIMESTAMP | FXT_SAMPLE_STACK |
				FXT_SAMPLE_ADDRESS_SPACE;

	return (sample->flags & needed) == needed && sample->process;
}

/* Generations that have begun and are to be told of. */
static void tell_of(struct user_namer *namer, struct process *process)
{
	for (unsigned i = 0; i < process->count; i++) {
		struct generation *generation = process->generations[i];

		if (generation->tell && !add_item(namer, process->id, generation->number))
			generation->nameless = true;
		generation->tell = false;
	}
}

bool user_namer_see_sample(struct user_namer *namer, const struct fxt_sample *sample)
{
	size_t first = sample->mode == FXT_MODE_GUEST_USER        ? 0
		       : sample->flags & FXT_SAMPLE_KERNEL_FRAMES ? sample->kernel_frames
								  : sample->depth;
	struct user_programs *programs = &namer->programs;
	struct generation *generation;
	struct process *process;
	bool added = false;

	if (!is_of_a_program(sample) || first >= sample->depth)
		return false;
	pthread_mutex_lock(&namer->lock);
	if (programs->address_count >= USER_ADDRESSES_MAX)
		user_programs_forget_oldest(programs);
	process = user_programs_find(programs, sample->process);
	if (!process)
		process = user_programs_add(programs, sample->process);
	if (process) {
		if (sample->timestamp > process->last_ns)
			process->last_ns = sample->timestamp;
		generation = user_programs_generation_at(programs, process,
							 sample->address_space & USER_PAGE_TABLES,
							 sample->timestamp, &added);
		if (added)
			tell_of(namer, process);
		if (generation) {
			generation->fresh = true;
			generation->attempts = 0;
		}
		/* The first user frame is where the program stands, the others are return
		 * addresses: behind their calls, which may be the functions' last bytes. */
		for (size_t i = first; generation && i < sample->depth; i++)
			user_programs_see(programs, generation, sample->stack[i] - (i > first),
					  i == first);
	}
	pthread_mutex_unlock(&namer->lock);
	return added;
}

void user_namer_see_name(struct user_namer *namer, uint64_t process, const char *name, size_t size)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
	struct process *known;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ (uint8_t)name[i]) * UINT64_C(0x100000001b3);
	pthread_mutex_lock(&namer->lock);
	if (namer->names[process % NAMES].process == process &&
	    namer->names[process % NAMES].hash != hash) {
		known = user_programs_find(&namer->programs, process);
		if (known)
			known->renamed = true;
	}
	namer->names[process % NAMES].process = process;
	namer->names[process % NAMES].hash = hash;
	pthread_mutex_unlock(&namer->lock);
}

/* Writing. */

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

static void write_item(struct user_namer *namer, struct item *item,
		       const struct user_namer_output *output)
{
	struct generation *generation = user_programs_find_generation(
		user_programs_find(&namer->programs, item->process), item->number);
	struct user_words *words = &item->words;
	size_t at = 0;

	if (!generation)
		return;
	if (!words->count) {
		uint64_t root =
			generation->root & ~(namer->programs.isolated ? USER_ISOLATED_TABLES : 0);
		const struct fxt_process_symbols process = {
			.process = item->process,
			.address_space =
				root | (namer->programs.isolated ? FXT_ADDRESS_SPACE_ISOLATED : 0),
			.valid_from = generation->first_ns};
		uint64_t empty[8];
		size_t taken;

		output->write(output->context, empty,
			      fxt_process_symbols_encode(&process, NULL, 0, empty, 8, &taken));
		generation->written = true;
		return;
	}
	while (at < words->count) {
		words->words[at + time_word(words->words[at])] = generation->first_ns;
		at += fxt_header_words(words->words[at]);
	}
	output->write(output->context, words->words, words->count);
	generation->written = true;
	for (size_t i = 0; i < item->named_count; i++)
		output->named(output->context, item->named[i]);
}

void user_namer_write(struct user_namer *namer, const struct user_namer_output *output)
{
	pthread_mutex_lock(&namer->lock);
	/* How address spaces are written is known from the first look on. */
	while (namer->first_item && namer->isolation_known) {
		struct item *item = namer->first_item;

		write_item(namer, item, output);
		namer->first_item = item->next;
		namer->waiting_words -= item->words.count;
		free_item(item);
	}
	if (!namer->first_item)
		namer->last_item = &namer->first_item;
	pthread_mutex_unlock(&namer->lock);
}

/* Looking up. */

static int compare_addresses(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return a < b ? -1 : a > b;
}

static bool is_waiting(const struct generation *generation, uint64_t now)
{
	if (generation->nameless || generation->attempts >= ATTEMPTS_MAX ||
	    now < generation->quiet_until_ns)
		return false;
	return generation->new_count || (generation->fresh && generation->identity_known) ||
	       (generation->retry && now >= generation->retry_ns);
}

static bool is_new(uint8_t mark)
{
	return mark == USER_NEW || mark == USER_AWAITED;
}

static size_t kept_bytes(const struct user_kept *kept)
{
	return offsetof(struct user_kept, mappings) + kept->count * sizeof(*kept->mappings);
}

/* Takes what is to be looked up of a generation. False: no memory. */
static bool take_work(const struct process *process, struct generation *generation, uint64_t now,
		      struct user_work *work)
{
	struct address_set *set = &generation->addresses;
	size_t most = set->count < WORK_ADDRESSES_MAX ? set->count : WORK_ADDRESSES_MAX;
	bool again = generation->retry && now >= generation->retry_ns;
	size_t place;

	*work = (struct user_work){.number = generation->number,
				   .process = process->id,
				   .root = generation->root,
				   .identity_known = generation->identity_known,
				   .identity = generation->identity,
				   .place_count = generation->place_count};
	work->places = calloc(USER_PLACES_MAX, sizeof(*work->places));
	work->kept = calloc(1, sizeof(*work->kept));
	work->addresses = calloc(most ? most : 1, sizeof(*work->addresses));
	work->marks = calloc(most ? most : 1, sizeof(*work->marks));
	work->stood = calloc(most ? most : 1, sizeof(*work->stood));
	work->code = calloc(most ? most : 1, sizeof(*work->code));
	if (!work->places || !work->kept || !work->addresses || !work->marks || !work->stood ||
	    !work->code)
		return false;
	if (generation->kept)
		memcpy(work->kept, generation->kept, kept_bytes(generation->kept));
	if (generation->place_count)
		memcpy(work->places, generation->places,
		       generation->place_count * sizeof(*work->places));
	for (size_t i = 0; i < set->capacity && work->count < most; i++) {
		uint8_t mark = set->marks[i] & (uint8_t)~USER_STOOD;

		if (set->addresses[i] && (is_new(mark) || (again && mark == USER_MISSED)))
			work->addresses[work->count++] = set->addresses[i];
	}
	qsort(work->addresses, work->count, sizeof(*work->addresses), compare_addresses);
	for (size_t i = 0; i < work->count; i++)
		if (address_set_place(set, work->addresses[i], &place)) {
			work->stood[i] = set->marks[place] & USER_STOOD;
			if ((set->marks[place] ^ work->stood[i]) == USER_AWAITED)
				work->marks[i] = USER_AWAITED;
		}
	generation->fresh = false;
	return true;
}

static void free_work(struct user_work *work)
{
	free(work->places);
	free(work->kept);
	free(work->addresses);
	free(work->marks);
	free(work->stood);
	free(work->code);
	user_words_deinit(&work->words);
}

/* The samples since the last look that found the old program may be of either. */
static void change_program(struct user_namer *namer, struct process *process,
			   struct generation *old, uint64_t now)
{
	uint64_t ended = old->looked_ns > old->first_ns ? old->looked_ns : old->first_ns;
	uint64_t root = old->root;
	struct generation *between;

	if (process->generations[process->count - 1] != old || now <= ended)
		return;
	between = user_programs_add_generation(&namer->programs, process, process->count, root,
					       ended + 1);
	if (!between)
		return;
	between->nameless = true;
	user_programs_add_generation(&namer->programs, process, process->count, root,
				     now > ended + 1 ? now : ended + 2);
	tell_of(namer, process);
}

/* One address. Missed twice it is given up. */
static void take_mark(struct generation *generation, uint8_t *mark, uint8_t found)
{
	uint8_t stood = *mark & USER_STOOD, before = *mark ^ stood;

	if (before == USER_MISSED && found == USER_MISSED)
		found = USER_NOWHERE;
	generation->new_count += is_new(found);
	generation->new_count -= is_new(before);
	*mark = found | stood;
}

/* False: nothing is known that was not before. */
static bool take_marks(struct generation *generation, const struct user_work *work, uint64_t now)
{
	bool again = false, more = !work->count;
	size_t place;

	for (size_t i = 0; i < work->count; i++) {
		uint8_t *mark;

		if (!address_set_place(&generation->addresses, work->addresses[i], &place))
			continue;
		mark = &generation->addresses.marks[place];
		if (work->marks[i] != USER_NEW)
			take_mark(generation, mark, work->marks[i]);
		more = more || !is_new(work->marks[i]);
		again = again || (*mark & (uint8_t)~USER_STOOD) == USER_MISSED;
	}
	if (!again) {
		if (generation->retry && now >= generation->retry_ns)
			generation->retry = false;
		return more;
	}
	if (!generation->retry || now >= generation->retry_ns)
		generation->retry_ns = now + RETRY_NS;
	generation->retry = true;
	return more;
}

/* Of so many generations at a time, as that is needed for some milliseconds only. */
static void take_kept(struct user_namer *namer, struct process *process,
		      struct generation *generation, struct user_work *work)
{
	struct generation *before;

	if (generation->kept && generation->kept->walked_ns == work->kept->walked_ns)
		return;
	if (!generation->kept) {
		unsigned at = namer->next_keeper++ % KEEPERS;

		before = user_programs_find_generation(
			user_programs_find(&namer->programs, namer->keepers[at].process),
			namer->keepers[at].number);
		if (before) {
			free(before->kept);
			before->kept = NULL;
		}
		namer->keepers[at].process = process->id;
		namer->keepers[at].number = generation->number;
	}
	free(generation->kept);
	generation->kept = realloc(work->kept, kept_bytes(work->kept));
	if (generation->kept)
		work->kept = NULL;
}

static void take_words(struct user_namer *namer, struct user_work *work)
{
	struct item *item;

	if (!work->words.count)
		return;
	item = add_item(namer, work->process, work->number);
	if (!item)
		return;
	item->words = work->words;
	namer->waiting_words += work->words.count;
	work->words = (struct user_words){0};
	user_resolver_keep_code(namer->resolver, work);
	item->named = calloc(work->count ? work->count : 1, sizeof(*item->named));
	for (size_t i = 0; item->named && i < work->count; i++)
		if (work->marks[i] == USER_NAMED)
			item->named[item->named_count++] = work->addresses[i];
}

/* The look was made between two times. */
static void take_result(struct user_namer *namer, struct user_work *work, uint64_t before,
			uint64_t after)
{
	struct process *process = user_programs_find(&namer->programs, work->process);
	struct generation *generation = user_programs_find_generation(process, work->number);
	struct user_place *places;

	/* What is not the latest any more while we looked: the guest has gone on, and what was
	 * found may be of either. */
	if (!generation || generation != process->generations[process->count - 1])
		return;
	switch (work->result) {
	case USER_WAITING:
		generation->fresh = true;
		return;
	case USER_GONE:
		generation->attempts++;
		generation->quiet_until_ns = after + GONE_NS;
		return;
	case USER_CHANGED:
		change_program(namer, process, generation, after);
		return;
	case USER_LOOKED:
		generation->looked_ns = before;
		generation->identity = work->identity;
		generation->identity_known = true;
		take_kept(namer, process, generation, work);
		break;
	case USER_REMEMBERED:
		break;
	}
	if (work->place_count > generation->place_count) {
		places = realloc(generation->places, work->place_count * sizeof(*places));
		if (!places)
			return;
		memcpy(places, work->places, work->place_count * sizeof(*places));
		generation->places = places;
		generation->place_count = work->place_count;
	}
	generation->attempts = 0;
	if (!take_marks(generation, work, before))
		generation->quiet_until_ns = after + (work->awaited ? AWAITED_NS : NOTHING_NS);
	take_words(namer, work);
}

bool user_namer_resolve(struct user_namer *namer)
{
	uint64_t before = boot_ns(), after;
	struct user_work work[WORK_MAX];
	unsigned count = 0, bucket = 0;
	bool looked = false;

	pthread_mutex_lock(&namer->lock);
	if (namer->waiting_words > USER_OUTPUT_MAX) {
		pthread_mutex_unlock(&namer->lock);
		return false;
	}
	for (; bucket < USER_PROGRAMS_BUCKETS && count < WORK_MAX; bucket++) {
		struct process *process =
			namer->programs
				.buckets[(namer->next_bucket + bucket) % USER_PROGRAMS_BUCKETS];

		for (; process && count < WORK_MAX; process = process->next) {
			struct generation *latest =
				process->count ? process->generations[process->count - 1] : NULL;

			if (!latest || !is_waiting(latest, before))
				continue;
			if (take_work(process, latest, before, &work[count]))
				count++;
			else
				free_work(&work[count]);
		}
	}
	namer->next_bucket = (namer->next_bucket + bucket) % USER_PROGRAMS_BUCKETS;
	pthread_mutex_unlock(&namer->lock);
	if (count)
		looked = user_resolver_look(namer->resolver, namer->view, before, work, count);
	after = boot_ns();
	pthread_mutex_lock(&namer->lock);
	if (looked) {
		namer->isolation_known = true;
		namer->programs.isolated = user_resolver_isolated(namer->resolver);
	}
	for (unsigned i = 0; i < count; i++) {
		take_result(namer, &work[i], before, after);
		free_work(&work[i]);
	}
	pthread_mutex_unlock(&namer->lock);
	return looked;
}

struct user_code_totals user_namer_code_totals(const struct user_namer *namer)
{
	return user_resolver_code_totals(namer->resolver);
}

void user_namer_hurry(struct user_namer *namer)
{
	pthread_mutex_lock(&namer->lock);
	for (unsigned i = 0; i < USER_PROGRAMS_BUCKETS; i++)
		for (struct process *process = namer->programs.buckets[i]; process;
		     process = process->next)
			if (process->count) {
				struct generation *latest =
					process->generations[process->count - 1];

				latest->quiet_until_ns = latest->retry_ns = 0;
			}
	pthread_mutex_unlock(&namer->lock);
	user_resolver_hurry(namer->resolver);
}
