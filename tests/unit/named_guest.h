/* A memory image of a real guest whose programs are to be named: its threads, what a known call
 * tree says that their functions are called, samples made by hand, and the trace that comes of
 * them. */
#ifndef TESTS_UNIT_NAMED_GUEST_H
#define TESTS_UNIT_NAMED_GUEST_H

#include "base/cleanup.h"
#include "fxt/writer.h"
#include "guest-introspection/linux/linux_reader.h"
#include "trace/trace.h"
#include "guest-introspection/linux/linux_guest.h"
#include "naming/user_names.h"
#include "tests/unit/fake_target.h"
#include "tests/unit/tasks_image.h"

static struct tasks_image image;
static struct fake_target fake;
static struct linux_guest *guest;
static struct user_names *namer;
static struct trace trace;
static uint64_t *file;
static size_t file_words;
static uint64_t named_count;

/* Threads of the guest. */

struct thread {
	uint64_t task;
	uint64_t mm;
	uint64_t root;
	int32_t pid;
	int32_t tid;
};

static struct thread threads[2048];
static unsigned thread_count;

static inline bool note_thread(void *context, const struct linux_task *task)
{
	struct address_space space;
	struct thread *thread = &threads[thread_count];

	(void)context;
	if (!task->mm || !linux_mappings_space(&image.mappings, task->mm, &space))
		return true;
	*thread = (struct thread){.task = task->address,
				  .mm = task->mm,
				  .root = space.root,
				  .pid = task->pid,
				  .tid = task->tid};
	return ++thread_count < ARRAY_SIZE(threads);
}

static inline const struct thread *thread_of(unsigned tid)
{
	for (unsigned i = 0; i < thread_count; i++)
		if (threads[i].tid == (int32_t)tid)
			return &threads[i];
	return NULL;
}

/* A write into the private copy of the image. */
static inline void forge(uint64_t address, uint64_t value)
{
	struct translation translation;

	cr_assert_eq(guest_translate(&image.base.kernel.space, image.base.memory, gva(address),
				     &translation),
		     TRANSLATE_OK);
	cr_assert_lt(translation.gpa.value, image.base.image.memory.size - 8);
	memcpy(image.base.image.memory.bytes + translation.gpa.value, &value, sizeof(value));
}

static inline uint64_t peek(uint64_t address)
{
	uint64_t value;

	cr_assert(prepared_image_read(&image.base, address, &value, sizeof(value)));
	return value;
}

/* Where a process's mappings hang: a maple tree, or the list before 6.1. */
static inline uint64_t mappings_root(const struct thread *thread)
{
	return thread->mm + (guest->programs.mappings.mm_tree != LINUX_MEMBER_MISSING
				     ? guest->programs.mappings.mm_tree
				     : guest->programs.mappings.mm_list);
}

static inline bool open_image(const char *name)
{
	bool known[IMAGE_CPUS];

	if (!tasks_image_init(&image, name))
		return false;
	cr_assert_eq(mprotect(image.base.image.memory.bytes, image.base.image.memory.size,
			      PROT_READ | PROT_WRITE),
		     0);
	fake_target_init(&fake, 1);
	fake.image = image.base.memory;
	fake.cpus = image.base.image.cpus;
	guest = sampler_target_guest(&fake.target);
	memset(known, true, sizeof(known));
	for (int i = 0; i < 3; i++)
		linux_guest_learn(guest, image.base.image.cpus, known, image.base.image.cpu_count,
				  NULL);
	cr_assert(!guest->missing.programs.status && guest->settled, "%s",
		  guest->missing.programs.text);
	thread_count = 0;
	linux_task_walk(&guest->programs.tasks, image.base.memory, 65536, note_thread, NULL, NULL);
	cr_assert_gt(thread_count, 40);
	namer = user_names_create(guest);
	file_words = 0;
	named_count = 0;
	file = calloc(1 << 20, sizeof(*file));
	file_words = fxt_write_preamble(file, FXT_PREAMBLE_WORDS);
	return true;
}

static inline void close_image(void)
{
	free(file);
	user_names_destroy(namer);
	fake_target_deinit(&fake);
	tasks_image_deinit(&image);
}

/* The first image; skips when there is none. */
static inline void open_any(void)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = tasks_image_list(names);

	for (unsigned i = 0; i < count; i++)
		if (open_image(names[i]))
			return;
	cr_skip_test("no image is whole");
}

/* A frame of a known call tree. */
struct truth {
	struct thread thread;
	uint64_t address; /* in the function */
	char name[64];
};

