/* Guests that attack whoever looks at them: a result in bounded time, and every tick accounted for.
 */
#include "tests/kvm/guest_machine.h"

struct looked {
	uint64_t stacks;
	uint64_t not_root;
};

static void see(void *context, const struct fxt_sample *sample)
{
	struct looked *looked = context;

	looked->stacks += sample->depth > 0;
	cr_assert_leq(sample->depth, 128);
	looked->not_root += sample->depth > 0 && sample->stack_end != FXT_STACK_END_ROOT;
}

static struct looked attack(const char *mode, const char *command_line, uint64_t duration,
			    enum guest_end expected, const char *console)
{
	struct guest_machine guest;
	struct session_data data = {0};
	struct looked looked = {0};
	struct error error = {0};
	gp_sampler_t *session;
	enum guest_end end;

	guest_machine_create(&guest,
			     (struct guest_setup){.mode = mode, .command_line = command_line});
	session = open_session(&guest, 500 * MICROSECOND, 0, 0, 128);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	end = guest_machine_run(&guest, duration, &error);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	check_session(session, 1, &data, see, &looked);
	cr_assert_eq(end, expected, "%s: %s %s", command_line, guest_end_string(end), error.text);
	if (console)
		cr_assert(console_has(&guest, console), "%s", command_line);
	gp_sampler_close(session);
	guest_machine_destroy(&guest);
	free(data.bytes);
	return looked;
}

/* For a time, whatever the speed of this KVM: rounds may all be over before the first tick. */
#define FOR_EVER "rounds=4000000000"

Test(hostile, frame_pointers_that_lead_nowhere)
{
	struct looked looked = attack("long4", "run=hostile how=frames " FOR_EVER, SECOND / 2,
				      GUEST_DURATION, NULL);

	cr_assert_gt(looked.not_root, 0);
	looked = attack("flat32", "run=hostile how=frames " FOR_EVER, SECOND / 2, GUEST_DURATION,
			NULL);
	cr_assert_gt(looked.not_root, 0);
}

Test(hostile, page_tables_that_lead_outside_memory)
{
	struct looked looked = attack("long4", "run=hostile how=tables " FOR_EVER, SECOND / 2,
				      GUEST_DURATION, NULL);

	cr_assert_gt(looked.not_root, 0);
}

Test(hostile, every_port_is_written)
{
	attack("long4", "run=hostile how=ports text=survived", 0, GUEST_POWERED_OFF, NULL);
}

Test(hostile, acpi_registers_get_garbage)
{
	attack("long4", "run=hostile how=acpi text=survived", 0, GUEST_POWERED_OFF, "survived");
}

Test(hostile, huge_string_transfers_end_when_told)
{
	attack("long4", "run=hostile how=strings-out", SECOND / 4, GUEST_DURATION, NULL);
	attack("long4", "run=hostile how=strings-in", SECOND / 4, GUEST_DURATION, NULL);
}

Test(hostile, virtio_rings_are_abused)
{
	attack("long4", "run=hostile how=virtio rounds=3", 0, GUEST_POWERED_OFF, "device works");
	attack("flat32", "run=hostile how=virtio rounds=3", 0, GUEST_POWERED_OFF, "device works");
}
