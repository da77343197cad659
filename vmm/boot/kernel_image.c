#include "vmm/boot/kernel_image.h"

#include "base/cleanup.h"
#include "base/container.h"
#include "base/io.h"
#include "vmm/boot/multiboot.h"

#include <asm/bootparam.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Offsets in the file, Documentation/arch/x86/boot.rst "The Real-Mode Kernel Header". */
enum {
	SETUP_SECTS = 0x1f1,
	JUMP_DISTANCE = 0x201,
	HEADER_MAGIC = 0x202,
	BOOT_FLAG = 0x1fe,
	ENTRY_32_OFFSET = 0,
	ENTRY_64_OFFSET = 0x200,
	PROTOCOL_2_12 = 0x20c,
};

#define KERNEL_FILE_MAX (UINT64_C(2) << 30)
#define XEN_ELFNOTE_PHYS32_ENTRY 18
/* Below 1 MiB lie our page tables, boot parameters and the ACPI tables. */
#define LOWEST_SEGMENT UINT64_C(0x100000)
#define ADDRESS_MAX (UINT64_C(1) << 52)

_Static_assert(offsetof(struct boot_params, hdr) == SETUP_SECTS,
	       "struct setup_header starts where the boot protocol says");

static gp_status_t parse_bzimage(const char *name, const uint8_t *bytes, size_t size,
				 struct kernel_image *image, struct error *error)
{
	struct setup_header header;
	size_t setup_size, payload_size, needed;

	if (size < SETUP_SECTS + sizeof(header))
		return error_set(error, GP_ERR_IO_DATA_INTEGRITY,
				 "%s is cut off: %zu bytes do not hold a bzImage's header", name,
				 size);
	memcpy(&header, bytes + SETUP_SECTS, sizeof(header));
	if (header.version < PROTOCOL_2_12)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "%s speaks Linux's boot protocol %u.%02u; 2.12 or newer is needed "
				 "(Linux 3.8 of 2013): what starts in real mode with a PC's BIOS "
				 "does not run here",
				 name, header.version >> 8, header.version & 0xff);
	setup_size = ((header.setup_sects ? header.setup_sects : 4) + 1) * 512;
	/* syssize counts 16-byte paragraphs of the protected-mode part. */
	payload_size = (size_t)header.syssize * 16;
	needed = setup_size + payload_size;
	if (!payload_size || size < setup_size + ENTRY_64_OFFSET + 1 ||
	    /* The last paragraph may be padding that the file does not hold. */
	    size + 15 < needed)
		return error_set(error, GP_ERR_IO_DATA_INTEGRITY,
				 "%s is truncated: its header announces %zu bytes, the file has "
				 "%zu; copy it again",
				 name, needed, size);
	if (header.init_size < payload_size || header.pref_address < LOWEST_SEGMENT ||
	    header.pref_address > ADDRESS_MAX)
		return error_set(error, GP_ERR_IO_DATA_INTEGRITY,
				 "%s has a damaged header: load address %#llx, memory needed %#x",
				 name, (unsigned long long)header.pref_address, header.init_size);
	image->kind = header.xloadflags & XLF_KERNEL_64 ? KERNEL_BZIMAGE : KERNEL_BZIMAGE_32;
	image->segments[0] = (struct kernel_segment){
		.file_offset = setup_size,
		.file_size = size - setup_size < payload_size ? size - setup_size : payload_size,
		.gpa = header.pref_address,
		.memory_size = header.init_size,
	};
	image->segment_count = 1;
	image->start = header.pref_address;
	image->end = header.pref_address + header.init_size;
	image->entry = header.pref_address +
		       (image->kind == KERNEL_BZIMAGE ? ENTRY_64_OFFSET : ENTRY_32_OFFSET);
	image->initrd_max = header.initrd_addr_max;
	image->command_line_max = header.cmdline_size;
	/* The header ends where its jump instruction (two bytes at 0x200) lands. */
	image->setup_header_size = HEADER_MAGIC + bytes[JUMP_DISTANCE] - SETUP_SECTS;
	if (image->setup_header_size > sizeof(header))
		image->setup_header_size = sizeof(header);
	return GP_OK;
}

