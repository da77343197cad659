/* Every way a machine can end is told apart, and what it was made of reaches the guest. */
#include "tests/kvm/guest_machine.h"

#include <pthread.h>

static enum guest_end run(struct guest_setup setup, uint64_t duration, struct error *error)
{
	struct guest_machine guest;
	enum guest_end end;

	guest_machine_create(&guest, setup);
	end = guest_machine_run(&guest, duration, error);
	guest_machine_destroy(&guest);
	return end;
}

static void expect(const char *command_line, enum guest_end expected)
{
	struct error error = {0};
	enum guest_end end = run((struct guest_setup){.command_line = command_line}, 0, &error);

	cr_assert_eq(end, expected, "%s: %s %s", command_line, guest_end_string(end), error.text);
}

Test(ends, power_off)
{
	expect("end=poweroff", GUEST_POWERED_OFF);
}

Test(ends, reset_by_acpi)
{
	expect("end=acpi", GUEST_RESET);
}

Test(ends, reset_by_port_cf9)
{
	expect("end=cf9", GUEST_RESET);
}

Test(ends, reset_by_the_keyboard_controller)
{
	expect("end=i8042", GUEST_RESET);
}

Test(ends, triple_fault)
{
	expect("end=triple", GUEST_TRIPLE_FAULT);
}

Test(ends, text_on_the_console)
{
	struct guest_setup setup = {.command_line = "end=halt text=here-it-is",
				    .until = "ere-it-i"};

	cr_assert_eq(run(setup, 0, NULL), GUEST_TEXT_SEEN);
}

Test(ends, duration_with_a_busy_and_with_a_halted_guest)
{
	struct guest_setup setup = {.command_line = "run=tree rounds=0"};

	cr_assert_eq(run(setup, 20 * MILLISECOND, NULL), GUEST_DURATION);
	setup.command_line = "end=halt";
	cr_assert_eq(run(setup, 20 * MILLISECOND, NULL), GUEST_DURATION);
}

Test(ends, timeout_comes_before_a_longer_duration)
{
	struct guest_machine guest;
	struct machine_limits limits = {.duration_ns = HANG_LIMIT, .timeout_ns = 20 * MILLISECOND};

	guest_machine_create(&guest, (struct guest_setup){.command_line = "end=halt"});
	cr_assert_eq(machine_run(guest.machine, &limits, NULL), GUEST_TIMED_OUT);
	guest_machine_destroy(&guest);
}

static void *quit(void *machine)
{
	sleep_ns(20 * MILLISECOND);
	machine_request_end(machine, GUEST_SIGNALLED);
	machine_request_end(machine, GUEST_POWERED_OFF); /* too late: the first one wins */
	return NULL;
}

Test(ends, a_request_from_another_thread)
{
	struct guest_machine guest;
	pthread_t thread;

	guest_machine_create(&guest, (struct guest_setup){.command_line = "end=halt"});
	pthread_create(&thread, NULL, quit, guest.machine);
	cr_assert_eq(guest_machine_run(&guest, 0, NULL), GUEST_SIGNALLED);
	pthread_join(thread, NULL);
	guest_machine_destroy(&guest);
}

Test(ends, an_instruction_kvm_cannot_emulate_is_shown)
{
	struct error error = {0};
	enum guest_end end =
		run((struct guest_setup){.command_line = "end=unemulatable"}, 0, &error);

	cr_assert_eq(end, GUEST_ERROR, "%s", guest_end_string(end));
	/* lock-less cmpxchg16b is 48 0f c7 /1 */
	cr_assert(strstr(error.text, "vCPU 0") && strstr(error.text, "RIP 0x2") &&
			  strstr(error.text, "48 0f c7"),
		  "%s", error.text);
}

Test(ends, running_into_a_device_is_reported)
{
	struct error error = {0};
	enum guest_end end = run((struct guest_setup){.command_line = "end=mmio"}, 0, &error);

	cr_assert_eq(end, GUEST_ERROR, "%s", guest_end_string(end));
	cr_assert(strstr(error.text, "0xd0000000"), "%s", error.text);
}

