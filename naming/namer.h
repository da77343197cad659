/* Finds the names of the addresses a session samples: from the guest kernel's own symbols and those
 * of its modules (guest-introspection/linux/linux_guest.h), from symbol files that the user gave,
 * and from what is known of the kernel's startup code. One thread at a time.
 *
 * Addresses are collected as records pass by (namer_see_sample), and namer_name() hands out each
 * symbol once, as soon as it can be had.
 */
#ifndef NAMING_NAMER_H
#define NAMING_NAMER_H

#include "base/error.h"
#include "base/hash_table.h"
#include "fxt/sample.h"
#include "fxt/symbol.h"
#include "guest-introspection/elf/symbol_table.h"
#include "guest-introspection/linux/linux_guest.h"

/* How an address is to be named. */
enum address_kind {
	ADDRESS_VIRTUAL,
	ADDRESS_STARTUP, /* kernel mode, below the kernel's half: physical or one to one */
	ADDRESS_CALLED,  /* virtual; not sampled: sampled code calls what begins there, perhaps */
};

static inline enum address_kind namer_address_kind(bool user, uint64_t address)
{
	return user || address >= GUEST_KERNEL_HALF ? ADDRESS_VIRTUAL : ADDRESS_STARTUP;
}

struct namer_config {
	struct linux_guest *guest;
	/* Given by the user: they name any address they contain. Borrowed. */
	const struct symbol_table *tables;
	unsigned table_count;
	/* Of the kernel file that was booted, for addresses of the kernel only, which its own
	 * memory and the tables above do not name. NULL: none. Borrowed. */
	const struct symbol_table *kernel_file;
	/* Guest-physical range the kernel file was loaded to: code that runs there before the
	 * kernel's own mapping is its startup code. Both 0: none. */
	uint64_t startup_start;
	uint64_t startup_end;
};

struct namer {
	struct namer_config config;
	struct hash_table addresses; /* all that were sampled, by kind */
	struct hash_table written;   /* starts of symbols handed out, likewise */
	size_t called;               /* how many addresses are ADDRESS_CALLED */
};

void namer_init(struct namer *namer, const struct namer_config *config);
void namer_deinit(struct namer *namer);

/* Remembers a sample's addresses. True: one is kernel code that nothing is known of, which may be
 * gone soon: looking at once is worth while. */
bool namer_see_sample(struct namer *namer, const struct fxt_sample *sample);

/* Gives `write` the symbols of all addresses that can be named now and were not before. */
void namer_name(struct namer *namer,
		void (*write)(void *context, const struct fxt_symbol *symbols, size_t count),
		void *context);

/* The name of one address, as the samples have it. config.guest is locked, and `out` good until it
 * is unlocked. */
bool namer_find(const struct namer *namer, enum address_kind kind, uint64_t address,
		struct fxt_symbol *out);

/* Also names this address if a symbol begins there: sampled code refers to it. */
void namer_see_called(struct namer *namer, uint64_t address);

/* Whether a sampled address is in [start, start + size). Looks at all of them. */
bool namer_has_seen(const struct namer *namer, uint64_t start, uint64_t size);

/* An address has a name in a process: it counts as named, even if none of ours holds for it. */
void namer_see_named(struct namer *namer, uint64_t address);

/* How many different addresses were seen, and how many of them have no name. */
void namer_count(const struct namer *namer, uint64_t *seen, uint64_t *unnamed);

#endif
