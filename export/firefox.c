/* The "processed profile" of the Firefox Profiler (profiler.firefox.com), JSON in gzip: its types
 * are declared in github.com/firefox-devtools/profiler, src/types/profile; version 54 of them.
 * Every thread has its own tables of functions and stacks; a guest's thread, or a vCPU, is one. One
 * more has no samples, but as markers the lines on the console and what each vCPU did. */
#include "export/firefox_markers.h"
#include "export/functions.h"
#include "export/series.h"

#include "base/cleanup.h"
#include "trace/gzip.h"
#include "analysis/text.h"

#include <stdlib.h>

#define CATEGORIES                                                                   \
	"[{\"name\":\"Kernel\",\"color\":\"orange\",\"subcategories\":[\"Other\"]}," \
	"{\"name\":\"User\",\"color\":\"blue\",\"subcategories\":[\"Other\"]},"      \
	"{\"name\":\"Startup\",\"color\":\"purple\",\"subcategories\":[\"Other\"]}," \
	"{\"name\":\"Other\",\"color\":\"grey\",\"subcategories\":[\"Other\"]}]"

/* What one thread uses of a table that all share, with numbers of its own. */
struct own {
	uint32_t *items; /* used, as the shared table numbers them */
	size_t count;
	uint32_t *number; /* by shared number, if the mark is the thread's */
	uint32_t *mark;
};

struct tables {
	struct own nodes; /* parents first */
	struct own frames;
	struct own functions;  /* as numbers of frames */
	uint32_t *function_of; /* of every frame: export_functions() */
};

static bool own_init(struct own *own, size_t count)
{
	own->items = calloc(count + 1, sizeof(*own->items));
	own->number = calloc(count + 1, sizeof(*own->number));
	own->mark = calloc(count + 1, sizeof(*own->mark));
	return own->items && own->number && own->mark;
}

static void own_deinit(struct own *own)
{
	free(own->items);
	free(own->number);
	free(own->mark);
}

/* False: the thread has it. */
static bool own_add(struct own *own, uint32_t item, uint32_t mark)
{
	if (own->mark[item] == mark)
		return false;
	own->mark[item] = mark;
	own->number[item] = (uint32_t)own->count;
	own->items[own->count++] = item;
	return true;
}

static void tables_deinit(struct tables *tables)
{
	own_deinit(&tables->nodes);
	own_deinit(&tables->frames);
	own_deinit(&tables->functions);
	free(tables->function_of);
}

static bool tables_init(struct tables *tables, size_t nodes, const struct frames *frames)
{
	*tables = (struct tables){.function_of = export_functions(frames)};
	return tables->function_of && own_init(&tables->nodes, nodes) &&
	       own_init(&tables->frames, frames->count) &&
	       own_init(&tables->functions, frames->count);
}

static int compare_numbers(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

	return a < b ? -1 : a > b;
}

static void collect(struct tables *tables, const struct call_tree *tree,
		    const struct series *series, uint32_t mark)
{
	struct own *nodes = &tables->nodes;

	nodes->count = tables->frames.count = tables->functions.count = 0;
	for (size_t i = 0; i < series->samples.count; i++)
		for (uint32_t node = series->samples.items[i].node;
		     node && own_add(nodes, node, mark); node = tree->nodes[node].parent)
			;
	if (nodes->count)
		qsort(nodes->items, nodes->count, sizeof(*nodes->items), compare_numbers);
	for (size_t i = 0; i < nodes->count; i++) {
		uint32_t frame = tree->nodes[nodes->items[i]].frame;

		nodes->number[nodes->items[i]] = (uint32_t)i;
		if (own_add(&tables->frames, frame, mark))
			own_add(&tables->functions, tables->function_of[frame], mark);
	}
}

static int category_of(const struct frame *frame)
{
	switch (frame->kind) {
	case FRAME_KERNEL:
	case FRAME_MODULE:
		return CATEGORY_KERNEL;
	case FRAME_USER:
		return CATEGORY_USER;
	case FRAME_BOOT:
		return CATEGORY_BOOT;
	default:
		return CATEGORY_OTHER;
	}
}

