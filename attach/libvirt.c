#include "attach/libvirt.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef GUESTPROF_LIBVIRT
#include "base/library.h"

#include <libvirt/libvirt.h>
#include <libvirt/virterror.h>
#endif

const char *libvirt_state_name(enum libvirt_state state)
{
	static const char *const names[] = {
		[LIBVIRT_RUNS] = "running",
		[LIBVIRT_PAUSED] = "paused",
		[LIBVIRT_SUSPENDED] = "suspended by its guest",
		[LIBVIRT_CRASHED] = "crashed",
		[LIBVIRT_SHUT_OFF] = "shut off",
	};

	return (unsigned)state < ARRAY_SIZE(names) ? names[state] : "unknown";
}

unsigned libvirt_uris(const char *uris[LIBVIRT_CONNECTIONS_MAX])
{
	const char *chosen = getenv("LIBVIRT_DEFAULT_URI");

	uris[0] = chosen && *chosen ? chosen : "qemu:///system";
	uris[1] = "qemu:///session";
	return chosen && *chosen ? 1 : 2;
}

bool libvirt_uri_is_remote(const char *uri)
{
	static const char *const here[] = {"", "localhost", "127.0.0.1", "[::1]"};
	const char *host = strstr(uri, "://"), *user;
	size_t length;

	if (!host)
		return false; /* an alias of libvirt's configuration: asked again when it is known
			       */
	host += 3;
	user = memchr(host, '@', strcspn(host, "/?"));
	if (user)
		host = user + 1;
	length = strcspn(host, *host == '[' ? "/?" : ":/?");
	if (*host == '[' && memchr(host, ']', length))
		length = strcspn(host, "]") + 1;
	for (size_t i = 0; i < ARRAY_SIZE(here); i++)
		if (length == strlen(here[i]) && !strncmp(host, here[i], length))
			return false;
	return true;
}

/* What the asking process sends back. */
struct reply {
	gp_status_t status;
	struct error error;
	struct libvirt_answer answer;
};

#ifdef GUESTPROF_LIBVIRT

/* What is used of libvirt. */
struct libvirt {
	struct library library;
	typeof(virSetErrorFunc) *set_error_function;
	typeof(virGetLastErrorMessage) *last_message;
	typeof(virConnectOpenReadOnly) *open;
	typeof(virConnectClose) *close;
	typeof(virConnectGetType) *type;
	typeof(virConnectGetURI) *uri;
	typeof(virDomainLookupByUUIDString) *by_uuid;
	typeof(virDomainLookupByName) *by_name;
	typeof(virDomainLookupByID) *by_id;
	typeof(virDomainGetName) *name;
	typeof(virDomainGetUUIDString) *uuid;
	typeof(virDomainGetID) *id;
	typeof(virDomainGetState) *state;
	typeof(virDomainFree) *free_domain;
};

static gp_status_t libvirt_load(struct libvirt *self, struct error *error)
{
	const struct library_symbol symbols[] = {
		{"virSetErrorFunc", &self->set_error_function},
		{"virGetLastErrorMessage", &self->last_message},
		{"virConnectOpenReadOnly", &self->open},
		{"virConnectClose", &self->close},
		{"virConnectGetType", &self->type},
		{"virConnectGetURI", &self->uri},
		{"virDomainLookupByUUIDString", &self->by_uuid},
		{"virDomainLookupByName", &self->by_name},
		{"virDomainLookupByID", &self->by_id},
		{"virDomainGetName", &self->name},
		{"virDomainGetUUIDString", &self->uuid},
		{"virDomainGetID", &self->id},
		{"virDomainGetState", &self->state},
		{"virDomainFree", &self->free_domain},
	};

	return library_load(&self->library, "libvirt.so.0", "libvirt0", symbols,
			    ARRAY_SIZE(symbols), error);
}

/* Its own way is to print them. */
static void keep_error(void *context, virErrorPtr error)
{
	(void)context;
	(void)error;
}

static enum libvirt_state state_of(int state)
{
	switch (state) {
	case VIR_DOMAIN_PAUSED:
		return LIBVIRT_PAUSED;
	case VIR_DOMAIN_PMSUSPENDED:
		return LIBVIRT_SUSPENDED;
	case VIR_DOMAIN_CRASHED:
		return LIBVIRT_CRASHED;
	case VIR_DOMAIN_SHUTOFF:
		return LIBVIRT_SHUT_OFF;
	default: /* also blocked, shutting down, and what a hypervisor does not tell */
		return LIBVIRT_RUNS;
	}
}

static virDomainPtr look_up(const struct libvirt *self, virConnectPtr connection, const char *text)
{
	virDomainPtr domain = self->by_uuid(connection, text);
	char *end;
	long id;

	if (!domain)
		domain = self->by_name(connection, text);
	if (domain || *text < '0' || *text > '9')
		return domain;
	errno = 0;
	id = strtol(text, &end, 10);
	return errno || *end || id > INT32_MAX ? NULL : self->by_id(connection, (int)id);
}

