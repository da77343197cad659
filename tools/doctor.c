/* guestprof doctor: what this machine can do, and what to do about the rest. */
#include "tools/command.h"
#include "tools/lab/lab.h"
#include "tools/options.h"

#include "base/cleanup.h"
#include "base/container.h"
#include "export/json_writer.h"
#include "vmm/kvm_probe.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Exit codes, documented in guestprof-doctor(1). */
#define EXIT_NATIVE 0   /* stock guests run here */
#define EXIT_LAB_ONLY 3 /* they run in the lab */
#define EXIT_NOTHING 4  /* they run in neither */

#define FINDINGS_MAX 24

enum grade { GOOD, LESS, BAD };

struct finding {
	const char *name; /* stable, for --json */
	enum grade grade;
	char value[320];
	char advice[256]; /* "" when there is nothing to do */
};

struct report {
	struct kvm_probe kvm;
	bool lab_works;
	unsigned count;
	struct finding findings[FINDINGS_MAX];
};

static struct finding *add(struct report *report, const char *name, enum grade grade,
			   const char *format, ...) __attribute__((format(printf, 4, 5)));

static struct finding *add(struct report *report, const char *name, enum grade grade,
			   const char *format, ...)
{
	/* The last one is overwritten when there are too many: a defect, and harmless. */
	struct finding *finding = &report->findings[report->count];
	va_list arguments;

	if (report->count < FINDINGS_MAX - 1)
		report->count++;
	*finding = (struct finding){.name = name, .grade = grade};
	va_start(arguments, format);
	vsnprintf(finding->value, sizeof(finding->value), format, arguments);
	va_end(arguments);
	return finding;
}

static void advise(struct finding *finding, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void advise(struct finding *finding, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(finding->advice, sizeof(finding->advice), format, arguments);
	va_end(arguments);
}

static void advise_permission(struct finding *finding)
{
	struct stat status;
	const struct group *group;

	if (stat("/dev/kvm", &status) < 0)
		return;
	group = getgrgid(status.st_gid);
	if ((status.st_mode & 060) == 060 && group && status.st_gid != 0)
		advise(finding, "as root: adduser %s %s, then log in again",
		       getenv("USER") ? getenv("USER") : "YOUR-NAME", group->gr_name);
	else
		advise(finding, "as root: chgrp kvm /dev/kvm && chmod 660 /dev/kvm, and add "
				"yourself to the group kvm");
}

static void examine_kvm(struct report *report)
{
	const struct kvm_probe *kvm = &report->kvm;
	struct finding *finding;
	char missing[200] = "";

	finding = add(report, "kvm", kvm->kind == KVM_NATIVE ? GOOD : BAD, "%s%s%s%s%s",
		      kvm_kind_name(kvm->kind), *kvm->reason ? ": " : "", kvm->reason,
		      kvm->error_number ? ": " : "",
		      kvm->error_number ? strerror(kvm->error_number) : "");
	if (kvm->kind == KVM_NO_PERMISSION)
		advise_permission(finding);
	else if (kvm->kind == KVM_NONE && (kvm->flag_vmx || kvm->flag_svm))
		advise(finding, "as root: modprobe %s", kvm->flag_vmx ? "kvm_intel" : "kvm_amd");
	else if (kvm->kind != KVM_NATIVE)
		advise(finding, "run stock guests in the lab: guestprof lab record ...");
	add(report, "cpu-flags", kvm->flag_vmx || kvm->flag_svm ? GOOD : LESS, "%s",
	    kvm->flag_vmx   ? "vmx"
	    : kvm->flag_svm ? "svm"
			    : "neither vmx nor svm");
	if (!kvm->api_version)
		return;
	add(report, "kvm-api", kvm->api_version == 12 ? GOOD : BAD, "%d", kvm->api_version);
	for (unsigned i = 0; i < kvm->capability_count; i++) {
		size_t used = strlen(missing);

		if (!kvm->capabilities[i].enough)
			snprintf(missing + used, sizeof(missing) - used, " %s",
				 kvm->capabilities[i].name);
	}
	if (kvm->capability_count) {
		finding = add(report, "kvm-capabilities", kvm->all_capabilities ? GOOD : BAD,
			      "%s%s", *missing ? "lacks" : "all that guestprof needs", missing);
		if (*missing)
			advise(finding, "needs a host kernel of 5.10 or later");
	}
	if (kvm->loop_nanoseconds)
		add(report, "kvm-speed", kvm->kind == KVM_NATIVE ? GOOD : LESS,
		    "%.1f million guest instructions per second (%" PRIu32 " loops in %.1f ms)",
		    2e3 * kvm->loop_iterations / (double)kvm->loop_nanoseconds,
		    kvm->loop_iterations, (double)kvm->loop_nanoseconds / 1e6);
}

static bool read_number(const char *path, long *number)
{
	AUTO_FCLOSE FILE *file = fopen(path, "re");

	return file && fscanf(file, "%ld", number) == 1;
}

static int try_perf(uint32_t type, uint64_t config)
{
	struct perf_event_attr attributes = {
		.size = sizeof(attributes),
		.type = type,
		.config = config,
		.disabled = 1,
		.exclude_kernel = 1,
	};
	long fd = syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0)
		return errno;
	close((int)fd);
	return 0;
}

