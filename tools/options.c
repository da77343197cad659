#include "tools/options.h"

#include "tools/command.h"
#include "tools/output.h"
#include "base/progress.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CODE 256 /* of the table's rows, for getopt */

const char *const option_shapes[] = {"callees", "callers", NULL};

int option_bad(const char *program, const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "%s: ", program);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "; %s --help lists the options\n", program);
	return EXIT_USAGE;
}

/* strtoull() and strtod() also know signs, spaces in front and other bases. */
static bool begins_with_digit(const char *text)
{
	return *text >= '0' && *text <= '9';
}

static bool parse_number(const struct option_row *row, const char *text, bool is_size)
{
	static const char units[] = "KMG";
	unsigned shift = is_size ? 20 : 0;
	unsigned long long number;
	const char *unit;
	char *end;

	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno || !begins_with_digit(text))
		return false;
	unit = is_size && *end ? strchr(units, *end & ~0x20) : NULL;
	if (unit) {
		shift = 10 * (unsigned)(unit - units + 1);
		end++;
	}
	if (*end || number > UINT64_MAX >> shift || number << shift < row->least ||
	    number << shift > row->most)
		return false;
	*(uint64_t *)row->value = (uint64_t)number << shift;
	return true;
}

static bool parse_seconds(const char *text, uint64_t *ns)
{
	double seconds;
	char *end;

	if (!*text || text[strspn(text, "0123456789.eE+-")] || *text == '+')
		return false;
	seconds = strtod(text, &end);
	if (*end || !(seconds > 0) || seconds > 1e9 || seconds * 1e9 < 1)
		return false;
	*ns = (uint64_t)(seconds * 1e9);
	return true;
}

static bool parse_percent(const struct option_row *row, const char *text)
{
	char *end;
	double percent = strtod(text, &end);

	if (*end == '%')
		end++;
	if (*end || !begins_with_digit(text) || !(percent >= 0 && percent <= (double)row->most))
		return false;
	*(double *)row->value = percent;
	return true;
}

static bool parse_word(const struct option_row *row, const char *text)
{
	for (unsigned i = 0; row->words[i]; i++) {
		if (text && strcmp(text, row->words[i]))
			continue;
		*(unsigned *)row->value = (unsigned)row->least + i;
		return true;
	}
	return false;
}

/* NULL, or what to give instead. */
static const char *take(const struct option_row *row, char *text)
{
	bool good = true;

	switch (row->kind) {
	case OPTION_FLAG:
	case OPTION_LAST:
		*(bool *)row->value = true;
		break;
	case OPTION_SET:
		*(unsigned *)row->value = (unsigned)row->least;
		break;
	case OPTION_TEXT:
		good = !row->most || (strlen(text) >= row->least && strlen(text) <= row->most);
		if (good)
			*(const char **)row->value = text;
		break;
	case OPTION_NUMBER:
	case OPTION_SIZE:
		good = parse_number(row, text, row->kind == OPTION_SIZE);
		break;
	case OPTION_SECONDS:
		good = parse_seconds(text, row->value);
		break;
	case OPTION_PERCENT:
		good = parse_percent(row, text);
		break;
	case OPTION_WORD:
		good = parse_word(row, text);
		break;
	case OPTION_CALL:
		return row->take(row->value, text);
	case OPTION_FILTER:
		break;
	}
	return good ? NULL : row->hint;
}

bool option_take(const char *program, const struct option_row *row, char *text)
{
	const char letter[] = {'-', row->letter, 0}, *hint;
	struct error error = {0};

	if (row->given)
		*row->given = true;
	if (row->kind == OPTION_FILTER) {
		if (!filter_set(row->value, row->name, text, &error))
			return true;
		option_bad(program, "%s", error.text);
		return false;
	}
	hint = take(row, text);
	if (!hint)
		return true;
	option_bad(program, *text ? "%s%s%s%s: %s" : "%s%s%s'%s': %s", row->letter ? letter : "--",
		   row->letter ? "" : row->name, row->text_is_optional ? "=" : " ", text, hint);
	return false;
}

static int argument_of(const struct option_row *row)
{
	if (row->text_is_optional)
		return optional_argument;
	return row->kind == OPTION_FLAG || row->kind == OPTION_SET || row->kind == OPTION_LAST ||
			       row->has_no_text
		       ? no_argument
		       : required_argument;
}

/* The table as getopt_long() wants it. */
static void describe(const struct command_line *line, struct option *names, char *letters)
{
	const struct option_row *row;

	if (line->in_order)
		*letters++ = '+';
	for (row = line->rows; row->name; row++) {
		*names++ = (struct option){row->name, argument_of(row), NULL,
					   FIRST_CODE + (int)(row - line->rows)};
		if (!row->letter)
			continue;
		*letters++ = row->letter;
		if (argument_of(row) == required_argument)
			*letters++ = ':';
	}
	*names++ = (struct option){"help", no_argument, NULL, 'h'};
	*names = (struct option){0};
	*letters++ = 'h';
	*letters = 0;
}

static const struct option_row *find_row(const struct command_line *line, int code)
{
	const struct option_row *row = line->rows;

	if (code >= FIRST_CODE)
		return row + (code - FIRST_CODE);
	while (row->letter != code)
		row++;
	return row;
}

int options_parse(const struct command_line *line, int argc, char **argv)
{
	struct option names[OPTION_ROWS_MAX + 2];
	char letters[2 * OPTION_ROWS_MAX + 3];
	int code;

	describe(line, names, letters);
	argv[0] = (char *)(uintptr_t)line->program;
	optind = 0; /* getopt(3): 0 also forgets where it was in another command line */
	while ((code = getopt_long(argc, argv, letters, names, NULL)) != -1) {
		const struct option_row *row;

		if (code == '?') /* getopt has said what is wrong */
			return EXIT_USAGE;
		if (code == 'h') {
			if (line->print_help)
				line->print_help();
			else
				fputs(line->help, stdout);
			return EXIT_SUCCESS;
		}
		row = find_row(line, code);
		if (!option_take(line->program, row, optarg))
			return EXIT_USAGE;
		if (row->kind == OPTION_LAST)
			break;
	}
	return -1;
}

bool option_trace(const char *program, int argc, char **argv, const char **path)
{
	if (argc - optind > 1) {
		option_bad(program, "'%s': give one trace", argv[optind + 1]);
		return false;
	}
	if (optind < argc)
		*path = argv[optind];
	if (!**path) {
		option_bad(program, "'': give a trace");
		return false;
	}
	output_protect(*path);
	return true;
}

int command_end(const char *program, gp_status_t status, const struct error *error)
{
	progress_end();
	if (!status)
		return EXIT_SUCCESS;
	fprintf(stderr, "%s: %s\n", program, error->text);
	return EXIT_FAILURE;
}
