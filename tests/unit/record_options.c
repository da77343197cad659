/* The command line of guestprof record: what each option takes and refuses. */
#include "tools/record/record_options.h"
#include "base/container.h"
#include "tools/command.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ARGUMENTS_MAX = 40 };

static struct record_options options;
static char said[8192]; /* on standard error or, if asked, standard output */

/* Words of `line` are separated by '|'; "record" comes in front. Returns what the parser does and
 * keeps what it wrote to `stream`. */
static int parse_watching(const char *line, FILE *stream)
{
	static char words[8192]; /* the options point into it */
	char *arguments[ARGUMENTS_MAX] = {(char *)(uintptr_t) "record"};
	int watched = fileno(stream);
	int kept, caught, code, count = 1;
	ssize_t size;

	cr_assert_lt(strlen(line), sizeof(words));
	strcpy(words, line);
	for (char *at = words; at && count < ARGUMENTS_MAX - 1;) {
		char *bar = strchr(at, '|');

		arguments[count++] = at;
		if (bar)
			*bar++ = 0;
		at = bar;
	}
	fflush(stream);
	kept = dup(watched);
	caught = memfd_create("said", MFD_CLOEXEC);
	cr_assert(kept >= 0 && caught >= 0);
	dup2(caught, watched);
	code = record_options_parse(count, arguments, &options);
	fflush(stream);
	dup2(kept, watched);
	size = pread(caught, said, sizeof(said) - 1, 0);
	cr_assert_geq(size, 0);
	said[size] = 0;
	close(kept);
	close(caught);
	return code;
}

static void accept(const char *line)
{
	int code = parse_watching(line, stderr);

	cr_assert_eq(code, -1, "%s: code %d, %s", line, code, said);
	cr_assert_str_empty(said);
}

/* One line that names the option or the value, and exit code 2. */
static void refuse(const char *line, const char *naming)
{
	int code = parse_watching(line, stderr);
	const char *end = strchr(said, '\n');

	cr_assert_eq(code, EXIT_USAGE, "%s: code %d", line, code);
	cr_assert_eq(strncmp(said, "guestprof record: ", 18), 0, "%s: %s", line, said);
	cr_assert(end && !end[1], "%s: not one line: %s", line, said);
	cr_assert(strstr(said, naming), "%s: does not name %s: %s", line, naming, said);
}

Test(record_options, defaults)
{
	accept("-k|vmlinuz");
	cr_assert_str_eq(options.machine.kernel, "vmlinuz");
	cr_assert_null(options.machine.initrd);
	cr_assert_str_eq(options.machine.command_line, "console=ttyS0");
	cr_assert_eq(options.machine.vcpus, 1);
	cr_assert_eq(options.machine.memory, UINT64_C(512) << 20);
	cr_assert_eq(options.machine.disk_count, 0);
	cr_assert(options.machine.sandbox);
	cr_assert_null(options.machine.until);
	cr_assert_eq(options.sampling.period_ns, 1000000);
	cr_assert_eq(options.sampling.source, GP_TICK_TIMER);
	cr_assert_str_eq(options.sampling.event, "timer");
	cr_assert_eq(options.sampling.jitter_percent, 0);
	cr_assert_eq(options.sampling.sampled_vcpu_count, 0);
	cr_assert_eq(options.sampling.depth, 64);
	cr_assert_eq(options.sampling.duration_ns, 0);
	cr_assert_eq(options.timeout_ns, 0);
	cr_assert_str_eq(options.sampling.output, "guestprof.fxt");
	cr_assert(!options.sampling.json);
	cr_assert_eq(options.sampling.symbol_file_count, 0);
}

