/* The virtio-mmio transport, version 2 (virtio 1.2, 4.2), and what a device looks like to it.
 *
 * A machine has up to VIRTIO_MMIO_SLOTS_MAX slots; slot n has its registers at
 * virtio_mmio_slot_gpa(n) and interrupts on virtio_mmio_slot_gsi(n).
 *
 * Threads: registers are read and written on vCPU threads, requests are worked on by the
 * event loop's thread; both under the transport's lock, except for the interrupt registers
 * and QueueNotify, which take none, so that a vCPU never waits for a disk because of them. A guest
 * that resets a device waits for the request in progress.
 *
 * QueueNotify: each queue has an eventfd, notify_fds[queue]. With KVM_IOEVENTFD for
 * a 4-byte write of the value `queue` at virtio_mmio_notify_gpa() it is signalled without an exit
 * to user space; without it the register's write signals it.
 */
#ifndef VMM_DEVICES_VIRTIO_MMIO_H
#define VMM_DEVICES_VIRTIO_MMIO_H

#include "vmm/devices/event_loop.h"
#include "vmm/devices/guest_ram.h"
#include "vmm/devices/interrupt_line.h"
#include "vmm/devices/io_bus.h"
#include "vmm/devices/virtio_queue.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define VIRTIO_MMIO_BASE UINT32_C(0xd0000000)
#define VIRTIO_MMIO_SLOT_SIZE 0x1000
#define VIRTIO_MMIO_SLOTS_MAX 17
#define VIRTIO_MMIO_NOTIFY_OFFSET 0x50
#define VIRTIO_QUEUES_MAX 2

static inline uint32_t virtio_mmio_slot_gpa(unsigned slot)
{
	return VIRTIO_MMIO_BASE + slot * VIRTIO_MMIO_SLOT_SIZE;
}

/* GSI 5, 6, 7, then 10 to 23: all I/O APIC inputs but those of the timer, keyboard,
 * cascade, COM2, COM1, clock and (9) what firmware uses for ACPI's own interrupt. */
static inline uint32_t virtio_mmio_slot_gsi(unsigned slot)
{
	return slot < 3 ? 5 + slot : 10 + (slot - 3);
}

static inline uint64_t virtio_mmio_notify_gpa(unsigned slot)
{
	return virtio_mmio_slot_gpa(slot) + (uint64_t)VIRTIO_MMIO_NOTIFY_OFFSET;
}

struct virtio_device {
	/* Works off one request and returns how many bytes it wrote to the writable parts. Event
	 * loop's thread. Whatever the guest put there, it must not fail the machine. */
	uint32_t (*handle)(void *device, unsigned queue, const struct virtio_chain *chain);
	void *device;         /* handed to `handle` */
	uint32_t device_id;   /* virtio 1.2, section 5 */
	uint64_t features;    /* the device's own; the transport adds its own */
	unsigned queue_count; /* 1..VIRTIO_QUEUES_MAX */
	uint8_t config[256];  /* its configuration space: constant while the machine runs */
};

struct virtio_mmio {
	struct virtio_device device;
	const struct guest_ram *ram;
	struct interrupt_line interrupt;
	unsigned slot;
	int notify_fds[VIRTIO_QUEUES_MAX]; /* eventfds, ours */

	_Atomic uint32_t interrupt_status;

	pthread_mutex_t lock; /* over the rest */
	uint32_t status;
	uint32_t device_features_select;
	uint32_t driver_features_select;
	uint64_t driver_features;
	uint32_t queue_select;
	struct virtio_queue queues[VIRTIO_QUEUES_MAX];
	struct virtio_chain chain; /* the request in progress */
};

/* `device` and `interrupt` are copied; `ram` must outlive the transport. `interrupt->gsi`
 * should be virtio_mmio_slot_gsi(slot). */
gp_status_t virtio_mmio_init(struct virtio_mmio *transport, unsigned slot,
			     const struct virtio_device *device, const struct guest_ram *ram,
			     const struct interrupt_line *interrupt, struct error *error);
void virtio_mmio_deinit(struct virtio_mmio *transport);

/* Claims the slot's registers on the memory bus and its notifications in the loop. */
gp_status_t virtio_mmio_attach(struct virtio_mmio *transport, struct io_bus *memory,
			       struct event_loop *loop, struct error *error);

/* Works off everything the guest put in `queue`. What the loop calls on a notification; of
 * use by itself in tests. */
void virtio_mmio_process(struct virtio_mmio *transport, unsigned queue);

#endif
