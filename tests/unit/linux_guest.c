/* A session over a memory image of a stock kernel: what is learned from it and what samples say
 * then. The guest stands still, so every sample is the same and the truth is known. */
#include "guest-introspection/linux/linux_guest.h"
#include "sampler/task_names.h"
#include "tests/unit/fake_target.h"
#include "tests/unit/image_support.h"

#include <signal.h>

struct guest_test {
	struct prepared_image image;
	struct fake_target fake;
	gp_sampler_t *session;
	uint8_t *bytes;
	size_t size;
};

/* A guest that is not sampled yet. */
static void guest_test_open(struct guest_test *test, const char *name)
{
	memset(test, 0, sizeof(*test));
	cr_assert(prepared_image_init(&test->image, name));
	fake_target_init(&test->fake, test->image.image.cpu_count);
	test->fake.image = test->image.memory;
	test->fake.cpus = test->image.image.cpus;
}

static void guest_test_start(struct guest_test *test, const gp_sampler_config_t *config)
{
	cr_assert_eq(gp_sampler_create(&test->fake.target, 0, config, &test->session), GP_OK);
	cr_assert_eq(gp_sampler_start(test->session, 0), GP_OK);
}

static void guest_test_init(struct guest_test *test, const char *name,
			    const gp_sampler_config_t *config)
{
	guest_test_open(test, name);
	guest_test_start(test, config);
}

/* A tick on each vCPU has been seen to the end. */
static void wait_for_stop(struct guest_test *test)
{
	for (unsigned i = 0; i < test->fake.count; i++) {
		uint64_t before = atomic_load(&test->fake.vcpus[i].stops);

		while (atomic_load(&test->fake.vcpus[i].stops) < before + 3)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
}

static void learn(struct guest_test *test)
{
	char why[256] = "";

	wait_for_stop(test);
	cr_assert_eq(gp_sampler_learn_guest(test->session, 0, why, sizeof(why)), GP_OK, "%s: %s",
		     test->image.name, why);
	wait_for_stop(test);
}

static void stop_and_read(struct guest_test *test)
{
	size_t more;

	cr_assert_eq(gp_sampler_stop(test->session, 0), GP_OK);
	cr_assert_eq(gp_sampler_read(test->session, 0, NULL, 0, &test->size), GP_OK);
	test->bytes = malloc(test->size + 64);
	cr_assert_eq(gp_sampler_read(test->session, 0, test->bytes, test->size + 64, &more), GP_OK);
	cr_assert_eq(more, test->size);
}

static void guest_test_deinit(struct guest_test *test)
{
	gp_sampler_close(test->session);
	fake_target_deinit(&test->fake);
	prepared_image_deinit(&test->image);
	free(test->bytes);
}

/* What the image's own kernel says is running on each vCPU, found without the sampler. */
static void find_truth(const struct prepared_image *image, struct linux_task *tasks)
{
	static struct linux_task_layout layout;
	struct error error = {0};
	struct btf *btf;

	cr_assert_eq(linux_btf_read(image->memory, &image->kernel, &image->symbols, &btf, &error),
		     GP_OK, "%s", error.text);
	cr_assert_eq(linux_task_layout_init(image->memory, &image->kernel, &image->symbols, btf,
					    &layout, &error),
		     GP_OK, "%s", error.text);
	btf_destroy(btf);
	for (unsigned i = 0; i < image->image.cpu_count; i++) {
		struct linux_task_cpu remembered = {0};

		cr_assert_eq(linux_task_current(&layout, image->memory, NULL, &image->image.cpus[i],
						&remembered, &tasks[i]),
			     LINUX_TASK_FOUND);
	}
}

static const gp_sampler_config_t whole = {
	.size = sizeof(whole), .period_ns = 2000000, .max_depth = 64, .ring_bytes = 1 << 20};

Test(linux_guest, samples_say_which_task_runs_and_name_it_once, .timeout = 120)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = image_list(names);

	for (unsigned n = 0; n < count; n++) {
		struct linux_task truth[IMAGE_CPUS];
		unsigned process_names[IMAGE_CPUS] = {0}, thread_names[IMAGE_CPUS] = {0};
		unsigned known[IMAGE_CPUS] = {0};
		struct guest_test test;
		struct fxt_reader reader;
		struct fxt_record record;

		guest_test_init(&test, names[n], &whole);
		find_truth(&test.image, truth);
		learn(&test);
		stop_and_read(&test);
		cr_assert_eq(fxt_reader_init(&reader, test.bytes, test.size, NULL), GP_OK);
		while (fxt_reader_next(&reader, &record)) {
			const struct fxt_kernel_object *object = &record.object;
			struct fxt_sample sample;

			for (unsigned i = 0;
			     record.kind == FXT_KIND_KERNEL_OBJECT && i < test.fake.count; i++) {
				const char *name = truth[i].idle ? TASK_NAMES_IDLE : truth[i].name;

				if (!fxt_string_is(&object->name, name))
					continue;
				process_names[i] += object->type == FXT_OBJECT_PROCESS &&
						    object->koid == (uint32_t)truth[i].pid;
				thread_names[i] += object->type == FXT_OBJECT_THREAD &&
						   object->koid == (uint32_t)truth[i].tid;
			}
			if (record.kind != FXT_KIND_BLOB ||
			    fxt_sample_decode(&record.blob, &sample) ||
			    !(sample.flags & FXT_SAMPLE_THREAD))
				continue;
			cr_assert_lt(sample.vcpu, test.fake.count);
			known[sample.vcpu]++;
			cr_assert_eq(sample.thread, (uint32_t)truth[sample.vcpu].tid);
			cr_assert_eq(sample.process, (uint32_t)truth[sample.vcpu].pid);
			/* Its name has come before it. */
			cr_assert_geq(thread_names[sample.vcpu], 1);
			cr_assert_geq(process_names[sample.vcpu], 1);
		}
		cr_assert(!reader.cut && !reader.broken && !reader.bad_records);
		fxt_reader_deinit(&reader);
		for (unsigned i = 0; i < test.fake.count; i++) {
			unsigned same = 0;

			for (unsigned k = 0; k < test.fake.count; k++)
				same += truth[k].tid == truth[i].tid;
			cr_assert_geq(known[i], 2, "%s: vCPU %u", names[n], i);
			cr_assert_leq(thread_names[i], same, "%s: once for each ring", names[n]);
		}
		guest_test_deinit(&test);
	}
}

