/* A flame graph as a static SVG picture: no script, readable in light and dark, each box with a
 * <title> that viewers show on hover. */
#ifndef EXPORT_FLAME_SVG_H
#define EXPORT_FLAME_SVG_H

#include "analysis/page_data.h"

struct flame_svg_options {
	bool callers; /* from leaf to root, the hottest leaf first */
	bool idle;    /* also vCPUs that are halted, not started or without a stack */
};

/* Shows the first file of the data, which is finished; with a second one, coloured by what takes a
 * larger or smaller share than in that. Boxes narrower than half a pixel, and what
 * is above them, are left out. GP_ERR_NO_MEMORY; errors of writing are left in the file's error
 * indicator. */
gp_status_t flame_svg_write(const struct page_data *data, const struct flame_svg_options *options,
			    FILE *to, struct error *error);

#endif
