#include "export/json_writer.h"

#include "analysis/text.h"

#include <stdarg.h>
#include <string.h>

static void begin_line(const struct json *json)
{
	fprintf(json->to, "\n%*s", (int)(2 * json->depth), "");
}

static void begin_member(struct json *json, const char *name)
{
	if (json->has_members)
		putc(',', json->to);
	if (json->depth && json->open[json->depth - 1].in_lines)
		begin_line(json);
	else if (json->has_members)
		putc(' ', json->to);
	json->has_members = true;
	if (name)
		fprintf(json->to, "\"%s\": ", name);
}

void json_open(struct json *json, const char *name, char bracket, bool in_lines)
{
	begin_member(json, name);
	putc(bracket, json->to);
	json->open[json->depth].bracket = bracket;
	json->open[json->depth++].in_lines = in_lines;
	json->has_members = false;
}

void json_close(struct json *json)
{
	json->depth--;
	if (json->open[json->depth].in_lines)
		begin_line(json);
	putc(json->open[json->depth].bracket == '{' ? '}' : ']', json->to);
	json->has_members = true;
	if (!json->depth)
		putc('\n', json->to);
}

void json_text(struct json *json, const char *name, const char *text, size_t size)
{
	begin_member(json, name);
	text_print_json(json->to, text, size);
}

void json_string(struct json *json, const char *name, const char *text)
{
	json_text(json, name, text, strlen(text));
}

void json_number(struct json *json, const char *name, uint64_t number)
{
	json_value(json, name, "%llu", (unsigned long long)number);
}

void json_bool(struct json *json, const char *name, bool value)
{
	json_value(json, name, "%s", value ? "true" : "false");
}

void json_value(struct json *json, const char *name, const char *format, ...)
{
	va_list arguments;

	begin_member(json, name);
	va_start(arguments, format);
	vfprintf(json->to, format, arguments);
	va_end(arguments);
}
