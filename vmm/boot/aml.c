#include "vmm/boot/aml.h"

#include <string.h>

/* ACPI 6.5, 20.2 and 20.3. */
#define ZERO_OP 0x00
#define ONE_OP 0x01
#define NAME_OP 0x08
#define BYTE_PREFIX 0x0a
#define WORD_PREFIX 0x0b
#define DWORD_PREFIX 0x0c
#define STRING_PREFIX 0x0d
#define QWORD_PREFIX 0x0e
#define SCOPE_OP 0x10
#define BUFFER_OP 0x11
#define PACKAGE_OP 0x12
#define EXTENDED_PREFIX 0x5b
#define DEVICE_OP 0x82

/* ACPI 6.5, 6.4. */
#define RESOURCE_IO_PORT 0x47
#define RESOURCE_END_TAG 0x79
#define RESOURCE_MEMORY32_FIXED 0x86
#define RESOURCE_EXTENDED_INTERRUPT 0x89

/* Longest PkgLength field. */
#define PACKAGE_LENGTH_MAX 4

/* A template's size has to be a constant of known width: it is patched in at its end. */
#define RESOURCES_SIZE_BYTES 3

void aml_bytes(struct aml *aml, const void *bytes, size_t size)
{
	if (aml->failed || size > aml->capacity - aml->size) {
		aml->failed = true;
		return;
	}
	memcpy(aml->buffer + aml->size, bytes, size);
	aml->size += size;
}

static void put_byte(struct aml *aml, uint8_t byte)
{
	aml_bytes(aml, &byte, 1);
}

static void put_little_endian(struct aml *aml, uint64_t value, unsigned size)
{
	for (unsigned i = 0; i < size; i++)
		put_byte(aml, (uint8_t)(value >> (8 * i)));
}

void aml_integer(struct aml *aml, uint64_t value)
{
	/* By the bytes that it takes, as a power of 2. */
	static const uint8_t prefixes[] = {BYTE_PREFIX, WORD_PREFIX, DWORD_PREFIX, QWORD_PREFIX};
	unsigned power = 0;

	if (value <= 1) {
		put_byte(aml, value ? ONE_OP : ZERO_OP);
		return;
	}
	while (power < 3 && value >> (8u << power))
		power++;
	put_byte(aml, prefixes[power]);
	put_little_endian(aml, value, 1u << power);
}

void aml_string(struct aml *aml, const char *text)
{
	put_byte(aml, STRING_PREFIX);
	aml_bytes(aml, text, strlen(text) + 1);
}

void aml_name(struct aml *aml, const char *segment)
{
	put_byte(aml, NAME_OP);
	aml_bytes(aml, segment, strlen(segment));
}

/* The length goes between the operation and what its body begins with. */
static struct aml_block begin(struct aml *aml, uint8_t operation, const void *first, size_t size)
{
	struct aml_block block;

	put_byte(aml, operation);
	block.body = aml->size;
	aml_bytes(aml, first, size);
	return block;
}

struct aml_block aml_begin_scope(struct aml *aml, const char *path)
{
	return begin(aml, SCOPE_OP, path, strlen(path));
}

struct aml_block aml_begin_device(struct aml *aml, const char *segment)
{
	put_byte(aml, EXTENDED_PREFIX);
	return begin(aml, DEVICE_OP, segment, strlen(segment));
}

struct aml_block aml_begin_package(struct aml *aml, uint8_t element_count)
{
	return begin(aml, PACKAGE_OP, &element_count, 1);
}

/* PkgLength (20.2.4) counts itself. One byte holds 6 bits; more bytes hold 4 bits, then
 * 8 each, and the first says in its top two bits how many follow. */
static unsigned encode_package_length(size_t body, uint8_t out[PACKAGE_LENGTH_MAX])
{
	unsigned following = 0;
	size_t length = body + 1;

	if (length > 0x3f) {
		do {
			following++;
			length = body + 1 + following;
		} while (length >> (4 + 8 * following));
		out[0] = (uint8_t)(following << 6 | (length & 0x0f));
	} else {
		out[0] = (uint8_t)length;
	}
	for (unsigned i = 0; i < following; i++)
		out[1 + i] = (uint8_t)(length >> (4 + 8 * i));
	return 1 + following;
}

/* The body was written where its length has to go: moves it to make room. */
void aml_end(struct aml *aml, struct aml_block block)
{
	static const uint8_t room[PACKAGE_LENGTH_MAX];
	size_t body = aml->size - block.body;
	uint8_t length[PACKAGE_LENGTH_MAX];
	unsigned length_size = encode_package_length(body, length);

	aml_bytes(aml, room, length_size);
	if (aml->failed)
		return;
	memmove(aml->buffer + block.body + length_size, aml->buffer + block.body, body);
	memcpy(aml->buffer + block.body, length, length_size);
}

struct aml_block aml_begin_resources(struct aml *aml)
{
	static const uint8_t size_room[RESOURCES_SIZE_BYTES] = {WORD_PREFIX};

	return begin(aml, BUFFER_OP, size_room, sizeof(size_room));
}

void aml_end_resources(struct aml *aml, struct aml_block block)
{
	/* A checksum of 0 means that there is none (6.4.2.9). */
	static const uint8_t end_tag[] = {RESOURCE_END_TAG, 0};
	size_t size;

	aml_bytes(aml, end_tag, sizeof(end_tag));
	if (aml->failed)
		return;
	size = aml->size - block.body - RESOURCES_SIZE_BYTES;
	aml->buffer[block.body + 1] = (uint8_t)size;
	aml->buffer[block.body + 2] = (uint8_t)(size >> 8);
	aml_end(aml, block);
}

void aml_resource_ports(struct aml *aml, uint16_t base, uint8_t count)
{
	put_byte(aml, RESOURCE_IO_PORT);
	put_byte(aml, 0x01); /* decodes all 16 address bits */
	put_little_endian(aml, base, 2);
	put_little_endian(aml, base, 2);
	put_byte(aml, 1); /* alignment */
	put_byte(aml, count);
}

void aml_resource_memory(struct aml *aml, uint32_t base, uint32_t size)
{
	put_byte(aml, RESOURCE_MEMORY32_FIXED);
	put_little_endian(aml, 9, 2);
	put_byte(aml, 0x01); /* read and write */
	put_little_endian(aml, base, 4);
	put_little_endian(aml, size, 4);
}

void aml_resource_interrupt(struct aml *aml, uint32_t gsi)
{
	put_byte(aml, RESOURCE_EXTENDED_INTERRUPT);
	put_little_endian(aml, 6, 2);
	put_byte(aml, 0x03); /* consumer, edge-triggered, active-high, exclusive */
	put_byte(aml, 1);    /* interrupts that follow */
	put_little_endian(aml, gsi, 4);
}

uint32_t aml_eisa_id(const char *text)
{
	uint32_t id = 0;

	/* Three letters of five bits, then four hexadecimal digits; stored big-endian. */
	for (unsigned i = 0; i < 3; i++)
		id = id << 5 | ((uint32_t)(text[i] - 'A' + 1) & 0x1f);
	for (unsigned i = 3; i < 7; i++)
		id = id << 4 | (uint32_t)(text[i] <= '9' ? text[i] - '0' : text[i] - 'A' + 10);
	return __builtin_bswap32(id);
}
