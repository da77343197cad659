#include "sampler/guest_view.h"

#include "guest-introspection/linux/kallsyms.h"
#include "guest-introspection/x86/translate.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NS_PER_SECOND UINT64_C(1000000000)
#define FIRST_WAIT_NS (NS_PER_SECOND / 2)
#define STEP_INTERVAL_NS (NS_PER_SECOND / 12)
#define LONGEST_WAIT_NS (8 * NS_PER_SECOND)
/* Modules come in crowds while a system boots, and stacks through a new one end at it until its
 * tables are read: at once, but for no more than one part in so many of a CPU. */
#define MODULES_SHARE 4

static uint64_t monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

struct guest_view *guest_view_of(struct sampler_target *target)
{
	struct guest_view *view = atomic_load(&target->view), *other = NULL;

	if (view)
		return view;
	view = calloc(1, sizeof(*view));
	if (!view)
		return NULL;
	view->target = target;
	view->memory = target->ops->memory(target);
	view->vcpu_count = target->ops->vcpu_count(target);
	view->wait_ns = FIRST_WAIT_NS;
	pthread_mutex_init(&view->learning, NULL);
	pthread_mutex_init(&view->lock, NULL);
	symbol_table_init(&view->symbols);
	error_set(&view->no_names, GP_ERR_NOT_FOUND, "no sample has been taken");
	error_set(&view->no_tasks, GP_ERR_NOT_FOUND, "no sample has been taken");
	error_set(&view->no_programs, GP_ERR_NOT_FOUND, "no sample has been taken");
	if (atomic_compare_exchange_strong(&target->view, &other, view))
		return view;
	guest_view_destroy(view);
	return other;
}

static void modules_clear(struct guest_modules *modules)
{
	if (modules->known)
		linux_modules_deinit(&modules->list);
	modules->known = false;
}

static void knowledge_destroy(struct guest_knowledge *knowledge)
{
	if (!knowledge)
		return;
	linux_stack_destroy(knowledge->stack);
	free(knowledge);
}

void guest_view_destroy(struct guest_view *view)
{
	if (!view)
		return;
	if (atomic_load(&view->target->view) == view)
		knowledge_destroy(atomic_exchange(&view->target->knowledge, NULL));
	linux_stack_destroy(view->base);
	program_rules_deinit(&view->programs);
	symbol_table_deinit(&view->symbols);
	modules_clear(&view->modules);
	modules_clear(&view->modules_before);
	pthread_mutex_destroy(&view->lock);
	pthread_mutex_destroy(&view->learning);
	free(view);
}

/* Gives capture `next` to use, and frees what it used before once nobody is inside: whoever comes
 * later finds `next`. Captures take microseconds; nothing waits for this thread. */
static void publish(struct guest_view *view, struct guest_knowledge *next)
{
	struct guest_knowledge *before = atomic_exchange(&view->target->knowledge, next);

	atomic_fetch_add(&view->published, 1);
	if (!before)
		return;
	while (atomic_load(&view->target->capturing))
		nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
	if (next && next->stack == before->stack)
		before->stack = NULL; /* handed on */
	knowledge_destroy(before);
	program_rules_free_retired(&view->programs);
}

/* The kernel. */

static bool find_kernel(struct guest_view *view, const struct guest_cpu *cpus, const bool *known,
			unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		struct translation translation;
		struct linux_kernel kernel;
		struct error error = {0};

		/* One vCPU after the other: some may still be in a mode that tells nothing. */
		if (!known[i])
			continue;
		if (linux_kernel_find(view->memory, &cpus[i], 1, &kernel, &error)) {
			guest_view_lock(view);
			if (!view->symbols_read)
				view->no_names = error;
			guest_view_unlock(view);
			continue;
		}
		guest_view_lock(view);
		view->kernel = kernel;
		view->kernel_found = true;
		view->kernel_physical = 0;
		if (guest_translate(&kernel.space, view->memory, gva(kernel.text_base),
				    &translation) == TRANSLATE_OK)
			view->kernel_physical = translation.gpa.value;
		guest_view_unlock(view);
		return true;
	}
	return false;
}

