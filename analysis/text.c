#include "analysis/text.h"

#include <string.h>

static bool is_plain(unsigned char byte)
{
	return byte >= 0x20 && byte < 0x7f;
}

void text_print_json(FILE *to, const char *name, size_t size)
{
	putc('"', to);
	for (size_t i = 0; i < size; i++) {
		unsigned char byte = (unsigned char)name[i];

		if (!is_plain(byte))
			fprintf(to, "\\\\x%02x", byte);
		else if (byte == '"' || byte == '\\')
			fprintf(to, "\\%c", byte);
		else
			putc(byte, to);
	}
	putc('"', to);
}

void text_escape(const char *name, size_t name_bytes, char *out, size_t size)
{
	static const char digits[] = "0123456789abcdef";
	size_t used = 0;

	for (size_t i = 0; i < name_bytes; i++) {
		unsigned char byte = (unsigned char)name[i];

		if (used + (is_plain(byte) ? 1 : 4) >= size)
			break;
		if (is_plain(byte)) {
			out[used++] = (char)byte;
			continue;
		}
		out[used++] = '\\';
		out[used++] = 'x';
		out[used++] = digits[byte >> 4];
		out[used++] = digits[byte & 15];
	}
	out[used] = 0;
}

void text_print_without(FILE *to, const char *name, size_t size, const char *special)
{
	size_t printed = 0;

	/* In pieces that need nothing: millions of names are printed. */
	for (size_t i = 0; i < size; i++) {
		unsigned char byte = (unsigned char)name[i];
		const char *found = special;

		while (*found && *found != name[i])
			found++;
		if (is_plain(byte) && !*found)
			continue;
		fwrite(name + printed, 1, i - printed, to);
		fprintf(to, "\\x%02x", byte);
		printed = i + 1;
	}
	fwrite(name + printed, 1, size - printed, to);
}

static void print_number(FILE *to, const struct frame *frame)
{
	if (frame->id == FRAME_NO_ID)
		return;
	if (frame->kind == FRAME_PROCESS)
		fprintf(to, " (pid %llu)", (unsigned long long)frame->id);
	else if (frame->kind == FRAME_THREAD)
		fprintf(to, " (tid %llu)", (unsigned long long)frame->id);
}

void text_print_frame(FILE *to, const struct frame *frame)
{
	trace_print_name(to, frame->name, frame->name_bytes);
	print_number(to, frame);
}

void text_print_markdown(FILE *to, const struct frame *frame)
{
	for (uint32_t i = 0; i < frame->name_bytes; i++) {
		if (!is_plain((unsigned char)frame->name[i])) {
			/* The backslash of an escape is one that Markdown shows. */
			fprintf(to, "\\\\x%02x", (unsigned char)frame->name[i]);
			continue;
		}
		if (strchr("|`*_<>[]\\&~#", frame->name[i]))
			putc('\\', to);
		putc(frame->name[i], to);
	}
	print_number(to, frame);
}

const char *text_frame_kind(const struct frame *frame)
{
	static const char *const kinds[FRAME_KINDS] = {
		[FRAME_KERNEL] = "kernel", [FRAME_MODULE] = "module",   [FRAME_BOOT] = "boot",
		[FRAME_USER] = "user",     [FRAME_PROCESS] = "process", [FRAME_THREAD] = "thread",
		[FRAME_VCPU] = "vcpu",     [FRAME_MODE] = "mode",       [FRAME_GROUP] = "group",
		[FRAME_LINE] = "line",
	};

	return kinds[frame->kind < FRAME_KINDS ? frame->kind : FRAME_KERNEL];
}

bool text_period_is_time(const struct trace_info *info)
{
	return strcmp(info->tick_source, "cycles") && strcmp(info->tick_source, "instructions");
}

void text_print_period(FILE *to, const struct trace_info *info)
{
	if (!text_period_is_time(info)) {
		fprintf(to, "every %llu %s", (unsigned long long)info->period_ns,
			info->tick_source);
		return;
	}
	fprintf(to, "every %.10g us", (double)info->period_ns / 1e3);
	/* Of the CPU that the guest's vCPU had. */
	if (!strcmp(info->tick_source, "cpu-clock"))
		fputs(" of the host's CPU time", to);
}
