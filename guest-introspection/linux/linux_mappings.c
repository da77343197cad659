#include "guest-introspection/linux/linux_mappings.h"

#include "base/container.h"
#include "guest-introspection/linux/linux_reader.h"

#include <stdio.h>
#include <string.h>

/* include/linux/mm.h */
#define VM_READ 0x1u
#define VM_WRITE 0x2u
#define VM_EXEC 0x4u
#define VM_MAYSHARE 0x80u

/* include/linux/maple_tree.h; 256 bytes on 64-bit machines */
#define NODE_SIZE 256u
#define NODE_SLOTS_MAX (NODE_SIZE / 8)
#define NODE_TYPE_LEAF 1u
#define NODE_TYPE_RANGE 2u
#define NODE_TYPE_ALLOCATION 3u
/* A node with no more than one entry would be pulled up, so that this is far beyond any tree. */
#define DEPTH_LIMIT 16
#define NODE_LIMIT 65536u

#define AREA_SIZE_LIMIT 512u
/* For the paths of all of a process's mappings: 64 names each for the most that Linux allows. */
#define PATH_STEPS_LIMIT (64u * 65536u)
#define VDSO_SIZE_LIMIT (1u << 20)
#define MM_CONTEXT_HAS_VSYSCALL 2u /* arch/x86/include/asm/mmu.h: bit 1 */
/* arch/x86/entry/vsyscall/vsyscall_64.c */
#define VSYSCALL_EMULATE 0u
#define VSYSCALL_EXECUTE_ONLY 1u
#define SPECIAL_NAME_LIMIT 64u
#define ANONYMOUS_NAME_LIMIT 80u /* ANON_VMA_NAME_MAX_LEN, its terminator included */

struct walk {
	const struct linux_mappings *mappings;
	uint64_t mm;
	uint64_t heap_start;
	uint64_t heap_end;
	uint64_t stack_start;
	linux_mapping_callback *callback;
	void *context;
	uint64_t last_end;
	unsigned areas;
	bool ended; /* by the callback */
	unsigned path_steps;
	/* The last file's: segments of a program follow each other. */
	uint64_t named_file;
	struct linux_file file;
	struct linux_mappings_walk result;
	struct linux_reader reader;
	char name[LINUX_PATH_SIZE];
};

static bool find_array(const struct btf *btf, const char *structure, const char *member,
		       uint32_t *offset, uint32_t *elements)
{
	struct btf_member found;

	if (!btf_find_member(btf, structure, member, &found) || found.elements == 0 ||
	    found.elements > NODE_SLOTS_MAX || found.size != found.elements * 8 ||
	    found.offset > NODE_SIZE || found.size > NODE_SIZE - found.offset)
		return false;
	*offset = found.offset;
	*elements = found.elements;
	return true;
}

static bool find_nodes(const struct btf *btf, struct linux_mappings *out)
{
	return find_array(btf, "maple_range_64", "pivot", &out->node_range_pivots,
			  &out->range_pivots) &&
	       find_array(btf, "maple_range_64", "slot", &out->node_range_slots,
			  &out->range_slots) &&
	       find_array(btf, "maple_arange_64", "pivot", &out->node_allocation_pivots,
			  &out->allocation_pivots) &&
	       find_array(btf, "maple_arange_64", "slot", &out->node_allocation_slots,
			  &out->allocation_slots);
}

