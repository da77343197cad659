#include "vmm/devices/terminal_filter.h"

#include <string.h>

#define ESCAPE 0x1b
#define DELETE 0x7f

struct sink {
	uint8_t *out;
	size_t size;
};

static void put(struct sink *sink, const void *bytes, size_t size)
{
	memcpy(sink->out + sink->size, bytes, size);
	sink->size += size;
}

static bool is_harmless_control(uint8_t byte)
{
	return byte == '\n' || byte == '\r' || byte == '\t' || byte == '\b' || byte == '\a';
}

/* One byte that is no part of a valid sequence. */
static void put_visible(struct sink *sink, uint8_t byte)
{
	static const char digits[] = "0123456789abcdef";

	if (byte >= 0x80) {
		put(sink, (char[]){'\\', 'x', digits[byte >> 4], digits[byte & 15]}, 4);
	} else if ((byte < 0x20 && !is_harmless_control(byte)) || byte == DELETE) {
		put(sink, (char[]){'^', (char)(byte ^ 0x40)}, 2);
	} else {
		put(sink, &byte, 1);
	}
}

static void give_up(struct terminal_filter *filter, struct sink *sink)
{
	for (unsigned i = 0; i < filter->sequence_size; i++)
		put_visible(sink, filter->sequence[i]);
	filter->sequence_size = 0;
}

/* How many bytes the UTF-8 sequence that begins so has; 0: none begins so (RFC 3629). */
static unsigned utf8_size(uint8_t first)
{
	if (first >= 0xc2 && first <= 0xdf)
		return 2;
	if (first >= 0xe0 && first <= 0xef)
		return 3;
	if (first >= 0xf0 && first <= 0xf4)
		return 4;
	return 0;
}

/* Whether a second byte may follow the first: no overlong forms, surrogates, nothing past
 * U+10FFFF, and none of the C1 control characters U+0080 to U+009F. */
static bool utf8_second_is_valid(uint8_t first, uint8_t second)
{
	uint8_t low = 0x80, high = 0xbf;

	if (first == 0xc2 || first == 0xe0)
		low = 0xa0;
	else if (first == 0xf0)
		low = 0x90;
	else if (first == 0xed)
		high = 0x9f;
	else if (first == 0xf4)
		high = 0x8f;
	return second >= low && second <= high;
}

/* Takes the next byte of a UTF-8 sequence; false when it is none. */
static bool continue_utf8(struct terminal_filter *filter, uint8_t byte, struct sink *sink)
{
	uint8_t first = filter->sequence[0];

	if (filter->sequence_size == 1 ? !utf8_second_is_valid(first, byte) : (byte & 0xc0) != 0x80)
		return false;
	filter->sequence[filter->sequence_size++] = byte;
	if (filter->sequence_size == utf8_size(first)) {
		put(sink, filter->sequence, filter->sequence_size);
		filter->sequence_size = 0;
	}
	return true;
}

static bool is_passed(const uint8_t *sequence, unsigned size)
{
	for (unsigned i = 2; i + 1 < size; i++) {
		/* '<' to '?' mark private sequences. */
		if (sequence[i] < '0' || sequence[i] > ';')
			return false;
	}
	return strchr("mABCDEFGHJKdf", sequence[size - 1]) != NULL;
}

/* Takes the next byte after ESC; false when it cannot continue the sequence. */
static bool continue_escape(struct terminal_filter *filter, uint8_t byte, struct sink *sink)
{
	bool is_final = byte >= 0x40 && byte <= 0x7e;

	if (filter->sequence_size == 1) {
		if (byte != '[')
			return false;
		filter->sequence[filter->sequence_size++] = byte;
		return true;
	}
	if (byte < 0x20 || byte > 0x7e || filter->sequence_size == sizeof(filter->sequence))
		return false;
	filter->sequence[filter->sequence_size++] = byte;
	if (!is_final)
		return true;
	if (is_passed(filter->sequence, filter->sequence_size)) {
		filter->passed_attributes |= byte == 'm';
		put(sink, filter->sequence, filter->sequence_size);
	}
	filter->sequence_size = 0;
	return true;
}

size_t terminal_filter(struct terminal_filter *filter, const uint8_t *bytes, size_t size,
		       uint8_t *out)
{
	struct sink sink = {.out = out};

	for (size_t i = 0; i < size; i++) {
		uint8_t byte = bytes[i];

		if (filter->sequence_size > 0) {
			bool taken = filter->sequence[0] == ESCAPE
					     ? continue_escape(filter, byte, &sink)
					     : continue_utf8(filter, byte, &sink);

			if (taken)
				continue;
			give_up(filter, &sink);
		}
		if (byte == ESCAPE || utf8_size(byte) > 0)
			filter->sequence[filter->sequence_size++] = byte;
		else
			put_visible(&sink, byte);
	}
	return sink.size;
}