/* Idle vCPUs, and those in the kernel for a program, have whole stacks once ORC is known. */
Test(linux_guest, kernel_stacks_become_whole, .timeout = 120)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = image_list(names), kernel_vcpus = 0, deep = 0;

	for (unsigned n = 0; n < count; n++) {
		uint64_t ends[IMAGE_CPUS] = {0}, deepest[IMAGE_CPUS] = {0};
		struct guest_test test;
		struct fxt_reader reader;
		struct fxt_record record;

		guest_test_init(&test, names[n], &whole);
		learn(&test);
		stop_and_read(&test);
		cr_assert_eq(fxt_reader_init(&reader, test.bytes, test.size, NULL), GP_OK);
		while (fxt_reader_next(&reader, &record)) {
			struct fxt_sample sample;

			if (record.kind != FXT_KIND_BLOB ||
			    fxt_sample_decode(&record.blob, &sample) ||
			    sample.mode != FXT_MODE_GUEST_KERNEL)
				continue;
			/* The last one counts. */
			ends[sample.vcpu] = sample.flags & FXT_SAMPLE_KERNEL_FRAMES
						    ? FXT_STACK_END_ROOT
						    : sample.stack_end;
			deepest[sample.vcpu] = sample.depth;
		}
		fxt_reader_deinit(&reader);
		for (unsigned i = 0; i < test.fake.count; i++) {
			if (!ends[i])
				continue;
			kernel_vcpus++;
			cr_assert_eq(ends[i], FXT_STACK_END_ROOT, "%s: vCPU %u ends with %llu",
				     names[n], i, (unsigned long long)ends[i]);
			/* An image may catch one at the kernel's door, with a frame or two. */
			cr_assert_geq(deepest[i], 1, "%s: vCPU %u", names[n], i);
			deep += deepest[i] >= 3;
		}
		guest_test_deinit(&test);
	}
	cr_assert_gt(kernel_vcpus, 0);
	cr_assert_geq(2 * deep, kernel_vcpus, "%u of %u", deep, kernel_vcpus);
}

/* Each vCPU's last sample; its flags are 0 when it has none. The stack is gone. */
static void last_samples(const struct guest_test *test, struct fxt_sample *samples)
{
	struct fxt_reader reader;
	struct fxt_record record;
	struct fxt_sample sample;

	memset(samples, 0, IMAGE_CPUS * sizeof(*samples));
	cr_assert_eq(fxt_reader_init(&reader, test->bytes, test->size, NULL), GP_OK);
	while (fxt_reader_next(&reader, &record))
		if (record.kind == FXT_KIND_BLOB && !fxt_sample_decode(&record.blob, &sample) &&
		    sample.flags & FXT_SAMPLE_STACK)
			samples[sample.vcpu] = sample;
	fxt_reader_deinit(&reader);
}