static void note_domain(const struct libvirt *self, virConnectPtr connection, virDomainPtr domain,
			const char *uri, struct libvirt_answer *answer)
{
	struct libvirt_domain *out = &answer->domains[answer->count++];
	const char *driver = self->type(connection), *name = self->name(domain);
	int state = VIR_DOMAIN_NOSTATE;
	char uuid[VIR_UUID_STRING_BUFLEN] = "";

	self->uuid(domain, uuid);
	self->state(domain, &state, NULL, 0);
	out->id = (int)self->id(domain); /* (unsigned)-1: shut off */
	out->state = state_of(state);
	snprintf(out->uri, sizeof(out->uri), "%s", uri);
	snprintf(out->driver, sizeof(out->driver), "%s", driver ? driver : "unknown");
	snprintf(out->name, sizeof(out->name), "%s", name ? name : "");
	snprintf(out->uuid, sizeof(out->uuid), "%s", uuid);
}

static void note_unreachable(struct libvirt_answer *answer, const char *uri, const char *why)
{
	if (!*answer->unreachable)
		snprintf(answer->unreachable, sizeof(answer->unreachable), "%.100s: %s", uri, why);
}

static const char another_host[] = "it leads to another host, whose processes are not here; run "
				   "guestprof there";

static void ask_one(const struct libvirt *self, const char *uri, const char *text,
		    struct libvirt_answer *answer)
{
	virConnectPtr connection;
	virDomainPtr domain;
	char *real;

	if (libvirt_uri_is_remote(uri)) {
		note_unreachable(answer, uri, another_host);
		return;
	}
	connection = self->open(uri);
	if (!connection) {
		note_unreachable(answer, uri, self->last_message());
		return;
	}
	real = self->uri(connection);
	if (real && libvirt_uri_is_remote(real)) {
		note_unreachable(answer, real, another_host);
	} else {
		answer->connections++;
		domain = look_up(self, connection, text);
		if (domain) {
			note_domain(self, connection, domain, real ? real : uri, answer);
			self->free_domain(domain);
		}
	}
	free(real);
	self->close(connection);
}

static void libvirt_ask_all(const char *const *uris, unsigned count, const char *domain,
			    struct reply *reply)
{
	struct libvirt libvirt = {0};

	reply->status = libvirt_load(&libvirt, &reply->error);
	if (reply->status)
		return;
	libvirt.set_error_function(NULL, keep_error);
	/* Looking for a domain must not start a daemon. */
	setenv("LIBVIRT_AUTOSTART", "0", 1);
	for (unsigned i = 0; i < count && i < LIBVIRT_CONNECTIONS_MAX; i++)
		ask_one(&libvirt, uris[i], domain, &reply->answer);
	library_unload(&libvirt.library);
}

#else

static void libvirt_ask_all(const char *const *uris, unsigned count, const char *domain,
			    struct reply *reply)
{
	(void)uris;
	(void)count;
	(void)domain;
	reply->status = error_set(&reply->error, GP_ERR_NOT_SUPPORTED,
				  "this guestprof was built without libvirt");
}

#endif

/* The process that asks. A session of its own has no terminal, on which something that libvirt
 * starts could ask for a password. */
static void answer_into(int fd, const char *const *uris, unsigned count, const char *domain)
{
	static struct reply reply;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setsid();
	libvirt_ask_all(uris, count, domain, &reply);
	_exit(!io_write(fd, &reply, sizeof(reply)));
}

static gp_status_t receive(int fd, struct reply *reply, struct error *error)
{
	const uint64_t end = monotonic_ns() + LIBVIRT_SECONDS * NS_PER_SECOND;
	struct pollfd input = {.fd = fd, .events = POLLIN};
	char *at = (char *)reply;
	size_t left = sizeof(*reply);

	while (left) {
		ssize_t got;
		int ready = poll(&input, 1, milliseconds_until(end));

		if (!ready)
			return error_set(error, GP_ERR_TIMED_OUT,
					 "libvirt does not answer within %d seconds",
					 LIBVIRT_SECONDS);
		got = ready < 0 ? -1 : read(fd, at, left);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return error_set(error, GP_ERR_INTERNAL,
					 "the process that asks libvirt has failed");
		at += got;
		left -= (size_t)got;
	}
	return GP_OK;
}

gp_status_t libvirt_ask(const char *const *uris, unsigned count, const char *domain,
			struct libvirt_answer *answer, struct error *error)
{
	struct reply reply = {0};
	gp_status_t status;
	int ends[2];
	pid_t child;

	*answer = (struct libvirt_answer){0};
	if (pipe2(ends, O_CLOEXEC))
		return error_set_errno(error, errno, "cannot make a pipe");
	child = fork();
	if (child < 0) {
		close(ends[0]);
		close(ends[1]);
		return error_set_errno(error, errno, "cannot make a process that asks libvirt");
	}
	if (!child) {
		close(ends[0]);
		answer_into(ends[1], uris, count, domain);
	}
	close(ends[1]);
	status = receive(ends[0], &reply, error);
	close(ends[0]);
	kill(child, SIGKILL); /* one that has answered is at its end anyway */
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	if (status)
		return status;
	if (reply.status)
		return error_set(error, reply.status, "%s", reply.error.text);
	*answer = reply.answer;
	return GP_OK;
}
