#include "attach/remote_memory.h"

#include "attach/proc_file.h"
#include "base/cleanup.h"
#include "base/container.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* A VMM with many threads has thousands of mappings; more than this are not looked through. */
#define MAPS_BYTES_MAX (16 << 20)
#define PAGE 4096
#define KEPT_PAGES 16 /* with a bit each in 32 */

/* What one thread has read of another process since its vCPU stopped. The stop before tells which
 * pages that will be (page tables, the stack's): they are all fetched by the first call. Any page
 * may lie in any slot: two that share one would push each other out at every stop. */
static __thread struct {
	bool active;
	bool refused;      /* reading many pages at once is not to be had */
	uint32_t valid;    /* bit per slot: read since the stop */
	uint32_t used;     /* asked for since the stop */
	uint32_t expected; /* not read yet, but used by the stop before */
	unsigned next;     /* the slot to give up when all are used */
	uint64_t tags[KEPT_PAGES];
	uint8_t bytes[KEPT_PAGES][PAGE];
} kept;

void remote_memory_stop_begins(void)
{
	kept.active = true;
	kept.expected = kept.used;
	kept.valid = kept.used = 0;
}

void remote_memory_stop_ends(void)
{
	kept.active = false;
}

static bool read_process(const struct remote_memory *memory, uint64_t address, void *buffer,
			 size_t size)
{
	return pread(memory->mem_fd, buffer, size, (off_t)address) == (ssize_t)size;
}

/* Fetches the expected pages, as many as come. */
static void read_expected(const struct remote_memory *memory)
{
	struct iovec here[KEPT_PAGES], there[KEPT_PAGES];
	unsigned slots[KEPT_PAGES], count = 0;
	ssize_t got;

	for (uint32_t left = kept.expected; left; left &= left - 1) {
		unsigned slot = (unsigned)__builtin_ctz(left);

		slots[count] = slot;
		here[count] = (struct iovec){kept.bytes[slot], PAGE};
		there[count++] = (struct iovec){(void *)(uintptr_t)(kept.tags[slot] * PAGE), PAGE};
	}
	kept.expected = 0;
	/* One page is as cheap the other way. */
	if (count < 2 || kept.refused)
		return;
	got = process_vm_readv(memory->pid, here, count, there, count, 0);
	/* A missing page among them ends it early; nothing at all is a matter of rights. */
	kept.refused = got < 0 && errno != EFAULT;
	for (unsigned i = 0; i < count && got >= (ssize_t)((i + 1) * PAGE); i++)
		kept.valid |= 1u << slots[i];
}

#define NO_SLOT KEPT_PAGES

static unsigned slot_of(uint64_t tag)
{
	for (uint32_t left = kept.valid; left; left &= left - 1) {
		unsigned slot = (unsigned)__builtin_ctz(left);

		if (kept.tags[slot] == tag)
			return slot;
	}
	return NO_SLOT;
}

/* An empty slot; else one that was fetched in vain; else one of the used, in turns. */
static unsigned free_slot(void)
{
	const uint32_t all = (uint32_t)((UINT64_C(1) << KEPT_PAGES) - 1);

	if (kept.valid != all)
		return (unsigned)__builtin_ctz(~kept.valid);
	if (kept.used != all)
		return (unsigned)__builtin_ctz(~kept.used);
	return kept.next++ % KEPT_PAGES;
}

/* `size` bytes within one page of the VMM. */
static bool read_kept(const struct remote_memory *memory, uint64_t address, void *buffer,
		      size_t size)
{
	uint64_t tag = address / PAGE;
	unsigned slot;

	if (kept.expected)
		read_expected(memory);
	slot = slot_of(tag);
	if (slot == NO_SLOT) {
		slot = free_slot();
		kept.valid &= ~(1u << slot);
		kept.used &= ~(1u << slot);
		if (!read_process(memory, tag * PAGE, kept.bytes[slot], PAGE))
			return false;
		kept.tags[slot] = tag;
		kept.valid |= 1u << slot;
	}
	kept.used |= 1u << slot;
	memcpy(buffer, kept.bytes[slot] + address % PAGE, size);
	return true;
}

static bool remote_memory_read_memory(const struct guest_memory *guest, gpa_t address, void *buffer,
				      size_t size)
{
	const struct remote_memory *memory =
		container_of(guest, const struct remote_memory, memory);

	for (unsigned i = 0; i < memory->layout.count; i++) {
		const struct remote_region *region = &memory->layout.regions[i];
		uint64_t offset = address.value - region->gpa;

		if (offset >= region->size || size > region->size - offset)
			continue;
		if (region->host) {
			memcpy(buffer, region->host + offset, size);
			return true;
		}
		if (kept.active && (region->address + offset) % PAGE + size <= PAGE)
			return read_kept(memory, region->address + offset, buffer, size);
		return read_process(memory, region->address + offset, buffer, size);
	}
	return false;
}

