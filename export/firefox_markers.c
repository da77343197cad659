#include "export/firefox_markers.h"

#include "export/series.h"
#include "analysis/text.h"

#include <stdlib.h>
#include <string.h>

const char markers_schemas[] =
	"[{\"name\":\"console\",\"display\":[\"marker-chart\",\"marker-table\","
	"\"timeline-overview\"],\"chartLabel\":\"{marker.data.text}\",\"tooltipLabel\":"
	"\"{marker.data.text}\",\"tableLabel\":\"{marker.data.text}\",\"data\":[{\"key\":"
	"\"text\",\"label\":\"Line\",\"format\":\"string\"}]},"
	"{\"name\":\"vcpu\",\"display\":[\"marker-chart\",\"marker-table\"],\"chartLabel\":"
	"\"{marker.data.state}\",\"tooltipLabel\":\"{marker.data.state}\",\"tableLabel\":"
	"\"{marker.data.state}\",\"data\":[{\"key\":\"state\",\"label\":\"State\",\"format\":"
	"\"string\"},{\"key\":\"ticks\",\"label\":\"Ticks\",\"format\":\"integer\"}]}]";

struct marker {
	bool is_line;
	union {
		struct console_line line;
		struct lane_piece piece;
	};
};

struct markers *markers_of(struct export *export)
{
	return ((struct series_set *)export->state)->more;
}

void markers_destroy(struct markers *markers)
{
	if (markers)
		free(markers->entries.items);
	free(markers);
}

static void add_marker(struct export *export, const struct marker *marker)
{
	struct markers *markers = markers_of(export);

	export->failed |= !vector_add(&markers->entries, *marker);
}

void markers_put_piece(struct export *export, const struct lane_piece *piece)
{
	add_marker(export, &(struct marker){.piece = *piece});
}

void markers_add_line(struct export *export, const struct console_line *line)
{
	char text[4 * EXPORT_LINE_MAX + 1];

	if (export_line_text(line, text))
		add_marker(export, &(struct marker){.is_line = true, .line = *line});
}

/* MarkerPhase of its types. */
enum { PHASE_INSTANT, PHASE_INTERVAL };

static void print_time(FILE *to, uint64_t time_ns, uint64_t first_ns)
{
	/* The console may have been there first. */
	uint64_t since_ns = time_ns > first_ns ? time_ns - first_ns : first_ns - time_ns;

	fprintf(to, "%s%llu.%06llu", time_ns < first_ns ? "-" : "",
		(unsigned long long)(since_ns / 1000000), (unsigned long long)(since_ns % 1000000));
}

static void print_marker_data(FILE *to, const struct marker *marker)
{
	char text[4 * EXPORT_LINE_MAX + 1];

	if (marker->is_line) {
		export_line_text(&marker->line, text);
		fputs("{\"type\":\"console\",\"text\":", to);
		text_print_json(to, text, strlen(text));
		putc('}', to);
	} else {
		fprintf(to, "{\"type\":\"vcpu\",\"state\":\"%s\",\"ticks\":%llu}",
			marker->piece.state, (unsigned long long)marker->piece.ticks);
	}
}

/* The names of markers are the first strings of their thread: the console's, that of no vCPU, then
 * the vCPUs'. */
static uint32_t marker_name(const struct marker *marker)
{
	if (marker->is_line)
		return 0;
	return marker->piece.vcpu == LANES_NO_VCPU ? 1 : 2 + marker->piece.vcpu;
}

void markers_print_names(FILE *to, const struct markers *markers)
{
	uint32_t count = 2;
	char name[32];

	for (size_t i = 0; i < markers->entries.count; i++)
		if (marker_name(&markers->entries.items[i]) >= count)
			count = marker_name(&markers->entries.items[i]) + 1;
	fputs(",\"stringArray\":[\"console\"", to);
	for (uint32_t i = 1; i < count; i++) {
		lanes_name(i == 1 ? LANES_NO_VCPU : i - 2, name, sizeof(name));
		fprintf(to, ",\"%s\"", name);
	}
	putc(']', to);
}

void markers_print_table(FILE *to, const struct markers *markers, uint64_t first_ns)
{
	size_t count = markers->entries.count;

	fprintf(to, ",\"markers\":{\"length\":%zu,\"data\":[", count);
	for (size_t i = 0; i < count; i++) {
		if (i)
			putc(',', to);
		print_marker_data(to, &markers->entries.items[i]);
	}
	fputs("],\"startTime\":[", to);
	for (size_t i = 0; i < count; i++) {
		const struct marker *marker = &markers->entries.items[i];

		if (i)
			putc(',', to);
		print_time(to, marker->is_line ? marker->line.time_ns : marker->piece.begin_ns,
			   first_ns);
	}
	fputs("],\"endTime\":[", to);
	for (size_t i = 0; i < count; i++) {
		const struct marker *marker = &markers->entries.items[i];

		if (i)
			putc(',', to);
		if (marker->is_line)
			fputs("null", to);
		else
			print_time(to, marker->piece.end_ns, first_ns);
	}
	fputs("],\"name\":[", to);
	for (size_t i = 0; i < count; i++)
		fprintf(to, "%s%u", i ? "," : "", marker_name(&markers->entries.items[i]));
	fputs("],\"phase\":[", to);
	for (size_t i = 0; i < count; i++)
		fprintf(to, "%s%d", i ? "," : "",
			markers->entries.items[i].is_line ? PHASE_INSTANT : PHASE_INTERVAL);
	putc(']', to);
	fputs(",\"category\":[", to);
	for (size_t i = 0; i < count; i++)
		fprintf(to, "%s%d", i ? "," : "", CATEGORY_OTHER);
	fputs("]}", to);
}
