/* What a machine is made of, as its user says. */
#ifndef VMM_MACHINE_CONFIG_H
#define VMM_MACHINE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MACHINE_VCPUS_MAX 64
#define MACHINE_DISKS_MAX 15
#define MACHINE_MEMORY_MIN (UINT64_C(1) << 20)

struct machine_disk {
	const char *path;
	bool read_only;
};

struct machine_config {
	const char *kvm_path;     /* NULL: /dev/kvm */
	const char *kernel;       /* bzImage, ELF with a PVH note, or Multiboot */
	const char *initrd;       /* NULL: none */
	const char *command_line; /* passed on unchanged */
	unsigned vcpus;           /* 1..MACHINE_VCPUS_MAX */
	uint64_t memory;          /* bytes, a multiple of 4 KiB */
	unsigned disk_count;
	struct machine_disk disks[MACHINE_DISKS_MAX];
	bool sandbox;
	int console_input_fd;  /* -1: none */
	int console_output_fd; /* -1: none */
	const char *until;     /* NULL: none */
	size_t until_size;
	/* Optional: a complete line of console output; see console.h. */
	void (*console_line)(void *context, uint64_t boot_ns, const char *text, size_t size);
	void *console_line_context;
	/* Optional: what Ctrl-A s shows; see console.h. */
	size_t (*console_status)(void *context, char *text, size_t size);
	void *console_status_context;
};

#endif