Test(record_options, every_option_by_its_long_name)
{
	accept("--kernel|k|--initrd|i|--append|a b=c|--cpus|3|--memory|2G|--disk|d,ro|"
	       "--disk|e|--frequency|4000|--event|timer|--jitter|10|--sample-cpus|2,0-1|--depth|5|"
	       "--symbols|s@0x10|--symfs|d|--output|o|--until|login:|--duration|1.5|--timeout|60|--"
	       "json|"
	       "--no-sandbox");
	cr_assert_str_eq(options.machine.kernel, "k");
	cr_assert_str_eq(options.machine.initrd, "i");
	cr_assert_str_eq(options.machine.command_line, "a b=c");
	cr_assert_eq(options.machine.vcpus, 3);
	cr_assert_eq(options.machine.memory, UINT64_C(2) << 30);
	cr_assert_eq(options.machine.disk_count, 2);
	cr_assert_str_eq(options.machine.disks[0].path, "d");
	cr_assert(options.machine.disks[0].read_only);
	cr_assert_str_eq(options.machine.disks[1].path, "e");
	cr_assert(!options.machine.disks[1].read_only);
	cr_assert_eq(options.sampling.period_ns, 250000);
	cr_assert_eq(options.sampling.jitter_percent, 10);
	cr_assert_eq(options.sampling.sampled_vcpu_count, 3);
	cr_assert_eq(options.sampling.sampled_vcpus[0], 2);
	cr_assert_eq(options.sampling.sampled_vcpus[1], 0);
	cr_assert_eq(options.sampling.sampled_vcpus[2], 1);
	cr_assert_eq(options.sampling.depth, 5);
	cr_assert_eq(options.sampling.symbol_file_count, 1);
	cr_assert_str_eq(options.sampling.symbol_files[0], "s@0x10");
	cr_assert_str_eq(options.sampling.output, "o");
	cr_assert_str_eq(options.machine.until, "login:");
	cr_assert_eq(options.machine.until_size, 6);
	cr_assert_eq(options.sampling.duration_ns, UINT64_C(1500000000));
	cr_assert_eq(options.timeout_ns, UINT64_C(60000000000));
	cr_assert(options.sampling.json);
	cr_assert(!options.machine.sandbox);
}

Test(record_options, sizes_have_units_and_mib_without)
{
	static const struct {
		const char *line;
		uint64_t bytes;
	} sizes[] = {{"-k|k|-m|64", UINT64_C(64) << 20},   {"-k|k|-m|64m", UINT64_C(64) << 20},
		     {"-k|k|-m|2048K", UINT64_C(2) << 20}, {"-k|k|-m|2048k", UINT64_C(2) << 20},
		     {"-k|k|-m|3g", UINT64_C(3) << 30},    {"-k|k|-m|65536G", UINT64_C(1) << 46}};
	static const char *const bad[] = {"",
					  "0",
					  "-1",
					  "M",
					  "12X",
					  "12MM",
					  "1.5",
					  "65537G",
					  " 12",
					  "0x10",
					  "99999999999999999999"};

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		accept(sizes[i].line);
		cr_assert_eq(options.machine.memory, sizes[i].bytes, "%s", sizes[i].line);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		char line[64];

		snprintf(line, sizeof(line), "-k|k|-m|%s", bad[i]);
		refuse(line, "-m");
	}
}

Test(record_options, numbers_outside_their_limits)
{
	static const char *const good[] = {
		"-c|1",      "-F|0",         "-F|1",       "-F|100000",   "--period|10000",
		"--depth|1", "--depth|1024", "--jitter|0", "--jitter|90", "--period|3600000000000"};
	static const struct {
		const char *line, *naming;
	} bad[] = {
		{"-c|0", "-c"},
		{"-c|-1", "-c"},
		{"-c|two", "-c"},
		{"-c|4294967296", "-c"},
		{"-c|", "-c"},
		{"-F|-1", "-F"},
		{"-F|100001", "-F"},
		{"-F|1e3", "-F"},
		{"-F|", "-F"},
		{"--period|9999", "--period"},
		{"--period|0", "--period"},
		{"--period|3600000000001", "--period"},
		{"--depth|0", "--depth"},
		{"--depth|1025", "--depth"},
		{"--depth|+5", "--depth"},
		{"--jitter|91", "--jitter"},
		{"--jitter|10%", "--jitter"},
		{"--jitter|-5", "--jitter"},
	};
	char line[128];

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		snprintf(line, sizeof(line), "-k|k|%s", good[i]);
		accept(line);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		snprintf(line, sizeof(line), "-k|k|%s", bad[i].line);
		refuse(line, bad[i].naming);
	}
}

Test(record_options, times_are_seconds)
{
	static const char *const bad[] = {"", "0", "-1", "1s", "nan", "inf", "1e10", "0x1", "+1"};
	char line[64];

	accept("-k|k|--duration|.25|--timeout|1e3");
	cr_assert_eq(options.sampling.duration_ns, 250000000);
	cr_assert_eq(options.timeout_ns, UINT64_C(1000000000000));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		snprintf(line, sizeof(line), "-k|k|--duration|%s", bad[i]);
		refuse(line, "--duration");
		snprintf(line, sizeof(line), "-k|k|--timeout|%s", bad[i]);
		refuse(line, "--timeout");
	}
}