static inline unsigned read_truth(struct truth *truth, unsigned capacity)
{
	AUTO_FREE char *text = tasks_image_text(image.base.name, "calltrees", NULL);
	unsigned count = 0;
	char *rest, *words;

	cr_assert(text);
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		unsigned tid;
		const struct thread *thread;

		if (sscanf(line, "%*u %u", &tid) != 1 || strstr(line, " ext4 ") ||
		    !(thread = thread_of(tid)))
			continue;
		for (char *word = strtok_r(line, " ", &words); word;
		     word = strtok_r(NULL, " ", &words)) {
			char *at = strchr(word, '@');

			if (!at || *word == '?' || at[1] == '?' || count == capacity)
				continue;
			*at = 0;
			truth[count] = (struct truth){.thread = *thread,
						      .address = strtoull(at + 1, NULL, 16) - 1};
			snprintf(truth[count++].name, sizeof(truth[0].name), "%s", word);
		}
	}
	return count;
}

static inline bool symbol_is(const struct trace_symbol *symbol, const char *name)
{
	return symbol && symbol->name_bytes == strlen(name) &&
	       !memcmp(symbol->name, name, symbol->name_bytes);
}

/* Samples by hand. */

static inline struct fxt_sample sample_of(const struct thread *thread, uint64_t time,
					  const uint64_t *address)
{
	return (struct fxt_sample){.flags = FXT_SAMPLE_PROCESS | FXT_SAMPLE_THREAD |
					    FXT_SAMPLE_TIMESTAMP | FXT_SAMPLE_STACK |
					    FXT_SAMPLE_MODE | FXT_SAMPLE_ADDRESS_SPACE,
				   .process = (uint32_t)thread->pid,
				   .thread = (uint32_t)thread->tid,
				   .timestamp = time,
				   .mode = FXT_MODE_GUEST_USER,
				   .stack = address,
				   .depth = 1,
				   .address_space = thread->root};
}

static inline bool see(const struct thread *thread, uint64_t time, uint64_t address)
{
	struct fxt_sample sample = sample_of(thread, time, &address);

	return user_names_see_sample(namer, &sample);
}

static inline void keep_words(void *context, const uint64_t *words, size_t count)
{
	(void)context;
	cr_assert_lt(file_words + count, (size_t)1 << 20);
	memcpy(file + file_words, words, count * 8);
	file_words += count;
}

static inline void count_named(void *context, uint64_t address)
{
	(void)context;
	named_count += address != 0;
}

static inline void write_out(void)
{
	user_names_write(namer,
			 &(struct user_names_output){.write = keep_words, .named = count_named});
}

static inline void look(void)
{
	user_names_look(namer);
	write_out();
}

static inline void read_back(void)
{
	int fd = memfd_create("trace", MFD_CLOEXEC);
	struct error error = {0};
	char path[64];

	cr_assert_eq(write(fd, file, file_words * 8), (ssize_t)(file_words * 8));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	cr_assert_eq(trace_open(path, &trace, &error), GP_OK, "%s", error.text);
	cr_assert(!trace.info.bad_records && !trace.info.broken);
	close(fd);
}

static inline const struct trace_symbol *name_at(const struct thread *thread, uint64_t time,
						 uint64_t address)
{
	struct fxt_sample sample = sample_of(thread, time, &address);

	return trace_find_symbol(&trace, &sample, 0);
}

/* A process of one known frame. */
static inline struct truth one_frame(void)
{
	static struct truth truth[1024];
	unsigned count = read_truth(truth, ARRAY_SIZE(truth));

	cr_assert_gt(count, 0);
	return truth[0];
}

/* A thread of another process. */
static inline struct thread another(const struct thread *thread)
{
	for (unsigned i = 0; i < thread_count; i++)
		if (threads[i].pid > 1 && threads[i].pid != thread->pid &&
		    threads[i].root != thread->root)
			return threads[i];
	cr_assert_fail("one process only");
	return threads[0];
}
static inline unsigned threads_of(int32_t pid)
{
	unsigned count = 0;

	for (unsigned i = 0; i < thread_count; i++)
		count += threads[i].pid == pid;
	return count;
}

/* Two frames of one thread. */
static inline void two_frames(struct truth *first, struct truth *second)
{
	static struct truth truth[1024];
	unsigned count = read_truth(truth, ARRAY_SIZE(truth));

	for (unsigned i = 1; i < count; i++) {
		if (truth[i].thread.tid != truth[i - 1].thread.tid ||
		    !strcmp(truth[i].name, truth[i - 1].name))
			continue;
		/* Its task is the only one that leads to its program. */
		if (threads_of(truth[i].thread.pid) != 1)
			continue;
		*first = truth[i - 1];
		*second = truth[i];
		return;
	}
	cr_assert_fail("no process of one thread has two frames");
}

#endif
