#include "attach/process_state.h"

#include "attach/proc_file.h"
#include "base/clock.h"
#include "base/container.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* A tracer that has the same thread at so many looks in a row is there to stay. */
#define TRACER_LOOKS 6
#define TRACER_LOOKS_MOST 200
#define TRACER_LOOK_NS 1500000

static bool waits_in(const char *proc, pid_t pid, pid_t thread, const char *function)
{
	char file[64], text[64];

	snprintf(file, sizeof(file), "task/%d/wchan", (int)thread);
	proc_read(proc, pid, file, text, sizeof(text));
	return !strcmp(text, function);
}

struct freezer_search {
	const char *proc;
	pid_t pid;
	bool found;
};

static bool see_frozen(void *context, pid_t thread)
{
	struct freezer_search *search = context;

	search->found = waits_in(search->proc, search->pid, thread, "__refrigerator");
	return !search->found;
}

/* The first kind of cgroups (kernel/freezer.c) freezes what sleeps where it is, as in a futex, and
 * the rest, of which vCPUs are, in a function of its own; the second kind (kernel/signal.c) all, in
 * one that compilers make a part of get_signal(), which has no other sleep of this state. */
static bool is_frozen(const char *proc, pid_t pid, char state)
{
	struct freezer_search search = {.proc = proc, .pid = pid};

	if (state == 'S')
		return waits_in(proc, pid, pid, "get_signal") ||
		       waits_in(proc, pid, pid, "do_freezer_trap");
	proc_each_thread(proc, pid, see_frozen, &search);
	return search.found;
}

enum process_state process_state(const char *proc, pid_t pid)
{
	const char *fields;
	char text[1024];

	proc_read(proc, pid, "stat", text, sizeof(text));
	fields = proc_stat_fields(text);
	switch (fields ? *fields : 0) {
	case 'T':
		return PROCESS_STOPPED;
	case 't':
		return PROCESS_HELD;
	case 'D':
	case 'S':
		return is_frozen(proc, pid, *fields) ? PROCESS_FROZEN : PROCESS_GOES_ON;
	default:
		return PROCESS_GOES_ON;
	}
}

const char *process_state_name(enum process_state state)
{
	static const char *const names[] = {
		[PROCESS_GOES_ON] = "going on",
		[PROCESS_STOPPED] = "stopped (SIGSTOP)",
		[PROCESS_HELD] = "held by a debugger",
		[PROCESS_FROZEN] = "frozen (by its cgroup)",
	};

	return (unsigned)state < ARRAY_SIZE(names) ? names[state] : "unknown";
}

struct tracer_search {
	const char *proc;
	pid_t pid;
	pid_t thread;
	uint64_t tracer;
};

static bool see_tracer(void *context, pid_t thread)
{
	struct tracer_search *search = context;

	if (!proc_thread_field(search->proc, search->pid, thread, "TracerPid", 10, &search->tracer))
		search->tracer = 0;
	search->thread = thread;
	return !search->tracer;
}

pid_t process_tracer(const char *proc, pid_t pid)
{
	struct tracer_search search = {.proc = proc, .pid = pid};

	/* Each thread may be traced by itself. */
	proc_each_thread(proc, pid, see_tracer, &search);
	return (pid_t)search.tracer;
}

pid_t process_lasting_tracer(const char *proc, pid_t pid)
{
	struct tracer_search search = {.proc = proc, .pid = pid};
	unsigned in_a_row = 0;
	pid_t thread = 0;

	for (unsigned look = 0; look < TRACER_LOOKS_MOST && in_a_row < TRACER_LOOKS; look++) {
		/* The same thread first: of many another one is always stopped just now. */
		if (!thread || see_tracer(&search, thread))
			proc_each_thread(proc, pid, see_tracer, &search);
		if (!search.tracer)
			return 0;
		in_a_row = search.thread == thread ? in_a_row + 1 : 1;
		thread = search.thread;
		sleep_ns(TRACER_LOOK_NS);
	}
	return in_a_row < TRACER_LOOKS ? 0 : (pid_t)search.tracer;
}