gp_status_t linux_mappings_init(const struct linux_files *files, const struct symbol_table *symbols,
				const struct btf *btf, struct linux_mappings *out,
				struct error *error)
{
#define FIELD(name) offsetof(struct linux_mappings, name)
	static const struct linux_member members[] = {
		{"mm_struct", "mm_mt.ma_root", 8, LINUX_OPTIONAL, FIELD(mm_tree)},
		{"mm_struct", "mmap", 8, LINUX_OPTIONAL, FIELD(mm_list)},
		{"mm_struct", "start_brk", 8, LINUX_REQUIRED, FIELD(mm_heap_start)},
		{"mm_struct", "brk", 8, LINUX_REQUIRED, FIELD(mm_heap_end)},
		{"mm_struct", "start_stack", 8, LINUX_REQUIRED, FIELD(mm_stack_start)},
		{"mm_struct", "context.flags", 0, LINUX_OPTIONAL, FIELD(mm_context_flags)},
		{"mm_struct", "pgd", 8, LINUX_REQUIRED, FIELD(mm_page_tables)},
		{"mm_struct", "context.vdso_image", 8, LINUX_OPTIONAL, FIELD(mm_vdso)},
		{"vdso_image", "data", 8, LINUX_OPTIONAL, FIELD(vdso_bytes)},
		{"vdso_image", "size", 8, LINUX_OPTIONAL, FIELD(vdso_size)},
		{"vm_area_struct", "vm_start", 8, LINUX_REQUIRED, FIELD(area_start)},
		{"vm_area_struct", "vm_end", 8, LINUX_REQUIRED, FIELD(area_end)},
		{"vm_area_struct", "vm_mm", 8, LINUX_REQUIRED, FIELD(area_mm)},
		{"vm_area_struct", "vm_flags", 8, LINUX_REQUIRED, FIELD(area_flags)},
		{"vm_area_struct", "vm_pgoff", 8, LINUX_REQUIRED, FIELD(area_offset)},
		{"vm_area_struct", "vm_file", 8, LINUX_REQUIRED, FIELD(area_file)},
		{"vm_area_struct", "vm_ops", 8, LINUX_REQUIRED, FIELD(area_operations)},
		{"vm_area_struct", "vm_private_data", 8, LINUX_REQUIRED, FIELD(area_private)},
		{"vm_area_struct", "vm_next", 8, LINUX_OPTIONAL, FIELD(area_next)},
		{"vm_area_struct", "anon_name", 8, LINUX_OPTIONAL, FIELD(area_name)},
		{"anon_vma_name", "name", 0, LINUX_OPTIONAL, FIELD(name_text)},
		{"vm_special_mapping", "name", 8, LINUX_OPTIONAL, FIELD(special_name)},
	};
#undef FIELD
	struct linux_mappings mappings = {.files = files};
	struct btf_member shared;
	uint64_t address;
	uint32_t mode;
	struct linux_reader reader = linux_reader_of(files->memory, &files->space);
	gp_status_t status =
		linux_find_members(btf, members, ARRAY_SIZE(members), &mappings, error);

	if (status != GP_OK)
		return status;
	if (!btf_find_size(btf, "vm_area_struct", &mappings.area_size) ||
	    mappings.area_size > AREA_SIZE_LIMIT)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "this kernel's vm_area_struct is larger than expected");
	if (mappings.mm_tree != LINUX_MEMBER_MISSING && !find_nodes(btf, &mappings))
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "this kernel's maple tree is not as expected");
	if (mappings.mm_tree == LINUX_MEMBER_MISSING &&
	    (mappings.mm_list == LINUX_MEMBER_MISSING ||
	     mappings.area_next == LINUX_MEMBER_MISSING))
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "this kernel has an unknown form of mappings");
	/* Before 6.2 the name was in a union with the links of a file's tree of mappings. */
	if (btf_find_member(btf, "vm_area_struct", "shared", &shared))
		mappings.name_shares_tree = mappings.area_name >= shared.offset &&
					    mappings.area_name < shared.offset + shared.size;
	mappings.special_operations = linux_symbol_address(symbols, "special_mapping_vmops");
	mappings.legacy_operations = linux_symbol_address(symbols, "legacy_special_mapping_vmops");
	address = linux_symbol_address(symbols, "vsyscall_mode");
	if (address && linux_symbol_address(symbols, "gate_vma") &&
	    linux_read_u32(&reader, address, &mode)) {
		mappings.vsyscall = mode == VSYSCALL_EMULATE || mode == VSYSCALL_EXECUTE_ONLY;
		mappings.vsyscall_readable = mode == VSYSCALL_EMULATE;
	}
	*out = mappings;
	return GP_OK;
}

