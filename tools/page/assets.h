/* The parts of the HTML pages, as they stand in this folder, inside the program. Terminated. */
#ifndef TOOLS_PAGE_ASSETS_H
#define TOOLS_PAGE_ASSETS_H

extern const char page_html[];
extern const char page_css[];
extern const char page_profile_js[];
extern const char page_flame_js[];
extern const char page_explorer_js[];
extern const char page_flamegraph_js[];
extern const char page_console_js[];
extern const char page_timeline_js[];
extern const char page_lanes_html[];
extern const char page_lane_keys_html[];

#endif
