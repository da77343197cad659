/* Copies of a guest's programs: the right one of an archive, a directory and the host, and no
 * other. */
#include "base/cleanup.h"
#include "base/container.h"
#include "guest-introspection/elf/elf_sections.h"
#include "naming/cpio.h"
#include "naming/initrd_files.h"
#include "naming/program_files.h"
#include "naming/program_files_protocol.h"
#include "base/subprocess.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char work[] = "/tmp/guestprof-programs-XXXXXX";
static struct error error;
/* Two programs with build ids, one without. */
static char *first, *second, *plain;
static size_t first_size, second_size, plain_size;

static void shell(const char *script)
{
	const char *const argv[] = {"sh", "-ec", script, NULL};

	cr_assert_eq(subprocess_run(argv, work, NULL, 0, &error), GP_OK, "%s: %s", script,
		     error.text);
}

static char *load(const char *name, size_t *size)
{
	char path[PATH_MAX];
	struct stat file;
	AUTO_CLOSE int fd = -1;
	char *bytes;

	snprintf(path, sizeof(path), "%s/%s", work, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert(fd >= 0 && !fstat(fd, &file), "%s", path);
	*size = (size_t)file.st_size;
	bytes = malloc(*size + 1);
	cr_assert_eq(read(fd, bytes, *size), (ssize_t)*size);
	return bytes;
}

static void begin(void)
{
	signal(SIGPIPE, SIG_IGN);
	cr_assert(mkdtemp(work));
	shell("echo 'int main(void) { return 0; } int only_here(void) { return 1; }' >a.c;"
	      "cc -g -Wl,--build-id=sha1 -o first a.c; cc -O1 -Wl,--build-id=sha1 -o second a.c;"
	      "cc -Wl,--build-id=none -o plain a.c;"
	      "objcopy --only-keep-debug first first.debug; strip -o stripped first");
	first = load("first", &first_size);
	second = load("second", &second_size);
	plain = load("plain", &plain_size);
}

static void end(void)
{
	char command[128];

	free(first);
	free(second);
	free(plain);
	snprintf(command, sizeof(command), "rm -rf %s", work);
	shell(command);
}

TestSuite(program_files, .init = begin, .fini = end, .timeout = 60);

static struct file_copy_wanted wanted_of(const char *bytes, size_t size, const char *path)
{
	struct file_buffer buffer = file_buffer_over(bytes, size);
	struct file_copy_wanted wanted = {.path = path, .size = size};
	struct elf_image image;

	cr_assert_eq(elf_image_read(&buffer.source, &image, &error), GP_OK, "%s", error.text);
	wanted.build_id_size = image.build_id_size;
	memcpy(wanted.build_id, image.build_id, sizeof(wanted.build_id));
	return wanted;
}

static bool has_bytes(const struct file_source *source, const char *bytes, size_t size)
{
	AUTO_FREE char *read = malloc(size + 1);

	return file_source_read(source, 0, read, size + 1) == size && !memcmp(read, bytes, size);
}

static struct program_files *start(const char *initrd, const char *symfs)
{
	struct program_files_places places = {0};
	struct program_files *files;
	char paths[2][PATH_MAX];

	snprintf(paths[0], sizeof(paths[0]), "%s/%s", work, initrd ? initrd : "");
	snprintf(paths[1], sizeof(paths[1]), "%s/%s", work, symfs ? symfs : "");
	places.initrd = initrd ? paths[0] : NULL;
	places.symfs = symfs ? paths[1] : NULL;
	cr_assert_eq(program_files_start(&places, &files, &error), GP_OK, "%s", error.text);
	program_files_copies(files)->patience_ms = 20000;
	return files;
}

/* Whether the answer is the file with these bytes; NULL: none. */
static bool finds(struct program_files *files, const struct file_copy_wanted *wanted,
		  const char *bytes, size_t size)
{
	struct file_copies *copies = program_files_copies(files);
	struct file_buffer guest = file_buffer_over(bytes ? bytes : "", bytes ? size : 0);
	const struct file_source *found;
	struct elf_image image;
	bool right;

	if (file_copies_open(copies, wanted, &guest.source, &found, &image) != FILE_COPY_FOUND)
		return !bytes;
	right = bytes && has_bytes(found, bytes, size);
	copies->release(copies, found);
	return right;
}

/* Archives. */

static void put(FILE *archive, const char *name, const void *bytes, size_t size)
{
	cr_assert_eq(cpio_put(archive, name, S_IFREG | 0755, 0, bytes, size, &error), GP_OK);
}

static FILE *create(const char *name)
{
	char path[PATH_MAX];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", work, name);
	file = fopen(path, "we");
	cr_assert(file);
	return file;
}

/* An early archive without programs, zeros, and one with all of them. */
static void make_archives(void)
{
	static const char zeros[1024];
	FILE *early = create("early"), *late = create("late");

	put(early, "kernel/x86/microcode/GenuineIntel.bin", zeros, 777);
	cpio_end(early, &error);
	fwrite(zeros, 1, 512 - (size_t)ftell(early) % 512, early);
	fclose(early);
	cr_assert_eq(cpio_put(late, "bin", S_IFDIR | 0755, 0, NULL, 0, &error), GP_OK);
	put(late, "bin/empty", NULL, 0);
	put(late, "bin/script", "#!/bin/sh\necho this is no program at all, but long enough\n", 57);
	put(late, "bin/second", second, second_size);
	put(late, "./bin/plain", plain, plain_size);
	put(late, "/bin/first", first, first_size);
	cpio_end(late, &error);
	fclose(late);
}

struct buffer_stream {
	struct cpio_stream stream;
	const char *bytes;
	size_t size;
};

static size_t read_buffer(struct cpio_stream *stream, void *buffer, size_t size)
{
	struct buffer_stream *self = container_of(stream, struct buffer_stream, stream);

	if (size > self->size)
		size = self->size;
	memcpy(buffer, self->bytes, size);
	self->bytes += size;
	self->size -= size;
	return size;
}

Test(program_files, entries_of_an_archive_come_as_they_were_written)
{
	struct buffer_stream stream = {.stream = {.read = read_buffer}};
	struct cpio_reader reader;
	struct cpio_entry entry;
	AUTO_FREE char *bytes = NULL;
	AUTO_FREE char *content = malloc(first_size);
	const char *const names[] = {"bin",       "bin/empty", "bin/script", "bin/second",
				     "bin/plain", "bin/first", "TRAILER!!!"};

	make_archives();
	bytes = load("late", &stream.size);
	stream.bytes = bytes;
	cpio_reader_init(&reader, &stream.stream);
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		cr_assert_eq(cpio_reader_next(&reader, &entry), CPIO_ENTRY, "%u", i);
		cr_assert_str_eq(entry.name, names[i]);
		cr_assert_eq(S_ISDIR(entry.mode), i == 0);
		/* Some are read in part, some not at all. */
		if (i == 3)
			cr_assert_eq(cpio_reader_read(&reader, content, 5), 5);
		if (i == 5) {
			cr_assert_eq(entry.size, first_size);
			cr_assert_eq(cpio_reader_read(&reader, content, first_size), first_size);
			cr_assert_eq(memcmp(content, first, first_size), 0);
			cr_assert_eq(cpio_reader_read(&reader, content, 1), 0);
		}
	}
	cr_assert_eq(cpio_reader_next(&reader, &entry), CPIO_END);
}