/* Reads a string of up to `limit` bytes, at most ANONYMOUS_NAME_LIMIT, into the walk's name,
 * between `before` and `after`. */
static bool read_text(struct walk *self, uint64_t address, size_t limit, const char *before,
		      const char *after)
{
	char text[ANONYMOUS_NAME_LIMIT + 1];

	if (!linux_read_text(&self->reader, address, text, limit + 1))
		return false;
	snprintf(self->name, sizeof(self->name), "%s%s%s", before, text, after);
	return true;
}

/* The order of get_vma_name() in fs/proc/task_mmu.c. */
static void name_area(struct walk *self, const uint8_t *area, struct linux_mapping *mapping)
{
	const struct linux_mappings *mappings = self->mappings;
	size_t size = mappings->area_size;
	uint64_t operations = linux_member_value(area, size, mappings->area_operations, 8);
	uint64_t special = linux_member_value(area, size, mappings->area_private, 8);
	uint64_t name = linux_member_value(area, size, mappings->area_name, 8);
	bool named = name && mappings->name_text != LINUX_MEMBER_MISSING;
	uint64_t text = name + mappings->name_text;

	if (mapping->file_address && mapping->file_address == self->named_file) {
		mapping->kind = LINUX_MAPPING_FILE;
		mapping->offset = linux_member_value(area, size, mappings->area_offset, 8) << 12;
		mapping->file = self->file;
		if (!named || mappings->name_shares_tree)
			return;
	}
	self->name[0] = '\0';
	self->named_file = 0;
	if (mapping->file_address) {
		mapping->kind = LINUX_MAPPING_FILE;
		mapping->offset = linux_member_value(area, size, mappings->area_offset, 8) << 12;
		linux_file_read(mappings->files, mapping->file_address, &mapping->file);
		if (named && !mappings->name_shares_tree &&
		    read_text(self, text, ANONYMOUS_NAME_LIMIT, "[anon_shmem:", "]"))
			return;
		if (!linux_file_path(mappings->files, mapping->file_address, &self->path_steps,
				     self->name))
			self->name[0] = '\0';
		self->named_file = mapping->file_address;
		self->file = mapping->file;
		return;
	}
	if (operations && (operations == mappings->special_operations ||
			   operations == mappings->legacy_operations)) {
		mapping->kind = LINUX_MAPPING_SPECIAL;
		if (mappings->special_name != LINUX_MEMBER_MISSING &&
		    operations == mappings->special_operations &&
		    linux_read_u64(&self->reader, special + mappings->special_name, &text) && text)
			read_text(self, text, SPECIAL_NAME_LIMIT, "", "");
	} else if (mapping->start < self->heap_end && mapping->end > self->heap_start) {
		mapping->kind = LINUX_MAPPING_HEAP;
		snprintf(self->name, sizeof(self->name), "[heap]");
	} else if (mapping->start <= self->stack_start && mapping->end >= self->stack_start) {
		mapping->kind = LINUX_MAPPING_STACK;
		snprintf(self->name, sizeof(self->name), "[stack]");
	} else {
		mapping->kind = LINUX_MAPPING_ANONYMOUS;
		if (named)
			read_text(self, text, ANONYMOUS_NAME_LIMIT, "[anon:", "]");
	}
}

static bool tell(struct walk *self, const struct linux_mapping *mapping)
{
	self->result.count++;
	self->last_end = mapping->end;
	if (!self->callback(self->context, mapping)) {
		self->ended = true;
		self->result.complete = false;
	}
	return !self->ended;
}

