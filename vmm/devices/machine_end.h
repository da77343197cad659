/* How a machine's life ends. Devices and vCPU threads request an end; the first request
 * wins and every later one is ignored. */
#ifndef VMM_DEVICES_MACHINE_END_H
#define VMM_DEVICES_MACHINE_END_H

enum machine_end {
	MACHINE_RUNNING,      /* no end yet */
	MACHINE_POWERED_OFF,  /* ACPI sleep state 5 */
	MACHINE_RESET,        /* the guest reset itself: ACPI, i8042, port 0xcf9 */
	MACHINE_TRIPLE_FAULT, /* KVM_EXIT_SHUTDOWN */
	MACHINE_TEXT_SEEN,    /* --until appeared on the console */
	MACHINE_DURATION,     /* --duration is over */
	MACHINE_TIMED_OUT,    /* --timeout is over */
	MACHINE_USER_QUIT,    /* Ctrl-A x */
	MACHINE_SIGNALLED,    /* SIGINT, SIGTERM, SIGHUP */
	MACHINE_ERROR,        /* KVM could not go on; an error text goes with it */
};

/* Where a device asks for the end. Any thread, more than once, returns at once. */
struct machine_end_request {
	void (*request)(void *context, enum machine_end end);
	void *context;
};

static inline void machine_end_request(const struct machine_end_request *to, enum machine_end end)
{
	to->request(to->context, end);
}

#endif
