#include "naming/namer.h"

#include <string.h>

#define SYMBOLS_PER_CALL 64
#define CALLED_MAX (1u << 16)

enum address_mark { MARK_NEW, MARK_DONE, MARK_NAMED_IN_PROCESS };

void namer_init(struct namer *namer, const struct namer_config *config)
{
	*namer = (struct namer){.config = *config};
}

void namer_deinit(struct namer *namer)
{
	for (int kind = 0; kind < ADDRESS_KINDS; kind++) {
		address_set_deinit(&namer->addresses[kind]);
		address_set_deinit(&namer->written[kind]);
	}
}

/* Whether it is a kernel's address that nothing is known of: a module's that has just come, most
 * often. */
static bool is_unknown_code(const struct namer *namer, uint64_t address)
{
	struct linux_guest *view = namer->config.view;
	struct symbol symbol;
	bool module, unknown;

	if (address < GUEST_KERNEL_HALF)
		return false;
	linux_guest_lock(view);
	unknown = view->symbols_read && !linux_guest_find_symbol(view, address, &symbol, &module);
	linux_guest_unlock(view);
	return unknown;
}

/* True: it is new, and worth a look at what the guest has loaded. */
static bool see_address(struct namer *namer, enum address_kind kind, uint64_t address)
{
	struct address_set *set = &namer->addresses[kind];
	size_t before = set->count, place;

	return address && address_set_place(set, address, &place) && set->count > before &&
	       is_unknown_code(namer, address);
}

bool namer_see_sample(struct namer *namer, const struct fxt_sample *sample)
{
	bool user = sample->mode == FXT_MODE_GUEST_USER, news = false;

	for (size_t i = 0; i < sample->depth; i++) {
		/* A return address is behind its call, which may be the function's last byte. */
		bool exact = i == 0;
		uint64_t address;

		if ((sample->flags & FXT_SAMPLE_KERNEL_FRAMES) && i == sample->kernel_frames)
			user = exact = true;
		address = sample->stack[i] - (exact ? 0 : 1);
		if (see_address(namer, namer_address_kind(user, address), address))
			news = true;
	}
	return news;
}

void namer_see_called(struct namer *namer, uint64_t address)
{
	struct address_set *set = &namer->addresses[ADDRESS_CALLED];
	size_t place;

	if (address && set->count < CALLED_MAX)
		address_set_place(set, address, &place);
}

void namer_see_named(struct namer *namer, uint64_t address)
{
	struct address_set *set = &namer->addresses[ADDRESS_VIRTUAL];
	size_t place;

	if (address_set_place(set, address, &place) && set->marks[place] == MARK_NEW)
		set->marks[place] = MARK_NAMED_IN_PROCESS;
}

bool namer_find(const struct namer *namer, enum address_kind kind, uint64_t address,
		struct fxt_symbol *out)
{
	const struct namer_config *config = &namer->config;
	const struct linux_guest *view = config->view;
	uint64_t slide = view->kernel.text_base - view->kernel_physical;
	uint32_t symbol_kind = FXT_SYMBOL_KERNEL;
	struct symbol symbol;
	bool found = false, module;

	if (kind != ADDRESS_STARTUP && address >= GUEST_KERNEL_HALF) {
		found = linux_guest_find_symbol(view, address, &symbol, &module);
		if (found && module)
			symbol_kind = FXT_SYMBOL_MODULE;
	}
	if (!found && kind == ADDRESS_STARTUP && view->symbols_read && view->kernel_physical &&
	    address >= view->kernel_physical &&
	    symbol_table_find(&view->symbols, address + slide, &symbol)) {
		/* The kernel's first steps, before it runs where it was linked to. */
		symbol.start -= slide;
		symbol_kind = FXT_SYMBOL_BOOT;
		found = true;
	}
	for (unsigned i = 0; !found && i < config->table_count; i++) {
		found = symbol_table_find(config->tables[i], address, &symbol);
		symbol_kind = FXT_SYMBOL_FILE;
	}
	if (!found && config->kernel_file &&
	    (kind == ADDRESS_STARTUP || address >= GUEST_KERNEL_HALF)) {
		found = symbol_table_find(config->kernel_file, address, &symbol);
		symbol_kind = FXT_SYMBOL_FILE;
	}
	if (!found && kind == ADDRESS_STARTUP && address >= config->startup_start &&
	    address < config->startup_end) {
		symbol = (struct symbol){.start = config->startup_start,
					 .size = config->startup_end - config->startup_start,
					 .name = "[kernel startup]"};
		symbol_kind = FXT_SYMBOL_BOOT;
		found = true;
	}
	if (!found)
		return false;
	*out = (struct fxt_symbol){.start = symbol.start,
				   .size = symbol.size,
				   .kind = symbol_kind,
				   .name = symbol.name,
				   .name_bytes = (uint32_t)strlen(symbol.name)};
	return true;
}

/* Two symbols are one when they start alike: enough to write each once. */
static bool is_written(struct address_set *written, uint64_t start)
{
	size_t place;

	if (!start || !address_set_place(written, start, &place))
		return false;
	if (written->marks[place] == MARK_DONE)
		return true;
	written->marks[place] = MARK_DONE;
	return false;
}

static struct address_set *written_of(struct namer *namer, int kind)
{
	return &namer->written[kind == ADDRESS_CALLED ? ADDRESS_VIRTUAL : kind];
}

void namer_name(struct namer *namer,
		void (*write)(void *context, const struct fxt_symbol *symbols, size_t count),
		void *context)
{
	struct fxt_symbol batch[SYMBOLS_PER_CALL];
	size_t pending = 0;

	/* Names lie in the view's tables until they are written. */
	linux_guest_lock(namer->config.view);
	for (int kind = 0; kind < ADDRESS_KINDS; kind++) {
		struct address_set *set = &namer->addresses[kind];

		for (size_t i = 0; i < set->capacity; i++) {
			if (!set->addresses[i] || set->marks[i] == MARK_DONE)
				continue;
			if (!namer_find(namer, (enum address_kind)kind, set->addresses[i],
					&batch[pending]))
				continue;
			set->marks[i] = MARK_DONE;
			/* In the middle of something it is no call. */
			if (kind == ADDRESS_CALLED && batch[pending].start != set->addresses[i])
				continue;
			if (is_written(written_of(namer, kind), batch[pending].start))
				continue;
			if (++pending == SYMBOLS_PER_CALL) {
				write(context, batch, pending);
				pending = 0;
			}
		}
	}
	if (pending)
		write(context, batch, pending);
	linux_guest_unlock(namer->config.view);
}

void namer_count(const struct namer *namer, uint64_t *seen, uint64_t *unnamed)
{
	*seen = *unnamed = 0;
	for (int kind = 0; kind < ADDRESS_CALLED; kind++) {
		const struct address_set *set = &namer->addresses[kind];

		*seen += set->count;
		for (size_t i = 0; i < set->capacity; i++)
			*unnamed += set->addresses[i] && set->marks[i] == MARK_NEW;
	}
}

bool namer_has_seen(const struct namer *namer, uint64_t start, uint64_t size)
{
	const struct address_set *set = &namer->addresses[ADDRESS_VIRTUAL];

	for (size_t i = 0; size && i < set->capacity; i++)
		if (set->addresses[i] >= start && set->addresses[i] - start < size)
			return true;
	return false;
}
