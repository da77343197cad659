/* From what a user calls a virtual machine to the process that runs it.
 *
 * A number is a PID, if a virtual machine has that. Else libvirt is asked (attach/libvirt.h), and
 * the command lines and PID files of this host's VMMs are searched, whatever it answers: libvirt
 * knows a domain's state and ID but no PID, and many machines are none of libvirt's.
 */
#ifndef ATTACH_DOMAIN_H
#define ATTACH_DOMAIN_H

#include "base/error.h"

#include <sys/types.h>

struct domain_places {
	const char *proc;        /* "/proc" */
	const char *run;         /* "/run": libvirt's PID files of the system's domains */
	const char *user_run;    /* $XDG_RUNTIME_DIR: those of this user's; may be NULL */
	const char *const *uris; /* libvirt's connections; none: it is not asked */
	unsigned uri_count;
};

/* This host's. `uris` is where its URIs are kept: LIBVIRT_CONNECTIONS_MAX of them. */
struct domain_places domain_places_here(const char **uris);

/* The process of `machine`: a PID, or a domain's name, UUID or libvirt ID. Errors are for people:
 * GP_ERR_NOT_FOUND: there is none, or it is shut off; GP_ERR_BAD_STATE: it is paused;
 * GP_ERR_ALREADY_EXISTS: several are called so; GP_ERR_ACCESS_DENIED: its process may not be looked
 * at; GP_ERR_NOT_SUPPORTED: it runs without KVM. No other thread may run. */
gp_status_t domain_find(const struct domain_places *places, const char *machine, pid_t *pid,
			struct error *error);

#endif
