/* What guestprof and its helper for copies of programs say to each other, one message each way,
 * over a pair of sockets that keeps messages apart. Both are the same program: no versions, no byte
 * order. */
#ifndef NAMING_PROGRAM_FILES_PROTOCOL_H
#define NAMING_PROGRAM_FILES_PROTOCOL_H

#include "guest-introspection/elf/elf_image.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct program_files_request {
	uint32_t number;
	uint32_t build_id_size; /* 0: none */
	uint8_t build_id[ELF_BUILD_ID_LIMIT];
	uint64_t size; /* 0: not known */
	uint8_t code;  /* struct file_copy_wanted */
	uint8_t whole;
	char path[PATH_MAX]; /* terminated, "" or absolute */
};

/* With the file's descriptor where one was found. */
struct program_files_reply {
	uint32_t number;
	uint32_t found;
};

/* A file as a struct file_source. */
struct fd_source {
	struct file_source source; /* reads by fd_source_read() */
	int fd;
};
size_t fd_source_read(const struct file_source *source, uint64_t offset, void *buffer, size_t size);

/* The helper's life: answers until the other end is closed. `initrd_fd` and `symfs_fd` (of a
 * directory) may be -1. Takes over all three. */
struct disk_files;
void program_files_serve(int socket, int initrd_fd, int symfs_fd, const struct disk_files *disks);

#endif
