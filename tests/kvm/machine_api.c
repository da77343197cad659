/* The public way to a machine, guestprof/machine.h: states, ends, limits, the sandbox. */
#include "tests/kvm/guest_machine.h"

#include "vmm/sandbox.h"

#include <guestprof/machine.h>
#include <pthread.h>
#include <stdatomic.h>

static gp_machine_t *create(const char *command_line, uint32_t flags)
{
	gp_machine_t *machine = NULL;
	gp_machine_config_t config;
	char path[512], text[256] = "";

	require_kvm();
	guest_path("long4", path);
	gp_machine_config_init(&config);
	config.kernel = path;
	config.command_line = command_line;
	config.memory_bytes = 16 * MIB;
	config.flags = flags;
	cr_assert_eq(gp_machine_create(&config, &machine, text, sizeof(text)), GP_OK, "%s", text);
	return machine;
}

static gp_sampler_t *sample(gp_machine_t *machine)
{
	gp_sampler_config_t config = {.size = sizeof(config),
				      .period_ns = MILLISECOND,
				      .max_depth = 16,
				      .ring_bytes = MIB};
	gp_sampler_t *session = NULL;

	cr_assert_eq(gp_sampler_create(gp_machine_target(machine), 0, &config, &session), GP_OK);
	cr_assert_eq(gp_sampler_start(session, 0), GP_OK);
	return session;
}

Test(machine_api, a_guest_is_sampled_to_its_end)
{
	gp_machine_t *machine = create(tree_for(SECOND / 4), 0);
	struct session_data data = {0};
	struct session_counts counts;
	gp_machine_end_t end;
	gp_sampler_t *session;

	cr_assert_eq(gp_machine_start(machine, NULL, 0), GP_OK);
	session = sample(machine);
	cr_assert_eq(gp_machine_run(machine, HANG_LIMIT, &end, NULL, 0), GP_OK);
	cr_assert_eq(end, GP_MACHINE_END_POWERED_OFF);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	counts = check_session(session, 1, &data, NULL, NULL);
	cr_assert_gt(counts.data.full, 0);
	gp_sampler_close(session);
	gp_machine_destroy(machine);
	free(data.bytes);
}

Test(machine_api, states_are_told)
{
	gp_machine_t *machine = create("run=tree rounds=1", 0);
	gp_machine_end_t end = (gp_machine_end_t)77;
	char text[64] = "";

	cr_assert_eq(gp_machine_run(machine, 0, &end, text, sizeof(text)), GP_ERR_BAD_STATE);
	cr_assert_neq(text[0], 0);
	cr_assert_eq(end, 77);
	cr_assert_eq(gp_machine_start(NULL, NULL, 0), GP_ERR_INVALID_ARGS);
	cr_assert_eq(gp_machine_start(machine, NULL, 0), GP_OK);
	cr_assert_eq(gp_machine_start(machine, NULL, 0), GP_ERR_BAD_STATE);
	cr_assert_eq(gp_machine_run(machine, 0, NULL, NULL, 0), GP_ERR_INVALID_ARGS);
	cr_assert_eq(gp_machine_run(machine, HANG_LIMIT, &end, NULL, 0), GP_OK);
	cr_assert_eq(gp_machine_run(machine, HANG_LIMIT, &end, NULL, 0), GP_ERR_BAD_STATE);
	gp_machine_destroy(machine);
}

Test(machine_api, ends_have_their_reasons)
{
	static const struct {
		const char *command_line;
		gp_machine_end_t end;
	} cases[] = {
		{"rounds=1 end=cf9", GP_MACHINE_END_RESET},
		{"rounds=1 end=triple", GP_MACHINE_END_TRIPLE_FAULT},
		{"rounds=0", GP_MACHINE_END_TIME_OVER},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		gp_machine_t *machine = create(cases[i].command_line, 0);
		bool limited = cases[i].end == GP_MACHINE_END_TIME_OVER;
		gp_machine_end_t end;

		cr_assert_eq(gp_machine_start(machine, NULL, 0), GP_OK);
		cr_assert_eq(gp_machine_run(machine, limited ? 100 * MILLISECOND : HANG_LIMIT, &end,
					    NULL, 0),
			     GP_OK);
		cr_assert_eq(end, cases[i].end, "%s: %s", cases[i].command_line,
			     gp_machine_end_string(end));
		gp_machine_destroy(machine);
	}
}

Test(machine_api, an_end_can_be_asked_for_before_it_runs)
{
	gp_machine_t *machine = create("rounds=0", 0);
	gp_machine_end_t end;

	gp_machine_request_end(machine);
	cr_assert_eq(gp_machine_start(machine, NULL, 0), GP_OK);
	cr_assert_eq(gp_machine_run(machine, HANG_LIMIT, &end, NULL, 0), GP_OK);
	cr_assert_eq(end, GP_MACHINE_END_REQUESTED);
	gp_machine_destroy(machine);
}

Test(machine_api, one_that_never_ran_can_be_destroyed)
{
	gp_machine_destroy(create("rounds=0", 0));

	gp_machine_t *machine = create("rounds=0", 0);
	cr_assert_eq(gp_machine_start(machine, NULL, 0), GP_OK);
	gp_machine_destroy(machine);
}

Test(machine_api, an_error_of_kvm_is_a_status_and_a_text)
{
	gp_machine_t *machine = create("rounds=1 end=unemulatable", 0);
	gp_machine_end_t end = (gp_machine_end_t)77;
	char text[256] = "";
	gp_status_t status;

	if (!kvm_is_emulated()) {
		gp_machine_destroy(machine);
		cr_skip_test("this KVM executes the instruction");
	}
	cr_assert_eq(gp_machine_start(machine, NULL, 0), GP_OK);
	status = gp_machine_run(machine, HANG_LIMIT, &end, text, sizeof(text));
	cr_assert_lt(status, 0);
	cr_assert_eq(end, 77);
	cr_assert(strstr(text, "RIP"), "%s", text);
	gp_machine_destroy(machine);
}

/* The machine's threads are confined, sampling included; the caller is not. */
Test(machine_api, the_sandbox_holds_the_machine_only)
{
	struct session_data data = {0};
	gp_machine_end_t end;
	gp_sampler_t *session;
	gp_machine_t *machine;
	char line[128];
	FILE *status;
	bool free_to_call = false;

	if (!sandbox_is_supported())
		cr_skip_test("a build with sanitizers cannot be confined");
	machine = create(tree_for(SECOND / 4), GP_MACHINE_SANDBOX);
	cr_assert_eq(gp_machine_start(machine, NULL, 0), GP_OK);
	session = sample(machine);
	cr_assert_eq(gp_machine_run(machine, HANG_LIMIT, &end, NULL, 0), GP_OK);
	cr_assert_eq(end, GP_MACHINE_END_POWERED_OFF);
	cr_assert_eq(gp_sampler_stop(session, 0), GP_OK);
	cr_assert_gt(check_session(session, 1, &data, NULL, NULL).data.full, 0);
	status = fopen("/proc/thread-self/status", "re");
	cr_assert_not_null(status);
	while (fgets(line, sizeof(line), status))
		free_to_call = free_to_call || !strcmp(line, "Seccomp:\t0\n");
	fclose(status);
	cr_assert(free_to_call, "the caller's thread is confined");
	gp_sampler_close(session);
	gp_machine_destroy(machine);
	free(data.bytes);
}
