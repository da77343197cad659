/* Tasks and modules of a memory image that were not running, and what the guest says of their
 * stacks. A plain walk over the kernel's lists, apart from the code that is tested. */
#ifndef TESTS_IMAGE_TASKS_H
#define TESTS_IMAGE_TASKS_H

#include "guest-introspection/elf/btf.h"
#include "guest-introspection/linux/kallsyms.h"
#include "guest-introspection/linux/linux_kernel.h"
#include "guest-introspection/linux/linux_stack.h"
#include "tests/sleeping_task.h"
#include "tests/image_memory.h"

#include <inttypes.h>

struct image_kernel {
	struct image image;
	struct linux_kernel kernel;
	struct symbol_table symbols;
	struct btf *btf;
	struct linux_stack *stack;
	unsigned modules;
};

static inline bool image_read(const struct image_kernel *self, uint64_t address, void *buffer,
			      size_t size)
{
	return guest_read_virtual(&self->kernel.space, NULL, &self->image.memory.memory,
				  gva(address), buffer, size) == TRANSLATE_OK;
}

static inline uint64_t image_word(const struct image_kernel *self, uint64_t address, size_t size)
{
	uint64_t value = 0;

	image_read(self, address, &value, size);
	return value;
}

/* Offset of a member; a program that asks for one that is not there ends. */
static inline uint32_t image_offset(const struct image_kernel *self, const char *structure,
				    const char *member)
{
	struct btf_member found;

	if (!btf_find_member(self->btf, structure, member, &found)) {
		fprintf(stderr, "BTF has no %s.%s\n", structure, member);
		abort();
	}
	return found.offset;
}

static inline uint64_t image_symbol(const struct image_kernel *self, const char *name)
{
	struct symbol symbol;

	return symbol_table_find_name(&self->symbols, name, &symbol) ? symbol.start : 0;
}

static inline void image_add_modules(struct image_kernel *self)
{
	uint64_t head = image_symbol(self, "modules");
	uint32_t list = image_offset(self, "module", "list");
	uint32_t places = image_offset(self, "module", "arch.orc_unwind_ip");
	uint32_t entries = image_offset(self, "module", "arch.orc_unwind");
	uint32_t count = image_offset(self, "module", "arch.num_orcs");
	struct btf_member text;
	bool layout = btf_find_member(self->btf, "module", "core_layout", &text);
	uint64_t node = image_word(self, head, 8);

	if (!layout && !btf_find_member(self->btf, "module", "mem", &text))
		abort();
	for (unsigned i = 0; i < 1000 && node && node != head; i++) {
		uint64_t module = node - list;
		struct orc_module orc = {
			.addresses = image_word(self, module + places, 8),
			.entries = image_word(self, module + entries, 8),
			.count = (uint32_t)image_word(self, module + count, 4),
			.text_start = image_word(self, module + text.offset, 8),
			.text_size = image_word(
				self,
				module + text.offset +
					image_offset(self,
						     layout ? "module_layout" : "module_memory",
						     layout ? "text_size" : "size"),
				4),
		};
		struct error error = {0};

		if (linux_stack_add_module(self->stack, &self->image.memory.memory, &orc, &error) ==
		    GP_OK)
			self->modules++;
		else
			fprintf(stderr, "module: %s\n", error.text);
		node = image_word(self, node, 8);
	}
}

static inline void image_kernel_close(struct image_kernel *self)
{
	linux_stack_destroy(self->stack);
	btf_destroy(self->btf);
	symbol_table_deinit(&self->symbols);
	image_close(&self->image);
}

/* Everything but modules. `error` says what failed. */
static inline bool image_kernel_prepare(struct image_kernel *self, struct error *error)
{
	const struct guest_memory *memory = &self->image.memory.memory;
	struct error note;

	if (linux_kernel_find(memory, self->image.cpus, self->image.cpu_count, &self->kernel,
			      error) != GP_OK ||
	    linux_kallsyms_read(memory, &self->kernel, &self->symbols, error) != GP_OK ||
	    linux_btf_read(memory, &self->kernel, &self->symbols, &self->btf, error) != GP_OK ||
	    linux_stack_create(memory, &self->kernel, &self->symbols, &self->stack, &note, error) !=
		    GP_OK)
		return false;
	if (note.text[0])
		fprintf(stderr, "%s\n", note.text);
	return true;
}

static inline bool image_kernel_open(struct image_kernel *self, const char *name,
				     struct error *error)
{
	memset(self, 0, sizeof(*self));
	if (!image_open(&self->image, name) || !image_kernel_prepare(self, error))
		return false;
	image_add_modules(self);
	return true;
}

/* Finds the task_struct of thread `tid`; 0: none. */
static inline uint64_t image_find_task(const struct image_kernel *self, unsigned tid)
{
	uint32_t tasks = image_offset(self, "task_struct", "tasks");
	uint32_t pid = image_offset(self, "task_struct", "pid");
	uint32_t signal = image_offset(self, "task_struct", "signal");
	uint32_t thread_node = image_offset(self, "task_struct", "thread_node");
	uint32_t thread_head = image_offset(self, "signal_struct", "thread_head");
	uint64_t init = image_symbol(self, "init_task");
	uint64_t task = init;

	for (unsigned i = 0; i < 10000; i++) {
		uint64_t head = image_word(self, task + signal, 8) + thread_head;
		uint64_t node = image_word(self, head, 8);

		for (unsigned k = 0; k < 10000 && node && node != head; k++) {
			if (image_word(self, node - thread_node + pid, 4) == tid)
				return node - thread_node;
			node = image_word(self, node, 8);
		}
		task = image_word(self, task + tasks, 8) - tasks;
		if (task == init)
			break;
	}
	return 0;
}

/* The registers of a task that is not running. */
static inline bool image_task_registers(const struct image_kernel *self, uint64_t task,
					struct guest_cpu *cpu)
{
	uint64_t mm = image_word(self, task + image_offset(self, "task_struct", "mm"), 8);
	uint64_t sp = image_word(self, task + image_offset(self, "task_struct", "thread.sp"), 8);
	uint64_t root = 0;
	struct translation translation;

	if (mm) {
		uint64_t pgd = image_word(self, mm + image_offset(self, "mm_struct", "pgd"), 8);

		if (guest_translate(&self->kernel.space, &self->image.memory.memory, gva(pgd),
				    &translation) != TRANSLATE_OK)
			return false;
		root = translation.gpa.value;
	}
	return linux_sleeping_task_registers(&self->image.memory.memory, &self->kernel, sp, root,
					     cpu);
}

#endif
