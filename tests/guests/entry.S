/* Entry of the tiny guests: PVH, then one of five addressing modes, chosen when it is built.
 *
 *   GUEST_LEVELS 5, 4  long mode, 64-bit code, 2 MiB pages
 *   GUEST_LEVELS 3     PAE, 32-bit code, 2 MiB pages
 *   GUEST_LEVELS 2     32-bit paging, 4 MiB pages
 *   GUEST_LEVELS 0     no paging at all
 *
 * Linear is physical in each. Other CPUs come through ap_start in real mode. Every stack ends with a
 * frame pointer of 0 and the functions here, which keep none, call only from such a root.
 */
#define CODE32 0x08
#define DATA 0x10
#define CODE64 0x18

#define CR0_PE 0x1
#define CR0_PG 0x80000000
#define CR4_PSE 0x10
#define CR4_PAE 0x20
#define CR4_LA57 0x1000
#define MSR_EFER 0xc0000080
#define EFER_LME 0x100

#define PRESENT_WRITABLE 0x3
#define LARGE 0x80
#define STACK_BYTES 16384
#define STACK_SHIFT 14
/* GiB mapped one to one; in long mode enough to reach above the hole. */
#if GUEST_LEVELS >= 4
#define DIRECTORIES 8
#else
#define DIRECTORIES 4
#endif
#define LOCAL_APIC_ID 0xfee00020

/* XEN_ELFNOTE_PHYS32_ENTRY, xen/include/public/elfnote.h */
	.section .note.pvh, "a", @note
	.balign 4
	.long 4, 4, 18
	.asciz "Xen"
	.long pvh_start

	.text
	.code32
	.globl pvh_start
	.type pvh_start, @function
pvh_start:
	cld
	movl %ebx, boot_parameters
	lgdtl gdt_pointer
	ljmpl $CODE32, $1f
1:	movl $DATA, %eax
	movl %eax, %ds
	movl %eax, %es
	movl %eax, %ss
	movl %eax, %fs
	movl %eax, %gs
	xorl %ebp, %ebp
#if GUEST_LEVELS == 5
	/* Leaf 7, ECX bit 16: LA57. */
	xorl %eax, %eax
	cpuid
	cmpl $7, %eax
	jb no_la57
	movl $7, %eax
	xorl %ecx, %ecx
	cpuid
	testl $0x10000, %ecx
	jz no_la57
#endif
#if GUEST_LEVELS >= 3
	/* Page directories: large pages, one after the other. */
	movl $directories, %edi
	movl $(PRESENT_WRITABLE | LARGE), %eax
	xorl %edx, %edx
	movl $(DIRECTORIES * 512), %ecx
2:	movl %eax, (%edi)
	movl %edx, 4(%edi)
	addl $0x200000, %eax
	adcl $0, %edx
	addl $8, %edi
	subl $1, %ecx
	jnz 2b
	movl $pointers, %edi
#if GUEST_LEVELS == 3
	/* PAE's four top entries know no write bit. */
	movl $(directories + 1), %eax
#else
	movl $(directories + PRESENT_WRITABLE), %eax
#endif
	movl $DIRECTORIES, %ecx
3:	movl %eax, (%edi)
	addl $4096, %eax
	addl $8, %edi
	subl $1, %ecx
	jnz 3b
#if GUEST_LEVELS >= 4
	movl $(pointers + PRESENT_WRITABLE), level4
#endif
#if GUEST_LEVELS == 5
	movl $(level4 + PRESENT_WRITABLE), level5
#endif
#elif GUEST_LEVELS == 2
	movl $directories, %edi
	movl $(PRESENT_WRITABLE | LARGE), %eax
	movl $1024, %ecx
2:	movl %eax, (%edi)
	addl $0x400000, %eax
	addl $4, %edi
	subl $1, %ecx
	jnz 2b
#endif
	xorl %esi, %esi /* CPU 0's stack */
	movl $guest_main, %edi
	jmp enter_mode
	.size pvh_start, . - pvh_start

#if GUEST_LEVELS == 5
/* Says so and powers off. */
	.type no_la57, @function
no_la57:
	movl $no_la57_text, %esi
	movw $0x3f8, %dx
