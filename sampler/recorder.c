#include "sampler/recorder.h"

#include "base/container.h"
#include "fxt/metadata.h"
#include "fxt/sample.h"
#include "fxt/symbol.h"
#include "fxt/writer.h"
#include "guest-introspection/kallsyms.h"
#include "guest-introspection/linux_kernel.h"
#include "guest-introspection/translate.h"
#include "sampler/address_set.h"
#include "sampler/session.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define DRAIN_MILLISECONDS 50
#define FIND_KERNEL_INTERVAL_NS UINT64_C(100000000)
/* Reading the symbols takes CPU time from the guest's vCPUs on a small host, so it waits until
 * most boots are over; until then a killed recorder leaves addresses without names. */
#define READ_SYMBOLS_AFTER_NS UINT64_C(5000000000)
#define NAME_INTERVAL_NS UINT64_C(1000000000)
#define KERNEL_HALF UINT64_C(0xffff800000000000)
#define SYMBOLS_PER_BLOB 64

/* How an address is to be named. */
enum address_class {
	ADDRESS_VIRTUAL,
	ADDRESS_STARTUP, /* kernel mode, below the kernel's half: physical or one to one */
	ADDRESS_CLASSES,
};

enum address_mark { MARK_NEW, MARK_NAMED };

struct recorder {
	struct recorder_config config;
	unsigned vcpu_count;
	pthread_t thread;
	int stop_fd;

	uint8_t *buffer;
	size_t buffer_size;

	uint64_t offset; /* bytes of whole records in the file */
	struct error problem;

	struct address_set addresses[ADDRESS_CLASSES];
	struct guest_cpu *cpus; /* the latest registers of each vCPU */
	bool *cpu_known;
	bool kernel_found;
	struct linux_kernel kernel;
	uint64_t kernel_physical; /* of text_base; 0: not known */
	uint64_t found_at;
	uint64_t next_look;
	struct symbol_table kernel_symbols;
	bool symbols_read;
	struct error no_names;
};

/* The file. */

static void write_records(struct recorder *recorder, const void *bytes, size_t size)
{
	const uint8_t *from = bytes;
	size_t done = 0;

	if (recorder->problem.status)
		return; /* the first failure stands; what follows would be torn */
	while (done < size) {
		ssize_t written = write(recorder->config.fd, from + done, size - done);

		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0) {
			error_set_errno(&recorder->problem, written < 0 ? errno : ENOSPC,
					"the trace ends early: writing failed after %llu bytes",
					(unsigned long long)recorder->offset);
			/* Back to the last whole record, as far as the file allows. */
			if (ftruncate(recorder->config.fd, (off_t)recorder->offset))
				return;
			lseek(recorder->config.fd, (off_t)recorder->offset, SEEK_SET);
			return;
		}
		done += (size_t)written;
	}
	recorder->offset += size;
}

static void write_words(struct recorder *recorder, const uint64_t *words, size_t count)
{
	if (count)
		write_records(recorder, words, count * sizeof(*words));
}

static void write_metadata(struct recorder *recorder, const char *name, uint64_t thread,
			   const struct fxt_argument *arguments, size_t count)
{
	uint64_t words[FXT_RECORD_WORDS_MAX];

	write_words(recorder, words,
		    fxt_metadata_encode(name, boot_time_ns(), thread, arguments, count, words,
					ARRAY_SIZE(words)));
}

/* A text argument; long ones are cut so that the record always fits. */
static struct fxt_argument text_argument(const char *name, const char *value)
{
	enum { LONGEST = 4096 };
	struct fxt_argument argument = fxt_argument_text(name, value ? value : "");

	if (argument.string.length > LONGEST)
		argument.string.length = LONGEST;
	return argument;
}