/* One vm_area_struct; `next` may be NULL. False ends the walk. */
static bool visit_area(struct walk *self, uint64_t address, uint64_t *next)
{
	const struct linux_mappings *mappings = self->mappings;
	size_t size = mappings->area_size;
	uint8_t area[AREA_SIZE_LIMIT];
	struct linux_mapping mapping = {.name = self->name};
	uint64_t flags;

	if (++self->areas > LINUX_MAPPINGS_LIMIT) {
		self->result.complete = false;
		return false;
	}
	if (!linux_read(&self->reader, address, area, size)) {
		self->result.complete = false;
		return next == NULL;
	}
	if (next)
		*next = linux_member_value(area, size, mappings->area_next, 8);
	mapping.start = linux_member_value(area, size, mappings->area_start, 8);
	mapping.end = linux_member_value(area, size, mappings->area_end, 8);
	/* Freed and used again since it was found, or never one. */
	if (linux_member_value(area, size, mappings->area_mm, 8) != self->mm ||
	    mapping.start >= mapping.end || mapping.start < self->last_end ||
	    (mapping.start | mapping.end) & 4095) {
		self->result.complete = false;
		return true;
	}
	flags = linux_member_value(area, size, mappings->area_flags, 8);
	mapping.readable = flags & VM_READ;
	mapping.writable = flags & VM_WRITE;
	mapping.executable = flags & VM_EXEC;
	mapping.shared = flags & VM_MAYSHARE;
	mapping.file_address = linux_member_value(area, size, mappings->area_file, 8);
	name_area(self, area, &mapping);
	return tell(self, &mapping);
}

static void walk_list(struct walk *self)
{
	uint64_t area;

	if (!linux_read_u64(&self->reader, self->mm + self->mappings->mm_list, &area)) {
		self->result.complete = false;
		return;
	}
	while (area) {
		uint64_t next = 0;

		if (!visit_area(self, area, &next))
			return;
		area = next;
	}
}

/* A node on the way down: a copy, taken once. */
struct level {
	uint8_t bytes[NODE_SIZE];
	uint64_t maximum; /* the last address that it covers */
	uint32_t pivots;
	uint32_t slots;
	uint32_t pivot_count;
	uint32_t slot_count;
	uint32_t next; /* slot */
	bool leaf;
};

/* Whether the root is a node; otherwise it is the one entry. Below, what is no leaf's is a node. */
static bool is_root_node(uint64_t entry)
{
	return (entry & 3) == 2 && entry > 4096;
}

static bool read_node(struct walk *self, uint64_t entry, uint64_t maximum, struct level *level)
{
	const struct linux_mappings *mappings = self->mappings;
	uint32_t type = entry >> 3 & 15;

	if (type < NODE_TYPE_LEAF || type > NODE_TYPE_ALLOCATION ||
	    !linux_read(&self->reader, entry & ~UINT64_C(0xff), level->bytes, NODE_SIZE))
		return false;
	level->maximum = maximum;
	level->next = 0;
	level->leaf = type == NODE_TYPE_LEAF;
	if (type == NODE_TYPE_ALLOCATION) {
		level->pivots = mappings->node_allocation_pivots;
		level->slots = mappings->node_allocation_slots;
		level->pivot_count = mappings->allocation_pivots;
		level->slot_count = mappings->allocation_slots;
	} else {
		level->pivots = mappings->node_range_pivots;
		level->slots = mappings->node_range_slots;
		level->pivot_count = mappings->range_pivots;
		level->slot_count = mappings->range_slots;
	}
	return true;
}

/* The next slot of a node and the last address it covers. False: that was all. A pivot of 0
 * behind the first slot, or no pivot any more, means the node's maximum (mas_safe_pivot()). */
static bool next_slot(struct level *level, uint64_t *entry, uint64_t *last)
{
	uint32_t slot = level->next;

	if (slot >= level->slot_count)
		return false;
	*last = level->maximum;
	if (slot < level->pivot_count) {
		uint64_t pivot =
			linux_member_value(level->bytes, NODE_SIZE, level->pivots + slot * 8, 8);

		if ((pivot || slot == 0) && pivot < level->maximum)
			*last = pivot;
	}
	level->next = *last == level->maximum ? level->slot_count : slot + 1;
	*entry = linux_member_value(level->bytes, NODE_SIZE, level->slots + slot * 8, 8);
	return true;
}

