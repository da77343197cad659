/* speedscope's own file: one sampled profile for each thread or vCPU that share one table of
 * frames. https://www.speedscope.app/file-format-schema.json. A sample weighs the period times its
 * ticks, so that sums are those of the report; time in which a thread did not run is left out. */
#include "export/series.h"

#include "base/cleanup.h"
#include "analysis/text.h"

static void print_name(FILE *to, const struct export *export, const struct series *series)
{
	const struct export_task *task = &series->task;
	char name[320];

	if (export->by_vcpu || task->process == FXT_VCPU_PROCESS)
		snprintf(name, sizeof(name), "%s", task->thread_name);
	else
		snprintf(name, sizeof(name), "%s (%llu) %s (%llu)", task->process_name,
			 (unsigned long long)task->process, task->thread_name,
			 (unsigned long long)task->thread);
	text_print_json(to, name, strlen(name));
}

static void speedscope_print_stack(FILE *to, const struct call_tree *tree, uint32_t node)
{
	uint32_t path[CALL_TREE_DEPTH_MAX];
	size_t depth = call_tree_path(tree, node, path);

	putc('[', to);
	for (size_t i = 0; i < depth; i++)
		fprintf(to, "%s%u", i ? "," : "", path[i]);
	putc(']', to);
}

static void speedscope_print_profile(struct export *export, const struct series *series)
{
	const struct series_set *set = export->state;
	uint64_t period_ns = export_period_ns(export);
	FILE *to = export->to;

	fputs("{\"type\":\"sampled\",\"name\":", to);
	print_name(to, export, series);
	fprintf(to, ",\"unit\":\"nanoseconds\",\"startValue\":0,\"endValue\":%llu,\"samples\":[",
		(unsigned long long)(series->ticks * period_ns));
	for (size_t i = 0; i < series->samples.count; i++) {
		if (i)
			putc(',', to);
		speedscope_print_stack(to, &set->tree, series->samples.items[i].node);
	}
	fputs("],\"weights\":[", to);
	for (size_t i = 0; i < series->samples.count; i++)
		fprintf(to, "%s%llu", i ? "," : "",
			(unsigned long long)(series->samples.items[i].ticks * period_ns));
	fputs("]}", to);
}

static void speedscope_end(struct export *export)
{
	struct series_set *set = export->state;
	FILE *to = export->to;

	series_finish(set);
	fputs("{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"exporter\":"
	      "\"guestprof " GUESTPROF_VERSION "\",\"name\":",
	      to);
	text_print_json(to, export->trace->info.banner, strlen(export->trace->info.banner));
	fputs(",\"activeProfileIndex\":0,\"shared\":{\"frames\":[", to);
	for (size_t i = 0; i < export->frames->count; i++) {
		const struct frame *frame = &export->frames->entries[i];

		fputs(i ? ",{\"name\":" : "{\"name\":", to);
		text_print_json(to, frame->name, frame->name_bytes);
		fputs(",\"file\":", to);
		if (frame->file)
			text_print_json(to, frame->file, strlen(frame->file));
		else
			text_print_json(to, export_object_name(frame),
					strlen(export_object_name(frame)));
		if (frame->line)
			fprintf(to, ",\"line\":%u", frame->line);
		putc('}', to);
	}
	fputs("]},\"profiles\":[", to);
	for (size_t i = 0; i < set->count; i++) {
		if (i)
			putc(',', to);
		speedscope_print_profile(export, &set->list[i]);
	}
	fputs("]}\n", to);
}

const struct export_format export_speedscope = {
	.name = "speedscope",
	.summary = "for speedscope.app, a profile for each thread",
	.has_inlined = true,
	.has_places = true,
	.begin = series_begin,
	.sample = series_add_sample,
	.end = speedscope_end,
	.release = series_release,
};