/* In the middle of a switch the page tables are another's: the program's frames would be read
 * through them. The kernel's are all there, and said to be. */
Test(linux_guest, in_a_switch_of_page_tables_the_kernels_frames_are_kept, .timeout = 120)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = image_list(names), switched = 0;

	for (unsigned n = 0; n < count; n++) {
		struct fxt_sample before[IMAGE_CPUS], after[IMAGE_CPUS];

		for (unsigned with = 0; with < 2; with++) {
			struct guest_test test;

			guest_test_init(&test, names[n], &whole);
			learn(&test);
			for (unsigned i = 0; with && i < test.fake.count; i++)
				test.image.image.cpus[i].cr3 = test.image.kernel.space.root;
			wait_for_stop(&test);
			stop_and_read(&test);
			last_samples(&test, with ? after : before);
			guest_test_deinit(&test);
		}
		for (unsigned i = 0; i < IMAGE_CPUS; i++) {
			if (before[i].mode != FXT_MODE_GUEST_KERNEL ||
			    !(before[i].flags & FXT_SAMPLE_KERNEL_FRAMES))
				continue;
			switched++;
			cr_assert(after[i].flags & FXT_SAMPLE_KERNEL_FRAMES, "%s: vCPU %u",
				  names[n], i);
			cr_assert_eq(after[i].kernel_frames, before[i].kernel_frames);
			cr_assert_eq(after[i].depth, after[i].kernel_frames);
		}
	}
	if (!switched)
		cr_skip_test("no image has a vCPU in the kernel on behalf of a program");
}

/* By pid, by tid, by name: what is not wanted is counted and not in the data. */
Test(linux_guest, a_filter_lets_through_the_task_asked_for, .timeout = 120)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	struct linux_task truth[IMAGE_CPUS];
	struct prepared_image image;
	uint64_t wanted = 0;
	const char *name;

	image_list(names);
	cr_assert(prepared_image_init(&image, names[0]));
	find_truth(&image, truth);
	for (unsigned i = 0; i < image.image.cpu_count; i++)
		if (!truth[i].idle)
			wanted = (uint64_t)truth[i].pid, name = truth[i].name;
	prepared_image_deinit(&image);
	cr_assert_neq(wanted, 0, "%s: no program runs", names[0]);
	for (int way = 0; way < 4; way++) {
		gp_sampler_config_t config = whole;
		const uint64_t nobody = 4000000;
		struct guest_test test;
		struct fxt_reader reader;
		struct fxt_record record;
		uint64_t seen = 0, filtered = 0;

		config.processes = way == 0 ? &wanted : way == 3 ? &nobody : NULL;
		config.process_count = way == 0 || way == 3;
		config.threads = way == 1 ? &wanted : NULL;
		config.thread_count = way == 1;
		config.names = way == 2 ? &name : NULL;
		config.name_count = way == 2;
		guest_test_init(&test, names[0], &config);
		learn(&test);
		stop_and_read(&test);
		for (unsigned i = 0; i < test.fake.count; i++) {
			gp_sampler_totals_t totals;

			gp_sampler_totals(test.session, i, &totals);
			cr_assert_eq(totals.ticks, totals.full + totals.partial + totals.dropped +
							   totals.filtered);
			filtered += totals.filtered;
		}
		cr_assert_gt(filtered, 0);
		cr_assert_eq(fxt_reader_init(&reader, test.bytes, test.size, NULL), GP_OK);
		while (fxt_reader_next(&reader, &record)) {
			struct fxt_sample sample;

			if (record.kind != FXT_KIND_BLOB ||
			    fxt_sample_decode(&record.blob, &sample) ||
			    !(sample.flags & FXT_SAMPLE_STACK))
				continue;
			cr_assert_eq(sample.process, wanted);
			seen++;
		}
		fxt_reader_deinit(&reader);
		cr_assert_eq(seen > 0, way != 3);
		guest_test_deinit(&test);
	}
}

/* Published knowledge is exchanged while captures use it. */
Test(linux_guest, learning_again_and_again_while_vcpus_stop, .timeout = 120)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	gp_sampler_config_t config = whole;
	struct guest_test test;
	struct linux_guest *guest;

	image_list(names);
	config.period_ns = 200000;
	config.ring_bytes = 4 << 20;
	guest_test_init(&test, names[0], &config);
	learn(&test);
	guest = sampler_target_guest(&test.fake.target);
	for (int i = 0; i < 5; i++) {
		guest->settled = false; /* as if boot had just gone on: prepare anew */
		cr_assert_eq(gp_sampler_learn_guest(test.session, 0, NULL, 0), GP_OK);
		wait_for_stop(&test);
	}
	stop_and_read(&test);
	guest_test_deinit(&test);
}

