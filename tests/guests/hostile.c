/* The role that attacks whoever looks at it or emulates for it. Whatever it does, the machine must
 * end with a result, in bounded time, and every tick must be accounted for. */
#include "tests/guests/guest.h"

#define PAGE 4096u
#define OUTSIDE_MEMORY 0x7000000000ull /* 448 GiB: no memory there */
#define SPIN 20000

/* Spins with a frame pointer of the guest's choice; nothing is accessed through it. */
static __attribute__((noinline)) void spin_with_frame(uintptr_t frame_pointer, uint32_t iterations)
{
#ifdef __x86_64__
	__asm__ volatile("push %%rbp\n\tmov %0, %%rbp\n"
			 "1: subl $1, %1\n\tjnz 1b\n\tpop %%rbp"
			 : "+r"(frame_pointer), "+r"(iterations)
			 :
			 : "cc", "memory");
#else
	__asm__ volatile("push %%ebp\n\tmov %0, %%ebp\n"
			 "1: subl $1, %1\n\tjnz 1b\n\tpop %%ebp"
			 : "+r"(frame_pointer), "+r"(iterations)
			 :
			 : "cc", "memory");
#endif
}

/* An address behind a call, so that the unwinder believes it. */
static uintptr_t return_address(void);
static __attribute__((noinline)) uintptr_t return_address_of_caller(void)
{
	return (uintptr_t)__builtin_return_address(0);
}
static __attribute__((noinline)) uintptr_t return_address(void)
{
	return return_address_of_caller();
}

static void frames(uint32_t rounds)
{
	volatile uintptr_t fake[8];
	uintptr_t code = return_address();
	const uintptr_t pointers[] = {
		8,
		(uintptr_t)-1,
		(uintptr_t) - sizeof(uintptr_t),
		(uintptr_t)-2 * sizeof(uintptr_t),
		(uintptr_t)1 << (sizeof(uintptr_t) * 8 - 1),
		(uintptr_t)0x00007ffffffffff8ull,
		(uintptr_t)0xd0000000u, /* a device */
		(uintptr_t)0xfee00000u, /* the local APIC */
		(uintptr_t)0xfffffff8u, /* the last word below 4 GiB */
		(uintptr_t)&fake[0],    /* points to itself */
		(uintptr_t)&fake[2],    /* the first of two that point to each other */
		(uintptr_t)&fake[0] + 1,
	};

	fake[0] = (uintptr_t)&fake[0];
	fake[1] = code;
	fake[2] = (uintptr_t)&fake[4];
	fake[3] = code;
	fake[4] = (uintptr_t)&fake[2];
	fake[5] = code;
	do
		for (unsigned i = 0; i < sizeof(pointers) / sizeof(pointers[0]); i++)
			spin_with_frame(pointers[i], SPIN);
	while (--rounds);
}

#ifdef __x86_64__
extern uint64_t level4[512];

/* Entries of the top table that lead outside memory, into devices, to themselves, or have every bit
 * set; then frame pointers that go through them. */
static void tables(uint32_t rounds)
{
	uint64_t self = (uintptr_t)level4;

	level4[1] = OUTSIDE_MEMORY | 3;
	level4[2] = 0xd0000000u | 3;
	level4[3] = self | 3;
	level4[4] = ~0ull;
	level4[5] = 0xfffffffff000ull | 3;
	level4[6] = self | 0x83; /* a large page where there can be none */
	do
		for (uint64_t slot = 1; slot <= 7; slot++)
			spin_with_frame(slot << 39 | 0x10, SPIN);
	while (--rounds);
}

/* String instructions that would transfer 2^40 items; the machine's limit ends them. */
static void strings(int in)
{
	uint64_t count = 1ull << 40;
	uintptr_t address = 0x800000; /* behind this program; it ends behind memory */

	if (in)
		__asm__ volatile("rep insb" : "+c"(count), "+D"(address) : "d"(0x60) : "memory");
	else
		__asm__ volatile("rep outsb" : "+c"(count), "+S"(address) : "d"(0x80) : "memory");
}
#endif

static void ports(void)
{
	/* These values are no reset and no power-off on any of the ports that do such things. */
	for (uint32_t port = 0; port < 0x10000; port++) {
		out8((uint16_t)port, 0x51);
		if (port % 16 == 0) {
			out32((uint16_t)port, 0xaaaaaaaa);
			in8((uint16_t)port);
		}
	}
}