static uint64_t wall_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void write_head(struct recorder *recorder)
{
	const struct recorder_config *config = &recorder->config;
	const struct fxt_argument arguments[] = {
		fxt_argument_text(FXT_SESSION_VERSION, GUESTPROF_VERSION),
		fxt_argument_u64(FXT_SESSION_PERIOD, config->period_ns),
		fxt_argument_u64(FXT_SESSION_DEPTH, config->depth),
		fxt_argument_u64(FXT_SESSION_VCPUS, recorder->vcpu_count),
		text_argument(FXT_SESSION_TICK_SOURCE, config->tick_source),
		fxt_argument_u64(FXT_SESSION_MEMORY, config->memory_bytes),
		text_argument(FXT_SESSION_KERNEL, config->kernel),
		text_argument(FXT_SESSION_COMMAND_LINE, config->command_line),
		fxt_argument_u64(FXT_SESSION_WALL_CLOCK, wall_clock_ns()),
	};

	write_metadata(recorder, FXT_SESSION, FXT_VCPU_PROCESS, arguments, ARRAY_SIZE(arguments));
	for (unsigned i = 0; i < recorder->vcpu_count; i++) {
		uint64_t words[64];
		char name[32];

		snprintf(name, sizeof(name), "vCPU %u", i);
		write_words(recorder, words,
			    fxt_encode_thread_name(FXT_VCPU_PROCESS, fxt_vcpu_thread(i),
						   fxt_text(name), words, ARRAY_SIZE(words)));
	}
}

/* Names. */

static void see_address(struct recorder *recorder, enum address_class class, uint64_t address)
{
	size_t place;

	if (address)
		address_set_place(&recorder->addresses[class], address, &place);
}

static void see_sample(struct recorder *recorder, const struct fxt_sample *sample)
{
	bool user = sample->mode == FXT_MODE_GUEST_USER;

	for (size_t i = 0; i < sample->depth; i++) {
		/* A return address is behind its call, which may be the function's last byte. */
		uint64_t address = sample->stack[i] - (i ? 1 : 0);

		see_address(recorder,
			    user || address >= KERNEL_HALF ? ADDRESS_VIRTUAL : ADDRESS_STARTUP,
			    address);
	}
}

/* Looks through records that our own rings gave. */
static void see_records(struct recorder *recorder, const uint64_t *words, size_t count)
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
			see_sample(recorder, &sample);
		at += size;
	}
}

/* Finds the name of an address. `symbol` has the addresses as the samples have them. */
static bool find_name(const struct recorder *recorder, enum address_class class, uint64_t address,
		      struct fxt_symbol *out)
{
	uint64_t slide = recorder->kernel.text_base - recorder->kernel_physical;
	const struct recorder_config *config = &recorder->config;
	struct symbol symbol;
	uint32_t kind = FXT_SYMBOL_KERNEL;
	bool found = false;

	if (class == ADDRESS_VIRTUAL && address >= KERNEL_HALF && recorder->symbols_read)
		found = symbol_table_find(&recorder->kernel_symbols, address, &symbol);
	if (!found && class == ADDRESS_STARTUP && recorder->symbols_read &&
	    recorder->kernel_physical && address >= recorder->kernel_physical &&
	    symbol_table_find(&recorder->kernel_symbols, address + slide, &symbol)) {
		/* The kernel's first steps, before it runs where it was linked to. */
		symbol.start -= slide;
		kind = FXT_SYMBOL_BOOT;
		found = true;
	}
	for (unsigned i = 0; !found && i < config->table_count; i++) {
		found = symbol_table_find(config->tables[i], address, &symbol);
		kind = FXT_SYMBOL_FILE;
	}
	if (!found && class == ADDRESS_STARTUP && address >= config->startup_start &&
	    address < config->startup_end) {
		symbol = (struct symbol){.start = config->startup_start,
					 .size = config->startup_end - config->startup_start,
					 .name = "[kernel startup]"};
		kind = FXT_SYMBOL_BOOT;
		found = true;
	}
	if (!found)
		return false;
	*out = (struct fxt_symbol){.start = symbol.start,
				   .size = symbol.size,
				   .kind = kind,
				   .name = symbol.name,
				   .name_bytes = (uint32_t)strlen(symbol.name)};
	return true;
}

static void write_symbols(struct recorder *recorder, const struct fxt_symbol *symbols, size_t count)
{
	uint64_t words[FXT_RECORD_WORDS_MAX];
	size_t done = 0, taken;

	while (done < count) {
		size_t used = fxt_symbols_encode(symbols + done, count - done, words,
						 ARRAY_SIZE(words), &taken);

		if (!used)
			return;
		write_words(recorder, words, used);
		done += taken;
	}
}

