#include "export/flame_svg.h"

#include "base/cleanup.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 1200.0
#define MARGIN 10.0
#define ROW 18.0
#define HEAD 70.0
#define LEAST_WIDTH 0.5
/* Of a monospaced font at 12 pixels; a little too wide rather than too narrow. */
#define LETTER 7.3
/* Of the text above the picture. */
#define BANNER_LETTERS 150
/* Steps of red and of blue. */
#define SHADES 4

/* The rows that are visible, top to bottom. */
struct picture {
	const struct page_data *data;
	struct call_tree tree;
	uint64_t *base; /* ticks of the second file, by node; NULL: there is none */
	double *start;  /* ticks to the left, by node */
	uint16_t *rows; /* by node */
	uint32_t *shown;
	size_t shown_count;
	size_t row_count;
};

static void put_xml(FILE *to, const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		switch (text[i]) {
		case '&':
			fputs("&amp;", to);
			break;
		case '<':
			fputs("&lt;", to);
			break;
		case '>':
			fputs("&gt;", to);
			break;
		case '"':
			fputs("&quot;", to);
			break;
		case '\'':
			fputs("&#39;", to);
			break;
		default:
			putc(text[i], to);
		}
	}
}

static void put_text(FILE *to, const char *text)
{
	put_xml(to, text, strlen(text));
}

static void put_untrusted(FILE *to, const char *text, size_t most)
{
	char printable[PAGE_NAME_MAX + 8];
	size_t length = strlen(page_print_name(text, strlen(text), printable));

	put_xml(to, printable, length <= most ? length : most - 2);
	if (length > most)
		fputs("..", to);
}

static bool is_idle(const struct page_data *data, uint32_t node)
{
	const struct page_node *nodes = data->nodes.items;

	return data->frames.entries[nodes[node].frame].kind == FRAME_MODE;
}

static size_t path_of(const struct page_data *data, uint32_t node, bool callers,
		      uint32_t path[CALL_TREE_DEPTH_MAX])
{
	const struct page_node *nodes = data->nodes.items;
	size_t depth = 0;

	for (; node && depth < CALL_TREE_DEPTH_MAX; node = nodes[node].parent)
		path[depth++] = nodes[node].frame;
	for (size_t j = 0; !callers && j < depth / 2; j++) {
		uint32_t frame = path[j];

		path[j] = path[depth - 1 - j];
		path[depth - 1 - j] = frame;
	}
	return depth;
}

/* Adds the samples of one file. The base's have no ticks in the tree: `places` says which node each
 * cell belongs to. */
static void add_file(const struct page_data *data, const struct flame_svg_options *options,
		     uint32_t file, struct call_tree *tree, uint32_t *places)
{
	const struct page_context *contexts = data->contexts.items;

	for (size_t i = 0; i < data->cells.count; i++) {
		uint32_t number = data->cell_order[i], path[CALL_TREE_DEPTH_MAX];
		const struct page_cell *cell = &data->cells.items[number];

		if (contexts[cell->context].file != file ||
		    (!options->idle && is_idle(data, cell->node)))
			continue;
		places[number] =
			call_tree_add(tree, path, path_of(data, cell->node, options->callers, path),
				      file ? 0 : cell->ticks);
	}
}

/* What the base has of each node's path. */
static gp_status_t add_base(struct picture *picture, const struct flame_svg_options *options,
			    const uint32_t *places, struct error *error)
{
	const struct page_data *data = picture->data;
	const struct page_cell *cells = data->cells.items;
	const struct page_context *contexts = data->contexts.items;
	const struct call_tree *tree = &picture->tree;

	picture->base = calloc(tree->count, sizeof(*picture->base));
	if (!picture->base)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the picture");
	for (size_t i = 0; i < data->cells.count; i++)
		if (contexts[cells[i].context].file &&
		    (options->idle || !is_idle(data, cells[i].node)))
			picture->base[places[i]] += cells[i].ticks;
	for (size_t i = tree->count; i-- > 1;)
		picture->base[tree->nodes[i].parent] += picture->base[i];
	return GP_OK;
}

/* The samples of the first file as a tree of their own, in the direction that is asked for. */
static gp_status_t make_tree(struct picture *picture, const struct flame_svg_options *options,
			     struct error *error)
{
	const struct page_data *data = picture->data;
	AUTO_FREE uint32_t *places = calloc(data->cells.count + 1, sizeof(*places));
	gp_status_t status;

	if (!places)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the picture");
	for (uint32_t file = 0; file < data->file_count; file++)
		add_file(data, options, file, &picture->tree, places);
	status = call_tree_finish(&picture->tree, error);
	if (!status && data->file_count > 1)
		status = add_base(picture, options, places, error);
	return status ? status : call_tree_sort(&picture->tree, error);
}

