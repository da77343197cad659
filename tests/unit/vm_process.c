/* Virtual machines found in a /proc that is made for it. */
#include "attach/vm_process.h"
#include "attach/vm_threads.h"
#include "tests/unit/fake_proc.h"

TestSuite(vm_process, .init = make_root, .fini = remove_root);

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
	unsigned count = 0;
	struct hidden_processes hidden;

	make_qemu("42", QEMU, sizeof(QEMU));
	make_qemu("43", QEMU, sizeof(QEMU));
	make_directory("44");
	make_directory("44/fd");
	make_directory("self");
	cr_assert_eq(vm_processes(root, count_one, &count, &hidden, NULL), GP_OK);
	cr_assert_eq(count, 2);
	cr_assert_eq(hidden.count, 0);
}

/* root may look at everything: as somebody else. */
Test(vm_process, what_may_not_be_looked_at_is_counted_but_for_the_kernels_threads)
{
	static const char kernel[] = "12 (kworker/0:0) H) I 2 0 0 0 -1 69238880 0 0";
	static const char program[] = "50 (a) b) S 1 50 50 0 -1 4194560 0 0";
	unsigned count = 0;
	struct hidden_processes hidden;
	char path[300];

	for (int pid = 12; pid <= 50; pid += 38) {
		snprintf(path, sizeof(path), "%d", pid);
		make_directory(path);
		snprintf(path, sizeof(path), "%d/stat", pid);
		make_file(path, pid == 12 ? kernel : program, strlen(pid == 12 ? kernel : program));
		snprintf(path, sizeof(path), "%d/fd", pid);
		make_directory(path);
		snprintf(path, sizeof(path), "%s/%d/fd", root, pid);
		cr_assert(!chmod(path, 0));
	}
	cr_assert(!chmod(root, 0755));
	cr_assert(geteuid() || !seteuid(65534));
	cr_assert_eq(vm_processes(root, count_one, &count, &hidden, NULL), GP_OK);
	cr_assert(getuid() || !seteuid(0));
	cr_assert_eq(count, 0);
	cr_assert_eq(hidden.count, 1, "%u", hidden.count);
	cr_assert_eq(hidden.first, 50);
	for (int pid = 12; pid <= 50; pid += 38) { /* for whoever removes them */
		snprintf(path, sizeof(path), "%s/%d/fd", root, pid);
		cr_assert(!chmod(path, 0755));
	}
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
