/* Guest memory found in a process: this one plays the VMM, with page tables laid into mappings of
 * its own where a guest of some size would have them. */
#include "attach/memory_layout.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define PRESENT 0x3u
#define LARGE 0x80u
#define CODE UINT64_C(0x400000) /* linear; 2 MiB page */

struct vmm {
	uint8_t *ram;
	uint64_t size;
	uint64_t hole; /* where the lower part ends; 0: none */
	int pidfd;
	struct remote_memory memory;
};

static uint8_t *at(const struct vmm *vmm, uint64_t address)
{
	uint64_t offset = address;

	if (vmm->hole && address >= 4 * GIB)
		offset = address - 4 * GIB + vmm->hole;
	cr_assert_lt(offset, vmm->size);
	return vmm->ram + offset;
}

static void put(const struct vmm *vmm, uint64_t address, uint64_t value)
{
	memcpy(at(vmm, address), &value, sizeof(value));
}

/* Four levels from `tables` on, so that CODE leads to `page`. */
static struct guest_cpu make_tables(const struct vmm *vmm, uint64_t tables, uint64_t page)
{
	put(vmm, tables, (tables + 0x1000) | PRESENT);
	put(vmm, tables + 0x1000, (tables + 0x2000) | PRESENT);
	put(vmm, tables + 0x2000 + (CODE >> 21) * 8, page | PRESENT | LARGE);
	put(vmm, page + 0x10, 0x90);
	return (struct guest_cpu){
		.rip = CODE + 0x10,
		.cr0 = X86_CR0_PROTECTED | X86_CR0_PAGING,
		.cr3 = tables,
		.cr4 = X86_CR4_PAE,
		.efer = X86_EFER_LONG_MODE_ACTIVE,
		.cs.long_mode = true,
	};
}

static void open_memory(struct vmm *vmm)
{
	struct error error = {0};

	vmm->pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	cr_assert_geq(vmm->pidfd, 0);
	cr_assert_eq(remote_memory_init(&vmm->memory, "/proc", getpid(), vmm->pidfd, &error), GP_OK,
		     "%s", error.text);
}

static void make_ram(struct vmm *vmm, uint64_t size, uint64_t hole, int flags, int fd)
{
	*vmm = (struct vmm){.size = size, .hole = hole};
	vmm->ram = mmap(NULL, size, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, 0);
	if (vmm->ram == MAP_FAILED)
		cr_skip_test("no address space for %llu MiB", (unsigned long long)(size / MIB));
	/* Not merged with what lies beside it. */
	madvise(vmm->ram, size, MADV_DONTDUMP);
}

static void end(struct vmm *vmm)
{
	remote_memory_deinit(&vmm->memory);
	close(vmm->pidfd);
	munmap(vmm->ram, vmm->size);
}

static uint64_t read_word(const struct vmm *vmm, uint64_t address)
{
	uint64_t value = 0;

	cr_assert(guest_memory_read(&vmm->memory.memory, gpa(address), &value, sizeof(value)));
	return value;
}

