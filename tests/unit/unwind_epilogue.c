/* The return ahead of interrupted code: what is followed, and what is not believed. */
#include "guest-introspection/unwind/unwind_epilogue.h"
#include "tests/buffer_memory.h"

#include <criterion/criterion.h>

#define SIZE (UINT64_C(1) << 16)
#define CODE UINT64_C(0x8000)

static uint8_t bytes[SIZE];
static struct buffer_memory memory;
static struct unwind_context context;

static void setup(void)
{
	memory = buffer_memory_over(bytes, SIZE);
	context = (struct unwind_context){.memory = &memory.memory,
					  .space = {.mode = ADDRESSING_PROTECTED},
					  .word = 8,
					  .pc = CODE};
	memset(bytes + CODE, 0xcc, 0x1000);
}

TestSuite(unwind_epilogue, .init = setup);

struct sequence {
	const char *code;
	unsigned size;
	int return_address; /* -1: nothing is known */
	int frame_pointer;  /* -1: not on the stack */
};

static void check(const struct sequence *sequences, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct unwind_epilogue epilogue = {.return_address = 99};
		bool found;

		memset(bytes + CODE, 0xcc, 0x100);
		memcpy(bytes + CODE, sequences[i].code, sequences[i].size);
		found = unwind_find_epilogue(&context, &epilogue);
		cr_assert_eq(found, sequences[i].return_address >= 0, "sequence %zu", i);
		if (!found) {
			cr_assert_eq(epilogue.return_address, 99, "sequence %zu", i);
			continue;
		}
		cr_assert_eq((int)epilogue.return_address, sequences[i].return_address,
			     "sequence %zu: %u", i, epilogue.return_address);
		cr_assert_eq(epilogue.frame_pointer_saved, sequences[i].frame_pointer >= 0);
		if (epilogue.frame_pointer_saved)
			cr_assert_eq((int)epilogue.frame_pointer, sequences[i].frame_pointer);
	}
}

#define CHECK(sequences) check(sequences, sizeof(sequences) / sizeof((sequences)[0]))

Test(unwind_epilogue, leaves_of_64_bit_code)
{
	static const struct sequence sequences[] = {
		{"\xc3", 1, 0, -1},
		{"\xf3\xc3", 2, 0, -1},
		{"\xc2\x10\x00", 3, 0, -1},
		/* behind a system call: cmp $-4096, %rax; ja; ret */
		{"\x48\x3d\x00\xf0\xff\xff\x77\x01\xc3", 9, 0, -1},
		/* syscall itself ahead */
		{"\xb8\x27\x00\x00\x00\x0f\x05\xc3", 8, 0, -1},
		/* mov (%rsi), %rax; mov %rax, (%rdi); lea 8(%rdi), %rax; ret */
		{"\x48\x8b\x06\x48\x89\x07\x48\x8d\x47\x08\xc3", 11, 0, -1},
		/* vmovdqu (%rsi), %ymm0; vmovdqu %ymm0, -0x20(%rdi,%rdx); vzeroupper; ret */
		{"\xc5\xfe\x6f\x06\xc5\xfe\x7f\x44\x17\xe0\xc5\xf8\x77\xc3", 14, 0, -1},
		/* vpcmpeqb (%rdi), %ymm0, %ymm1; vpmovmskb %ymm1, %eax; ret */
		{"\xc5\xfd\x74\x0f\xc5\xfd\xd7\xc1\xc3", 9, 0, -1},
		/* EVEX: vmovdqu64 (%rsi), %zmm16; ret */
		{"\x62\xe1\xfe\x48\x6f\x06\xc3", 7, 0, -1},
		/* mov 0x1234(%rip), %rax; mov %fs:(%rax), %eax; ret */
		{"\x48\x8b\x05\x34\x12\x00\x00\x64\x8b\x00\xc3", 11, 0, -1},
		/* movabs; test; setne; movzbl; ret */
		{"\x48\xb8\1\2\3\4\5\6\7\x08\x48\x85\xc0\x0f\x95\xc0\x0f\xb6\xc0\xc3", 20, 0, -1},
		/* jmp over 3 bytes */
		{"\xeb\x03\xcc\xcc\xcc\xc3", 6, 0, -1},
		{"\xe9\x03\x00\x00\x00\xcc\xcc\xcc\xc3", 9, 0, -1},
	};

	CHECK(sequences);
}

