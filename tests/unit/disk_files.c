/* Programs taken from the file systems on a guest's disks: the right ones, wherever they are, and
 * nothing that a guest may have written there does harm. */
#include "base/cleanup.h"
#include "guest-introspection/elf/elf_image.h"
#include "naming/disk_files.h"
#include "naming/program_files.h"
#include "base/subprocess.h"
#include "vmm/sandbox.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PARTITION_OFFSET (UINT64_C(1) << 20)
#define IMAGE_SIZE "8M"

static char work[] = "/tmp/guestprof-disks-XXXXXX";
static struct error error;
static char *program; /* with a build id */
static size_t program_size;

static void shell(const char *script)
{
	const char *const argv[] = {"sh", "-ec", script, NULL};

	cr_assert_eq(subprocess_run(argv, work, NULL, 0, &error), GP_OK, "%s: %s", script,
		     error.text);
}

static const char *path_of(const char *name)
{
	static char paths[4][PATH_MAX];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, PATH_MAX, "%s/%s", work, name);
	return path;
}

static char *load(const char *name, size_t *size)
{
	AUTO_CLOSE int fd = open(path_of(name), O_RDONLY | O_CLOEXEC);
	struct stat file;
	char *bytes;

	cr_assert(fd >= 0 && !fstat(fd, &file), "%s", name);
	*size = (size_t)file.st_size;
	bytes = malloc(*size + 1);
	cr_assert_eq(read(fd, bytes, *size), (ssize_t)*size);
	return bytes;
}