Test(record_options, tick_sources)
{
	static const struct {
		const char *name;
		gp_tick_source_t source;
	} names[] = {{"timer", GP_TICK_TIMER},
		     {"cpu-clock", GP_TICK_CPU_CLOCK},
		     {"cycles", GP_TICK_CYCLES},
		     {"instructions", GP_TICK_INSTRUCTIONS}};
	char line[64];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(line, sizeof(line), "-k|k|-e|%s", names[i].name);
		accept(line);
		cr_assert_eq(options.sampling.source, names[i].source);
		cr_assert_str_eq(options.sampling.event, names[i].name);
	}
	refuse("-k|k|-e|cache-misses", "cache-misses");
	refuse("-k|k|-e|", "-e");
	/* A period of a thousandth of a second means nothing in events. */
	accept("-k|k|-e|cycles");
	cr_assert_gt(options.sampling.period_ns, 1000000);
	accept("-k|k|-e|cycles|--period|500000");
	cr_assert_eq(options.sampling.period_ns, 500000);
}

Test(record_options, jitter_needs_the_timer_in_either_order)
{
	refuse("-k|k|--jitter|5|-e|cycles", "exclude");
	refuse("-k|k|-F|1000|--period|20000", "exclude");
	refuse("-k|k|-F|1000|-e|cycles", "give --period EVENTS");
	refuse("-k|k|-e|instructions|-F|1000", "give --period EVENTS");
	refuse("-k|k|-e|cpu-clock|--jitter|5", "exclude");
	accept("-k|k|-e|cpu-clock|--jitter|0");
}

Test(record_options, sampled_vcpus_are_ones_that_are_there)
{
	static const char *const bad[] = {"", ",", "a", "1-", "-1", "2-1", "64", "0-64", "1,,x"};
	char line[64];

	accept("-k|k|-c|4|--sample-cpus|3");
	cr_assert_eq(options.sampling.sampled_vcpu_count, 1);
	accept("-k|k|--sample-cpus|0-3|-c|4");
	cr_assert_eq(options.sampling.sampled_vcpu_count, 4);
	refuse("-k|k|-c|4|--sample-cpus|4", "--sample-cpus");
	refuse("-k|k|--sample-cpus|0,1", "--sample-cpus");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		snprintf(line, sizeof(line), "-k|k|-c|64|--sample-cpus|%s", bad[i]);
		refuse(line, "--sample-cpus");
	}
}

Test(record_options, no_more_disks_and_symbol_files_than_there_are_places)
{
	char line[512] = "-k|k";

	for (int i = 0; i < MACHINE_DISKS_MAX; i++)
		strcat(line, "|-d|disk");
	accept(line);
	cr_assert_eq(options.machine.disk_count, MACHINE_DISKS_MAX);
	strcat(line, "|-d|one-more");
	refuse(line, "one-more");
	strcpy(line, "-k|k");
	for (int i = 0; i < SAMPLING_SYMBOL_FILES_MAX; i++)
		strcat(line, "|--symbols|file");
	accept(line);
	cr_assert_eq(options.sampling.symbol_file_count, SAMPLING_SYMBOL_FILES_MAX);
	strcat(line, "|--symbols|one-more");
	refuse(line, "one-more");
	refuse("-k|k|-d|", "-d");
	refuse("-k|k|-d|,ro", "-d");
	/* A comma that is not ",ro" is part of the name. */
	accept("-k|k|-d|a,b");
	cr_assert_str_eq(options.machine.disks[0].path, "a,b");
}

Test(record_options, until_is_a_text_of_some_length)
{
	char line[1200] = "-k|k|--until|";

	refuse("-k|k|--until|", "--until");
	memset(line + strlen(line), 'x', 1024);
	accept(line);
	cr_assert_eq(options.machine.until_size, 1024);
	strcat(line, "x");
	refuse(line, "--until");
}

Test(record_options, what_is_missing_or_unknown)
{
	refuse("-c|2", "-k");
	refuse("-k", "k");
	refuse("-k|k|--frequency", "frequency");
	refuse("-k|k|-Z", "Z");
	refuse("-k|k|--no-such-option", "--no-such-option");
	refuse("-k|k|stray", "stray");
	refuse("-k|k|--json=yes", "json");
}

Test(record_options, help_is_no_error)
{
	cr_assert_eq(parse_watching("--help", stdout), EXIT_SUCCESS);
	cr_assert(strstr(said, "usage: guestprof record -k KERNEL"));
	/* Every long option is explained. */
	static const char *const names[] = {
		"--kernel", "--initrd",      "--append",   "--cpus",    "--memory",
		"--disk",   "--frequency",   "--period",   "--event",   "--jitter",
		"--depth",  "--sample-cpus", "--symbols",  "--symfs",   "--output",
		"--until",  "--json",        "--duration", "--timeout", "--no-sandbox"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		cr_assert(strstr(said, names[i]), "%s", names[i]);
}
