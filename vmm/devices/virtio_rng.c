#include "vmm/devices/virtio_rng.h"

#include <errno.h>
#include <sys/random.h>

#define ENTROPY_DEVICE_ID 4

static uint32_t virtio_rng_handle(void *device, unsigned queue, const struct virtio_chain *chain)
{
	uint8_t bytes[VIRTIO_RNG_REQUEST_MAX];
	size_t wanted =
		chain->writable_size < sizeof(bytes) ? (size_t)chain->writable_size : sizeof(bytes);
	size_t have = 0;

	(void)device;
	(void)queue;
	while (have < wanted) {
		ssize_t got = getrandom(bytes + have, wanted - have, 0);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		have += (size_t)got;
	}
	return (uint32_t)virtio_chain_write(chain, 0, bytes, have);
}

void virtio_rng_init(struct virtio_device *device)
{
	*device = (struct virtio_device){
		.handle = virtio_rng_handle,
		.device_id = ENTROPY_DEVICE_ID,
		.queue_count = 1,
	};
}
