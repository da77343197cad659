#include "attach/vm_process.h"

#include "attach/proc_file.h"
#include "attach/process_rights.h"
#include "attach/process_state.h"
#include "base/cleanup.h"
#include "base/container.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Descriptors of one process that are looked at. */
#define DESCRIPTORS_MAX 65536
#define COMMAND_LINE_MAX (128 * 1024)

static const char vcpu_link[] = "anon_inode:kvm-vcpu:";

static const struct {
	const char *program;
	enum vmm_kind kind;
} programs[] = {
	{"qemu-system", VMM_QEMU},
	{"qemu-kvm", VMM_QEMU},
	{"kvm", VMM_QEMU},
	{"guestprof", VMM_GUESTPROF},
	{"firecracker", VMM_FIRECRACKER},
	{"cloud-hypervisor", VMM_CLOUD_HYPERVISOR},
	{"crosvm", VMM_CROSVM},
};

static enum vmm_kind kind_of(const char *program)
{
	for (size_t i = 0; i < ARRAY_SIZE(programs); i++)
		if (!strncmp(program, programs[i].program, strlen(programs[i].program)))
			return programs[i].kind;
	return VMM_UNKNOWN;
}

static gp_status_t denied(const char *proc, pid_t pid, int why, struct error *error)
{
	char path[300], advice[256];

	/* A process that has just ended is refused like another user's. */
	snprintf(path, sizeof(path), "%s/%d", proc, (int)pid);
	if (why == ENOENT || why == ESRCH || access(path, F_OK))
		return error_set(error, GP_ERR_NOT_FOUND, "there is no process %d", (int)pid);
	if (status_from_errno(why) != GP_ERR_ACCESS_DENIED)
		return error_set_errno(error, why, "cannot look at the descriptors of process %d",
				       (int)pid);
	if (error)
		process_rights(proc, pid, advice, sizeof(advice));
	return error_set(error, GP_ERR_ACCESS_DENIED, "process %d may not be looked at: %s",
			 (int)pid, error ? advice : "");
}

static int by_id(const void *left, const void *right)
{
	const struct vm_vcpu *a = left, *b = right;

	return (a->id > b->id) - (a->id < b->id);
}

static gp_status_t add_vcpu(struct vm_process *process, unsigned id, int fd, struct error *error)
{
	/* A duplicate of a descriptor is the same vCPU. */
	for (unsigned i = 0; i < process->vcpu_count; i++)
		if (process->vcpus[i].id == id)
			return GP_OK;
	if (process->vcpu_count == VM_VCPUS_MAX)
		return error_set(error, GP_ERR_OUT_OF_RANGE, "process %d has more than %d vCPUs",
				 (int)process->pid, VM_VCPUS_MAX);
	process->vcpus[process->vcpu_count++] = (struct vm_vcpu){id, fd};
	return GP_OK;
}

static gp_status_t read_descriptors(struct vm_process *process, const char *proc,
				    struct error *error)
{
	gp_status_t status = GP_OK;
	char path[300], link[300];
	struct dirent *entry;
	DIR *directory;