static void find_with_hole(uint64_t size, uint64_t hole, uint64_t likely)
{
	struct guest_cpu cpus[2];
	struct vmm vmm;
	char banner[256];
	struct error error = {0};
	uint64_t value;

	make_ram(&vmm, size, hole, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	cpus[0] = make_tables(&vmm, 0x10000, 32 * MIB);
	/* Tables behind the hole show where that begins. */
	cpus[1] = make_tables(&vmm, hole ? 4 * GIB + 64 * MIB : 64 * MIB, 48 * MIB);
	open_memory(&vmm);
	cr_assert_eq(memory_layout_find(&vmm.memory, likely, cpus, 2, banner, &error), GP_OK, "%s",
		     error.text);
	cr_assert_str_eq(banner, "");
	cr_assert_eq(vmm.memory.layout.count, hole ? 2 : 1);
	cr_assert_eq(vmm.memory.layout.regions[0].gpa, 0);
	cr_assert_eq(vmm.memory.layout.regions[0].size, hole ? hole : size);
	put(&vmm, 0x1234, 0x1122334455667788);
	cr_assert_eq(read_word(&vmm, 0x1234), 0x1122334455667788);
	if (hole) {
		uint64_t last = 4 * GIB + size - hole - 8;

		put(&vmm, last, 0x99);
		cr_assert_eq(read_word(&vmm, last), 0x99);
		cr_assert(!guest_memory_read(&vmm.memory.memory, gpa(hole), &value, 8));
		cr_assert(!guest_memory_read(&vmm.memory.memory, gpa(hole - 4), &value, 8));
		cr_assert(!guest_memory_read(&vmm.memory.memory, gpa(last + 1), &value, 8));
	}
	cr_assert(!guest_memory_read(&vmm.memory.memory, gpa(UINT64_MAX - 3), &value, 8));
	cr_assert_str_eq(remote_memory_method(&vmm.memory), "/proc");
	end(&vmm);
}

Test(memory_layout, memory_without_a_hole_is_found)
{
	find_with_hole(512 * MIB, 0, 0);
	find_with_hole(512 * MIB, 0, 2 * GIB);
}

Test(memory_layout, the_hole_is_found_where_it_is_whatever_is_likely)
{
	static const uint64_t holes[] = {2 * GIB, UINT64_C(0xb0000000), 3 * GIB,
					 UINT64_C(0xd0000000)};

	for (int i = 0; i < 4; i++)
		for (int likely = 0; likely < 4; likely++)
			find_with_hole(6 * GIB, holes[i], holes[likely]);
}

Test(memory_layout, where_nothing_tells_the_likely_place_goes_first)
{
	struct guest_cpu cpu;
	struct vmm vmm;
	char banner[256];

	make_ram(&vmm, 6 * GIB, 2 * GIB, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	cpu = make_tables(&vmm, 0x10000, 32 * MIB);
	open_memory(&vmm);
	cr_assert_eq(memory_layout_find(&vmm.memory, 2 * GIB, &cpu, 1, banner, NULL), GP_OK);
	cr_assert_eq(vmm.memory.layout.regions[0].size, 2 * GIB);
	end(&vmm);
}

Test(memory_layout, two_mappings_are_put_one_after_the_other)
{
	struct guest_cpu cpu;
	struct vmm vmm;
	uint8_t *low, *high;
	char banner[256];

	/* 3 GiB, and the rest behind the hole, somewhere else. */
	low = mmap(NULL, 3 * GIB, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	make_ram(&vmm, 2 * GIB, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	high = vmm.ram;
	cr_assert(low != MAP_FAILED);
	madvise(low, 3 * GIB, MADV_DONTFORK);
	madvise(high, 2 * GIB, MADV_HUGEPAGE);
	vmm.ram = low;
	vmm.size = 3 * GIB;
	cpu = make_tables(&vmm, 0x10000, 32 * MIB);
	/* The second level and on lie behind the hole. */
	vmm.ram = high;
	vmm.size = 2 * GIB;
	vmm.hole = 0;
	memcpy(high + 0x1000, low + 0x11000, 0x2000);
	put(&(struct vmm){.ram = low, .size = GIB}, 0x10000, (4 * GIB + 0x1000) | PRESENT);
	put(&vmm, 0x1000, (4 * GIB + 0x2000) | PRESENT);
	open_memory(&vmm);
	cr_assert_eq(memory_layout_find(&vmm.memory, 0, &cpu, 1, banner, NULL), GP_OK);
	cr_assert_eq(vmm.memory.layout.count, 2);
	cr_assert_eq(vmm.memory.layout.regions[0].address, (uintptr_t)low);
	cr_assert_eq(vmm.memory.layout.regions[1].address, (uintptr_t)high);
	cr_assert_eq(vmm.memory.layout.regions[1].gpa, 4 * GIB);
	munmap(low, 3 * GIB);
	end(&vmm);
}

Test(memory_layout, registers_that_prove_nothing_are_refused)
{
	struct guest_cpu cpu, wrong;
	struct vmm vmm;
	struct error error = {0};
	char banner[256];
	uint64_t value;

	make_ram(&vmm, 64 * MIB, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	cpu = make_tables(&vmm, 0x10000, 32 * MIB);
	open_memory(&vmm);
	wrong = cpu;
	wrong.cr0 = 0;
	cr_assert_eq(memory_layout_find(&vmm.memory, 0, &wrong, 1, banner, &error),
		     GP_ERR_TIMED_OUT);
	cr_assert(!guest_memory_read(&vmm.memory.memory, gpa(0x10000), &value, 8),
		  "nothing is readable without a layout");
	wrong = cpu;
	wrong.cr3 = 0x20000;
	cr_assert_eq(memory_layout_find(&vmm.memory, 0, &wrong, 1, banner, &error),
		     GP_ERR_NOT_FOUND);
	/* One vCPU that disagrees is enough. */
	struct guest_cpu both[] = {cpu, wrong};

	cr_assert_eq(memory_layout_find(&vmm.memory, 0, both, 2, banner, &error), GP_ERR_NOT_FOUND);
	/* One without page tables says nothing. */
	both[1].cr0 = 0;
	cr_assert_eq(memory_layout_find(&vmm.memory, 0, both, 2, banner, &error), GP_OK);
	end(&vmm);
}

static const char *method_of_memfd(int seals)
{
	struct guest_cpu cpu;
	struct vmm vmm;
	const char *method;
	char banner[256];
	int fd = memfd_create("ram", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	cr_assert(fd >= 0 && !ftruncate(fd, 64 << 20) && !fcntl(fd, F_ADD_SEALS, seals));
	make_ram(&vmm, 64 * MIB, 0, MAP_SHARED, fd);
	cpu = make_tables(&vmm, 0x10000, 32 * MIB);
	open_memory(&vmm);
	cr_assert_eq(memory_layout_find(&vmm.memory, 0, &cpu, 1, banner, NULL), GP_OK);
	put(&vmm, 0x1234, 0x42);
	cr_assert_eq(read_word(&vmm, 0x1234), 0x42);
	method = remote_memory_method(&vmm.memory);
	end(&vmm);
	close(fd);
	return method;
}

Test(memory_layout, only_a_file_that_cannot_shrink_is_mapped_here)
{
	cr_assert_str_eq(method_of_memfd(F_SEAL_SHRINK | F_SEAL_GROW), "shared");
	cr_assert_str_eq(method_of_memfd(0), "/proc");
}

Test(memory_layout, memory_that_the_guest_gave_back_reads_as_zeros)
{
	struct guest_cpu cpu;
	struct vmm vmm;
	char banner[256];

	make_ram(&vmm, 64 * MIB, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	cpu = make_tables(&vmm, 0x10000, 32 * MIB);
	put(&vmm, 8 * MIB, 0x42);
	open_memory(&vmm);
	cr_assert_eq(memory_layout_find(&vmm.memory, 0, &cpu, 1, banner, NULL), GP_OK);
	cr_assert_eq(read_word(&vmm, 8 * MIB), 0x42);
	/* As a VMM does for its guest's balloon. */
	cr_assert(!madvise(vmm.ram + 8 * MIB, 2 * MIB, MADV_DONTNEED));
	cr_assert_eq(read_word(&vmm, 8 * MIB), 0);
	end(&vmm);
}

Test(memory_layout, while_a_vcpu_is_stopped_a_page_is_read_once)
{
	struct guest_cpu cpu;
	struct vmm vmm;
	char banner[256];

	make_ram(&vmm, 64 * MIB, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	cpu = make_tables(&vmm, 0x10000, 32 * MIB);
	open_memory(&vmm);
	cr_assert_eq(memory_layout_find(&vmm.memory, 0, &cpu, 1, banner, NULL), GP_OK);
	put(&vmm, 0x3000, 1);
	put(&vmm, 0x5000, 7);
	remote_memory_stop_begins();
	cr_assert_eq(read_word(&vmm, 0x3000), 1);
	put(&vmm, 0x3000, 2);
	cr_assert_eq(read_word(&vmm, 0x3000), 1);
	/* Far more pages than are kept, and words across two pages. */
	for (uint64_t page = 0; page < 256; page++)
		read_word(&vmm, page << 12);
	cr_assert_eq(read_word(&vmm, 0x5000), 7);
	cr_assert_eq(read_word(&vmm, 0x4ffc), UINT64_C(7) << 32);
	remote_memory_stop_ends();
	cr_assert_eq(read_word(&vmm, 0x3000), 2);
	end(&vmm);
}

Test(memory_layout, pages_are_read_anew_at_every_stop_also_those_expected)
{
	struct guest_cpu cpu;
	struct vmm vmm;
	char banner[256];
	uint64_t value = 0;

	make_ram(&vmm, 64 * MIB, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	cpu = make_tables(&vmm, 0x10000, 32 * MIB);
	open_memory(&vmm);
	cr_assert_eq(memory_layout_find(&vmm.memory, 0, &cpu, 1, banner, NULL), GP_OK);
	for (uint64_t stop = 1; stop < 5; stop++) {
		/* More pages than are kept, so that some take each other's place. */
		for (uint64_t page = 0; page < 40; page++)
			put(&vmm, 0x100000 + page * 4096, stop << 32 | page);
		remote_memory_stop_begins();
		for (uint64_t page = 0; page < 40; page++)
			cr_assert_eq(read_word(&vmm, 0x100000 + page * 4096), stop << 32 | page,
				     "stop %llu", (unsigned long long)stop);
		/* What is kept stays as it was when it was read. */
		put(&vmm, 0x100000 + 39 * 4096, 0x77);
		cr_assert_eq(read_word(&vmm, 0x100000 + 39 * 4096), stop << 32 | 39);
		remote_memory_stop_ends();
	}
	/* Some of the expected are gone. */
	cr_assert_eq(munmap(vmm.ram + 0x100000 + 30 * 4096, 5 * 4096), 0);
	remote_memory_stop_begins();
	for (uint64_t page = 0; page < 40; page++)
		cr_assert_eq(guest_memory_read(&vmm.memory.memory, gpa(0x100000 + page * 4096),
					       &value, 8),
			     page < 30 || page > 34, "page %llu", (unsigned long long)page);
	cr_assert_eq(value, 0x77);
	remote_memory_stop_ends();
	end(&vmm);
}

/* Pages whose numbers have any bits alike, so that no way to spread them over slots is lucky. */
Test(memory_layout, as_many_pages_as_have_room_are_kept_wherever_they_lie)
{
	static const uint64_t strides[] = {1, 16, 17, 256, 273};
	struct guest_cpu cpu;
	struct vmm vmm;
	char banner[256];

	make_ram(&vmm, 64 * MIB, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	cpu = make_tables(&vmm, 0x10000, 32 * MIB);
	open_memory(&vmm);
	cr_assert_eq(memory_layout_find(&vmm.memory, 0, &cpu, 1, banner, NULL), GP_OK);
	for (size_t i = 0; i < sizeof(strides) / sizeof(strides[0]); i++) {
		remote_memory_stop_begins();
		for (uint64_t page = 0; page < 16; page++) {
			put(&vmm, MIB + page * strides[i] * 4096, page);
			cr_assert_eq(read_word(&vmm, MIB + page * strides[i] * 4096), page);
			put(&vmm, MIB + page * strides[i] * 4096, 0x77);
		}
		for (uint64_t page = 0; page < 16; page++)
			cr_assert_eq(read_word(&vmm, MIB + page * strides[i] * 4096), page,
				     "page %llu of every %llu", (unsigned long long)page,
				     (unsigned long long)strides[i]);
		remote_memory_stop_ends();
	}
	end(&vmm);
}

Test(memory_layout, a_page_that_was_fetched_in_vain_is_not_expected_again)
{
	struct guest_cpu cpu;
	struct vmm vmm;
	char banner[256];

	make_ram(&vmm, 64 * MIB, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	cpu = make_tables(&vmm, 0x10000, 32 * MIB);
	open_memory(&vmm);
	cr_assert_eq(memory_layout_find(&vmm.memory, 0, &cpu, 1, banner, NULL), GP_OK);
	for (uint64_t stop = 0; stop < 3; stop++) {
		remote_memory_stop_begins();
		read_word(&vmm, 0x200000);
		read_word(&vmm, 0x201000);
		if (stop == 0)
			read_word(&vmm, 0x302000);
		if (stop == 2) {
			put(&vmm, 0x302000, 0x42);
			cr_assert_eq(read_word(&vmm, 0x302000), 0x42);
		}
		remote_memory_stop_ends();
	}
	end(&vmm);
}
