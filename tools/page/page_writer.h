/* Puts an HTML page together: the parts of tools/page and the data. */
#ifndef TOOLS_PAGE_PAGE_WRITER_H
#define TOOLS_PAGE_PAGE_WRITER_H

#include "analysis/page_data.h"

enum page_type {
	PAGE_FLAMEGRAPH,
	PAGE_TIMELINE,
};

/* Writes the whole page. Errors of writing are left in the file's error indicator; others are
 * GP_ERR_NO_MEMORY, or that the system gave no random bytes. */
gp_status_t page_write(const struct page_data *data, enum page_type type, FILE *to,
		       struct error *error);

#endif
