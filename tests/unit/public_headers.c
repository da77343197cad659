/* The constants that programs outside of the tree read records by are those that the library writes
 * them by; and a walk with them alone finds what the reader of fxt/ finds. */
#include "tests/unit/fake_target.h"

#include "fxt/record.h"
#include "fxt/sample.h"

#include <criterion/criterion.h>
#include <guestprof/machine.h>
#include <guestprof/record.h>

_Static_assert(GP_RECORD_MAGIC == FXT_MAGIC, "");
_Static_assert(GP_RECORD_BLOB == (int)FXT_TYPE_BLOB, "");
_Static_assert(GP_BLOB_SAMPLE == (int)FXT_BLOB_SAMPLE, "");
_Static_assert(GP_SAMPLE_CONTINUATION == FXT_SAMPLE_CONTINUATION, "");
_Static_assert(GP_SAMPLE_COMPLETION == FXT_SAMPLE_COMPLETION, "");
_Static_assert(GP_SAMPLE_PROCESS == FXT_SAMPLE_PROCESS, "");
_Static_assert(GP_SAMPLE_THREAD == FXT_SAMPLE_THREAD, "");
_Static_assert(GP_SAMPLE_TIMESTAMP == FXT_SAMPLE_TIMESTAMP, "");
_Static_assert(GP_SAMPLE_STACK == FXT_SAMPLE_STACK, "");
_Static_assert(GP_SAMPLE_VCPU == FXT_SAMPLE_VCPU, "");
_Static_assert(GP_SAMPLE_MODE == FXT_SAMPLE_MODE, "");
_Static_assert(GP_SAMPLE_STACK_END == FXT_SAMPLE_STACK_END, "");
_Static_assert(GP_SAMPLE_ADDRESS_SPACE == FXT_SAMPLE_ADDRESS_SPACE, "");
_Static_assert(GP_SAMPLE_ADDRESSING == FXT_SAMPLE_ADDRESSING, "");
_Static_assert((int)GP_MODE_UNKNOWN == (int)FXT_MODE_UNKNOWN, "");
_Static_assert((int)GP_MODE_GUEST_USER == (int)FXT_MODE_GUEST_USER, "");
_Static_assert((int)GP_MODE_GUEST_KERNEL == (int)FXT_MODE_GUEST_KERNEL, "");
_Static_assert((int)GP_MODE_HALTED == (int)FXT_MODE_HALTED, "");
_Static_assert((int)GP_MODE_IN_VMM == (int)FXT_MODE_IN_VMM, "");
_Static_assert((int)GP_MODE_NOT_STARTED == (int)FXT_MODE_NOT_STARTED, "");
_Static_assert((int)GP_STACK_END_UNKNOWN == (int)FXT_STACK_END_UNKNOWN, "");
_Static_assert((int)GP_STACK_END_ROOT == (int)FXT_STACK_END_ROOT, "");
_Static_assert((int)GP_STACK_END_DEPTH == (int)FXT_STACK_END_DEPTH, "");
_Static_assert((int)GP_STACK_END_NOT_PRESENT == (int)FXT_STACK_END_NOT_PRESENT, "");
_Static_assert((int)GP_STACK_END_BAD_POINTER == (int)FXT_STACK_END_BAD_POINTER, "");
_Static_assert((int)GP_STACK_END_OUTSIDE == (int)FXT_STACK_END_OUTSIDE, "");
_Static_assert((int)GP_STACK_END_NO_RULE == (int)FXT_STACK_END_NO_RULE, "");
_Static_assert((int)GP_STACK_END_NOT_WALKED == (int)FXT_STACK_END_NOT_WALKED, "");

Test(public_headers, header_macros_say_what_the_encoder_wrote)
{
	const uint64_t stack[] = {0xffffffff81000000, 0xffffffff81000100, 7};
	struct fxt_sample sample = {.flags = FXT_SAMPLE_COMPLETION | FXT_SAMPLE_THREAD |
					     FXT_SAMPLE_TIMESTAMP | FXT_SAMPLE_STACK |
					     FXT_SAMPLE_VCPU,
				    .completion = 5,
				    .thread = 6,
				    .timestamp = 8,
				    .stack = stack,
				    .depth = 3,
				    .vcpu = 9};
	uint64_t words[32];
	size_t used = fxt_sample_encode(&sample, words, 32);

	cr_assert_gt(used, 0);
	cr_assert_eq(GP_RECORD_WORDS(words[0]), used);
	cr_assert(GP_RECORD_IS_SAMPLE(words[0]));
	cr_assert_eq(GP_BLOB_BYTES(words[0]), (used - 1) * 8);
	cr_assert_eq(words[1], sample.flags);
	size_t at = 2 + (size_t)__builtin_popcountll(words[1] & (GP_SAMPLE_STACK - 1));
	cr_assert_eq(words[at], 3);
	cr_assert_arr_eq(&words[at + 1], stack, sizeof(stack));
	cr_assert_eq(words[at + 4], 9, "the vCPU follows the stack");
	cr_assert_not(GP_RECORD_IS_SAMPLE(FXT_MAGIC));
}