/* Two symbols are one when they start alike: enough to write each once. */
static bool is_written(struct address_set *written, uint64_t start)
{
	size_t place;

	if (!start || !address_set_place(written, start, &place))
		return false;
	if (written->marks[place] == MARK_NAMED)
		return true;
	written->marks[place] = MARK_NAMED;
	return false;
}

/* Writes the symbols of all addresses that can be named now and were not before. */
static void name_addresses(struct recorder *recorder, struct address_set written[ADDRESS_CLASSES])
{
	struct fxt_symbol batch[SYMBOLS_PER_BLOB];
	size_t pending = 0;

	for (int class = 0; class < ADDRESS_CLASSES; class ++) {
		struct address_set *set = &recorder->addresses[class];

		for (size_t i = 0; i < set->capacity; i++) {
			if (!set->addresses[i] || set->marks[i] == MARK_NAMED)
				continue;
			if (!find_name(recorder, (enum address_class) class, set->addresses[i],
				       &batch[pending]))
				continue;
			set->marks[i] = MARK_NAMED;
			if (is_written(&written[class], batch[pending].start))
				continue;
			if (++pending == SYMBOLS_PER_BLOB) {
				write_symbols(recorder, batch, pending);
				pending = 0;
			}
		}
	}
	write_symbols(recorder, batch, pending);
}

/* The guest kernel. */

static void look_for_kernel(struct recorder *recorder)
{
	const struct guest_memory *memory =
		recorder->config.target->ops->memory(recorder->config.target);
	unsigned known = 0;

	for (unsigned i = 0; i < recorder->vcpu_count; i++)
		if (session_registers(recorder->config.session, i, &recorder->cpus[i]))
			recorder->cpu_known[i] = true;
	for (unsigned i = 0; i < recorder->vcpu_count; i++) {
		struct translation translation;
		struct linux_kernel kernel;

		if (!recorder->cpu_known[i])
			continue;
		known++;
		/* One vCPU after the other: some may still be in a mode that tells nothing. */
		if (linux_kernel_find(memory, &recorder->cpus[i], 1, &kernel, &recorder->no_names))
			continue;
		if (!recorder->kernel_found)
			recorder->found_at = boot_time_ns();
		recorder->kernel = kernel;
		recorder->kernel_found = true;
		if (guest_translate(&kernel.space, memory, gva(kernel.text_base), &translation) ==
		    TRANSLATE_OK)
			recorder->kernel_physical = translation.gpa.value;
		return;
	}
	if (!known)
		error_set(&recorder->no_names, GP_ERR_NOT_FOUND, "no sample has been taken");
}

static void read_symbols(struct recorder *recorder)
{
	const struct guest_memory *memory =
		recorder->config.target->ops->memory(recorder->config.target);

	look_for_kernel(recorder);
	if (!recorder->kernel_found || recorder->symbols_read)
		return;
	if (linux_kallsyms_read(memory, &recorder->kernel, &recorder->kernel_symbols,
				&recorder->no_names))
		return;
	recorder->symbols_read = true;
	recorder->no_names = (struct error){0};
}

static void write_guest(struct recorder *recorder)
{
	const struct fxt_argument arguments[] = {
		text_argument(FXT_GUEST_BANNER, recorder->kernel.banner),
		fxt_argument_u64(FXT_GUEST_TEXT_BASE, recorder->kernel.text_base),
	};

	if (recorder->kernel_found)
		write_metadata(recorder, FXT_GUEST, FXT_VCPU_PROCESS, arguments,
			       ARRAY_SIZE(arguments));
}

/* kernel/panic.c: panic_cpu is -1 until a CPU panics, then its number. */
static bool guest_panicked(const struct recorder *recorder)
{
	const struct guest_memory *memory =
		recorder->config.target->ops->memory(recorder->config.target);
	struct symbol symbol;
	int32_t cpu = -1;

	return recorder->symbols_read &&
	       symbol_table_find_name(&recorder->kernel_symbols, "panic_cpu", &symbol) &&
	       guest_read_virtual(&recorder->kernel.space, NULL, memory, gva(symbol.start), &cpu,
				  sizeof(cpu)) == TRANSLATE_OK &&
	       cpu >= 0;
}

