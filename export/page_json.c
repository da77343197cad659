/* The data of a page, as JSON with long lists of numbers packed.
 *
 * A packed list is base64 of numbers of 7 bits per byte, least significant first, the high bit set
 * on all but the last byte (as in LEB128).
 *
 *     files     [{what trace_info says, and ticks, running, modes, ends}]
 *     names     [text], of frames; kinds: one digit for each, enum frame_kind; ids: [[name,
 *               process or thread id]], as text, since it may be any 64-bit number
 *     nodes     packed: for each call path but the root, depth first: how many frames to leave
 *               before this one is entered, and its name
 *     contexts  packed: file, vCPU, name of process, name of thread, mode
 *     cells     packed, by node: node less the one before, context, ticks
 *     lanes     of the timeline: [{vcpu, count, data}], data packed, by time, for each sample:
 *               twice its time less the one before in `unit_ns`, plus one when its ticks
 *               are not 1; its cell; its ticks when they are not 1
 *     drops     [[vcpu, from, to, records]], times in `unit_ns`
 *     marks     [[time in `unit_ns`, name of the console's line]], by time; markCount: of how many
 */
#include "export/page_json.h"

#include <inttypes.h>
#include <stdlib.h>

/* Integers that JavaScript's numbers hold exactly. */
#define EXACT_MAX ((UINT64_C(1) << 53) - 1)
/* Times are given in parts of the period. Two ticks are then about 32 units apart: one byte. */
#define UNITS_PER_PERIOD 32

struct packer {
	FILE *to;
	unsigned char bytes[3];
	size_t count;
};

static void flush_packed(struct packer *packer)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *bytes = packer->bytes;
	char text[4];

	if (!packer->count)
		return;
	for (size_t i = packer->count; i < 3; i++)
		packer->bytes[i] = 0;
	text[0] = digits[bytes[0] >> 2];
	text[1] = digits[(bytes[0] & 3) << 4 | bytes[1] >> 4];
	text[2] = packer->count > 1 ? digits[(bytes[1] & 15) << 2 | bytes[2] >> 6] : '=';
	text[3] = packer->count > 2 ? digits[bytes[2] & 63] : '=';
	fwrite(text, 1, 4, packer->to);
	packer->count = 0;
}

static void pack(struct packer *packer, uint64_t number)
{
	do {
		packer->bytes[packer->count++] =
			(unsigned char)((number & 127) | (number > 127 ? 128 : 0));
		number >>= 7;
		if (packer->count == 3)
			flush_packed(packer);
	} while (number);
}

static uint64_t exact(uint64_t number)
{
	return number < EXACT_MAX ? number : EXACT_MAX;
}

void page_json_text(FILE *to, const char *text)
{
	putc('"', to);
	for (; *text; text++) {
		unsigned char byte = (unsigned char)*text;

		/* '<' would let the text end its script element; the others cost little. */
		if (byte < 0x20 || byte >= 0x7f || byte == '<' || byte == '>' || byte == '&' ||
		    byte == '\'')
			fprintf(to, "\\u%04x", byte);
		else if (byte == '"' || byte == '\\')
			fprintf(to, "\\%c", byte);
		else
			putc(byte, to);
	}
	putc('"', to);
}

static void write_text(FILE *to, const char *name, const char *text)
{
	fprintf(to, "\"%s\":", name);
	page_json_text(to, text);
	putc(',', to);
}

static void write_number(FILE *to, const char *name, uint64_t number)
{
	fprintf(to, "\"%s\":%" PRIu64 ",", name, exact(number));
}

static void write_list(FILE *to, const char *name, const uint64_t *numbers, size_t count)
{
	fprintf(to, "\"%s\":[", name);
	for (size_t i = 0; i < count; i++)
		fprintf(to, "%s%" PRIu64, i ? "," : "", exact(numbers[i]));
	putc(']', to);
}

