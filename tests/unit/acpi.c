/* The ACPI tables: checksums, what a guest looks for, and iasl's opinion of them. */
#include "vmm/boot/acpi.h"
#include "vmm/devices/power.h"

#include "base/container.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BASE ACPI_TABLES_BASE

static uint8_t buffer[ACPI_TABLES_END - ACPI_TABLES_BASE];
static size_t size;

static uint32_t u32_at(const uint8_t *bytes)
{
	uint32_t value;

	memcpy(&value, bytes, sizeof(value));
	return value;
}

static uint64_t u64_at(const uint8_t *bytes)
{
	uint64_t value;

	memcpy(&value, bytes, sizeof(value));
	return value;
}

static uint8_t sum(const uint8_t *bytes, size_t count)
{
	uint8_t total = 0;

	for (size_t i = 0; i < count; i++)
		total += bytes[i];
	return total;
}

static void build(unsigned vcpus, unsigned devices)
{
	struct acpi_config config = {
		.vcpu_count = vcpus,
		.serial_port = 0x3f8,
		.serial_gsi = 4,
		.device_count = devices,
	};

	for (unsigned i = 0; i < devices; i++)
		config.devices[i] = (struct acpi_device){0xd0000000 + i * 0x1000, 0x1000, 5 + i};
	cr_assert_eq(acpi_build(&config, BASE, buffer, sizeof(buffer), &size, NULL), GP_OK);
	cr_assert_leq(size, sizeof(buffer));
}

/* The table at a guest-physical address, its length and checksum checked. */
static const uint8_t *table(uint64_t address, const char *signature)
{
	const uint8_t *bytes = buffer + (address - BASE);

	cr_assert(address >= BASE && address % 16 == 0 && address - BASE + 36 <= size);
	cr_assert_arr_eq(bytes, signature, 4);
	cr_assert_leq(address - BASE + u32_at(bytes + 4), size);
	cr_assert_eq(sum(bytes, u32_at(bytes + 4)), 0, "checksum of %s", signature);
	return bytes;
}

struct found {
	const uint8_t *xsdt, *fadt, *madt, *dsdt;
};

static struct found find_tables(void)
{
	struct found found;

	cr_assert_arr_eq(buffer, "RSD PTR ", 8);
	cr_assert_eq(sum(buffer, 20), 0);
	cr_assert_eq(sum(buffer, 36), 0);
	cr_assert_eq(buffer[15], 2);
	found.xsdt = table(u64_at(buffer + 24), "XSDT");
	cr_assert_eq(u32_at(found.xsdt + 4), 36 + 2 * 8);
	found.fadt = table(u64_at(found.xsdt + 36), "FACP");
	found.madt = table(u64_at(found.xsdt + 44), "APIC");
	found.dsdt = table(u64_at(found.fadt + 140), "DSDT");
	return found;
}

Test(acpi, hardware_reduced_with_power_off_and_reset)
{
	build(2, 3);
	const uint8_t *fadt = find_tables().fadt;

	cr_assert_eq(u32_at(fadt + 4), 276);
	cr_assert_eq(fadt[8], 6);
	cr_assert(u32_at(fadt + 112) & 1u << 20, "hardware-reduced");
	cr_assert(u32_at(fadt + 112) & 1u << 10, "has a reset register");
	cr_assert_eq(fadt[116], 1);
	cr_assert_eq(u64_at(fadt + 120), POWER_RESET_PORT);
	cr_assert_eq(u64_at(fadt + 248), POWER_SLEEP_CONTROL_PORT);
	cr_assert_eq(u64_at(fadt + 260), POWER_SLEEP_STATUS_PORT);
	cr_assert_eq(u32_at(fadt + 40), u64_at(fadt + 140), "both DSDT addresses");
}

/* Every vCPU once, in the entry that can hold its id, and one I/O APIC. */
static void check_madt(unsigned vcpus)
{
	build(vcpus, 0);
	const uint8_t *madt = find_tables().madt;
	unsigned next_id = 0, io_apics = 0;

	cr_assert_eq(u32_at(madt + 40) & 1, 0, "no 8259s");
	for (size_t at = 44; at < u32_at(madt + 4); at += madt[at + 1]) {
		cr_assert_gt(madt[at + 1], 0);
		if (madt[at] == 0) {
			cr_assert_eq(madt[at + 3], next_id++);
			cr_assert_eq(u32_at(madt + at + 4), 1);
		} else if (madt[at] == 9) {
			cr_assert_geq(next_id, 255);
			cr_assert_eq(u32_at(madt + at + 4), next_id++);
			cr_assert_eq(u32_at(madt + at + 8), 1);
		} else {
			cr_assert_eq(madt[at], 1);
			cr_assert_eq(u32_at(madt + at + 4), 0xfec00000);
			io_apics++;
		}
	}
	cr_assert_eq(next_id, vcpus);
	cr_assert_eq(io_apics, 1);
}

