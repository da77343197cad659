/* Section numbers are those of the ACPI Specification 6.5. */
#include "vmm/boot/acpi.h"

#include "vmm/boot/aml.h"
#include "vmm/devices/power.h"

#include <stdbool.h>
#include <string.h>

#define LOCAL_APIC_ADDRESS UINT32_C(0xfee00000)
#define IO_APIC_ADDRESS UINT32_C(0xfec00000)
/* Ids from here up do not fit a local APIC entry (5.2.12.2): 255 addresses all of them. */
#define X2APIC_FIRST_ID 255

#define CMOS_CENTURY 0x32 /* as in cmos.c */

struct table_header {
	char signature[4];
	uint32_t length;
	uint8_t revision;
	uint8_t checksum;
	char oem_id[6];
	char oem_table_id[8];
	uint32_t oem_revision;
	char creator_id[4];
	uint32_t creator_revision;
} __attribute__((packed));
_Static_assert(sizeof(struct table_header) == 36, "5.2.6");

struct rsdp {
	char signature[8];
	uint8_t checksum; /* over the first 20 bytes */
	char oem_id[6];
	uint8_t revision;
	uint32_t rsdt_address;
	uint32_t length;
	uint64_t xsdt_address;
	uint8_t extended_checksum; /* over all */
	uint8_t reserved[3];
} __attribute__((packed));
_Static_assert(sizeof(struct rsdp) == 36, "5.2.5.3");

struct xsdt {
	struct table_header header;
	uint64_t tables[2];
} __attribute__((packed));

struct generic_address {
	uint8_t space;
	uint8_t bit_width;
	uint8_t bit_offset;
	uint8_t access_size;
	uint64_t address;
} __attribute__((packed));
_Static_assert(sizeof(struct generic_address) == 12, "5.2.3.2");

struct fadt {
	struct table_header header;
	uint32_t facs_address;
	uint32_t dsdt_address;
	uint8_t reserved1;
	uint8_t preferred_profile;
	/* Fixed hardware that hardware-reduced ACPI does not have. */
	uint8_t no_fixed_hardware[62];
	uint8_t century;
	uint16_t boot_architecture;
	uint8_t reserved2;
	uint32_t flags;
	struct generic_address reset_register;
	uint8_t reset_value;
	uint16_t arm_boot_architecture;
	uint8_t minor_version;
	uint64_t x_facs_address;
	uint64_t x_dsdt_address;
	struct generic_address no_fixed_registers[8];
	struct generic_address sleep_control;
	struct generic_address sleep_status;
	char hypervisor_vendor[8];
} __attribute__((packed));
_Static_assert(offsetof(struct fadt, century) == 108, "5.2.9");
_Static_assert(offsetof(struct fadt, reset_register) == 116, "5.2.9");
_Static_assert(offsetof(struct fadt, sleep_control) == 244, "5.2.9");
_Static_assert(sizeof(struct fadt) == 276, "5.2.9");

#define FADT_WBINVD (1u << 0)
#define FADT_NO_POWER_BUTTON (1u << 4)
#define FADT_NO_SLEEP_BUTTON (1u << 5)
#define FADT_RESET_REGISTER (1u << 10)
#define FADT_HARDWARE_REDUCED (1u << 20)
#define FADT_BOOT_NO_VGA (1u << 2) /* no need to look for one */

struct madt {
	struct table_header header;
	uint32_t local_apic_address;
	uint32_t flags; /* bit 0 would promise a pair of 8259s */
} __attribute__((packed));

struct madt_local_apic {
	uint8_t type; /* 0 */
	uint8_t length;
	uint8_t uid;
	uint8_t id;
	uint32_t flags;
} __attribute__((packed));
_Static_assert(sizeof(struct madt_local_apic) == 8, "5.2.12.2");

struct madt_io_apic {
	uint8_t type; /* 1 */
	uint8_t length;
	uint8_t id;
	uint8_t reserved;
	uint32_t address;
	uint32_t first_gsi;
} __attribute__((packed));
_Static_assert(sizeof(struct madt_io_apic) == 12, "5.2.12.3");

struct madt_local_x2apic {
	uint8_t type; /* 9 */
	uint8_t length;
	uint16_t reserved;
	uint32_t id;
	uint32_t flags;
	uint32_t uid;
} __attribute__((packed));
_Static_assert(sizeof(struct madt_local_x2apic) == 16, "5.2.12.12");

#define MADT_ENABLED 1