	snprintf(path, sizeof(path), "%s/%d/fd", proc, (int)process->pid);
	directory = opendir(path);
	if (!directory)
		return denied(proc, process->pid, errno, error);
	process->vcpus = calloc(VM_VCPUS_MAX, sizeof(*process->vcpus));
	if (!process->vcpus)
		status = error_set(error, GP_ERR_NO_MEMORY, "no memory for a list of vCPUs");
	for (unsigned seen = 0; !status && seen < DESCRIPTORS_MAX; seen++) {
		uint64_t fd, id;
		ssize_t length;

		entry = readdir(directory);
		if (!entry)
			break;
		if (!proc_number(entry->d_name, INT32_MAX, &fd))
			continue;
		snprintf(path, sizeof(path), "%s/%d/fd/%d", proc, (int)process->pid, (int)fd);
		length = readlink(path, link, sizeof(link) - 1);
		/* Who owns a process may list its descriptors, and no more without the right to
		 * trace it. Others that cannot be read were closed meanwhile. */
		if (length < 0 && (errno == EACCES || errno == EPERM))
			status = denied(proc, process->pid, errno, error);
		if (length < 0)
			continue;
		link[length] = 0;
		if (!strcmp(link, "anon_inode:kvm-vm"))
			process->vms++;
		else if (!strncmp(link, vcpu_link, sizeof(vcpu_link) - 1) &&
			 proc_number(link + sizeof(vcpu_link) - 1, UINT32_MAX, &id))
			status = add_vcpu(process, (unsigned)id, (int)fd, error);
		else if (!strcmp(link, "/dev/sev") || strstr(link, "kvm-gmem"))
			/* AMD's secure processor; memory that only the guest can read. */
			process->is_protected = true;
	}
	closedir(directory);
	if (status)
		return status;
	if (!process->vms || !process->vcpu_count)
		return error_set(error, GP_ERR_NOT_FOUND,
				 "process %d runs no KVM virtual machine ('guestprof ps' lists "
				 "those that do)",
				 (int)process->pid);
	qsort(process->vcpus, process->vcpu_count, sizeof(*process->vcpus), by_id);
	return GP_OK;
}

/* The value of `name=` in an option such as "guest=web,debug-threads=on"; a comma is doubled. */
static void option_value(const char *option, const char *name, char *out, size_t size)
{
	size_t name_length = strlen(name), length = 0;

	if (strncmp(option, name, name_length) || option[name_length] != '=') {
		/* QEMU takes the first value without its name, too. */
		if (strcspn(option, "=") < strcspn(option, ","))
			return;
	} else {
		option += name_length + 1;
	}
	while (*option && length + 1 < size) {
		if (*option == ',' && *++option != ',')
			break;
		out[length++] = *option++;
	}
	out[length] = 0;
}

/* QEMU's machine types: hw/i386/pc_q35.c, pc_piix.c, microvm.c. */
static uint64_t qemu_hole_start(const char *machine)
{
	if (strstr(machine, "max-ram-below-4g="))
		return 0; /* its rules are more than a number */
	return strstr(machine, "q35") ? UINT64_C(2) << 30 : UINT64_C(3) << 30;
}

static void see_argument(struct vm_process *process, const char *option, const char *value)
{
	if (process->kind == VMM_QEMU) {
		if (!strcmp(option, "-name") || !strcmp(option, "--name"))
			option_value(value, "guest", process->name, sizeof(process->name));
		else if (!strcmp(option, "-uuid") || !strcmp(option, "--uuid"))
			snprintf(process->uuid, sizeof(process->uuid), "%s", value);
		else if (!strcmp(option, "-machine") || !strcmp(option, "--machine") ||
			 !strcmp(option, "-M"))
			process->hole_start = qemu_hole_start(value);
	} else if (process->kind == VMM_FIRECRACKER && !strcmp(option, "--id")) {
		snprintf(process->name, sizeof(process->name), "%s", value);
	}
	if (strstr(value, "sev-guest") || strstr(value, "sev-snp-guest") ||
	    strstr(value, "tdx-guest") || strstr(value, "sev_snp=on") || strstr(value, "tdx=on") ||
	    strstr(value, "confidential-guest-support="))
		process->is_protected = true;
}

/* The file name in a path; a copy, so that it fits. */
static void set_program(struct vm_process *process, const char *path)
{
	const char *name = strrchr(path, '/');

	snprintf(process->vmm, sizeof(process->vmm), "%.63s", name ? name + 1 : path);
	process->kind = kind_of(process->vmm);
}

