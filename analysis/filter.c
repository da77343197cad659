#include "analysis/filter.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

enum { UNKNOWN, TAKEN, LEFT };

static bool parse_number(const char **text, uint64_t *value)
{
	char *end;

	if (**text < '0' || **text > '9')
		return false;
	errno = 0;
	*value = strtoull(*text, &end, 10);
	*text = end;
	return errno == 0;
}

static bool parse_ranges(const char *text, struct filter_ranges *ranges)
{
	struct filter_ranges parsed = *ranges;

	for (;;) {
		struct filter_range range;

		if (parsed.count == FILTER_VALUES_MAX || !parse_number(&text, &range.first))
			return false;
		range.last = range.first;
		if (*text == '-') {
			text++;
			if (!parse_number(&text, &range.last) || range.last < range.first)
				return false;
		}
		parsed.values[parsed.count++] = range;
		if (!*text)
			break;
		if (*text++ != ',')
			return false;
	}
	*ranges = parsed;
	return true;
}

static bool parse_modes(const char *text, uint64_t *modes)
{
	static const struct {
		const char *name;
		uint64_t mode;
	} names[] = {
		{"user", FXT_MODE_GUEST_USER},         {"kernel", FXT_MODE_GUEST_KERNEL},
		{"halted", FXT_MODE_HALTED},           {"vmm", FXT_MODE_IN_VMM},
		{"not-started", FXT_MODE_NOT_STARTED}, {"unknown", FXT_MODE_UNKNOWN},
	};
	uint64_t parsed = *modes;

	for (;;) {
		size_t length = strcspn(text, ","), i = 0;

		while (i < sizeof(names) / sizeof(*names) &&
		       (strlen(names[i].name) != length || memcmp(names[i].name, text, length)))
			i++;
		if (i == sizeof(names) / sizeof(*names))
			return false;
		parsed |= UINT64_C(1) << names[i].mode;
		text += length;
		if (!*text)
			break;
		text++;
	}
	*modes = parsed;
	return true;
}