/* Looks through one PT_NOTE segment for the PVH entry. */
static bool find_pvh_entry(Elf *elf, const GElf_Phdr *segment, size_t size, uint64_t *entry)
{
	size_t offset = 0;
	Elf_Data *notes;

	if (segment->p_offset > size || segment->p_filesz > size - segment->p_offset)
		return false;
	notes = elf_getdata_rawchunk(elf, (int64_t)segment->p_offset, segment->p_filesz,
				     segment->p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR);
	if (!notes)
		return false;
	for (;;) {
		GElf_Nhdr note;
		size_t name_offset, data_offset;
		const uint8_t *data = notes->d_buf;
		size_t next = gelf_getnote(notes, offset, &note, &name_offset, &data_offset);

		if (!next)
			return false;
		if (note.n_type == XEN_ELFNOTE_PHYS32_ENTRY && note.n_namesz == 4 &&
		    !memcmp(data + name_offset, "Xen", 4) && note.n_descsz >= 4) {
			uint32_t low;

			memcpy(&low, data + data_offset, sizeof(low));
			*entry = low;
			return true;
		}
		offset = next;
	}
}

static gp_status_t add_segment(const char *name, size_t size, const GElf_Phdr *header,
			       struct kernel_image *image, struct error *error)
{
	uint64_t end;

	if (!header->p_memsz)
		return GP_OK;
	if (image->segment_count == KERNEL_SEGMENTS_MAX)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "%s has more than %d loadable segments", name,
				 KERNEL_SEGMENTS_MAX);
	if (header->p_offset > size || header->p_filesz > size - header->p_offset)
		return error_set(error, GP_ERR_IO_DATA_INTEGRITY,
				 "%s is truncated: a segment ends at byte %llu, the file at %zu",
				 name, (unsigned long long)(header->p_offset + header->p_filesz),
				 size);
	if (header->p_filesz > header->p_memsz || header->p_paddr < LOWEST_SEGMENT ||
	    header->p_paddr > ADDRESS_MAX || header->p_memsz > ADDRESS_MAX)
		return error_set(
			error, GP_ERR_NOT_SUPPORTED,
			"%s wants a segment of %#llx bytes at physical %#llx; segments must "
			"lie above 1 MiB",
			name, (unsigned long long)header->p_memsz,
			(unsigned long long)header->p_paddr);
	end = header->p_paddr + header->p_memsz;
	image->segments[image->segment_count++] = (struct kernel_segment){
		.file_offset = header->p_offset,
		.file_size = header->p_filesz,
		.gpa = header->p_paddr,
		.memory_size = header->p_memsz,
	};
	if (header->p_paddr < image->start)
		image->start = header->p_paddr;
	if (end > image->end)
		image->end = end;
	return GP_OK;
}

/* What a Multiboot kernel asks for has to be there, or it must not be started. */
static gp_status_t check_multiboot(const char *name, const struct multiboot_header *header,
				   struct error *error)
{
	/* Modules begin on pages here whether or not one asks for it; there is no screen, and the
	 * specification lets a kernel only prefer one. */
	const uint32_t known = 1u | MULTIBOOT_WANTS_MEMORY | MULTIBOOT_WANTS_VIDEO;

	if (header->flags & MULTIBOOT_REQUIRED_MASK & ~known)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "%s requires features of a Multiboot loader (flags %#x) that are "
				 "not known here",
				 name, header->flags & MULTIBOOT_REQUIRED_MASK & ~known);
	return GP_OK;
}

static gp_status_t refuse_elf(const char *name, const uint8_t *bytes, size_t size,
			      struct error *error)
{
	if (multiboot_is_version_2(bytes, size))
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "%s has a Multiboot 2 header only; give it a Multiboot 1 header "
				 "or a PVH note too",
				 name);
	return error_set(error, GP_ERR_NOT_SUPPORTED,
			 "%s is an ELF file without a PVH entry note or a Multiboot header; give a "
			 "bzImage, or an ELF kernel built with CONFIG_PVH",
			 name);
}

static gp_status_t parse_elf(const char *name, const uint8_t *bytes, size_t size, Elf *elf,
			     struct kernel_image *image, struct error *error)
{
	struct multiboot_header multiboot;
	const char *kind = "PVH entry";
	uint64_t linked_entry = 0;
	bool have_entry = false;
	GElf_Ehdr header;
	size_t count;

