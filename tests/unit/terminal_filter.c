/* What of a guest's output reaches the host's terminal. */
#include "vmm/devices/terminal_filter.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

/* Filters `in` in pieces of `piece` bytes. */
static const char *filtered(const char *in, size_t size, size_t piece)
{
	static uint8_t out[4096];
	struct terminal_filter filter = {0};
	size_t written = 0;

	for (size_t i = 0; i < size; i += piece)
		written += terminal_filter(&filter, (const uint8_t *)in + i,
					   size - i < piece ? size - i : piece, out + written);
	out[written] = 0;
	return (const char *)out;
}

static void expect(const char *in, const char *wanted)
{
	for (size_t piece = 1; piece <= 5; piece++) {
		const char *got = filtered(in, strlen(in), piece);

		cr_expect_str_eq(got, wanted, "in pieces of %zu: %s", piece, got);
	}
}

Test(terminal_filter, text_passes)
{
	expect("Hello\r\n\t\b\a~", "Hello\r\n\t\b\a~");
	expect("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
}

Test(terminal_filter, colours_movement_and_erasing_pass)
{
	expect("\033[1;31mred\033[0m\033[m", "\033[1;31mred\033[0m\033[m");
	expect("\033[2J\033[H\033[10;20H\033[K\033[3A", "\033[2J\033[H\033[10;20H\033[K\033[3A");
}

Test(terminal_filter, other_sequences_do_not)
{
	/* Answers into the terminal's input, alternate screen, private modes: left out. */
	expect("a\033[6nb\033[?1049hc\033[>cd", "abcd");
	/* Window title, device control, reset, character sets: made visible. */
	expect("\033]0;title\a", "^[]0;title\a");
	expect("\033P+q\033\\", "^[P+q^[\\");
	expect("\033c\033(0", "^[c^[(0");
}

Test(terminal_filter, control_bytes_are_made_visible)
{
	expect("\001\016\177", "^A^N^?");
	cr_assert_str_eq(filtered("\0", 1, 1), "^@");
	/* C1 control characters, as bytes and as UTF-8: CSI without an ESC. */
	expect("\x9b"
	       "6n",
	       "\\x9b6n");
	expect("\xc2\x9b"
	       "6n",
	       "\\xc2\\x9b6n");
}

Test(terminal_filter, broken_sequences_are_made_visible)
{
	expect("\033[31\001m", "^[[31^Am");
	expect("\033\033[1m", "^[\033[1m");
	expect("\033[1\033[1m", "^[[1\033[1m");
	expect("\xe2\x82z", "\\xe2\\x82z");
	expect("\xc0\x80", "\\xc0\\x80");
	expect("\xe0\x80\x80", "\\xe0\\x80\\x80");
	expect("\xed\xa0\x80", "\\xed\\xa0\\x80");
	expect("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80");
	expect("\xff", "\\xff");
	/* Longer than any that is meant well. */
	expect("\033[111111111111111111111111111111111111111m",
	       "^[[111111111111111111111111111111111111111m");
}

Test(terminal_filter, output_stays_in_its_bound_and_is_never_dangerous)
{
	unsigned seed = 1;

	for (int round = 0; round < 2000; round++) {
		static const char alphabet[] = "\033[;m?H0123456789nJ\x9b\xc2\xe2\x82\xac z]\a\001";
		uint8_t in[64], out[TERMINAL_FILTER_OUTPUT(sizeof(in)) + 1];
		struct terminal_filter filter = {0};
		size_t size;

		for (size_t i = 0; i < sizeof(in); i++)
			in[i] = (uint8_t)alphabet[rand_r(&seed) % (sizeof(alphabet) - 1)];
		size = terminal_filter(&filter, in, sizeof(in), out);
		cr_assert_lt(size, sizeof(out));
		for (size_t i = 0; i < size; i++) {
			cr_assert_neq(out[i], 0x01);
			/* Within a character only, and that is not U+009B. */
			if (out[i] == 0x9b)
				cr_assert(i > 0 && out[i - 1] >= 0x80 && out[i - 1] != 0xc2);
			if (out[i] != 0x1b)
				continue;
			size_t end = i + 2;

			cr_assert_eq(out[i + 1], '[');
			while (end < size && out[end] >= '0' && out[end] <= ';')
				end++;
			cr_assert_not_null(strchr("mHJ", out[end]));
		}
	}
}
