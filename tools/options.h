/* The command line of a subcommand is a table:
 *
 *     static struct report report;
 *     const struct option_row rows[] = {
 *             OPTION("lines", 'n', OPTION_NUMBER, &report.most, .most = SIZE_MAX,
 *                    .hint = "give a number"),
 *             FILTER_ROWS(report.filter),
 *             OPTIONS_END,
 *     };
 *     code = options_parse(&(struct command_line){.rows = rows, ...}, argc, argv);
 *     if (code >= 0)
 *             return code;
 *     the operands begin at argv[optind]
 *
 * -h and --help belong to every command. A later option replaces an earlier one.
 */
#ifndef TOOLS_OPTIONS_H
#define TOOLS_OPTIONS_H

#include "analysis/filter.h"

#include <getopt.h>
#include <stdio.h>

enum option_kind {
	OPTION_FLAG,    /* bool: true */
	OPTION_SET,     /* unsigned or an enumeration: row->least */
	OPTION_TEXT,    /* const char *; with row->most: of least to most bytes */
	OPTION_NUMBER,  /* uint64_t, least to most */
	OPTION_SIZE,    /* uint64_t, bytes: a number with K, M or G behind it; MiB without */
	OPTION_SECONDS, /* uint64_t, nanoseconds: more than 0 */
	OPTION_PERCENT, /* double, 0 to most, with or without '%' */
	OPTION_WORD,    /* unsigned or an enumeration: row->least + which of row->words */
	OPTION_CALL,    /* row->take does it */
	OPTION_FILTER,  /* struct filter, by the option's name */
	OPTION_LAST,    /* bool: true; what follows is no option any more */
};

struct option_row {
	const char *name;
	char letter; /* 0: none */
	enum option_kind kind;
	void *value;
	const char *hint; /* "give a number": said of a text that is none */
	uint64_t least, most;
	const char *const *words; /* NULL-terminated; without a text the first */
	bool text_is_optional;    /* --name or --name=TEXT */
	bool has_no_text;         /* OPTION_CALL without one: `text` is NULL */
	const char *(*take)(void *value, char *text); /* NULL, or the hint */
	bool *given;                                  /* becomes true; may be NULL */
};

#define OPTION(name_, letter_, kind_, value_, ...)                                            \
	{                                                                                     \
		.name = name_, .letter = letter_, .kind = kind_, .value = value_, __VA_ARGS__ \
	}
#define OPTIONS_END          \
	{                    \
		.name = NULL \
	}

struct command_line {
	const char *program; /* "guestprof report": before every message, getopt's too */
	const char *help;
	const struct option_row *rows; /* at most OPTION_ROWS_MAX, and one without a name */
	void (*print_help)(void);      /* instead of `help` */
	bool in_order;                 /* the first operand ends the options */
};

#define OPTION_ROWS_MAX 40

/* -1: go on; otherwise the exit code: help was asked for and printed, or what is wrong. */
int options_parse(const struct command_line *line, int argc, char **argv);

/* One option of the table, for commands that find it themselves. False: what is wrong is printed.
 */
bool option_take(const char *program, const struct option_row *row, char *text);

/* Prints what is wrong with a command line. Returns its exit code. */
int option_bad(const char *program, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The value of --tree; without one, callees. */
enum option_shape { SHAPE_TABLE, SHAPE_CALLEES, SHAPE_CALLERS };
extern const char *const option_shapes[]; /* from SHAPE_CALLEES on */
#define TREE_ROW(shape)                                                                          \
	OPTION("tree", 0, OPTION_WORD, &(shape), .least = SHAPE_CALLEES, .words = option_shapes, \
	       .text_is_optional = true, .hint = "give callers or callees")

/* What stands behind the options: at most one trace; `path` stays as it is without. No output will
 * replace it. */
bool option_trace(const char *program, int argc, char **argv, const char **path);

/* Which samples, the same for every subcommand that reads a trace. */
#define FILTER_ROW(filter, name) OPTION(name, 0, OPTION_FILTER, &(filter), )
#define FILTER_ROWS(filter)                                                                        \
	FILTER_ROW(filter, "pid"), FILTER_ROW(filter, "tid"), FILTER_ROW(filter, "comm"),          \
		FILTER_ROW(filter, "cpu"), FILTER_ROW(filter, "mode"), FILTER_ROW(filter, "from"), \
		FILTER_ROW(filter, "to"), FILTER_ROW(filter, "symbol")
#define FILTER_HELP                                                                    \
	"Which samples (options of different names must all hold):\n"                  \
	"      --pid LIST, --tid LIST   processes, threads: numbers such as 1,40-49\n" \
	"      --comm NAME      processes or threads of that name; may have * and ?\n" \
	"      --cpu LIST       vCPUs\n"                                               \
	"      --mode LIST      user, kernel, halted, vmm, not-started\n"              \
	"      --from T, --to T since the first sample: 1.5, 1.5s, 200ms\n"            \
	"      --symbol NAME    stacks with that function; may have * and ?\n"

/* Where debug information is (struct source_options), for those that show source lines. */
#define SOURCE_ROWS(source)                                 \
	OPTION("symfs", 0, OPTION_TEXT, &(source).symfs, ), \
		OPTION("vmlinux", 0, OPTION_TEXT, &(source).vmlinux, )
#define SOURCE_HELP                                                                     \
	"Source lines come from debug information with the guest's build ids:\n"        \
	"      --symfs DIR      below DIR, by path or build id; then /usr/lib/debug;\n" \
	"                       then the servers of $DEBUGINFOD_URLS, if that is set\n" \
	"      --vmlinux FILE   the kernel's file, whatever its build id\n"

#endif
