/* What is named of processes that have ended since they were sampled, and of programs whose file
 * comes late from elsewhere. */
#include "naming/user_names.h"

#include "base/clock.h"
#include "tests/unit/named_guest.h"

Test(user_names_ended, what_was_sampled_of_a_process_that_has_just_ended_is_named, .timeout = 60)
{
	uint64_t time = boot_ns();
	struct truth first, second;
	uint64_t task_mm;

	open_any();
	two_frames(&first, &second);
	task_mm = first.thread.task + guest->programs.tasks.mm;
	cr_assert(see(&first.thread, time, first.address));
	look();
	/* Gone, and its mm_struct is something else. */
	forge(task_mm, 0);
	forge(mappings_root(&first.thread), 0);
	forge(first.thread.mm + guest->programs.mappings.mm_page_tables, 0);
	cr_assert_not(see(&second.thread, time + 1, second.address));
	look();
	read_back();
	cr_assert(symbol_is(name_at(&first.thread, time, first.address), first.name));
	cr_assert(symbol_is(name_at(&second.thread, time + 1, second.address), second.name));
	cr_assert_eq(named_count, 2);
	cr_assert_eq(trace.programs.count, 1);
	trace_close(&trace);
	close_image();
}

/* Rings are read late, and a look may take a third of a second. */
Test(user_names_ended, a_sample_that_is_read_late_is_named_from_the_snapshot, .timeout = 60)
{
	uint64_t time = boot_ns();
	struct truth first, second;
	struct thread executed;

	open_any();
	two_frames(&first, &second);
	cr_assert(see(&first.thread, time, first.address));
	look();
	forge(first.thread.task + guest->programs.tasks.mm, 0);
	nanosleep(&(struct timespec){.tv_nsec = 150000000}, NULL);
	/* Its process has executed another program since. */
	executed = first.thread;
	executed.root = another(&first.thread).root;
	cr_assert(see(&executed, boot_ns(), first.address));
	cr_assert_not(see(&second.thread, time + 1, second.address));
	look();
	read_back();
	cr_assert(symbol_is(name_at(&second.thread, time + 1, second.address), second.name));
	cr_assert_null(name_at(&executed, boot_ns(), first.address));
	cr_assert_eq(named_count, 2);
	trace_close(&trace);
	close_image();
}

Test(user_names_ended, a_snapshot_of_a_process_does_not_hold_for_long, .timeout = 60)
{
	uint64_t time = boot_ns();
	struct truth first, second;

	open_any();
	two_frames(&first, &second);
	cr_assert(see(&first.thread, time, first.address));
	look();
	forge(first.thread.task + guest->programs.tasks.mm, 0);
	nanosleep(&(struct timespec){.tv_nsec = 150000000}, NULL);
	cr_assert_not(see(&second.thread, boot_ns(), second.address));
	look();
	cr_assert_eq(named_count, 1);
	/* Nor for a process that was never found. */
	second.thread = another(&first.thread);
	forge(second.thread.task + guest->programs.tasks.mm, 0);
	cr_assert(see(&second.thread, boot_ns(), second.address));
	look();
	cr_assert_eq(named_count, 1);
	close_image();
}

static bool note_file(void *context, const struct linux_mapping *mapping)
{
	struct linux_file *found = context;

	if (mapping->executable && mapping->file.inode)
		*found = mapping->file;
	return !found->inode;
}

/* A file whose inode was given to another one is not read for a process that is gone. */
Test(user_names_ended, a_file_that_is_gone_with_its_process_is_not_read, .timeout = 60)
{
	struct linux_file found = {0};
	struct truth truth;

	open_any();
	truth = one_frame();
	linux_mappings_walk(&image.mappings, truth.thread.mm, note_file, &found);
	cr_assert(found.inode);
	cr_assert(linux_file_is_there(&image.files, &found));
	forge(found.inode + image.files.inode_number, found.number + 1);
	cr_assert_not(linux_file_is_there(&image.files, &found));
	forge(found.inode + image.files.inode_number, found.number);
	forge(found.inode + image.files.inode_size, found.size + 1);
	cr_assert_not(linux_file_is_there(&image.files, &found));
	forge(found.inode + image.files.inode_size, found.size);
	found.device_minor++;
	cr_assert_not(linux_file_is_there(&image.files, &found));
	found.device_minor--;
	cr_assert(linux_file_is_there(&image.files, &found));
	close_image();
}

