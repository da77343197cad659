/* Kernel files, what the guest finds in memory when it starts, and its CPUID. */
#include "vmm/boot/boot.h"

#include "vmm/cpuid.h"

#include <asm/bootparam.h>
#include <criterion/criterion.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SETUP_BYTES = 5 * 512, PAYLOAD = 65536, LOAD = 0x1000000, INIT_SIZE = 0x200000 };
#define RSDP UINT64_C(0xe0000)

/* A bzImage that boots nowhere but has everything a loader reads. */
static struct setup_header *make_bzimage(uint8_t *bytes)
{
	struct setup_header *header = (struct setup_header *)(void *)(bytes + 0x1f1);

	memset(bytes, 0, SETUP_BYTES + PAYLOAD);
	memset(bytes + SETUP_BYTES, 0xab, PAYLOAD);
	header->setup_sects = 4;
	header->syssize = PAYLOAD / 16;
	header->boot_flag = 0xaa55;
	memcpy(&header->header, "HdrS", 4);
	header->jump = 0x6aeb; /* jmp to 0x26c */
	header->version = 0x20f;
	header->initrd_addr_max = 0x7fffffff;
	header->xloadflags = XLF_KERNEL_64;
	header->cmdline_size = 2047;
	header->pref_address = LOAD;
	header->init_size = INIT_SIZE;
	return header;
}

static _Alignas(16) uint8_t file_bytes[SETUP_BYTES + PAYLOAD + 16];

static gp_status_t parse(size_t size, struct kernel_image *image, struct error *error)
{
	return kernel_image_parse("test", file_bytes, size, image, error);
}

Test(kernel_file, a_bzimage_is_understood)
{
	struct kernel_image image;
	struct error error = {0};

	make_bzimage(file_bytes);
	cr_assert_eq(parse(SETUP_BYTES + PAYLOAD, &image, &error), GP_OK, "%s", error.text);
	cr_assert_eq(image.kind, KERNEL_BZIMAGE);
	cr_assert_eq(image.segment_count, 1);
	cr_assert_eq(image.segments[0].file_offset, SETUP_BYTES);
	cr_assert_eq(image.segments[0].file_size, PAYLOAD);
	cr_assert_eq(image.segments[0].gpa, LOAD);
	cr_assert_eq(image.entry, LOAD + 0x200);
	cr_assert_eq(image.start, LOAD);
	cr_assert_eq(image.end, LOAD + INIT_SIZE);
	cr_assert_eq(image.command_line_max, 2047);
	/* From 0x1f1 to where the jump lands. */
	cr_assert_eq(image.setup_header_size, 0x202 + 0x6a - 0x1f1);
}

Test(kernel_file, a_bzimage_without_a_64_bit_entry_starts_at_its_32_bit_one)
{
	struct kernel_image image;

	make_bzimage(file_bytes)->xloadflags = 0;
	cr_assert_eq(parse(SETUP_BYTES + PAYLOAD, &image, NULL), GP_OK);
	cr_assert_eq(image.kind, KERNEL_BZIMAGE_32);
	cr_assert_eq(image.entry, LOAD);
}

Test(kernel_file, zero_setup_sectors_mean_four)
{
	struct kernel_image image;

	make_bzimage(file_bytes)->setup_sects = 0;
	cr_assert_eq(parse(SETUP_BYTES + PAYLOAD, &image, NULL), GP_OK);
	cr_assert_eq(image.segments[0].file_offset, SETUP_BYTES);
}

static void refuse(size_t size, gp_status_t expected, const char *words)
{
	struct kernel_image image = {.entry = 42};
	struct error error = {0};

	cr_assert_eq(parse(size, &image, &error), expected, "%s: %s", words, error.text);
	cr_assert(strstr(error.text, words), "'%s' does not say '%s'", error.text, words);
	cr_assert_eq(image.entry, 42, "the output was touched");
}