	if (elf_kind(elf) != ELF_K_ELF || !gelf_getehdr(elf, &header) ||
	    elf_getphdrnum(elf, &count))
		return error_set(error, GP_ERR_IO_DATA_INTEGRITY, "%s is a damaged ELF file: %s",
				 name, elf_errmsg(-1));
	if (header.e_machine != EM_X86_64 && header.e_machine != EM_386)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "%s is an ELF file for another machine (e_machine %u), not x86",
				 name, header.e_machine);
	image->kind = KERNEL_PVH;
	image->start = UINT64_MAX;
	image->end = 0;
	for (size_t i = 0; i < count; i++) {
		GElf_Phdr segment;
		gp_status_t status;

		if (!gelf_getphdr(elf, (int)i, &segment))
			return error_set(error, GP_ERR_IO_DATA_INTEGRITY,
					 "%s is truncated: program header %zu of %zu is missing",
					 name, i, count);
		if (segment.p_type == PT_LOAD) {
			status = add_segment(name, size, &segment, image, error);
			if (status)
				return status;
			/* What starts without paging has to start at physical addresses; linkers
			 * give the others. */
			if (header.e_entry >= segment.p_vaddr &&
			    header.e_entry - segment.p_vaddr < segment.p_memsz)
				linked_entry = header.e_entry - segment.p_vaddr + segment.p_paddr;
		} else if (segment.p_type == PT_NOTE && !have_entry) {
			have_entry = find_pvh_entry(elf, &segment, size, &image->entry);
		}
	}
	if (!have_entry) {
		gp_status_t status;

		if (!multiboot_find_header(bytes, size, &multiboot))
			return refuse_elf(name, bytes, size, error);
		status = check_multiboot(name, &multiboot, error);
		if (status)
			return status;
		image->kind = KERNEL_MULTIBOOT;
		image->entry = linked_entry ? linked_entry : header.e_entry;
		kind = "entry";
	}
	if (!image->segment_count || image->entry < image->start || image->entry >= image->end)
		return error_set(error, GP_ERR_IO_DATA_INTEGRITY,
				 "%s: its %s %#llx lies in no loadable segment", name, kind,
				 (unsigned long long)image->entry);
	image->initrd_max = UINT32_MAX;
	image->command_line_max = 4096 - 1;
	return GP_OK;
}

/* A Multiboot kernel that says by itself which of its bytes go where. */
static gp_status_t parse_multiboot(const char *name, size_t size,
				   const struct multiboot_header *header,
				   struct kernel_image *image, struct error *error)
{
	gp_status_t status = check_multiboot(name, header, error);
	uint64_t before, in_file, end;

	if (status)
		return status;
	/* The header itself is loaded, so this is how far the file's first loaded byte is before
	 * it. */
	before = (uint64_t)header->header_address - header->load_address;
	if (header->header_address < header->load_address || before > header->offset ||
	    header->load_address < LOWEST_SEGMENT)
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "%s has a Multiboot header at %#x that loads it to %#x; it must "
				 "lie in what is loaded, above 1 MiB",
				 name, header->header_address, header->load_address);
	in_file = size - (header->offset - before);
	if (header->load_end) {
		if (header->load_end < header->load_address ||
		    header->load_end - header->load_address > in_file)
			return error_set(error, GP_ERR_IO_DATA_INTEGRITY,
					 "%s is truncated: its Multiboot header loads it to "
					 "%#x-%#x, the file has %llu bytes",
					 name, header->load_address, header->load_end,
					 (unsigned long long)in_file);
		in_file = header->load_end - header->load_address;
	}
	end = header->load_address + in_file;
	if (header->zero_end > end)
		end = header->zero_end;
	if (header->entry < header->load_address || header->entry >= end)
		return error_set(error, GP_ERR_IO_DATA_INTEGRITY,
				 "%s: its entry %#x lies outside of what is loaded", name,
				 header->entry);
	image->kind = KERNEL_MULTIBOOT;
	image->segments[0] = (struct kernel_segment){
		.file_offset = header->offset - before,
		.file_size = in_file,
		.gpa = header->load_address,
		.memory_size = end - header->load_address,
	};
	image->segment_count = 1;
	image->start = header->load_address;
	image->end = end;
	image->entry = header->entry;
	image->initrd_max = UINT32_MAX;
	image->command_line_max = 4096 - 1;
	return GP_OK;
}