/* Chooses the boxes that are wide enough and says where they are. */
static gp_status_t lay_out(struct picture *picture, struct error *error)
{
	const struct call_tree_node *nodes = picture->tree.nodes;
	size_t count = picture->tree.count, waiting = 0;
	AUTO_FREE uint32_t *work = calloc(count, sizeof(*work));
	double least = (double)nodes[CALL_TREE_ROOT].total * LEAST_WIDTH / (WIDTH - 2 * MARGIN);

	picture->start = calloc(count, sizeof(*picture->start));
	picture->rows = calloc(count, sizeof(*picture->rows));
	picture->shown = calloc(count, sizeof(*picture->shown));
	if (!work || !picture->start || !picture->rows || !picture->shown)
		return error_set(error, GP_ERR_NO_MEMORY, "no memory for the picture");
	work[waiting++] = CALL_TREE_ROOT;
	while (waiting) {
		uint32_t node = work[--waiting];
		double start = picture->start[node];

		picture->shown[picture->shown_count++] = node;
		if (picture->rows[node] >= picture->row_count)
			picture->row_count = (size_t)picture->rows[node] + 1;
		for (uint32_t child = nodes[node].first_child; child;
		     child = nodes[child].next_sibling) {
			if (!nodes[child].total || (double)nodes[child].total < least)
				break; /* they come by size */
			picture->start[child] = start;
			picture->rows[child] = (uint16_t)(picture->rows[node] + 1);
			start += (double)nodes[child].total;
			work[waiting++] = child;
		}
	}
	return GP_OK;
}

static void write_style(FILE *to)
{
	fputs("<style>\n"
	      "svg{background:#fbfbfa}text{font:12px ui-monospace,'DejaVu Sans "
	      "Mono',Menlo,Consolas,"
	      "monospace;fill:#16181d}\n"
	      ".head{font:600 17px system-ui,'DejaVu Sans',sans-serif}.line{font:13px system-ui,"
	      "'DejaVu Sans',sans-serif;fill:#5b616e}\n"
	      "rect{stroke:#fbfbfa;stroke-width:.6}.k{fill:#f9bf62}.u{fill:#92ceef}.i{fill:#d1d1d1}"
	      ".o{fill:#e4e4dd}\n"
	      "@media(prefers-color-scheme:dark){svg{background:#16181d}text{fill:#f5f6f8}"
	      ".line{fill:#a4abb8}rect{stroke:#16181d}.k{fill:#884c20}.u{fill:#255d8d}.i{fill:#"
	      "474747}"
	      ".o{fill:#3f3f3b}}\n"
	      "</style>\n",
	      to);
}

/* From as much as before (no class) to at least 40 % of it more (m4) or less (l4), as on the page.
 */
static void write_shades(const char *before, const double neutral[3], const double more[3],
			 const double less[3], FILE *to)
{
	fputs(before, to);
	for (int step = 0; step <= SHADES; step++) {
		double part = (double)step / SHADES;

		fprintf(to, ".m%d{fill:hsl(%g,%g%%,%g%%)}", step, more[0], more[1] * part,
			neutral[2] + (more[2] - neutral[2]) * part);
		fprintf(to, ".l%d{fill:hsl(%g,%g%%,%g%%)}", step, less[0], less[1] * part,
			neutral[2] + (less[2] - neutral[2]) * part);
	}
}

static void write_difference_style(FILE *to)
{
	static const double light[][3] = {{220, 8, 86}, {8, 85, 72}, {215, 80, 74}};
	static const double dark[][3] = {{220, 6, 27}, {4, 58, 40}, {215, 60, 42}};

	write_shades("<style>", light[0], light[1], light[2], to);
	write_shades("@media(prefers-color-scheme:dark){", dark[0], dark[1], dark[2], to);
	fputs("}</style>\n", to);
}

static void write_head(const struct picture *picture, FILE *to)
{
	const struct page_file *file = &picture->data->files[0];
	const struct trace_info *info = &file->info;
	double duration = (double)(info->last_ns - info->first_ns) / 1e9;

	fprintf(to, "<text class=\"head\" x=\"%g\" y=\"24\">guestprof: ", MARGIN);
	put_untrusted(to, file->path, BANNER_LETTERS);
	if (picture->base) {
		fputs("; red: more of the time than in ", to);
		put_untrusted(to, picture->data->files[1].path, BANNER_LETTERS);
		fputs(", blue: less", to);
	}
	fprintf(to, "</text>\n<text class=\"line\" x=\"%g\" y=\"42\">", MARGIN);
	put_untrusted(to, info->banner, BANNER_LETTERS);
	fprintf(to,
		"</text>\n<text class=\"line\" x=\"%g\" y=\"60\">%.3f s, %" PRIu64
		" vCPUs, a tick every %.3f ms; %" PRIu64 " samples, %" PRIu64 " partial, %" PRIu64
		" dropped; unfinished stacks %.2f %%%s</text>\n",
		MARGIN, duration, info->vcpus, (double)info->period_ns / 1e6, info->stacks,
		info->partials, info->dropped_records,
		file->totals.running ? 100.0 *
					       (double)(file->totals.running -
							file->totals.ends[FXT_STACK_END_ROOT]) /
					       (double)file->totals.running
				     : 0,
		info->complete ? "" : "; the trace is incomplete");
}