Test(kernel_file, damaged_bzimages_are_told_apart)
{
	size_t whole = SETUP_BYTES + PAYLOAD;

	make_bzimage(file_bytes);
	refuse(0x210, GP_ERR_IO_DATA_INTEGRITY, "cut off");
	refuse(whole - 16, GP_ERR_IO_DATA_INTEGRITY, "truncated");
	make_bzimage(file_bytes)->version = 0x20b;
	refuse(whole, GP_ERR_NOT_SUPPORTED, "2.11");
	make_bzimage(file_bytes)->init_size = PAYLOAD - 1;
	refuse(whole, GP_ERR_IO_DATA_INTEGRITY, "damaged");
	make_bzimage(file_bytes)->pref_address = 0x10000;
	refuse(whole, GP_ERR_IO_DATA_INTEGRITY, "damaged");
	make_bzimage(file_bytes)->pref_address = UINT64_MAX - 100;
	refuse(whole, GP_ERR_IO_DATA_INTEGRITY, "damaged");
	make_bzimage(file_bytes)->syssize = UINT32_MAX;
	refuse(whole, GP_ERR_IO_DATA_INTEGRITY, "truncated");
	make_bzimage(file_bytes)->header = 0;
	refuse(whole, GP_ERR_NOT_SUPPORTED, "not a kernel");
	refuse(0, GP_ERR_NOT_SUPPORTED, "not a kernel");
}

struct elf_file {
	Elf64_Ehdr header;
	Elf64_Phdr segments[2];
	struct {
		Elf64_Nhdr note;
		char name[4];
		uint32_t entry;
	} note;
	uint8_t code[64];
};

static struct elf_file *make_elf(void)
{
	struct elf_file *file = (struct elf_file *)(void *)file_bytes;

	memset(file, 0, sizeof(*file));
	memcpy(file->header.e_ident, ELFMAG, SELFMAG);
	file->header.e_ident[EI_CLASS] = ELFCLASS64;
	file->header.e_ident[EI_DATA] = ELFDATA2LSB;
	file->header.e_ident[EI_VERSION] = EV_CURRENT;
	file->header.e_type = ET_EXEC;
	file->header.e_machine = EM_X86_64;
	file->header.e_version = EV_CURRENT;
	file->header.e_phoff = offsetof(struct elf_file, segments);
	file->header.e_ehsize = sizeof(Elf64_Ehdr);
	file->header.e_phentsize = sizeof(Elf64_Phdr);
	file->header.e_phnum = 2;
	file->segments[0] = (Elf64_Phdr){.p_type = PT_LOAD,
					 .p_offset = offsetof(struct elf_file, code),
					 .p_paddr = 0x200000,
					 .p_filesz = sizeof(file->code),
					 .p_memsz = 0x1000};
	file->segments[1] = (Elf64_Phdr){.p_type = PT_NOTE,
					 .p_offset = offsetof(struct elf_file, note),
					 .p_filesz = sizeof(file->note),
					 .p_memsz = sizeof(file->note),
					 .p_align = 4};
	file->note.note = (Elf64_Nhdr){.n_namesz = 4, .n_descsz = 4, .n_type = 18};
	memcpy(file->note.name, "Xen", 4);
	file->note.entry = 0x200010;
	memset(file->code, 0xcd, sizeof(file->code));
	return file;
}

Test(kernel_file, an_elf_file_with_a_pvh_note_is_understood)
{
	struct kernel_image image;
	struct error error = {0};

	make_elf();
	cr_assert_eq(parse(sizeof(struct elf_file), &image, &error), GP_OK, "%s", error.text);
	cr_assert_eq(image.kind, KERNEL_PVH);
	cr_assert_eq(image.entry, 0x200010);
	cr_assert_eq(image.start, 0x200000);
	cr_assert_eq(image.end, 0x201000);
}

Test(kernel_file, damaged_elf_files_are_told_apart)
{
	size_t whole = sizeof(struct elf_file);

	make_elf()->note.note.n_type = 17;
	refuse(whole, GP_ERR_NOT_SUPPORTED, "PVH");
	make_elf()->note.entry = 0x201000;
	refuse(whole, GP_ERR_IO_DATA_INTEGRITY, "no loadable segment");
	make_elf()->segments[0].p_paddr = 0x1000;
	refuse(whole, GP_ERR_NOT_SUPPORTED, "1 MiB");
	make_elf()->segments[0].p_filesz = 0x10000;
	refuse(whole, GP_ERR_IO_DATA_INTEGRITY, "truncated");
	make_elf()->segments[0].p_offset = UINT64_MAX;
	refuse(whole, GP_ERR_IO_DATA_INTEGRITY, "truncated");
	make_elf()->segments[0].p_memsz = 1;
	refuse(whole, GP_ERR_NOT_SUPPORTED, "segment");
	make_elf()->header.e_machine = EM_AARCH64;
	refuse(whole, GP_ERR_NOT_SUPPORTED, "another machine");
	make_elf();
	refuse(offsetof(struct elf_file, code) + 10, GP_ERR_IO_DATA_INTEGRITY, "truncated");
}

