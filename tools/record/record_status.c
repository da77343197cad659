#include "tools/record/record_status.h"

#include "analysis/frames.h"
#include "base/clock.h"
#include "base/progress.h"

#include <stdio.h>
#include <string.h>

void record_status_init(struct record_status *status, const gp_sampler_t *session,
			const struct recorder *recorder, unsigned vcpus)
{
	*status = (struct record_status){.session = session,
					 .recorder = recorder,
					 .vcpus = vcpus,
					 .begin_ns = monotonic_ns()};
	status->last_ns = status->begin_ns;
}

static size_t append(char *text, size_t size, size_t length, const char *piece)
{
	size_t more = strlen(piece);

	if (more > size - length)
		more = size - length;
	memcpy(text + length, piece, more);
	return length + more;
}

/* What the vCPUs did since the last time. */
static size_t append_modes(struct record_status *status, char *text, size_t size, size_t length)
{
	uint64_t modes[RECORD_MODES], since[RECORD_MODES], all = 0;
	char piece[64];

	recorder_modes(status->recorder, modes);
	for (size_t i = 0; i < RECORD_MODES; i++) {
		since[i] = modes[i] - status->last_modes[i];
		all += since[i];
	}
	memcpy(status->last_modes, modes, sizeof(modes));
	for (size_t i = 0; i < RECORD_MODES; i++) {
		if (!since[i])
			continue;
		snprintf(piece, sizeof(piece), ", %s %u %%", frames_mode_name(i),
			 (unsigned)(since[i] * 100 / all));
		length = append(text, size, length, piece);
	}
	return length;
}

size_t record_status_text(struct record_status *status, char *text, size_t size)
{
	uint64_t now = monotonic_ns(), samples = 0, dropped = 0, passed = now - status->last_ns;
	char piece[128];
	size_t length;

	snprintf(piece, sizeof(piece), "%.1f s", (double)(now - status->begin_ns) / 1e9);
	length = append(text, size, 0, piece);
	status->last_ns = now;
	if (!status->session)
		return length;
	for (unsigned i = 0; i < status->vcpus; i++) {
		gp_sampler_totals_t totals;

		if (gp_sampler_totals(status->session, i, &totals))
			continue;
		samples += totals.full + totals.partial;
		dropped += totals.dropped;
	}
	snprintf(piece, sizeof(piece), ", %llu samples, %llu/s, %llu dropped",
		 (unsigned long long)samples,
		 (unsigned long long)((double)(samples - status->last_samples) * 1e9 /
				      (double)(passed ? passed : 1)),
		 (unsigned long long)dropped);
	status->last_samples = samples;
	return append_modes(status, text, size, append(text, size, length, piece));
}

void record_status_draw(struct record_status *status)
{
	char text[256];

	progress_draw(text, record_status_text(status, text, sizeof(text)));
}