static char class_of(const struct frame *frame)
{
	switch (frame->kind) {
	case FRAME_KERNEL:
	case FRAME_MODULE:
	case FRAME_BOOT:
		return 'k';
	case FRAME_USER:
		return 'u';
	case FRAME_MODE:
		return 'i';
	default:
		return 'o';
	}
}

/* The class of a box: by what it is, or by how its share changed. */
static void write_class(const struct picture *picture, uint32_t node, FILE *to)
{
	const struct call_tree_node *nodes = picture->tree.nodes;
	double now = (double)nodes[node].total, before, change, most;
	int step;

	if (!picture->base) {
		putc(node ? class_of(&picture->data->frames.entries[nodes[node].frame]) : 'o', to);
		return;
	}
	before = node && picture->base[CALL_TREE_ROOT]
			 ? (double)picture->base[node] * (double)nodes[CALL_TREE_ROOT].total /
				   (double)picture->base[CALL_TREE_ROOT]
			 : 0;
	most = now > before ? now : before;
	change = node && most > 0 ? (now - before) / most : 0;
	step = (int)((change < 0 ? -change : change) * 2.5 * SHADES + 0.5);
	fprintf(to, "%c%d", change < 0 ? 'l' : 'm', step < SHADES ? step : SHADES);
}

static void write_box(const struct picture *picture, uint32_t node, FILE *to)
{
	const struct call_tree_node *nodes = picture->tree.nodes;
	const struct frame *frame = &picture->data->frames.entries[nodes[node].frame];
	uint64_t whole = nodes[CALL_TREE_ROOT].total;
	double scale = whole ? (WIDTH - 2 * MARGIN) / (double)whole : 0;
	double x = MARGIN + picture->start[node] * scale;
	double width = node ? (double)nodes[node].total * scale : WIDTH - 2 * MARGIN;
	double y = HEAD + picture->rows[node] * ROW;
	size_t letters = width > 8 ? (size_t)((width - 8) / LETTER) : 0;
	char text[PAGE_NAME_MAX + 8];
	size_t length;

	page_print_name(node ? frame->name : "all", node ? frame->name_bytes : 3, text);
	length = strlen(text);
	fprintf(to, "<g><title>");
	put_text(to, text);
	fprintf(to, "\ntotal %" PRIu64 " ticks, %.2f %%", nodes[node].total,
		whole ? 100.0 * (double)nodes[node].total / (double)whole : 0);
	if (nodes[node].self)
		fprintf(to, "\nends here: %" PRIu64 " ticks, %.2f %%", nodes[node].self,
			100.0 * (double)nodes[node].self / (double)whole);
	if (picture->base && picture->base[CALL_TREE_ROOT])
		fprintf(to, "\nbefore: %" PRIu64 " ticks, %.2f %%", picture->base[node],
			100.0 * (double)picture->base[node] /
				(double)picture->base[CALL_TREE_ROOT]);
	fputs("</title><rect class=\"", to);
	write_class(picture, node, to);
	fprintf(to, "\" x=\"%.2f\" y=\"%g\" width=\"%.2f\" height=\"%g\"/>", x, y, width, ROW - 1);
	if (letters >= 3) {
		fprintf(to, "<text x=\"%.2f\" y=\"%g\">", x + 4, y + 13);
		put_xml(to, text, length <= letters ? length : letters - 2);
		fputs(length <= letters ? "</text>" : "..</text>", to);
	}
	fputs("</g>\n", to);
}

static void write_picture(const struct picture *picture, FILE *to)
{
	double height = HEAD + (double)picture->row_count * ROW + MARGIN;

	fprintf(to,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
		"viewBox=\"0 0 %g %g\">\n",
		WIDTH, height, WIDTH, height);
	write_style(to);
	if (picture->base)
		write_difference_style(to);
	write_head(picture, to);
	for (size_t i = 0; i < picture->shown_count; i++)
		write_box(picture, picture->shown[i], to);
	fputs("</svg>\n", to);
}

gp_status_t flame_svg_write(const struct page_data *data, const struct flame_svg_options *options,
			    FILE *to, struct error *error)
{
	struct picture picture = {.data = data};
	gp_status_t status = call_tree_init(&picture.tree, error);

	if (status)
		return status;
	status = make_tree(&picture, options, error);
	if (!status)
		status = lay_out(&picture, error);
	if (!status)
		write_picture(&picture, to);
	call_tree_deinit(&picture.tree);
	free(picture.base);
	free(picture.start);
	free(picture.rows);
	free(picture.shown);
	return status;
}
