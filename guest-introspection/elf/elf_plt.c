#include "guest-introspection/elf/elf_plt.h"

#include "base/cursor.h"
#include "base/sorting.h"
#include "base/vector.h"

#include <elf.h>
#include <stdio.h>

#define SLOT_LIMIT 65536u
#define RELOCATION_LIMIT (1u << 18)
/* Stubs are at the beginning of a segment (GNU) or at its end (lld). */
#define FRONT_LIMIT (1u << 20)
#define BACK_LIMIT (1u << 18)
#define PAGE_SIZE 4096u
#define STUB_MAX 16u
#define NAME_LIMIT 512u

_Static_assert(sizeof(Elf64_Rela) == 24, "System V ABI");

struct slot {
	uint64_t address;
	uint64_t addend;
	uint32_t symbol; /* 0: none */
};

struct slots {
	struct slot *items;
	size_t count;
	size_t capacity;
};

static int compare_slots(const void *left, const void *right)
{
	const struct slot *a = left;
	const struct slot *b = right;

	return compare_u64(a->address, b->address);
}

static const struct slot *find_slot(const struct slots *slots, uint64_t address)
{
	struct slot key = {.address = address};

	return slots->count ? bsearch(&key, slots->items, slots->count, sizeof(key), compare_slots)
			    : NULL;
}

/* The slots that the relocations of one table fill in with addresses of functions. */
static bool read_slots(const struct file_source *source, const struct elf_image *image,
		       uint64_t address, uint64_t size, struct slots *slots)
{
	uint64_t count = size / sizeof(Elf64_Rela);
	uint64_t offset;

	if (!address || !elf_image_offset(image, address, &offset))
		return true;
	for (uint64_t i = 0; i < count && i < RELOCATION_LIMIT && slots->count < SLOT_LIMIT; i++) {
		uint8_t bytes[sizeof(Elf64_Rela)];
		struct cursor cursor = cursor_over(bytes, sizeof(bytes));
		struct slot slot;
		uint64_t info;
		uint32_t type;

		if (file_source_read(source, offset + i * sizeof(bytes), bytes, sizeof(bytes)) !=
		    sizeof(bytes))
			return true;
		slot.address = cursor_u64(&cursor);
		info = cursor_u64(&cursor);
		slot.addend = cursor_u64(&cursor);
		slot.symbol = (uint32_t)ELF64_R_SYM(info);
		type = ELF64_R_TYPE(info);
		if ((((type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT) && slot.symbol) ||
		     type == R_X86_64_IRELATIVE) &&
		    !vector_add(slots, slot))
			return false;
	}
	return true;
}

/* The name of a slot's function with "@plt". 0: it is not available. */
static size_t slot_name(const struct file_source *source, const struct elf_image *image,
			const struct elf_dynamic *dynamic, const struct slot *slot,
			char name[NAME_LIMIT + 8])
{
	uint64_t offset;
	uint32_t string;
	size_t length;

	if (!slot->symbol)
		return (size_t)snprintf(name, NAME_LIMIT, "*ABS*+%#llx@plt",
					(unsigned long long)slot->addend);
	if (!elf_image_offset(image, dynamic->symbols + slot->symbol * sizeof(Elf64_Sym),
			      &offset) ||
	    file_source_read(source, offset, &string, sizeof(string)) != sizeof(string) ||
	    string >= dynamic->strings_size ||
	    !elf_image_offset(image, dynamic->strings + string, &offset))
		return 0;
	length = file_source_read(source, offset, name, NAME_LIMIT);
	length = strnlen(name, length);
	if (length == 0 || length == NAME_LIMIT)
		return 0;
	memcpy(name + length, "@plt", 5);
	return length + 4;
}

/* Whether the 16 bytes at `code` begin a stub; where its jump ends, and how long it is. A jump
 * through a slot may also be a function's last instruction: what is behind it tells them apart. */
