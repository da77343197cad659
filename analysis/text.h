/* Names from a guest as text in the formats that are written from traces. They are bytes of any
 * content: in every format those that are no printable ASCII become \xNN, so that no name can
 * control a terminal, end a line or break what it stands in.
 */
#ifndef ANALYSIS_TEXT_H
#define ANALYSIS_TEXT_H

#include "analysis/frames.h"

/* A JSON string with its quotes. */
void text_print_json(FILE *to, const char *name, size_t size);

/* The same as a text of at most `size` bytes, terminated; what is longer is cut. */
void text_escape(const char *name, size_t name_bytes, char *out, size_t size);

/* A name between characters of which `special` have a meaning there: they become \xNN as well. */
void text_print_without(FILE *to, const char *name, size_t size, const char *special);

/* As people read it: a function's name; "make (pid 17)", "vCPU 1". */
void text_print_frame(FILE *to, const struct frame *frame);

/* The same in a cell of a Markdown table: nothing in it is markup. */
void text_print_markdown(FILE *to, const struct frame *frame);

/* What kind of thing a frame is, as one word: "kernel", "module", "boot", "user", "process",
 * "thread", "vcpu", "mode", "group", "line". */
const char *text_frame_kind(const struct frame *frame);

/* The end of a word that is counted. */
static inline const char *text_plural(uint64_t count)
{
	return count == 1 ? "" : "s";
}

/* Of nothing every part is 0 %. */
static inline double text_percent(uint64_t part, uint64_t whole)
{
	return whole ? 100.0 * (double)part / (double)whole : 0;
}

/* What a trace counts time by: "every 1000 us", "every 1000000 cycles". */
void text_print_period(FILE *to, const struct trace_info *info);

/* Whether its ticks are pieces of time, and not hardware events. */
bool text_period_is_time(const struct trace_info *info);

#endif
