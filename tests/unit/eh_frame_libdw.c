/* The rules read from .eh_frame, every row of them, against what libdw reads of the same files. */
#include "base/container.h"
#include "guest-introspection/elf/eh_frame.h"
#include "tests/image_memory.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

static const unsigned dwarf_numbers[GUEST_REGISTER_COUNT] = {0, 2, 1,  3,  7,  6,  4,  5,
							     8, 9, 10, 11, 12, 13, 14, 15};
static const enum guest_register preserved[] = {GUEST_RBX, GUEST_RBP, GUEST_R12,
						GUEST_R13, GUEST_R14, GUEST_R15};

struct comparison {
	const struct eh_frame *table;
	uint64_t rows;
	uint64_t equal;
	uint64_t explained; /* a rule that is not followed */
	uint64_t gaps;
};

/* A register and an offset, of an expression that is no more than that. */
static bool is_sum(const Dwarf_Op *ops, size_t count, unsigned *number, int64_t *offset)
{
	if (count == 0)
		return false;
	if (ops[0].atom >= DW_OP_breg0 && ops[0].atom <= DW_OP_breg31) {
		*number = ops[0].atom - DW_OP_breg0;
		*offset = (int64_t)ops[0].number;
	} else if (ops[0].atom == DW_OP_bregx) {
		*number = (unsigned)ops[0].number;
		*offset = (int64_t)ops[0].number2;
	} else {
		return false;
	}
	return true;
}

static bool cfa_equals(const struct eh_frame_rule *rule, const Dwarf_Op *ops, size_t count)
{
	unsigned number;
	int64_t offset;

	if (!is_sum(ops, count, &number, &offset))
		return false;
	if (rule->kind == EH_FRAME_LINKAGE)
		return count == 9 && number == 7 && offset == rule->offset &&
		       ops[4].atom == DW_OP_lit0 + rule->threshold;
	if (rule->kind == EH_FRAME_SIGNAL)
		return count == 2 && ops[1].atom == DW_OP_deref && offset == rule->at[GUEST_RSP];
	if (number != dwarf_numbers[rule->base] || offset != rule->offset)
		return false;
	if (!rule->dereference)
		return count == 1;
	return ops[1].atom == DW_OP_deref &&
	       (count == 2 ? rule->offset_after == 0
			   : count == 3 && ops[2].atom == DW_OP_plus_uconst &&
				     (int64_t)ops[2].number == rule->offset_after);
}

/* Whether `ops` say "stored at the CFA + offset", or, of a register's own base, at that + offset.
 */
static bool place_equals(const Dwarf_Op *ops, size_t count, bool from_base, unsigned base,
			 int64_t expected)
{
	unsigned number;
	int64_t offset = 0;

	/* Such an expression begins with the CFA on its stack. */
	if (from_base)
		return count == 2 && ops[0].atom == DW_OP_call_frame_cfa &&
		       is_sum(ops + 1, 1, &number, &offset) && number == base && offset == expected;
	if (count == 2 && ops[1].atom == DW_OP_plus_uconst)
		offset = (int64_t)ops[1].number;
	else if (count != 1)
		return false;
	return ops[0].atom == DW_OP_call_frame_cfa && offset == expected;
}

static bool registers_equal(const struct eh_frame_rule *rule, Dwarf_Frame *frame)
{
	bool signal = rule->kind == EH_FRAME_SIGNAL;
	Dwarf_Op memory[3];
	Dwarf_Op *ops;
	size_t count;

	cr_assert_eq(dwarf_frame_register(frame, 16, memory, &ops, &count), 0);
	if (!place_equals(ops, count, signal, dwarf_numbers[rule->base], rule->return_address))
		return false;
	for (unsigned i = 0; i < ARRAY_SIZE(preserved); i++) {
		unsigned bit = 1u << preserved[i];

		cr_assert_eq(dwarf_frame_register(frame, (int)dwarf_numbers[preserved[i]], memory,
						  &ops, &count),
			     0);
		/* libdw 0.188 takes column 0 for rbx, where nothing is said of it (backends/
		 * x86_64_cfi.c): the ABI says preserved, and rax is not. */
		if (count == 0 && (ops == NULL || preserved[i] == GUEST_RBX)) {
			if (!(rule->preserved & bit))
				return false;
		} else if (rule->saved & bit) {
			if (!place_equals(ops, count, signal || rule->from_base & bit,
					  dwarf_numbers[rule->base], rule->at[preserved[i]]))
				return false;
		} else if (rule->preserved & bit) {
			return false;
		} else if (count == 1 && ops[0].atom == DW_OP_call_frame_cfa) {
			return false; /* we do not know what libdw knows */
		}
	}
	return true;
}

/* What is not followed: a return address in a register or away from the CFA (setcontext), a stack
 * pointer that is not the CFA (longjmp), a CFA that takes more than a register, an offset and a
 * word in memory (a stack aligned by an index). */
static bool is_explained(Dwarf_Frame *frame)
{
	Dwarf_Op memory[3];
	Dwarf_Op *ops;
	size_t count;

	cr_assert_eq(dwarf_frame_register(frame, 16, memory, &ops, &count), 0);
	if (count == 1 && ops[0].atom != DW_OP_call_frame_cfa)
		return true;
	/* That it is the CFA is "call_frame_cfa, stack_value". */
	cr_assert_eq(dwarf_frame_register(frame, 7, memory, &ops, &count), 0);
	if (count != 2 || ops[1].atom != DW_OP_stack_value)
		return true;
	cr_assert_eq(dwarf_frame_cfa(frame, &ops, &count), 0);
	return count > 3;
}

