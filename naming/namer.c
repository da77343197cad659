#include "naming/namer.h"

#include <string.h>

#define SYMBOLS_PER_CALL 64
#define ADDRESSES_MAX (UINT32_C(4) << 20) /* others are not named: 128 MiB of memory */
#define CALLED_MAX (1u << 16)

struct key {
	uint64_t address;
	uint64_t kind; /* enum address_kind */
};

struct namer_address {
	struct key key;
	enum { NAME_UNKNOWN, NAME_KNOWN, NAME_KNOWN_IN_PROCESS } name;
};

void namer_init(struct namer *namer, const struct namer_config *config)
{
	*namer = (struct namer){.config = *config};
	hash_table_init(&namer->addresses, sizeof(struct key), sizeof(struct namer_address));
	hash_table_init(&namer->written, sizeof(struct key), sizeof(struct key));
}

void namer_deinit(struct namer *namer)
{
	hash_table_deinit(&namer->addresses);
	hash_table_deinit(&namer->written);
}

/* Finds or adds an address. NULL: no memory or no room. */
static struct namer_address *add_address(struct namer *namer, enum address_kind kind,
					 uint64_t address)
{
	const struct key key = {address, kind};
	uint32_t number;

	if (!address || namer->addresses.count >= ADDRESSES_MAX ||
	    !hash_table_add(&namer->addresses, &key, &number))
		return NULL;
	return (struct namer_address *)namer->addresses.entries + number;
}

/* Whether it is a kernel's address that nothing is known of: a module's that has just come, most
 * often. */
static bool is_unknown_code(const struct namer *namer, uint64_t address)
{
	struct linux_guest *guest = namer->config.guest;
	struct symbol symbol;
	bool module, unknown;

	if (address < GUEST_KERNEL_HALF)
		return false;
	linux_guest_lock(guest);
	unknown = !guest->missing.symbols.status &&
		  !linux_guest_find_symbol(guest, address, &symbol, &module);
	linux_guest_unlock(guest);
	return unknown;
}

/* True: it is new, and worth a look at what the guest has loaded. */
static bool see_address(struct namer *namer, enum address_kind kind, uint64_t address)
{
	size_t before = namer->addresses.count;

	return add_address(namer, kind, address) && namer->addresses.count > before &&
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
	size_t before = namer->addresses.count;

	if (namer->called < CALLED_MAX && add_address(namer, ADDRESS_CALLED, address))
		namer->called += namer->addresses.count - before;
}

void namer_see_named(struct namer *namer, uint64_t address)
{
	struct namer_address *known = add_address(namer, ADDRESS_VIRTUAL, address);

	if (known && known->name == NAME_UNKNOWN)
		known->name = NAME_KNOWN_IN_PROCESS;
}

bool namer_find(const struct namer *namer, enum address_kind kind, uint64_t address,
		struct fxt_symbol *out)
{
	const struct namer_config *config = &namer->config;
	const struct linux_guest *guest = config->guest;
	uint64_t slide = guest->kernel.text_base - guest->kernel_physical;
	uint32_t symbol_kind = FXT_SYMBOL_KERNEL;
	struct symbol symbol;
	bool found = false, module;

	if (kind != ADDRESS_STARTUP && address >= GUEST_KERNEL_HALF) {
		found = linux_guest_find_symbol(guest, address, &symbol, &module);
		if (found && module)
			symbol_kind = FXT_SYMBOL_MODULE;
	}
	if (!found && kind == ADDRESS_STARTUP && guest->kernel_physical &&
	    address >= guest->kernel_physical &&
	    symbol_table_find(&guest->symbols, address + slide, &symbol)) {
		/* The kernel's first steps, before it runs where it was linked to. */
		symbol.start -= slide;
		symbol_kind = FXT_SYMBOL_BOOT;
		found = true;
	}
	for (unsigned i = 0; !found && i < config->table_count; i++) {
		found = symbol_table_find(&config->tables[i], address, &symbol);
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
static bool is_written(struct namer *namer, enum address_kind kind, uint64_t start)
{
	const struct key key = {start, kind == ADDRESS_STARTUP};
	size_t before = namer->written.count;
	uint32_t number;

	return start && hash_table_add(&namer->written, &key, &number) &&
	       namer->written.count == before;
}

void namer_name(struct namer *namer,
		void (*write)(void *context, const struct fxt_symbol *symbols, size_t count),
		void *context)
{
	struct namer_address *addresses = namer->addresses.entries;
	struct fxt_symbol batch[SYMBOLS_PER_CALL];
	size_t pending = 0;

	/* Names lie in tables that the lock holds for until they are written. */
	linux_guest_lock(namer->config.guest);
	for (size_t i = 0; i < namer->addresses.count; i++) {
		struct namer_address *at = &addresses[i];
		enum address_kind kind = (enum address_kind)at->key.kind;

		if (at->name == NAME_KNOWN ||
		    !namer_find(namer, kind, at->key.address, &batch[pending]))
			continue;
		at->name = NAME_KNOWN;
		/* In the middle of something it is no call. */
		if ((kind == ADDRESS_CALLED && batch[pending].start != at->key.address) ||
		    is_written(namer, kind, batch[pending].start))
			continue;
		if (++pending == SYMBOLS_PER_CALL) {
			write(context, batch, pending);
			pending = 0;
		}
	}
	if (pending)
		write(context, batch, pending);
	linux_guest_unlock(namer->config.guest);
}

void namer_count(const struct namer *namer, uint64_t *seen, uint64_t *unnamed)
{
	const struct namer_address *addresses = namer->addresses.entries;

	*seen = namer->addresses.count - namer->called;
	*unnamed = 0;
	for (size_t i = 0; i < namer->addresses.count; i++)
		*unnamed += addresses[i].key.kind != ADDRESS_CALLED &&
			    addresses[i].name == NAME_UNKNOWN;
}

bool namer_has_seen(const struct namer *namer, uint64_t start, uint64_t size)
{
	const struct namer_address *addresses = namer->addresses.entries;

	for (size_t i = 0; size && i < namer->addresses.count; i++)
		if (addresses[i].key.kind == ADDRESS_VIRTUAL && addresses[i].key.address >= start &&
		    addresses[i].key.address - start < size)
			return true;
	return false;
}