static void walk_tree(struct walk *self)
{
	struct level levels[DEPTH_LIMIT];
	unsigned depth = 0;
	unsigned nodes = 1;
	uint64_t root;

	if (!linux_read_u64(&self->reader, self->mm + self->mappings->mm_tree, &root)) {
		self->result.complete = false;
		return;
	}
	if (!root)
		return;
	if (!is_root_node(root) || !read_node(self, root, UINT64_MAX, &levels[depth++])) {
		self->result.complete = false;
		return;
	}
	while (depth > 0) {
		struct level *level = &levels[depth - 1];
		uint64_t entry;
		uint64_t last;

		if (!next_slot(level, &entry, &last)) {
			depth--;
			continue;
		}
		if (!entry)
			continue;
		if (level->leaf) {
			/* Low bits are set in entries that are no mapping. */
			if (!(entry & 3) && entry > 4096 && !visit_area(self, entry, NULL))
				return;
			continue;
		}
		if (depth == DEPTH_LIMIT || nodes == NODE_LIMIT ||
		    !read_node(self, entry, last, &levels[depth])) {
			self->result.complete = false;
			if (nodes == NODE_LIMIT)
				return;
			continue;
		}
		nodes++;
		depth++;
	}
}

/* The page of the old system calls is in no list: every 64-bit process may have it. */
static void visit_vsyscall(struct walk *self)
{
	struct linux_mapping mapping = {.start = LINUX_VSYSCALL_PAGE,
					.end = LINUX_VSYSCALL_PAGE + 4096,
					.readable = self->mappings->vsyscall_readable,
					.executable = true,
					.kind = LINUX_MAPPING_SPECIAL,
					.name = "[vsyscall]"};
	uint8_t flags;

	if (!self->mappings->vsyscall || self->mappings->mm_context_flags == LINUX_MEMBER_MISSING ||
	    !linux_read(&self->reader, self->mm + self->mappings->mm_context_flags, &flags, 1) ||
	    !(flags & MM_CONTEXT_HAS_VSYSCALL) || self->last_end > LINUX_VSYSCALL_PAGE)
		return;
	tell(self, &mapping);
}

struct linux_mappings_walk linux_mappings_walk(const struct linux_mappings *mappings, uint64_t mm,
					       linux_mapping_callback *callback, void *context)
{
	struct walk walk = {
		.mappings = mappings,
		.mm = mm,
		.reader = linux_reader_of(mappings->files->memory, &mappings->files->space),
		.callback = callback,
		.context = context,
		.path_steps = PATH_STEPS_LIMIT,
		.result = {.complete = true}};

	if (!linux_read_u64(&walk.reader, mm + mappings->mm_heap_start, &walk.heap_start) ||
	    !linux_read_u64(&walk.reader, mm + mappings->mm_heap_end, &walk.heap_end) ||
	    !linux_read_u64(&walk.reader, mm + mappings->mm_stack_start, &walk.stack_start)) {
		walk.result.complete = false;
		return walk.result;
	}
	if (mappings->mm_tree != LINUX_MEMBER_MISSING)
		walk_tree(&walk);
	else
		walk_list(&walk);
	if (!walk.ended)
		visit_vsyscall(&walk);
	return walk.result;
}

bool linux_mappings_space(const struct linux_mappings *mappings, uint64_t mm,
			  struct address_space *out)
{
	const struct linux_files *files = mappings->files;
	struct linux_reader reader = linux_reader_of(files->memory, &files->space);
	struct translation translation;
	uint64_t tables;

	/* Page tables are in the kernel's map of all memory. */
	if (!linux_read_u64(&reader, mm + mappings->mm_page_tables, &tables) ||
	    guest_translate(&files->space, files->memory, gva(tables), &translation) !=
		    TRANSLATE_OK)
		return false;
	*out = address_space_at(translation.gpa.value, files->space.mode);
	return true;
}