static void compare_row(struct comparison *with, uint64_t address, Dwarf_Frame *frame)
{
	const struct eh_frame_rule *rule = eh_frame_find(with->table, address);
	Dwarf_Op memory[3];
	Dwarf_Op *ops;
	size_t count;
	bool equal = false;

	with->rows++;
	cr_assert_eq(dwarf_frame_register(frame, 16, memory, &ops, &count), 0);
	if (count == 0 && ops) {
		equal = rule && rule->kind == EH_FRAME_ROOT;
	} else if (!rule) {
		with->explained += is_explained(frame);
		equal = is_explained(frame);
	} else if (rule->kind != EH_FRAME_ROOT) {
		equal = dwarf_frame_cfa(frame, &ops, &count) == 0 && cfa_equals(rule, ops, count) &&
			registers_equal(rule, frame);
	}
	with->equal += equal;
	if (!equal && with->rows - with->equal < 10)
		fprintf(stderr, "%#" PRIx64 ": rule %d\n", address, rule ? rule->kind : -1);
}

static void compare_range(struct comparison *with, Dwarf_CFI *cfi, uint64_t address, uint64_t end)
{
	while (address < end) {
		Dwarf_Frame *frame = NULL;
		Dwarf_Addr start;
		Dwarf_Addr stop;
		bool signal;

		if (dwarf_cfi_addrframe(cfi, address, &frame) != 0) {
			with->gaps++;
			if (eh_frame_find(with->table, address)) {
				with->rows++;
				fprintf(stderr, "%#" PRIx64 ": libdw has no rule\n", address);
			}
			address++;
			continue;
		}
		dwarf_frame_info(frame, &start, &stop, &signal);
		compare_row(with, address, frame);
		if (stop - address > 1)
			compare_row(with, stop - 1, frame);
		address = stop;
		free(frame);
	}
}

/* False: not a file that has rules for both. */
static bool compare_file(const char *path, struct comparison *out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct elf_image image;
	struct eh_frame table;
	struct error error = {0};
	struct stat status;
	struct file_buffer buffer;
	Dwarf_CFI *cfi;
	void *bytes;
	Elf *elf;

	if (fd < 0)
		return false;
	elf_version(EV_CURRENT);
	cr_assert_eq(fstat(fd, &status), 0);
	bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	cr_assert_neq(bytes, MAP_FAILED);
	buffer = file_buffer_over(bytes, (size_t)status.st_size);
	elf = elf_begin(fd, ELF_C_READ, NULL);
	cfi = elf ? dwarf_getcfi_elf(elf) : NULL;
	if (!cfi || elf_image_read(&buffer.source, &image, &error) != GP_OK || !image.is_64) {
		dwarf_cfi_end(cfi);
		elf_end(elf);
		munmap(bytes, (size_t)status.st_size);
		close(fd);
		return false;
	}
	cr_assert_eq(eh_frame_read(&buffer.source, &image, &table, &error), GP_OK, "%s: %s", path,
		     error.text);
	cr_assert(table.complete, "%s", path);
	*out = (struct comparison){.table = &table};
	for (unsigned i = 0; i < image.segment_count; i++)
		if (image.segments[i].executable)
			compare_range(out, cfi, image.segments[i].address,
				      image.segments[i].address + image.segments[i].memory_size);
	fprintf(stderr,
		"%s: %u functions, %u rows, %u different rules; %" PRIu64 " of %" PRIu64
		" places equal (%" PRIu64 " not followed)\n",
		path, table.function_count, table.row_count, table.rule_count, out->equal,
		out->rows, out->explained);
	out->table = NULL;
	eh_frame_deinit(&table);
	dwarf_cfi_end(cfi);
	elf_end(elf);
	munmap(bytes, (size_t)status.st_size);
	close(fd);
	return true;
}

Test(eh_frame_libdw, every_row_of_the_hosts_programs_is_equal)
{
	static const char *const paths[] = {
		"/lib/x86_64-linux-gnu/libc.so.6",
		"/lib64/ld-linux-x86-64.so.2",
		"/bin/bash",
		"/lib/x86_64-linux-gnu/libstdc++.so.6",
		"/lib/x86_64-linux-gnu/libm.so.6",
		"/lib/x86_64-linux-gnu/libcrypto.so.3",
		"/usr/bin/busybox",
		"/proc/self/exe",
	};
	unsigned files = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(paths); i++) {
		struct comparison with;

		if (!compare_file(paths[i], &with))
			continue;
		files++;
		cr_expect_gt(with.rows, 20, "%s", paths[i]);
		cr_expect_eq(with.equal, with.rows, "%s", paths[i]);
		cr_expect_leq(with.explained * 500, with.rows, "%s", paths[i]);
	}
	cr_assert_gt(files, 1);
}

/* What the guests of the memory images run, static programs without a header among it. */
Test(eh_frame_libdw, every_row_of_the_guests_programs_is_equal)
{
	static const char *const images[] = {"6.1-tasks", "6.12-tasks", "6.1-cloud-tasks"};
	unsigned files = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(images) && files == 0; i++) {
		char path[512];
		struct dirent *entry;
		DIR *directory;

		snprintf(path, sizeof(path), IMAGE_DIRECTORY "/%s/files", images[i]);
		directory = opendir(path);
		while (directory && (entry = readdir(directory))) {
			struct comparison with;

			snprintf(path, sizeof(path), IMAGE_DIRECTORY "/%s/files/%s", images[i],
				 entry->d_name);
			if (entry->d_name[0] == '.' || !compare_file(path, &with))
				continue;
			files++;
			cr_expect_gt(with.rows, 20, "%s", path);
			cr_expect_eq(with.equal, with.rows, "%s", path);
		}
		if (directory)
			closedir(directory);
	}
	if (files == 0)
		cr_skip_test("no programs of images with tasks in " IMAGE_DIRECTORY
			     ": run tests/images/make-image.sh");
}
