#include "vmm/kvm.h"

#include "base/cleanup.h"
#include "base/container.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Intel hosts without unrestricted guest keep a TSS and an identity map for real mode in
 * guest-physical memory; below the local APIC and above our devices nothing else lies. */
#define IDENTITY_MAP_ADDRESS UINT64_C(0xfffbc000)
#define TSS_ADDRESS UINT64_C(0xfffbd000)

#define KVM_API_VERSION_WANTED 12

static unsigned vcpus_max(int fd)
{
	int most = ioctl(fd, KVM_CHECK_EXTENSION, KVM_CAP_MAX_VCPUS);

	if (most <= 0)
		most = ioctl(fd, KVM_CHECK_EXTENSION, KVM_CAP_NR_VCPUS);
	return most > 0 ? (unsigned)most : 1;
}

static gp_status_t check(const char *path, struct kvm *kvm, struct error *error)
{
	static const struct {
		int capability;
		const char *name;
	} needed[] = {
		{KVM_CAP_IRQCHIP, "KVM_CAP_IRQCHIP"},
		{KVM_CAP_USER_MEMORY, "KVM_CAP_USER_MEMORY"},
		{KVM_CAP_SET_TSS_ADDR, "KVM_CAP_SET_TSS_ADDR"},
		{KVM_CAP_SET_IDENTITY_MAP_ADDR, "KVM_CAP_SET_IDENTITY_MAP_ADDR"},
		{KVM_CAP_EXT_CPUID, "KVM_CAP_EXT_CPUID"},
		{KVM_CAP_IRQFD, "KVM_CAP_IRQFD"},
		{KVM_CAP_IOEVENTFD, "KVM_CAP_IOEVENTFD"},
		{KVM_CAP_MP_STATE, "KVM_CAP_MP_STATE"},
		{KVM_CAP_IMMEDIATE_EXIT, "KVM_CAP_IMMEDIATE_EXIT"},
		{KVM_CAP_PIT2, "KVM_CAP_PIT2"},
	};
	int version, size, sync;

	version = ioctl(kvm->fd, KVM_GET_API_VERSION, 0);
	if (version != KVM_API_VERSION_WANTED)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "%s is not KVM, or not one of API version %d", path,
				 KVM_API_VERSION_WANTED);
	for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
		if (ioctl(kvm->fd, KVM_CHECK_EXTENSION, needed[i].capability) <= 0)
			return error_set(error, GP_ERR_NOT_SUPPORTED,
					 "this host's KVM lacks %s; Linux 5.10 or newer has it",
					 needed[i].name);
	size = ioctl(kvm->fd, KVM_GET_VCPU_MMAP_SIZE, 0);
	if (size < (int)sizeof(struct kvm_run))
		return error_set_errno(error, errno, "cannot read the size of KVM's run page");
	kvm->run_size = (size_t)size;
	kvm->vcpus_max = vcpus_max(kvm->fd);
	sync = ioctl(kvm->fd, KVM_CHECK_EXTENSION, KVM_CAP_SYNC_REGS);
	kvm->sync_registers = sync > 0 && (sync & KVM_SYNC_X86_REGS) && (sync & KVM_SYNC_X86_SREGS);
	kvm->tsc_deadline = ioctl(kvm->fd, KVM_CHECK_EXTENSION, KVM_CAP_TSC_DEADLINE_TIMER) > 0;
	return GP_OK;
}

static gp_status_t cannot_open(const char *path, int why, struct error *error)
{
	if (why == EACCES || why == EPERM)
		return error_set_errno(
			error, why,
			"cannot open %s: its group and mode ('ls -l %s') say who may; "
			"usually 'adduser USER kvm' and a new login help, else root",
			path, path);
	if (why == ENOENT || why == ENODEV || why == ENXIO)
		return error_set_errno(
			error, why,
			"cannot open %s: this machine has no KVM ('modprobe kvm_intel' "
			"or 'kvm_amd' loads it where the CPU can); 'guestprof lab' runs "
			"the same command on an emulated one",
			path);
	return error_set_errno(error, why, "cannot open %s", path);
}

gp_status_t kvm_open(const char *path, struct kvm *out, struct error *error)
{
	struct kvm kvm = {.fd = open(path, O_RDWR | O_CLOEXEC)};
	gp_status_t status;

	if (kvm.fd < 0)
		return cannot_open(path, errno, error);
	status = check(path, &kvm, error);
	if (status)
		kvm_close(&kvm);
	else
		*out = kvm;
	return status;
}

void kvm_close(struct kvm *kvm)
{
	close_fd(&kvm->fd);
}

gp_status_t kvm_create_vm(const struct kvm *kvm, const struct guest_ram *ram, int *vm_fd,
			  struct error *error)
{
	uint64_t identity_map = IDENTITY_MAP_ADDRESS;
	struct kvm_pit_config pit = {.flags = KVM_PIT_SPEAKER_DUMMY};
	AUTO_CLOSE int fd = -1;

	do
		fd = ioctl(kvm->fd, KVM_CREATE_VM, 0);
	while (fd < 0 && errno == EINTR);
	if (fd < 0)
		return error_set_errno(error, errno, "KVM cannot create a virtual machine");
	if (ioctl(fd, KVM_SET_IDENTITY_MAP_ADDR, &identity_map) ||
	    ioctl(fd, KVM_SET_TSS_ADDR, TSS_ADDRESS) || ioctl(fd, KVM_CREATE_IRQCHIP, 0) ||
	    ioctl(fd, KVM_CREATE_PIT2, &pit))
		return error_set_errno(error, errno, "KVM cannot create the interrupt controller");
	for (unsigned i = 0; i < ram->region_count; i++) {
		const struct guest_ram_region *from = &ram->regions[i];
		struct kvm_userspace_memory_region region = {
			.slot = i,
			.guest_phys_addr = from->gpa,
			.memory_size = from->size,
			.userspace_addr = (uintptr_t)from->host,
		};

		if (ioctl(fd, KVM_SET_USER_MEMORY_REGION, &region))
			return error_set_errno(error, errno,
					       "KVM refuses the guest's memory at %#llx",
					       (unsigned long long)from->gpa);
	}
	*vm_fd = take_fd(&fd);
	return GP_OK;
}
