/* A virtio block device (virtio 1.2, 5.2) over a disk image.
 *
 * Reads, writes, flush and GET_ID; anything else is answered UNSUPP. Failed host I/O is
 * answered IOERR and does not end the machine. Data goes straight between the image and guest
 * RAM.
 */
#ifndef VMM_DEVICES_VIRTIO_BLOCK_H
#define VMM_DEVICES_VIRTIO_BLOCK_H

#include "vmm/devices/disk_image.h"
#include "vmm/devices/virtio_mmio.h"

struct virtio_block {
	struct disk_image *disk;
	struct iovec parts[VIRTIO_QUEUE_SIZE_MAX]; /* of the request in progress */
};

/* Makes `*device` ready for virtio_mmio_init(). `disk` must outlive the device. */
void virtio_block_init(struct virtio_block *block, struct disk_image *disk,
		       struct virtio_device *device);

#endif
