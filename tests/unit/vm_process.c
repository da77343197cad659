/* Virtual machines found in a /proc that is made for it. */
#include "attach/vm_process.h"
#include "attach/vm_threads.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[64];

static void make_root(void)
{
	snprintf(root, sizeof(root), "/tmp/guestprof-proc.XXXXXX");
	cr_assert(mkdtemp(root));
}

static void remove_root(void)
{
	char line[128];

	snprintf(line, sizeof(line), "rm -rf %s", root);
	cr_assert_eq(system(line), 0);
}

TestSuite(vm_process, .init = make_root, .fini = remove_root);

static void make_directory(const char *name)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	cr_assert(!mkdir(path, 0755), "%s", path);
}

static void make_file(const char *name, const char *bytes, size_t size)
{
	char path[300];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	cr_assert(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
	close(fd);
}

static void make_link(const char *name, const char *to)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	cr_assert(!symlink(to, path));
}

static const char qemu_status[] =
	"Name:\tqemu-system-x86\nTracerPid:\t77\nUid:\t107\t107\t107\t107\n";

/* A QEMU with two vCPUs, the second one's descriptor twice. */
static void make_qemu(const char *pid, const char *command_line, size_t size)
{
	char name[64];

	make_directory(pid);
	snprintf(name, sizeof(name), "%s/fd", pid);
	make_directory(name);
	snprintf(name, sizeof(name), "%s/fd/0", pid);
	make_link(name, "/dev/null");
	snprintf(name, sizeof(name), "%s/fd/11", pid);
	make_link(name, "anon_inode:kvm-vm");
	snprintf(name, sizeof(name), "%s/fd/21", pid);
	make_link(name, "anon_inode:kvm-vcpu:1");
	snprintf(name, sizeof(name), "%s/fd/20", pid);
	make_link(name, "anon_inode:kvm-vcpu:0");
	snprintf(name, sizeof(name), "%s/fd/22", pid);
	make_link(name, "anon_inode:kvm-vcpu:1");
	snprintf(name, sizeof(name), "%s/exe", pid);
	make_link(name, "/usr/bin/qemu-system-x86_64 (deleted)");
	snprintf(name, sizeof(name), "%s/cmdline", pid);
	make_file(name, command_line, size);
	snprintf(name, sizeof(name), "%s/status", pid);
	make_file(name, qemu_status, sizeof(qemu_status) - 1);
	/* A debugger has one of its threads. */
	snprintf(name, sizeof(name), "%s/task", pid);
	make_directory(name);
	for (int thread = 100; thread < 103; thread++) {
		snprintf(name, sizeof(name), "%s/task/%d", pid, thread);
		make_directory(name);
		snprintf(name, sizeof(name), "%s/task/%d/status", pid, thread);
		if (thread == 101)
			make_file(name, qemu_status, sizeof(qemu_status) - 1);
		else
			make_file(name, "TracerPid:\t0\n", 13);
	}
}

#define QEMU "qemu\0-name\0guest=web,,1,debug-threads=on\0-uuid\0abc-def\0-M\0pc-q35-7.2\0-S"

Test(vm_process, a_qemu_is_found_with_its_vcpus_name_owner_and_tracer)
{
	struct vm_process process;

	make_qemu("42", QEMU, sizeof(QEMU));
	cr_assert_eq(vm_process_init(&process, root, 42, NULL), GP_OK);
	cr_assert_eq(process.kind, VMM_QEMU);
	cr_assert_str_eq(process.vmm, "qemu-system-x86_64");
	cr_assert_str_eq(process.name, "web,1");
	cr_assert_str_eq(process.uuid, "abc-def");
	cr_assert_eq(process.owner, 107);
	cr_assert_eq(process.tracer, 77);
	cr_assert_eq(process.vms, 1);
	cr_assert_eq(process.vcpu_count, 2);
	cr_assert_eq(process.vcpus[0].id, 0);
	cr_assert_eq(process.vcpus[0].fd, 20);
	cr_assert_eq(process.vcpus[1].id, 1);
	cr_assert_eq(process.hole_start, UINT64_C(2) << 30);
	cr_assert(!process.is_protected);
	vm_process_deinit(&process);
}

#define FIRST_VALUE "qemu\0-name\0web,process=x"
#define OTHER_VALUE "qemu\0-name\0process=x"

Test(vm_process, a_name_may_come_without_its_key)
{
	struct vm_process process;

	make_qemu("42", FIRST_VALUE, sizeof(FIRST_VALUE));
	make_qemu("43", OTHER_VALUE, sizeof(OTHER_VALUE));
	cr_assert_eq(vm_process_init(&process, root, 42, NULL), GP_OK);
	cr_assert_str_eq(process.name, "web");
	vm_process_deinit(&process);
	cr_assert_eq(vm_process_init(&process, root, 43, NULL), GP_OK);
	cr_assert_str_eq(process.name, "");
	vm_process_deinit(&process);
}

#define PROTECTED "qemu\0-object\0sev-snp-guest,id=sev0\0-M\0q35,confidential-guest-support=sev0"

Test(vm_process, a_protected_guest_is_known_by_its_options_and_its_descriptors)
{
	struct vm_process process;

	make_qemu("42", PROTECTED, sizeof(PROTECTED));
	make_qemu("43", QEMU, sizeof(QEMU));
	make_link("43/fd/30", "/dev/sev");
	make_qemu("44", QEMU, sizeof(QEMU));
	make_link("44/fd/30", "anon_inode:[kvm-gmem]");
	for (pid_t pid = 42; pid <= 44; pid++) {
		cr_assert_eq(vm_process_init(&process, root, pid, NULL), GP_OK);
		cr_assert(process.is_protected, "%d", (int)pid);
		vm_process_deinit(&process);
	}
}