/* Early in boot: page tables that have the kernel and its entry areas and not yet the rest. The
 * guest moves on to those that stay, and its per-CPU areas with them, between two of our looks. */
#define EARLY_ROOT (UINT64_C(1) << 40) /* beyond the guest's memory */
#define PAGE UINT64_C(4096)
#define FIRST_EARLY_ENTRY 508 /* CPU_ENTRY_AREA_BASE and up */

struct early_guest {
	struct guest_memory memory;
	const struct guest_memory *image;
	uint64_t swapper, offsets; /* gpa */
	uint64_t boot_offset;
	uint64_t early_root[PAGE / 8];
	unsigned looks; /* at the per-CPU areas' offsets */
	bool freed;     /* the page tables of early boot are */
};

static bool early_read(const struct guest_memory *memory, gpa_t address, void *buffer, size_t size)
{
	struct early_guest *guest =
		container_of((struct guest_memory *)(uintptr_t)memory, struct early_guest, memory);
	bool moved = guest->looks > 1;

	if (address.value >= EARLY_ROOT && address.value + size <= EARLY_ROOT + PAGE) {
		memcpy(buffer, (uint8_t *)guest->early_root + (address.value - EARLY_ROOT), size);
		return !guest->freed;
	}
	if (address.value == guest->offsets && ++guest->looks == 1) {
		cr_assert_eq(size, 8);
		memcpy(buffer, &guest->boot_offset, size);
		return true;
	}
	if (!guest_memory_read(guest->image, address, buffer, size))
		return false;
	if (!moved && address.value / PAGE == guest->swapper / PAGE)
		memset(buffer, 0, size);
	return true;
}

static uint64_t physical(const struct prepared_image *image, const char *name)
{
	struct translation translation;
	struct symbol symbol;

	cr_assert(symbol_table_find_name(&image->symbols, name, &symbol), "%s", name);
	cr_assert_eq(guest_translate(&image->kernel.space, image->memory, gva(symbol.start),
				     &translation),
		     TRANSLATE_OK);
	return translation.gpa.value;
}

static void early_guest_init(struct early_guest *guest, const struct prepared_image *image)
{
	struct symbol boot;

	*guest = (struct early_guest){.memory.read = early_read,
				      .image = image->memory,
				      .swapper = image->kernel.space.root,
				      .offsets = physical(image, "__per_cpu_offset")};
	/* Linux 6.15 and later have none: then it is 0. */
	if (symbol_table_find_name(&image->symbols, "__per_cpu_load", &boot))
		guest->boot_offset = boot.start;
	cr_assert(guest_memory_read(image->memory, gpa(guest->swapper), guest->early_root,
				    sizeof(guest->early_root)));
	memset(guest->early_root, 0, FIRST_EARLY_ENTRY * 8);
}

Test(linux_guest, page_tables_of_early_boot_are_not_kept, .timeout = 120)
{
	char names[IMAGE_LIMIT][IMAGE_NAME_LENGTH];
	unsigned count = image_list(names);

	for (unsigned n = 0; n < count; n++) {
		struct fxt_sample samples[IMAGE_CPUS];
		uint64_t roots[IMAGE_CPUS];
		struct early_guest guest;
		struct guest_test test;

		guest_test_open(&test, names[n]);
		early_guest_init(&guest, &test.image);
		test.fake.image = &guest.memory;
		for (unsigned i = 0; i < test.fake.count; i++) {
			roots[i] = test.image.image.cpus[i].cr3;
			test.image.image.cpus[i].cr3 = EARLY_ROOT;
		}
		guest_test_start(&test, &whole);
		learn(&test);
		cr_assert_gt(guest.looks, 1, "%s: the guest has not moved on", names[n]);
		for (unsigned i = 0; i < test.fake.count; i++)
			test.image.image.cpus[i].cr3 = roots[i];
		for (unsigned i = 0; i < 3; i++) {
			/* While boot goes on, a step is not taken more often than this. */
			nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
			learn(&test);
			guest.freed = true;
		}
		stop_and_read(&test);
		last_samples(&test, samples);
		for (unsigned i = 0; i < test.fake.count; i++)
			cr_assert(samples[i].flags & FXT_SAMPLE_THREAD, "%s: vCPU %u", names[n], i);
		guest_test_deinit(&test);
	}
}