/* Everything but what really powers off or resets. */
static void acpi(void)
{
	for (uint32_t value = 0; value < 256; value++) {
		out8(0x601, (uint8_t)value);
		if (value != (5 << 2 | 0x20) && (value & 0x3c) != (5 << 2 | 0x20) &&
		    !((value & 0x20) && (value >> 2 & 7) == 5))
			out8(0x600, (uint8_t)value);
		if (value != 1)
			out8(0x602, (uint8_t)value);
		out32(0x600, value << 24 | 0x00aa00);
		in8(0x600);
		in8(0x603);
	}
}

/* Virtio over MMIO, virtio 1.2, 4.2.2. */
#define DEVICE 0xd0000000u
enum {
	MAGIC = 0x000,
	DEVICE_ID = 0x008,
	DRIVER_FEATURES = 0x020,
	DRIVER_FEATURES_SELECT = 0x024,
	QUEUE_SELECT = 0x030,
	QUEUE_SIZE = 0x038,
	QUEUE_READY = 0x044,
	QUEUE_NOTIFY = 0x050,
	INTERRUPT_ACKNOWLEDGE = 0x064,
	STATUS = 0x070,
	DESCRIPTORS = 0x080,
	AVAILABLE = 0x090,
	USED = 0x0a0,
};
enum { NEXT = 1, DEVICE_WRITES = 2, INDIRECT = 4 };

struct descriptor {
	uint64_t address;
	uint32_t size;
	uint16_t flags;
	uint16_t next;
};

#define QUEUE 16
static struct descriptor table[QUEUE] __attribute__((aligned(4096)));
static volatile uint16_t available[2 + QUEUE + 1] __attribute__((aligned(4096)));
static volatile uint32_t used[1 + QUEUE * 2 + 1] __attribute__((aligned(4096)));
static uint8_t data[256];

static void set_address(uint32_t where, uint64_t address)
{
	write32(DEVICE + where, (uint32_t)address);
	write32(DEVICE + where + 4, (uint32_t)(address >> 32));
}

static void open_device(uint64_t descriptors, uint64_t avail, uint64_t use, uint32_t size)
{
	write32(DEVICE + STATUS, 0);
	write32(DEVICE + STATUS, 1);
	write32(DEVICE + STATUS, 3);
	write32(DEVICE + DRIVER_FEATURES_SELECT, 1);
	write32(DEVICE + DRIVER_FEATURES, 1); /* VERSION_1 */
	write32(DEVICE + DRIVER_FEATURES_SELECT, 0);
	write32(DEVICE + DRIVER_FEATURES, 1u << 28);
	write32(DEVICE + STATUS, 11);
	write32(DEVICE + QUEUE_SELECT, 0);
	write32(DEVICE + QUEUE_SIZE, size);
	set_address(DESCRIPTORS, descriptors);
	set_address(AVAILABLE, avail);
	set_address(USED, use);
	write32(DEVICE + QUEUE_READY, 1);
	write32(DEVICE + STATUS, 15);
}

static void open_ordinary(void)
{
	for (unsigned i = 0; i < sizeof(available) / sizeof(available[0]); i++)
		available[i] = 0;
	for (unsigned i = 0; i < sizeof(used) / sizeof(used[0]); i++)
		used[i] = 0;
	open_device((uintptr_t)table, (uintptr_t)available, (uintptr_t)used, QUEUE);
}

static void offer(uint16_t head, uint16_t index)
{
	available[2 + (uint16_t)(index - 1) % QUEUE] = head;
	available[1] = index;
	write32(DEVICE + QUEUE_NOTIFY, 0);
	COUNT_DOWN(2000); /* the device works on another thread */
}

static void put(unsigned at, uint64_t address, uint32_t size, uint16_t flags, uint16_t next)
{
	table[at].address = address;
	table[at].size = size;
	table[at].flags = flags;
	table[at].next = next;
}

