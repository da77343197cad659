/* Which frames are the same function. Several are, at different lines of the source
 * (frames.with_places), and formats that have functions and lines want each function once. Private
 * to export/.
 */
#ifndef EXPORT_FUNCTIONS_H
#define EXPORT_FUNCTIONS_H

#include "analysis/frames.h"

/* For each frame the lowest number of one with the same name, kind, id and file; free(). NULL: no
 * memory. */
uint32_t *export_functions(const struct frames *frames);

#endif