/* A place that has the file of one program, once it `has_come`. */
struct place {
	struct file_copies copies;
	struct file_buffer file;
	bool has_come;
	unsigned asked;
};

static enum file_copy_result find_copy(struct file_copies *copies,
				       const struct file_copy_wanted *wanted,
				       const struct file_source **out)
{
	struct place *place = container_of(copies, struct place, copies);

	(void)wanted;
	place->asked++;
	if (!place->has_come)
		return FILE_COPY_LATER;
	*out = &place->file.source;
	return FILE_COPY_FOUND;
}

static void release_copy(struct file_copies *copies, const struct file_source *source)
{
	const struct place *place = container_of(copies, struct place, copies);

	cr_assert_eq(source, &place->file.source);
}

struct file_of_program {
	uint64_t address;
	struct linux_file file;
	char name[300];
};

static bool note_program(void *context, const struct linux_mapping *mapping)
{
	struct file_of_program *found = context;
	const char *slash = strrchr(mapping->name, '/');

	if (found->address < mapping->start || found->address >= mapping->end)
		return true;
	found->file = mapping->file;
	snprintf(found->name, sizeof(found->name), "files/%.255s", slash ? slash + 1 : "");
	return false;
}

/* A program of one thread whose symbols the guest has no more, and where they are. */
static struct truth without_symbols(struct place *place, struct file_of_program *program)
{
	struct truth truth, other;
	size_t size;
	char *bytes;

	two_frames(&truth, &other);
	*program = (struct file_of_program){.address = truth.address};
	linux_mappings_walk(&image.mappings, truth.thread.mm, note_program, program);
	cr_assert(program->file.inode);
	bytes = tasks_image_text(image.base.name, program->name, &size);
	cr_assert(bytes, "%s", program->name);
	forge(program->file.mapping + image.cache.mapping_head, 0);
	*place = (struct place){.copies = {.find = find_copy, .release = release_copy},
				.file = file_buffer_over(bytes, size)};
	linux_guest_use_copies(guest, &place->copies);
	return truth;
}

/* Nobody is in a hurry: an answer may take longer than it takes to give an address up. */
Test(user_names_ended, what_comes_late_from_a_copy_is_still_taken, .timeout = 60)
{
	uint64_t time = boot_ns();
	struct file_of_program program;
	struct truth truth;
	struct place place;

	open_any();
	truth = without_symbols(&place, &program);
	see(&truth.thread, time, truth.address);
	for (int i = 0; i < 30; i++) {
		look();
		nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
	}
	cr_assert_eq(named_count, 0);
	cr_assert_geq(place.asked, 10);
	cr_assert_leq(place.asked, 30);
	place.has_come = true;
	look();
	cr_assert_eq(named_count, 1);
	read_back();
	cr_assert(symbol_is(name_at(&truth.thread, time, truth.address), truth.name));
	trace_close(&trace);
	close_image();
	free((void *)(uintptr_t)place.file.bytes);
}

/* It ends, and its file system is unmounted, while the copy is looked for. */
Test(user_names_ended, what_comes_for_a_program_that_is_gone_names_what_was_seen_of_it,
     .timeout = 60)
{
	uint64_t time = boot_ns();
	struct file_of_program program;
	struct truth truth;
	struct place place;
	unsigned asked;

	open_any();
	truth = without_symbols(&place, &program);
	see(&truth.thread, time, truth.address);
	look();
	cr_assert_eq(place.asked, 1);
	forge(truth.thread.task + guest->programs.tasks.mm, 0);
	forge(program.file.inode + image.files.inode_number, program.file.number + 1);
	nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
	/* This one was not seen while it was there. */
	see(&truth.thread, boot_ns(), truth.address + 1);
	look();
	cr_assert_eq(place.asked, 2);
	cr_assert_eq(named_count, 0);
	place.has_come = true;
	nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
	look();
	cr_assert_eq(named_count, 1);
	read_back();
	cr_assert(symbol_is(name_at(&truth.thread, time, truth.address), truth.name));
	/* Then it is left alone. */
	asked = place.asked;
	for (int i = 0; i < 10; i++) {
		nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
		look();
	}
	cr_assert_eq(place.asked, asked);
	cr_assert_eq(named_count, 1);
	cr_assert_not(user_names_look(namer), "it is still looked at");
	trace_close(&trace);
	close_image();
	free((void *)(uintptr_t)place.file.bytes);
}