Test(unwind_epilogue, what_is_taken_off_first_is_counted)
{
	static const struct sequence sequences[] = {
		{"\x48\x83\xc4\x08\xc3", 5, 8, -1},                 /* add $8, %rsp */
		{"\x48\x81\xc4\x00\x01\x00\x00\xc3", 8, 0x100, -1}, /* add $0x100, %rsp */
		{"\x5b\xc3", 2, 8, -1},                             /* pop %rbx */
		{"\x48\x83\xc4\x18\x5b\x5d\x41\x5c\xc3", 9, 0x30,
		 0x20},                     /* ... pop %rbp; pop %r12 */
		{"\x41\x5d\xc3", 3, 8, -1}, /* r13, not rbp */
		{"\x5d\xc3", 2, 8, 0},
	};

	CHECK(sequences);
}

Test(unwind_epilogue, what_is_not_understood_says_nothing)
{
	static const struct sequence sequences[] = {
		{"\xe8\x00\x00\x00\x00\xc3", 6, -1, -1}, /* call */
		{"\xff\xd0\xc3", 3, -1, -1},             /* call *%rax */
		{"\xff\xe0\xc3", 3, -1, -1},             /* jmp *%rax */
		{"\x50\xc3", 2, -1, -1},                 /* push */
		{"\xff\x30\xc3", 3, -1, -1},             /* push (%rax) */
		{"\xc9\xc3", 2, -1, -1},                 /* leave */
		{"\x48\x83\xec\x08\xc3", 5, -1, -1},     /* sub $8, %rsp */
		{"\x48\x83\xc4\xf8\xc3", 5, -1, -1},     /* add $-8, %rsp */
		{"\x48\x83\xc4\x04\xc3", 5, -1, -1},     /* add $4, %rsp */
		{"\x48\x89\xec\xc3", 4, -1, -1},         /* mov %rbp, %rsp */
		{"\x48\x8d\x65\xf0\xc3", 5, -1, -1},     /* lea -0x10(%rbp), %rsp */
		{"\x48\x89\xc5\xc3", 4, -1, -1},         /* mov %rax, %rbp */
		{"\x48\x8b\x2f\xc3", 4, -1, -1},         /* mov (%rdi), %rbp */
		{"\xbd\x01\x00\x00\x00\xc3", 6, -1, -1}, /* mov $1, %ebp */
		{"\x31\xed\xc3", 3, -1, -1},             /* xor %ebp, %ebp */
		{"\x48\xff\xc5\xc3", 4, -1, -1},         /* inc %rbp */
		{"\x5d\x5d\xc3", 3, -1, -1},             /* pop %rbp twice */
		{"\x5c\xc3", 2, -1, -1},                 /* pop %rsp */
		{"\x0f\x0b\xc3", 3, -1, -1},             /* ud2 */
		{"\xcc", 1, -1, -1},                     /* int3 */
		{"\xeb\xfe", 2, -1, -1},                 /* a loop */
		{"\xf4\xc3", 2, -1, -1},                 /* hlt */
		{"\x67\x8b\x00\xc3", 4, -1, -1},         /* another address size */
	};

	CHECK(sequences);
}

Test(unwind_epilogue, a_long_way_is_not_gone)
{
	struct unwind_epilogue epilogue;

	memset(bytes + CODE, 0x90, 0x100);
	bytes[CODE + 20] = 0xc3;
	cr_assert(unwind_find_epilogue(&context, &epilogue));
	memset(bytes + CODE, 0x90, 0x100);
	bytes[CODE + 0xf0] = 0xc3;
	cr_assert_not(unwind_find_epilogue(&context, &epilogue));
}

Test(unwind_epilogue, code_of_32_bits)
{
	static const struct sequence sequences[] = {
		/* __kernel_vsyscall: pop %ebp; pop %edx; pop %ecx; ret */
		{"\x5d\x5a\x59\xc3", 4, 12, 0},
		{"\x83\xc4\x0c\x5b\xc3", 5, 16, -1},
		{"\x3d\x00\xf0\xff\xff\x77\x01\xc3", 8, 0, -1},
		{"\x48\xc3", 2, -1, -1},             /* dec %eax: not known, no prefix */
		{"\xc5\xfe\x6f\x06\xc3", 5, -1, -1}, /* lds there */
	};

	context.word = 4;
	CHECK(sequences);
}

Test(unwind_epilogue, the_end_of_memory_is_the_end)
{
	struct unwind_epilogue epilogue;

	context.pc = SIZE - 3;
	memcpy(bytes + SIZE - 3, "\x90\x90\xc3", 3);
	context.space = (struct address_space){.mode = ADDRESSING_PROTECTED};
	cr_assert(unwind_find_epilogue(&context, &epilogue));
	memcpy(bytes + SIZE - 3, "\x90\x48\x3d", 3);
	cr_assert_not(unwind_find_epilogue(&context, &epilogue));
	context.pc = SIZE;
	cr_assert_not(unwind_find_epilogue(&context, &epilogue));
}
