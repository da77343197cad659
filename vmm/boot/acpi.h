/* ACPI: the tables that tell the guest what the machine has.
 *
 * Hardware-reduced ACPI (ACPI 6.5, 4.1): no PM timer, no SCI, no PIT and no 8259 behind it.
 * Tables: RSDP, XSDT, FADT, MADT, DSDT. vCPU n has APIC id n; there is one I/O APIC with
 * 24 inputs at 0xfec00000, GSI 0 up, as KVM's in-kernel one.
 */
#ifndef VMM_BOOT_ACPI_H
#define VMM_BOOT_ACPI_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Where firmware looks for the RSDP (ACPI 6.5, 5.2.5.1), on a 16-byte boundary. */
#define ACPI_TABLES_BASE UINT64_C(0xe0000)
#define ACPI_TABLES_END UINT64_C(0xf0000) /* firmware's entry points are above, see boot.h */

#define ACPI_VCPUS_MAX 1024
#define ACPI_DEVICES_MAX 32

/* One virtio-mmio slot. */
struct acpi_device {
	uint32_t gpa;
	uint32_t size;
	uint32_t gsi; /* edge-triggered, active-high */
};

struct acpi_config {
	unsigned vcpu_count;  /* 1..ACPI_VCPUS_MAX */
	uint16_t serial_port; /* first of eight I/O ports; 0: no serial port */
	uint32_t serial_gsi;
	unsigned device_count;
	struct acpi_device devices[ACPI_DEVICES_MAX]; /* _UID is the index */
};

/* Writes all tables, for a guest that sees the buffer at `base_gpa` (16-byte aligned, below
 * 4 GiB). The RSDP is at its very beginning. `*size_out` is the bytes used.
 * GP_ERR_NO_RESOURCES when `capacity` is too small (the buffer then holds no tables);
 * GP_ERR_INVALID_ARGS for a configuration out of the ranges above. */
gp_status_t acpi_build(const struct acpi_config *config, uint64_t base_gpa, uint8_t *buffer,
		       size_t capacity, size_t *size_out, struct error *error);

#endif
