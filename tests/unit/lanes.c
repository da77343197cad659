/* What each vCPU did, in pieces: which ticks are one, where one ends, and that none is lost. */
#include "export/lanes.h"

#include "base/container.h"

#include <criterion/criterion.h>
#include <string.h>

#define PERIOD 1000

static struct trace trace = {.info.period_ns = PERIOD};
static struct export export = {.trace = &trace};
static struct lanes lanes;
static struct lane_piece pieces[16];
static size_t piece_count;

static void keep(struct export *given, const struct lane_piece *piece)
{
	cr_assert_eq(given, &export);
	cr_assert_lt(piece_count, ARRAY_SIZE(pieces));
	pieces[piece_count++] = *piece;
}

static void tick(uint64_t vcpu, uint64_t mode, uint64_t time_ns, uint64_t ticks)
{
	struct merge_entry entry = {.time_ns = time_ns, .ticks = ticks};

	entry.sample.vcpu = vcpu;
	entry.sample.mode = mode;
	lanes_add_sample(&lanes, &export, &entry, keep);
}

static void lose(uint32_t vcpu, uint64_t begin_ns, uint64_t end_ns, uint64_t ticks)
{
	struct trace_lost lost = {
		.begin_ns = begin_ns, .end_ns = end_ns, .records = ticks, .vcpu = vcpu};

	lanes_add_lost(&lanes, &export, &lost, keep);
}

static void expect(size_t index, uint32_t vcpu, const char *state, uint64_t begin_ns,
		   uint64_t end_ns, uint64_t ticks)
{
	const struct lane_piece *piece = &pieces[index];

	cr_assert_lt(index, piece_count);
	cr_assert_eq(piece->vcpu, vcpu);
	cr_assert_str_eq(piece->state, state);
	cr_assert_eq(piece->begin_ns, begin_ns);
	cr_assert_eq(piece->end_ns, end_ns, "%llu", (unsigned long long)piece->end_ns);
	cr_assert_eq(piece->ticks, ticks);
}

static void set_up(void)
{
	memset(&lanes, 0, sizeof(lanes));
	piece_count = 0;
}

TestSuite(lanes, .init = set_up);

Test(lanes, neighbours_in_one_state_are_one_piece)
{
	/* User and kernel are both running; a tick comes early, the next one late. */
	tick(0, FXT_MODE_GUEST_USER, 10000, 1);
	tick(0, FXT_MODE_GUEST_KERNEL, 10900, 1);
	tick(0, FXT_MODE_GUEST_USER, 12300, 1);
	tick(0, FXT_MODE_HALTED, 13000, 1);
	lanes_finish(&lanes, &export, keep);
	cr_assert_eq(piece_count, 2);
	expect(0, 0, "running", 10000, 13000, 3);
	expect(1, 0, "halted", 13000, 14000, 1);
}

Test(lanes, without_ticks_there_is_no_piece)
{
	tick(0, FXT_MODE_GUEST_USER, 10000, 1);
	tick(0, FXT_MODE_GUEST_USER, 15000, 1);
	lanes_finish(&lanes, &export, keep);
	cr_assert_eq(piece_count, 2);
	expect(0, 0, "running", 10000, 11000, 1);
	expect(1, 0, "running", 15000, 16000, 1);
}

Test(lanes, ticks_of_partial_samples_are_before_their_stack)
{
	tick(0, FXT_MODE_HALTED, 10000, 1);
	tick(0, FXT_MODE_IN_VMM, 14000, 4);
	/* More than there was time for, and more than 64 bits of it: none goes back behind what
	 * another piece began with. */
	tick(0, FXT_MODE_GUEST_USER, 15000, 5);
	tick(0, FXT_MODE_HALTED, 16000, UINT64_MAX / 2);
	lanes_finish(&lanes, &export, keep);
	cr_assert_eq(piece_count, 4);
	expect(0, 0, "halted", 10000, 11000, 1);
	expect(1, 0, "in VMM", 11000, 11000, 4);
	expect(2, 0, "running", 11000, 11000, 5);
	expect(3, 0, "halted", 11000, 17000, UINT64_MAX / 2);
}

Test(lanes, lost_ticks_keep_their_time)
{
	tick(1, FXT_MODE_GUEST_USER, 10000, 1);
	lose(1, 10800, 13000, 3);
	/* Its partial samples would begin before the last lost tick. */
	tick(1, FXT_MODE_HALTED, 14000, 3);
	lanes_finish(&lanes, &export, keep);
	cr_assert_eq(piece_count, 3);
	expect(0, 1, "running", 10000, 10800, 1);
	expect(1, 1, lanes_lost, 10800, 13000, 3);
	expect(2, 1, "halted", 13000, 15000, 3);
}

Test(lanes, vcpus_are_apart)
{
	char name[32];

	tick(0, FXT_MODE_GUEST_USER, 10000, 1);
	tick(1, FXT_MODE_NOT_STARTED, 10100, 1);
	lose(LANES_NO_VCPU, 10200, 10200, 2);
	tick(0, FXT_MODE_GUEST_USER, 11000, 1);
	lanes_finish(&lanes, &export, keep);
	cr_assert_eq(piece_count, 3);
	expect(0, 0, "running", 10000, 12000, 2);
	expect(1, 1, "not started", 10100, 11100, 1);
	expect(2, LANES_NO_VCPU, lanes_lost, 10200, 11200, 2);
	lanes_name(1, name, sizeof(name));
	cr_assert_str_eq(name, "vCPU 1");
}
