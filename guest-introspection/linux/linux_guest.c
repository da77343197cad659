#include "guest-introspection/linux/linux_guest.h"

#include "base/clock.h"
#include "guest-introspection/linux/kallsyms.h"
#include "guest-introspection/linux/linux_reader.h"
#include "guest-introspection/x86/translate.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_WAIT_NS (NS_PER_SECOND / 2)
#define STEP_INTERVAL_NS (NS_PER_SECOND / 12)
#define LONGEST_WAIT_NS (8 * NS_PER_SECOND)
/* Modules come in crowds while a system boots, and stacks through a new one end at it until its
 * tables are read: at once, but for no more than one part in so many of a CPU. */
#define MODULES_SHARE 4

struct linux_guest *linux_guest_create(const struct guest_memory *memory, unsigned vcpu_count,
				       linux_guest_publish *publish, void *context)
{
	struct linux_guest *guest = calloc(1, sizeof(*guest));

	if (!guest)
		return NULL;
	guest->programs.memory = memory;
	guest->vcpu_count = vcpu_count;
	guest->publish = publish;
	guest->context = context;
	guest->wait_ns = FIRST_WAIT_NS;
	pthread_mutex_init(&guest->learning, NULL);
	pthread_mutex_init(&guest->lock, NULL);
	error_set(&guest->missing.kernel, GP_ERR_NOT_FOUND, "no sample has been taken");
	guest->missing.symbols = guest->missing.tasks = guest->missing.modules =
		guest->missing.programs = guest->missing.kernel;
	return guest;
}

/* Says why `part` of guest->missing is not known, or that it is. */
static void note(struct linux_guest *guest, struct error *part, gp_status_t status,
		 const struct error *why)
{
	linux_guest_lock(guest);
	*part = status ? *why : (struct error){0};
	linux_guest_unlock(guest);
}

static void knowledge_destroy(struct guest_knowledge *knowledge)
{
	if (!knowledge)
		return;
	linux_stack_destroy(knowledge->stack);
	free(knowledge);
}

/* Gives captures `next` to use, and frees what they used before. */
static void publish(struct linux_guest *guest, struct guest_knowledge *next)
{
	struct guest_knowledge *before = guest->knowledge;

	if (guest->publish)
		guest->publish(guest->context, next);
	guest->knowledge = next;
	atomic_fetch_add(&guest->published, 1);
	if (!before)
		return;
	if (next && next->stack == before->stack)
		before->stack = NULL; /* handed on */
	knowledge_destroy(before);
	program_rules_free_retired(&guest->rules);
}

void linux_guest_destroy(struct linux_guest *guest)
{
	if (!guest)
		return;
	if (guest->knowledge)
		publish(guest, NULL);
	linux_stack_destroy(guest->base);
	program_rules_deinit(&guest->rules);
	symbol_table_deinit(&guest->symbols);
	linux_modules_deinit(&guest->modules);
	linux_modules_deinit(&guest->modules_before);
	pthread_mutex_destroy(&guest->lock);
	pthread_mutex_destroy(&guest->learning);
	free(guest);
}

/* The kernel. */

static bool find_kernel(struct linux_guest *guest, const struct guest_cpu *cpus, const bool *known,
			unsigned count)
{
	const struct guest_memory *memory = guest->programs.memory;
	struct translation translation;
	struct linux_kernel kernel;
	struct error error;

	/* One vCPU after the other: some may still be in a mode that tells nothing. */
	for (unsigned i = 0; i < count; i++) {
		if (!known[i])
			continue;
		if (linux_kernel_find(memory, &cpus[i], 1, &kernel, &error)) {
			if (guest->missing.kernel.status)
				note(guest, &guest->missing.kernel, error.status, &error);
			if (guest->missing.symbols.status)
				note(guest, &guest->missing.symbols, error.status, &error);
			continue;
		}
		linux_guest_lock(guest);
		guest->kernel = kernel;
		guest->missing.kernel = (struct error){0};
		guest->kernel_physical =
			guest_translate(&kernel.space, memory, gva(kernel.text_base), &translation)
				? 0
				: translation.gpa.value;
		linux_guest_unlock(guest);
		return true;
	}
	return false;
}

