/* Section numbers are those of Virtio 1.2. */
#include "vmm/devices/virtio_mmio.h"

#include "base/cleanup.h"
#include "base/io.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* 4.2.2, table 4.1. */
enum mmio_register {
	MAGIC = 0x000,
	VERSION = 0x004,
	DEVICE_ID = 0x008,
	VENDOR_ID = 0x00c,
	DEVICE_FEATURES = 0x010,
	DEVICE_FEATURES_SELECT = 0x014,
	DRIVER_FEATURES = 0x020,
	DRIVER_FEATURES_SELECT = 0x024,
	QUEUE_SELECT = 0x030,
	QUEUE_SIZE_MAX = 0x034,
	QUEUE_SIZE = 0x038,
	QUEUE_READY = 0x044,
	QUEUE_NOTIFY = VIRTIO_MMIO_NOTIFY_OFFSET,
	INTERRUPT_STATUS = 0x060,
	INTERRUPT_ACKNOWLEDGE = 0x064,
	STATUS = 0x070,
	QUEUE_DESCRIPTORS_LOW = 0x080,
	QUEUE_DESCRIPTORS_HIGH = 0x084,
	QUEUE_AVAILABLE_LOW = 0x090,
	QUEUE_AVAILABLE_HIGH = 0x094,
	QUEUE_USED_LOW = 0x0a0,
	QUEUE_USED_HIGH = 0x0a4,
	SHARED_MEMORY_LENGTH_LOW = 0x0b0,
	SHARED_MEMORY_LENGTH_HIGH = 0x0b4,
	SHARED_MEMORY_BASE_LOW = 0x0b8,
	SHARED_MEMORY_BASE_HIGH = 0x0bc,
	CONFIG_GENERATION = 0x0fc,
	CONFIG = 0x100,
};

#define MAGIC_VALUE 0x74726976        /* "virt" */
#define VENDOR_ID_VALUE 0x46525047    /* "GPRF" */
#define NO_SHARED_MEMORY UINT32_C(~0) /* 4.2.2: no such region */

/* 2.1 */
#define STATUS_ACKNOWLEDGE 1
#define STATUS_DRIVER 2
#define STATUS_DRIVER_OK 4
#define STATUS_FEATURES_OK 8
#define STATUS_NEEDS_RESET 64

#define INTERRUPT_USED_BUFFER 1
#define INTERRUPT_CONFIG_CHANGE 2

/* 6 */
#define FEATURE_INDIRECT (UINT64_C(1) << 28)
#define FEATURE_EVENT_INDEX (UINT64_C(1) << 29)
#define FEATURE_VERSION_1 (UINT64_C(1) << 32)
#define TRANSPORT_FEATURES (FEATURE_INDIRECT | FEATURE_EVENT_INDEX | FEATURE_VERSION_1)

static uint64_t offered_features(const struct virtio_mmio *transport)
{
	return transport->device.features | TRANSPORT_FEATURES;
}

static void interrupt(struct virtio_mmio *transport, uint32_t why)
{
	atomic_fetch_or(&transport->interrupt_status, why);
	interrupt_line_raise(&transport->interrupt);
}

/* 2.1.2: the device cannot go on until the driver resets it. */
static void demand_reset(struct virtio_mmio *transport)
{
	transport->status |= STATUS_NEEDS_RESET;
	if (transport->status & STATUS_DRIVER_OK)
		interrupt(transport, INTERRUPT_CONFIG_CHANGE);
}

void virtio_mmio_process(struct virtio_mmio *transport, unsigned index)
{
	struct virtio_queue *queue;
	unsigned left = VIRTIO_QUEUE_SIZE_MAX;

	if (index >= transport->device.queue_count)
		return;
	queue = &transport->queues[index];
	pthread_mutex_lock(&transport->lock);
	if (!(transport->status & STATUS_DRIVER_OK) || (transport->status & STATUS_NEEDS_RESET) ||
	    !queue->ready)
		left = 0;
	while (left > 0) {
		enum virtio_queue_result result = virtio_queue_pop(queue, &transport->chain);
		uint32_t written;

		if (result == VIRTIO_QUEUE_EMPTY)
			break;
		if (result == VIRTIO_QUEUE_BROKEN) {
			demand_reset(transport);
			break;
		}
		written = transport->device.handle(transport->device.device, index,
						   &transport->chain);
		virtio_queue_push(queue, transport->chain.head, written);
		if (virtio_queue_wants_interrupt(queue))
			interrupt(transport, INTERRUPT_USED_BUFFER);
		/* A guest that refills its queue all the time must not keep the loop from its
		 * other devices: the rest in the next round. */
		if (--left == 0)
			io_signal(transport->notify_fds[index]);
	}
	pthread_mutex_unlock(&transport->lock);
}

static void reset_device(struct virtio_mmio *transport)
{
	for (unsigned i = 0; i < transport->device.queue_count; i++)
		virtio_queue_reset(&transport->queues[i]);
	transport->status = 0;
	transport->driver_features = 0;
	transport->device_features_select = 0;
	transport->driver_features_select = 0;
	transport->queue_select = 0;
	atomic_store(&transport->interrupt_status, 0);
}

