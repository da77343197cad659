/* An encoder of ACPI Machine Language: the few terms our DSDT needs (ACPI 6.5, chapter 20).
 *
 * Appends to a caller's buffer. What does not fit sets `failed`, which stays set, and
 * nothing is written past the end. Names are root-relative or four-character segments as
 * AML has them ("_SB_", "\\_S5_" is '\\' and a segment).
 */
#ifndef VMM_BOOT_AML_H
#define VMM_BOOT_AML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct aml {
	uint8_t *buffer;
	size_t capacity;
	size_t size;
	bool failed;
};

/* A term whose length is known only at its end. */
struct aml_block {
	size_t body; /* offset of what the length counts */
};

void aml_bytes(struct aml *aml, const void *bytes, size_t size);
void aml_integer(struct aml *aml, uint64_t value);
void aml_string(struct aml *aml, const char *text);

/* Name (`segment`, whatever is appended next). */
void aml_name(struct aml *aml, const char *segment);

/* Scope, Device, Package and the resource template (a Buffer with its end tag). */
struct aml_block aml_begin_scope(struct aml *aml, const char *path);
struct aml_block aml_begin_device(struct aml *aml, const char *segment);
struct aml_block aml_begin_package(struct aml *aml, uint8_t element_count);
void aml_end(struct aml *aml, struct aml_block block);

struct aml_block aml_begin_resources(struct aml *aml);
void aml_end_resources(struct aml *aml, struct aml_block block);

/* Resource descriptors (ACPI 6.5, 6.4). The interrupt is edge-triggered, active-high,
 * not shared. */
void aml_resource_ports(struct aml *aml, uint16_t base, uint8_t count);
void aml_resource_memory(struct aml *aml, uint32_t base, uint32_t size);
void aml_resource_interrupt(struct aml *aml, uint32_t gsi);

/* The integer that stands for an identifier such as "PNP0501" (ACPI 6.5, 19.3.4). */
uint32_t aml_eisa_id(const char *text);

#endif