static void examine_perf(struct report *report)
{
	int clock = try_perf(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK);
	int cycles = try_perf(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES);
	struct finding *finding = add(report, "perf-cpu-clock", clock ? LESS : GOOD, "%s",
				      clock ? strerror(clock) : "works");
	long paranoid = 0;

	if ((clock == EACCES || clock == EPERM) &&
	    read_number("/proc/sys/kernel/perf_event_paranoid", &paranoid))
		advise(finding, "as root: sysctl kernel.perf_event_paranoid=1 (it is %ld)",
		       paranoid);
	add(report, "perf-cycles", cycles ? LESS : GOOD, "%s",
	    cycles == ENOENT || cycles == EOPNOTSUPP ? "this machine has no such counter"
	    : cycles                                 ? strerror(cycles)
						     : "works");
}

static void examine_bpf(struct report *report)
{
	/* r0 = 0; exit */
	const struct bpf_insn program[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K},
		{.code = BPF_JMP | BPF_EXIT},
	};
	union bpf_attr attributes = {
		.prog_type = BPF_PROG_TYPE_SOCKET_FILTER,
		.insns = (uintptr_t)program,
		.insn_cnt = ARRAY_SIZE(program),
		.license = (uintptr_t) "MIT",
	};
	long fd = syscall(SYS_bpf, BPF_PROG_LOAD, &attributes, sizeof(attributes));
	int error = errno;
	struct finding *finding;

	if (fd >= 0) {
		close((int)fd);
		add(report, "bpf", GOOD, "programs load");
		return;
	}
	finding = add(report, "bpf", LESS, "programs do not load: %s", strerror(error));
	if (error == EPERM)
		advise(finding, "run as root, or with CAP_BPF and CAP_PERFMON");
}

static void examine_ptrace(struct report *report)
{
	static const char *const meanings[] = {"any process of this user",
					       "only this user's children", "only as root",
					       "not at all"};
	long scope;
	struct finding *finding;
	bool root = geteuid() == 0;

	if (!read_number("/proc/sys/kernel/yama/ptrace_scope", &scope)) {
		add(report, "ptrace", GOOD, "any process of this user (no Yama)");
		return;
	}
	finding = add(report, "ptrace", scope == 0 || (root && scope < 3) ? GOOD : LESS,
		      "%s (ptrace_scope %ld)",
		      scope >= 0 && scope <= 3 ? meanings[scope] : "unknown", scope);
	if (finding->grade != GOOD)
		advise(finding, scope < 3 ? "to profile running VMs: run as root, or sysctl "
					    "kernel.yama.ptrace_scope=0"
					  : "cannot be changed before the next boot");
}

static void examine_limits(struct report *report)
{
	struct rlimit limit = {0};
	struct finding *finding;

	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (limit.rlim_cur == RLIM_INFINITY)
		add(report, "memlock", GOOD, "unlimited");
	else
		add(report, "memlock", limit.rlim_cur >= 8u << 20 ? GOOD : LESS, "%llu KiB",
		    (unsigned long long)limit.rlim_cur / 1024);
	/* timer_create() takes one queued signal of this limit for each timer. */
	getrlimit(RLIMIT_SIGPENDING, &limit);
	if (limit.rlim_cur == RLIM_INFINITY) {
		add(report, "timers", GOOD, "unlimited");
		return;
	}
	finding = add(report, "timers", limit.rlim_cur >= 256 ? GOOD : LESS,
		      "%llu (one for each vCPU)", (unsigned long long)limit.rlim_cur);
	if (finding->grade != GOOD)
		advise(finding, "ulimit -i 1024");
}

static void examine_lab(struct report *report)
{
	struct error error = {0};
	char path[PATH_MAX];
	struct finding *finding;
	bool qemu =
		lab_find_program("qemu-system-x86_64", "qemu-system-x86", path, &error) == GP_OK;

	finding = add(report, "lab-qemu", qemu ? GOOD : BAD, "%.300s",
		      qemu ? path : "no qemu-system-x86_64");
	if (!qemu)
		advise(finding, "as root: apt-get install qemu-system-x86");
	bool busybox = lab_find_busybox(path, &error) == GP_OK;
	finding = add(report, "lab-busybox", busybox ? GOOD : BAD, "%.300s",
		      busybox ? path : "no statically linked busybox");
	if (!busybox)
		advise(finding, "as root: apt-get install busybox-static");
	bool kernel = lab_kernel_cached(LAB_KERNEL_DEFAULT);
	bool tools = lab_find_program("apt-get", "apt", path, &error) == GP_OK &&
		     lab_find_program("dpkg-deb", "dpkg", path, &error) == GP_OK;
	finding = add(report, "lab-kernel",
		      kernel  ? GOOD
		      : tools ? LESS
			      : BAD,
		      "%s",
		      kernel  ? LAB_KERNEL_DEFAULT " is in the cache"
		      : tools ? LAB_KERNEL_DEFAULT " is not in the cache yet"
			      : "neither in the cache nor apt-get and dpkg-deb to get it");
	if (!kernel)
		advise(finding, "guestprof lab --setup%s",
		       tools ? " (or the first use gets it)" : " on a Debian machine");
	report->lab_works = qemu && busybox && (kernel || tools);
}

