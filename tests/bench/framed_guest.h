/* A guest that stands still, in a buffer: for benchmarks that need no machine. */
#ifndef TESTS_BENCH_FRAMED_GUEST_H
#define TESTS_BENCH_FRAMED_GUEST_H

#include "guest-introspection/x86/guest_cpu.h"
#include "guest-introspection/x86/translate.h"
#include "tests/buffer_memory.h"

#include <stdlib.h>

#define GUEST_SIZE (UINT64_C(4) << 20)
#define ROOT UINT64_C(0x1000)
#define OFFSET UINT64_C(0xffffffff80000000)
#define CODE UINT64_C(0x100000)
#define STACK UINT64_C(0x80000)

/* A guest of our own with one stack of `frames` frames, by frame pointers. */
struct framed_guest {
	uint8_t *bytes;
	struct buffer_memory memory;
	struct guest_cpu cpu;
};

static inline void framed_guest_init(struct framed_guest *guest, unsigned frames)
{
	uint8_t *bytes = calloc(1, GUEST_SIZE);
	struct buffer_memory *memory = &guest->memory;

	if (!bytes)
		abort();
	guest->bytes = bytes;
	*memory = buffer_memory_over(bytes, GUEST_SIZE);
	guest->cpu = (struct guest_cpu){.cr0 = X86_CR0_PROTECTED | X86_CR0_PAGING,
					.cr3 = ROOT,
					.cr4 = X86_CR4_PAE,
					.efer = X86_EFER_LONG_MODE_ACTIVE | X86_EFER_NO_EXECUTE,
					.cs = {.long_mode = true}};
	memory->next_table = 0x2000;
	/* Text in 4 KiB pages spread over 1 MiB, a stack of four pages. */
	for (uint64_t page = 0; page < 1 << 20; page += 4096)
		buffer_map(memory, ROOT, 4, OFFSET + CODE + page, (CODE + page) | PAGE_PRESENT, 1);
	for (uint64_t page = 0; page < 4 * 4096; page += 4096)
		buffer_map(memory, ROOT, 4, OFFSET + STACK + page,
			   (STACK + page) | PAGE_PRESENT | PAGE_WRITABLE | PAGE_NO_EXECUTE, 1);
	guest->cpu.rip = OFFSET + CODE + 0x800;
	guest->cpu.gpr[GUEST_RSP] = OFFSET + STACK;
	guest->cpu.gpr[GUEST_RBP] = OFFSET + STACK + 0x20;
	for (unsigned i = 0; i + 1 < frames; i++) {
		uint64_t at = STACK + 0x20 + i * 0x80;
		uint64_t code = CODE + (i * 37 % 256) * 4096 + 0x100;

		bytes[code] = 0xe8;
		buffer_put(memory, at, i + 2 < frames ? OFFSET + at + 0x80 : 0, 8);
		buffer_put(memory, at + 8, OFFSET + code + 5, 8);
	}
}

#endif