bool linux_mappings_stack(const struct linux_mappings *mappings, uint64_t mm, uint64_t *out)
{
	struct linux_reader reader =
		linux_reader_of(mappings->files->memory, &mappings->files->space);

	return linux_read_u64(&reader, mm + mappings->mm_stack_start, out);
}

bool linux_mappings_vdso(const struct linux_mappings *mappings, uint64_t mm,
			 struct user_memory *out)
{
	const struct linux_files *files = mappings->files;
	struct linux_reader reader = linux_reader_of(files->memory, &files->space);
	uint64_t image, bytes, size;

	if (mappings->mm_vdso == LINUX_MEMBER_MISSING ||
	    mappings->vdso_bytes == LINUX_MEMBER_MISSING ||
	    mappings->vdso_size == LINUX_MEMBER_MISSING ||
	    !linux_read_u64(&reader, mm + mappings->mm_vdso, &image) ||
	    !linux_read_u64(&reader, image + mappings->vdso_bytes, &bytes) ||
	    !linux_read_u64(&reader, image + mappings->vdso_size, &size) || size == 0 ||
	    size > VDSO_SIZE_LIMIT || size > UINT64_MAX - bytes)
		return false;
	user_memory_init(out, files->memory, &files->space);
	return user_memory_add(out, bytes, bytes + size, 0);
}

/* A process's memory as a file. */

static size_t user_memory_read(const struct file_source *source, uint64_t offset, void *buffer,
			       size_t size)
{
	const struct user_memory *self =
		container_of((struct file_source *)(uintptr_t)source, struct user_memory, source);
	struct translation_cache cache;
	size_t done = 0;

	translation_cache_clear(&cache);
	while (done < size) {
		uint64_t at = offset + done;
		size_t step = 0;

		for (unsigned i = 0; i < self->count && step == 0; i++) {
			uint64_t within = at - self->pieces[i].offset;
			uint64_t address = self->pieces[i].start + within;

			if (at < self->pieces[i].offset || within >= self->pieces[i].size)
				continue;
			step = LINUX_PAGE_SIZE - (size_t)(address % LINUX_PAGE_SIZE);
			if (step > self->pieces[i].size - within)
				step = (size_t)(self->pieces[i].size - within);
			if (step > size - done)
				step = size - done;
			if (guest_read_virtual(&self->space, &cache, self->memory, gva(address),
					       (char *)buffer + done, step) != TRANSLATE_OK)
				step = 0;
		}
		if (step == 0)
			break;
		done += step;
	}
	return done;
}

void user_memory_init(struct user_memory *self, const struct guest_memory *memory,
		      const struct address_space *space)
{
	*self = (struct user_memory){
		.source = {.read = user_memory_read}, .memory = memory, .space = *space};
}

bool user_memory_add(struct user_memory *self, uint64_t start, uint64_t end, uint64_t offset)
{
	if (self->count == USER_MEMORY_PIECES || start >= end ||
	    offset > UINT64_MAX - (end - start))
		return false;
	self->pieces[self->count].start = start;
	self->pieces[self->count].size = end - start;
	self->pieces[self->count++].offset = offset;
	return true;
}

/* Where in a process one file is mapped. */
struct same_file {
	uint64_t inode;
	struct user_memory *memory;
};

static bool add_piece(void *context, const struct linux_mapping *mapping)
{
	struct same_file *same = context;

	if (mapping->file.inode == same->inode && mapping->kind == LINUX_MAPPING_FILE &&
	    !mapping->writable)
		user_memory_add(same->memory, mapping->start, mapping->end, mapping->offset);
	return true;
}

void linux_mappings_file(const struct linux_mappings *mappings, uint64_t mm,
			 const struct address_space *space, uint64_t inode, struct user_memory *out)
{
	struct same_file same = {.inode = inode, .memory = out};

	user_memory_init(out, mappings->files->memory, space);
	linux_mappings_walk(mappings, mm, add_piece, &same);
}
