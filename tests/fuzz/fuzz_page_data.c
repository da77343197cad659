/* Pages are made of traces from anybody: folding one, also with hardly any room for call paths,
 * must hold for any bytes and keep every tick; and what is written has to be inert where it is put.
 */
#include "export/flame_svg.h"
#include "export/page_json.h"
#include "analysis/page_data.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static uint64_t sum_of_cells(const struct page_data *data)
{
	const struct page_cell *cells = data->cells.items;
	uint64_t sum = 0;

	for (size_t i = 0; i < data->cells.count; i++)
		sum += cells[i].ticks;
	return sum;
}

static void look_at_times(const struct page_data *data)
{
	const struct page_sample *samples = data->times.items;

	for (size_t i = 0; i < data->times.count; i++) {
		if (samples[i].cell >= data->cells.count)
			abort();
		if (i && (samples[i].vcpu < samples[i - 1].vcpu ||
			  (samples[i].vcpu == samples[i - 1].vcpu &&
			   samples[i].time_ns < samples[i - 1].time_ns)))
			abort();
	}
}

static void write_json(const struct page_data *data)
{
	char *text = NULL;
	size_t size = 0;
	FILE *to = open_memstream(&text, &size);

	if (!to || page_data_write(data, to, NULL) || fclose(to))
		abort();
	for (size_t i = 0; i < size; i++)
		if (text[i] != '\n' && (text[i] < 0x20 || text[i] > 0x7e || text[i] == '<' ||
					text[i] == '>' || text[i] == '&'))
			abort();
	free(text);
}

static void write_svg(const struct page_data *data, bool callers)
{
	struct flame_svg_options options = {.callers = callers, .idle = !callers};
	char *text = NULL;
	size_t size = 0;
	FILE *to = open_memstream(&text, &size);

	if (!to || flame_svg_write(data, &options, to, NULL) || fclose(to))
		abort();
	/* A letter after '<' begins an element: only ours may. */
	for (const char *at = strchr(text, '<'); at; at = strchr(at + 1, '<'))
		if (!strchr("?/", at[1]) && strncmp(at, "<svg ", 5) && strncmp(at, "<style>", 7) &&
		    strncmp(at, "<text ", 6) && strncmp(at, "<g>", 3) &&
		    strncmp(at, "<title>", 7) && strncmp(at, "<rect ", 6))
			abort();
	free(text);
}

static void make_pages(struct trace *trace, size_t nodes_max)
{
	struct page_data *data = NULL;

	if (page_data_create(true, &data, NULL) || page_data_add(data, trace, "a", NULL, NULL) ||
	    page_data_add(data, trace, "b", NULL, NULL) || page_data_finish(data, nodes_max, NULL))
		abort();
	if (sum_of_cells(data) != data->files[0].totals.ticks + data->files[1].totals.ticks)
		abort();
	look_at_times(data);
	write_json(data);
	write_svg(data, false);
	write_svg(data, true);
	page_data_destroy(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	static struct trace trace; /* too large for a stack */
	int fd = memfd_create("trace", MFD_CLOEXEC);
	char path[64];

	if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (!trace_open(path, &trace, NULL)) {
		make_pages(&trace, PAGE_NODES_MAX);
		make_pages(&trace, 3);
		trace_close(&trace);
	}
	close(fd);
	return 0;
}