static bool read_symbols(struct guest_view *view)
{
	struct symbol_table symbols;
	struct error error = {0};
	gp_status_t status;

	if (view->symbols_read)
		return true;
	status = linux_kallsyms_read(view->memory, &view->kernel, &symbols, &error);
	guest_view_lock(view);
	if (status) {
		view->no_names = error;
	} else {
		view->symbols = symbols;
		view->symbols_read = true;
		view->no_names = (struct error){0};
	}
	guest_view_unlock(view);
	return !status;
}

/* Where the mappings and files of user programs are. */
static void read_program_types(struct guest_view *view, const struct btf *btf)
{
	struct error error = {0};

	view->programs_known = linux_files_init(view->memory, &view->kernel, &view->symbols, btf,
						&view->files, &error) == GP_OK &&
			       linux_mappings_init(&view->files, &view->symbols, btf,
						   &view->mappings, &error) == GP_OK &&
			       linux_page_cache_init(view->memory, &view->kernel, &view->symbols,
						     btf, &view->cache, &error) == GP_OK;
	/* Without, generated code has no names. */
	view->paths_known = view->programs_known &&
			    linux_paths_init(&view->files, btf, &view->paths, NULL) == GP_OK;
	guest_view_lock(view);
	view->no_programs = error;
	guest_view_unlock(view);
}

bool guest_view_programs(struct guest_view *view, struct guest_programs *out)
{
	bool known;

	pthread_mutex_lock(&view->learning);
	/* Before boot is over there are no programs, and the layout is about to change. */
	known = view->programs_known && view->settled;
	if (known) {
		out->memory = view->memory;
		out->copies = view->copies;
		out->tasks = view->tasks;
		out->files = view->files;
		out->mappings = view->mappings;
		out->mappings.files = &out->files;
		out->cache = view->cache;
		out->paths_known = view->paths_known;
		out->paths = view->paths;
		out->paths.files = &out->files;
	}
	pthread_mutex_unlock(&view->learning);
	return known;
}

void guest_view_use_copies(struct guest_view *view, struct file_copies *copies)
{
	pthread_mutex_lock(&view->learning);
	view->copies = copies;
	pthread_mutex_unlock(&view->learning);
}

/* Where tasks and modules are; once. */
static void read_types(struct guest_view *view)
{
	struct error error = {0};
	struct btf *btf = NULL;

	if (view->types_tried)
		return;
	view->types_tried = true;
	if (linux_btf_read(view->memory, &view->kernel, &view->symbols, &btf, &error)) {
		guest_view_lock(view);
		view->no_tasks = error;
		guest_view_unlock(view);
		return;
	}
	view->tasks_known = linux_task_layout_init(view->memory, &view->kernel, &view->symbols, btf,
						   &view->tasks, &error) == GP_OK;
	guest_view_lock(view);
	view->no_tasks = view->tasks_known ? (struct error){0} : error;
	guest_view_unlock(view);
	view->notes_known = linux_module_notes_init(btf, &view->module_notes, NULL) == GP_OK;
	view->layout_known = linux_module_layout_init(&view->kernel, &view->symbols, btf,
						      &view->module_layout, &error) == GP_OK;
	read_program_types(view, btf);
	btf_destroy(btf);
}

/* Reads the modules again when their list changed. True: it did. */
static bool read_modules(struct guest_view *view, bool now)
{
	struct guest_modules next = {0};
	uint64_t begin = monotonic_ns();
	struct error error;
	gp_status_t status;

	if (!view->layout_known || (!now && begin < view->next_modules_ns))
		return false;
	if (view->modules.known &&
	    !linux_modules_changed(&view->module_layout, view->memory, &view->modules.list.stamp))
		return false;
	status = linux_modules_read(&view->module_layout, view->memory, &next.list, &error);
	view->next_modules_ns = begin + (monotonic_ns() - begin) * MODULES_SHARE;
	if (status && status != GP_ERR_IO_DATA_INTEGRITY)
		return false;
	next.known = true;
	guest_view_lock(view);
	modules_clear(&view->modules_before);
	view->modules_before = view->modules;
	view->modules = next;
	guest_view_unlock(view);
	return true;
}

