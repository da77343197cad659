/* The page that a VMM and KVM share, of a vCPU of our own whose descriptor is taken as from another
 * process. */
#include "attach/run_page.h"

#include "tests/kvm/guest_machine.h"

#include <linux/kvm.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

Test(run_page, a_page_that_its_vmm_uses_for_more_is_refused)
{
	int kvm, vm, vcpu, pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	struct run_page page;
	struct error error = {0};
	struct kvm_run *run;

	require_kvm();
	kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	vm = ioctl(kvm, KVM_CREATE_VM, 0);
	vcpu = ioctl(vm, KVM_CREATE_VCPU, 0);
	cr_assert(vcpu >= 0 && pidfd >= 0);
	run = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	cr_assert_neq((void *)run, MAP_FAILED);
	run->kvm_valid_regs = KVM_SYNC_X86_REGS;
	cr_assert_eq(run_page_init(&page, pidfd, vcpu, &error), GP_ERR_NOT_SUPPORTED);
	cr_assert(strstr(error.text, "itself"), "%s", error.text);
	run->kvm_valid_regs = 0;
	run->kvm_dirty_regs = KVM_SYNC_X86_REGS;
	cr_assert_eq(run_page_init(&page, pidfd, vcpu, &error), GP_ERR_NOT_SUPPORTED);
	cr_assert_eq(run->kvm_dirty_regs, KVM_SYNC_X86_REGS);
	run->kvm_dirty_regs = 0;
	cr_assert_eq(run_page_init(&page, pidfd, vcpu, &error), GP_OK);
	run_page_arm(&page);
	cr_assert_eq(run->kvm_valid_regs, KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS);
	run_page_deinit(&page);
	cr_assert_eq(run->kvm_valid_regs, 0);
}

Test(run_page, registers_that_were_not_stored_are_not_used)
{
	int kvm, vm, vcpu, pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	struct guest_cpu cpu;
	struct run_page page;
	struct kvm_run *run;

	require_kvm();
	kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	vm = ioctl(kvm, KVM_CREATE_VM, 0);
	vcpu = ioctl(vm, KVM_CREATE_VCPU, 0);
	run = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	cr_assert_neq((void *)run, MAP_FAILED);
	cr_assert_eq(run_page_init(&page, pidfd, vcpu, NULL), GP_OK);
	run_page_arm(&page);
	cr_assert(!run_page_registers(&page, &cpu));
	/* As KVM stores them: one after the other. */
	run_page_poison(&page);
	cr_assert(!run_page_read_fresh(&page, &cpu));
	memset(&run->s.regs.regs, 0, sizeof(run->s.regs.regs));
	cr_assert(!run_page_read_fresh(&page, &cpu), "the special registers are still to come");
	memset(&run->s.regs.sregs, 0, sizeof(run->s.regs.sregs));
	run->s.regs.regs.rip = 0x1234;
	cr_assert(run_page_read_fresh(&page, &cpu));
	cr_assert_eq(cpu.rip, 0x1234);
	cr_assert(run_page_registers(&page, &cpu));
	/* The VMM takes its page back. */
	run->kvm_valid_regs = 0;
	cr_assert(!run_page_registers(&page, &cpu));
	run_page_deinit(&page);
}
