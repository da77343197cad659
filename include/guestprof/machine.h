/* Boots a guest to sample, under guestprof's own virtual machine monitor.
 *
 *     gp_machine_config_t config;
 *     gp_machine_config_init(&config);
 *     config.kernel = "vmlinuz";
 *     gp_machine_create(&config, &machine, text, sizeof(text));
 *     gp_machine_start(machine, text, sizeof(text));
 *     gp_sampler_create(gp_machine_target(machine), ...); gp_sampler_start(...);
 *     gp_machine_run(machine, 0, &end, text, sizeof(text));     until the guest ends
 *     gp_sampler_stop(...); gp_sampler_read(...); gp_sampler_close(...);
 *     gp_machine_destroy(machine);
 *
 * Sampling that starts before gp_machine_run() sees the guest's first instruction. It may also
 * start later, from another thread.
 *
 * Threads: gp_machine_start() makes one per vCPU and one for devices. Call the functions from one
 * thread at a time, except where they say otherwise. Signals: a vCPU's thread takes SIGRTMIN+2
 * (a tick) and SIGUSR1 (its end). Their handlers are the library's: the program must not use them.
 *
 * Errors: a function with `error_text` that fails writes one line for a person into it, cut to
 * `error_size` bytes including the zero; on success the text is untouched. It may be NULL with 0.
 */
#ifndef GUESTPROF_MACHINE_H
#define GUESTPROF_MACHINE_H

#include <guestprof/sampler.h>
#include <guestprof/status.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gp_machine gp_machine_t;

/* The machine's threads give up their capabilities and, by seccomp(2), all system calls that they
 * do not need. For that, gp_machine_start() sets no_new_privs for its calling thread, and for the
 * process a handler of SIGSYS and no core dumps, for good. A thread of the machine that makes
 * another call ends the process with exit code 86. The program's own threads are not confined. */
#define GP_MACHINE_SANDBOX (UINT32_C(1) << 0)

typedef struct gp_machine_disk {
	const char *path;   /* a raw image or a block device */
	uint32_t read_only; /* 0 or 1 */
} gp_machine_disk_t;

/* gp_machine_create() reads everything that it points to. Only the descriptors and
 * `console_line_context` are used afterwards. */
typedef struct gp_machine_config {
	size_t size;        /* sizeof(gp_machine_config_t): later versions add fields */
	const char *kernel; /* a bzImage, an ELF file with a PVH note, or Multiboot (version 1) */
	const char *initrd; /* NULL: none */
	const char *command_line; /* for the kernel, passed on unchanged; NULL: empty */
	uint64_t memory_bytes;    /* a multiple of 4 KiB from 1 MiB */
	uint32_t vcpus;           /* 1..64, or fewer where KVM allows fewer */
	uint32_t flags;           /* GP_MACHINE_SANDBOX or 0 */
	const gp_machine_disk_t *disks;
	size_t disk_count; /* up to 15 */
	/* The guest's serial console; -1: none. The caller keeps them open until
	 * gp_machine_destroy(). An input terminal is in raw mode until then. */
	int console_input_fd;
	int console_output_fd;
	/* A text on the console that ends the machine, 1..1024 bytes; NULL: none. */
	const char *until;
	/* Called with each line of the console, as `size` bytes from the guest, which may be
	 * anything; NULL: not called. `boot_ns` is the CLOCK_BOOTTIME of the first byte. A last
	 * line without its end comes from gp_machine_run(). Runs on a thread of the machine: it
	 * should be quick, and may call nothing here but gp_machine_request_end(). */
	void (*console_line)(void *context, uint64_t boot_ns, const char *text, size_t size);
	void *console_line_context;
	const char *kvm_path; /* NULL: /dev/kvm */
} gp_machine_config_t;

/* Why a machine ended. */
typedef enum gp_machine_end {
	GP_MACHINE_END_POWERED_OFF = 1,
	GP_MACHINE_END_RESET = 2,        /* the guest reset itself */
	GP_MACHINE_END_TRIPLE_FAULT = 3, /* it crashed its CPU */
	GP_MACHINE_END_TEXT_SEEN = 4,    /* `until` appeared */
	GP_MACHINE_END_TIME_OVER = 5,    /* the limit given to gp_machine_run() */
	GP_MACHINE_END_REQUESTED = 6,    /* gp_machine_request_end() */
	GP_MACHINE_END_USER_QUIT = 7,    /* Ctrl-A x on the console */
} gp_machine_end_t;

/* Fills in `size`, one vCPU, 512 MiB, no console; all else is 0. */
static inline void gp_machine_config_init(gp_machine_config_t *config)
{
	memset(config, 0, sizeof(*config));
	config->size = sizeof(*config);
	config->memory_bytes = UINT64_C(512) << 20;
	config->vcpus = 1;
	config->console_input_fd = -1;
	config->console_output_fd = -1;
}

/* Opens and checks every file named and builds the machine; it does not run yet. `*out` is set on
 * GP_OK only; nothing is left behind otherwise.
 * GP_ERR_INVALID_ARGS: the configuration; a file that is not what it should be.
 * GP_ERR_NOT_FOUND, GP_ERR_ACCESS_DENIED, GP_ERR_UNAVAILABLE: a file or /dev/kvm is not there, may
 * not be opened, is locked by somebody. GP_ERR_NOT_SUPPORTED: this host cannot do that (no KVM; the
 * sandbox in a build with sanitizers). GP_ERR_NO_MEMORY, GP_ERR_NO_RESOURCES, and others that the
 * system gives. */
GP_EXPORT gp_status_t gp_machine_create(const gp_machine_config_t *config, gp_machine_t **out,
					char *error_text, size_t error_size);

/* Starts the machine's threads; the vCPUs wait before their first instruction. Once.
 * GP_ERR_BAD_STATE: was called before, also when that failed: the machine can only be destroyed.
 * GP_ERR_NO_RESOURCES and the like: no threads, no sandbox. */
GP_EXPORT gp_status_t gp_machine_start(gp_machine_t *machine, char *error_text, size_t error_size);

/* Lets the guest go and waits for its end, whose reason is `*end`, set on GP_OK only; at most
 * `limit_ns` nanoseconds (0: without limit), then ends it. Afterwards the vCPUs have ended;
 * sessions on the machine can still be read and stopped. Once. GP_ERR_BAD_STATE: not started, or
 * run before. Any other status: KVM could not go on; the text says where. */
GP_EXPORT gp_status_t gp_machine_run(gp_machine_t *machine, uint64_t limit_ns,
				     gp_machine_end_t *end, char *error_text, size_t error_size);

/* Asks for the end; gp_machine_run() returns soon, also when it is called later. The first reason
 * wins. Any thread, also a signal handler, between gp_machine_create() and gp_machine_destroy(). */
GP_EXPORT void gp_machine_request_end(gp_machine_t *machine);

/* What sessions are opened on; never NULL, valid until gp_machine_destroy(). Any thread. */
GP_EXPORT gp_target_t *gp_machine_target(gp_machine_t *machine);

/* "powered off", "reset", ...: for people, static storage. Any thread. */
GP_EXPORT const char *gp_machine_end_string(gp_machine_end_t end);

/* Stops what still runs and frees everything. All sessions must have been closed. NULL is ignored.
 */
GP_EXPORT void gp_machine_destroy(gp_machine_t *machine);

#ifdef __cplusplus
}
#endif

#endif