/* A descriptor of the VMM's that is the file of `area`; -1: it keeps none. */
static int find_file(const char *proc, pid_t pid, int pidfd, const struct memory_area *area)
{
	char path[300];
	struct dirent *entry;
	DIR *directory;
	int found = -1;

	snprintf(path, sizeof(path), "%s/%d/fd", proc, (int)pid);
	directory = opendir(path);
	while (directory && found < 0 && (entry = readdir(directory))) {
		struct stat file;
		uint64_t number;

		if (!proc_number(entry->d_name, INT32_MAX, &number) ||
		    fstatat(dirfd(directory), entry->d_name, &file, 0) ||
		    file.st_ino != area->inode || file.st_dev != area->device)
			continue;
		found = (int)syscall(SYS_pidfd_getfd, pidfd, (int)number, 0);
	}
	if (directory)
		closedir(directory);
	return found;
}

/* Maps an area here, if nothing that happens to its file can take the pages away: a read would end
 * this process by SIGBUS. */
static const uint8_t *map_here(const char *proc, pid_t pid, int pidfd,
			       const struct memory_area *area)
{
	AUTO_CLOSE int fd = -1;
	struct stat file;
	void *host;
	int seals;

	if (!area->shared || !area->inode)
		return NULL;
	fd = find_file(proc, pid, pidfd, area);
	if (fd < 0)
		return NULL;
	seals = fcntl(fd, F_GET_SEALS);
	/* A sealed file of huge pages may still have holes that no page is left for. */
	if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &file) || file.st_blksize != PAGE ||
	    area->offset > (uint64_t)file.st_size ||
	    area->size > (uint64_t)file.st_size - area->offset)
		return NULL;
	host = mmap(NULL, area->size, PROT_READ, MAP_SHARED, fd, (off_t)area->offset);
	return host == MAP_FAILED ? NULL : host;
}

static gp_status_t read_areas(struct remote_memory *memory, const char *proc, pid_t pid, int pidfd,
			      struct error *error)
{
	AUTO_FREE char *maps = malloc(MAPS_BYTES_MAX);
	struct memory_areas areas;

	if (!maps)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for a list of mappings");
	if (!proc_read(proc, pid, "maps", maps, MAPS_BYTES_MAX))
		return error_set(error, GP_ERR_ACCESS_DENIED,
				 "the mappings of process %d may not be looked at", (int)pid);
	memory_areas_parse(maps, &areas);
	for (unsigned i = 0; i < areas.count; i++)
		memory->areas[memory->area_count++] = (struct remote_area){
			areas.areas[i], map_here(proc, pid, pidfd, &areas.areas[i])};
	return GP_OK;
}

gp_status_t remote_memory_init(struct remote_memory *memory, const char *proc, pid_t pid, int pidfd,
			       struct error *error)
{
	gp_status_t status;
	char path[300];

	*memory = (struct remote_memory){
		.memory.read = remote_memory_read_memory, .pid = pid, .mem_fd = -1};
	snprintf(path, sizeof(path), "%s/%d/mem", proc, (int)pid);
	memory->mem_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (memory->mem_fd < 0)
		return error_set_errno(error, errno, "cannot read the memory of process %d",
				       (int)pid);
	status = read_areas(memory, proc, pid, pidfd, error);
	if (status)
		remote_memory_deinit(memory);
	return status;
}

void remote_memory_deinit(struct remote_memory *memory)
{
	for (unsigned i = 0; i < memory->area_count; i++)
		if (memory->areas[i].host)
			munmap((void *)(uintptr_t)memory->areas[i].host,
			       memory->areas[i].area.size);
	memory->area_count = 0;
	memory->layout.count = 0;
	close_fd(&memory->mem_fd);
}

void remote_memory_set_layout(struct remote_memory *memory, const struct remote_layout *layout)
{
	memory->layout = *layout;
}

const char *remote_memory_method(const struct remote_memory *memory)
{
	unsigned mapped = 0;

	for (unsigned i = 0; i < memory->layout.count; i++)
		mapped += memory->layout.regions[i].host != NULL;
	if (!mapped)
		return "/proc";
	return mapped == memory->layout.count ? "shared" : "shared and /proc";
}