static void write_file(FILE *to, const struct page_file *file)
{
	const struct trace_info *info = &file->info;

	putc('{', to);
	write_text(to, "path", file->path);
	write_text(to, "version", info->version);
	write_text(to, "tickSource", info->tick_source);
	write_text(to, "kernel", info->kernel);
	write_text(to, "commandLine", info->command_line);
	write_text(to, "banner", info->banner);
	write_text(to, "endReason", info->end_reason);
	write_text(to, "problem", info->problem ? info->problem : "");
	write_number(to, "periodNs", info->period_ns);
	write_number(to, "depth", info->depth);
	write_number(to, "vcpus", info->vcpus);
	write_number(to, "memoryBytes", info->memory_bytes);
	write_number(to, "bytes", info->bytes);
	write_number(to, "goodBytes", info->good_bytes);
	write_number(to, "badRecords", info->bad_records);
	write_number(to, "stacks", info->stacks);
	write_number(to, "partials", info->partials);
	write_number(to, "dropped", info->dropped_records);
	write_number(to, "consoleLines", info->console_lines);
	write_number(to, "consoleLost", info->console_lost);
	write_number(to, "durationNs", info->last_ns - info->first_ns);
	write_number(to, "ticks", file->totals.ticks);
	write_number(to, "running", file->totals.running);
	write_number(to, "filtered", file->totals.filtered);
	fprintf(to, "\"complete\":%s,\"cut\":%s,\"broken\":%s,", info->complete ? "true" : "false",
		info->cut ? "true" : "false", info->broken ? "true" : "false");
	write_list(to, "modes", file->totals.modes, FRAMES_MODES);
	putc(',', to);
	write_list(to, "ends", file->totals.ends, FRAMES_ENDS);
	putc('}', to);
}

static void write_names(FILE *to, const struct page_data *data)
{
	const struct frames *frames = &data->frames;
	char text[PAGE_NAME_MAX + 8];
	bool first = true;

	fputs("\"names\":[", to);
	for (size_t i = 0; i < frames->count; i++) {
		const struct frame *frame = &frames->entries[i];

		if (i)
			putc(',', to);
		page_json_text(to, page_print_name(frame->name, frame->name_bytes, text));
	}
	fputs("],\n\"kinds\":\"", to);
	for (size_t i = 0; i < frames->count; i++)
		putc('0' + frames->entries[i].kind, to);
	fputs("\",\n\"ids\":[", to);
	for (size_t i = 0; i < frames->count; i++) {
		const struct frame *frame = &frames->entries[i];

		if ((frame->kind != FRAME_PROCESS && frame->kind != FRAME_THREAD) ||
		    frame->id == FRAME_NO_ID)
			continue;
		fprintf(to, "%s[%zu,\"%" PRIu64 "\"]", first ? "" : ",", i, frame->id);
		first = false;
	}
	fputs("],\n", to);
}

/* Depth first: from one node to the next one leaves as many frames as it takes to reach its parent.
 */
static void write_nodes(FILE *to, const struct page_data *data)
{
	const struct page_node *nodes = data->nodes.items;
	size_t count = page_data_nodes(data);
	struct packer packer = {.to = to};

	fputs("\"nodes\":\"", to);
	for (size_t i = 1; i < count; i++) {
		const struct page_node *node = &nodes[data->order[i]];
		uint32_t before = data->order[i - 1];
		uint64_t leave = 0;

		for (; before != node->parent; before = nodes[before].parent)
			leave++;
		pack(&packer, leave);
		pack(&packer, node->frame);
	}
	flush_packed(&packer);
	fprintf(to, "\",\"nodeCount\":%zu,\n", count);
}

static void write_contexts(FILE *to, const struct page_data *data)
{
	const struct page_context *contexts = data->contexts.items;
	struct packer packer = {.to = to};

	fputs("\"contexts\":\"", to);
	for (size_t i = 0; i < data->contexts.count; i++) {
		pack(&packer, contexts[i].file);
		pack(&packer, contexts[i].vcpu);
		pack(&packer, contexts[i].process);
		pack(&packer, contexts[i].thread);
		pack(&packer, contexts[i].mode);
	}
	flush_packed(&packer);
	fprintf(to, "\",\"contextCount\":%zu,\n", data->contexts.count);
}

static void write_cells(FILE *to, const struct page_data *data)
{
	const struct page_cell *cells = data->cells.items;
	struct packer packer = {.to = to};
	size_t nodes = page_data_nodes(data), place = 0, last = 0;

	fputs("\"cells\":\"", to);
	for (size_t i = 0; i < data->cells.count; i++) {
		const struct page_cell *cell = &cells[data->cell_order[i]];

		while (place < nodes && data->order[place] != cell->node)
			place++;
		pack(&packer, place - last);
		pack(&packer, cell->context);
		pack(&packer, exact(cell->ticks));
		last = place;
	}
	flush_packed(&packer);
	fprintf(to, "\",\"cellCount\":%zu", data->cells.count);
}