static bool is_stub(const uint8_t *code, unsigned *jump_end, unsigned *size)
{
	static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
	static const uint8_t pad_5[] = {0x0f, 0x1f, 0x44, 0x00, 0x00};
	static const uint8_t pad_6[] = {0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00};
	static const uint8_t trap_6[] = {0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc};
	bool marked = memcmp(code, endbr64, sizeof(endbr64)) == 0;
	unsigned at = marked ? 4 : 0;
	bool bound = code[at] == 0xf2; /* "bnd" */
	const uint8_t *rest;

	at += bound;
	if (code[at] != 0xff || code[at + 1] != 0x25)
		return false;
	at += 6;
	rest = code + at;
	*jump_end = at;
	*size = 16;
	if (at == 11)
		return memcmp(rest, pad_5, 5) == 0;
	if (at == 10)
		return memcmp(rest, pad_6, 6) == 0 || memcmp(rest, trap_6, 6) == 0;
	if (at == 6 && rest[0] == 0x68 && rest[5] == 0xe9) /* push $index; jmp to the resolver */
		return true;
	*size = 8;
	if (at == 6)
		return rest[0] == 0x66 && rest[1] == 0x90;
	return rest[0] == 0x90;
}

struct scan {
	const struct file_source *source;
	const struct elf_image *image;
	const struct elf_dynamic *dynamic;
	const struct slots *slots;
	struct symbol_table *table;
};

static gp_status_t add_stub(const struct scan *self, uint64_t address, unsigned size,
			    const struct slot *slot)
{
	char name[NAME_LIMIT + 8];
	size_t length = slot_name(self->source, self->image, self->dynamic, slot, name);

	return length ? symbol_table_add(self->table, address, size, 't', name, length) : GP_OK;
}

/* Looks for stubs in `size` bytes of the file, which are at `address` when loaded. */
static gp_status_t scan_part(const struct scan *self, uint64_t offset, uint64_t address,
			     uint64_t size)
{
	gp_status_t status = GP_OK;

	/* Stubs are aligned to their size, so that none lies across two pages of the file. */
	for (uint64_t done = 0; status == GP_OK && done < size;) {
		uint8_t bytes[PAGE_SIZE + STUB_MAX] = {0};
		uint64_t room = PAGE_SIZE - (address + done) % PAGE_SIZE;
		size_t wanted = (size_t)(room < size - done ? room : size - done);
		size_t got = file_source_read(self->source, offset + done, bytes, wanted);
		size_t begin = (size_t)((8 - (address + done) % 8) % 8);

		for (size_t at = begin; status == GP_OK && at + 8 <= got; at += 8) {
			const struct slot *slot;
			unsigned jump_end;
			unsigned length;
			int32_t distance;

			if (!is_stub(bytes + at, &jump_end, &length) || length > got - at)
				continue;
			memcpy(&distance, bytes + at + jump_end - 4, 4);
			slot = find_slot(self->slots, address + done + at + jump_end +
							      (uint64_t)(int64_t)distance);
			if (slot)
				status = add_stub(self, address + done + at, length, slot);
		}
		done += wanted;
	}
	return status;
}

static gp_status_t scan_segments(const struct scan *self)
{
	gp_status_t status = GP_OK;

	for (unsigned i = 0; status == GP_OK && i < self->image->segment_count; i++) {
		const struct elf_segment *segment = &self->image->segments[i];
		uint64_t front =
			segment->file_size < FRONT_LIMIT ? segment->file_size : FRONT_LIMIT;
		uint64_t left = segment->file_size - front;
		uint64_t back = left < BACK_LIMIT ? left : BACK_LIMIT;
		uint64_t from = segment->file_size - back;

		if (!segment->executable)
			continue;
		status = scan_part(self, segment->offset, segment->address, front);
		if (status == GP_OK)
			status = scan_part(self, segment->offset + from, segment->address + from,
					   back);
	}
	return status;
}

gp_status_t elf_plt_read(const struct file_source *source, const struct elf_image *image,
			 const struct elf_dynamic *dynamic, struct symbol_table *table,
			 struct error *error)
{
	struct slots slots = {0};
	struct scan scan = {source, image, dynamic, &slots, table};
	gp_status_t status = GP_ERR_NO_MEMORY;

	if (!image->is_64 || !dynamic->symbols || !dynamic->strings ||
	    (dynamic->entry_size && dynamic->entry_size != sizeof(Elf64_Sym)))
		return GP_OK;
	if ((dynamic->plt_type != DT_RELA || read_slots(source, image, dynamic->plt_relocations,
							dynamic->plt_relocations_size, &slots)) &&
	    read_slots(source, image, dynamic->relocations, dynamic->relocations_size, &slots)) {
		vector_sort(&slots, compare_slots);
		status = slots.count ? scan_segments(&scan) : GP_OK;
	}
	vector_deinit(&slots);
	return symbol_table_error(status, error);
}