static int verdict(const struct report *report)
{
	if (report->kvm.kind == KVM_NATIVE && report->kvm.all_capabilities)
		return EXIT_NATIVE;
	return report->lab_works ? EXIT_LAB_ONLY : EXIT_NOTHING;
}

static const char *floor_name(const struct report *report)
{
	switch (report->kvm.kind) {
	case KVM_NATIVE:
		return "native";
	case KVM_EMULATED:
		return "emulated";
	default:
		return "none";
	}
}

static void print_json(const struct report *report)
{
	static const char *const grades[] = {"good", "less", "bad"};

	struct json json = {.to = stdout};

	json_open(&json, NULL, '{', true);
	json_string(&json, "floor", floor_name(report));
	json_bool(&json, "lab", report->lab_works);
	json_open(&json, "findings", '[', true);
	for (unsigned i = 0; i < report->count; i++) {
		const struct finding *finding = &report->findings[i];

		json_open(&json, NULL, '{', false);
		json_string(&json, "name", finding->name);
		json_string(&json, "grade", grades[finding->grade]);
		json_string(&json, "value", finding->value);
		if (*finding->advice)
			json_string(&json, "advice", finding->advice);
		json_close(&json);
	}
	json_close(&json);
	json_open(&json, "capabilities", '{', false);
	for (unsigned i = 0; i < report->kvm.capability_count; i++)
		json_value(&json, report->kvm.capabilities[i].name, "%d",
			   report->kvm.capabilities[i].value);
	json_close(&json);
	json_close(&json);
}

static void print_text(const struct report *report)
{
	static const char *const marks[] = {"ok", "--", "NO"};
	static const char *const conclusions[] = {
		[EXIT_NATIVE] = "Stock guests run here: guestprof record",
		[EXIT_LAB_ONLY] = "Stock guests run in the lab only: guestprof lab record",
		[EXIT_NOTHING] = "Stock guests do not run here yet; see the lines marked NO",
	};

	for (unsigned i = 0; i < report->count; i++) {
		const struct finding *finding = &report->findings[i];

		printf("%s  %-17s %s\n", marks[finding->grade], finding->name, finding->value);
		if (*finding->advice)
			printf("    %-17s -> %s\n", "", finding->advice);
	}
	printf("\n%s\n", conclusions[verdict(report)]);
}

static const char help[] =
	"usage: guestprof doctor [--json | --quiet | --floor]\n"
	"Says what this machine can do, and how to get the rest.\n"
	"\n"
	"  --json   the same for programs\n"
	"  --quiet  nothing but the exit code\n"
	"  --floor  one word: native, emulated or none, for what /dev/kvm does; exit\n"
	"           code 0\n"
	"\n"
	"Exit code: 0 stock guests run here, 3 only in the lab, 4 in neither, 2 wrong\n"
	"usage.\n"
	"\n"
	"Examples: guestprof doctor\n"
	"          guestprof doctor --quiet && guestprof record -k vmlinuz\n";

int command_doctor(int argc, char **argv)
{
	static const char program[] = "guestprof doctor";
	static enum { AS_TEXT, AS_JSON, QUIET, FLOOR } what;
	static const struct option_row rows[] = {
		OPTION("json", 'j', OPTION_SET, &what, .least = AS_JSON),
		OPTION("quiet", 'q', OPTION_SET, &what, .least = QUIET),
		OPTION("floor", 'f', OPTION_SET, &what, .least = FLOOR),
		OPTIONS_END,
	};
	static struct report report;
	int code = options_parse(
		&(struct command_line){.program = program, .help = help, .rows = rows}, argc, argv);

	if (code >= 0)
		return code;
	if (optind < argc)
		return option_bad(program, "takes no '%s'", argv[optind]);
	kvm_probe(&report.kvm);
	if (what == FLOOR) {
		puts(floor_name(&report));
		return EXIT_SUCCESS;
	}
	examine_kvm(&report);
	examine_perf(&report);
	examine_bpf(&report);
	examine_ptrace(&report);
	examine_limits(&report);
	examine_lab(&report);
	if (what == AS_JSON)
		print_json(&report);
	else if (what == AS_TEXT)
		print_text(&report);
	if (fflush(stdout))
		return EXIT_FAILURE;
	return verdict(&report);
}
