/* Takes the files in with the assembler's .incbin: no tool besides the compiler is needed, and the
 * pages stay plain files. The Makefile names them as this object's dependencies. */
#include "tools/page/assets.h"

#define ASSET(name, file)                                \
	__asm__(".section .rodata\n"                     \
		".global " #name "\n"                    \
		".hidden " #name "\n"                    \
		".type " #name ", @object\n" #name ":\n" \
		".incbin \"tools/page/" file "\"\n"      \
		".byte 0\n"                              \
		".size " #name ", . - " #name "\n"       \
		".previous\n")

ASSET(page_html, "page.html");
ASSET(page_css, "page.css");
ASSET(page_profile_js, "profile.js");
ASSET(page_flame_js, "flame.js");
ASSET(page_explorer_js, "explorer.js");
ASSET(page_flamegraph_js, "flamegraph.js");
ASSET(page_console_js, "console.js");
ASSET(page_timeline_js, "timeline.js");
ASSET(page_lanes_html, "lanes.html");
ASSET(page_lane_keys_html, "lane_keys.html");
