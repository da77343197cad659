/* A virtual machine: RAM, vCPUs, interrupt controller, devices; from a kernel file to its end.
 *
 * Life: machine_create() opens and checks everything the user named, then builds the VM.
 * machine_start() starts the threads, which wait. The caller may now start sampling.
 * machine_run() opens the gate and returns when the machine has ended. machine_destroy().
 *
 * Threads: one per vCPU, one for devices (event loop). The functions here are for one
 * thread, except where they say otherwise.
 */
#ifndef VMM_MACHINE_H
#define VMM_MACHINE_H

#include "base/error.h"
#include "kvm/guest_end.h"
#include "vmm/machine_config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct machine;
struct sampler_target;

/* What machine_run() waits for besides the guest. 0: none. */
struct machine_limits {
	uint64_t duration_ns; /* from the first instruction: GUEST_DURATION; 0: none */
	uint64_t timeout_ns;  /* from the first instruction: GUEST_TIMED_OUT; 0: none */
	/* Optional: called every `watch_ns` by the thread that waits. */
	void (*watch)(void *context);
	void *watch_context;
	uint64_t watch_ns;
};

/* Whose doing it is that a machine could not be made. */
enum machine_fault {
	MACHINE_FAULT_INPUT, /* a file or a setting of the configuration */
	MACHINE_FAULT_HOST,  /* this host: no KVM, no right to use it, a capability it lacks */
};

/* Errors name the file or the setting and what to do. Nothing is left behind on failure. `fault`
 * (may be NULL) is set on failure only. */
gp_status_t machine_create(const struct machine_config *config, struct machine **out,
			   enum machine_fault *fault, struct error *error);

/* NULL is ignored. Stops what still runs. */
void machine_destroy(struct machine *machine);

/* Starts the threads; the vCPUs wait before their first instruction. */
gp_status_t machine_start(struct machine *machine, struct error *error);

/* Lets the vCPUs go and waits for the end; all vCPU threads have ended afterwards, the
 * guest's memory is still there. For GUEST_ERROR `error` says what happened. */
enum guest_end machine_run(struct machine *machine, const struct machine_limits *limits,
			   struct error *error);

/* Any thread, also a signal handler: the first request wins. */
void machine_request_end(struct machine *machine, enum guest_end end);

/* What a sampler session is opened on. Valid until machine_destroy(). */
struct sampler_target *machine_target(struct machine *machine);

/* The guest-physical range that the kernel file was loaded to, with the room it unpacks in;
 * what runs there before paging is set up is the kernel's own startup code. */
void machine_kernel_range(const struct machine *machine, uint64_t *start, uint64_t *end);

/* Console output lost to a slow reader, bytes. */
uint64_t machine_console_dropped(const struct machine *machine);

#endif