/* A Multiboot kernel that is no ELF file: a header at `offset`, loaded to LOAD. */
static uint32_t *make_multiboot(size_t offset, uint32_t flags)
{
	uint32_t *header = (uint32_t *)(void *)(file_bytes + offset);

	memset(file_bytes, 0x90, PAYLOAD);
	header[0] = 0x1badb002;
	header[1] = flags;
	header[2] = -(0x1badb002 + flags);
	header[3] = LOAD + 0x40; /* the header's own address */
	header[4] = LOAD;
	header[5] = LOAD + 0x1000;
	header[6] = LOAD + 0x5000;
	header[7] = LOAD + 0x80;
	return header;
}

Test(kernel_file, a_multiboot_header_may_say_where_all_belongs)
{
	struct kernel_image image;
	struct error error = {0};
	uint32_t *header;

	make_multiboot(0x100, 1 << 16 | 3);
	cr_assert_eq(parse(PAYLOAD, &image, &error), GP_OK, "%s", error.text);
	cr_assert_eq(image.kind, KERNEL_MULTIBOOT);
	cr_assert_eq(image.segment_count, 1);
	cr_assert_eq(image.segments[0].file_offset, 0x100 - 0x40);
	cr_assert_eq(image.segments[0].file_size, 0x1000);
	cr_assert_eq(image.segments[0].gpa, LOAD);
	cr_assert_eq(image.segments[0].memory_size, 0x5000);
	cr_assert_eq(image.entry, LOAD + 0x80);
	cr_assert_eq(image.end, LOAD + 0x5000);
	/* no end: the whole file, and nothing behind it */
	header = make_multiboot(0x100, 1 << 16);
	header[5] = header[6] = 0;
	cr_assert_eq(parse(PAYLOAD, &image, &error), GP_OK, "%s", error.text);
	cr_assert_eq(image.segments[0].file_size, PAYLOAD - (0x100 - 0x40));
	cr_assert_eq(image.end, LOAD + PAYLOAD - (0x100 - 0x40));
	/* anywhere in the first 8 KiB */
	make_multiboot(8192 - 32, 1 << 16);
	cr_assert_eq(parse(PAYLOAD, &image, &error), GP_OK, "%s", error.text);
}

Test(kernel_file, damaged_multiboot_headers_are_told_apart)
{
	make_multiboot(0x100, 1 << 16 | 1 << 3);
	refuse(PAYLOAD, GP_ERR_NOT_SUPPORTED, "flags 0x8");
	make_multiboot(8192 - 28, 1 << 16);
	refuse(PAYLOAD, GP_ERR_NOT_SUPPORTED, "not a kernel");
	make_multiboot(0x100, 1 << 16)[2]++;
	refuse(PAYLOAD, GP_ERR_NOT_SUPPORTED, "not a kernel");
	make_multiboot(0x100, 1 << 16); /* aligned to two bytes only */
	memmove(file_bytes + 0x102, file_bytes + 0x100, 32);
	refuse(PAYLOAD, GP_ERR_NOT_SUPPORTED, "not a kernel");
	make_multiboot(0x20, 1 << 16); /* the file's first bytes would lie before its start */
	refuse(PAYLOAD, GP_ERR_NOT_SUPPORTED, "must lie in what is loaded");
	make_multiboot(0x100, 1 << 16)[3] = LOAD - 1;
	refuse(PAYLOAD, GP_ERR_NOT_SUPPORTED, "must lie in what is loaded");
	make_multiboot(0x100, 1 << 16)[4] = 0x1000;
	refuse(PAYLOAD, GP_ERR_NOT_SUPPORTED, "1 MiB");
	make_multiboot(0x100, 1 << 16)[5] = LOAD + PAYLOAD;
	refuse(PAYLOAD, GP_ERR_IO_DATA_INTEGRITY, "truncated");
	make_multiboot(0x100, 1 << 16)[5] = LOAD - 1;
	refuse(PAYLOAD, GP_ERR_IO_DATA_INTEGRITY, "truncated");
	make_multiboot(0x100, 1 << 16)[7] = LOAD + 0x5000;
	refuse(PAYLOAD, GP_ERR_IO_DATA_INTEGRITY, "outside of what is loaded");
	make_multiboot(0x100, 1 << 16)[7] = LOAD - 1;
	refuse(PAYLOAD, GP_ERR_IO_DATA_INTEGRITY, "outside of what is loaded");
}

