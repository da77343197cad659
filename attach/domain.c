#include "attach/domain.h"

#include "attach/libvirt.h"
#include "attach/proc_file.h"
#include "attach/process_rights.h"
#include "attach/vm_process.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More are not told by PID. */
#define CANDIDATES_MAX 8

struct candidate {
	pid_t pid;
	char uuid[64];
	bool denied; /* its descriptors may not be looked at */
	bool no_kvm; /* it has no virtual machine of KVM's */
};

struct search {
	const struct domain_places *places;
	const char *machine;
	struct libvirt_answer libvirt;
	struct error not_asked; /* why libvirt was not */
	unsigned found;         /* may be more than there are candidates */
	struct candidate candidates[CANDIDATES_MAX];
};

struct domain_places domain_places_here(const char **uris)
{
	return (struct domain_places){
		.proc = "/proc",
		.run = "/run",
		.user_run = getenv("XDG_RUNTIME_DIR"),
		.uris = uris,
		.uri_count = libvirt_uris(uris),
	};
}

/* What is searched for. */

/* libvirt may have found it by its ID, which is on no command line. */
static bool is_of_libvirt(const struct libvirt_domain *domain, const struct vm_process *process)
{
	return domain->state != LIBVIRT_SHUT_OFF && !strcasecmp(domain->uuid, process->uuid);
}

static bool is_searched(const struct search *search, const struct vm_process *process)
{
	/* Many have neither name nor UUID; nobody asks for one of those. */
	if (*search->machine && (!strcmp(process->name, search->machine) ||
				 !strcasecmp(process->uuid, search->machine)))
		return true;
	for (unsigned i = 0; i < search->libvirt.count; i++)
		if (*process->uuid && is_of_libvirt(&search->libvirt.domains[i], process))
			return true;
	return false;
}

static void add(struct search *search, const struct vm_process *process, gp_status_t why)
{
	struct candidate *candidate;

	for (unsigned i = 0; i < search->found && i < CANDIDATES_MAX; i++)
		if (search->candidates[i].pid == process->pid)
			return;
	if (search->found++ >= CANDIDATES_MAX)
		return;
	candidate = &search->candidates[search->found - 1];
	candidate->pid = process->pid;
	candidate->denied = why == GP_ERR_ACCESS_DENIED;
	candidate->no_kvm = why == GP_ERR_NOT_FOUND;
	snprintf(candidate->uuid, sizeof(candidate->uuid), "%s", process->uuid);
}

/* The status of a look at its virtual machine. */
static gp_status_t look_at_machine(const struct search *search, pid_t pid)
{
	struct vm_process process;
	gp_status_t status = vm_process_init(&process, search->places->proc, pid, NULL);

	if (!status)
		vm_process_deinit(&process);
	return status;
}

/* Everybody may read command lines, so that also a machine of another user's is found by name. */
static gp_status_t search_command_lines(struct search *search, struct error *error)
{
	DIR *directory = opendir(search->places->proc);
	struct dirent *entry;

	if (!directory)
		return error_set_errno(error, errno, "cannot look at %s", search->places->proc);
	while ((entry = readdir(directory))) {
		struct vm_process process;
		uint64_t pid;

		if (proc_number(entry->d_name, INT32_MAX, &pid) &&
		    vm_process_identify(&process, search->places->proc, (pid_t)pid) &&
		    is_searched(search, &process))
			add(search, &process, look_at_machine(search, process.pid));
	}
	closedir(directory);
	return GP_OK;
}

/* libvirt's API tells no PID; the file that its QEMU driver keeps does. It may be of a VMM that is
 * gone, and the PID another process's by now: one whose command line has another name or UUID is
 * not believed. */
static void search_pid_file(struct search *search, const char *directory, const char *within,
			    const char *name)
{
	char path[512];
	struct vm_process process;
	gp_status_t status;
	uint64_t number;

	if (!directory || strchr(name, '/') || !*name)
		return;
	snprintf(path, sizeof(path), "%s/libvirt/qemu/%s%.250s.pid", directory, within, name);
	if (!proc_file_number(path, INT32_MAX, &number) ||
	    !vm_process_identify(&process, search->places->proc, (pid_t)number) || *process.name ||
	    *process.uuid)
		return;
	/* libvirtd has such a file, too, "driver". */
	status = look_at_machine(search, process.pid);
	if (!status || (status == GP_ERR_ACCESS_DENIED && process.kind == VMM_QEMU))
		add(search, &process, status);
}

static void search_pid_files(struct search *search)
{
	const struct domain_places *places = search->places;

	search_pid_file(search, places->run, "", search->machine);
	search_pid_file(search, places->user_run, "run/", search->machine);
	for (unsigned i = 0; i < search->libvirt.count; i++) {
		search_pid_file(search, places->run, "", search->libvirt.domains[i].name);
		search_pid_file(search, places->user_run, "run/", search->libvirt.domains[i].name);
	}
}

/* What came of it. */

static gp_status_t several(const struct search *search, struct error *error)
{
	char pids[128] = "";

	for (unsigned i = 0; i < search->found && i < CANDIDATES_MAX; i++) {
		size_t used = strlen(pids);

		snprintf(pids + used, sizeof(pids) - used, "%s%d", i ? ", " : "",
			 (int)search->candidates[i].pid);
	}
	return error_set(
		error, GP_ERR_ALREADY_EXISTS,
		"%u virtual machines are called '%s'; give the PID of one: %s%s ('guestprof "
		"ps' lists them)",
		search->found, search->machine, pids,
		search->found > CANDIDATES_MAX ? ", ..." : "");
}

