/* A trace that is followed may be anybody's: fed in pieces, swept at nearly every one, looked at in
 * between, it must hold for any bytes, and count the same as when fed at once, or fail in both. */
#include "analysis/live_view.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void look_at_functions(const struct live_view *view)
{
	for (size_t i = 0; i < view->functions.count && i < 8; i++)
		for (int direction = LIVE_CALLERS; direction <= LIVE_CALLEES; direction++) {
			const struct table_row *row = &view->functions.rows[i];
			struct call_tree tree;

			if (live_view_function(view, row->frame, (enum live_direction)direction,
					       &tree, NULL))
				abort();
			if (tree.nodes[CALL_TREE_ROOT].total != row->total)
				abort();
			call_tree_deinit(&tree);
		}
}

static void look(const struct live *live, struct live_snapshot *snapshot)
{
	struct live_view view;

	if (live_snapshot(live, snapshot, NULL) || snapshot->size > snapshot->counts.bytes ||
	    live_view_init(&view, snapshot, NULL, NULL))
		abort();
	look_at_functions(&view);
	live_view_deinit(&view);
}

/* Returns what was counted; after an error nothing, for where it is noticed depends on the pieces.
 */
static struct live_counts follow(const uint8_t *bytes, size_t size, size_t piece, uint64_t window)
{
	const struct live_config config = {.window_ns = window, .bytes = LIVE_BYTES_MIN};
	struct live_snapshot snapshot = {0};
	struct live_counts counts;
	struct error error = {0};
	struct live *live;
	gp_status_t status = GP_OK;

	if (live_create(&config, &live, NULL))
		abort();
	for (size_t at = 0; !status && at < size; at += piece) {
		status = live_feed(live, bytes + at, size - at < piece ? size - at : piece, &error);
		if (status == GP_ERR_NO_MEMORY)
			abort();
		if (at / piece % 16 == 0)
			look(live, &snapshot);
	}
	look(live, &snapshot);
	counts = snapshot.counts;
	if (status)
		memset(&counts, 0, sizeof(counts));
	live_snapshot_deinit(&snapshot);
	live_destroy(live);
	return counts;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct live_counts whole = follow(bytes, size, size ? size : 1, UINT64_MAX);
	struct live_counts pieces = follow(bytes, size, size / 37 + 1, 1000);

	if (memcmp(&whole, &pieces, sizeof(whole)) != 0)
		abort();
	return 0;
}