static uint8_t sum(const void *bytes, size_t size)
{
	const uint8_t *byte = bytes;
	uint8_t total = 0;

	for (size_t i = 0; i < size; i++)
		total += byte[i];
	return total;
}

static struct table_header header(const char *signature, uint8_t revision)
{
	struct table_header made = {
		.revision = revision,
		.oem_id = {'G', 'U', 'E', 'S', 'T', 'P'},
		.oem_table_id = {'G', 'U', 'E', 'S', 'T', 'P', 'R', 'F'},
		.oem_revision = 1,
		.creator_id = {'G', 'P', 'R', 'F'},
		.creator_revision = 1,
	};

	memcpy(made.signature, signature, sizeof(made.signature));
	return made;
}

/* Starts a table on a 16-byte boundary and returns its offset. */
static size_t begin_table(struct aml *out)
{
	static const uint8_t zeros[16];

	aml_bytes(out, zeros, -out->size & 15);
	return out->size;
}

/* Fills in length and checksum of the table that began at `start` and ends here. */
static void end_table(struct aml *out, size_t start)
{
	uint32_t length = (uint32_t)(out->size - start);
	uint8_t *table = out->buffer + start;
	uint8_t checksum;

	if (out->failed)
		return;
	memcpy(table + offsetof(struct table_header, length), &length, sizeof(length));
	checksum = (uint8_t)-sum(table, length);
	table[offsetof(struct table_header, checksum)] = checksum;
}

static void put_serial_device(struct aml *out, const struct acpi_config *config)
{
	struct aml_block device = aml_begin_device(out, "COM1");
	struct aml_block resources;

	aml_name(out, "_HID");
	aml_integer(out, aml_eisa_id("PNP0501"));
	aml_name(out, "_UID");
	aml_integer(out, 0);
	aml_name(out, "_CRS");
	resources = aml_begin_resources(out);
	aml_resource_ports(out, config->serial_port, 8);
	aml_resource_interrupt(out, config->serial_gsi);
	aml_end_resources(out, resources);
	aml_end(out, device);
}

static void put_virtio_device(struct aml *out, const struct acpi_device *device, unsigned index)
{
	static const char digits[] = "0123456789ABCDEF";
	const char segment[] = {'V', 'I', digits[index >> 4 & 15], digits[index & 15], 0};
	struct aml_block block = aml_begin_device(out, segment);
	struct aml_block resources;

	/* The identifier that Linux's virtio_mmio driver answers to. */
	aml_name(out, "_HID");
	aml_string(out, "LNRO0005");
	aml_name(out, "_UID");
	aml_integer(out, index);
	aml_name(out, "_CCA");
	aml_integer(out, 1);
	aml_name(out, "_CRS");
	resources = aml_begin_resources(out);
	aml_resource_memory(out, device->gpa, device->size);
	aml_resource_interrupt(out, device->gsi);
	aml_end_resources(out, resources);
	aml_end(out, block);
}

static size_t put_dsdt(struct aml *out, const struct acpi_config *config)
{
	size_t start = begin_table(out);
	struct table_header dsdt = header("DSDT", 2); /* 2: integers have 64 bits */
	struct aml_block block;

	aml_bytes(out, &dsdt, sizeof(dsdt));
	block = aml_begin_scope(out, "\\_SB_");
	if (config->serial_port)
		put_serial_device(out, config);
	for (unsigned i = 0; i < config->device_count; i++)
		put_virtio_device(out, &config->devices[i], i);
	aml_end(out, block);

	/* What a guest writes to SLEEP_CONTROL to power off (7.4.2). */
	aml_name(out, "_S5_");
	block = aml_begin_package(out, 4);
	aml_integer(out, POWER_SLEEP_TYPE_S5);
	for (unsigned i = 0; i < 3; i++)
		aml_integer(out, 0);
	aml_end(out, block);
	end_table(out, start);
	return start;
}

static struct generic_address port_register(uint16_t port)
{
	return (struct generic_address){
		.space = 1 /* I/O ports */, .bit_width = 8, .access_size = 1, .address = port};
}

