#include "attach/run_page.h"

#include "base/cleanup.h"
#include "kvm/registers.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REGISTERS ((uint64_t)(KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS))

/* No address of any paging mode, no value that a guest would hold in a register by chance. */
#define POISON UINT64_C(0x5bd1e9955bd1a7c3)

/* What is needed of the page; KVM's own size has more behind it (port I/O, coalesced MMIO). */
#define PAGE_BYTES 4096
_Static_assert(sizeof(struct kvm_run) <= PAGE_BYTES, "struct kvm_run lies in the first page");

/* The stored registers that capture uses, as words. */
#define WORDS (sizeof(struct kvm_regs) / sizeof(uint64_t))
_Static_assert(sizeof(struct kvm_regs) % sizeof(uint64_t) == 0, "registers are words");

gp_status_t run_page_check_host(const char *kvm_path, struct error *error)
{
	AUTO_CLOSE int fd = open(kvm_path, O_RDWR | O_CLOEXEC);
	int known;

	if (fd < 0)
		return error_set_errno(
			error, errno,
			"cannot open %s, to ask what this host's KVM can do: be root "
			"or in the group kvm",
			kvm_path);
	known = ioctl(fd, KVM_CHECK_EXTENSION, KVM_CAP_SYNC_REGS);
	/* A bit that KVM does not know would make KVM_RUN fail, and the VMM with it. */
	if (known < 0 || ((uint64_t)known & REGISTERS) != REGISTERS)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "this host's KVM cannot share registers (KVM_CAP_SYNC_REGS, Linux "
				 "4.17)");
	return GP_OK;
}

static uint64_t run_page_load(const __u64 *word)
{
	return *(const volatile __u64 *)word;
}

static void store(__u64 *word, uint64_t value)
{
	*(volatile __u64 *)word = value;
}

static gp_status_t cannot_take(int why, struct error *error)
{
	if (why == EPERM)
		return error_set_errno(error, why,
				       "the VMM's vCPUs may not be taken: be its user, or root, or "
				       "have CAP_SYS_PTRACE");
	return error_set_errno(error, why, "cannot take a vCPU from its VMM");
}

gp_status_t run_page_init(struct run_page *page, int pidfd, int vmm_fd, struct error *error)
{
	AUTO_CLOSE int fd = (int)syscall(SYS_pidfd_getfd, pidfd, vmm_fd, 0);
	struct kvm_run *run;
	uint64_t valid;

	if (fd < 0)
		return cannot_take(errno, error);
	run = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (run == MAP_FAILED)
		return error_set_errno(error, errno, "cannot map a vCPU's shared page");
	valid = run_page_load(&run->kvm_valid_regs);
	/* Both bits are what we would set; one of them, or registers on their way into the vCPU,
	 * are a use that a reader might disturb. */
	if ((valid && (valid & REGISTERS) != REGISTERS) || run_page_load(&run->kvm_dirty_regs)) {
		munmap(run, PAGE_BYTES);
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "its VMM uses the shared registers itself (kvm_valid_regs %#llx)",
				 (unsigned long long)valid);
	}
	*page = (struct run_page){.fd = take_fd(&fd), .run = run, .borrowed = valid != 0};
	return GP_OK;
}

void run_page_deinit(struct run_page *page)
{
	if (page->run) {
		if (page->armed && !page->borrowed)
			store(&page->run->kvm_valid_regs, 0);
		munmap(page->run, PAGE_BYTES);
	}
	close_fd(&page->fd);
	*page = (struct run_page){.fd = -1};
}

void run_page_arm(struct run_page *page)
{
	page->armed = true;
	if (page->borrowed)
		return;
	store(&page->run->s.regs.regs.rip, POISON);
	store(&page->run->kvm_valid_regs, REGISTERS);
}

/* A borrowed page that says nothing any more was another guestprof's, who has ended: it is ours
 * now. That costs a VMM which uses its page itself, and has ended that, nothing but time. */
static void take_over(struct run_page *page)
{
	if (!page->armed || !page->borrowed || run_page_load(&page->run->kvm_valid_regs) ||
	    run_page_load(&page->run->kvm_dirty_regs))
		return;
	page->borrowed = false;
	run_page_arm(page);
}

bool run_page_registers(struct run_page *page, struct guest_cpu *cpu)
{
	const struct kvm_sync_regs *stored = &page->run->s.regs;

	take_over(page);
	if ((run_page_load(&page->run->kvm_valid_regs) & REGISTERS) != REGISTERS ||
	    run_page_load(&stored->regs.rip) == POISON)
		return false;
	kvm_registers_value(&stored->regs, &stored->sregs, cpu);
	return true;
}

bool run_page_in_smm(const struct run_page *page)
{
	return page->run->flags & KVM_RUN_X86_SMM;
}

/* The special registers that an address space is made of. KVM stores the general ones first, then
 * these (store_regs()), so that a mark in each shows whether it has come that far. */
static __u64 *special(struct kvm_sregs *sregs, unsigned index)
{
	__u64 *const words[] = {
		&sregs->cs.base, &sregs->ss.base,  &sregs->fs.base,   &sregs->gs.base,
		&sregs->tr.base, &sregs->idt.base, &sregs->cr0,       &sregs->cr3,
		&sregs->cr4,     &sregs->efer,     &sregs->apic_base,
	};

	return index < sizeof(words) / sizeof(words[0]) ? words[index] : NULL;
}

void run_page_poison(struct run_page *page)
{
	struct kvm_sync_regs *stored = &page->run->s.regs;
	__u64 *words = (__u64 *)&stored->regs;
	__u64 *word;

	for (size_t i = 0; i < WORDS; i++)
		store(&words[i], POISON);
	for (unsigned i = 0; (word = special(&stored->sregs, i)); i++)
		store(word, POISON);
}

static bool is_fresh(struct kvm_regs *regs, struct kvm_sregs *sregs)
{
	const __u64 *words = (const __u64 *)regs;
	const __u64 *word;

	for (size_t i = 0; i < WORDS; i++)
		if (words[i] == POISON)
			return false;
	for (unsigned i = 0; (word = special(sregs, i)); i++)
		if (*word == POISON)
			return false;
	return true;
}

bool run_page_read_fresh(const struct run_page *page, struct guest_cpu *cpu)
{
	const struct kvm_sync_regs *stored = &page->run->s.regs;
	struct kvm_regs regs[2];
	struct kvm_sregs sregs[2];

	if ((run_page_load(&page->run->kvm_valid_regs) & REGISTERS) != REGISTERS)
		return false;
	for (int i = 0; i < 2; i++) {
		memcpy(&regs[i], &stored->regs, sizeof(regs[i]));
		memcpy(&sregs[i], &stored->sregs, sizeof(sregs[i]));
		/* The second read is one of its own; the CPU keeps loads in order. */
		atomic_signal_fence(memory_order_seq_cst);
	}
	if (!is_fresh(&regs[0], &sregs[0]) || memcmp(&regs[0], &regs[1], sizeof(regs[0])) ||
	    memcmp(&sregs[0], &sregs[1], sizeof(sregs[0])))
		return false;
	kvm_registers_value(&regs[0], &sregs[0], cpu);
	return true;
}