/* The driver's way through 3.1.1. It may only add bits, and only in that order. */
static void write_status(struct virtio_mmio *transport, uint32_t value)
{
	uint32_t before = transport->status;
	uint32_t added = value & ~before;
	uint64_t features = transport->driver_features;

	if (value == 0) {
		reset_device(transport);
		return;
	}
	if (before & ~value & ~STATUS_NEEDS_RESET)
		return;
	if ((added & STATUS_DRIVER) && !(value & STATUS_ACKNOWLEDGE))
		return;
	/* A driver learns that its choice was refused by reading the bit back as 0. */
	if ((added & STATUS_FEATURES_OK) &&
	    (!(value & STATUS_DRIVER) || (features & ~offered_features(transport)) ||
	     !(features & FEATURE_VERSION_1)))
		value &= ~STATUS_FEATURES_OK;
	if ((value & STATUS_DRIVER_OK) && !(value & STATUS_FEATURES_OK))
		value &= ~STATUS_DRIVER_OK;
	transport->status = (value & 0x8f) | (before & STATUS_NEEDS_RESET);
}

/* The low (0) or the high half (1) of what two registers hold. */
static void set_half(uint64_t *whole, unsigned half, uint32_t value)
{
	*whole = (*whole & ~(UINT64_C(0xffffffff) << (32 * half))) | (uint64_t)value << (32 * half);
}

static void write_driver_features(struct virtio_mmio *transport, uint32_t value)
{
	if (transport->status & STATUS_FEATURES_OK)
		return;
	if (transport->driver_features_select <= 1)
		set_half(&transport->driver_features, transport->driver_features_select, value);
	else if (value)
		/* A bit from 64 up was never offered. Bit 63 was not either: refused later. */
		transport->driver_features |= UINT64_C(1) << 63;
}

static void write_queue_ready(struct virtio_mmio *transport, struct virtio_queue *queue,
			      uint32_t value)
{
	if (!value) {
		virtio_queue_reset(queue);
	} else if (!queue->ready) {
		queue->event_index = transport->driver_features & FEATURE_EVENT_INDEX;
		queue->indirect = transport->driver_features & FEATURE_INDIRECT;
		if (virtio_queue_is_valid(queue))
			queue->ready = true;
		else
			demand_reset(transport);
	}
}

/* The registers of the selected queue. Size and addresses are fixed while it is ready. */
static void write_queue_register(struct virtio_mmio *transport, enum mmio_register where,
				 uint32_t value)
{
	struct virtio_queue *queue;

	if (transport->queue_select >= transport->device.queue_count ||
	    !(transport->status & STATUS_FEATURES_OK))
		return;
	queue = &transport->queues[transport->queue_select];
	if (where == QUEUE_READY) {
		write_queue_ready(transport, queue, value);
		return;
	}
	if (queue->ready)
		return;
	switch (where) {
	case QUEUE_SIZE:
		/* What does not fit is refused by virtio_queue_is_valid(), as 0 is. */
		queue->size = value <= VIRTIO_QUEUE_SIZE_MAX ? (uint16_t)value : 0;
		break;
	case QUEUE_DESCRIPTORS_LOW:
	case QUEUE_DESCRIPTORS_HIGH:
		set_half(&queue->descriptors, where == QUEUE_DESCRIPTORS_HIGH, value);
		break;
	case QUEUE_AVAILABLE_LOW:
	case QUEUE_AVAILABLE_HIGH:
		set_half(&queue->available, where == QUEUE_AVAILABLE_HIGH, value);
		break;
	case QUEUE_USED_LOW:
	case QUEUE_USED_HIGH:
		set_half(&queue->used, where == QUEUE_USED_HIGH, value);
		break;
	default:
		break;
	}
}

static void virtio_mmio_write_register(struct virtio_mmio *transport, enum mmio_register where,
				       uint32_t value)
{
	switch (where) {
	case DEVICE_FEATURES_SELECT:
		transport->device_features_select = value;
		break;
	case DRIVER_FEATURES_SELECT:
		transport->driver_features_select = value;
		break;
	case DRIVER_FEATURES:
		write_driver_features(transport, value);
		break;
	case QUEUE_SELECT:
		transport->queue_select = value;
		break;
	case STATUS:
		write_status(transport, value);
		break;
	default:
		write_queue_register(transport, where, value);
		break;
	}
}

static uint32_t virtio_mmio_read_register(const struct virtio_mmio *transport,
					  enum mmio_register where)
{
	bool has_queue = transport->queue_select < transport->device.queue_count;

