/* A virtio entropy device (virtio 1.2, 5.4): the host's getrandom(), a bounded number of
 * bytes per request. */
#ifndef VMM_DEVICES_VIRTIO_RNG_H
#define VMM_DEVICES_VIRTIO_RNG_H

#include "vmm/devices/virtio_mmio.h"

/* Most bytes one request gets; the driver asks again for more. */
#define VIRTIO_RNG_REQUEST_MAX 4096

/* Makes `*device` ready for virtio_mmio_init(). Keeps no state. */
void virtio_rng_init(struct virtio_device *device);

#endif
