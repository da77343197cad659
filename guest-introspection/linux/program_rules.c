#include "guest-introspection/linux/program_rules.h"

#include <stdlib.h>

/* A program is prepared anew when stacks of it still end early: it may have mapped more meanwhile,
 * or more of its files may be at hand. Less and less often. */
#define FIRST_WAIT_NS UINT64_C(500000000)
#define LONGEST_WAIT_NS UINT64_C(16000000000)
/* But soon, when a file is being looked for outside the guest. */
#define AWAITED_WAIT_NS UINT64_C(100000000)

static void retire(struct program_rules *rules, struct eh_frame_process *process)
{
	if (process)
		rules->retired[rules->retired_count++] = process;
}

void program_rules_free_retired(struct program_rules *rules)
{
	for (unsigned i = 0; i < rules->retired_count; i++)
		eh_frame_process_destroy(rules->files, rules->retired[i]);
	rules->retired_count = 0;
}

void program_rules_deinit(struct program_rules *rules)
{
	program_rules_free_retired(rules);
	for (unsigned i = 0; i < rules->count; i++)
		eh_frame_process_destroy(rules->files, rules->entries[i].process);
	eh_frame_files_destroy(rules->files);
	*rules = (struct program_rules){0};
}

/* The entry of `mm`, or a new one, in whose place somebody else's may have been. */
static struct program_rules_entry *entry_of(struct program_rules *rules, uint64_t mm)
{
	struct program_rules_entry *oldest = &rules->entries[0];

	for (unsigned i = 0; i < rules->count; i++) {
		if (rules->entries[i].mm == mm)
			return &rules->entries[i];
		if (rules->entries[i].asked_ns < oldest->asked_ns)
			oldest = &rules->entries[i];
	}
	if (rules->count < PROGRAM_RULES_MAX)
		oldest = &rules->entries[rules->count++];
	else
		retire(rules, oldest->process);
	*oldest = (struct program_rules_entry){.mm = mm, .wait_ns = FIRST_WAIT_NS};
	return oldest;
}

bool program_rules_want(struct program_rules *rules, const struct linux_mappings *mappings,
			const struct linux_page_cache *cache, struct file_copies *copies,
			uint64_t mm, uint64_t now)
{
	struct program_rules_entry *entry;
	struct eh_frame_process *process;
	struct error error;
	gp_status_t status;
	uint64_t stack = 0;

	/* Room for what this may take off the list: the entry's own and the oldest. */
	if (rules->retired_count + 2 > PROGRAM_RULES_MAX ||
	    (!rules->files && eh_frame_files_create(&rules->files, &error)))
		return false;
	entry = entry_of(rules, mm);
	entry->asked_ns = now;
	/* The kernel has given the struct to another process. Its rules are to be had at once, as
	 * for any new one. */
	if (linux_mappings_stack(mappings, mm, &stack) && stack != entry->stack) {
		entry->stack = stack;
		entry->again_ns = 0;
		entry->wait_ns = FIRST_WAIT_NS;
	}
	if (now < entry->again_ns)
		return false;
	status = eh_frame_process_create(rules->files, mappings, cache, copies, mm, &process,
					 &error);
	if (status ? status == GP_ERR_UNAVAILABLE : eh_frame_process_counts(process).awaited) {
		entry->again_ns = now + AWAITED_WAIT_NS;
	} else {
		entry->again_ns = now + entry->wait_ns;
		if (entry->wait_ns < LONGEST_WAIT_NS)
			entry->wait_ns *= 2;
	}
	if (status)
		return false;
	retire(rules, entry->process);
	entry->process = process;
	return true;
}

static int compare(const void *left, const void *right)
{
	const struct unwind_program *const *a = left, *const *b = right;

	return (*a)->mm < (*b)->mm ? -1 : (*a)->mm > (*b)->mm;
}

unsigned program_rules_list(const struct program_rules *rules,
			    const struct unwind_program *list[static PROGRAM_RULES_MAX])
{
	unsigned count = 0;

	for (unsigned i = 0; i < rules->count; i++)
		if (rules->entries[i].process)
			list[count++] = eh_frame_process_program(rules->entries[i].process);
	qsort(list, count, sizeof(*list), compare);
	return count;
}