	switch (where) {
	case MAGIC:
		return MAGIC_VALUE;
	case VERSION:
		return 2;
	case DEVICE_ID:
		return transport->device.device_id;
	case VENDOR_ID:
		return VENDOR_ID_VALUE;
	case DEVICE_FEATURES:
		if (transport->device_features_select > 1)
			return 0;
		return (uint32_t)(offered_features(transport) >>
				  (32 * transport->device_features_select));
	case QUEUE_SIZE_MAX:
		return has_queue ? VIRTIO_QUEUE_SIZE_MAX : 0;
	case QUEUE_READY:
		return has_queue && transport->queues[transport->queue_select].ready;
	case STATUS:
		return transport->status;
	case SHARED_MEMORY_LENGTH_LOW:
	case SHARED_MEMORY_LENGTH_HIGH:
	case SHARED_MEMORY_BASE_LOW:
	case SHARED_MEMORY_BASE_HIGH:
		return NO_SHARED_MEMORY;
	default:
		return 0; /* CONFIG_GENERATION, too: it never changes */
	}
}

static void virtio_mmio_bus_read(void *device, uint64_t offset, void *data, unsigned size)
{
	struct virtio_mmio *transport = device;
	uint32_t value;

	memset(data, 0, size);
	if (offset >= CONFIG) {
		/* Constant after virtio_mmio_init(). */
		offset -= CONFIG;
		for (unsigned i = 0; i < size && offset + i < sizeof(transport->device.config); i++)
			((uint8_t *)data)[i] = transport->device.config[offset + i];
		return;
	}
	/* 4.2.2.2: registers are 32 bits wide and read that way. */
	if (size != sizeof(value) || offset % sizeof(value))
		return;
	if (offset == INTERRUPT_STATUS) {
		value = atomic_load(&transport->interrupt_status);
	} else {
		pthread_mutex_lock(&transport->lock);
		value = virtio_mmio_read_register(transport, (enum mmio_register)offset);
		pthread_mutex_unlock(&transport->lock);
	}
	memcpy(data, &value, sizeof(value));
}

static void virtio_mmio_bus_write(void *device, uint64_t offset, const void *data, unsigned size)
{
	struct virtio_mmio *transport = device;
	uint32_t value;

	/* No device of ours has configuration to write. */
	if (size != sizeof(value) || offset % sizeof(value) || offset >= CONFIG)
		return;
	memcpy(&value, data, sizeof(value));
	if (offset == QUEUE_NOTIFY) {
		if (value < transport->device.queue_count)
			io_signal(transport->notify_fds[value]);
	} else if (offset == INTERRUPT_ACKNOWLEDGE) {
		atomic_fetch_and(&transport->interrupt_status, ~value);
	} else {
		pthread_mutex_lock(&transport->lock);
		virtio_mmio_write_register(transport, (enum mmio_register)offset, value);
		pthread_mutex_unlock(&transport->lock);
	}
}

gp_status_t virtio_mmio_init(struct virtio_mmio *transport, unsigned slot,
			     const struct virtio_device *device, const struct guest_ram *ram,
			     const struct interrupt_line *line, struct error *error)
{
	if (slot >= VIRTIO_MMIO_SLOTS_MAX)
		return error_set(error, GP_ERR_NO_RESOURCES,
				 "too many devices: the machine has room for %d virtio devices",
				 VIRTIO_MMIO_SLOTS_MAX);
	if (device->queue_count < 1 || device->queue_count > VIRTIO_QUEUES_MAX)
		return error_set(error, GP_ERR_INTERNAL, "a virtio device with %u queues",
				 device->queue_count);
	*transport = (struct virtio_mmio){
		.device = *device, .ram = ram, .interrupt = *line, .slot = slot};
	for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++) {
		transport->queues[i].ram = ram;
		transport->notify_fds[i] = -1;
	}
	pthread_mutex_init(&transport->lock, NULL);
	for (unsigned i = 0; i < device->queue_count; i++) {
		transport->notify_fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (transport->notify_fds[i] < 0) {
			error_set_errno(error, errno, "cannot create an eventfd for a device");
			virtio_mmio_deinit(transport);
			return GP_ERR_NO_RESOURCES;
		}
	}
	return GP_OK;
}

void virtio_mmio_deinit(struct virtio_mmio *transport)
{
	for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++)
		close_fd(&transport->notify_fds[i]);
	pthread_mutex_destroy(&transport->lock);
}

static bool notified(void *context, int fd)
{
	struct virtio_mmio *transport = context;
	uint64_t count;

	if (read(fd, &count, sizeof(count)) != sizeof(count))
		return true;
	for (unsigned i = 0; i < transport->device.queue_count; i++) {
		if (transport->notify_fds[i] == fd)
			virtio_mmio_process(transport, i);
	}
	return true;
}

gp_status_t virtio_mmio_attach(struct virtio_mmio *transport, struct io_bus *memory,
			       struct event_loop *loop, struct error *error)
{
	gp_status_t status = io_bus_add(
		memory,
		&(struct io_region){virtio_mmio_slot_gpa(transport->slot), VIRTIO_MMIO_SLOT_SIZE,
				    transport, virtio_mmio_bus_read, virtio_mmio_bus_write},
		error);

	for (unsigned i = 0; !status && i < transport->device.queue_count; i++)
		status = event_loop_add(
			loop, &(struct event_watch){transport->notify_fds[i], transport, notified},
			error);
	return status;
}
