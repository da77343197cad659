#include "export/lanes.h"

const char lanes_lost[] = "ticks lost";

static const char *state_of(const struct fxt_sample *sample)
{
	switch (sample->mode) {
	case FXT_MODE_HALTED:
	case FXT_MODE_IN_VMM:
	case FXT_MODE_NOT_STARTED:
		return frames_mode_name(sample->mode);
	default:
		/* Which of user and kernel it was changes too often, and the samples say it. */
		return "running";
	}
}

static void add(struct lanes *lanes, struct export *export, struct lane_piece next, lanes_put *put)
{
	uint64_t near_ns = export_period_ns(export) / 2;
	struct lane_piece *open =
		&lanes->open[next.vcpu == LANES_NO_VCPU ? TRACE_VCPUS_MAX
							: next.vcpu % TRACE_VCPUS_MAX];

	if (open->ticks && next.begin_ns <= open->end_ns + near_ns) {
		if (next.state == open->state) {
			open->ticks += next.ticks;
			if (next.end_ns > open->end_ns)
				open->end_ns = next.end_ns;
			return;
		}
		/* Ticks are never exactly a period apart. When the first and the last of those
		 * were that are lost is known. */
		uint64_t least = open->state == lanes_lost ? open->end_ns - export_period_ns(export)
							   : open->begin_ns;

		if (next.begin_ns < least)
			next.begin_ns = least;
		open->end_ns = next.begin_ns;
	}
	if (next.end_ns < next.begin_ns)
		next.end_ns = next.begin_ns;
	if (open->ticks)
		put(export, open);
	*open = next;
}

void lanes_add_sample(struct lanes *lanes, struct export *export, const struct merge_entry *entry,
		      lanes_put *put)
{
	uint64_t period_ns = export_period_ns(export), before_ns;

	/* The ticks of partial samples are before it. */
	if (__builtin_mul_overflow(entry->ticks - 1, period_ns, &before_ns) ||
	    before_ns > entry->time_ns)
		before_ns = entry->time_ns;
	add(lanes, export,
	    (struct lane_piece){.state = state_of(&entry->sample),
				.vcpu = (uint32_t)(entry->sample.vcpu % TRACE_VCPUS_MAX),
				.begin_ns = entry->time_ns - before_ns,
				.end_ns = entry->time_ns + period_ns,
				.ticks = entry->ticks},
	    put);
}

void lanes_add_lost(struct lanes *lanes, struct export *export, const struct trace_lost *lost,
		    lanes_put *put)
{
	add(lanes, export,
	    (struct lane_piece){.state = lanes_lost,
				.vcpu = lost->vcpu,
				.begin_ns = lost->begin_ns,
				.end_ns = lost->end_ns + export_period_ns(export),
				.ticks = lost->records},
	    put);
}

void lanes_finish(struct lanes *lanes, struct export *export, lanes_put *put)
{
	for (size_t i = 0; i <= TRACE_VCPUS_MAX; i++)
		if (lanes->open[i].ticks)
			put(export, &lanes->open[i]);
}

void lanes_name(uint32_t vcpu, char *out, size_t size)
{
	if (vcpu == LANES_NO_VCPU)
		snprintf(out, size, "any vCPU");
	else
		snprintf(out, size, "vCPU %u", vcpu);
}
