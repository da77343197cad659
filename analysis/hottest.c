#include "analysis/hottest.h"

#include "analysis/profile.h"
#include "analysis/text.h"

#define SHOWN 4
#define NAME_BYTES 60

/* A guest may call its functions what it likes, at any length. */
static void print_name(FILE *out, const struct frame *frame)
{
	char text[NAME_BYTES] = "";
	FILE *to = fmemopen(text, sizeof(text), "w");

	if (!to)
		return;
	text_print_frame(to, frame);
	fclose(to);
	fputs(text, out);
}

/* What takes the most: rows of a table, on one line. */
static void print_rows(FILE *out, const char *label, const struct table *table,
		       const struct frames *frames, uint64_t whole)
{
	fprintf(out, "  %s", label);
	for (size_t i = 0; i < table->count && i < SHOWN; i++) {
		fputs(i ? ", " : " ", out);
		print_name(out, &frames->entries[table->rows[i].frame]);
		fprintf(out, " %.1f %%", text_percent(table->rows[i].self, whole));
	}
	putc('\n', out);
}

gp_status_t hottest_print(FILE *out, struct trace *trace, bool processes, struct error *error)
{
	struct profile_options options = {.owners = {OWNER_PROCESS}, .owner_count = processes};
	struct profile_totals totals;
	struct call_tree tree = {0};
	struct table table = {0};
	struct frames frames;
	gp_status_t status = frames_init(&frames, error);

	if (status)
		return status;
	status = call_tree_init(&tree, error);
	if (!status)
		status = profile_read(trace, &options, &frames, &tree, &totals, error);
	if (!status)
		status = processes ? table_of_owners(&tree, &frames, &table, error)
				   : table_of_functions(&tree, &frames, &table, error);
	if (!status && totals.running)
		print_rows(out, processes ? "processes:" : "functions:", &table, &frames,
			   totals.running);
	table_deinit(&table);
	call_tree_deinit(&tree);
	frames_deinit(&frames);
	return status;
}
