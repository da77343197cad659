/* Finds a Linux kernel from registers and guest memory alone, wherever KASLR put it, and its types.
 *
 * The way: the page tables of a vCPU, an interrupt handler of its IDT (or its RIP) in the
 * kernel's 1 GiB, the run of present 2 MiB entries around it. With page-table isolation a
 * vCPU in user mode has a CR3 that maps little more than the entry code; the kernel's own
 * tables are the same address with bit 12 clear (arch/x86/entry/calling.h), so both are tried.
 */
#ifndef GUEST_INTROSPECTION_LINUX_LINUX_KERNEL_H
#define GUEST_INTROSPECTION_LINUX_LINUX_KERNEL_H

#include "base/error.h"
#include "guest-introspection/elf/btf.h"
#include "guest-introspection/elf/symbol_table.h"
#include "guest-introspection/x86/guest_cpu.h"
#include "guest-introspection/x86/guest_memory.h"
#include "guest-introspection/x86/translate.h"

#include <stdint.h>

struct linux_kernel {
	uint64_t text_base; /* `_text`: linear, a multiple of 2 MiB */
	uint64_t text_end;  /* the first page after it that is no code, or is not there */
	uint64_t image_end; /* behind the last 2 MiB that belong to the image */
	/* The kernel's own address space. Its root is swapper_pg_dir where that is in use
	 * already, so that it outlives every process. */
	struct address_space space;
	char banner[256]; /* "Linux version 6.1.0 ...", one line, cut when longer */
};

/* Looks through the page tables of `count` vCPUs; their registers need not be of the same
 * moment. GP_ERR_NOT_FOUND, cheap, when there is no Linux kernel (yet). Allocates nothing.
 * While the kernel boots, `out` may hold page tables that only boot uses: ask again before
 * each use that is far away in time. Any thread; the guest may run meanwhile. */
gp_status_t linux_kernel_find(const struct guest_memory *memory, const struct guest_cpu *cpus,
			      unsigned count, struct linux_kernel *out, struct error *error);

/* Reads the BTF of `kernel`: between the symbols __start_BTF and __stop_BTF, or, where `symbols`
 * (may be NULL) has none of them, found by its header in the kernel's image. GP_ERR_NOT_FOUND when
 * there is none (built without CONFIG_DEBUG_INFO_BTF) or it is damaged, GP_ERR_NO_MEMORY. `*out` is
 * untouched on failure. The guest may run meanwhile; what is parsed is a copy. */
gp_status_t linux_btf_read(const struct guest_memory *memory, const struct linux_kernel *kernel,
			   const struct symbol_table *symbols, struct btf **out,
			   struct error *error);

#endif
