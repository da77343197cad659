#include "vmm/boot/boot.h"

#include "base/cleanup.h"
#include "base/container.h"
#include "base/io.h"
#include "vmm/boot/multiboot.h"

#include <asm/bootparam.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	BIOS_DATA_GPA = 0x400,
	GDT_GPA = 0x500,
	START_INFO_GPA = 0x6000, /* a page */
	ZERO_PAGE_GPA = 0x7000,
	PAGE_TABLES_GPA = 0x9000,
	STACK_GPA = 0xfff0,
	COMMAND_LINE_GPA = 0x20000,
	LOW_MEMORY_END = 0x9fc00,
	FIRMWARE_ENTRY_GPA = 0xffff0,
	HIGH_MEMORY_START = 0x100000,
	PAGE = 4096,
};

#define LARGE_PAGE UINT64_C(0x200000)
#define MEMORY_RANGES_MAX 4

/* xen/include/public/arch-x86/hvm/start_info.h, version 1. */
#define PVH_START_MAGIC 0x336ec578u

struct pvh_start_info {
	uint32_t magic;
	uint32_t version;
	uint32_t flags;
	uint32_t module_count;
	uint64_t module_list;
	uint64_t command_line;
	uint64_t rsdp;
	uint64_t memory_map;
	uint32_t memory_map_entries;
	uint32_t reserved;
};
_Static_assert(sizeof(struct pvh_start_info) == 56, "the size the specification gives");

struct pvh_module {
	uint64_t address;
	uint64_t size;
	uint64_t command_line;
	uint64_t reserved;
};
_Static_assert(sizeof(struct pvh_module) == 32, "the size the specification gives");

_Static_assert(sizeof(struct memory_range) == 24, "the size the specification gives");

static uint64_t low_ram_end(uint64_t ram_size)
{
	return ram_size < GUEST_RAM_HOLE_START ? ram_size : GUEST_RAM_HOLE_START;
}

/* The address of the initramfs: as high as it may lie, below which the kernel unpacks. */
static gp_status_t place_initrd(const struct boot_files *files, uint64_t ram_size, uint64_t *gpa,
				struct error *error)
{
	uint64_t top = low_ram_end(ram_size);

	if (top > files->kernel.initrd_max)
		top = files->kernel.initrd_max + 1;
	top &= ~(uint64_t)(PAGE - 1);
	if (files->initrd_size > top || top - files->initrd_size < files->kernel.end)
		return error_set(error, GP_ERR_NO_MEMORY,
				 "the initrd %s (%llu KiB) does not fit above the kernel (which "
				 "needs memory "
				 "up to %llu MiB) in a guest of %llu MiB; give more with -m",
				 files->initrd_path,
				 (unsigned long long)(files->initrd_size + 1023) >> 10,
				 (unsigned long long)(files->kernel.end + 0xfffff) >> 20,
				 (unsigned long long)ram_size >> 20);
	*gpa = (top - files->initrd_size) & ~(uint64_t)(PAGE - 1);
	/* Rounding down may have gone below the kernel's end by a part of a page. */
	if (*gpa < files->kernel.end)
		*gpa = (files->kernel.end + PAGE - 1) & ~(uint64_t)(PAGE - 1);
	if (*gpa + files->initrd_size > top)
		return error_set(
			error, GP_ERR_NO_MEMORY,
			"the initrd %s does not fit above the kernel; give more memory with "
			"-m",
			files->initrd_path);
	return GP_OK;
}

static gp_status_t open_initrd(const char *path, struct boot_files *files, struct error *error)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat file;

	if (fd < 0)
		return error_set_errno(error, errno, "cannot open the initrd %s", path);
	if (fstat(fd, &file))
		return error_set_errno(error, errno, "cannot look at the initrd %s", path);
	if (!S_ISREG(file.st_mode) || !file.st_size)
		return error_set(error, GP_ERR_INVALID_ARGS, "the initrd %s is %s", path,
				 S_ISREG(file.st_mode) ? "empty" : "not a regular file");
	files->initrd_path = path;
	files->initrd_size = (uint64_t)file.st_size;
	files->initrd_fd = take_fd(&fd);
	return GP_OK;
}

