#include "attach/vm_process.h"

#include "attach/proc_file.h"
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

static gp_status_t denied(pid_t pid, int why, struct error *error)
{
	if (why == ENOENT || why == ESRCH)
		return error_set(error, GP_ERR_NOT_FOUND, "there is no process %d", (int)pid);
	return error_set_errno(
		error, why,
		"the descriptors of process %d may not be looked at: be its user, or "
		"root, or have CAP_SYS_PTRACE",
		(int)pid);
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
		return denied(process->pid, errno, error);
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
		if (length < 0)
			continue; /* closed meanwhile */
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

static void read_command_line(struct vm_process *process, const char *proc)
{
	AUTO_FREE char *text = malloc(COMMAND_LINE_MAX);
	const char *previous = "";
	size_t length;

	if (!text)
		return;
	length = proc_read(proc, process->pid, "cmdline", text, COMMAND_LINE_MAX);
	for (size_t at = 0; at < length; at += strlen(text + at) + 1) {
		see_argument(process, previous, text + at);
		previous = text + at;
	}
}

static void read_program(struct vm_process *process, const char *proc)
{
	static const char deleted[] = " (deleted)";
	char path[300], link[512], *name;
	ssize_t length;

	snprintf(path, sizeof(path), "%s/%d/exe", proc, (int)process->pid);
	length = readlink(path, link, sizeof(link) - 1);
	if (length < 0)
		return;
	link[length] = 0;
	if ((size_t)length >= sizeof(deleted) &&
	    !strcmp(link + (size_t)length - sizeof(deleted) + 1, deleted))
		link[(size_t)length - sizeof(deleted) + 1] = 0;
	name = strrchr(link, '/');
	snprintf(process->vmm, sizeof(process->vmm), "%.63s", name ? name + 1 : link);
	process->kind = kind_of(process->vmm);
}

struct tracer_search {
	const char *proc;
	pid_t pid;
	uint64_t tracer;
};

static bool see_tracer(void *context, pid_t thread)
{
	struct tracer_search *search = context;
	char file[64], text[4096];

	snprintf(file, sizeof(file), "task/%d/status", (int)thread);
	proc_read(search->proc, search->pid, file, text, sizeof(text));
	return !proc_field(text, "TracerPid", 10, &search->tracer) || !search->tracer;
}

static void read_status(struct vm_process *process, const char *proc)
{
	struct tracer_search search = {.proc = proc, .pid = process->pid};
	char text[4096];
	uint64_t value;

	proc_read(proc, process->pid, "status", text, sizeof(text));
	if (proc_field(text, "Uid", 10, &value))
		process->owner = (uid_t)value;
	/* Each thread may be traced by itself. */
	proc_each_thread(proc, process->pid, see_tracer, &search);
	process->tracer = (pid_t)search.tracer;
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

void vm_process_deinit(struct vm_process *process)
{
	free(process->vcpus);
	process->vcpus = NULL;
	process->vcpu_count = 0;
}

gp_status_t vm_processes(const char *proc, void (*see)(void *context, struct vm_process *process),
			 void *context, unsigned *hidden, struct error *error)
{
	DIR *directory = opendir(proc);
	struct dirent *entry;

	*hidden = 0;
	if (!directory)
		return error_set_errno(error, errno, "cannot look at %s", proc);
	while ((entry = readdir(directory))) {
		struct vm_process process;
		gp_status_t status;
		uint64_t pid;

		if (!proc_number(entry->d_name, INT32_MAX, &pid))
			continue;
		status = vm_process_init(&process, proc, (pid_t)pid, NULL);
		if (status == GP_ERR_ACCESS_DENIED)
			++*hidden;
		if (status)
			continue;
		see(context, &process);
		vm_process_deinit(&process);
	}
	closedir(directory);
	return GP_OK;
}

/* By name. */

struct search {
	const char *domain;
	pid_t pid;
	unsigned found;
};

static void look_at_name(void *context, struct vm_process *process)
{
	struct search *search = context;

	/* Many have no name; nobody asks for one of those. */
	if (!*search->domain ||
	    (strcmp(process->name, search->domain) && strcasecmp(process->uuid, search->domain)))
		return;
	search->pid = process->pid;
	search->found++;
}

/* libvirt's API tells no PID; the file that its QEMU driver keeps does. */
static bool read_pid_file(const char *run, const char *domain, pid_t *pid)
{
	char path[512], text[32] = "";
	AUTO_FCLOSE FILE *file = NULL;
	uint64_t number;

	if (strchr(domain, '/') || !*domain)
		return false;
	snprintf(path, sizeof(path), "%s/libvirt/qemu/%s.pid", run, domain);
	file = fopen(path, "re");
	if (!file || !fgets(text, sizeof(text), file))
		return false;
	text[strcspn(text, "\n")] = 0;
	if (!proc_number(text, INT32_MAX, &number))
		return false;
	*pid = (pid_t)number;
	return true;
}

gp_status_t vm_process_find(const char *proc, const char *run, const char *domain, pid_t *pid,
			    struct error *error)
{
	struct search search = {.domain = domain};
	gp_status_t status;
	unsigned hidden;

	/* A file of a VMM that is gone leads nowhere; then the command lines are asked. */
	if (read_pid_file(run, domain, &search.pid)) {
		struct vm_process process;

		if (!vm_process_init(&process, proc, search.pid, NULL)) {
			vm_process_deinit(&process);
			*pid = search.pid;
			return GP_OK;
		}
	}
	status = vm_processes(proc, look_at_name, &search, &hidden, error);
	if (status)
		return status;
	if (search.found > 1)
		return error_set(error, GP_ERR_ALREADY_EXISTS,
				 "%u virtual machines are called '%s'; give the PID of one "
				 "('guestprof ps' lists them)",
				 search.found, domain);
	if (!search.found)
		return error_set(error, GP_ERR_NOT_FOUND,
				 "no virtual machine is called '%s'%s; 'guestprof ps' lists them",
				 domain,
				 hidden ? " among the processes that this user may look at" : "");
	*pid = search.pid;
	return GP_OK;
}

/* Rights: ptrace(2), "Ptrace access mode checking"; Documentation/admin-guide/LSM/Yama.rst. */

#define CAPABILITY_PTRACE (UINT64_C(1) << 19) /* linux/capability.h: CAP_SYS_PTRACE */

static uint64_t yama_scope(const char *proc)
{
	char path[300], text[32] = "";
	AUTO_FCLOSE FILE *file = NULL;
	uint64_t scope = 0;

	snprintf(path, sizeof(path), "%s/sys/kernel/yama/ptrace_scope", proc);
	file = fopen(path, "re");
	if (!file || !fgets(text, sizeof(text), file))
		return 0; /* a kernel without Yama */
	text[strcspn(text, "\n")] = 0;
	proc_number(text, 3, &scope);
	return scope;
}

void vm_process_rights(const struct vm_process *process, const char *proc, char *text, size_t size)
{
	uint64_t scope = yama_scope(proc), capabilities = 0;
	char status[4096];
	bool may;

	proc_read(proc, getpid(), "status", status, sizeof(status));
	proc_field(status, "CapEff", 16, &capabilities);
	may = capabilities & CAPABILITY_PTRACE;
	if (scope >= 3)
		snprintf(text, size,
			 "kernel.yama.ptrace_scope is 3: nobody may attach to a process until the "
			 "host is booted with another value");
	else if (!may && process->owner != geteuid())
		snprintf(text, size,
			 "it is another user's (uid %u): be that user or root, or have "
			 "CAP_SYS_PTRACE",
			 (unsigned)process->owner);
	else if (!may && scope > 0)
		snprintf(text, size,
			 "kernel.yama.ptrace_scope is %u: only root or CAP_SYS_PTRACE may attach; "
			 "'sysctl kernel.yama.ptrace_scope=0' lets every user attach to own "
			 "processes",
			 (unsigned)scope);
	else if (size)
		*text = 0;
}