static bool read_symbols(struct linux_guest *guest)
{
	struct symbol_table symbols;
	struct error error;
	gp_status_t status;

	if (!guest->missing.symbols.status)
		return true;
	status = linux_kallsyms_read(guest->programs.memory, &guest->kernel, &symbols, &error);
	linux_guest_lock(guest);
	if (!status)
		guest->symbols = symbols;
	guest->missing.symbols = status ? error : (struct error){0};
	linux_guest_unlock(guest);
	return !status;
}

const struct guest_programs *linux_guest_programs(struct linux_guest *guest)
{
	bool known;

	pthread_mutex_lock(&guest->learning);
	/* Before boot is over there are no programs, and the layout is about to change. */
	known = guest->settled && !guest->missing.programs.status;
	pthread_mutex_unlock(&guest->learning);
	return known ? &guest->programs : NULL;
}

void linux_guest_use_copies(struct linux_guest *guest, struct file_copies *copies)
{
	pthread_mutex_lock(&guest->learning);
	guest->programs.copies = copies;
	pthread_mutex_unlock(&guest->learning);
}

/* Where tasks, modules, mappings and files are; once. */
static void read_types(struct linux_guest *guest)
{
	struct guest_programs *to = &guest->programs;
	const struct guest_memory *memory = to->memory;
	const struct linux_kernel *kernel = &guest->kernel;
	const struct symbol_table *symbols = &guest->symbols;
	struct error error;
	struct btf *btf;
	gp_status_t status;

	if (guest->types_tried)
		return;
	guest->types_tried = true;
	status = linux_btf_read(memory, kernel, symbols, &btf, &error);
	if (status) {
		note(guest, &guest->missing.tasks, status, &error);
		note(guest, &guest->missing.modules, status, &error);
		note(guest, &guest->missing.programs, status, &error);
		return;
	}
	status = linux_task_layout_init(memory, kernel, symbols, btf, &to->tasks, &error);
	note(guest, &guest->missing.tasks, status, &error);
	status = linux_module_layout_init(kernel, symbols, btf, &guest->module_layout, &error);
	note(guest, &guest->missing.modules, status, &error);
	status = linux_files_init(memory, kernel, symbols, btf, &to->files, &error);
	if (!status)
		status = linux_mappings_init(&to->files, symbols, btf, &to->mappings, &error);
	if (!status)
		status = linux_page_cache_init(memory, kernel, symbols, btf, &to->cache, &error);
	note(guest, &guest->missing.programs, status, &error);
	btf_destroy(btf);
}

/* Reads the modules again when their list changed. True: it did. */
static bool read_modules(struct linux_guest *guest, bool now)
{
	const struct guest_memory *memory = guest->programs.memory;
	uint64_t begin = monotonic_ns();
	struct linux_modules next;
	gp_status_t status;

	if (guest->missing.modules.status || (!now && begin < guest->next_modules_ns) ||
	    !linux_modules_changed(&guest->module_layout, memory, &guest->modules.stamp))
		return false;
	status = linux_modules_read(&guest->module_layout, memory, &next, NULL);
	guest->next_modules_ns = begin + (monotonic_ns() - begin) * MODULES_SHARE;
	if (status && status != GP_ERR_IO_DATA_INTEGRITY)
		return false;
	linux_guest_lock(guest);
	linux_modules_deinit(&guest->modules_before);
	guest->modules_before = guest->modules;
	guest->modules = next;
	linux_guest_unlock(guest);
	return true;
}

/* The kernel's own part of what stacks need, which takes long to read: once for the page tables of
 * early boot, once for those that stay. The one before is still in use. */