/* Of another user's process it cannot be told. */
static void read_program(struct vm_process *process, const char *proc)
{
	static const char deleted[] = " (deleted)";
	char path[300], link[512];
	ssize_t length;

	snprintf(path, sizeof(path), "%s/%d/exe", proc, (int)process->pid);
	length = readlink(path, link, sizeof(link) - 1);
	if (length < 0)
		return;
	link[length] = 0;
	if ((size_t)length >= sizeof(deleted) &&
	    !strcmp(link + (size_t)length - sizeof(deleted) + 1, deleted))
		link[(size_t)length - sizeof(deleted) + 1] = 0;
	set_program(process, link);
}

/* False: there is none, as of a kernel thread or of a process that has ended. */
static bool read_command_line(struct vm_process *process, const char *proc)
{
	AUTO_FREE char *text = malloc(COMMAND_LINE_MAX);
	const char *previous = "";
	size_t length;

	if (!text)
		return false;
	length = proc_read(proc, process->pid, "cmdline", text, COMMAND_LINE_MAX);
	if (length && !*process->vmm)
		set_program(process, text);
	for (size_t at = 0; at < length; at += strlen(text + at) + 1) {
		see_argument(process, previous, text + at);
		previous = text + at;
	}
	return length != 0;
}

static void read_status(struct vm_process *process, const char *proc)
{
	char text[4096];
	uint64_t value;

	proc_read(proc, process->pid, "status", text, sizeof(text));
	if (proc_field(text, "Uid", 10, &value))
		process->owner = (uid_t)value;
	process->tracer = process_tracer(proc, process->pid);
}

gp_status_t vm_process_init(struct vm_process *process, const char *proc, pid_t pid,
			    struct error *error)
{
	struct vm_process made = {.pid = pid};
	gp_status_t status = read_descriptors(&made, proc, error);

	if (status) {
		vm_process_deinit(&made);
		return status;
	}
	read_program(&made, proc);
	read_command_line(&made, proc);
	read_status(&made, proc);
	*process = made;
	return GP_OK;
}

bool vm_process_identify(struct vm_process *process, const char *proc, pid_t pid)
{
	*process = (struct vm_process){.pid = pid};
	read_program(process, proc);
	if (!read_command_line(process, proc))
		return false;
	read_status(process, proc);
	return true;
}

void vm_process_deinit(struct vm_process *process)
{
	free(process->vcpus);
	process->vcpus = NULL;
	process->vcpu_count = 0;
}

/* A thread of the kernel's own: proc_pid_stat(5), flags, and include/linux/sched.h, PF_KTHREAD. Its
 * descriptors may not be looked at by everybody, but it has none. */
static bool is_kernel_thread(const char *proc, pid_t pid)
{
	char text[512];
	const char *fields;
	unsigned flags = 0;

	proc_read(proc, pid, "stat", text, sizeof(text));
	fields = proc_stat_fields(text);
	return fields && sscanf(fields, "%*c %*d %*d %*d %*d %*d %u", &flags) == 1 &&
	       flags & 0x00200000;
}

gp_status_t vm_processes(const char *proc, void (*see)(void *context, struct vm_process *process),
			 void *context, struct hidden_processes *hidden, struct error *error)
{
	DIR *directory = opendir(proc);
	struct dirent *entry;

	*hidden = (struct hidden_processes){0};
	if (!directory)
		return error_set_errno(error, errno, "cannot look at %s", proc);
	while ((entry = readdir(directory))) {
		struct vm_process process;
		gp_status_t status;
		uint64_t pid;

		if (!proc_number(entry->d_name, INT32_MAX, &pid))
			continue;
		status = vm_process_init(&process, proc, (pid_t)pid, NULL);
		if (status == GP_ERR_ACCESS_DENIED && !is_kernel_thread(proc, (pid_t)pid) &&
		    !hidden->count++)
			hidden->first = (pid_t)pid;
		if (status)
			continue;
		see(context, &process);
		vm_process_deinit(&process);
	}
	closedir(directory);
	return GP_OK;
}
