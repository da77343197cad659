/* The memory images that tests/images/make-image.sh makes: memory, registers, symbols. */
#ifndef TESTS_IMAGE_MEMORY_H
#define TESTS_IMAGE_MEMORY_H

#include "guest-introspection/x86/guest_cpu.h"
#include "tests/buffer_memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define IMAGE_CPUS 8
#define IMAGE_DIRECTORY "build/images"

struct image {
	struct buffer_memory memory;
	struct guest_cpu cpus[IMAGE_CPUS];
	unsigned cpu_count;
};

/* The number behind `name` in `line`, which must begin a word. */
static inline bool image_field(const char *line, const char *name, uint64_t *value)
{
	const char *at = strstr(line, name);

	while (at && at != line && at[-1] != ' ')
		at = strstr(at + 1, name);
	if (!at)
		return false;
	*value = strtoull(at + strlen(name), NULL, 16);
	return true;
}

/* "CS =0010 0000000000000000 ffffffff 00af9b00 ...": selector, base, limit, descriptor word */
static inline bool image_segment(const char *line, const char *name, struct guest_segment *segment)
{
	unsigned selector;
	unsigned long long base;
	unsigned limit;
	unsigned flags;

	if (strncmp(line, name, strlen(name)) != 0 ||
	    sscanf(line + strlen(name), "%x %llx %x %x", &selector, &base, &limit, &flags) != 4)
		return false;
	*segment = (struct guest_segment){.base = base,
					  .limit = limit,
					  .selector = (uint16_t)selector,
					  .dpl = flags >> 13 & 3,
					  .long_mode = flags >> 21 & 1,
					  .default_size = flags >> 22 & 1};
	return true;
}

static inline bool image_parse_registers(struct image *image, FILE *file)
{
	static const char *const names[GUEST_REGISTER_COUNT] = {
		"RAX=", "RCX=", "RDX=", "RBX=", "RSP=", "RBP=", "RSI=", "RDI=",
		"R8 =", "R9 =", "R10=", "R11=", "R12=", "R13=", "R14=", "R15="};
	struct guest_cpu *cpu = NULL;
	char line[512];

	image->cpu_count = 0;
	while (fgets(line, sizeof(line), file)) {
		uint64_t value;
		struct guest_segment segment;

		if (strncmp(line, "CPU#", 4) == 0) {
			if (image->cpu_count == IMAGE_CPUS)
				break;
			cpu = &image->cpus[image->cpu_count++];
			continue;
		}
		if (!cpu)
			continue;
		for (unsigned i = 0; i < GUEST_REGISTER_COUNT; i++)
			if (image_field(line, names[i], &value))
				cpu->gpr[i] = value;
		if (image_field(line, "RIP=", &value))
			cpu->rip = value;
		if (image_field(line, "RFL=", &value))
			cpu->rflags = value;
		if (image_field(line, "CPL=", &value))
			cpu->cpl = (uint8_t)value;
		if (image_field(line, "CR0=", &value))
			cpu->cr0 = value;
		if (image_field(line, "CR3=", &value))
			cpu->cr3 = value;
		if (image_field(line, "CR4=", &value))
			cpu->cr4 = value;
		if (image_field(line, "EFER=", &value))
			cpu->efer = value;
		image_segment(line, "CS =", &cpu->cs);
		image_segment(line, "SS =", &cpu->ss);
		image_segment(line, "DS =", &cpu->ds);
		image_segment(line, "FS =", &cpu->fs);
		image_segment(line, "GS =", &cpu->gs);
		if (image_segment(line, "TR =", &segment))
			cpu->tr_base = segment.base;
		if (strncmp(line, "IDT=", 4) == 0) {
			unsigned long long base;
			unsigned limit;

			if (sscanf(line + 4, "%llx %x", &base, &limit) == 2) {
				cpu->idt_base = base;
				cpu->idt_limit = (uint16_t)limit;
			}
		}
	}
	return image->cpu_count > 0;
}

static inline bool image_read_registers(struct image *image, const char *path)
{
	FILE *file = fopen(path, "re");
	bool found;

	if (!file)
		return false;
	found = image_parse_registers(image, file);
	fclose(file);
	return found;
}

/* Opens build/images/NAME. False: it is not there or not whole. */
static inline bool image_open(struct image *image, const char *name)
{
	char path[512];
	struct stat status;
	void *bytes;
	int fd;

	memset(image, 0, sizeof(*image));
	snprintf(path, sizeof(path), IMAGE_DIRECTORY "/%.99s/registers", name);
	if (!image_read_registers(image, path))
		return false;
	snprintf(path, sizeof(path), IMAGE_DIRECTORY "/%.99s/memory", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (fstat(fd, &status) < 0 || status.st_size == 0) {
		close(fd);
		return false;
	}
	bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (bytes == MAP_FAILED)
		return false;
	image->memory = buffer_memory_over(bytes, (uint64_t)status.st_size);
	return true;
}

static inline void image_close(struct image *image)
{
	munmap(image->memory.bytes, image->memory.size);
}

#endif
