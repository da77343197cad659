/* The page that KVM and a VMM share for each vCPU (struct kvm_run), used by a third: us.
 *
 * With a bit set in its kvm_valid_regs every return of KVM_RUN to user space, EINTR too, stores the
 * vCPU's registers there (arch/x86/kvm/x86.c, store_regs()). That word, and a mark in a register
 * that KVM will write over, are all that is ever written. A VMM that has set the bits itself is
 * only read.
 */
#ifndef ATTACH_RUN_PAGE_H
#define ATTACH_RUN_PAGE_H

#include "base/error.h"
#include "guest-introspection/x86/guest_cpu.h"

#include <stdbool.h>
#include <stdint.h>

struct kvm_run;

struct run_page {
	int fd; /* the vCPU, ours of it; ioctls through it fail: it is another process's */
	struct kvm_run *run;
	bool borrowed; /* somebody else has registers stored here: the VMM, or another of us */
	bool armed;
};

/* This host's KVM can store registers in the page. GP_ERR_NOT_SUPPORTED; GP_ERR_ACCESS_DENIED and
 * others: /dev/kvm, which tells, cannot be opened. */
gp_status_t run_page_check_host(const char *kvm_path, struct error *error);

/* Takes the vCPU's descriptor `vmm_fd` from the VMM and maps its page; nothing is written.
 * GP_ERR_NOT_SUPPORTED: the VMM uses its page for something else. */
gp_status_t run_page_init(struct run_page *page, int pidfd, int vmm_fd, struct error *error);
/* As the VMM left it. */
void run_page_deinit(struct run_page *page);

/* From here on registers are stored. */
void run_page_arm(struct run_page *page);

/* The registers stored last; false: none since run_page_arm(), or the VMM has taken the page back.
 * When another guestprof that had asked for them has ended, they are asked for again, and there are
 * none this time. The vCPU must be outside KVM_RUN, its thread stopped: only KVM_RUN writes here.
 */
bool run_page_registers(struct run_page *page, struct guest_cpu *cpu);

/* The vCPU is in system management mode, in its firmware's hands. */
bool run_page_in_smm(const struct run_page *page);

/* For kicks that do not stop the thread: marks every register, so that what is read later can be
 * told to be of a later time and whole. Not on a borrowed page. */
void run_page_poison(struct run_page *page);

/* The registers if every one was stored since run_page_poison(), as two equal reads tell. */
bool run_page_read_fresh(const struct run_page *page, struct guest_cpu *cpu);

#endif
