/* Section numbers are those of Virtio 1.2. */
#include "vmm/devices/virtio_block.h"

#include <string.h>

#define BLOCK_DEVICE_ID 2

/* 5.2.3 */
#define FEATURE_SIZE_MAX (UINT64_C(1) << 1)
#define FEATURE_SEG_MAX (UINT64_C(1) << 2)
#define FEATURE_READ_ONLY (UINT64_C(1) << 5)
#define FEATURE_BLOCK_SIZE (UINT64_C(1) << 6)
#define FEATURE_FLUSH (UINT64_C(1) << 9)

/* 5.2.4 */
struct block_config {
	uint64_t capacity; /* sectors */
	uint32_t size_max;
	uint32_t seg_max;
	uint32_t geometry;
	uint32_t block_size;
};

/* 5.2.6 */
struct block_request {
	uint32_t type;
	uint32_t reserved;
	uint64_t sector;
};
_Static_assert(sizeof(struct block_request) == 16, "5.2.6");

enum request_type {
	REQUEST_READ = 0,
	REQUEST_WRITE = 1,
	REQUEST_FLUSH = 4,
	REQUEST_GET_ID = 8,
};

enum request_status {
	STATUS_OK = 0,
	STATUS_IO_ERROR = 1,
	STATUS_UNSUPPORTED = 2,
};

#define ID_SIZE 20

/* A chain holds the header, the status and this many pieces of data. */
#define SEGMENTS_MAX (VIRTIO_QUEUE_SIZE_MAX - 2)
#define SEGMENT_SIZE_MAX 65536
/* What a driver that keeps to both can ask for. More is refused: the event loop's other
 * devices would wait for it. */
#define REQUEST_DATA_MAX ((uint64_t)SEGMENTS_MAX * SEGMENT_SIZE_MAX)

/* Copies the part of `parts` that lies in [skip, skip + take) to `out`; returns how many. */
static unsigned slice(const struct iovec *parts, unsigned count, uint64_t skip, uint64_t take,
		      struct iovec *out)
{
	unsigned made = 0;

	for (unsigned i = 0; i < count && take > 0; i++) {
		uint64_t size = parts[i].iov_len;
		uint64_t piece;

		if (skip >= size) {
			skip -= size;
			continue;
		}
		piece = size - skip < take ? size - skip : take;
		out[made++] = (struct iovec){(char *)parts[i].iov_base + skip, (size_t)piece};
		skip = 0;
		take -= piece;
	}
	return made;
}

static bool range_is_valid(const struct virtio_block *block, uint64_t sector, uint64_t size)
{
	return size % DISK_SECTOR_SIZE == 0 && size <= REQUEST_DATA_MAX &&
	       size <= block->disk->size && sector <= (block->disk->size - size) / DISK_SECTOR_SIZE;
}

/* Reads into, or writes from, `size` bytes of the chain. */
static enum request_status transfer(struct virtio_block *block, const struct block_request *request,
				    const struct virtio_chain *chain, uint64_t size)
{
	uint64_t offset = request->sector * DISK_SECTOR_SIZE;
	bool write = request->type == REQUEST_WRITE, done;
	unsigned count;

	if ((write && block->disk->read_only) || !range_is_valid(block, request->sector, size))
		return STATUS_IO_ERROR;
	if (write) {
		count = slice(chain->parts, chain->readable_count, sizeof(*request), size,
			      block->parts);
		done = disk_image_write(block->disk, offset, block->parts, count);
	} else {
		count = slice(chain->parts + chain->readable_count, chain->writable_count, 0, size,
			      block->parts);
		done = disk_image_read(block->disk, offset, block->parts, count);
	}
	return done ? STATUS_OK : STATUS_IO_ERROR;
}

static enum request_status get_id(const struct virtio_block *block,
				  const struct virtio_chain *chain, uint64_t size)
{
	char id[ID_SIZE] = {0};

	if (size < ID_SIZE)
		return STATUS_IO_ERROR;
	memcpy(id, block->disk->serial, strnlen(block->disk->serial, ID_SIZE));
	virtio_chain_write(chain, 0, id, sizeof(id));
	return STATUS_OK;
}

static uint32_t virtio_block_handle(void *device, unsigned queue, const struct virtio_chain *chain)
{
	struct virtio_block *block = device;
	struct block_request request;
	enum request_status status = STATUS_UNSUPPORTED;
	uint64_t size, filled = 0; /* of the writable bytes before the status */
	uint8_t status_byte;

	(void)queue;
	/* The last writable byte takes the status; without it nothing can be answered. */
	if (chain->writable_size == 0)
		return 0;
	size = chain->writable_size - 1;
	if (virtio_chain_read(chain, 0, &request, sizeof(request)) != sizeof(request)) {
		status = STATUS_IO_ERROR;
	} else if (request.type == REQUEST_READ) {
		status = transfer(block, &request, chain, size);
		filled = size;
	} else if (request.type == REQUEST_WRITE) {
		status = transfer(block, &request, chain, chain->readable_size - sizeof(request));
	} else if (request.type == REQUEST_FLUSH) {
		status = disk_image_flush(block->disk) ? STATUS_OK : STATUS_IO_ERROR;
	} else if (request.type == REQUEST_GET_ID) {
		status = get_id(block, chain, size);
		filled = ID_SIZE;
	}
	status_byte = (uint8_t)status;
	virtio_chain_write(chain, size, &status_byte, 1);
	/* The used length promises bytes from the first writable one on without a gap (2.7.8.2). */
	if (status == STATUS_OK && filled == size)
		return (uint32_t)size + 1;
	if (status == STATUS_OK)
		return (uint32_t)filled;
	return size == 0;
}

void virtio_block_init(struct virtio_block *block, struct disk_image *disk,
		       struct virtio_device *device)
{
	const struct block_config config = {
		.capacity = disk->size / DISK_SECTOR_SIZE,
		.size_max = SEGMENT_SIZE_MAX,
		.seg_max = SEGMENTS_MAX,
		.block_size = DISK_SECTOR_SIZE,
	};

	block->disk = disk;
	*device = (struct virtio_device){
		.handle = virtio_block_handle,
		.device = block,
		.device_id = BLOCK_DEVICE_ID,
		.features = FEATURE_SIZE_MAX | FEATURE_SEG_MAX | FEATURE_BLOCK_SIZE |
			    FEATURE_FLUSH | (disk->read_only ? FEATURE_READ_ONLY : 0),
		.queue_count = 1,
	};
	memcpy(device->config, &config, sizeof(config));
}
