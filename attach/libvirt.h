/* What libvirt knows of a domain, asked through its API, read-only.
 *
 * The API does not tell the PID; attach/domain.h finds that. libvirt is an optional library: known
 * when this was built (GUESTPROF_LIBVIRT), loaded when it is asked. It is asked by a process of its
 * own, so that nothing of it stays in the one that samples, and a daemon that hangs costs
 * LIBVIRT_SECONDS and not more.
 */
#ifndef ATTACH_LIBVIRT_H
#define ATTACH_LIBVIRT_H

#include "base/error.h"

#include <stdbool.h>

/* At most so many connections are asked: one domain of each. */
#define LIBVIRT_CONNECTIONS_MAX 2
#define LIBVIRT_SECONDS 10

enum libvirt_state {
	LIBVIRT_RUNS, /* also while it shuts down */
	LIBVIRT_PAUSED,
	LIBVIRT_SUSPENDED, /* to memory, by its guest */
	LIBVIRT_CRASHED,   /* its guest panicked; its VMM may still be there */
	LIBVIRT_SHUT_OFF,
};

struct libvirt_domain {
	char uri[128];
	char driver[32]; /* "QEMU", "LXC", ... */
	char name[256];
	char uuid[64];
	int id; /* -1: shut off */
	enum libvirt_state state;
};

struct libvirt_answer {
	unsigned connections; /* that answered */
	unsigned count;
	struct libvirt_domain domains[LIBVIRT_CONNECTIONS_MAX];
	char unreachable[384]; /* why the first one that did not answer did not; empty: all did */
};

/* Where to ask: `uris` gets at most LIBVIRT_CONNECTIONS_MAX, the user's choice
 * (LIBVIRT_DEFAULT_URI), else this host's system and this user's session. Returns their number. */
unsigned libvirt_uris(const char *uris[LIBVIRT_CONNECTIONS_MAX]);

/* Looks for a domain of that UUID, name or ID, in this order, with each of `uris`. None found is no
 * failure, and neither is a daemon that does not answer. GP_ERR_NOT_SUPPORTED: built without
 * libvirt, or it is not installed; GP_ERR_TIMED_OUT; GP_ERR_NO_RESOURCES: no process can be made.
 * No other thread may run. */
gp_status_t libvirt_ask(const char *const *uris, unsigned count, const char *domain,
			struct libvirt_answer *answer, struct error *error);

/* The URI leads to another host, whose processes are not here. */
bool libvirt_uri_is_remote(const char *uri);

/* "paused", ...: for people. Static storage. */
const char *libvirt_state_name(enum libvirt_state state);

#endif
