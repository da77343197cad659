#include "recording/guest_log.h"

#include "fxt/record.h"
#include "fxt/writer.h"

#include <stdlib.h>
#include <string.h>

bool guest_log_init(struct guest_log *log)
{
	*log = (struct guest_log){.words = malloc(GUEST_LOG_WAITING_WORDS * sizeof(*log->words))};
	pthread_mutex_init(&log->lock, NULL);
	return log->words != NULL;
}

void guest_log_deinit(struct guest_log *log)
{
	pthread_mutex_destroy(&log->lock);
	free(log->words);
	log->words = NULL;
}

static bool is_visible(const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if ((unsigned char)text[i] > ' ')
			return true;
	return false;
}

void guest_log_put(struct guest_log *log, uint64_t boot_ns, const char *text, size_t size)
{
	bool is_cut = size > GUEST_LOG_TEXT_MAX;
	struct fxt_log record = {
		.timestamp = boot_ns,
		.thread = {.process = FXT_VCPU_PROCESS, .thread = FXT_VCPU_PROCESS},
		.text = {.text = text, .length = is_cut ? GUEST_LOG_TEXT_MAX : (uint16_t)size},
	};
	size_t room, words;

	if (!is_visible(text, size))
		return;
	pthread_mutex_lock(&log->lock);
	room = GUEST_LOG_WAITING_WORDS - log->used;
	if (room > GUEST_LOG_SESSION_WORDS - log->all)
		room = GUEST_LOG_SESSION_WORDS - log->all;
	words = fxt_encode_log(&record, log->words + log->used, room);
	log->used += words;
	log->all += words;
	if (words)
		log->totals.lines++;
	else
		log->totals.lost++;
	log->totals.cut += words && is_cut;
	pthread_mutex_unlock(&log->lock);
}

size_t guest_log_take(struct guest_log *log, uint64_t *words, struct guest_log_totals *totals)
{
	size_t used;

	pthread_mutex_lock(&log->lock);
	used = log->used;
	memcpy(words, log->words, used * sizeof(*words));
	log->used = 0;
	*totals = log->totals;
	pthread_mutex_unlock(&log->lock);
	return used;
}