static struct linux_stack *replace_base(struct linux_guest *guest)
{
	struct linux_stack *before = guest->base;
	struct error less = {0}, error;

	guest->base = NULL;
	if (linux_stack_create(guest->programs.memory, &guest->kernel, &guest->symbols,
			       &guest->base, &less, &error))
		less = error;
	note(guest, &guest->missing.stacks, less.status, &less);
	return before;
}

/* Room for what capture uses, filled in but for the kernel's stacks. */
static struct guest_knowledge *make_knowledge(const struct linux_guest *guest)
{
	struct guest_knowledge *made =
		calloc(1, sizeof(*made) + guest->vcpu_count * sizeof(*made->vcpus));

	if (!made)
		return NULL;
	made->vcpu_count = guest->vcpu_count;
	made->tasks_known = !guest->missing.tasks.status;
	made->tasks = guest->programs.tasks;
	made->program_count = program_rules_list(&guest->rules, made->programs);
	return made;
}

/* A module's text, and that of its start while it is there: one table speaks for both. Where that
 * is damaged, or gone already, stacks do without. */
static void add_module(struct linux_stack *stack, const struct guest_memory *memory,
		       const struct linux_module *module)
{
	const struct linux_range *texts[] = {&module->text, &module->init_text};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct error error = {0};

		if (module->orc_count && texts[i]->size)
			linux_stack_add_module(stack, memory,
					       &(struct orc_module){.addresses = module->orc_ips,
								    .entries = module->orc_entries,
								    .count = module->orc_count,
								    .text_start = texts[i]->start,
								    .text_size = texts[i]->size},
					       &error);
	}
}

/* Makes and publishes what capture uses. */
static void publish_knowledge(struct linux_guest *guest)
{
	struct guest_knowledge *next = make_knowledge(guest);
	struct error error = {0};

	/* Nothing rather than what is built upon a base that goes. */
	if (!next) {
		publish(guest, NULL);
		return;
	}
	if (guest->base)
		linux_stack_create_from(guest->base, &next->stack, &error);
	for (size_t i = 0; next->stack && i < guest->modules.count; i++)
		add_module(next->stack, guest->programs.memory, &guest->modules.modules[i]);
	next->unwind = next->stack ? linux_stack_unwind_kernel(next->stack) : NULL;
	publish(guest, next);
}

/* Prepares the programs that captures have asked for. What they know of the kernel stays. */
static void learn_programs(struct linux_guest *guest)
{
	struct guest_knowledge *known = guest->knowledge, *next;
	struct guest_programs *programs = &guest->programs;
	bool changed = false;

	if (!known || guest->missing.programs.status || !guest->settled)
		return;
	for (unsigned i = 0; i < known->vcpu_count; i++) {
		uint64_t mm = atomic_exchange(&known->vcpus[i].wanted, 0);

		if (mm && program_rules_want(&guest->rules, &programs->mappings, &programs->cache,
					     programs->copies, mm, monotonic_ns()))
			changed = true;
	}
	if (!changed)
		return;
	next = make_knowledge(guest);
	if (next) {
		next->stack = known->stack;
		next->unwind = known->unwind;
	}
	publish(guest, next);
}

/* The kernel's page tables and per-CPU areas move once, early in boot: first the tables. Tables
 * that were found after the areas had moved are final; the kernel frees the others. So the areas
 * must have moved before the tables are looked for. Captures use a copy of the layout. Without a
 * layout the end of boot is never seen. */
static void settle(struct linux_guest *guest, const struct guest_cpu *cpus, const bool *known,
		   unsigned count)
{
	struct guest_programs *programs = &guest->programs;
	bool has_tasks = !guest->missing.tasks.status;
	bool moved = has_tasks && programs->tasks.settled;

	if (!find_kernel(guest, cpus, known, count))
		return;
	guest->module_layout.space = guest->kernel.space;
	if (!has_tasks)
		return;
	programs->tasks.space = guest->kernel.space;
	linux_task_layout_refresh(&programs->tasks, programs->memory);
	programs->files.space = programs->cache.space = guest->kernel.space;
	/* Randomized by setup_arch(), which may have been still to come. */
	if (!guest->missing.programs.status)
		linux_page_cache_refresh(&programs->cache);
	guest->settled = moved && programs->tasks.settled;
}

