/* Writes JSON: commas and line ends come by themselves. Texts may be any bytes (analysis/text.h).
 */
#ifndef EXPORT_JSON_WRITER_H
#define EXPORT_JSON_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_DEPTH_MAX 8

/* All zero but `to`. */
struct json {
	FILE *to;
	unsigned depth;
	bool has_members; /* the innermost one that is open */
	struct {
		char bracket;
		bool in_lines;
	} open[JSON_DEPTH_MAX];
};

/* In an array `name` is NULL. `bracket` is '{' or '['; in_lines: each member gets a line of its
 * own.
 */
void json_open(struct json *json, const char *name, char bracket, bool in_lines);
void json_close(struct json *json);
void json_text(struct json *json, const char *name, const char *text, size_t size);
void json_string(struct json *json, const char *name, const char *text);
void json_number(struct json *json, const char *name, uint64_t number);
void json_bool(struct json *json, const char *name, bool value);
/* A value that is printed as it is. */
void json_value(struct json *json, const char *name, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif
