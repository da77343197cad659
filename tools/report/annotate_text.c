/* guestprof annotate as text. */
#include "tools/report/annotate_output.h"

#include "base/cleanup.h"
#include "analysis/text.h"

#include <stdlib.h>
#include <string.h>

/* Of what lies so many instructions from every sample only the number is shown. */
#define CONTEXT 8
/* So many pieces of a region are shown, the hottest; and addresses where there is no code. */
#define PIECES 8u
#define ADDRESSES 16u
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
	double percent = text_percent(ticks, whole);

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
		fputs("  (sampled inside: the code was different then)", to);
	putc('\n', to);
}

/* Whether a sample is near line `index`. Gaps and sampled lines always are shown. */
static bool is_shown(const struct annotate *annotate, const struct annotation_listing *listing,
		     size_t index)
{
	size_t first = index > CONTEXT ? index - CONTEXT : 0;

	if (annotate->whole || listing->items[index].is_gap)
		return true;
	for (size_t i = first; i <= index + CONTEXT && i < listing->count; i++)
		if (listing->items[i].ticks)
			return true;
	return false;
}

static int compare_descending(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return a < b ? 1 : a > b ? -1 : 0;
}

/* The `most`-th largest of `count` numbers, which are sorted; 0 when there are not more. */
static uint64_t threshold(uint64_t *numbers, size_t count, size_t most)
{
	if (count <= most)
		return 0;
	qsort(numbers, count, sizeof(*numbers), compare_descending);
	return numbers[most - 1];
}

/* What of it is shown: places that have at least `least` ticks, `most` of them, and the sum of the
 * others. */
struct choice {
	uint64_t least;
	size_t most;
	size_t shown;
	size_t left_out;
	uint64_t left_out_ticks;
};

static bool choose(struct choice *choice, uint64_t ticks)
{
	if (ticks >= choice->least && choice->shown < choice->most) {
		choice->shown++;
		return true;
	}
	choice->left_out++;
	choice->left_out_ticks += ticks;
	return false;
}

static void print_left_out(FILE *to, const struct choice *choice, const char *what, uint64_t whole)
{
	if (choice->left_out)
		fprintf(to,
			"            ... elsewhere %.2f %%, at %zu more %s%s; --all shows all\n",
			text_percent(choice->left_out_ticks, whole), choice->left_out, what,
			text_plural(choice->left_out));
}

static void print_skipped(FILE *to, size_t count)
{
	if (count)
		fprintf(to, "            ... %zu instruction%s; --all shows %s\n", count,
			count > 1 ? "s" : "", count > 1 ? "them" : "it");
}

static void print_lines(const struct annotate *annotate, FILE *to,
			const struct annotation_listing *listing, size_t first, size_t end,
			uint64_t whole)
{
	const struct annotation_line *before = NULL;
	size_t left_out = 0;

	for (size_t i = first; i < end; i++) {
		const struct annotation_line *line = &listing->items[i];

		if (!is_shown(annotate, listing, i)) {
			left_out++;
			before = NULL;
			continue;
		}
		print_skipped(to, left_out);
		left_out = 0;
		if (line->place_count && (!before || !is_same_place(line, before)))
			print_source(annotate, to, line);
		print_instruction(annotate, to, line, whole);
		before = line;
	}
	print_skipped(to, left_out);
}

/* The piece that begins with line `first`: one behind its last line, and its ticks. */
static size_t piece_end(const struct annotation_listing *listing, size_t first, uint64_t *ticks)
{
	size_t end = first;

	*ticks = 0;
	do
		*ticks += listing->items[end].ticks;
	while (++end < listing->count && !listing->items[end].begins_piece);
	return end;
}

static gp_status_t print_pieces(const struct annotate *annotate, FILE *to,
				const struct annotation_listing *listing, uint64_t whole,
				struct error *error)
{
	struct choice choice = {.most = annotate->whole ? SIZE_MAX : PIECES};
	AUTO_FREE uint64_t *sums = calloc(listing->count + 1, sizeof(*sums));
	size_t count = 0;
	uint64_t ticks;

	if (!sums)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for annotations");
	for (size_t at = 0; at < listing->count; count++)
		at = piece_end(listing, at, &sums[count]);
	choice.least = threshold(sums, count, choice.most);
	for (size_t at = 0, end; at < listing->count; at = end) {
		end = piece_end(listing, at, &ticks);
		if (!choose(&choice, ticks))
			continue;
		if (choice.shown > 1)
			putc('\n', to);
		print_lines(annotate, to, listing, at, end, whole);
	}
	print_left_out(to, &choice, "place", whole);
	return GP_OK;
}