Test(program_files, an_archive_that_is_cut_or_forged_ends)
{
	AUTO_FREE char *bytes = NULL;
	size_t size;

	make_archives();
	bytes = load("early", &size);
	for (size_t cut = 1; cut < 1000; cut++) {
		struct buffer_stream stream = {
			.stream = {.read = read_buffer}, .bytes = bytes, .size = cut};
		enum cpio_next next = CPIO_ENTRY;
		struct cpio_reader reader;
		struct cpio_entry entry;

		cpio_reader_init(&reader, &stream.stream);
		for (unsigned i = 0; next == CPIO_ENTRY && i < 3; i++)
			next = cpio_reader_next(&reader, &entry);
		/* 928 bytes are a whole entry. */
		cr_assert_eq(next, cut == 928 ? CPIO_END : CPIO_BROKEN, "%zu", cut);
	}
	/* A name without an end, a size that is no number. */
	for (size_t at = 6; at < 110; at += 8) {
		struct buffer_stream stream = {
			.stream = {.read = read_buffer}, .bytes = bytes, .size = size};
		char before = bytes[at];
		struct cpio_reader reader;
		struct cpio_entry entry;
		unsigned entries = 0;

		bytes[at] = at == 6 + 8 * 11 ? 'f' : 'g';
		cpio_reader_init(&reader, &stream.stream);
		while (entries < 10 && cpio_reader_next(&reader, &entry) == CPIO_ENTRY)
			entries++;
		cr_assert_leq(entries, 2);
		bytes[at] = before;
	}
}

