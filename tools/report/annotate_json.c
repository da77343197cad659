/* guestprof annotate as JSON: one object. */
#include "tools/report/annotate_output.h"

#include "export/json_writer.h"

static void address_member(struct json *json, const char *name, uint64_t address)
{
	json_value(json, name, "\"%#llx\"", (unsigned long long)address);
}

static void places_member(struct json *json, const struct annotation_line *line)
{
	json_open(json, "source", '[', false);
	for (size_t i = 0; i < line->place_count; i++) {
		const struct source_frame *place = &line->places[i];

		json_open(json, NULL, '{', false);
		if (place->function)
			json_string(json, "inlined", place->function);
		if (place->file)
			json_string(json, "file", place->file);
		json_number(json, "line", place->line);
		json_close(json);
	}
	json_close(json);
}

static void instruction_members(struct json *json, const struct annotation_line *line)
{
	const struct instruction *instruction = &line->instruction;
	char bytes[2 * INSTRUCTION_BYTES_MAX + 1] = "";

	for (unsigned i = 0; i < instruction->size; i++)
		snprintf(bytes + 2 * i, 3, "%02x", line->bytes[i]);
	json_string(json, "bytes", bytes);
	json_string(json, "mnemonic", instruction->mnemonic);
	json_string(json, "operands", instruction->operands);
	if (instruction->has_target)
		address_member(json, "target", instruction->target);
	if (line->target)
		json_text(json, "target_name", line->target->name, line->target->name_bytes);
	if (line->is_moved)
		json_bool(json, "changed", true);
	if (line->place_count)
		places_member(json, line);
}

static void write_line(struct json *json, const struct annotation_line *line)
{
	json_open(json, NULL, '{', false);
	address_member(json, "address", line->instruction.address);
	json_number(json, "size", line->instruction.size);
	json_number(json, "ticks", line->ticks);
	if (line->is_gap)
		json_bool(json, "missing", true);
	else
		instruction_members(json, line);
	json_close(json);
}

/* Without code: where samples were, and nothing else. */
static void write_hits(struct json *json, const struct annotation_function *function)
{
	for (size_t i = 0; i < function->hit_count; i++) {
		json_open(json, NULL, '{', false);
		address_member(json, "address", function->start + function->hits[i].offset);
		json_number(json, "ticks", function->hits[i].ticks);
		json_bool(json, "missing", true);
		json_close(json);
	}
}

static void write_function(struct json *json, const struct annotation_function *function,
			   const struct annotation_listing *listing)
{
	const struct trace_symbol *symbol = function->symbol;
	const char *where;
	size_t where_bytes = annotation_where(function, &where);

	json_open(json, NULL, '{', false);
	json_text(json, "name", symbol->name, symbol->name_bytes);
	json_text(json, "where", where, where_bytes);
	address_member(json, "address", symbol->start);
	json_number(json, "size", symbol->end - symbol->start);
	json_number(json, "ticks", function->ticks);
	json_number(json, "unplaced", listing->unplaced);
	json_bool(json, "changed", listing->changed);
	json_bool(json, "region", function->is_region);
	json_open(json, "instructions", '[', true);
	if (!listing->count)
		write_hits(json, function);
	for (size_t i = 0; i < listing->count; i++)
		write_line(json, &listing->items[i]);
	json_close(json);
	json_close(json);
}

gp_status_t annotate_write_json(const struct annotate *annotate, FILE *to, struct error *error)
{
	const struct annotation *annotation = &annotate->annotation;
	size_t shown = annotate_count(annotate);
	struct json json = {.to = to};

	json_open(&json, NULL, '{', true);
	json_string(&json, "trace", annotate->path);
	json_bool(&json, "complete", annotate->trace.info.complete);
	json_number(&json, "running", annotation->totals.running);
	json_number(&json, "nameless", annotation->nameless);
	json_number(&json, "functions_not_shown", annotation->count - shown);
	json_open(&json, "functions", '[', true);
	for (size_t i = 0; i < shown; i++) {
		struct annotation_listing listing;
		gp_status_t status =
			annotation_list(&annotate->trace, &annotation->functions[i],
					annotate->syntax, annotate->lines, &listing, error);

		if (status)
			return status;
		write_function(&json, &annotation->functions[i], &listing);
		annotation_listing_deinit(&listing);
	}
	json_close(&json);
	json_close(&json);
	return GP_OK;
}
