/* Samples of guests whose call tree is known: stacks, shares, accounting. */
#include "tests/kvm/guest_machine.h"
#include "tests/kvm/shares.h"

struct seen {
	struct guest_machine guest;
	uint64_t first_pc;
	uint64_t samples;
	uint64_t in_tree;
	uint64_t leaves[LEAVES];
	uint64_t by_vcpu[4];
	uint64_t right_work[4];
	uint64_t deepest;
	uint64_t addressing[16];
};

/* Where the guest copies the 16-bit code to that its other CPUs begin with: no symbol, no stack. */
#define TRAMPOLINE UINT64_C(0x10000)
#define TRAMPOLINE_BYTES 4096

static void see(void *context, const struct fxt_sample *sample)
{
	struct seen *seen = context;
	const char *leaf;

	cr_assert(sample->flags & FXT_SAMPLE_TIMESTAMP);
	if (!(sample->flags & FXT_SAMPLE_STACK))
		return;
	if (!seen->samples++)
		seen->first_pc = sample->stack[0];
	if (sample->vcpu < 4)
		seen->by_vcpu[sample->vcpu]++;
	if (sample->mode == FXT_MODE_HALTED || sample->mode == FXT_MODE_NOT_STARTED ||
	    sample->addressing == FXT_ADDRESSING_REAL ||
	    sample->stack[0] - TRAMPOLINE < TRAMPOLINE_BYTES)
		return;
	seen->addressing[sample->addressing & 15]++;
	if (sample->depth > seen->deepest)
		seen->deepest = sample->depth;
	assert_exact_stack(&seen->guest, sample);
	leaf = frame_name(&seen->guest, sample, 0);
	if (stack_has(&seen->guest, sample, "run_tree"))
		seen->in_tree++;
	for (int i = 0; i < LEAVES; i++)
		seen->leaves[i] += !strcmp(leaf, leaf_names[i]);
	if (!strncmp(leaf, "cpu_work_", 9))
		seen->right_work[sample->vcpu & 3] += (uint64_t)(leaf[9] - '0') == sample->vcpu;
}

static void run_tree_in(const char *mode, enum fxt_addressing addressing)
{
	struct seen seen = {0};
	struct session_data data = {0};
	struct error error = {0};
	gp_sampler_t *session;
	enum guest_end end;

	guest_machine_create(
		&seen.guest,
		(struct guest_setup){.mode = mode, .command_line = "run=tree rounds=0"});
	session = open_session(&seen.guest, 997 * MICROSECOND, 0, 0, 64);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	sleep_ns(5 * MILLISECOND); /* a tick comes before the first instruction */
	end = guest_machine_run(&seen.guest, 4 * SECOND, &error);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	check_session(session, 1, &data, see, &seen);
	cr_assert_eq(seen.first_pc, seen.guest.entry,
		     "the first sample is at %llx, not at the entry",
		     (unsigned long long)seen.first_pc);
	if (console_has(&seen.guest, "no la57"))
		cr_skip_test("this CPU has no 5-level paging");
	if (end == GUEST_TRIPLE_FAULT && addressing != FXT_ADDRESSING_LONG_4 && kvm_is_emulated())
		cr_skip_test(
			"the /dev/kvm here emulates guests and does not know this paging mode");
	cr_assert_eq(end, GUEST_DURATION, "%s %s", guest_end_string(end), error.text);
	cr_assert(console_has(&seen.guest, "guest started"));
	cr_assert_gt(seen.in_tree, 100);
	cr_assert_geq(seen.addressing[addressing], seen.in_tree);
	for (int i = 0; i < LEAVES; i++)
		check_share(leaf_names[i], seen.leaves[i], seen.in_tree, leaf_instructions[i]);
	gp_sampler_close(session);
	guest_machine_destroy(&seen.guest);
	free(data.bytes);
}

Test(sampling, stacks_and_shares_are_exact_with_4_level_paging)
{
	run_tree_in("long4", FXT_ADDRESSING_LONG_4);
}

Test(sampling, stacks_and_shares_are_exact_with_5_level_paging)
{
	run_tree_in("long5", FXT_ADDRESSING_LONG_5);
}

Test(sampling, stacks_and_shares_are_exact_with_pae)
{
	run_tree_in("pae", FXT_ADDRESSING_PAE);
}