static gp_status_t not_now(const struct libvirt_domain *domain, struct error *error)
{
	return error_set(error, GP_ERR_BAD_STATE,
			 "domain '%s' is %s (%s): attach when it runs, as after 'virsh %s %s'",
			 domain->name, libvirt_state_name(domain->state), domain->uri,
			 domain->state == LIBVIRT_PAUSED      ? "resume"
			 : domain->state == LIBVIRT_SUSPENDED ? "dompmwakeup"
							      : "reset",
			 domain->name);
}

static gp_status_t domain_take(const struct search *search, pid_t *pid, struct error *error)
{
	const struct candidate *candidate = &search->candidates[0];
	char advice[256];

	for (unsigned i = 0; i < search->libvirt.count; i++) {
		const struct libvirt_domain *domain = &search->libvirt.domains[i];

		if (domain->state != LIBVIRT_RUNS && domain->state != LIBVIRT_SHUT_OFF &&
		    !strcasecmp(domain->uuid, candidate->uuid))
			return not_now(domain, error);
	}
	if (candidate->denied) {
		process_rights(search->places->proc, candidate->pid, advice, sizeof(advice));
		return error_set(error, GP_ERR_ACCESS_DENIED,
				 "'%s' is process %d, which may not be looked at: %s",
				 search->machine, (int)candidate->pid, advice);
	}
	if (candidate->no_kvm)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "'%s' is process %d, which runs it without KVM (by emulation): "
				 "there are no vCPUs of KVM's to sample",
				 search->machine, (int)candidate->pid);
	*pid = candidate->pid;
	return GP_OK;
}

static gp_status_t no_process(const struct search *search, struct error *error)
{
	const struct libvirt_answer *libvirt = &search->libvirt;

	for (unsigned i = 0; i < libvirt->count; i++) {
		const struct libvirt_domain *domain = &libvirt->domains[i];

		if (domain->state == LIBVIRT_SHUT_OFF)
			continue;
		if (strcmp(domain->driver, "QEMU"))
			return error_set(error, GP_ERR_NOT_SUPPORTED,
					 "domain '%s' is of libvirt's driver %s (%s): only QEMU's "
					 "run by KVM",
					 domain->name, domain->driver, domain->uri);
		return error_set(error, GP_ERR_NOT_FOUND,
				 "libvirt has domain '%s' %s (%s), but no process with its UUID %s "
				 "is to be seen here: guestprof has to run in the host's PID "
				 "namespace, as root",
				 domain->name, libvirt_state_name(domain->state), domain->uri,
				 domain->uuid);
	}
	if (libvirt->count)
		return error_set(error, GP_ERR_NOT_FOUND,
				 "domain '%s' is shut off (%s): 'virsh start %s' starts it",
				 libvirt->domains[0].name, libvirt->domains[0].uri,
				 libvirt->domains[0].name);
	if (search->not_asked.status || (!libvirt->connections && *libvirt->unreachable))
		return error_set(error, GP_ERR_NOT_FOUND,
				 "no virtual machine is called '%s' (libvirt %s: %s); 'guestprof "
				 "ps' lists them",
				 search->machine,
				 search->not_asked.status ? "was not asked" : "does not answer",
				 search->not_asked.status ? search->not_asked.text
							  : libvirt->unreachable);
	return error_set(error, GP_ERR_NOT_FOUND,
			 "no virtual machine is called '%s'; 'guestprof ps' and 'virsh list' list "
			 "them",
			 search->machine);
}

static gp_status_t find(struct search *search, pid_t *pid, struct error *error)
{
	gp_status_t status = GP_OK;

	if (search->places->uri_count && *search->machine)
		libvirt_ask(search->places->uris, search->places->uri_count, search->machine,
			    &search->libvirt, &search->not_asked);
	status = search_command_lines(search, error);
	if (status)
		return status;
	if (!search->found)
		search_pid_files(search);
	if (search->found > 1)
		return several(search, error);
	return search->found ? domain_take(search, pid, error) : no_process(search, error);
}

gp_status_t domain_find(const struct domain_places *places, const char *machine, pid_t *pid,
			struct error *error)
{
	struct search search = {.places = places, .machine = machine};
	struct error no_machine = {0};
	struct vm_process process;
	uint64_t number;
	gp_status_t status;

	if (!proc_number(machine, INT32_MAX, &number))
		return find(&search, pid, error);
	status = vm_process_init(&process, places->proc, (pid_t)number, &no_machine);
	if (!status)
		vm_process_deinit(&process);
	/* Of another user's processes those that look like a VMM are meant. */
	if (!status || (status == GP_ERR_ACCESS_DENIED &&
			vm_process_identify(&process, places->proc, (pid_t)number) &&
			process.kind != VMM_UNKNOWN)) {
		if (!status)
			*pid = (pid_t)number;
		return status ? error_set(error, status, "%s", no_machine.text) : GP_OK;
	}
	/* Unless libvirt knows the number, who gave it is told what is wrong with that process. */
	status = find(&search, pid, error);
	if (status && !search.found && !search.libvirt.count)
		return error_set(error, no_machine.status, "%s", no_machine.text);
	return status;
}
