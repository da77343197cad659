#include "guest-introspection/unwind/eh_frame_source.h"

#include "base/container.h"

#include <string.h>

/* The rule that holds for the instruction at linear `address`; NULL: none. */
static const struct eh_frame_rule *look_up(const struct eh_frame_source *self, uint64_t address)
{
	unsigned low = 0;
	unsigned high = self->count;

	while (low < high) {
		unsigned middle = (low + high) / 2;

		if (self->mappings[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == self->count || address < self->mappings[low].start)
		return NULL;
	return eh_frame_find(self->mappings[low].table, address - self->mappings[low].bias);
}

static const struct eh_frame_source *self_of(const struct unwind_source *source)
{
	return container_of((struct unwind_source *)(uintptr_t)source, struct eh_frame_source,
			    source);
}

static enum unwind_lookup find(const struct unwind_source *source, struct unwind_context *context,
			       struct unwind_rule *rule)
{
	const struct eh_frame_rule *found;

	if (!context->user || context->word != 8)
		return UNWIND_NOT_FOUND;
	/* A return address may be the first byte of something else: the call is what counts. */
	found = look_up(self_of(source), context->exact ? context->pc : context->pc - 1);
	if (!found)
		return UNWIND_NOT_FOUND;
	if (found->kind == EH_FRAME_ROOT)
		return UNWIND_ROOT;
	if (!(context->known & UNWIND_BIT(found->base)))
		return UNWIND_NOT_FOUND;
	rule->kind = found->kind == EH_FRAME_SIGNAL ? UNWIND_SIGNAL : UNWIND_CALL;
	rule->base = found->base;
	rule->dereference = found->kind != EH_FRAME_SIGNAL && found->dereference;
	rule->exact = found->kind == EH_FRAME_SIGNAL;
	rule->offset = found->offset;
	if (found->kind == EH_FRAME_LINKAGE && (context->pc & 15) >= found->threshold)
		rule->offset += 8;
	rule->offset_after = found->offset_after;
	rule->return_address = found->return_address;
	rule->saved = found->saved;
	rule->from_base = found->from_base;
	rule->preserved = found->preserved;
	memcpy(rule->at, found->at, sizeof(rule->at));
	context->frameless = false;
	return UNWIND_FOUND;
}

/* The kernel puts the address of __restore_rt on the stack by itself. */
static bool vouches_for(const struct unwind_source *source, uint64_t address)
{
	const struct eh_frame_rule *rule = look_up(self_of(source), address);

	return rule && rule->kind == EH_FRAME_SIGNAL;
}

void eh_frame_source_init(struct eh_frame_source *self, const struct eh_frame_mapping *mappings,
			  unsigned count)
{
	*self = (struct eh_frame_source){.source = {.find = find, .vouches_for = vouches_for},
					 .mappings = mappings,
					 .count = count};
}