Test(sampling, stacks_and_shares_are_exact_with_32_bit_paging)
{
	run_tree_in("paged32", FXT_ADDRESSING_PAGED_32);
}

Test(sampling, stacks_and_shares_are_exact_without_paging)
{
	run_tree_in("flat32", FXT_ADDRESSING_PROTECTED_UNPAGED);
}

static void run_nested_to(uint32_t depth, uint64_t deepest, bool root_reached)
{
	struct seen seen = {0};
	struct session_data data = {0};
	struct session_counts counts;
	gp_sampler_t *session;

	guest_machine_create(&seen.guest,
			     (struct guest_setup){.command_line = "run=nested rounds=0"});
	session = open_session(&seen.guest, MILLISECOND, 0, 0, depth);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	cr_assert_eq(guest_machine_run(&seen.guest, 2 * SECOND, NULL), GUEST_DURATION);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	counts = check_session(session, 1, &data, see, &seen);
	cr_assert_eq(seen.deepest, deepest, "%llu", (unsigned long long)seen.deepest);
	cr_assert_eq(counts.ends[FXT_STACK_END_DEPTH] > 0, !root_reached);
	gp_sampler_close(session);
	guest_machine_destroy(&seen.guest);
	free(data.bytes);
}

Test(sampling, a_deep_stack_is_whole)
{
	/* nest() 41 times, run_nested, guest_main, guest_start */
	run_nested_to(64, 44, true);
}

Test(sampling, a_stack_over_the_limit_is_cut_and_says_so)
{
	run_nested_to(10, 10, false);
}

/* What a sample in shared_work() was called by, and in which address space. */
struct spaces_seen {
	struct guest_machine guest;
	uint64_t roots[2];
	uint64_t calls[2]; /* by space_one(), space_two() */
};

static void see_space(void *context, const struct fxt_sample *sample)
{
	static const char *const callers[2] = {"space_one", "space_two"};
	struct spaces_seen *seen = context;
	int which;

	if (!(sample->flags & FXT_SAMPLE_STACK) ||
	    strcmp(frame_name(&seen->guest, sample, 0), "shared_work") != 0)
		return;
	/* Also where the frame is not there yet: the caller is never hidden nor somebody else. */
	cr_assert_geq(sample->depth, 2);
	which = strcmp(frame_name(&seen->guest, sample, 1), callers[1]) == 0;
	cr_assert_str_eq(frame_name(&seen->guest, sample, 1), callers[which]);
	if (!seen->calls[which]++)
		seen->roots[which] = sample->address_space;
	cr_assert_eq(sample->address_space, seen->roots[which],
		     "%s ran in another address space than before", callers[which]);
}

Test(sampling, address_spaces_that_share_stack_addresses_are_told_apart)
{
	/* Of one round: instructions in the loops, and bounds on all others, in units of theirs; as
	 * above. Switching address spaces is dear where KVM emulates. */
	const long double loops[2] = {150000, 50000}, others = 4000;
	struct spaces_seen seen = {0};
	struct session_data data = {0};
	gp_sampler_t *session;
	long double all = loops[0] + loops[1];
	uint64_t samples;

	guest_machine_create(&seen.guest,
			     (struct guest_setup){.command_line = "run=spaces rounds=0"});
	session = open_session(&seen.guest, 997 * MICROSECOND, 0, 0, 64);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	cr_assert_eq(guest_machine_run(&seen.guest, 4 * SECOND, NULL), GUEST_DURATION);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	check_session(session, 1, &data, see_space, &seen);
	samples = seen.calls[0] + seen.calls[1];
	cr_assert_gt(samples, 100);
	cr_assert_neq(seen.roots[0], seen.roots[1]);
	for (int i = 0; i < 2; i++) {
		long double least = loops[i] / (all + others), most = (loops[i] + others) / all;

		cr_assert(at_most(seen.calls[i], samples, least) > TAIL &&
				  1 - at_most(seen.calls[i] - 1, samples, most) > TAIL,
			  "space %d: %llu of %llu samples", i + 1,
			  (unsigned long long)seen.calls[i], (unsigned long long)samples);
	}
	gp_sampler_close(session);
	guest_machine_destroy(&seen.guest);
	free(data.bytes);
}

