#include "tools/page/page_writer.h"

#include "base/container.h"
#include "export/page_json.h"
#include "tools/page/assets.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#define NONCE_BYTES 16

struct writing {
	const struct page_data *data;
	enum page_type type;
	FILE *to;
	struct error *error;
	gp_status_t status;
	char nonce[NONCE_BYTES * 2 + 1];
};

/* The page's security policy lets only the script with this word run. Who made the trace cannot
 * know it. */
static gp_status_t make_nonce(char nonce[NONCE_BYTES * 2 + 1], struct error *error)
{
	unsigned char bytes[NONCE_BYTES];

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return error_set_errno(error, errno, "no random bytes for the page");
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(nonce + 2 * i, 3, "%02x", bytes[i]);
	return GP_OK;
}

static void write_script(const struct writing *writing)
{
	fputs(page_profile_js, writing->to);
	fputs(page_flame_js, writing->to);
	fputs(page_explorer_js, writing->to);
	if (writing->type == PAGE_TIMELINE)
		fputs(page_console_js, writing->to);
	fputs(writing->type == PAGE_TIMELINE ? page_timeline_js : page_flamegraph_js, writing->to);
}

static void write_part(struct writing *writing, const char *name, size_t length)
{
	bool timeline = writing->type == PAGE_TIMELINE;
	const struct {
		const char *name;
		const char *text;
	} texts[] = {
		{"NONCE", writing->nonce},
		{"TITLE", timeline ? "guestprof timeline" : "guestprof flame graph"},
		{"STYLE", page_css},
		{"LANES", timeline ? page_lanes_html : ""},
		{"LANE_KEYS", timeline ? page_lane_keys_html : ""},
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (strlen(texts[i].name) == length && !memcmp(texts[i].name, name, length))
			fputs(texts[i].text, writing->to);
	if (length == 6 && !memcmp(name, "SCRIPT", 6))
		write_script(writing);
	if (length == 4 && !memcmp(name, "DATA", 4))
		writing->status = page_data_write(writing->data, writing->to, writing->error);
}

gp_status_t page_write(const struct page_data *data, enum page_type type, FILE *to,
		       struct error *error)
{
	struct writing writing = {.data = data, .type = type, .to = to, .error = error};
	const char *at = page_html, *mark;
	gp_status_t status = make_nonce(writing.nonce, error);

	/* Marks are @NAME@; nothing else in the page has that character. */
	while (!status && (mark = strchr(at, '@'))) {
		const char *end = strchr(mark + 1, '@');

		if (!end)
			break;
		fwrite(at, 1, (size_t)(mark - at), to);
		write_part(&writing, mark + 1, (size_t)(end - mark - 1));
		status = writing.status;
		at = end + 1;
	}
	fputs(at, to);
	return status;
}