static void print_head(const struct annotate *annotate, FILE *to,
		       const struct annotation_function *function)
{
	const struct trace_symbol *symbol = function->symbol;
	const char *where;
	size_t where_bytes = annotation_where(function, &where);

	fputs("#\n# ", to);
	trace_print_name(to, symbol->name, symbol->name_bytes);
	/* A kernel module's functions have it in their names, and a region has no other. */
	if (symbol->kind != FXT_SYMBOL_MODULE && !function->is_region) {
		putc(' ', to);
		trace_print_name(to, where, where_bytes);
	}
	fprintf(to, ": %llu sample%s, %.2f %% of those in which a vCPU ran; at %#llx, %llu bytes\n",
		(unsigned long long)function->ticks, text_plural(function->ticks),
		text_percent(function->ticks, annotate->annotation.totals.running),
		(unsigned long long)symbol->start,
		(unsigned long long)(symbol->end - symbol->start));
}

/* Why there is no code, and what to do. */
static const char *reason(const struct annotate *annotate,
			  const struct annotation_function *function)
{
	const struct trace_info *info = &annotate->trace.info;

	if (!info->code_functions && !info->code_left_out && info->complete)
		return "# no code: this trace has none of any function, as those of an older "
		       "guestprof;\n# recorded again it has\n";
	if (!info->code_functions && !info->code_left_out)
		return "# no code: the recording was cut off before any was written\n";
	if (function->is_region)
		return "# no code: it was overwritten or gone before it could be copied, which is "
		       "done within\n# some 20 ms; or the trace is of an older guestprof: record "
		       "again\n";
	if (function->program)
		return "# no code: the program had ended, or its pages were gone, before it could "
		       "be copied;\n# objdump -d of its file shows what is at these addresses\n";
	return "# no code: the guest freed it before it could be copied, as the kernel does with "
	       "what only\n# its start needs; objdump -d of the kernel's debug image shows it\n";
}

static void print_notes(const struct annotate *annotate, FILE *to,
			const struct annotation_function *function,
			const struct annotation_listing *listing)
{
	uint64_t first_ns = annotate->trace.info.first_ns;

	if (!listing->count) {
		fputs(reason(annotate, function), to);
		return;
	}
	if (function->is_region)
		fputs("# it has no known functions; its code, from the samples on\n", to);
	if (listing->changed)
		fprintf(to,
			"# the guest changed this code while it was recorded; shown as of %.3f "
			"s\n",
			listing->read_at_ns > first_ns
				? (double)(listing->read_at_ns - first_ns) / 1e9
				: 0);
	if (listing->unplaced)
		fprintf(to, "# %.2f %% lie behind the first %zu KiB, which are in the trace\n",
			text_percent(listing->unplaced, function->ticks), TRACE_CODE_MAX >> 10);
}

/* What there is when there is no code: addresses. */
static gp_status_t print_hits(const struct annotate *annotate, FILE *to,
			      const struct annotation_function *function, struct error *error)
{
	struct choice choice = {.most = annotate->whole ? SIZE_MAX : ADDRESSES};
	AUTO_FREE uint64_t *ticks = calloc(function->hit_count + 1, sizeof(*ticks));

	if (!ticks)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for annotations");
	for (size_t i = 0; i < function->hit_count; i++)
		ticks[i] = function->hits[i].ticks;
	choice.least = threshold(ticks, function->hit_count, choice.most);
	for (size_t i = 0; i < function->hit_count; i++) {
		const struct annotation_hit *hit = &function->hits[i];

		if (!choose(&choice, hit->ticks))
			continue;
		print_ticks(annotate, to, hit->ticks, function->ticks);
		fprintf(to, "%16llx\n", (unsigned long long)(function->start + hit->offset));
	}
	print_left_out(to, &choice, "place", function->ticks);
	return GP_OK;
}

static gp_status_t print_function(const struct annotate *annotate, FILE *to,
				  const struct annotation_function *function,
				  const struct annotation_listing *listing, struct error *error)
{
	print_head(annotate, to, function);
	print_notes(annotate, to, function, listing);
	if (!listing->count)
		return print_hits(annotate, to, function, error);
	if (function->is_region)
		return print_pieces(annotate, to, listing, function->ticks, error);
	print_lines(annotate, to, listing, 0, listing->count, function->ticks);
	return GP_OK;
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
			text_percent(annotation->nameless, annotation->totals.running));
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
		status = print_function(annotate, to, function, &listing, error);
		annotation_listing_deinit(&listing);
		if (status)
			return status;
	}
	if (shown < annotate->annotation.count)
		fprintf(to, "#\n# and %zu more functions; --hottest 0 shows all\n",
			annotate->annotation.count - shown);
	return GP_OK;
}
