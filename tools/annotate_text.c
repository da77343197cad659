/* guestprof annotate as text. */
#include "annotate.h"

#include "profile/text.h"

#include <string.h>

/* Of what lies so many instructions from every sample only the number is shown. */
#define CONTEXT 8
/* Of a function's instructions. */
#define HOT_PERCENT 10.0
#define WARM_PERCENT 1.0

#define RED "\033[31m"
#define GREEN "\033[32m"
#define BLUE "\033[34m"
#define PLAIN "\033[0m"

static void print_colour(const struct annotate *annotate, FILE *to, const char *colour)
{
	if (annotate->colours)
		fputs(colour, to);
}

static void print_text(FILE *to, const char *text)
{
	trace_print_name(to, text, strlen(text));
}

/* "work (sched.c:120)": the file without its directories, which the first line of a file has. */
static void print_place(FILE *to, const struct source_frame *place)
{
	const char *slash = strrchr(place->file ? place->file : "", '/');

	print_text(to, slash ? slash + 1 : place->file ? place->file : "?");
	fprintf(to, ":%u", place->line);
}

static bool is_same_text(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

static bool is_same_place(const struct annotation_line *a, const struct annotation_line *b)
{
	if (a->place_count != b->place_count)
		return false;
	for (size_t i = 0; i < a->place_count; i++)
		if (a->places[i].line != b->places[i].line ||
		    !is_same_text(a->places[i].file, b->places[i].file) ||
		    !is_same_text(a->places[i].function, b->places[i].function))
			return false;
	return true;
}

/* The source line of what follows: "sched.c:120  text", with the inlined functions it is in. */
static void print_source(const struct annotate *annotate, FILE *to,
			 const struct annotation_line *line)
{
	const struct source_frame *place = &line->places[0];
	const char *text = NULL;
	size_t size = 0;

	print_colour(annotate, to, BLUE);
	fputs("            ", to);
	print_place(to, place);
	if (place->file)
		text = source_lines_text(annotate->lines, place->file, place->line, &size);
	if (text) {
		fputs("  ", to);
		/* Tabs are the one control character that source has. */
		for (size_t i = 0; i < size; i++) {
			if (text[i] == '\t')
				fputs("    ", to);
			else
				trace_print_name(to, text + i, 1);
		}
	}
	for (size_t i = 0; i + 1 < line->place_count; i++) {
		fputs(i ? " < " : "  [inlined ", to);
		print_text(to, line->places[i].function);
		fputs(" at ", to);
		print_place(to, &line->places[i + 1]);
	}
	if (line->place_count > 1)
		putc(']', to);
	print_colour(annotate, to, PLAIN);
	putc('\n', to);
}

static void print_ticks(const struct annotate *annotate, FILE *to, uint64_t ticks, uint64_t whole)
{
	double percent = annotate_percent(ticks, whole);

	if (!ticks) {
		fputs("          ", to);
		return;
	}
	if (percent >= HOT_PERCENT)
		print_colour(annotate, to, RED);
	else if (percent >= WARM_PERCENT)
		print_colour(annotate, to, GREEN);
	fprintf(to, "%6.2f %%  ", percent);
	if (percent >= WARM_PERCENT)
		print_colour(annotate, to, PLAIN);
}

static void print_target(FILE *to, const struct annotation_line *line)
{
	fputs("  # ", to);
	trace_print_name(to, line->target->name, line->target->name_bytes);
	if (line->target_offset)
		fprintf(to, "+0x%llx", (unsigned long long)line->target_offset);
}

static void print_instruction(const struct annotate *annotate, FILE *to,
			      const struct annotation_line *line, uint64_t whole)
{
	const struct instruction *instruction = &line->instruction;

	print_ticks(annotate, to, line->ticks, whole);
	if (line->is_gap) {
		fprintf(to, "%16llx  (%u bytes that are not in the trace)\n",
			(unsigned long long)instruction->address, instruction->size);
		return;
	}
	fprintf(to, "%16llx  ", (unsigned long long)instruction->address);
	for (unsigned i = 0; annotate->bytes && i < INSTRUCTION_BYTES_MAX; i++) {
		if (i < instruction->size)
			fprintf(to, "%02x ", line->bytes[i]);
		else if (i < 10)
			fputs("   ", to);
	}
	fprintf(to, instruction->operands[0] ? "%-7s %s" : "%s", instruction->mnemonic,
		instruction->operands);
	if (line->target)
		print_target(to, line);
	if (line->is_moved)
		fputs("  (sampled inside: it was other code then)", to);
	putc('\n', to);
}

/* Whether a sample is near line `index`. Gaps and sampled lines always are shown. */
static bool is_shown(const struct annotate *annotate, const struct annotation_listing *listing,
		     size_t index)
{
	size_t first = index > CONTEXT ? index - CONTEXT : 0;

	if (annotate->whole || listing->lines[index].is_gap)
		return true;
	for (size_t i = first; i <= index + CONTEXT && i < listing->count; i++)
		if (listing->lines[i].ticks)
			return true;
	return false;
}

static void print_lines(const struct annotate *annotate, FILE *to,
			const struct annotation_listing *listing, uint64_t whole)
{
	const struct annotation_line *before = NULL;
	size_t left_out = 0;

	for (size_t i = 0; i < listing->count; i++) {
		const struct annotation_line *line = &listing->lines[i];

		if (!is_shown(annotate, listing, i)) {
			left_out++;
			before = NULL;
			continue;
		}
		if (left_out)
			fprintf(to, "            ... %zu instructions; --all shows them\n",
				left_out);
		left_out = 0;
		if (line->place_count && (!before || !is_same_place(line, before)))
			print_source(annotate, to, line);
		print_instruction(annotate, to, line, whole);
		before = line;
	}
	if (left_out)
		fprintf(to, "            ... %zu instructions; --all shows them\n", left_out);
}

static void print_head(const struct annotate *annotate, FILE *to,
		       const struct annotation_function *function)
{
	const struct trace_symbol *symbol = function->symbol;
	const char *where;
	size_t where_bytes = annotation_where(function, &where);

	fputs("#\n# ", to);
	trace_print_name(to, symbol->name, symbol->name_bytes);
	/* A kernel module's functions have it in their names. */
	if (symbol->kind != FXT_SYMBOL_MODULE) {
		putc(' ', to);
		trace_print_name(to, where, where_bytes);
	}
	fprintf(to, ": %llu samples, %.2f %% of those in which a vCPU ran; at %#llx, %llu bytes\n",
		(unsigned long long)function->ticks,
		annotate_percent(function->ticks, annotate->annotation.totals.running),
		(unsigned long long)symbol->start,
		(unsigned long long)(symbol->end - symbol->start));
}

static void print_notes(const struct annotate *annotate, FILE *to,
			const struct annotation_function *function,
			const struct annotation_listing *listing)
{
	uint64_t first_ns = annotate->trace.info.first_ns;

	if (!listing->count) {
		fputs("# its code is not in the trace: it was gone before it could be copied, or "
		      "the trace is of\n# an older guestprof\n",
		      to);
		return;
	}
	if (listing->changed)
		fprintf(to,
			"# the guest changed this code while it was recorded; as it was at %.3f "
			"s\n",
			listing->read_at_ns > first_ns
				? (double)(listing->read_at_ns - first_ns) / 1e9
				: 0);
	if (listing->unplaced)
		fprintf(to, "# %.2f %% lie behind the first %zu KiB, which are in the trace\n",
			annotate_percent(listing->unplaced, function->ticks), TRACE_CODE_MAX >> 10);
}

/* What there is when there is no code: addresses. */
static void print_hits(const struct annotate *annotate, FILE *to,
		       const struct annotation_function *function)
{
	for (size_t i = 0; i < function->hit_count; i++) {
		print_ticks(annotate, to, function->hits[i].ticks, function->ticks);
		fprintf(to, "%16llx\n",
			(unsigned long long)(function->symbol->start + function->hits[i].offset));
	}
}

static void print_header(const struct annotate *annotate, FILE *to)
{
	const struct trace_info *info = &annotate->trace.info;
	const struct annotation *annotation = &annotate->annotation;

	fputs("# trace:    ", to);
	print_text(to, annotate->path);
	if (info->banner[0]) {
		fputs("\n# guest:    ", to);
		print_text(to, info->banner);
	}
	fprintf(to, "\n# samples:  %llu in which a vCPU ran",
		(unsigned long long)annotation->totals.running);
	if (annotation->nameless)
		fprintf(to, ", %.1f %% of them in no known function",
			annotate_percent(annotation->nameless, annotation->totals.running));
	if (info->code_functions || info->code_left_out)
		fprintf(to, "\n# code:     of %llu functions in the trace",
			(unsigned long long)info->code_functions);
	if (info->code_left_out)
		fprintf(to, "; of %llu it was gone, or had no room",
			(unsigned long long)info->code_left_out);
	putc('\n', to);
	if (!info->complete)
		fputs("# INCOMPLETE: the trace's end is missing; guestprof report says more\n", to);
}

gp_status_t annotate_write_text(const struct annotate *annotate, FILE *to, struct error *error)
{
	size_t shown = annotate_count(annotate);

	print_header(annotate, to);
	for (size_t i = 0; i < shown; i++) {
		const struct annotation_function *function = &annotate->annotation.functions[i];
		struct annotation_listing listing;
		gp_status_t status = annotation_list(&annotate->trace, function, annotate->syntax,
						     annotate->lines, &listing, error);

		if (status)
			return status;
		print_head(annotate, to, function);
		print_notes(annotate, to, function, &listing);
		if (listing.count)
			print_lines(annotate, to, &listing, function->ticks);
		else
			print_hits(annotate, to, function);
		annotation_listing_deinit(&listing);
	}
	if (shown < annotate->annotation.count)
		fprintf(to, "#\n# and %zu more functions; --hottest 0 shows all\n",
			annotate->annotation.count - shown);
	return GP_OK;
}