gp_status_t boot_files_open(const char *kernel, const char *initrd, const char *command_line,
			    uint64_t ram_size, struct boot_files *out, struct error *error)
{
	struct boot_files files = {.command_line = command_line, .initrd_fd = -1};
	size_t length = strlen(command_line);
	uint64_t unused;
	gp_status_t status;

	status = kernel_image_open(kernel, &files.kernel, error);
	if (!status && length > files.kernel.command_line_max)
		status = error_set(
			error, GP_ERR_INVALID_ARGS,
			"the kernel command line has %zu bytes, %s takes at most %u; shorten "
			"-p",
			length, kernel, files.kernel.command_line_max);
	if (!status && files.kernel.end > low_ram_end(ram_size))
		status = error_set(
			error, GP_ERR_NO_MEMORY,
			"%s needs memory up to %llu MiB, the guest has %llu MiB below the 4 "
			"GiB hole; give more with -m",
			kernel, (unsigned long long)(files.kernel.end + 0xfffff) >> 20,
			(unsigned long long)low_ram_end(ram_size) >> 20);
	if (!status && initrd) {
		status = open_initrd(initrd, &files, error);
		if (!status)
			status = place_initrd(&files, ram_size, &unused, error);
	}
	if (status) {
		boot_files_close(&files);
		return status;
	}
	*out = files;
	return GP_OK;
}

void boot_files_close(struct boot_files *files)
{
	kernel_image_close(&files->kernel);
	close_fd(&files->initrd_fd);
}

static gp_status_t load_kernel(const struct kernel_image *kernel, const struct guest_ram *ram,
			       struct error *error)
{
	for (unsigned i = 0; i < kernel->segment_count; i++) {
		const struct kernel_segment *segment = &kernel->segments[i];

		/* Fresh guest memory is zero, which is what follows the file's bytes. */
		if (!guest_ram_at(ram, gpa(segment->gpa), segment->memory_size) ||
		    !guest_ram_write(ram, gpa(segment->gpa), kernel->bytes + segment->file_offset,
				     segment->file_size))
			return error_set(
				error, GP_ERR_NO_MEMORY,
				"the kernel does not fit into the guest's memory; give more with "
				"-m");
	}
	return GP_OK;
}

static gp_status_t load_initrd(const struct boot_files *files, const struct guest_ram *ram,
			       uint64_t address, struct error *error)
{
	uint8_t *host = guest_ram_at(ram, gpa(address), files->initrd_size);

	if (!host)
		return error_set(error, GP_ERR_NO_MEMORY, "the initrd does not fit into the guest");
	errno = 0;
	if (io_read_at(files->initrd_fd, 0, host, files->initrd_size) == files->initrd_size)
		return GP_OK;
	if (errno)
		return error_set_errno(error, errno, "cannot read the initrd %s",
				       files->initrd_path);
	return error_set(error, GP_ERR_IO, "the initrd %s became shorter while it was read",
			 files->initrd_path);
}

static unsigned memory_ranges(uint64_t ram_size, struct memory_range ranges[MEMORY_RANGES_MAX])
{
	uint64_t low = low_ram_end(ram_size);
	const struct memory_range all[MEMORY_RANGES_MAX] = {
		{0, LOW_MEMORY_END, MEMORY_RANGE_RAM, 0},
		{LOW_MEMORY_END, HIGH_MEMORY_START - LOW_MEMORY_END, MEMORY_RANGE_RESERVED, 0},
		{HIGH_MEMORY_START, low - HIGH_MEMORY_START, MEMORY_RANGE_RAM, 0},
		{GUEST_RAM_HOLE_END, ram_size - low, MEMORY_RANGE_RAM, 0},
	};
	unsigned count = ram_size > low ? 4 : 3;

	memcpy(ranges, all, count * sizeof(*all));
	return count;
}

