/* Memory images with a small living system (tests/images/make-image.sh, names in "-tasks"), and
 * what the guest said of itself. */
#ifndef TESTS_UNIT_TASKS_IMAGE_H
#define TESTS_UNIT_TASKS_IMAGE_H

#include "guest-introspection/elf/btf.h"
#include "guest-introspection/linux/linux_mappings.h"
#include "guest-introspection/linux/linux_page_cache.h"
#include "tests/unit/image_support.h"

#define TASKS_IMAGE_PROCESSES 1024

struct tasks_image {
	struct prepared_image base;
	struct btf *btf;
	struct linux_files files;
	struct linux_mappings mappings;
	struct linux_page_cache cache;
	unsigned process_count;
	struct {
		unsigned pid;
		uint64_t mm; /* 0: a kernel thread */
	} processes[TASKS_IMAGE_PROCESSES];
};

static inline uint32_t tasks_image_offset(const struct tasks_image *self, const char *structure,
					  const char *path)
{
	struct btf_member member;

	cr_assert(btf_find_member(self->btf, structure, path, &member), "%s.%s", structure, path);
	return member.offset;
}

/* All of build/images/NAME/`file`, terminated; the caller frees it. */
static inline char *tasks_image_text(const char *image, const char *file, size_t *size)
{
	char path[512];
	FILE *stream;
	char *text = NULL;
	long length;

	snprintf(path, sizeof(path), IMAGE_DIRECTORY "/%.63s/%.255s", image, file);
	stream = fopen(path, "re");
	if (!stream)
		return NULL;
	if (fseek(stream, 0, SEEK_END) == 0 && (length = ftell(stream)) >= 0) {
		rewind(stream);
		text = calloc(1, (size_t)length + 1);
		if (text && fread(text, 1, (size_t)length, stream) != (size_t)length) {
			free(text);
			text = NULL;
		}
		if (size)
			*size = (size_t)length;
	}
	fclose(stream);
	return text;
}

/* Names of the images that are there; skips the test when there are none. */
static inline unsigned tasks_image_list(char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH])
{
	unsigned all = image_list(names);
	unsigned count = 0;

	for (unsigned i = 0; i < all; i++) {
		size_t length = strlen(names[i]);
		char path[512];

		snprintf(path, sizeof(path), IMAGE_DIRECTORY "/%.63s/maps", names[i]);
		if (length > 6 && strcmp(names[i] + length - 6, "-tasks") == 0 &&
		    access(path, R_OK) == 0)
			memmove(names[count++], names[i], IMAGE_NAME_LENGTH);
	}
	if (count == 0)
		cr_skip_test("no image with tasks in " IMAGE_DIRECTORY
			     ": run tests/images/make-image.sh");
	return count;
}

/* Every process by the list that begins at init_task. */
static inline void tasks_image_find_processes(struct tasks_image *self)
{
	uint32_t next_offset = tasks_image_offset(self, "task_struct", "tasks.next");
	uint32_t pid_offset = tasks_image_offset(self, "task_struct", "tgid");
	uint32_t mm_offset = tasks_image_offset(self, "task_struct", "mm");
	struct symbol first;
	uint64_t next;

	cr_assert(symbol_table_find_name(&self->base.symbols, "init_task", &first));
	cr_assert(prepared_image_read(&self->base, first.start + next_offset, &next, 8));
	while (next != first.start + next_offset && self->process_count < TASKS_IMAGE_PROCESSES) {
		uint64_t task = next - next_offset;
		uint32_t pid;
		uint64_t mm;

		cr_assert(prepared_image_read(&self->base, task + pid_offset, &pid, 4));
		cr_assert(prepared_image_read(&self->base, task + mm_offset, &mm, 8));
		self->processes[self->process_count].pid = pid;
		self->processes[self->process_count++].mm = mm;
		cr_assert(prepared_image_read(&self->base, next, &next, 8));
	}
	cr_assert_gt(self->process_count, 30);
}

/* False when the image is not whole. Only with `self` where it stays. */
__attribute__((noinline, unused)) static bool tasks_image_init(struct tasks_image *self,
							       const char *name)
{
	struct error error = {0};

	memset(self, 0, sizeof(*self));
	if (!prepared_image_init(&self->base, name))
		return false;
	cr_assert_eq(linux_btf_read(self->base.memory, &self->base.kernel, &self->base.symbols,
				    &self->btf, &error),
		     GP_OK, "%s: %s", name, error.text);
	cr_assert_eq(linux_files_init(self->base.memory, &self->base.kernel, &self->base.symbols,
				      self->btf, &self->files, &error),
		     GP_OK, "%s: %s", name, error.text);
	cr_assert_eq(linux_mappings_init(&self->files, &self->base.symbols, self->btf,
					 &self->mappings, &error),
		     GP_OK, "%s: %s", name, error.text);
	cr_assert_eq(linux_page_cache_init(self->base.memory, &self->base.kernel,
					   &self->base.symbols, self->btf, &self->cache, &error),
		     GP_OK, "%s: %s", name, error.text);
	tasks_image_find_processes(self);
	return true;
}

static inline void tasks_image_deinit(struct tasks_image *self)
{
	btf_destroy(self->btf);
	prepared_image_deinit(&self->base);
}

/* What stands below "== PID" in a file of the image; the caller frees it. NULL: nothing. */
__attribute__((unused)) static char *tasks_image_section(const struct tasks_image *self,
							 const char *file, unsigned pid)
{
	char title[32];
	char *text = tasks_image_text(self->base.name, file, NULL);
	char *begin;
	char *end;

	cr_assert(text);
	snprintf(title, sizeof(title), "== %u\n", pid);
	for (begin = strstr(text, title); begin && begin != text && begin[-1] != '\n';)
		begin = strstr(begin + 1, title);
	if (begin) {
		begin += strlen(title);
		end = strncmp(begin, "== ", 3) == 0 ? begin : strstr(begin, "\n== ");
		if (end && end != begin)
			end++;
		begin = end == begin ? NULL
				     : strndup(begin, end ? (size_t)(end - begin) : strlen(begin));
	}
	free(text);
	return begin;
}

/* Whether process `pid` is what it was when the truth was written: not the shell that had it
 * written, which is another program now. */
__attribute__((unused)) static bool tasks_image_is_settled(const struct tasks_image *self,
							   unsigned pid)
{
	char line[256];
	char path[512];
	bool settled = false;
	FILE *stream;

	snprintf(path, sizeof(path), IMAGE_DIRECTORY "/%.63s/tasks", self->base.name);
	stream = fopen(path, "re");
	cr_assert(stream);
	while (!settled && fgets(line, sizeof(line), stream)) {
		unsigned tgid;
		unsigned tid;
		char comm[64];

		if (sscanf(line, "%u %u %*d %*d %*c %*d %63[^\n]", &tgid, &tid, comm) == 3 &&
		    tgid == pid && tid == pid)
			settled = strcmp(comm, "init") != 0;
	}
	fclose(stream);
	return settled;
}

#endif
