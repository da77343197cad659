#include "fxt/metadata.h"

#include "fxt/writer.h"

size_t fxt_metadata_encode(const char *name, uint64_t timestamp, uint64_t thread,
			   const struct fxt_argument *arguments, size_t count, uint64_t *words,
			   size_t capacity)
{
	return fxt_encode_event(
		&(struct fxt_event){
			.type = FXT_EVENT_INSTANT,
			.timestamp = timestamp,
			.thread = {.process = FXT_VCPU_PROCESS, .thread = thread},
			.category = fxt_indexed(FXT_STRING_GUESTPROF),
			.name = fxt_text(name),
			.arguments = arguments,
			.argument_count = count,
		},
		words, capacity);
}

bool fxt_metadata_is(const struct fxt_event *event, const char *name)
{
	return event->type == FXT_EVENT_INSTANT && fxt_string_is(&event->category, "guestprof") &&
	       fxt_string_is(&event->name, name);
}

const struct fxt_argument *fxt_argument_find(const struct fxt_event *event, const char *name)
{
	for (size_t i = 0; i < event->argument_count; i++)
		if (fxt_string_is(&event->arguments[i].name, name))
			return &event->arguments[i];
	return NULL;
}

bool fxt_argument_get_u64(const struct fxt_event *event, const char *name, uint64_t *value)
{
	const struct fxt_argument *argument = fxt_argument_find(event, name);

	if (!argument)
		return false;
	switch (argument->type) {
	case FXT_ARGUMENT_I32:
	case FXT_ARGUMENT_U32:
		if (argument->type == FXT_ARGUMENT_I32 && argument->i32 < 0)
			return false;
		*value = argument->u32;
		return true;
	case FXT_ARGUMENT_I64:
	case FXT_ARGUMENT_U64:
		if (argument->type == FXT_ARGUMENT_I64 && argument->i64 < 0)
			return false;
		*value = argument->u64;
		return true;
	default:
		return false;
	}
}

bool fxt_argument_get_text(const struct fxt_event *event, const char *name,
			   struct fxt_string *value)
{
	const struct fxt_argument *argument = fxt_argument_find(event, name);

	if (!argument || argument->type != FXT_ARGUMENT_STRING)
		return false;
	*value = argument->string;
	return true;
}

bool fxt_event_is_drops(const struct fxt_event *event, struct fxt_drops *drops)
{
	struct fxt_drops result;

	if (event->type != FXT_EVENT_DURATION_COMPLETE ||
	    !fxt_string_is(&event->category, "kernel:meta") ||
	    !fxt_string_is(&event->name, "drop_stats") ||
	    !fxt_argument_get_u64(event, "num_records", &result.records) ||
	    !fxt_argument_get_u64(event, "num_bytes", &result.bytes))
		return false;
	*drops = result;
	return true;
}