Test(public_headers, a_walk_by_sizes_finds_every_sample)
{
	static struct fake_target fake;
	gp_sampler_config_t config = {
		.size = sizeof(config), .period_ns = 300000, .max_depth = 4, .ring_bytes = 1 << 20};
	gp_sampler_totals_t sum;
	gp_sampler_t *session;
	uint64_t full = 0, partial = 0, *words;
	size_t size, at = 0;

	fake_target_init(&fake, 1);
	cr_assert_eq(gp_sampler_create(&fake.target, 0, &config, &session), GP_OK);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	for (unsigned i = 0; i < 5000 && atomic_load(&fake.vcpus[0].stops) < 50; i++)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	cr_assert_eq(gp_sampler_read(session, 0, NULL, 0, &size), GP_OK);
	words = malloc(size);
	cr_assert_eq(gp_sampler_read(session, 0, words, size, &size), GP_OK);
	cr_assert_eq(words[0], GP_RECORD_MAGIC);
	while (at < size / 8) {
		unsigned length = GP_RECORD_WORDS(words[at]);

		cr_assert(length > 0 && length <= size / 8 - at);
		if (GP_RECORD_IS_SAMPLE(words[at]))
			*(words[at + 1] & GP_SAMPLE_CONTINUATION ? &partial : &full) += 1;
		at += length;
	}
	cr_assert(fake_totals_add_up(session, 1, &sum));
	cr_assert_geq(full, 50);
	cr_assert_eq(full, sum.full);
	cr_assert_eq(partial, sum.partial);
	free(words);
	gp_sampler_close(session);
	fake_target_deinit(&fake);
}

Test(public_headers, a_machine_configuration_that_cannot_be_is_refused_in_words)
{
	const gp_machine_disk_t nameless = {NULL, 0};
	gp_machine_t *machine = NULL;
	gp_machine_config_t config;
	char text[256] = "", tiny[4] = "abc";

	gp_machine_config_init(&config);
	cr_assert_eq(config.console_input_fd, -1);
	cr_assert_eq(gp_machine_create(NULL, &machine, text, sizeof(text)), GP_ERR_INVALID_ARGS);
	cr_assert_eq(gp_machine_create(&config, NULL, NULL, 0), GP_ERR_INVALID_ARGS);
	cr_assert_eq(gp_machine_create(&config, &machine, text, sizeof(text)), GP_ERR_INVALID_ARGS);
	cr_assert(strstr(text, "kernel"), "%s", text);
	cr_assert_eq(gp_machine_create(&config, &machine, tiny, sizeof(tiny)), GP_ERR_INVALID_ARGS);
	cr_assert_str_eq(tiny, "no ");
	config.kernel = "/dev/null/kernel";
	config.size--;
	cr_assert_eq(gp_machine_create(&config, &machine, text, sizeof(text)), GP_ERR_INVALID_ARGS);
	config.size++;
	config.flags = 2;
	cr_assert_eq(gp_machine_create(&config, &machine, text, sizeof(text)), GP_ERR_INVALID_ARGS);
	config.flags = 0;
	config.disk_count = 1;
	cr_assert_eq(gp_machine_create(&config, &machine, text, sizeof(text)), GP_ERR_INVALID_ARGS);
	config.disks = &nameless;
	cr_assert_eq(gp_machine_create(&config, &machine, text, sizeof(text)), GP_ERR_INVALID_ARGS);
	config.disk_count = 0;
	config.until = "";
	cr_assert_eq(gp_machine_create(&config, &machine, text, sizeof(text)), GP_ERR_INVALID_ARGS);
	config.until = NULL;
	cr_assert_neq(gp_machine_create(&config, &machine, text, sizeof(text)), GP_OK);
	cr_assert(strstr(text, "/dev/null/kernel"), "%s", text);
	cr_assert_null(machine);
	gp_machine_destroy(NULL);
	cr_assert_str_eq(gp_machine_end_string(GP_MACHINE_END_RESET), "reset");
	cr_assert_str_eq(gp_machine_end_string((gp_machine_end_t)99), "unknown");
}
