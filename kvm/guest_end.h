/* How the run of a guest ends, in our own VMM or in another: the first request wins, every later
 * one is ignored. */
#ifndef KVM_GUEST_END_H
#define KVM_GUEST_END_H

#include "base/error.h"

#include <stdatomic.h>

/* The first ones are numbered as in guestprof/machine.h. */
enum guest_end {
	GUEST_RUNNING = 0,      /* no end yet */
	GUEST_POWERED_OFF = 1,  /* ACPI sleep state 5 */
	GUEST_RESET = 2,        /* it reset itself; of another VMM: it starts anew */
	GUEST_TRIPLE_FAULT = 3, /* KVM_EXIT_SHUTDOWN */
	GUEST_TEXT_SEEN = 4,    /* --until appeared on the console */
	GUEST_DURATION = 5,     /* --duration is over */
	GUEST_SIGNALLED = 6,    /* SIGINT, SIGTERM, SIGHUP */
	GUEST_USER_QUIT = 7,    /* Ctrl-A x */
	GUEST_TIMED_OUT,        /* --timeout is over */
	GUEST_ERROR,            /* KVM could not go on; an error text goes with it */
	GUEST_VMM_EXITED,       /* another's VMM, by itself, or the kernel does not tell */
	GUEST_VMM_KILLED,       /* another's VMM, by a signal */
};

/* Where an end is requested and waited for. */
struct guest_end_event {
	_Atomic int end; /* enum guest_end */
	int fd;          /* eventfd: readable once an end was requested; -1: none */
};

gp_status_t guest_end_init(struct guest_end_event *event, struct error *error);
void guest_end_deinit(struct guest_end_event *event);

/* Any thread, also a signal handler; returns at once. */
void guest_end_request(struct guest_end_event *event, enum guest_end end);

/* GUEST_RUNNING: no end was requested yet. */
static inline enum guest_end guest_end_of(const struct guest_end_event *event)
{
	return (enum guest_end)atomic_load(&event->end);
}

/* "powered off", "reset", ...: for people. Static storage. */
const char *guest_end_string(enum guest_end end);

#endif