static void check_initrd(const char *name)
{
	struct file_copy_wanted wanted = wanted_of(first, first_size, "/elsewhere/first");
	struct file_copy_wanted other = wanted_of(plain, plain_size, "/bin/plain");
	struct file_copy_wanted unknown = wanted;
	struct program_files *files = start(name, NULL);

	unknown.build_id[3] ^= 1;
	cr_assert_eq(other.build_id_size, 0);
	cr_assert(finds(files, &wanted, first, first_size), "%s", name);
	cr_assert(finds(files, &unknown, NULL, 0));
	cr_assert(finds(files, &wanted, first, first_size)); /* again, after a whole pass */
	cr_assert(finds(files, &other, plain, plain_size));
	other.path = "/bin/second";
	cr_assert(finds(files, &other, NULL, 0));
	other.path = "/bin/plain";
	other.size++;
	cr_assert(finds(files, &other, NULL, 0));
	program_files_end(files);
}

Test(program_files, programs_are_found_in_an_initrd)
{
	make_archives();
	check_initrd("late");
	shell("cat early late >both");
	check_initrd("both");
}

/* How initramfs-tools packs: microcode that is not packed in front, the rest behind it. */
static void check_packed(const char *packer)
{
	char script[256];
	const char *const probe[] = {"sh", "-c", script, NULL};

	make_archives();
	snprintf(script, sizeof(script), "command -v %s", packer);
	if (subprocess_run(probe, work, NULL, 0, &error) != GP_OK)
		cr_skip_test("not installed: %s", packer);
	snprintf(script, sizeof(script), "%s <late >packed; cat early packed >both", packer);
	shell(script);
	check_initrd("both");
}

Test(program_files, programs_are_found_in_an_initrd_of_xz)
{
	check_packed("xz --check=crc32");
	check_packed("xz");
}

Test(program_files, programs_are_found_in_an_initrd_of_lzma)
{
	check_packed("xz --format=lzma");
}

Test(program_files, programs_are_found_in_an_initrd_of_zstd)
{
	check_packed("zstd -q");
}

Test(program_files, programs_are_found_in_an_initrd_of_lz4)
{
	check_packed("lz4 -lq");
}

Test(program_files, programs_are_found_in_an_initrd_of_lzop)
{
	check_packed("lzop");
}

/* More than one of a kind, one behind the other. */
Test(program_files, programs_are_found_in_an_initrd_of_gzip)
{
	check_packed("gzip");
	shell("gzip <early >head; cat head packed >parts");
	check_initrd("parts");
}

Test(program_files, programs_are_found_in_an_initrd_of_bzip2)
{
	check_packed("bzip2");
	shell("bzip2 <early >head; cat head packed >parts");
	check_initrd("parts");
}

/* Bytes that are not the guest's are not believed, whoever says so. */
Test(program_files, without_a_build_id_every_byte_at_hand_must_agree)
{
	struct file_copy_wanted wanted = wanted_of(plain, plain_size, "/bin/plain");
	struct file_buffer guest = file_buffer_over(plain, plain_size);
	struct program_files *files;
	struct file_copies *copies;
	const struct file_source *found;
	struct elf_image image;

	make_archives();
	files = start("late", NULL);
	copies = program_files_copies(files);
	cr_assert_eq(file_copies_open(copies, &wanted, &guest.source, &found, &image),
		     FILE_COPY_FOUND);
	copies->release(copies, found);
	/* Too little of it is there. */
	guest.size = 4096;
	cr_assert_eq(file_copies_open(copies, &wanted, &guest.source, &found, &image),
		     FILE_COPY_NONE);
	guest.size = plain_size;
	plain[plain_size / 2] ^= 1;
	cr_assert_eq(file_copies_open(copies, &wanted, &guest.source, &found, &image),
		     FILE_COPY_NONE);
	program_files_end(files);
}