/* The reader thread. */

static gp_status_t drain(struct recorder *recorder)
{
	size_t actual;
	gp_status_t status = gp_sampler_read(recorder->config.session, 0, recorder->buffer,
					     recorder->buffer_size, &actual);

	if (status == GP_ERR_INVALID_ARGS) {
		/* Half as much again: more comes while we ask. */
		size_t size = (actual + actual / 2 + 4095) & ~(size_t)4095;
		uint8_t *larger = realloc(recorder->buffer, size);

		if (!larger)
			return GP_ERR_NO_MEMORY; /* the rings keep it, or count its loss */
		recorder->buffer = larger;
		recorder->buffer_size = size;
		status = gp_sampler_read(recorder->config.session, 0, recorder->buffer,
					 recorder->buffer_size, &actual);
	}
	if (status || !actual)
		return status;
	write_records(recorder, recorder->buffer, actual);
	see_records(recorder, (const uint64_t *)(const void *)recorder->buffer, actual / 8);
	return GP_OK;
}

static void *reader_main(void *argument)
{
	struct recorder *recorder = argument;
	struct address_set written[ADDRESS_CLASSES] = {{0}};
	struct pollfd stop = {.fd = recorder->stop_fd, .events = POLLIN};
	bool stopping = false;

	pthread_setname_np(pthread_self(), "reader");
	if (recorder->config.on_thread_start &&
	    recorder->config.on_thread_start(recorder->config.context, &recorder->problem))
		return NULL;
	while (!stopping) {
		uint64_t now;

		stopping = poll(&stop, 1, DRAIN_MILLISECONDS) > 0;
		drain(recorder);
		now = boot_time_ns();
		if (now < recorder->next_look)
			continue;
		if (recorder->symbols_read) {
			/* New addresses become rare; a killed recorder leaves a second of them
			 * without names. */
			name_addresses(recorder, written);
			recorder->next_look = now + NAME_INTERVAL_NS;
			continue;
		}
		recorder->next_look = now + FIND_KERNEL_INTERVAL_NS;
		if (!recorder->kernel_found) {
			look_for_kernel(recorder);
		} else if (now - recorder->found_at > READ_SYMBOLS_AFTER_NS) {
			read_symbols(recorder);
			/* A table that is not there does not come back soon. */
			recorder->found_at = now;
		}
	}
	drain(recorder);
	/* The last chance: the guest's memory is still there. */
	read_symbols(recorder);
	write_guest(recorder);
	name_addresses(recorder, written);
	for (int class = 0; class < ADDRESS_CLASSES; class ++)
		address_set_deinit(&written[class]);
	return NULL;
}

gp_status_t recorder_start(const struct recorder_config *config, struct recorder **out,
			   struct error *error)
{
	struct recorder *recorder = calloc(1, sizeof(*recorder));
	enum { FIRST_BUFFER = 1 << 20 };
	gp_status_t status;
	sigset_t all, old;
	int failed;

	if (!recorder)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for a recorder");
	recorder->config = *config;
	recorder->stop_fd = eventfd(0, EFD_CLOEXEC);
	recorder->vcpu_count = config->target->ops->vcpu_count(config->target);
	recorder->buffer_size = FIRST_BUFFER;
	recorder->buffer = malloc(recorder->buffer_size);
	recorder->cpus = calloc(recorder->vcpu_count, sizeof(*recorder->cpus));
	recorder->cpu_known = calloc(recorder->vcpu_count, sizeof(*recorder->cpu_known));
	symbol_table_init(&recorder->kernel_symbols);
	if (!recorder->buffer || !recorder->cpus || !recorder->cpu_known || recorder->stop_fd < 0) {
		status = recorder->stop_fd < 0
				 ? error_set(error, GP_ERR_NO_RESOURCES,
					     "no descriptor for a recorder (ulimit -n)")
				 : error_set(error, GP_ERR_NO_MEMORY, "no memory for a recorder");
		goto failed;
	}
	/* The session's first records make the file a trace: they must come before ours. */
	status = drain(recorder);
	if (status) {
		error_set(error, status, "cannot read the session: %s", gp_status_string(status));
		goto failed;
	}
	write_head(recorder);
	status = recorder->problem.status;
	if (status) {
		if (error)
			*error = recorder->problem;
		goto failed;
	}
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	failed = pthread_create(&recorder->thread, NULL, reader_main, recorder);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (failed) {
		status = error_set_errno(error, failed, "cannot start the reader thread");
		goto failed;
	}
	*out = recorder;
	return GP_OK;
failed:
	if (recorder->stop_fd >= 0)
		close(recorder->stop_fd);
	for (int class = 0; class < ADDRESS_CLASSES; class ++)
		address_set_deinit(&recorder->addresses[class]);
	free(recorder->buffer);
	free(recorder->cpus);
	free(recorder->cpu_known);
	free(recorder);
	return status;
}