static void store(const char *name, const char *bytes, size_t size, off_t offset)
{
	AUTO_CLOSE int fd = open(path_of(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	cr_assert(fd >= 0 && pwrite(fd, bytes, size, offset) == (ssize_t)size, "%s", name);
}

/* "plain": an ext4 file system on the whole disk, with a program behind a link. */
static void begin(void)
{
	signal(SIGPIPE, SIG_IGN);
	cr_assert(mkdtemp(work));
	shell("mkdir -p root/usr/lib root/empty; echo 'int main(void) { return 0; }' >a.c;"
	      "cc -Wl,--build-id=sha1 -o root/usr/lib/program a.c;"
	      "cc -O1 -g -Wl,--build-id=sha1 -o root/usr/lib/other a.c; ln -s usr/lib root/lib;"
	      "ln -s loop root/loop; PATH=$PATH:/sbin:/usr/sbin;"
	      "truncate -s " IMAGE_SIZE " plain; mke2fs -q -t ext4 -F -d root plain");
	program = load("root/usr/lib/program", &program_size);
}

static void end(void)
{
	char command[128];

	free(program);
	snprintf(command, sizeof(command), "rm -rf %s", work);
	shell(command);
}

TestSuite(disk_files, .init = begin, .fini = end, .timeout = 120);

static void open_disk(struct disk_files *disks, const char *name)
{
	const char *paths[] = {path_of("not-there"), path_of(name)};
	gp_status_t status = disk_files_init(disks, paths, 2, sandbox_disk_reader, &error);

	if (status == GP_ERR_NOT_SUPPORTED)
		cr_skip_test("%s", error.text);
	cr_assert_eq(status, GP_OK, "%s", error.text);
	cr_assert_eq(disks->count, 1);
}

static bool any(const void *context, int fd)
{
	(void)context;
	return fd >= 0;
}

/* Whether the file at `path` on the disk has these bytes; NULL: there is none. */
static bool has(const char *disk, const char *path, const char *bytes, size_t size)
{
	AUTO_FREE char *read_bytes = malloc(size + 1);
	struct disk_files disks;
	AUTO_CLOSE int fd = -1;

	open_disk(&disks, disk);
	fd = disk_files_take(&disks, path, any, NULL);
	disk_files_deinit(&disks);
	if (fd < 0 || !bytes)
		return fd < 0 && !bytes;
	return pread(fd, read_bytes, size + 1, 0) == (ssize_t)size &&
	       !memcmp(read_bytes, bytes, size);
}

static bool has_program(const char *disk, const char *path)
{
	return has(disk, path, program, program_size);
}

Test(disk_files, a_file_is_found_by_its_path_through_links_and_below_mount_points)
{
	cr_assert(has_program("plain", "/usr/lib/program"));
	cr_assert(has_program("plain", "/lib/program"));
	cr_assert(has_program("plain", "/mnt/some/where/usr/lib/program"));
	cr_assert(has("plain", "/usr/lib/missing", NULL, 0));
	cr_assert(has("plain", "/usr/lib", NULL, 0));
	cr_assert(has("plain", "/loop", NULL, 0));
	cr_assert(has("plain", "/", NULL, 0));
	cr_assert(has("plain", "", NULL, 0));
	cr_assert(has("plain", "/../../../../etc/passwd", NULL, 0));
}

/* One entry of type Linux, from the second mebibyte on: IBM's partition table. */
Test(disk_files, partitions_are_looked_through)
{
	char table[512] = {0};
	AUTO_FREE char *image = NULL;
	size_t size;
	const uint32_t start = PARTITION_OFFSET / 512;
	uint32_t sectors;

	image = load("plain", &size);
	sectors = (uint32_t)(size / 512);
	table[446 + 4] = (char)0x83;
	memcpy(table + 446 + 8, &start, 4);
	memcpy(table + 446 + 12, &sectors, 4);
	table[510] = 0x55;
	table[511] = (char)0xaa;
	store("parted", table, sizeof(table), 0);
	store("parted", image, size, PARTITION_OFFSET);
	cr_assert(has_program("parted", "/usr/lib/program"));
	/* A partition that ends before its file system does. */
	sectors = 2048;
	memcpy(table + 446 + 12, &sectors, 4);
	store("parted", table, sizeof(table), 0);
	cr_assert(has("parted", "/usr/lib/missing", NULL, 0));
}

Test(disk_files, partitions_of_a_guid_table_are_looked_through)
{
	AUTO_FREE char *image = NULL;
	size_t size;

	if (access("/sbin/sfdisk", X_OK) && access("/usr/sbin/sfdisk", X_OK))
		cr_skip_test("sfdisk is not installed (apt-get install fdisk)");
	image = load("plain", &size);
	shell("PATH=$PATH:/sbin:/usr/sbin; truncate -s 32M guid;"
	      "printf 'label: gpt\\nstart=2048, size=2048\\nstart=8192\\n' | sfdisk -q guid");
	store("guid", image, size, 8192 * 512);
	cr_assert(has_program("guid", "/lib/program"));
}

static bool is_program(const void *context, int fd)
{
	AUTO_FREE char *bytes = malloc(program_size);

	return pread(fd, bytes, program_size, 0) == (ssize_t)program_size &&
	       memcmp(bytes, context, program_size) == 0;
}

Test(disk_files, of_several_the_one_that_is_wanted_is_taken)
{
	const char *paths[2];
	struct disk_files disks;
	AUTO_CLOSE int fd = -1;

	shell("cp -r root second; cp second/usr/lib/other second/usr/lib/program; "
	      "PATH=$PATH:/sbin:/usr/sbin;"
	      "truncate -s " IMAGE_SIZE " first; mke2fs -q -t ext2 -F -d second first");
	paths[0] = path_of("first");
	paths[1] = path_of("plain");
	if (disk_files_init(&disks, paths, 2, sandbox_disk_reader, &error) == GP_ERR_NOT_SUPPORTED)
		cr_skip_test("%s", error.text);
	fd = disk_files_take(&disks, "/usr/lib/program", is_program, program);
	cr_assert_geq(fd, 0);
	cr_assert(is_program(program, fd));
	disk_files_deinit(&disks);
}

/* In the process that reads what a guest wrote. */
static bool cannot_open(const void *context, int fd)
{
	(void)context;
	(void)fd;
	return open("/etc/passwd", O_RDONLY | O_CLOEXEC) < 0 && errno == EPERM;
}

static bool reaches_out(const void *context, int fd)
{
	(void)context;
	(void)fd;
	close(STDERR_FILENO); /* what the sandbox says is expected */
	access("/dev/null", F_OK);
	return true;
}

static bool dies(const void *context, int fd)
{
	(void)context;
	(void)fd;
	abort();
}

Test(disk_files, whoever_reads_them_is_confined)
{
	struct disk_files disks;
	AUTO_CLOSE int fd = -1;

	if (!sandbox_is_supported())
		cr_skip_test("built with a sanitizer: there is no sandbox");
	open_disk(&disks, "plain");
	fd = disk_files_take(&disks, "/usr/lib/program", cannot_open, NULL);
	cr_assert_geq(fd, 0);
	cr_assert_eq(disk_files_take(&disks, "/usr/lib/program", reaches_out, NULL), -1);
	disk_files_deinit(&disks);
}

Test(disk_files, what_kills_the_reader_is_an_answer)
{
	struct disk_files disks;
	AUTO_CLOSE int fd = -1;

	open_disk(&disks, "plain");
	cr_assert_eq(disk_files_take(&disks, "/usr/lib/program", dies, NULL), -1);
	fd = disk_files_take(&disks, "/usr/lib/program", any, NULL);
	cr_assert_geq(fd, 0);
	disk_files_deinit(&disks);
}

/* A file system that was broken in many places, as a guest could. */
Test(disk_files, a_broken_file_system_has_an_end)
{
	enum { ROUNDS = 60, CHANGES = 200 };
	AUTO_FREE char *image = NULL;
	AUTO_FREE char *broken = NULL;
	struct disk_files disks;
	unsigned found = 0;
	size_t size;

	image = load("plain", &size);
	broken = malloc(size);
	srandom(1);
	for (unsigned round = 0; round < ROUNDS; round++) {
		int fd;

		memcpy(broken, image, size);
		/* Where the tables are, mostly: the first 128 KiB. */
		for (unsigned i = 0; i < CHANGES; i++)
			broken[(size_t)random() % (round % 2 ? size : 128u << 10)] = (char)random();
		store("broken", broken, size, 0);
		open_disk(&disks, "broken");
		fd = disk_files_take(&disks, "/usr/lib/program", any, NULL);
		disk_files_deinit(&disks);
		found += fd >= 0;
		if (fd >= 0)
			close(fd);
	}
	/* Neither all of them nor none: it was tried at both kinds. */
	cr_assert(found > 0 && found < ROUNDS, "%u", found);
	cr_assert(has_program("plain", "/usr/lib/program"));
}

static struct program_files *start_helper(const char *disk)
{
	const char *disks[] = {path_of(disk)};
	struct program_files_places places = {
		.disks = disks, .disk_count = 1, .confine = sandbox_disk_reader};
	struct program_files *files;

	cr_assert_eq(program_files_start(&places, &files, &error), GP_OK, "%s", error.text);
	if (program_files_no_disks(files))
		cr_skip_test("%s", program_files_no_disks(files));
	program_files_copies(files)->patience_ms = 20000;
	return files;
}

/* All the way: guestprof asks its helper, by build id. */
Test(disk_files, the_helper_finds_programs_on_disks)
{
	struct file_buffer buffer = file_buffer_over(program, program_size);
	struct file_copy_wanted wanted = {
		.path = "/usr/lib/program", .size = program_size, .code = true};
	const struct file_source *found;
	struct program_files *files;
	struct file_copies *copies;
	struct elf_image image;
	uint8_t byte;

	cr_assert_eq(elf_image_read(&buffer.source, &image, &error), GP_OK);
	wanted.build_id_size = image.build_id_size;
	memcpy(wanted.build_id, image.build_id, sizeof(wanted.build_id));
	files = start_helper("plain");
	copies = program_files_copies(files);
	cr_assert_eq(file_copies_open(copies, &wanted, &buffer.source, &found, &image),
		     FILE_COPY_FOUND);
	cr_assert_eq(file_source_read(found, program_size - 1, &byte, 1), 1);
	copies->release(copies, found);
	/* A file of that name, but not that one. */
	wanted.path = "/usr/lib/other";
	cr_assert_eq(file_copies_open(copies, &wanted, &buffer.source, &found, &image),
		     FILE_COPY_NONE);
	program_files_end(files);
}

/* As a guest has it that installed debugging information. */
Test(disk_files, the_helper_finds_debugging_information_on_disks)
{
	struct file_copy_wanted wanted = {.path = "/usr/lib/other", .whole = true};
	AUTO_FREE char *other = NULL;
	struct file_buffer buffer;
	const struct file_source *found;
	struct program_files *files;
	struct file_copies *copies;
	struct elf_image image;
	char script[512], digits[2 * ELF_BUILD_ID_LIMIT + 1] = "";
	size_t size;

	other = load("root/usr/lib/other", &size);
	buffer = file_buffer_over(other, size);
	cr_assert_eq(elf_image_read(&buffer.source, &image, &error), GP_OK);
	wanted.size = size;
	wanted.build_id_size = image.build_id_size;
	memcpy(wanted.build_id, image.build_id, sizeof(wanted.build_id));
	for (unsigned i = 0; i < wanted.build_id_size; i++)
		snprintf(digits + 2 * i, 3, "%02x", wanted.build_id[i]);
	snprintf(script, sizeof(script),
		 "d=root/usr/lib/debug/.build-id/%.2s; mkdir -p $d; strip root/usr/lib/program;"
		 "objcopy --only-keep-debug root/usr/lib/other $d/%s.debug;"
		 "strip root/usr/lib/other; PATH=$PATH:/sbin:/usr/sbin;"
		 "truncate -s " IMAGE_SIZE " debug; mke2fs -q -t ext4 -F -d root debug",
		 digits, digits + 2);
	shell(script);
	files = start_helper("debug");
	copies = program_files_copies(files);
	cr_assert_eq(file_copies_open(copies, &wanted, &buffer.source, &found, &image),
		     FILE_COPY_FOUND);
	copies->release(copies, found);
	/* The stripped program has no more than the guest has itself. */
	wanted.build_id[0] ^= 1;
	cr_assert_eq(file_copies_open(copies, &wanted, &buffer.source, &found, &image),
		     FILE_COPY_NONE);
	program_files_end(files);
}