Test(vm_process, a_process_without_a_machine_and_one_that_is_not_there_are_not_found)
{
	struct vm_process process;
	struct error error = {0};

	make_directory("50");
	make_directory("50/fd");
	make_link("50/fd/3", "/dev/kvm");
	cr_assert_eq(vm_process_init(&process, root, 50, &error), GP_ERR_NOT_FOUND);
	cr_assert(strstr(error.text, "guestprof ps"), "%s", error.text);
	cr_assert_eq(vm_process_init(&process, root, 51, &error), GP_ERR_NOT_FOUND);
	cr_assert(strstr(error.text, "no process 51"), "%s", error.text);
}

static void count_one(void *context, struct vm_process *process)
{
	cr_assert_eq(process->vcpu_count, 2);
	++*(unsigned *)context;
}

Test(vm_process, all_machines_are_listed_and_nothing_else)
{
	unsigned count = 0, hidden;

	make_qemu("42", QEMU, sizeof(QEMU));
	make_qemu("43", QEMU, sizeof(QEMU));
	make_directory("44");
	make_directory("44/fd");
	make_directory("self");
	cr_assert_eq(vm_processes(root, count_one, &count, &hidden, NULL), GP_OK);
	cr_assert_eq(count, 2);
	cr_assert_eq(hidden, 0);
}

#define WEB "qemu\0-name\0guest=web\0-uuid\0AB-1"
#define MAIL "qemu\0-name\0guest=mail\0-uuid\0AB-2"

Test(vm_process, a_domain_is_found_by_name_uuid_and_pid_file)
{
	struct error error = {0};
	pid_t pid = 0;

	make_qemu("42", WEB, sizeof(WEB));
	make_qemu("43", MAIL, sizeof(MAIL));
	make_directory("libvirt");
	make_directory("libvirt/qemu");
	make_file("libvirt/qemu/printer.pid", "43\n", 3);
	make_file("libvirt/qemu/web.pid", "999\n", 4); /* of one that is gone */
	cr_assert_eq(vm_process_find(root, root, "web", &pid, NULL), GP_OK);
	cr_assert_eq(pid, 42);
	cr_assert_eq(vm_process_find(root, root, "ab-2", &pid, NULL), GP_OK);
	cr_assert_eq(pid, 43);
	pid = 0;
	cr_assert_eq(vm_process_find(root, root, "printer", &pid, NULL), GP_OK);
	cr_assert_eq(pid, 43);
	cr_assert_eq(vm_process_find(root, root, "none", &pid, &error), GP_ERR_NOT_FOUND);
	cr_assert_eq(vm_process_find(root, root, "../web", &pid, &error), GP_ERR_NOT_FOUND);
	cr_assert_eq(vm_process_find(root, root, "", &pid, &error), GP_ERR_NOT_FOUND);
	make_qemu("45", WEB, sizeof(WEB));
	cr_assert_eq(vm_process_find(root, root, "web", &pid, &error), GP_ERR_ALREADY_EXISTS);
	cr_assert(strstr(error.text, "PID"), "%s", error.text);
}

static void rights(const char *scope, uint64_t capabilities, uid_t owner, char text[static 256])
{
	struct vm_process process = {.pid = 42, .owner = owner};
	char name[300], status[128];

	make_directory("sys");
	make_directory("sys/kernel");
	make_directory("sys/kernel/yama");
	make_file("sys/kernel/yama/ptrace_scope", scope, strlen(scope));
	snprintf(name, sizeof(name), "%d", (int)getpid());
	make_directory(name);
	snprintf(name, sizeof(name), "%d/status", (int)getpid());
	snprintf(status, sizeof(status), "CapInh:\t0\nCapEff:\t%016llx\n",
		 (unsigned long long)capabilities);
	make_file(name, status, strlen(status));
	vm_process_rights(&process, root, text, 256);
	remove_root();
	cr_assert(!mkdir(root, 0755));
}

Test(vm_process, what_is_missing_is_named)
{
	const uint64_t ptrace = UINT64_C(1) << 19;
	char text[256];

	rights("0\n", 0, geteuid(), text);
	cr_assert_str_eq(text, "");
	rights("0\n", 0, geteuid() + 1, text);
	cr_assert(strstr(text, "another user's"), "%s", text);
	rights("1\n", 0, geteuid(), text);
	cr_assert(strstr(text, "ptrace_scope is 1"), "%s", text);
	rights("2\n", ptrace, geteuid() + 1, text);
	cr_assert_str_eq(text, "");
	rights("3\n", ptrace, geteuid(), text);
	cr_assert(strstr(text, "nobody may"), "%s", text);
}

Test(vm_threads, names_of_vcpu_threads_are_known)
{
	unsigned id = 99;

	cr_assert(vm_thread_name_is_vcpu("CPU 3/KVM", &id));
	cr_assert_eq(id, 3);
	cr_assert(vm_thread_name_is_vcpu("vcpu 0", &id));
	cr_assert_eq(id, 0);
	cr_assert(vm_thread_name_is_vcpu("fc_vcpu 12", &id));
	cr_assert(vm_thread_name_is_vcpu("vcpu1", &id));
	cr_assert(vm_thread_name_is_vcpu("crosvm_vcpu7", &id));
	cr_assert_eq(id, 7);
	cr_assert(!vm_thread_name_is_vcpu("CPU 3/TCG", &id));
	cr_assert(!vm_thread_name_is_vcpu("vcpu 1 helper", &id));
	cr_assert(!vm_thread_name_is_vcpu("kvm-nx-lpage-re", &id));
	cr_assert_eq(id, 7);
}
