#include "sampler/task_names.h"

#include "fxt/writer.h"

#include <string.h>

/* Two names, the longest, and a drop record in front. */
#define NAME_WORDS 24
#define ROOM_WORDS (2 * NAME_WORDS + 8)

static struct fxt_string text_of(const char *name, size_t size)
{
	return (struct fxt_string){.text = name, .length = (uint16_t)strnlen(name, size)};
}

/* Whether `entry` already says this; if not, it does now. */
static bool is_written(struct task_name *entry, int32_t id, int32_t process,
		       const char name[static LINUX_TASK_NAME_SIZE])
{
	if (entry->known && entry->id == id && entry->process == process &&
	    !memcmp(entry->name, name, sizeof(entry->name)))
		return true;
	*entry = (struct task_name){.known = true, .id = id, .process = process};
	memcpy(entry->name, name, sizeof(entry->name));
	return false;
}

static void write_process(struct fxt_ring *ring, int32_t id, const char *name, size_t size,
			  uint64_t now)
{
	uint64_t words[NAME_WORDS];
	size_t used = fxt_encode_process_name((uint32_t)id, text_of(name, size), words, NAME_WORDS);

	fxt_ring_write(ring, words, used, now);
}

static void write_thread(struct fxt_ring *ring, const struct linux_task *task, const char *name,
			 size_t size, uint64_t now)
{
	uint64_t words[NAME_WORDS];
	size_t used = fxt_encode_thread_name((uint32_t)task->pid, (uint32_t)task->tid,
					     text_of(name, size), words, NAME_WORDS);

	fxt_ring_write(ring, words, used, now);
}

void task_names_write(struct task_names *names, struct fxt_ring *ring,
		      const struct linux_task_layout *layout, const struct guest_memory *memory,
		      struct translation_cache *cache, const struct linux_task *task, size_t words,
		      uint64_t now)
{
	struct task_name *thread = &names->threads[(uint32_t)task->tid % TASK_NAMES_THREADS];
	struct task_name *process = &names->processes[(uint32_t)task->pid % TASK_NAMES_PROCESSES];
	char own[LINUX_TASK_NAME_SIZE], leader[LINUX_TASK_NAME_SIZE];
	char whole[LINUX_TASK_LONG_NAME_SIZE];
	const char *name = own;
	size_t size = sizeof(own);

	memcpy(own, task->name, sizeof(own));
	if (task->idle) {
		memset(own, 0, sizeof(own));
		memcpy(own, TASK_NAMES_IDLE, sizeof(TASK_NAMES_IDLE));
	}
	/* Nearly always: nothing is new. A process is as its first thread's name says; seen through
	 * another thread it is asked for its name once. */
	if (thread->known && thread->id == task->tid && thread->process == task->pid &&
	    !memcmp(thread->name, own, sizeof(own)) && process->known && process->id == task->pid)
		return;
	if (ring->size - fxt_ring_size_available(ring) < (ROOM_WORDS + words) * sizeof(uint64_t))
		return;
	if (task->kernel_thread && !task->idle &&
	    linux_task_long_name(layout, memory, cache, task->address, whole)) {
		name = whole;
		size = sizeof(whole);
	}
	if (task->pid == task->tid) {
		if (!is_written(process, task->pid, 0, own))
			write_process(ring, task->pid, name, size, now);
	} else if ((!process->known || process->id != task->pid) &&
		   linux_task_name(layout, memory, cache, task->leader, leader) &&
		   !is_written(process, task->pid, 0, leader)) {
		write_process(ring, task->pid, leader, sizeof(leader), now);
	}
	if (!is_written(thread, task->tid, task->pid, own))
		write_thread(ring, task, name, size, now);
}