/* A column that is the same in every row. */
static void same_column(FILE *to, const char *name, const char *value, size_t count)
{
	fprintf(to, ",\"%s\":[", name);
	for (size_t i = 0; i < count; i++)
		fprintf(to, "%s%s", i ? "," : "", value);
	putc(']', to);
}

static void count_column(FILE *to, const char *name, size_t count)
{
	fprintf(to, ",\"%s\":[", name);
	for (size_t i = 0; i < count; i++)
		fprintf(to, "%s%zu", i ? "," : "", i);
	putc(']', to);
}

/* A line, which is not known as 0. */
static void print_line(FILE *to, size_t index, unsigned line)
{
	if (line)
		fprintf(to, "%s%u", index ? "," : "", line);
	else
		fprintf(to, "%snull", index ? "," : "");
}

static void print_frame_table(FILE *to, const struct tables *tables, const struct frames *frames)
{
	size_t count = tables->frames.count;

	fprintf(to, "\"frameTable\":{\"length\":%zu", count);
	same_column(to, "address", "-1", count);
	fputs(",\"inlineDepth\":[", to);
	for (size_t i = 0; i < count; i++)
		fprintf(to, "%s%d", i ? "," : "",
			frames->entries[tables->frames.items[i]].is_inlined);
	fputs("],\"category\":[", to);
	for (size_t i = 0; i < count; i++)
		fprintf(to, "%s%d", i ? "," : "",
			category_of(&frames->entries[tables->frames.items[i]]));
	putc(']', to);
	same_column(to, "subcategory", "0", count);
	fputs(",\"func\":[", to);
	for (size_t i = 0; i < count; i++)
		fprintf(to, "%s%u", i ? "," : "",
			tables->functions.number[tables->function_of[tables->frames.items[i]]]);
	putc(']', to);
	same_column(to, "nativeSymbol", "null", count);
	same_column(to, "innerWindowID", "null", count);
	fputs(",\"line\":[", to);
	for (size_t i = 0; i < count; i++)
		print_line(to, i, frames->entries[tables->frames.items[i]].line);
	putc(']', to);
	same_column(to, "column", "null", count);
	putc('}', to);
}

/* Their names are the first strings, their files, of those that have one, the next. */
static void print_functions(FILE *to, const struct tables *tables, const struct frames *frames)
{
	size_t count = tables->functions.count, files = 0;

	fprintf(to, ",\"funcTable\":{\"length\":%zu", count);
	count_column(to, "name", count);
	same_column(to, "isJS", "false", count);
	same_column(to, "relevantForJS", "false", count);
	same_column(to, "resource", "-1", count);
	fputs(",\"fileName\":[", to);
	for (size_t i = 0; i < count; i++) {
		if (frames->entries[tables->functions.items[i]].file)
			fprintf(to, "%s%zu", i ? "," : "", count + files++);
		else
			fprintf(to, "%snull", i ? "," : "");
	}
	fputs("],\"lineNumber\":[", to);
	for (size_t i = 0; i < count; i++)
		print_line(to, i, frames->entries[tables->functions.items[i]].begin);
	putc(']', to);
	same_column(to, "columnNumber", "null", count);
	putc('}', to);
}

static void print_strings(FILE *to, const struct tables *tables, const struct frames *frames)
{
	size_t count = tables->functions.count;

	fputs(",\"stringArray\":[", to);
	for (size_t i = 0; i < count; i++) {
		const struct frame *frame = &frames->entries[tables->functions.items[i]];

		if (i)
			putc(',', to);
		text_print_json(to, frame->name, frame->name_bytes);
	}
	for (size_t i = 0; i < count; i++) {
		const char *file = frames->entries[tables->functions.items[i]].file;

		if (!file)
			continue;
		putc(',', to);
		text_print_json(to, file, strlen(file));
	}
	putc(']', to);
}