static uint64_t in_units(uint64_t time_ns, uint64_t first_ns, uint64_t unit_ns)
{
	return time_ns > first_ns ? (time_ns - first_ns) / unit_ns : 0;
}

static void write_lane(FILE *to, const struct page_sample *samples, size_t count, uint64_t first_ns,
		       uint64_t unit_ns, const uint32_t *places)
{
	struct packer packer = {.to = to};
	uint64_t last = 0;

	fprintf(to, "{\"vcpu\":%u,\"count\":%zu,\"data\":\"", samples[0].vcpu, count);
	for (size_t i = 0; i < count; i++) {
		uint64_t time = in_units(samples[i].time_ns, first_ns, unit_ns);
		uint64_t delta = time > last ? time - last : 0;

		last += delta;
		pack(&packer, delta * 2 + (samples[i].ticks != 1));
		pack(&packer, places[samples[i].cell]);
		if (samples[i].ticks != 1)
			pack(&packer, samples[i].ticks);
	}
	flush_packed(&packer);
	fputs("\"}", to);
}

static void write_times(FILE *to, const struct page_data *data, const uint32_t *places)
{
	const struct trace_info *info = &data->files[0].info;
	const struct page_sample *samples = data->times.items;
	const struct trace_lost *drops = data->drops.items;
	const struct page_mark *marks = data->marks.items;
	uint64_t unit_ns = info->period_ns / UNITS_PER_PERIOD;
	uint64_t span_ns = info->last_ns - info->first_ns, begin_ns = info->first_ns;
	size_t from = 0;

	/* A quarter of what is exact: the sums and doublings on the way stay exact. */
	while (!unit_ns || span_ns / unit_ns > EXACT_MAX / 4)
		unit_ns = unit_ns ? unit_ns * 2 : 1;
	fprintf(to, ",\n\"unitNs\":%" PRIu64 ",\"lanes\":[", exact(unit_ns));
	for (size_t i = 1; i <= data->times.count; i++) {
		if (i < data->times.count && samples[i].vcpu == samples[from].vcpu)
			continue;
		fputs(from ? ",\n" : "", to);
		write_lane(to, samples + from, i - from, begin_ns, unit_ns, places);
		from = i;
	}
	fputs("],\n\"drops\":[", to);
	for (size_t i = 0; i < data->drops.count; i++)
		fprintf(to, "%s[%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]", i ? "," : "",
			(uint64_t)drops[i].vcpu,
			exact(in_units(drops[i].begin_ns, begin_ns, unit_ns)),
			exact(in_units(drops[i].end_ns, begin_ns, unit_ns)),
			exact(drops[i].records));
	fprintf(to, "],\n\"markCount\":%" PRIu64 ",\"marks\":[", exact(data->marks.all));
	for (size_t i = 0; i < data->marks.count; i++) {
		/* The last words come after the last sample: at the edge, where they are seen. */
		uint64_t time_ns =
			marks[i].time_ns < info->last_ns ? marks[i].time_ns : info->last_ns;

		fprintf(to, "%s[%" PRIu64 ",%" PRIu32 "]", i ? "," : "",
			exact(in_units(time_ns, begin_ns, unit_ns)), marks[i].frame);
	}
	putc(']', to);
}

gp_status_t page_data_write(const struct page_data *data, FILE *to, struct error *error)
{
	uint32_t *places = NULL;

	if (data->with_times) {
		places = calloc(data->cells.count + 1, sizeof(*places));
		if (!places)
			return error_set(error, GP_ERR_NO_MEMORY, "no memory to write the page");
		for (size_t i = 0; i < data->cells.count; i++)
			places[data->cell_order[i]] = (uint32_t)i;
	}
	fputs("{\"files\":[", to);
	for (size_t i = 0; i < data->file_count; i++) {
		if (i)
			putc(',', to);
		write_file(to, &data->files[i]);
	}
	fprintf(to, "],\n\"rareNodes\":%" PRIu64 ",\"rareTicks\":%" PRIu64 ",\n", data->rare_nodes,
		exact(data->rare_ticks));
	write_names(to, data);
	write_nodes(to, data);
	write_contexts(to, data);
	write_cells(to, data);
	if (places)
		write_times(to, data, places);
	fputs("}\n", to);
	free(places);
	return GP_OK;
}