Test(ends, destroyed_without_having_run)
{
	struct guest_machine guest;

	guest_machine_create(&guest, (struct guest_setup){.vcpus = 2});
	guest_machine_destroy(&guest);
}

static void check_memory(uint64_t memory)
{
	struct guest_machine guest;
	struct error error = {0};
	char expected[64];
	enum guest_end end;

	guest_machine_create(&guest,
			     (struct guest_setup){.command_line = "run=memory", .memory = memory});
	end = guest_machine_run(&guest, 0, &error);
	cr_assert_eq(end, GUEST_POWERED_OFF, "%s %s", guest_end_string(end), error.text);
	/* 0x9fc00 to 1 MiB is not the guest's. */
	snprintf(expected, sizeof(expected), "memory %016llx\n",
		 (unsigned long long)(memory - (MIB - 0x9fc00)));
	cr_assert(console_has(&guest, expected), "%s", expected);
	cr_assert(!console_has(&guest, "not there"));
	guest_machine_destroy(&guest);
}

Test(ends, small_memory_is_all_there)
{
	check_memory(4 * MIB);
	check_memory(128 * MIB);
}

Test(ends, memory_around_the_hole_is_all_there)
{
	check_memory(3072 * MIB);
	check_memory(3073 * MIB);
	check_memory(4096 * MIB);
	check_memory(5000 * MIB);
}

static void check_vcpus(unsigned vcpus)
{
	struct guest_machine guest;
	char command_line[64], online[64];
	enum guest_end end;

	snprintf(command_line, sizeof(command_line), "run=smp cpus=%u", vcpus);
	snprintf(online, sizeof(online), "cpus %016x\n", vcpus);
	guest_machine_create(&guest,
			     (struct guest_setup){.command_line = command_line, .vcpus = vcpus});
	end = guest_machine_run(&guest, 0, NULL);
	cr_assert_eq(end, GUEST_POWERED_OFF, "%s", guest_end_string(end));
	cr_assert(console_has(&guest, online));
	guest_machine_destroy(&guest);
}

Test(ends, one_two_and_four_vcpus_come_online)
{
	check_vcpus(1);
	check_vcpus(2);
	check_vcpus(4);
}

/* Bad settings are refused with a text, before a VM exists. */
static void refuse(struct machine_config config, const char *words)
{
	struct machine *machine = NULL;
	struct error error = {0};
	char path[512];

	guest_path("long4", path);
	config.kernel = config.kernel ? config.kernel : path;
	config.command_line = config.command_line ? config.command_line : "";
	config.vcpus = config.vcpus ? config.vcpus : 1;
	config.memory = config.memory ? config.memory : 16 * MIB;
	config.console_input_fd = config.console_output_fd = -1;
	cr_assert_neq(machine_create(&config, &machine, NULL, &error), GP_OK, "%s", words);
	cr_assert_null(machine);
	cr_assert(strstr(error.text, words), "'%s' does not say '%s'", error.text, words);
}

Test(ends, bad_settings_are_refused)
{
	static char long_line[8192];

	require_kvm();
	memset(long_line, 'a', sizeof(long_line) - 1);
	refuse((struct machine_config){.vcpus = 10000}, "-c");
	refuse((struct machine_config){.memory = 4096}, "-m");
	refuse((struct machine_config){.memory = 16 * MIB + 1}, "-m");
	refuse((struct machine_config){.memory = MIB}, "-m");
	refuse((struct machine_config){.command_line = long_line}, "-p");
	refuse((struct machine_config){.kernel = "/dev/null"}, "/dev/null");
	refuse((struct machine_config){.kernel = "/nowhere"}, "/nowhere");
	refuse((struct machine_config){.initrd = "/nowhere"}, "/nowhere");
	refuse((struct machine_config){.kvm_path = "/dev/null"}, "/dev/null");
	refuse((struct machine_config){.kvm_path = "/nowhere"}, "guestprof lab");
	refuse((struct machine_config){.disk_count = 1, .disks = {{"/nowhere", true}}}, "/nowhere");
}