Test(program_files, a_directory_has_programs_and_debugging_information)
{
	struct file_copy_wanted wanted = wanted_of(first, first_size, "/opt/first");
	struct file_copy_wanted other = wanted_of(second, second_size, "/opt/link");
	struct program_files *files;
	AUTO_FREE char *debug = NULL;
	AUTO_FREE char *stripped = NULL;
	size_t debug_size, stripped_size;
	char script[512], digits[2 * ELF_BUILD_ID_LIMIT + 1];

	for (unsigned i = 0; i < wanted.build_id_size; i++)
		snprintf(digits + 2 * i, 3, "%02x", wanted.build_id[i]);
	snprintf(script, sizeof(script),
		 "mkdir -p fs/opt fs/usr/lib/debug/.build-id/%.2s; cp second fs/opt/second;"
		 "cp stripped fs/opt/first; ln -s /opt/second fs/opt/link;"
		 "cp first.debug fs/usr/lib/debug/.build-id/%.2s/%s.debug; mkfifo fs/opt/fifo;"
		 "ln -s %s/first fs/opt/outside",
		 digits, digits, digits + 2, work);
	shell(script);
	debug = load("first.debug", &debug_size);
	stripped = load("stripped", &stripped_size);
	files = start(NULL, "fs");
	wanted.size = stripped_size;
	wanted.whole = true;
	cr_assert(finds(files, &wanted, debug, debug_size));
	wanted.whole = false;
	wanted.code = true;
	cr_assert(finds(files, &wanted, stripped, stripped_size));
	cr_assert(finds(files, &other, second, second_size));
	/* What is no file is left alone, and no link leads out. */
	other.path = "/opt/fifo";
	cr_assert(finds(files, &other, NULL, 0));
	other.path = "/../../../../../../proc/self/exe";
	cr_assert(finds(files, &other, NULL, 0));
	wanted.path = "/opt/outside";
	cr_assert(finds(files, &wanted, NULL, 0));
	program_files_end(files);
	cr_assert_eq(program_files_start(&(struct program_files_places){.symfs = "/nonexistent"},
					 &files, &error),
		     GP_ERR_NOT_FOUND);
	cr_assert(strstr(error.text, "/nonexistent"));
}

/* The C library of this process: the same path, the same build id. */
Test(program_files, the_hosts_own_files_are_taken_by_their_build_id_only)
{
	char path[PATH_MAX] = "", line[PATH_MAX];
	FILE *maps = fopen("/proc/self/maps", "re");
	struct program_files *files;
	struct file_copy_wanted wanted;
	AUTO_FREE char *bytes = malloc(16 << 20);
	AUTO_CLOSE int fd = -1;
	ssize_t size;

	while (maps && fgets(line, sizeof(line), maps))
		if (strstr(line, "/libc.so.6") || strstr(line, "/libc-2."))
			sscanf(strchr(line, '/'), "%s", path);
	fclose(maps);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		cr_skip_test("the C library of this machine is not where it is looked for");
	size = read(fd, bytes, 16 << 20);
	cr_assert_gt(size, 100000);
	wanted = wanted_of(bytes, (size_t)size, path);
	wanted.code = true;
	if (!wanted.build_id_size)
		cr_skip_test("the C library of this machine has no build id");
	files = start(NULL, NULL);
	cr_assert(finds(files, &wanted, bytes, (size_t)size));
	wanted.build_id[0] ^= 1;
	cr_assert(finds(files, &wanted, NULL, 0));
	wanted.build_id_size = 0;
	cr_assert(finds(files, &wanted, NULL, 0));
	program_files_end(files);
}

/* What takes long is answered later, and another question meanwhile as well. */
Test(program_files, who_asks_does_not_wait_for_an_archive)
{
	struct file_copy_wanted wanted[] = {wanted_of(first, first_size, "/bin/first"),
					    wanted_of(second, second_size, "/bin/second")};
	struct file_buffer guest = file_buffer_over(first, first_size);
	bool answered[2] = {false, false};
	struct program_files *files;
	struct file_copies *copies;

	make_archives();
	files = start("late", NULL);
	copies = program_files_copies(files);
	copies->patience_ms = 0;
	while (!answered[0] || !answered[1]) {
		for (unsigned i = 0; i < 2; i++) {
			const struct file_source *found;
			enum file_copy_result result;
			struct elf_image image;

			if (answered[i])
				continue;
			result =
				file_copies_open(copies, &wanted[i], &guest.source, &found, &image);
			cr_assert_neq(result, FILE_COPY_NONE);
			answered[i] = result == FILE_COPY_FOUND;
			if (!answered[i])
				continue;
			cr_assert(
				has_bytes(found, i ? second : first, i ? second_size : first_size));
			copies->release(copies, found);
		}
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	program_files_end(files);
}
