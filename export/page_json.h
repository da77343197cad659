/* The data of a page (analysis/page_data.h) as JSON. */
#ifndef EXPORT_PAGE_JSON_H
#define EXPORT_PAGE_JSON_H

#include "analysis/page_data.h"

/* The data as one JSON object that can stand in a script element: pure ASCII, no '<', '>', '&'. The
 * form is described in page_json.c. GP_ERR_NO_MEMORY; errors of writing are left in the file's
 * error indicator. */
gp_status_t page_data_write(const struct page_data *data, FILE *to, struct error *error);

/* `text` as a JSON string with its quotes, fit for a script element. */
void page_json_text(FILE *to, const char *text);

#endif