static bool write_page_tables(const struct guest_ram *ram)
{
	enum { PRESENT_WRITABLE = 0x3, LARGE = 0x80, DIRECTORIES = 4 };
	uint64_t pml4 = PAGE_TABLES_GPA, pdpt = pml4 + PAGE, directory = pdpt + PAGE;
	uint64_t entry = pdpt | PRESENT_WRITABLE;
	bool written = guest_ram_write(ram, gpa(pml4), &entry, sizeof(entry));

	for (uint64_t i = 0; i < DIRECTORIES; i++) {
		entry = (directory + i * PAGE) | PRESENT_WRITABLE;
		written &= guest_ram_write(ram, gpa(pdpt + i * 8), &entry, sizeof(entry));
	}
	for (uint64_t i = 0; i < DIRECTORIES * 512; i++) {
		entry = (i * LARGE_PAGE) | LARGE | PRESENT_WRITABLE;
		written &= guest_ram_write(ram, gpa(directory + i * 8), &entry, sizeof(entry));
	}
	return written;
}

static bool write_zero_page(const struct boot_files *files, const struct guest_ram *ram,
			    uint64_t initrd, uint64_t acpi_rsdp)
{
	struct boot_params parameters = {0};
	struct memory_range ranges[MEMORY_RANGES_MAX];
	enum { LOADER_UNDEFINED = 0xff };

	memcpy(&parameters.hdr, files->kernel.bytes + offsetof(struct boot_params, hdr),
	       files->kernel.setup_header_size);
	parameters.hdr.type_of_loader = LOADER_UNDEFINED;
	parameters.hdr.cmd_line_ptr = COMMAND_LINE_GPA;
	parameters.hdr.ramdisk_image = (uint32_t)initrd;
	parameters.hdr.ramdisk_size = (uint32_t)files->initrd_size;
	parameters.ext_ramdisk_image = (uint32_t)(initrd >> 32);
	parameters.ext_ramdisk_size = (uint32_t)(files->initrd_size >> 32);
	parameters.acpi_rsdp_addr = acpi_rsdp;
	parameters.e820_entries = (uint8_t)memory_ranges(ram->size, ranges);
	for (unsigned i = 0; i < parameters.e820_entries; i++) {
		parameters.e820_table[i].addr = ranges[i].start;
		parameters.e820_table[i].size = ranges[i].size;
		parameters.e820_table[i].type = ranges[i].type;
	}
	return guest_ram_write(ram, gpa(ZERO_PAGE_GPA), &parameters, sizeof(parameters));
}

static bool write_start_info(const struct boot_files *files, const struct guest_ram *ram,
			     uint64_t initrd, uint64_t acpi_rsdp)
{
	struct {
		struct pvh_start_info info;
		struct pvh_module module;
		struct memory_range map[MEMORY_RANGES_MAX];
	} block = {0};

	block.info = (struct pvh_start_info){
		.magic = PVH_START_MAGIC,
		.version = 1,
		.module_count = files->initrd_size ? 1 : 0,
		.module_list = files->initrd_size ? START_INFO_GPA + ((uint8_t *)&block.module -
								      (uint8_t *)&block)
						  : 0,
		.command_line = COMMAND_LINE_GPA,
		.rsdp = acpi_rsdp,
		.memory_map = START_INFO_GPA + ((uint8_t *)block.map - (uint8_t *)&block),
		.memory_map_entries = memory_ranges(ram->size, block.map),
	};
	block.module = (struct pvh_module){.address = initrd, .size = files->initrd_size};
	return guest_ram_write(ram, gpa(START_INFO_GPA), &block, sizeof(block));
}

static bool write_multiboot_facts(const struct boot_files *files, const struct guest_ram *ram,
				  uint64_t initrd)
{
	struct memory_range ranges[MEMORY_RANGES_MAX];
	struct multiboot_facts facts = {
		.command_line = COMMAND_LINE_GPA,
		.initrd = initrd,
		.initrd_size = files->initrd_size,
		.ranges = ranges,
		.range_count = memory_ranges(ram->size, ranges),
	};

	return multiboot_write_facts(&facts, ram, START_INFO_GPA);
}

/* Real-mode code at f000:fff0, the PC's reset vector. With hardware-reduced ACPI Linux restarts
 * by EFI, and where there is no EFI it enters the firmware there, without ever trying the ACPI
 * reset register (arch/x86/platform/efi/quirks.c efi_reboot_required(), since 3.17;
 * native_machine_emergency_restart()). All we have to do as a firmware is to pull the reset line.
 */