static gp_status_t missing(struct linux_guest *guest, struct error *error)
{
	const struct error *why;
	gp_status_t status;

	linux_guest_lock(guest);
	why = guest->missing.symbols.status ? &guest->missing.symbols : &guest->missing.tasks;
	status = why->status;
	if (error)
		*error = *why;
	linux_guest_unlock(guest);
	return status;
}

/* A step failed: wait, longer each time. */
static void put_off(struct linux_guest *guest)
{
	guest->next_try_ns = monotonic_ns() + guest->wait_ns;
	if (guest->wait_ns < LONGEST_WAIT_NS)
		guest->wait_ns *= 2;
}

gp_status_t linux_guest_learn(struct linux_guest *guest, const struct guest_cpu *cpus,
			      const bool *known, unsigned count, struct error *error)
{
	struct linux_stack *before = NULL;
	bool first, changed = false;

	pthread_mutex_lock(&guest->learning);
	if (!guest->settled && monotonic_ns() < guest->next_step_ns)
		goto out;
	guest->next_step_ns = monotonic_ns() + STEP_INTERVAL_NS;
	if (guest->missing.symbols.status) {
		/* The page tables that boot uses go away: look anew each time. */
		if (!find_kernel(guest, cpus, known, count))
			goto out;
		if (monotonic_ns() < guest->next_try_ns)
			goto out;
		if (!read_symbols(guest)) {
			put_off(guest);
			goto out;
		}
	}
	first = !guest->types_tried;
	if (first && !find_kernel(guest, cpus, known, count))
		goto out;
	read_types(guest);
	if (!guest->settled) {
		/* Too early in boot: what was prepared is about to change. */
		uint64_t root = guest->kernel.space.root;

		settle(guest, cpus, known, count);
		changed = guest->settled || guest->kernel.space.root != root;
	}
	if (first || changed)
		before = replace_base(guest);
	changed = read_modules(guest, first) || changed;
	if (first || changed)
		publish_knowledge(guest);
	/* What was published from it is gone. */
	linux_stack_destroy(before);
	learn_programs(guest);
out:
	pthread_mutex_unlock(&guest->learning);
	return missing(guest, error);
}

void linux_guest_learn_names(struct linux_guest *guest, const struct guest_cpu *cpus,
			     const bool *known, unsigned count)
{
	pthread_mutex_lock(&guest->learning);
	if (guest->missing.symbols.status && find_kernel(guest, cpus, known, count))
		read_symbols(guest);
	if (!guest->missing.symbols.status) {
		read_types(guest);
		read_modules(guest, true);
	}
	pthread_mutex_unlock(&guest->learning);
}

bool linux_guest_find_symbol(const struct linux_guest *guest, uint64_t address,
			     struct symbol *symbol, bool *module)
{
	*module = !symbol_table_find(&guest->symbols, address, symbol);
	return !*module || symbol_table_find(&guest->modules.symbols, address, symbol) ||
	       symbol_table_find(&guest->modules_before.symbols, address, symbol);
}

bool linux_guest_panicked(struct linux_guest *guest)
{
	struct linux_reader reader = linux_reader_of(guest->programs.memory, &guest->kernel.space);
	uint64_t symbol;
	uint32_t cpu;
	bool panicked;

	linux_guest_lock(guest);
	symbol = linux_symbol_address(&guest->symbols, "panic_cpu");
	/* kernel/panic.c: panic_cpu is -1 until a CPU panics. */
	panicked = symbol && linux_read_u32(&reader, symbol, &cpu) && (int32_t)cpu >= 0;
	linux_guest_unlock(guest);
	return panicked;
}