/* The kernel's own part of what stacks need, which takes long to read: once for the page tables of
 * early boot, once for those that stay. The one before is still in use. */
static struct linux_stack *replace_base(struct guest_view *view)
{
	struct linux_stack *before = view->base;
	struct error note = {0}, error = {0};

	view->base = NULL;
	if (linux_stack_create(view->memory, &view->kernel, &view->symbols, &view->base, &note,
			       &error))
		note = error;
	guest_view_lock(view);
	view->no_stack = note;
	guest_view_unlock(view);
	return before;
}

/* Room for what capture uses, filled in but for the kernel's stacks. */
static struct guest_knowledge *make_knowledge(const struct guest_view *view)
{
	struct guest_knowledge *made =
		calloc(1, sizeof(*made) + view->vcpu_count * sizeof(*made->vcpus));

	if (!made)
		return NULL;
	made->vcpu_count = view->vcpu_count;
	made->tasks_known = view->tasks_known;
	made->tasks = view->tasks;
	made->program_count = program_rules_list(&view->programs, made->programs);
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
static void publish_knowledge(struct guest_view *view)
{
	struct guest_knowledge *next = make_knowledge(view);
	struct error error = {0};

	/* Nothing rather than what is built upon a base that goes. */
	if (!next) {
		publish(view, NULL);
		return;
	}
	if (view->base)
		linux_stack_create_from(view->base, &next->stack, &error);
	for (size_t i = 0; next->stack && view->modules.known && i < view->modules.list.count; i++)
		add_module(next->stack, view->memory, &view->modules.list.modules[i]);
	next->unwind = next->stack ? linux_stack_unwind_kernel(next->stack) : NULL;
	publish(view, next);
}

/* Prepares the programs that captures have asked for. What they know of the kernel stays. */
static void learn_programs(struct guest_view *view)
{
	struct guest_knowledge *known = atomic_load(&view->target->knowledge), *next;
	struct linux_mappings mappings = view->mappings;
	bool changed = false;

	if (!known || !view->programs_known || !view->settled)
		return;
	mappings.files = &view->files;
	for (unsigned i = 0; i < known->vcpu_count; i++) {
		uint64_t mm = atomic_exchange(&known->vcpus[i].wanted, 0);

		if (mm && program_rules_want(&view->programs, &mappings, &view->cache, view->copies,
					     mm, monotonic_ns()))
			changed = true;
	}
	if (!changed)
		return;
	next = make_knowledge(view);
	if (next) {
		next->stack = known->stack;
		next->unwind = known->unwind;
	}
	publish(view, next);
}

/* The kernel's page tables and per-CPU areas move once, early in boot: first the tables. Only
 * tables that were looked for once the areas had moved are those that stay; others the kernel
 * frees, and the guest has gone on between a look at them and a look at the areas. Whoever captures
 * uses a copy of the layout. Without a layout nothing says when boot is over: then never. */
static void settle(struct guest_view *view, const struct guest_cpu *cpus, const bool *known,
		   unsigned count)
{
	bool moved = view->tasks_known && view->tasks.settled;
	struct symbol symbol;

	if (!find_kernel(view, cpus, known, count))
		return;
	view->module_layout.space = view->kernel.space;
	if (!view->tasks_known)
		return;
	view->tasks.space = view->kernel.space;
	linux_task_layout_refresh(&view->tasks, view->memory);
	view->files.space = view->cache.space = view->kernel.space;
	/* Randomized by setup_arch(), which may have been still to come. */
	if (symbol_table_find_name(&view->symbols, "vmemmap_base", &symbol))
		guest_read_virtual(&view->cache.space, NULL, view->memory, gva(symbol.start),
				   &view->cache.page_array, sizeof(view->cache.page_array));
	view->settled = moved && view->tasks.settled;
}

static gp_status_t missing(struct guest_view *view, struct error *error)
{
	const struct error *why;
	gp_status_t status;

	guest_view_lock(view);
	why = view->symbols_read ? &view->no_tasks : &view->no_names;
	status = why->status;
	if (error)
		*error = *why;
	guest_view_unlock(view);
	return status;
}

/* A step failed: wait, longer each time. */
static void put_off(struct guest_view *view)
{
	view->next_try_ns = monotonic_ns() + view->wait_ns;
	if (view->wait_ns < LONGEST_WAIT_NS)
		view->wait_ns *= 2;
}

gp_status_t guest_view_learn(struct guest_view *view, const struct guest_cpu *cpus,
			     const bool *known, unsigned count, struct error *error)
{
	struct linux_stack *before = NULL;
	bool first, changed = false;

	pthread_mutex_lock(&view->learning);
	if (!view->settled && monotonic_ns() < view->next_step_ns)
		goto out;
	view->next_step_ns = monotonic_ns() + STEP_INTERVAL_NS;
	if (!view->symbols_read) {
		/* The page tables that boot uses go away: look anew each time. */
		if (!find_kernel(view, cpus, known, count))
			goto out;
		if (monotonic_ns() < view->next_try_ns)
			goto out;
		if (!read_symbols(view)) {
			put_off(view);
			goto out;
		}
	}
	first = !view->types_tried;
	if (first && !find_kernel(view, cpus, known, count))
		goto out;
	read_types(view);
	if (!view->settled) {
		/* Too early in boot: what was prepared is about to change. */
		uint64_t root = view->kernel.space.root;

		settle(view, cpus, known, count);
		changed = view->settled || view->kernel.space.root != root;
	}
	if (first || changed)
		before = replace_base(view);
	changed = read_modules(view, first) || changed;
	if (first || changed)
		publish_knowledge(view);
	/* What was published from it is gone. */
	linux_stack_destroy(before);
	learn_programs(view);
out:
	pthread_mutex_unlock(&view->learning);
	return missing(view, error);
}

void guest_view_learn_names(struct guest_view *view, const struct guest_cpu *cpus,
			    const bool *known, unsigned count)
{
	pthread_mutex_lock(&view->learning);
	if (!view->symbols_read && find_kernel(view, cpus, known, count))
		read_symbols(view);
	if (view->symbols_read) {
		read_types(view);
		read_modules(view, true);
	}
	pthread_mutex_unlock(&view->learning);
}

bool guest_view_find_symbol(const struct guest_view *view, uint64_t address, struct symbol *symbol,
			    bool *module)
{
	*module = false;
	if (view->symbols_read && symbol_table_find(&view->symbols, address, symbol))
		return true;
	*module = true;
	if (view->modules.known && symbol_table_find(&view->modules.list.symbols, address, symbol))
		return true;
	return view->modules_before.known &&
	       symbol_table_find(&view->modules_before.list.symbols, address, symbol);
}

bool guest_view_panicked(struct guest_view *view)
{
	struct symbol symbol;
	int32_t cpu = -1; /* kernel/panic.c: panic_cpu is -1 until a CPU panics */
	bool panicked;

	guest_view_lock(view);
	panicked = view->symbols_read &&
		   symbol_table_find_name(&view->symbols, "panic_cpu", &symbol) &&
		   guest_read_virtual(&view->kernel.space, NULL, view->memory, gva(symbol.start),
				      &cpu, sizeof(cpu)) == TRANSLATE_OK &&
		   cpu >= 0;
	guest_view_unlock(view);
	return panicked;
}