Test(acpi, lists_every_vcpu)
{
	static const unsigned counts[] = {1, 2, 4, 64, 254, 255, 256, 257, ACPI_VCPUS_MAX};

	for (size_t i = 0; i < ARRAY_SIZE(counts); i++)
		check_madt(counts[i]);
}

Test(acpi, refuses_what_it_cannot_describe)
{
	struct acpi_config config = {.vcpu_count = 0};
	struct error error;
	size_t untouched = 7;

	cr_assert_eq(acpi_build(&config, BASE, buffer, sizeof(buffer), &untouched, &error),
		     GP_ERR_INVALID_ARGS);
	config.vcpu_count = ACPI_VCPUS_MAX + 1;
	cr_assert_eq(acpi_build(&config, BASE, buffer, sizeof(buffer), &untouched, &error),
		     GP_ERR_INVALID_ARGS);
	config.vcpu_count = 1;
	config.device_count = ACPI_DEVICES_MAX + 1;
	cr_assert_eq(acpi_build(&config, BASE, buffer, sizeof(buffer), &untouched, &error),
		     GP_ERR_INVALID_ARGS);
	config.device_count = 0;
	cr_assert_eq(acpi_build(&config, BASE + 8, buffer, sizeof(buffer), &untouched, &error),
		     GP_ERR_INVALID_ARGS);
	cr_assert_eq(untouched, 7);
}

Test(acpi, never_writes_past_a_small_buffer)
{
	struct acpi_config config = {.vcpu_count = 4, .serial_port = 0x3f8, .device_count = 2};
	size_t full;
	struct error error;

	cr_assert_eq(acpi_build(&config, BASE, buffer, sizeof(buffer), &full, &error), GP_OK);
	for (size_t capacity = 0; capacity < full; capacity++) {
		uint8_t *exact = malloc(capacity + 1);
		size_t untouched = 7;

		exact[capacity] = 0xa5;
		cr_assert_eq(acpi_build(&config, BASE, exact, capacity, &untouched, &error),
			     GP_ERR_NO_RESOURCES);
		cr_assert_eq(exact[capacity], 0xa5);
		cr_assert_eq(untouched, 7);
		free(exact);
	}
}

/* Disassembles and recompiles one table with ACPICA's compiler; returns what it printed. */
static const char *iasl(const char *directory, const char *name, const uint8_t *bytes)
{
	static char said[16384];
	char path[256], command[1024];
	size_t length;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s.dat", directory, name);
	file = fopen(path, "w");
	cr_assert_not_null(file);
	cr_assert_eq(fwrite(bytes, 1, u32_at(bytes + 4), file), u32_at(bytes + 4));
	fclose(file);
	snprintf(command, sizeof(command), "cd %s && iasl -d %s.dat 2>&1 && iasl -tc %s.dsl 2>&1",
		 directory, name, name);
	file = popen(command, "r");
	cr_assert_not_null(file);
	length = fread(said, 1, sizeof(said) - 1, file);
	said[length] = 0;
	cr_assert_eq(pclose(file), 0, "iasl failed on %s: %s", name, said);
	cr_assert(strstr(said, "0 Errors, 0 Warnings, 0 Remarks"), "%s: %s", name, said);
	cr_assert_not(strcasestr(said, "invalid") || strcasestr(said, "Table length"), "%s", said);
	return said;
}

static void check_contains(const char *directory, const char *file_name, const char *wanted)
{
	static char text[1 << 20];
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory, file_name);
	file = fopen(path, "r");
	cr_assert_not_null(file);
	text[fread(text, 1, sizeof(text) - 1, file)] = 0;
	fclose(file);
	cr_assert_not_null(strstr(text, wanted), "no %s in %s", wanted, text);
}

Test(acpi, iasl_accepts_every_table, .timeout = 60)
{
	char directory[] = "/tmp/acpi-XXXXXX", command[64];

	if (system("iasl -v >/dev/null 2>&1"))
		cr_skip_test("iasl is not installed (package acpica-tools)");
	cr_assert_not_null(mkdtemp(directory));
	for (unsigned round = 0; round < 2; round++) {
		build(round ? 300 : 1, round ? 17 : 1);
		struct found found = find_tables();

		iasl(directory, "dsdt", found.dsdt);
		iasl(directory, "facp", found.fadt);
		iasl(directory, "apic", found.madt);
		iasl(directory, "xsdt", found.xsdt);
	}
	/* The names as a disassembler reads them back. */
	check_contains(directory, "dsdt.dsl", "EisaId (\"PNP0501\")");
	check_contains(directory, "dsdt.dsl", "\"LNRO0005\"");
	check_contains(directory, "dsdt.dsl", "Device (VI10)");
	check_contains(directory, "dsdt.dsl", "0xD0010000,         // Address Base");
	check_contains(directory, "dsdt.dsl", "Name (_S5, Package (0x04)");
	check_contains(directory, "dsdt.dsl", "Edge, ActiveHigh, Exclusive");
	snprintf(command, sizeof(command), "rm -r %s", directory);
	cr_assert_eq(system(command), 0);
}