1:	movb (%esi), %al
	outb %al, %dx
	addl $1, %esi
	cmpb $10, %al
	jne 1b
	movw $0x600, %dx
	movb $0x34, %al
	outb %al, %dx
2:	hlt
	jmp 2b
	.size no_la57, . - no_la57
#endif

/* All CPUs: 32-bit code, paging off. ESI: CPU number, EDI: function to run. */
	.type enter_mode, @function
enter_mode:
#if GUEST_LEVELS == 5
	movl $(CR4_PAE | CR4_LA57), %eax
	movl %eax, %cr4
	movl $level5, %eax
#elif GUEST_LEVELS == 4
	movl $CR4_PAE, %eax
	movl %eax, %cr4
	movl $level4, %eax
#elif GUEST_LEVELS == 3
	movl $CR4_PAE, %eax
	movl %eax, %cr4
	movl $pointers, %eax
#elif GUEST_LEVELS == 2
	movl $CR4_PSE, %eax
	movl %eax, %cr4
	movl $directories, %eax
#endif
#if GUEST_LEVELS
	movl %eax, %cr3
#if GUEST_LEVELS >= 4
	movl $MSR_EFER, %ecx
	movl $EFER_LME, %eax
	xorl %edx, %edx
	wrmsr
#endif
	movl %cr0, %eax
	orl $CR0_PG, %eax
	movl %eax, %cr0
#endif
	movl %esi, %esp
	addl $1, %esp
	shll $STACK_SHIFT, %esp
	addl $stacks, %esp
#if GUEST_LEVELS >= 4
	ljmpl $CODE64, $guest_start
	.size enter_mode, . - enter_mode
	.code64
#else
	jmp guest_start
	.size enter_mode, . - enter_mode
#endif

/* The root of every stack. */
	.type guest_start, @function
guest_start:
#if GUEST_LEVELS >= 4
	xorl %ebp, %ebp
	movl %edi, %eax
	movl %esi, %edi
	call *%rax
#else
	xorl %ebp, %ebp
	subl $8, %esp
	pushl %esi
	call *%edi
#endif
1:	cli
	hlt
	jmp 1b
	.size guest_start, . - guest_start

/* Real mode; copied below 1 MiB by the first CPU, so it may only use what it finds relative to CS
 * until it is in protected mode. */
	.code16
	.globl ap_start, ap_start_end
	.type ap_start, @function
ap_start:
	cli
	movw %cs, %ax
	movw %ax, %ds
	lgdtl ap_gdt_pointer - ap_start
	movl %cr0, %eax
	/* Caching on, as INIT leaves it off. */
	andl $0x9fffffff, %eax
	orl $CR0_PE, %eax
	movl %eax, %cr0
	ljmpl $CODE32, $ap_protected
	.balign 4
ap_gdt_pointer:
	.word gdt_end - gdt - 1
	.long gdt
ap_start_end:
	.size ap_start, . - ap_start
	.balign 16 /* an address of its own for what follows: names are looked up by it */

	.code32
	.type ap_protected, @function
ap_protected:
	movl $DATA, %eax
	movl %eax, %ds
	movl %eax, %es
	movl %eax, %ss
	xorl %ebp, %ebp
	movl LOCAL_APIC_ID, %esi
	shrl $24, %esi
	andl $3, %esi /* there are four stacks */
	movl $ap_main, %edi
	jmp enter_mode
	.size ap_protected, . - ap_protected

	.section .rodata
no_la57_text:
	.ascii "no la57\n"
	.balign 8
gdt:
	.quad 0
	.quad 0x00cf9b000000ffff /* flat 32-bit code */
	.quad 0x00cf93000000ffff /* flat data */
	.quad 0x00af9b000000ffff /* 64-bit code */
gdt_end:
gdt_pointer:
	.word gdt_end - gdt - 1
	.long gdt

	.bss
	.balign 4096
directories:
	.skip DIRECTORIES * 4096
pointers:
	.skip 4096
	.globl level4
level4:
	.skip 4096
level5:
	.skip 4096
stacks:
	.skip 4 * STACK_BYTES
	.globl boot_parameters
boot_parameters:
	.long 0

	.section .note.GNU-stack, "", @progbits