bool filter_parse_time(const char *text, uint64_t *ns)
{
	static const struct {
		const char *unit;
		double ns;
	} units[] = {{"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}};
	double value;
	char *end;

	/* strtod() would take "inf", "nan", signs, exponents and hexadecimal numbers as well. */
	if (*text < '0' || *text > '9')
		return false;
	if (strspn(text, "0123456789.") + strspn(text + strspn(text, "0123456789."), "munos") !=
	    strlen(text))
		return false;
	value = strtod(text, &end);
	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
		if (strcmp(end, units[i].unit))
			continue;
		value = value * units[i].ns + 0.5;
		if (!(value >= 0 && value < 1.8e19))
			return false;
		*ns = (uint64_t)value;
		return true;
	}
	return false;
}

static bool add_pattern(struct filter_patterns *patterns, const char *value)
{
	if (!*value || patterns->count == FILTER_VALUES_MAX)
		return false;
	patterns->values[patterns->count++] = value;
	return true;
}

gp_status_t filter_set(struct filter *filter, const char *name, const char *value,
		       struct error *error)
{
	const char *wanted = "numbers and ranges like 1,4-7";
	bool good;

	if (!strcmp(name, "pid")) {
		good = parse_ranges(value, &filter->processes);
	} else if (!strcmp(name, "tid")) {
		good = parse_ranges(value, &filter->threads);
	} else if (!strcmp(name, "cpu")) {
		good = parse_ranges(value, &filter->vcpus);
	} else if (!strcmp(name, "comm")) {
		wanted = "a name of processes or threads, at most 64 times";
		good = add_pattern(&filter->commands, value);
	} else if (!strcmp(name, "symbol")) {
		wanted = "a name of functions, at most 64 times";
		good = add_pattern(&filter->symbols, value);
	} else if (!strcmp(name, "mode")) {
		wanted = "user, kernel, halted, vmm or not-started";
		good = parse_modes(value, &filter->modes);
	} else if (!strcmp(name, "from")) {
		wanted = "a time such as 1.5, 1.5s or 200ms";
		good = filter_parse_time(value, &filter->from_ns);
	} else if (!strcmp(name, "to")) {
		wanted = "a time above 0, such as 1.5, 1.5s or 200ms";
		good = filter_parse_time(value, &filter->to_ns) && filter->to_ns;
	} else {
		return error_set(error, GP_ERR_INVALID_ARGS, "--%s: no such filter", name);
	}
	if (!good)
		return error_set(error, GP_ERR_INVALID_ARGS, "--%s %s: give %s", name, value,
				 wanted);
	if (filter->to_ns && filter->from_ns >= filter->to_ns)
		return error_set(error, GP_ERR_INVALID_ARGS,
				 "--from is not before --to: there is nothing between them");
	return GP_OK;
}

void filter_deinit(struct filter *filter)
{
	free(filter->taken.items);
	*filter = (struct filter){0};
}

bool filter_is_empty(const struct filter *filter)
{
	return !filter->processes.count && !filter->threads.count && !filter->vcpus.count &&
	       !filter->commands.count && !filter->symbols.count && !filter->modes &&
	       !filter->from_ns && !filter->to_ns;
}

static bool ranges_take(const struct filter_ranges *ranges, bool known, uint64_t value)
{
	for (size_t i = 0; known && i < ranges->count; i++)
		if (value >= ranges->values[i].first && value <= ranges->values[i].last)
			return true;
	return !ranges->count;
}

static bool patterns_take(const struct filter_patterns *patterns, const char *name, size_t size)
{
	char text[FXT_SYMBOL_NAME_BYTES_MAX + 1];

	if (size > FXT_SYMBOL_NAME_BYTES_MAX)
		size = FXT_SYMBOL_NAME_BYTES_MAX;
	memcpy(text, name, size);
	text[size] = 0;
	for (size_t i = 0; i < patterns->count; i++)
		/* The plain comparison is for names that hold what is special in patterns. */
		if (!strcmp(patterns->values[i], text) || !fnmatch(patterns->values[i], text, 0))
			return true;
	return false;
}

static bool commands_take(const struct filter *filter, const struct trace *trace,
			  const struct fxt_sample *sample)
{
	const struct trace_name *name;

	if (sample->flags & FXT_SAMPLE_PROCESS) {
		name = trace_process_name(trace, sample->process);
		if (name && patterns_take(&filter->commands, name->name, name->name_bytes))
			return true;
	}
	if (sample->flags & FXT_SAMPLE_THREAD) {
		name = trace_thread_name(trace, sample->thread);
		if (name && patterns_take(&filter->commands, name->name, name->name_bytes))
			return true;
	}
	return false;
}

/* What --symbol says about a frame is found out once per frame. */
static bool takes_frame(struct filter *filter, const struct frames *frames, uint32_t frame)
{
	const struct frame *entry;
	uint8_t taken;

	if (frames->failed)
		return false;
	if (filter->taken_of != frames)
		filter->taken.count = 0;
	filter->taken_of = frames;
	if (frame < filter->taken.count && filter->taken.items[frame] != UNKNOWN)
		return filter->taken.items[frame] == TAKEN;
	entry = &frames->entries[frame];
	taken = patterns_take(&filter->symbols, entry->name, entry->name_bytes) ? TAKEN : LEFT;
	/* Without memory it is found out again. */
	if (vector_extend(&filter->taken, frames->count))
		filter->taken.items[frame] = taken;
	return taken == TAKEN;
}

static bool symbols_take(struct filter *filter, const struct trace *trace, struct frames *frames,
			 const struct fxt_sample *sample)
{
	for (size_t i = 0; i < sample->depth; i++)
		if (takes_frame(filter, frames, frames_of_address(frames, trace, sample, i)))
			return true;
	return false;
}

bool filter_takes(struct filter *filter, const struct trace *trace, struct frames *frames,
		  const struct fxt_sample *sample)
{
	uint64_t since;

	if (filter->modes &&
	    !(filter->modes >> (sample->mode < FRAMES_MODES ? sample->mode : 0) & 1))
		return false;
	if (!ranges_take(&filter->vcpus, true, sample->vcpu) ||
	    !ranges_take(&filter->processes, sample->flags & FXT_SAMPLE_PROCESS, sample->process) ||
	    !ranges_take(&filter->threads, sample->flags & FXT_SAMPLE_THREAD, sample->thread))
		return false;
	since = sample->timestamp > trace->info.first_ns ? sample->timestamp - trace->info.first_ns
							 : 0;
	if (since < filter->from_ns || (filter->to_ns && since >= filter->to_ns))
		return false;
	if (filter->commands.count && !commands_take(filter, trace, sample))
		return false;
	return !filter->symbols.count || symbols_take(filter, trace, frames, sample);
}

bool filter_takes_lost(const struct filter *filter, const struct trace *trace,
		       const struct trace_lost *lost)
{
	uint64_t first = trace->info.first_ns;
	uint64_t begin = lost->begin_ns > first ? lost->begin_ns - first : 0;
	uint64_t end = lost->end_ns > first ? lost->end_ns - first : 0;

	return ranges_take(&filter->vcpus, lost->vcpu != UINT32_MAX, lost->vcpu) &&
	       end >= filter->from_ns && (!filter->to_ns || begin < filter->to_ns);
}