static void print_stack_table(FILE *to, const struct tables *tables, const struct call_tree *tree)
{
	fprintf(to, ",\"stackTable\":{\"length\":%zu,\"prefix\":[", tables->nodes.count);
	for (size_t i = 0; i < tables->nodes.count; i++) {
		uint32_t parent = tree->nodes[tables->nodes.items[i]].parent;

		if (parent)
			fprintf(to, "%s%u", i ? "," : "", tables->nodes.number[parent]);
		else
			fprintf(to, "%snull", i ? "," : "");
	}
	fputs("],\"frame\":[", to);
	for (size_t i = 0; i < tables->nodes.count; i++)
		fprintf(to, "%s%u", i ? "," : "",
			tables->frames.number[tree->nodes[tables->nodes.items[i]].frame]);
	fputs("]}", to);
}

static void print_samples(FILE *to, const struct tables *tables, const struct series *series,
			  uint64_t first_ns, uint64_t period_ns)
{
	fprintf(to, ",\"samples\":{\"length\":%zu,\"stack\":[", series->samples.count);
	for (size_t i = 0; i < series->samples.count; i++)
		fprintf(to, "%s%u", i ? "," : "",
			tables->nodes.number[series->samples.items[i].node]);
	fputs("],\"time\":[", to);
	for (size_t i = 0; i < series->samples.count; i++) {
		uint64_t since_ns = series->samples.items[i].time_ns - first_ns;

		fprintf(to, "%s%llu.%06llu", i ? "," : "", (unsigned long long)(since_ns / 1000000),
			(unsigned long long)(since_ns % 1000000));
	}
	fputs("],\"weight\":[", to);
	for (size_t i = 0; i < series->samples.count; i++)
		fprintf(to, "%s%u", i ? "," : "", series->samples.items[i].ticks);
	/* So that it is known how much each thread ran. */
	fputs("],\"threadCPUDelta\":[", to);
	for (size_t i = 0; i < series->samples.count; i++)
		fprintf(to, "%s%llu", i ? "," : "",
			(unsigned long long)(series->samples.items[i].ticks * period_ns));
	fputs("],\"weightType\":\"samples\"}", to);
}

#define NO_MARKERS                                                                           \
	",\"markers\":{\"length\":0,\"category\":[],\"data\":[],\"endTime\":[],\"name\":[]," \
	"\"phase\":[],"                                                                      \
	"\"startTime\":[]}"

/* What is the same in all of them, and whose thread it is. */
static void print_thread_end(FILE *to, const struct export_task *task)
{
	const char *process = task->process == FXT_VCPU_PROCESS ? "guest" : task->process_name;

	fputs(",\"nativeSymbols\":{\"length\":0,\"address\":[],"
	      "\"functionSize\":[],\"libIndex\":[],\"name\":[]},\"resourceTable\":{\"length\":0,"
	      "\"lib\":[],\"name\":[],\"host\":[],\"type\":[]},\"pausedRanges\":[],"
	      "\"processType\":\"default\",\"processShutdownTime\":null,"
	      "\"processStartupTime\":0,\"registerTime\":0,\"unregisterTime\":null,\"name\":",
	      to);
	text_print_json(to, task->thread_name, strlen(task->thread_name));
	fputs(",\"processName\":", to);
	text_print_json(to, process, strlen(process));
	fprintf(to, ",\"isMainThread\":%s,\"pid\":\"%llu\",\"tid\":%llu}",
		task->process == task->thread ? "true" : "false", (unsigned long long)task->process,
		(unsigned long long)task->thread);
}

static void print_thread(FILE *to, const struct export *export, const struct series *series,
			 const struct tables *tables)
{
	const struct series_set *set = export->state;
	uint64_t first_ns = export->trace->info.first_ns;

	putc('{', to);
	print_frame_table(to, tables, export->frames);
	print_functions(to, tables, export->frames);
	print_strings(to, tables, export->frames);
	print_stack_table(to, tables, &set->tree);
	print_samples(to, tables, series, first_ns, export_period_ns(export));
	fputs(NO_MARKERS, to);
	print_thread_end(to, &series->task);
}

/* The thread that has the markers only; nothing in its tables. */
static void print_marker_thread(FILE *to, const struct export *export)
{
	const struct series_set *set = export->state;
	const struct tables none = {0};
	const struct series series = {.task = {.process = FXT_VCPU_PROCESS,
					       .thread = FXT_VCPU_PROCESS,
					       .thread_name = "console and vCPUs"}};

	putc('{', to);
	print_frame_table(to, &none, export->frames);
	print_functions(to, &none, export->frames);
	markers_print_names(to, set->more);
	print_stack_table(to, &none, &set->tree);
	print_samples(to, &none, &series, 0, 0);
	markers_print_table(to, set->more, export->trace->info.first_ns);
	print_thread_end(to, &series.task);
}