/* Files that are taken for kernels, and what to do instead. */
static const struct {
	size_t offset;
	const char *magic;
	size_t size;
	const char *what;
} others[] = {
	{0, "\x1f\x8b", 2, "compressed by gzip: unpack it first, gzip -dc FILE >kernel"},
	{0, "\x28\xb5\x2f\xfd", 4, "compressed by zstd: unpack it first, zstd -dc FILE >kernel"},
	{0, "\xfd\x37zXZ", 6, "compressed by xz: unpack it first, xz -dc FILE >kernel"},
	{0, "MZ", 2,
	 "an EFI program, and there is no firmware to start it: give the kernel itself (of a "
	 "unified image: objcopy -O binary -j .linux FILE kernel)"},
	{0, "070701", 6, "an initramfs: give it with -i, and its kernel with -k"},
	{0, "QFI\xfb", 4, "a qcow2 disk: give a raw one with -d, and its kernel with -k"},
	{0x8001, "CD001", 5, "a CD image: take the kernel and the initrd out of it"},
	{0x1fe, "\x55\xaa", 2,
	 "a disk or its boot sector: give it with -d, and its kernel with -k"},
	{0x438, "\x53\xef", 2, "an ext4 file system: give it with -d, and its kernel with -k"},
	{0x38, "ARM\x64", 4, "a kernel for arm64, not x86"},
};

static gp_status_t refuse_other(const char *name, const uint8_t *bytes, size_t size,
				struct error *error)
{
	if (multiboot_is_version_2(bytes, size))
		return refuse_elf(name, bytes, size, error);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (size >= others[i].offset + others[i].size &&
		    !memcmp(bytes + others[i].offset, others[i].magic, others[i].size))
			return error_set(error, GP_ERR_NOT_SUPPORTED, "%s is not a kernel but %s",
					 name, others[i].what);
	return error_set(error, GP_ERR_NOT_SUPPORTED,
			 "%s is not a kernel: neither a bzImage (vmlinuz) nor an ELF file with a "
			 "PVH note, nor has it a Multiboot header",
			 name);
}

gp_status_t kernel_image_parse(const char *name, const uint8_t *bytes, size_t size,
			       struct kernel_image *out, struct error *error)
{
	struct kernel_image image = {.bytes = bytes, .size = size};
	struct multiboot_header multiboot;
	gp_status_t status;

	if (multiboot_find_header(bytes, size, &multiboot) &&
	    (multiboot.flags & MULTIBOOT_HAS_ADDRESSES)) {
		status = parse_multiboot(name, size, &multiboot, &image, error);
	} else if (size >= SELFMAG && !memcmp(bytes, ELFMAG, SELFMAG)) {
		elf_version(EV_CURRENT);
		/* libelf only reads: it was opened for nothing else. */
		Elf *elf = elf_memory((char *)(uintptr_t)bytes, size);

		if (!elf)
			return error_set(error, GP_ERR_IO_DATA_INTEGRITY,
					 "%s is a damaged ELF file: %s", name, elf_errmsg(-1));
		status = parse_elf(name, bytes, size, elf, &image, error);
		elf_end(elf);
	} else if (size >= HEADER_MAGIC + 4 && !memcmp(bytes + HEADER_MAGIC, "HdrS", 4) &&
		   bytes[BOOT_FLAG] == 0x55 && bytes[BOOT_FLAG + 1] == 0xaa) {
		status = parse_bzimage(name, bytes, size, &image, error);
	} else {
		status = refuse_other(name, bytes, size, error);
	}
	if (!status)
		*out = image;
	return status;
}

gp_status_t kernel_image_open(const char *path, struct kernel_image *image, struct error *error)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	gp_status_t status;
	struct stat file;
	uint8_t *bytes;
	size_t size;

	if (fd < 0)
		return error_set_errno(error, errno, "cannot open the kernel %s", path);
	if (fstat(fd, &file))
		return error_set_errno(error, errno, "cannot look at the kernel %s", path);
	if (!S_ISREG(file.st_mode) || !file.st_size || (uint64_t)file.st_size > KERNEL_FILE_MAX)
		return error_set(error, GP_ERR_NOT_SUPPORTED, "%s is not a kernel: it is %s", path,
				 !S_ISREG(file.st_mode) ? "not a regular file"
				 : file.st_size         ? "larger than 2 GiB"
							: "empty");
	/* A private copy: a file that somebody cuts while we read a mapping of it would end us
	 * with SIGBUS. */
	size = (size_t)file.st_size;
	bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (bytes == MAP_FAILED)
		return error_set_errno(error, errno, "no memory to read the kernel %s", path);
	errno = 0;
	if (io_read(fd, bytes, size) == size)
		status = kernel_image_parse(path, bytes, size, image, error);
	else if (errno)
		status = error_set_errno(error, errno, "cannot read %s", path);
	else
		status = error_set(error, GP_ERR_IO, "%s became shorter while it was read", path);
	if (status)
		munmap(bytes, size);
	return status;
}

void kernel_image_close(struct kernel_image *image)
{
	if (image->bytes)
		munmap((void *)(uintptr_t)image->bytes, image->size);
	image->bytes = NULL;
}