static void virtio(uint32_t rounds)
{
	if (read32(DEVICE + MAGIC) != 0x74726976)
		print("no virtio device\n");
	do {
		/* One good buffer, so that the rest is not tried on a dead device. */
		open_ordinary();
		put(0, (uintptr_t)data, sizeof(data), DEVICE_WRITES, 0);
		offer(0, 1);
		/* An index that jumps over more than the queue has. */
		open_ordinary();
		offer(0, 0x8000);
		/* A chain that closes on itself, one longer than the queue by a loop of two. */
		open_ordinary();
		put(0, (uintptr_t)data, 16, NEXT | DEVICE_WRITES, 0);
		offer(0, 1);
		open_ordinary();
		put(0, (uintptr_t)data, 16, NEXT | DEVICE_WRITES, 1);
		put(1, (uintptr_t)data, 16, NEXT | DEVICE_WRITES, 0);
		offer(0, 1);
		/* Heads and links that are no descriptors. */
		open_ordinary();
		offer(0xffff, 1);
		open_ordinary();
		put(0, (uintptr_t)data, 16, NEXT | DEVICE_WRITES, 0x4000);
		offer(0, 1);
		/* Buffers outside memory, around its end, around the end of addresses. */
		open_ordinary();
		put(0, OUTSIDE_MEMORY, 4096, DEVICE_WRITES, 0);
		offer(0, 1);
		open_ordinary();
		put(0, ~0ull - 8, 0xffffffff, DEVICE_WRITES, 0);
		offer(0, 1);
		open_ordinary();
		put(0, 0xd0000000u, 64, DEVICE_WRITES, 0); /* a device as a buffer */
		offer(0, 1);
		/* Indirect tables: of odd size, in themselves, outside. */
		open_ordinary();
		put(0, (uintptr_t)table, 17, INDIRECT, 0);
		offer(0, 1);
		open_ordinary();
		put(0, (uintptr_t)table, sizeof(table), INDIRECT, 0);
		offer(0, 1);
		open_ordinary();
		put(0, OUTSIDE_MEMORY, 0x10000000, INDIRECT | NEXT, 0);
		offer(0, 1);
		/* Rings outside memory, not aligned, of size 0 and not a power of two. */
		open_device(OUTSIDE_MEMORY, OUTSIDE_MEMORY, OUTSIDE_MEMORY, QUEUE);
		write32(DEVICE + QUEUE_NOTIFY, 0);
		open_device((uintptr_t)table + 1, (uintptr_t)available + 1, (uintptr_t)used + 1,
			    QUEUE);
		write32(DEVICE + QUEUE_NOTIFY, 0);
		open_device((uintptr_t)table, (uintptr_t)available, (uintptr_t)used, 0);
		write32(DEVICE + QUEUE_NOTIFY, 0);
		open_device((uintptr_t)table, (uintptr_t)available, (uintptr_t)used, 0xffff);
		write32(DEVICE + QUEUE_NOTIFY, 0);
		/* A reset in the middle, queues that are not there, odd accesses. */
		open_ordinary();
		put(0, (uintptr_t)data, sizeof(data), DEVICE_WRITES, 0);
		available[2] = 0;
		available[1] = 1;
		write32(DEVICE + QUEUE_NOTIFY, 0);
		write32(DEVICE + STATUS, 0);
		write32(DEVICE + QUEUE_NOTIFY, 0);
		write32(DEVICE + QUEUE_SELECT, 0xffffffff);
		write32(DEVICE + QUEUE_READY, 1);
		write32(DEVICE + QUEUE_NOTIFY, 0xffffffff);
		for (uint32_t offset = 0; offset < PAGE; offset += 4) {
			if (offset != STATUS)
				write32(DEVICE + offset, 0xffffffff);
			read32(DEVICE + offset);
			*(volatile uint8_t *)(uintptr_t)(DEVICE + offset + 1) = 0xff;
		}
		/* Slots that are not there, and the hole. */
		for (uint32_t slot = 1; slot < 40; slot++)
			write32(DEVICE + slot * PAGE + QUEUE_NOTIFY, read32(DEVICE + slot * PAGE));
	} while (--rounds);
	/* It still works for a driver that behaves. */
	open_ordinary();
	put(0, (uintptr_t)data, sizeof(data), DEVICE_WRITES, 0);
	offer(0, 1);
	for (uint32_t i = 0; i < 100000 && !used[0]; i++)
		__asm__ volatile("pause");
	print(used[0] ? "device works\n" : "device is dead\n");
}

void run_hostile(const char *how, uint32_t rounds)
{
	(void)how;
	if (!rounds)
		rounds = 1;
	if (option_is("how", "frames"))
		frames(rounds);
	else if (option_is("how", "ports"))
		ports();
	else if (option_is("how", "acpi"))
		acpi();
	else if (option_is("how", "virtio"))
		virtio(rounds);
#ifdef __x86_64__
	else if (option_is("how", "tables"))
		tables(rounds);
	else if (option_is("how", "strings-in"))
		strings(1);
	else if (option_is("how", "strings-out"))
		strings(0);
#endif
	else
		print("not that role\n");
}