Test(sampling, a_halted_vcpu_is_recorded_as_halted)
{
	struct seen seen = {0};
	struct session_data data = {0};
	struct session_counts counts;
	gp_sampler_t *session;

	guest_machine_create(&seen.guest, (struct guest_setup){.command_line = "run=idle"});
	session = open_session(&seen.guest, MILLISECOND, 0, 0, 64);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	cr_assert_eq(guest_machine_run(&seen.guest, 2 * SECOND, NULL), GUEST_DURATION);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	counts = check_session(session, 1, &data, see, &seen);
	cr_assert_gt(counts.totals.full, 10);
	/* It ran a few thousand instructions before. */
	cr_assert_gt(counts.modes[FXT_MODE_HALTED], counts.totals.full / 2, "%llu of %llu",
		     (unsigned long long)counts.modes[FXT_MODE_HALTED],
		     (unsigned long long)counts.totals.full);
	gp_sampler_close(session);
	guest_machine_destroy(&seen.guest);
	free(data.bytes);
}

Test(sampling, a_vcpu_nobody_started_is_recorded_as_not_started)
{
	struct seen seen = {0};
	struct session_data data = {0};
	struct session_counts counts;
	gp_sampler_totals_t second;
	gp_sampler_t *session;

	guest_machine_create(&seen.guest,
			     (struct guest_setup){.command_line = "run=tree rounds=0", .vcpus = 2});
	session = open_session(&seen.guest, MILLISECOND, 0, 0, 64);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	cr_assert_eq(guest_machine_run(&seen.guest, 2 * SECOND, NULL), GUEST_DURATION);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	counts = check_session(session, 2, &data, see, &seen);
	cr_assert_eq(gp_sampler_totals(session, 1, &second), GP_OK);
	cr_assert_gt(second.full, 10);
	/* Its last tick may have been closed without a look. */
	cr_assert_geq(counts.modes[FXT_MODE_NOT_STARTED] + 1, second.full);
	gp_sampler_close(session);
	guest_machine_destroy(&seen.guest);
	free(data.bytes);
}

static void run_on(unsigned vcpus)
{
	struct seen seen = {0};
	struct session_data data = {0};
	gp_sampler_t *session;
	char command_line[64], online[64];

	snprintf(command_line, sizeof(command_line), "run=smp rounds=0 cpus=%u", vcpus);
	snprintf(online, sizeof(online), "cpus %016x\n", vcpus);
	guest_machine_create(&seen.guest,
			     (struct guest_setup){.command_line = command_line, .vcpus = vcpus});
	session = open_session(&seen.guest, MILLISECOND, 0, 0, 64);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	cr_assert_eq(guest_machine_run(&seen.guest, 2 * SECOND, NULL), GUEST_DURATION);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	check_session(session, vcpus, &data, see, &seen);
	cr_assert(console_has(&seen.guest, online), "not all CPUs came up");
	for (unsigned i = 0; i < vcpus; i++)
		cr_assert_gt(seen.right_work[i], 0, "vCPU %u was never seen in its own function",
			     i);
	gp_sampler_close(session);
	guest_machine_destroy(&seen.guest);
	free(data.bytes);
}

Test(sampling, one_vcpu)
{
	run_on(1);
}

Test(sampling, two_vcpus_each_in_its_own_function)
{
	run_on(2);
}

Test(sampling, four_vcpus_each_in_its_own_function)
{
	run_on(4);
}

Test(sampling, a_tiny_ring_drops_and_counts_exactly)
{
	struct seen seen = {0};
	struct session_data data = {0};
	struct session_counts counts;
	gp_sampler_t *session;

	guest_machine_create(&seen.guest,
			     (struct guest_setup){.command_line = "run=tree rounds=0"});
	session = open_session(&seen.guest, 200 * MICROSECOND, 0, 4096, 64);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	/* Nobody reads meanwhile. */
	cr_assert_eq(guest_machine_run(&seen.guest, 2 * SECOND, NULL), GUEST_DURATION);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	counts = check_session(session, 1, &data, see, &seen);
	cr_assert_gt(counts.totals.dropped, 0);
	cr_assert_eq(counts.data.dropped, counts.totals.dropped,
		     "drop records in the data say %llu, the session %llu",
		     (unsigned long long)counts.data.dropped,
		     (unsigned long long)counts.totals.dropped);
	cr_assert_eq(counts.totals.ticks,
		     counts.data.full + counts.data.partial + counts.data.dropped);
	gp_sampler_close(session);
	guest_machine_destroy(&seen.guest);
	free(data.bytes);
}
