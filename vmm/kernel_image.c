#include "vmm/kernel_image.h"

#include "base/cleanup.h"

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
				 "%s speaks boot protocol %u.%02u; 2.12 or newer is needed, which "
				 "is Linux 3.8 of 2013",
				 name, header.version >> 8, header.version & 0xff);
	if (!(header.xloadflags & XLF_KERNEL_64))
		return error_set(error, GP_ERR_NOT_SUPPORTED,
				 "%s has no 64-bit entry point; give a kernel built for x86-64",
				 name);
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
	image->kind = KERNEL_BZIMAGE;
	image->segments[0] = (struct kernel_segment){
		.file_offset = setup_size,
		.file_size = size - setup_size < payload_size ? size - setup_size : payload_size,
		.gpa = header.pref_address,
		.memory_size = header.init_size,
	};
	image->segment_count = 1;
	image->start = header.pref_address;
	image->end = header.pref_address + header.init_size;
	image->entry = header.pref_address + ENTRY_64_OFFSET;
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

static gp_status_t parse_elf(const char *name, size_t size, Elf *elf, struct kernel_image *image,
			     struct error *error)
{
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
		} else if (segment.p_type == PT_NOTE && !have_entry) {
			have_entry = find_pvh_entry(elf, &segment, size, &image->entry);
		}
	}
	if (!have_entry)
		return error_set(
			error, GP_ERR_NOT_SUPPORTED,
			"%s is an ELF file without a PVH entry note; give a bzImage, or an "
			"ELF kernel built with CONFIG_PVH",
			name);
	if (!image->segment_count || image->entry < image->start || image->entry >= image->end)
		return error_set(error, GP_ERR_IO_DATA_INTEGRITY,
				 "%s: its PVH entry %#llx lies in no loadable segment", name,
				 (unsigned long long)image->entry);
	image->initrd_max = UINT32_MAX;
	image->command_line_max = 4096 - 1;
	return GP_OK;
}

gp_status_t kernel_image_parse(const char *name, const uint8_t *bytes, size_t size,
			       struct kernel_image *out, struct error *error)
{
	struct kernel_image image = {.bytes = bytes, .size = size};
	gp_status_t status;

	if (size >= SELFMAG && !memcmp(bytes, ELFMAG, SELFMAG)) {
		elf_version(EV_CURRENT);
		/* libelf only reads: it was opened for nothing else. */
		Elf *elf = elf_memory((char *)(uintptr_t)bytes, size);

		if (!elf)
			return error_set(error, GP_ERR_IO_DATA_INTEGRITY,
					 "%s is a damaged ELF file: %s", name, elf_errmsg(-1));
		status = parse_elf(name, size, elf, &image, error);
		elf_end(elf);
	} else if (size >= HEADER_MAGIC + 4 && !memcmp(bytes + HEADER_MAGIC, "HdrS", 4) &&
		   bytes[BOOT_FLAG] == 0x55 && bytes[BOOT_FLAG + 1] == 0xaa) {
		status = parse_bzimage(name, bytes, size, &image, error);
	} else {
		status =
			error_set(error, GP_ERR_NOT_SUPPORTED,
				  "%s is not a kernel: neither a bzImage (vmlinuz) nor an ELF file "
				  "with a PVH note",
				  name);
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
	size_t done = 0;

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
	bytes = mmap(NULL, (size_t)file.st_size, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (bytes == MAP_FAILED)
		return error_set_errno(error, errno, "no memory to read the kernel %s", path);
	while (done < (size_t)file.st_size) {
		ssize_t got = read(fd, bytes + done, (size_t)file.st_size - done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			status = got < 0 ? error_set_errno(error, errno, "cannot read %s", path)
					 : error_set(error, GP_ERR_IO,
						     "%s became shorter while it was read", path);
			munmap(bytes, (size_t)file.st_size);
			return status;
		}
		done += (size_t)got;
	}
	status = kernel_image_parse(path, bytes, done, image, error);
	if (status)
		munmap(bytes, (size_t)file.st_size);
	return status;
}

void kernel_image_close(struct kernel_image *image)
{
	if (image->bytes)
		munmap((void *)(uintptr_t)image->bytes, image->size);
	image->bytes = NULL;
}
