#include "sampler/namer.h"

#include "fxt/record.h"
#include "guest-introspection/kallsyms.h"
#include "guest-introspection/translate.h"

#include <stdlib.h>
#include <string.h>

#define SYMBOLS_PER_CALL 64

enum address_mark { MARK_NEW, MARK_DONE };

gp_status_t namer_init(struct namer *namer, const struct namer_config *config)
{
	struct sampler_target *target = config->session->target;

	*namer = (struct namer){
		.config = *config,
		.memory = target->ops->memory(target),
		.vcpu_count = config->session->vcpu_count,
	};
	symbol_table_init(&namer->kernel_symbols);
	error_set(&namer->no_names, GP_ERR_NOT_FOUND, "no sample has been taken");
	namer->cpus = calloc(namer->vcpu_count, sizeof(*namer->cpus));
	namer->cpu_known = calloc(namer->vcpu_count, sizeof(*namer->cpu_known));
	if (namer->cpus && namer->cpu_known)
		return GP_OK;
	namer_deinit(namer);
	return GP_ERR_NO_MEMORY;
}

void namer_deinit(struct namer *namer)
{
	for (int kind = 0; kind < ADDRESS_KINDS; kind++) {
		address_set_deinit(&namer->addresses[kind]);
		address_set_deinit(&namer->written[kind]);
	}
	symbol_table_deinit(&namer->kernel_symbols);
	free(namer->cpus);
	free(namer->cpu_known);
	namer->cpus = NULL;
	namer->cpu_known = NULL;
}

static void see_address(struct namer *namer, enum address_kind kind, uint64_t address)
{
	size_t place;

	if (address)
		address_set_place(&namer->addresses[kind], address, &place);
}

static void see_sample(struct namer *namer, const struct fxt_sample *sample)
{
	bool user = sample->mode == FXT_MODE_GUEST_USER;

	for (size_t i = 0; i < sample->depth; i++) {
		/* A return address is behind its call, which may be the function's last byte. */
		uint64_t address = sample->stack[i] - (i ? 1 : 0);

		see_address(namer,
			    user || address >= GUEST_KERNEL_HALF ? ADDRESS_VIRTUAL
								 : ADDRESS_STARTUP,
			    address);
	}
}

void namer_see_records(struct namer *namer, const uint64_t *words, size_t count)
{
	size_t at = 0;

	while (at < count) {
		uint64_t header = words[at];
		size_t size = fxt_header_words(header);
		struct fxt_sample sample;
		struct fxt_blob blob = {
			.type = (uint8_t)fxt_bits(header, 48, 55),
			.payload = &words[at + 1],
			.size = fxt_bits(header, 32, 46),
		};

		if (!size || size > count - at)
			return;
		if (fxt_header_type(header) == FXT_TYPE_BLOB && fxt_blob_is_sample(&blob) &&
		    !fxt_sample_decode(&blob, &sample))
			see_sample(namer, &sample);
		at += size;
	}
}

/* Finds the name of an address. `out` is at the addresses that the samples have. */
static bool find_name(const struct namer *namer, enum address_kind kind, uint64_t address,
		      struct fxt_symbol *out)
{
	uint64_t slide = namer->kernel.text_base - namer->kernel_physical;
	const struct namer_config *config = &namer->config;
	struct symbol symbol;
	uint32_t symbol_kind = FXT_SYMBOL_KERNEL;
	bool found = false;

	if (kind == ADDRESS_VIRTUAL && address >= GUEST_KERNEL_HALF && namer->symbols_read)
		found = symbol_table_find(&namer->kernel_symbols, address, &symbol);
	if (!found && kind == ADDRESS_STARTUP && namer->symbols_read && namer->kernel_physical &&
	    address >= namer->kernel_physical &&
	    symbol_table_find(&namer->kernel_symbols, address + slide, &symbol)) {
		/* The kernel's first steps, before it runs where it was linked to. */
		symbol.start -= slide;
		symbol_kind = FXT_SYMBOL_BOOT;
		found = true;
	}
	for (unsigned i = 0; !found && i < config->table_count; i++) {
		found = symbol_table_find(config->tables[i], address, &symbol);
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

void namer_name(struct namer *namer,
		void (*write)(void *context, const struct fxt_symbol *symbols, size_t count),
		void *context)
{
	struct fxt_symbol batch[SYMBOLS_PER_CALL];
	size_t pending = 0;

	for (int kind = 0; kind < ADDRESS_KINDS; kind++) {
		struct address_set *set = &namer->addresses[kind];

		for (size_t i = 0; i < set->capacity; i++) {
			if (!set->addresses[i] || set->marks[i] == MARK_DONE)
				continue;
			if (!find_name(namer, (enum address_kind)kind, set->addresses[i],
				       &batch[pending]))
				continue;
			set->marks[i] = MARK_DONE;
			if (is_written(&namer->written[kind], batch[pending].start))
				continue;
			if (++pending == SYMBOLS_PER_CALL) {
				write(context, batch, pending);
				pending = 0;
			}
		}
	}
	if (pending)
		write(context, batch, pending);
}

void namer_look_for_kernel(struct namer *namer)
{
	for (unsigned i = 0; i < namer->vcpu_count; i++)
		if (session_registers(namer->config.session, i, &namer->cpus[i]))
			namer->cpu_known[i] = true;
	for (unsigned i = 0; i < namer->vcpu_count; i++) {
		struct translation translation;
		struct linux_kernel kernel;

		if (!namer->cpu_known[i])
			continue;
		/* One vCPU after the other: some may still be in a mode that tells nothing. */
		if (linux_kernel_find(namer->memory, &namer->cpus[i], 1, &kernel, &namer->no_names))
			continue;
		namer->kernel = kernel;
		namer->kernel_found = true;
		if (guest_translate(&kernel.space, namer->memory, gva(kernel.text_base),
				    &translation) == TRANSLATE_OK)
			namer->kernel_physical = translation.gpa.value;
		return;
	}
}

void namer_read_symbols(struct namer *namer)
{

	/* Page tables that served early in boot may be gone. */
	namer_look_for_kernel(namer);
	if (!namer->kernel_found || namer->symbols_read)
		return;
	if (linux_kallsyms_read(namer->memory, &namer->kernel, &namer->kernel_symbols,
				&namer->no_names))
		return;
	namer->symbols_read = true;
	namer->no_names = (struct error){0};
}

bool namer_guest_panicked(const struct namer *namer)
{
	struct symbol symbol;
	int32_t cpu = -1; /* kernel/panic.c: panic_cpu is -1 until a CPU panics */

	return namer->symbols_read &&
	       symbol_table_find_name(&namer->kernel_symbols, "panic_cpu", &symbol) &&
	       guest_read_virtual(&namer->kernel.space, NULL, namer->memory, gva(symbol.start),
				  &cpu, sizeof(cpu)) == TRANSLATE_OK &&
	       cpu >= 0;
}

void namer_count(const struct namer *namer, uint64_t *seen, uint64_t *unnamed)
{
	*seen = *unnamed = 0;
	for (int kind = 0; kind < ADDRESS_KINDS; kind++) {
		const struct address_set *set = &namer->addresses[kind];

		*seen += set->count;
		for (size_t i = 0; i < set->capacity; i++)
			*unnamed += set->addresses[i] && set->marks[i] != MARK_DONE;
	}
}