/* An ELF file without a PVH note, with a Multiboot header where its code is. */
static struct elf_file *make_multiboot_elf(uint32_t flags)
{
	struct elf_file *file = make_elf();
	uint32_t header[3] = {0x1badb002, flags, -(0x1badb002 + flags)};

	file->note.note.n_type = 17;
	file->header.e_entry = 0x200030;
	memcpy(file->code, header, sizeof(header));
	return file;
}

Test(kernel_file, an_elf_file_with_a_multiboot_header_is_understood)
{
	struct kernel_image image;
	struct error error = {0};
	struct elf_file *file;

	_Static_assert(offsetof(struct elf_file, code) % 4 == 0, "where a header may be");
	make_multiboot_elf(3);
	cr_assert_eq(parse(sizeof(struct elf_file), &image, &error), GP_OK, "%s", error.text);
	cr_assert_eq(image.kind, KERNEL_MULTIBOOT);
	cr_assert_eq(image.entry, 0x200030);
	cr_assert_eq(image.segments[0].gpa, 0x200000);
	/* an entry at the address that it was linked for */
	file = make_multiboot_elf(0);
	file->segments[0].p_vaddr = UINT64_C(0xffffffff80200000);
	file->header.e_entry = UINT64_C(0xffffffff80200030);
	cr_assert_eq(parse(sizeof(struct elf_file), &image, &error), GP_OK, "%s", error.text);
	cr_assert_eq(image.entry, 0x200030);
	/* a PVH note counts more */
	file = make_multiboot_elf(0);
	file->note.note.n_type = 18;
	cr_assert_eq(parse(sizeof(struct elf_file), &image, &error), GP_OK, "%s", error.text);
	cr_assert_eq(image.kind, KERNEL_PVH);
	make_multiboot_elf(0)->header.e_entry = 0x300000;
	refuse(sizeof(struct elf_file), GP_ERR_IO_DATA_INTEGRITY, "no loadable segment");
	make_multiboot_elf(1 << 4);
	refuse(sizeof(struct elf_file), GP_ERR_NOT_SUPPORTED, "flags 0x10");
}

Test(kernel_file, what_is_no_kernel_is_called_by_its_name)
{
	static const struct {
		size_t offset;
		const char *magic;
		size_t size;
		const char *words;
	} files[] = {
		{0, "\x1f\x8b", 2, "gzip -dc"},
		{0, "\x28\xb5\x2f\xfd", 4, "zstd -dc"},
		{0, "\xfd\x37zXZ", 6, "xz -dc"},
		{0, "MZ", 2, "EFI program"},
		{0, "070701", 6, "with -i"},
		{0, "QFI\xfb", 4, "qcow2"},
		{0x8001, "CD001", 5, "CD image"},
		{0x1fe, "\x55\xaa", 2, "with -d"},
		{0x438, "\x53\xef", 2, "with -d"},
		{0x38, "ARM\x64", 4, "arm64"},
		{0x100, "\xd6\x50\x52\xe8\0\0\0\0\x10\0\0\0\x1a\xaf\xad\x17", 16, "Multiboot 2"},
	};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		memset(file_bytes, 0, PAYLOAD);
		memcpy(file_bytes + files[i].offset, files[i].magic, files[i].size);
		refuse(PAYLOAD, GP_ERR_NOT_SUPPORTED, files[i].words);
		refuse(files[i].offset + files[i].size - 1, GP_ERR_NOT_SUPPORTED, "neither a");
	}
}

