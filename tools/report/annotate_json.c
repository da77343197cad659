/* guestprof annotate as JSON: one object. */
#include "tools/report/annotate_output.h"

#include "analysis/text.h"

#include <string.h>

static void print_name(FILE *to, const char *member, const char *name, size_t size)
{
	fprintf(to, "\"%s\": ", member);
	text_print_json(to, name, size);
}

static void print_places(FILE *to, const struct annotation_line *line)
{
	fputs(", \"source\": [", to);
	for (size_t i = 0; i < line->place_count; i++) {
		const struct source_frame *place = &line->places[i];

		fputs(i ? ", {" : "{", to);
		if (place->function) {
			print_name(to, "inlined", place->function, strlen(place->function));
			fputs(", ", to);
		}
		if (place->file) {
			print_name(to, "file", place->file, strlen(place->file));
			fputs(", ", to);
		}
		fprintf(to, "\"line\": %u}", place->line);
	}
	putc(']', to);
}

static void print_line(FILE *to, const struct annotation_line *line)
{
	const struct instruction *instruction = &line->instruction;

	fprintf(to, "{\"address\": \"%#llx\", \"size\": %u, \"ticks\": %llu",
		(unsigned long long)instruction->address, instruction->size,
		(unsigned long long)line->ticks);
	if (line->is_gap) {
		fputs(", \"missing\": true}", to);
		return;
	}
	fputs(", \"bytes\": \"", to);
	for (unsigned i = 0; i < instruction->size; i++)
		fprintf(to, "%02x", line->bytes[i]);
	fprintf(to, "\", ");
	print_name(to, "mnemonic", instruction->mnemonic, strlen(instruction->mnemonic));
	fputs(", ", to);
	print_name(to, "operands", instruction->operands, strlen(instruction->operands));
	if (instruction->has_target)
		fprintf(to, ", \"target\": \"%#llx\"", (unsigned long long)instruction->target);
	if (line->target) {
		fputs(", ", to);
		print_name(to, "target_name", line->target->name, line->target->name_bytes);
	}
	if (line->is_moved)
		fputs(", \"changed\": true", to);
	if (line->place_count)
		print_places(to, line);
	putc('}', to);
}

/* Without code: where samples were, and nothing else. */
static void print_hits(FILE *to, const struct annotation_function *function)
{
	for (size_t i = 0; i < function->hit_count; i++)
		fprintf(to,
			"%s\n      {\"address\": \"%#llx\", \"ticks\": %llu, \"missing\": true}",
			i ? "," : "",
			(unsigned long long)(function->start + function->hits[i].offset),
			(unsigned long long)function->hits[i].ticks);
}

static void print_function(FILE *to, const struct annotation_function *function,
			   const struct annotation_listing *listing)
{
	const struct trace_symbol *symbol = function->symbol;
	const char *where;
	size_t where_bytes = annotation_where(function, &where);

	fputs("    {", to);
	print_name(to, "name", symbol->name, symbol->name_bytes);
	fputs(", ", to);
	print_name(to, "where", where, where_bytes);
	fprintf(to,
		", \"address\": \"%#llx\", \"size\": %llu, \"ticks\": %llu, \"unplaced\": %llu,\n"
		"     \"changed\": %s, \"region\": %s, \"instructions\": [",
		(unsigned long long)symbol->start,
		(unsigned long long)(symbol->end - symbol->start),
		(unsigned long long)function->ticks, (unsigned long long)listing->unplaced,
		listing->changed ? "true" : "false", function->is_region ? "true" : "false");
	if (!listing->count)
		print_hits(to, function);
	for (size_t i = 0; i < listing->count; i++) {
		fputs(i ? ",\n      " : "\n      ", to);
		print_line(to, &listing->items[i]);
	}
	fputs("]}", to);
}

gp_status_t annotate_write_json(const struct annotate *annotate, FILE *to, struct error *error)
{
	const struct annotation *annotation = &annotate->annotation;
	size_t shown = annotate_count(annotate);

	fputs("{\n  ", to);
	print_name(to, "trace", annotate->path, strlen(annotate->path));
	fprintf(to,
		",\n  \"complete\": %s,\n  \"running\": %llu,\n  \"nameless\": %llu,\n"
		"  \"functions_not_shown\": %zu,\n  \"functions\": [",
		annotate->trace.info.complete ? "true" : "false",
		(unsigned long long)annotation->totals.running,
		(unsigned long long)annotation->nameless, annotation->count - shown);
	for (size_t i = 0; i < shown; i++) {
		struct annotation_listing listing;
		gp_status_t status =
			annotation_list(&annotate->trace, &annotation->functions[i],
					annotate->syntax, annotate->lines, &listing, error);

		if (status)
			return status;
		fputs(i ? ",\n" : "\n", to);
		print_function(to, &annotation->functions[i], &listing);
		annotation_listing_deinit(&listing);
	}
	fputs("\n  ]\n}\n", to);
	return GP_OK;
}