static bool write_firmware_entry(const struct guest_ram *ram)
{
	static const uint8_t code[] = {
		0xb0, 0xfe, /* mov al, 0xfe: pulse the reset line */
		0xe6, 0x64, /* out 0x64, al: keyboard controller's command port */
		0xf4,       /* hlt */
		0xeb, 0xfd, /* jmp to the hlt */
	};

	return guest_ram_write(ram, gpa(FIRMWARE_ENTRY_GPA), code, sizeof(code));
}

/* What a PC's BIOS leaves behind and kernels read without asking for a BIOS: where COM1 is, and
 * where the memory below 1 MiB ends. Xen puts its first 64 KiB of data below the lower of the two
 * ends. */
static bool write_firmware_data(const struct guest_ram *ram)
{
	static const struct {
		uint16_t at, value;
	} words[] = {
		{0x00, 0x3f8},                /* COM1 */
		{0x0e, LOW_MEMORY_END >> 4},  /* the extended data's segment */
		{0x13, LOW_MEMORY_END >> 10}, /* base memory in KiB */
	};
	bool written = true;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		written &= guest_ram_write(ram, gpa(BIOS_DATA_GPA + words[i].at), &words[i].value,
					   sizeof(words[i].value));
	return written;
}

/* Tells the kernel of its command line, initrd and memory, as its protocol wants it, and says in
 * which state the first vCPU finds that. */
static bool write_parameters(const struct boot_files *files, const struct guest_ram *ram,
			     uint64_t initrd, uint64_t acpi_rsdp, struct boot_state *state)
{
	state->mode = files->kernel.kind == KERNEL_BZIMAGE ? BOOT_LONG_MODE : BOOT_PROTECTED_MODE;
	switch (files->kernel.kind) {
	case KERNEL_BZIMAGE:
	case KERNEL_BZIMAGE_32:
		state->rsi = ZERO_PAGE_GPA;
		return write_zero_page(files, ram, initrd, acpi_rsdp);
	case KERNEL_PVH:
		state->rbx = START_INFO_GPA;
		return write_start_info(files, ram, initrd, acpi_rsdp);
	case KERNEL_MULTIBOOT:
		state->rax = MULTIBOOT_LOADER_MAGIC;
		state->rbx = START_INFO_GPA;
		return write_multiboot_facts(files, ram, initrd);
	}
	return false;
}

gp_status_t boot_load(const struct boot_files *files, const struct guest_ram *ram,
		      uint64_t acpi_rsdp, struct boot_state *state, struct error *error)
{
	/* Flat code at 0x10, 64-bit or 32-bit, and flat data at 0x18, as the boot protocol asks. */
	static const uint64_t gdt_64[] = {0, 0, 0x00af9b000000ffff, 0x00cf93000000ffff};
	static const uint64_t gdt_32[] = {0, 0, 0x00cf9b000000ffff, 0x00cf93000000ffff};
	struct boot_state start = {
		.rip = files->kernel.entry,
		.rsp = STACK_GPA,
		.page_tables = PAGE_TABLES_GPA,
		.gdt = GDT_GPA,
	};
	uint64_t initrd = 0;
	gp_status_t status;
	bool written;

	status = load_kernel(&files->kernel, ram, error);
	if (!status && files->initrd_size) {
		status = place_initrd(files, ram->size, &initrd, error);
		if (!status)
			status = load_initrd(files, ram, initrd, error);
	}
	if (status)
		return status;
	written = write_parameters(files, ram, initrd, acpi_rsdp, &start);
	written &= guest_ram_write(ram, gpa(GDT_GPA),
				   start.mode == BOOT_LONG_MODE ? gdt_64 : gdt_32, sizeof(gdt_64));
	written &= guest_ram_write(ram, gpa(COMMAND_LINE_GPA), files->command_line,
				   strlen(files->command_line) + 1);
	written &= write_page_tables(ram);
	written &= write_firmware_entry(ram);
	written &= write_firmware_data(ram);
	if (!written)
		return error_set(error, GP_ERR_NO_MEMORY,
				 "the guest's memory is too small to boot; give more with -m");
	*state = start;
	return GP_OK;
}