/* Boots the bytes into memory of this size. */
struct booted {
	struct boot_files files;
	struct guest_ram ram;
	struct boot_state state;
};

static void write_temporary(char *path, const void *bytes, size_t size)
{
	int fd = mkstemp(path);

	cr_assert(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
	close(fd);
}

static void boot(struct booted *booted, size_t kernel_size, size_t initrd_size, uint64_t ram_size)
{
	char kernel[] = "/tmp/boot-kernel.XXXXXX", initrd[] = "/tmp/boot-initrd.XXXXXX";
	static uint8_t initrd_bytes[10000];
	struct error error = {0};

	memset(initrd_bytes, 0x5a, sizeof(initrd_bytes));
	write_temporary(kernel, file_bytes, kernel_size);
	write_temporary(initrd, initrd_bytes, initrd_size);
	cr_assert_eq(boot_files_open(kernel, initrd_size ? initrd : NULL, "a b=c", ram_size,
				     &booted->files, &error),
		     GP_OK, "%s", error.text);
	cr_assert_eq(guest_ram_init(&booted->ram, ram_size, &error), GP_OK, "%s", error.text);
	cr_assert_eq(boot_load(&booted->files, &booted->ram, RSDP, &booted->state, &error), GP_OK,
		     "%s", error.text);
	unlink(kernel);
	unlink(initrd);
}

static void end(struct booted *booted)
{
	guest_ram_deinit(&booted->ram);
	boot_files_close(&booted->files);
}

static void get(const struct booted *booted, uint64_t address, void *to, size_t size)
{
	cr_assert(guest_memory_read(&booted->ram.memory, gpa(address), to, size));
}

Test(boot, a_bzimage_gets_a_zero_page_and_page_tables)
{
	struct booted booted;
	struct boot_params page;
	uint64_t entry, size = UINT64_C(5) << 30;
	uint8_t byte;
	char line[6];

	make_bzimage(file_bytes);
	boot(&booted, SETUP_BYTES + PAYLOAD, 10000, size);
	cr_assert_eq(booted.state.mode, BOOT_LONG_MODE);
	cr_assert_eq(booted.state.rip, LOAD + 0x200);
	get(&booted, booted.state.rsi, &page, sizeof(page));
	cr_assert_eq(page.hdr.header, 0x53726448, "HdrS");
	cr_assert_eq(page.hdr.type_of_loader, 0xff);
	cr_assert_eq(page.hdr.ramdisk_size, 10000);
	cr_assert_eq(page.hdr.ramdisk_image % 4096, 0);
	cr_assert_leq((uint64_t)page.hdr.ramdisk_image + 10000 - 1, 0x7fffffff);
	cr_assert_geq(page.hdr.ramdisk_image, LOAD + INIT_SIZE);
	cr_assert_eq(page.acpi_rsdp_addr, RSDP);
	cr_assert_eq(page.sentinel, 0);
	cr_assert_eq(page.e820_entries, 4);
	cr_assert_eq(page.e820_table[0].addr, 0);
	cr_assert_eq(page.e820_table[0].size, 0x9fc00);
	cr_assert_eq(page.e820_table[0].type, 1);
	cr_assert_eq(page.e820_table[1].type, 2);
	cr_assert_eq(page.e820_table[2].addr, 0x100000);
	cr_assert_eq(page.e820_table[2].addr + page.e820_table[2].size, GUEST_RAM_HOLE_START);
	cr_assert_eq(page.e820_table[3].addr, GUEST_RAM_HOLE_END);
	cr_assert_eq(page.e820_table[3].size, size - GUEST_RAM_HOLE_START);
	get(&booted, page.hdr.cmd_line_ptr, line, sizeof(line));
	cr_assert_str_eq(line, "a b=c");
	get(&booted, page.hdr.ramdisk_image + 9999, &byte, 1);
	cr_assert_eq(byte, 0x5a);
	get(&booted, LOAD, &byte, 1);
	cr_assert_eq(byte, 0xab);
	/* One to one: follow the tables for an address in the fourth GiB. */
	get(&booted, booted.state.page_tables, &entry, 8);
	cr_assert_eq(entry & 3, 3);
	get(&booted, (entry & ~UINT64_C(0xfff)) + 3 * 8, &entry, 8);
	get(&booted, (entry & ~UINT64_C(0xfff)) + 5 * 8, &entry, 8);
	cr_assert_eq(entry & ~UINT64_C(0x1fffff), UINT64_C(3) * 0x40000000 + 5 * 0x200000);
	cr_assert_eq(entry & 0x83, 0x83);
	/* Code at 0x10: 64-bit; data at 0x18. */
	get(&booted, booted.state.gdt + 0x10, &entry, 8);
	cr_assert_eq(entry, 0x00af9b000000ffff);
	end(&booted);
}

Test(boot, a_pvh_kernel_gets_start_info)
{
	struct booted booted;
	uint8_t info[56];
	uint32_t word;
	uint64_t address, quad;

	make_elf();
	boot(&booted, sizeof(struct elf_file), 5000, 32 << 20);
	cr_assert_eq(booted.state.mode, BOOT_PROTECTED_MODE);
	cr_assert_eq(booted.state.rip, 0x200010);
	get(&booted, booted.state.rbx, info, sizeof(info));
	/* xen/include/public/arch-x86/hvm/start_info.h, by offset */
	memcpy(&word, info, 4);
	cr_assert_eq(word, 0x336ec578);
	memcpy(&word, info + 4, 4);
	cr_assert_eq(word, 1);
	memcpy(&word, info + 12, 4);
	cr_assert_eq(word, 1, "modules");
	memcpy(&address, info + 16, 8);
	get(&booted, address + 8, &quad, 8);
	cr_assert_eq(quad, 5000, "the module's size");
	get(&booted, address, &quad, 8);
	get(&booted, quad + 4999, &word, 1);
	cr_assert_eq(word & 0xff, 0x5a);
	memcpy(&address, info + 32, 8);
	cr_assert_eq(address, RSDP);
	memcpy(&address, info + 40, 8);
	memcpy(&word, info + 48, 4);
	cr_assert_eq(word, 3, "memory ranges");
	get(&booted, address + 2 * 24 + 8, &quad, 8);
	cr_assert_eq(quad, (32 << 20) - 0x100000);
	memcpy(&address, info + 24, 8);
	get(&booted, address, &word, 4);
	cr_assert_eq(memcmp(&word, "a b=", 4), 0);
	end(&booted);
}

Test(boot, a_32_bit_bzimage_starts_without_paging)
{
	struct booted booted;
	struct boot_params page;
	uint64_t entry;

	make_bzimage(file_bytes)->xloadflags = 0;
	boot(&booted, SETUP_BYTES + PAYLOAD, 100, 64 << 20);
	cr_assert_eq(booted.state.mode, BOOT_PROTECTED_MODE);
	cr_assert_eq(booted.state.rip, LOAD);
	cr_assert_eq(booted.state.rbx, 0);
	get(&booted, booted.state.rsi, &page, sizeof(page));
	cr_assert_eq(page.hdr.ramdisk_size, 100);
	get(&booted, booted.state.gdt + 0x10, &entry, 8);
	cr_assert_eq(entry, 0x00cf9b000000ffff, "32-bit code");
	end(&booted);
}

/* A word of the information that a Multiboot kernel finds; by offset, as specified. */
static uint32_t told(const struct booted *booted, uint32_t offset)
{
	uint32_t value;

	get(booted, booted->state.rbx + offset, &value, sizeof(value));
	return value;
}

Test(boot, a_multiboot_kernel_is_told_what_the_specification_says)
{
	struct booted booted;
	uint8_t map[4 * 24], byte;
	char text[16];
	uint64_t quad;
	uint32_t module[4];

	make_multiboot(0x100, 1 << 16 | 3);
	boot(&booted, PAYLOAD, 5000, UINT64_C(5) << 30);
	cr_assert_eq(booted.state.mode, BOOT_PROTECTED_MODE);
	cr_assert_eq(booted.state.rax, 0x2badb002);
	cr_assert_eq(booted.state.rip, LOAD + 0x80);
	get(&booted, 0x413, text, 2);
	cr_assert_eq((uint8_t)text[0] | (uint8_t)text[1] << 8, 639, "KiB, as a BIOS counts");
	get(&booted, 0x40e, text, 2);
	cr_assert_eq(((uint8_t)text[0] | (uint8_t)text[1] << 8) << 4, 0x9fc00);
	get(&booted, LOAD + 0x40, module, 4);
	cr_assert_eq(module[0], 0x1badb002, "the header where it says that it is");
	cr_assert_eq(told(&booted, 0), 1 << 0 | 1 << 2 | 1 << 3 | 1 << 6 | 1 << 9);
	cr_assert_eq(told(&booted, 4), 0x9fc00 >> 10, "low memory, KiB");
	cr_assert_eq(told(&booted, 8), (GUEST_RAM_HOLE_START - 0x100000) >> 10);
	get(&booted, told(&booted, 16), text, 6);
	cr_assert_str_eq(text, "a b=c");
	cr_assert_eq(told(&booted, 20), 1, "modules");
	get(&booted, told(&booted, 24), module, sizeof(module));
	cr_assert_eq(module[1] - module[0], 5000);
	cr_assert_eq(module[0] % 4096, 0);
	get(&booted, module[1] - 1, &byte, 1);
	cr_assert_eq(byte, 0x5a);
	get(&booted, module[2], &byte, 1);
	cr_assert_eq(byte, 0, "a module without a text");
	cr_assert_eq(told(&booted, 44), sizeof(map));
	get(&booted, told(&booted, 48), map, sizeof(map));
	for (unsigned i = 0; i < 4; i++)
		cr_assert_eq(map[i * 24], 20, "what follows the size");
	memcpy(&quad, map + 3 * 24 + 4, 8);
	cr_assert_eq(quad, GUEST_RAM_HOLE_END);
	memcpy(&quad, map + 3 * 24 + 12, 8);
	cr_assert_eq(quad, UINT64_C(2) << 30);
	cr_assert_eq(map[3 * 24 + 20], 1);
	cr_assert_eq(map[1 * 24 + 20], 2);
	get(&booted, told(&booted, 64), text, 10);
	cr_assert_str_eq(text, "guestprof");
	end(&booted);
}

Test(boot, what_does_not_fit_is_refused)
{
	char kernel[] = "/tmp/boot-kernel.XXXXXX";
	struct boot_files files;
	struct error error = {0};
	static char line[3000];

	make_bzimage(file_bytes);
	write_temporary(kernel, file_bytes, SETUP_BYTES + PAYLOAD);
	memset(line, 'x', sizeof(line) - 1);
	cr_assert_eq(boot_files_open(kernel, NULL, "", LOAD + INIT_SIZE, &files, &error), GP_OK,
		     "%s", error.text);
	boot_files_close(&files);
	cr_assert_eq(boot_files_open(kernel, NULL, "", LOAD + INIT_SIZE - 4096, &files, &error),
		     GP_ERR_NO_MEMORY);
	line[2047] = 0;
	cr_assert_eq(boot_files_open(kernel, NULL, line, 64 << 20, &files, &error), GP_OK);
	boot_files_close(&files);
	line[2047] = 'x';
	line[2048] = 0;
	cr_assert_eq(boot_files_open(kernel, NULL, line, 64 << 20, &files, &error),
		     GP_ERR_INVALID_ARGS);
	/* An initrd that fills all that is left fits, a byte more does not. */
	cr_assert_eq(
		boot_files_open(kernel, kernel, "", LOAD + INIT_SIZE + 17 * 4096, &files, &error),
		GP_OK, "%s", error.text);
	boot_files_close(&files);
	cr_assert_eq(
		boot_files_open(kernel, kernel, "", LOAD + INIT_SIZE + 16 * 4096, &files, &error),
		GP_ERR_NO_MEMORY);
	unlink(kernel);
}

/* CPUID. */

static const struct kvm_cpuid_entry2 *leaf(const struct cpuid_table *table, uint32_t function,
					   uint32_t index)
{
	for (uint32_t i = 0; i < table->count; i++)
		if (table->entries[i].function == function && table->entries[i].index == index)
			return &table->entries[i];
	return NULL;
}

static void fill(struct cpuid_table *table, bool amd)
{
	memset(table, 0, sizeof(*table));
	table->entries[0] = (struct kvm_cpuid_entry2){
		.function = 0, .eax = 0x1f, .ebx = amd ? 0x68747541 : 0x756e6547};
	table->entries[1] = (struct kvm_cpuid_entry2){
		.function = 1, .ebx = 0xff00ff00, .ecx = 1u << 3 | 1u << 15, .edx = 1u << 28};
	table->entries[2] = (struct kvm_cpuid_entry2){.function = 4, .index = 3, .eax = 0xfc004163};
	table->entries[3] = (struct kvm_cpuid_entry2){.function = 0xa, .eax = 0x7300404};
	table->entries[4] = (struct kvm_cpuid_entry2){.function = 0x1f, .eax = 7};
	table->entries[5] = (struct kvm_cpuid_entry2){.function = 0xb, .eax = 7};
	table->entries[6] = (struct kvm_cpuid_entry2){.function = 0x80000008, .ecx = 0x0000ffff};
	table->count = 7;
}

Test(cpuid, every_vcpu_finds_its_place_in_the_topology)
{
	struct cpuid_table table;

	for (unsigned vcpu = 0; vcpu < 3; vcpu++) {
		fill(&table, vcpu == 1);
		cr_assert_eq(cpuid_for_vcpu(&table, vcpu, 3, true, NULL), GP_OK);
		cr_assert_eq(leaf(&table, 1, 0)->ebx >> 24, vcpu, "APIC id");
		cr_assert_eq(leaf(&table, 1, 0)->ebx >> 16 & 0xff, 4);
		cr_assert_eq(leaf(&table, 1, 0)->ebx & 0xffff, 0xff00);
		cr_assert_eq(leaf(&table, 1, 0)->edx >> 28 & 1, 1, "HTT");
		cr_assert_eq(leaf(&table, 1, 0)->ecx, 1u << 31 | 1u << 24);
		cr_assert_eq(leaf(&table, 4, 3)->eax >> 26, 3, "cores");
		cr_assert_eq(leaf(&table, 0xb, 0)->eax, 0);
		cr_assert_eq(leaf(&table, 0xb, 0)->ebx, 1);
		cr_assert_eq(leaf(&table, 0xb, 0)->edx, vcpu);
		cr_assert_eq(leaf(&table, 0xb, 1)->eax, 2);
		cr_assert_eq(leaf(&table, 0xb, 1)->ebx, 3);
		cr_assert_eq(leaf(&table, 0xb, 1)->ecx >> 8, 2, "core level");
		cr_assert_eq(leaf(&table, 0xb, 2)->ebx, 0);
		cr_assert_null(leaf(&table, 0x1f, 0));
		cr_assert_eq(leaf(&table, 0xa, 0)->eax, 0, "no PMU");
		if (vcpu == 1)
			cr_assert_eq(leaf(&table, 0x80000008, 0)->ecx, 2u << 12 | 2);
		else
			cr_assert_eq(leaf(&table, 0x80000008, 0)->ecx, 0xffff,
				     "Intel's is reserved");
	}
}

Test(cpuid, one_vcpu_is_no_multiprocessor)
{
	struct cpuid_table table;

	fill(&table, false);
	cr_assert_eq(cpuid_for_vcpu(&table, 0, 1, false, NULL), GP_OK);
	cr_assert_eq(leaf(&table, 1, 0)->edx >> 28 & 1, 0);
	cr_assert_eq(leaf(&table, 1, 0)->ecx >> 24 & 1, 0,
		     "no TSC deadline timer unless KVM has one");
	cr_assert_eq(leaf(&table, 4, 3)->eax >> 26, 0);
}

Test(cpuid, a_full_table_is_told)
{
	static struct cpuid_table table;
	struct error error = {0};

	fill(&table, false);
	for (table.count = 7; table.count < CPUID_ENTRIES_MAX; table.count++)
		table.entries[table.count].function = 0x40000000 + table.count;
	cr_assert_eq(cpuid_for_vcpu(&table, 0, 1, false, &error), GP_ERR_INTERNAL, "%s",
		     error.text);
}
