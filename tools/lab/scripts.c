/* The lab's shell scripts, inside the program. The Makefile names them as this object's
 * dependencies. */
#include "tools/lab/lab.h"

#define SCRIPT(name, file)                               \
	__asm__(".section .rodata\n"                     \
		".global " #name "\n"                    \
		".hidden " #name "\n"                    \
		".type " #name ", @object\n" #name ":\n" \
		".incbin \"tools/lab/" file "\"\n"       \
		".byte 0\n"                              \
		".size " #name ", . - " #name "\n"       \
		".previous\n")

SCRIPT(lab_init_script, "init.sh");
SCRIPT(lab_unpack_script, "unpack.sh");
SCRIPT(lab_copy_script, "copy.sh");