static void print_threads(FILE *to, struct export *export)
{
	const struct series_set *set = export->state;
	struct tables tables;

	if (!tables_init(&tables, set->tree.count, export->frames)) {
		tables_deinit(&tables);
		export->failed = true;
		return;
	}
	for (size_t i = 0; i < set->count && !ferror(to); i++) {
		collect(&tables, &set->tree, &set->list[i], (uint32_t)i + 1);
		if (i)
			putc(',', to);
		print_thread(to, export, &set->list[i], &tables);
	}
	tables_deinit(&tables);
	if (set->count)
		putc(',', to);
	print_marker_thread(to, export);
}

static void firefox_print_profile(FILE *to, struct export *export)
{
	const struct trace_info *info = &export->trace->info;
	double start_ms = info->wall_clock_ns
				  ? ((double)info->wall_clock_ns +
				     ((double)info->first_ns - (double)info->session_ns)) /
					    1e6
				  : 0;

	fprintf(to,
		"{\"meta\":{\"categories\":" CATEGORIES ",\"debug\":false,"
		"\"extensions\":{\"length\":0,\"baseURL\":[],\"id\":[],\"name\":[]},"
		"\"interval\":%.6f,\"preprocessedProfileVersion\":54,\"processType\":0,"
		"\"product\":\"guestprof\",\"oscpu\":",
		(double)export_period_ns(export) / 1e6);
	text_print_json(to, info->banner, strlen(info->banner));
	fprintf(to,
		",\"sampleUnits\":{\"time\":\"ms\",\"eventDelay\":\"ms\",\"threadCPUDelta\":\"ns\"}"
		","
		"\"startTime\":%.3f,\"symbolicated\":true,\"pausedRanges\":[],\"version\":24,"
		"\"usesOnlyOneStackType\":true,\"sourceCodeIsNotOnSearchfox\":true,\"stackwalk\":1,"
		"\"markerSchema\":%s},\"libs\":[],\"pages\":[],\"profilerOverhead\":[],"
		"\"counters\":[],\"threads\":[",
		start_ms, markers_schemas);
	print_threads(to, export);
	fputs("]}\n", to);
}

static bool firefox_begin(struct export *export)
{
	struct series_set *set;

	if (!series_begin(export))
		return false;
	set = export->state;
	set->more = calloc(1, sizeof(struct markers));
	return set->more;
}

static void firefox_add_sample(struct export *export, const struct merge_entry *entry)
{
	struct markers *markers = markers_of(export);

	lanes_add_sample(&markers->lanes, export, entry, markers_put_piece);
	if (sample_is_running(&entry->sample))
		series_add_sample(export, entry);
}

static void firefox_add_lost(struct export *export, const struct trace_lost *lost)
{
	struct markers *markers = markers_of(export);

	lanes_add_lost(&markers->lanes, export, lost, markers_put_piece);
}

static void firefox_add_line(struct export *export, const struct console_line *line)
{
	markers_add_line(export, line);
}

static void firefox_end(struct export *export)
{
	struct series_set *set = export->state;
	FILE *to;

	series_finish(set);
	lanes_finish(&markers_of(export)->lanes, export, markers_put_piece);
	to = gzip_open(export->to, NULL);
	if (!to) {
		export->failed = true;
		return;
	}
	firefox_print_profile(to, export);
	fclose(to);
}

static void firefox_release(struct export *export)
{
	struct series_set *set = export->state;

	if (set)
		markers_destroy(set->more);
	series_release(export);
}

const struct export_format export_firefox = {
	.name = "firefox",
	.summary = "for profiler.firefox.com, gzip",
	.is_binary = true,
	.has_inlined = true,
	.has_places = true,
	.takes_idle = true,
	.begin = firefox_begin,
	.sample = firefox_add_sample,
	.lost = firefox_add_lost,
	.line = firefox_add_line,
	.end = firefox_end,
	.release = firefox_release,
};