static size_t put_fadt(struct aml *out, uint64_t dsdt_gpa)
{
	size_t start = begin_table(out);
	struct fadt fadt = {
		.header = header("FACP", 6),
		.dsdt_address = (uint32_t)dsdt_gpa,
		.x_dsdt_address = dsdt_gpa,
		.century = CMOS_CENTURY,
		.boot_architecture = FADT_BOOT_NO_VGA,
		.flags = FADT_WBINVD | FADT_NO_POWER_BUTTON | FADT_NO_SLEEP_BUTTON |
			 FADT_RESET_REGISTER | FADT_HARDWARE_REDUCED,
		.reset_register = port_register(POWER_RESET_PORT),
		.reset_value = POWER_RESET_VALUE,
		.minor_version = 5,
		.sleep_control = port_register(POWER_SLEEP_CONTROL_PORT),
		.sleep_status = port_register(POWER_SLEEP_STATUS_PORT),
		.hypervisor_vendor = {'G', 'U', 'E', 'S', 'T', 'P', 'R', 'F'},
	};

	aml_bytes(out, &fadt, sizeof(fadt));
	end_table(out, start);
	return start;
}

static size_t put_madt(struct aml *out, unsigned vcpu_count)
{
	size_t start = begin_table(out);
	struct madt madt = {.header = header("APIC", 5), .local_apic_address = LOCAL_APIC_ADDRESS};
	struct madt_io_apic io_apic = {
		.type = 1, .length = sizeof(io_apic), .address = IO_APIC_ADDRESS};

	aml_bytes(out, &madt, sizeof(madt));
	for (unsigned id = 0; id < vcpu_count; id++) {
		struct madt_local_apic small = {
			.length = sizeof(small),
			.uid = (uint8_t)id,
			.id = (uint8_t)id,
			.flags = MADT_ENABLED,
		};
		struct madt_local_x2apic large = {
			.type = 9,
			.length = sizeof(large),
			.id = id,
			.flags = MADT_ENABLED,
			.uid = id,
		};

		if (id < X2APIC_FIRST_ID)
			aml_bytes(out, &small, sizeof(small));
		else
			aml_bytes(out, &large, sizeof(large));
	}
	aml_bytes(out, &io_apic, sizeof(io_apic));
	end_table(out, start);
	return start;
}

static size_t put_xsdt(struct aml *out, uint64_t fadt_gpa, uint64_t madt_gpa)
{
	size_t start = begin_table(out);
	struct xsdt xsdt = {.header = header("XSDT", 1), .tables = {fadt_gpa, madt_gpa}};

	aml_bytes(out, &xsdt, sizeof(xsdt));
	end_table(out, start);
	return start;
}

static struct rsdp make_rsdp(uint64_t xsdt_gpa)
{
	struct rsdp rsdp = {
		.signature = {'R', 'S', 'D', ' ', 'P', 'T', 'R', ' '},
		.oem_id = {'G', 'U', 'E', 'S', 'T', 'P'},
		.revision = 2,
		.length = sizeof(rsdp),
		.xsdt_address = xsdt_gpa,
	};

	rsdp.checksum = (uint8_t)-sum(&rsdp, 20);
	rsdp.extended_checksum = (uint8_t)-sum(&rsdp, sizeof(rsdp));
	return rsdp;
}

gp_status_t acpi_build(const struct acpi_config *config, uint64_t base_gpa, uint8_t *buffer,
		       size_t capacity, size_t *size_out, struct error *error)
{
	struct aml out = {.buffer = buffer, .capacity = capacity};
	struct rsdp rsdp = {0};
	uint64_t fadt, madt;

	if (config->vcpu_count < 1 || config->vcpu_count > ACPI_VCPUS_MAX)
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "%u vCPUs: the ACPI tables describe 1 to %d", config->vcpu_count,
				 ACPI_VCPUS_MAX);
	if (config->device_count > ACPI_DEVICES_MAX)
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "%u devices: the ACPI tables describe up to %d",
				 config->device_count, ACPI_DEVICES_MAX);
	if (base_gpa % 16 || base_gpa > UINT32_MAX || capacity > UINT32_MAX - base_gpa)
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "the ACPI tables cannot be at %#llx: not aligned, or above 4 GiB",
				 (unsigned long long)base_gpa);

	/* The RSDP comes first and is known last. */
	aml_bytes(&out, &rsdp, sizeof(rsdp));
	fadt = base_gpa + put_fadt(&out, base_gpa + put_dsdt(&out, config));
	madt = base_gpa + put_madt(&out, config->vcpu_count);
	rsdp = make_rsdp(base_gpa + put_xsdt(&out, fadt, madt));
	if (out.failed)
		return error_set(error, GP_ERR_NO_RESOURCES,
				 "the ACPI tables do not fit in %zu bytes: give fewer vCPUs",
				 capacity);
	memcpy(buffer, &rsdp, sizeof(rsdp));
	*size_out = out.size;
	return GP_OK;
}
