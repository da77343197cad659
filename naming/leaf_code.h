/* Brings the code of the functions that a guest's kernel stopped in into the trace, for
 * guestprof annotate. One thread at a time: the reader.
 *
 *     samples -> leaf_code_see()        which addresses a vCPU was stopped at
 *     often   -> leaf_code_copy()       those that have a name by now: their functions' bytes
 *     the end -> leaf_code_finish()     the same bytes again, where the guest has changed them
 *
 * Code is copied as soon as it has a name, because what a kernel needs for its start only is gone
 * soon: a page counts as code as long as it may be executed, which Linux sees to when it frees
 * some. It is looked at again at the end, because kernels change their code. Programs are
 * not the kernel's: naming/user_names.h; but of guests other than Linux, whose programs are
 * not known, every address with a name from the user's symbol files is copied here. Of the code
 * that unpacks the kernel, which has no functions, some bytes from each address on are copied once.
 *
 * Everything is bounded, what is left out is counted.
 */
#ifndef NAMING_LEAF_CODE_H
#define NAMING_LEAF_CODE_H

#include "fxt/sample.h"
#include "naming/code_copy.h"
#include "naming/namer.h"

#define LEAF_CODE_WAITING_MAX (1u << 16) /* addresses that have no name yet */
#define LEAF_CODE_LEAVES_MAX (1u << 20)  /* addresses in all */
#define LEAF_CODE_FUNCTIONS_MAX (1u << 14)
#define LEAF_CODE_WINDOWS_MAX 4096u              /* addresses in code without functions */
#define LEAF_CODE_BYTES_MAX (UINT64_C(16) << 20) /* of a trace */

struct leaf_code;

/* NULL: no memory. `namer` and `memory` are borrowed; the namer is told what copied code calls.
 * `write` takes records. */
struct leaf_code *
leaf_code_create(struct namer *namer, const struct guest_memory *memory,
		 void (*write)(void *context, const uint64_t *words, size_t count), void *context);
void leaf_code_destroy(struct leaf_code *self);

void leaf_code_see(struct leaf_code *self, const struct fxt_sample *sample);

/* Copies what can be named now; `again`: also looks at addresses that had no name before. */
void leaf_code_copy(struct leaf_code *self, bool again);

/* After the guest has stopped, with its memory still there. */
void leaf_code_finish(struct leaf_code *self, struct code_totals *totals);

#endif