static void write_totals(struct recorder *recorder, const char *end_reason,
			 struct recorder_summary *summary)
{
	for (unsigned i = 0; i < recorder->vcpu_count; i++) {
		gp_sampler_totals_t totals;

		if (gp_sampler_totals(recorder->config.session, i, &totals))
			continue;
		const struct fxt_argument arguments[] = {
			fxt_argument_u64(FXT_TOTALS_VCPU, i),
			fxt_argument_u64(FXT_TOTALS_TICKS, totals.ticks),
			fxt_argument_u64(FXT_TOTALS_STACKS, totals.full),
			fxt_argument_u64(FXT_TOTALS_PARTIALS, totals.partial),
			fxt_argument_u64(FXT_TOTALS_DROPPED, totals.dropped),
		};

		write_metadata(recorder, FXT_VCPU_TOTALS, fxt_vcpu_thread(i), arguments,
			       ARRAY_SIZE(arguments));
		summary->totals.ticks += totals.ticks;
		summary->totals.full += totals.full;
		summary->totals.partial += totals.partial;
		summary->totals.dropped += totals.dropped;
	}
	const struct fxt_argument arguments[] = {
		text_argument(FXT_SESSION_END_REASON, end_reason),
		fxt_argument_u64(FXT_TOTALS_TICKS, summary->totals.ticks),
		fxt_argument_u64(FXT_TOTALS_STACKS, summary->totals.full),
		fxt_argument_u64(FXT_TOTALS_PARTIALS, summary->totals.partial),
		fxt_argument_u64(FXT_TOTALS_DROPPED, summary->totals.dropped),
	};

	write_metadata(recorder, FXT_SESSION_END, FXT_VCPU_PROCESS, arguments,
		       ARRAY_SIZE(arguments));
}

void recorder_finish(struct recorder *recorder, const char *end_reason,
		     struct recorder_summary *out)
{
	struct recorder_summary summary = {0};
	uint64_t one = 1;

	if (write(recorder->stop_fd, &one, sizeof(one)) < 0)
		error_set_errno(&recorder->problem, errno, "cannot wake the reader thread");
	pthread_join(recorder->thread, NULL);
	summary.panicked = guest_panicked(recorder);
	write_totals(recorder, summary.panicked ? "guest panic" : end_reason, &summary);
	summary.file_bytes = recorder->offset;
	summary.kernel_found = recorder->kernel_found;
	summary.symbols_found = recorder->symbols_read;
	memcpy(summary.banner, recorder->kernel.banner, sizeof(summary.banner));
	summary.problem = recorder->problem;
	summary.no_names = recorder->no_names;
	for (int class = 0; class < ADDRESS_CLASSES; class ++) {
		const struct address_set *set = &recorder->addresses[class];

		summary.addresses += set->count;
		for (size_t i = 0; i < set->capacity; i++)
			summary.unnamed += set->addresses[i] && set->marks[i] != MARK_NAMED;
		address_set_deinit(&recorder->addresses[class]);
	}
	symbol_table_deinit(&recorder->kernel_symbols);
	close(recorder->stop_fd);
	free(recorder->buffer);
	free(recorder->cpus);
	free(recorder->cpu_known);
	free(recorder);
	*out = summary;
}
