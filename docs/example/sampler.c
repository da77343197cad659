/* Boots a guest, samples it a thousand times a second, prints its ten hottest addresses.
 *
 *     cc sampler.c $(pkg-config --cflags --libs guestprof) -o sampler
 *     ./sampler vmlinuz "console=ttyS0 panic=-1"
 */
#include <guestprof/machine.h>
#include <guestprof/record.h>
#include <guestprof/sampler.h>

#include <stdio.h>
#include <stdlib.h>

struct leaf {
	uint64_t address, samples;
};

static int by_samples(const void *a, const void *b)
{
	const struct leaf *x = a, *y = b;

	return (x->samples < y->samples) - (x->samples > y->samples);
}

static int fail(const char *what, const char *why)
{
	fprintf(stderr, "sampler: %s: %s\n", what, why);
	return 1;
}

static void print_hottest(const uint64_t *words, size_t count)
{
	struct leaf *leaves = calloc(count, sizeof(*leaves));
	size_t samples = 0, found = 0, i, at;

	for (at = 0; leaves && at < count; at += GP_RECORD_WORDS(words[at])) {
		uint64_t flags = GP_RECORD_IS_SAMPLE(words[at]) ? words[at + 1] : 0;
		const uint64_t *stack =
			&words[at + 2 + __builtin_popcountll(flags & (GP_SAMPLE_STACK - 1))];

		samples += flags != 0;
		if (!(flags & GP_SAMPLE_STACK) || stack[0] == 0)
			continue;
		for (i = 0; i < found && leaves[i].address != stack[1]; i++)
			;
		found += i == found;
		leaves[i].address = stack[1];
		leaves[i].samples++;
	}
	printf("%zu samples\n", samples);
	qsort(leaves, found, sizeof(*leaves), by_samples);
	for (i = 0; i < found && i < 10; i++)
		printf("%8llu  0x%llx\n", (unsigned long long)leaves[i].samples,
		       (unsigned long long)leaves[i].address);
	free(leaves);
}

int main(int argc, char **argv)
{
	gp_sampler_config_t sampling = {.size = sizeof(sampling),
					.period_ns = 1000000,
					.max_depth = 16,
					.ring_bytes = 1 << 26};
	gp_machine_config_t config;
	gp_machine_t *machine;
	gp_sampler_t *session;
	gp_machine_end_t end;
	gp_status_t status;
	uint64_t *data;
	size_t size;
	char why[512];

	gp_machine_config_init(&config);
	config.kernel = argc > 1 ? argv[1] : NULL;
	config.command_line = argc > 2 ? argv[2] : "console=ttyS0";
	config.console_output_fd = 2;
	if (gp_machine_create(&config, &machine, why, sizeof(why)) ||
	    gp_machine_start(machine, why, sizeof(why)))
		return fail("no machine", why);
	status = gp_sampler_create(gp_machine_target(machine), 0, &sampling, &session);
	if (status || (status = gp_sampler_start(session, 0)) != GP_OK)
		return fail("no session", gp_status_string(status));
	if (gp_machine_run(machine, UINT64_C(60000000000), &end, why, sizeof(why)))
		return fail("the guest failed", why);
	gp_sampler_stop(session, 0);
	/* A program that runs for long reads all the time, from another thread. */
	gp_sampler_read(session, 0, NULL, 0, &size);
	data = malloc(size);
	if (!data || gp_sampler_read(session, 0, data, size, &size))
		return fail("no data", "out of memory");
	printf("the guest ended: %s\n", gp_machine_end_string(end));
	print_hottest(data, size / 8);
	free(data);
	gp_sampler_close(session);
	gp_machine_destroy(machine);
	return 0;
}
