#include "guest-introspection/linux/user_memory.h"

#define PAGE_SIZE 4096u

static size_t user_memory_read(const struct file_source *source, uint64_t offset, void *buffer,
			       size_t size)
{
	const struct user_memory *self =
		container_of((struct file_source *)(uintptr_t)source, struct user_memory, source);
	struct translation_cache cache;
	size_t done = 0;

	translation_cache_clear(&cache);
	while (done < size) {
		uint64_t at = offset + done;
		size_t step = 0;

		for (unsigned i = 0; i < self->count && step == 0; i++) {
			uint64_t within = at - self->pieces[i].offset;
			uint64_t address = self->pieces[i].start + within;

			if (at < self->pieces[i].offset || within >= self->pieces[i].size)
				continue;
			step = PAGE_SIZE - (size_t)(address % PAGE_SIZE);
			if (step > self->pieces[i].size - within)
				step = (size_t)(self->pieces[i].size - within);
			if (step > size - done)
				step = size - done;
			if (guest_read_virtual(&self->space, &cache, self->memory, gva(address),
					       (char *)buffer + done, step) != TRANSLATE_OK)
				step = 0;
		}
		if (step == 0)
			break;
		done += step;
	}
	return done;
}

void user_memory_init(struct user_memory *self, const struct guest_memory *memory,
		      const struct address_space *space)
{
	*self = (struct user_memory){
		.source = {.read = user_memory_read}, .memory = memory, .space = *space};
}

bool user_memory_add(struct user_memory *self, uint64_t start, uint64_t end, uint64_t offset)
{
	if (self->count == USER_MEMORY_PIECES || start >= end ||
	    offset > UINT64_MAX - (end - start))
		return false;
	self->pieces[self->count].start = start;
	self->pieces[self->count].size = end - start;
	self->pieces[self->count++].offset = offset;
	return true;
}
