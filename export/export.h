/* A trace written in the formats of other tools. Each format is one constant structure of
 * functions; export_trace() reads the samples, all vCPUs merged by time, and calls them:
 *
 *     begin, then for each entry of the trace that the filter takes: sample, lost or line (of the
 *     guest's console), then end
 *
 * A sample without a process (the kernel's tasks could not be read yet) belongs to its vCPU:
 * process FXT_VCPU_PROCESS, thread fxt_vcpu_thread(). Names from the guest are escaped
 * (analysis/text.h) in every format. One thread at a time.
 */
#ifndef EXPORT_EXPORT_H
#define EXPORT_EXPORT_H

#include "analysis/console_lines.h"
#include "trace/merge.h"
#include "analysis/profile.h"
#include "analysis/stacks.h"

struct export;

/* Only memory can be missing: then `export->failed` is set, and the export ends. Errors of writing
 * need no check: the stream's owner looks at it afterwards. */
struct export_format {
	const char *name;
	const char *summary;
	bool is_binary;  /* not for a terminal */
	bool takes_idle; /* `sample` is also called for samples in which nothing ran */
	/* There is a place for inlined functions, and for files and lines of the source. */
	bool has_inlined;
	bool has_places;
	/* Optional. `export->state` is the format's own; NULL before. */
	bool (*begin)(struct export *export); /* false: no memory */
	void (*sample)(struct export *export, const struct merge_entry *entry);
	/* Optional: ticks that found no room. */
	void (*lost)(struct export *export, const struct trace_lost *lost);
	/* Optional: a line on the console. */
	void (*line)(struct export *export, const struct console_line *line);
	/* Optional. */
	void (*end)(struct export *export);
	/* Optional: releases `state`, also after errors. */
	void (*release)(struct export *export);
};

struct export
{
	struct trace *trace;
	struct frames *frames;
	struct filter *filter; /* NULL: everything */
	bool by_vcpu;          /* formats with a line for each thread have one for each vCPU */
	bool inlined;          /* also inlined functions, as far as frames->lines knows them */
	FILE *to;
	const struct export_format *format;
	void *state;
	struct stacks stacks; /* of export_begin_tree() */
	struct profile_totals totals;
	bool failed;            /* no memory */
	uint64_t lost;          /* ticks, as far as the filter takes them */
	uint64_t console_lines; /* likewise, of formats that have them */
};

/* All formats; the last has no name. */
extern const struct export_format *const export_formats[];

/* NULL: there is none of that name. */
const struct export_format *export_find_format(const char *name);

/* Writes the whole trace to `to`. `trace`, `frames`, `filter`, `by_vcpu`, `inlined`, `to` and
 * `format` are set by the caller, the rest is zero; totals, lost and console_lines hold afterwards.
 */
gp_status_t export_trace(struct export *export, struct error *error);

/* For the formats. */

/* What a sample belongs to, as numbers and names. */
struct export_task {
	uint64_t process;
	uint64_t thread;
	char process_name[128]; /* escaped */
	char thread_name[128];
};
void export_find_task(const struct export *export, const struct fxt_sample *sample,
		      struct export_task *task);

/* The deepest stack: a tree has its owners in front. */
#define EXPORT_DEPTH_MAX FXT_SAMPLE_DEPTH_MAX

/* The sample's stack as frames, outermost first, with the inlined ones if they are asked for.
 * Returns its depth; 0: no memory. */
size_t export_path(struct export *export, const struct fxt_sample *sample,
		   uint32_t path[EXPORT_DEPTH_MAX]);

/* A function's name without what is behind that of an inlined one: its bytes. */
uint32_t export_bare_name(const struct frame *frame);

/* The line as console_line_clean() has it, its end cut, with what is not printable ASCII escaped.
 * False: nothing is left of it. */
#define EXPORT_LINE_MAX 512
bool export_line_text(const struct console_line *line, char out[4 * EXPORT_LINE_MAX + 1]);

/* For a format that folds: as its `begin`; export->state is an empty call tree. */
bool export_begin_tree(struct export *export);

/* Adds a sample to that tree, below what it belongs to. */
void export_fold(struct export *export, const enum frame_owner *owners, size_t owner_count,
		 const struct merge_entry *entry);

/* As its `release`. */
void export_release_tree(struct export *export);

/* Where a frame's code comes from, as other tools name files, without blanks: "[kernel.kallsyms]"
 * ... */
const char *export_object_name(const struct frame *frame);

/* The period of the trace, or 1 ms when it does not say. */
uint64_t export_period_ns(const struct export *export);

extern const struct export_format export_folded, export_perf, export_speedscope, export_firefox,
	export_pprof, export_perfetto, export_fuchsia, export_json;

#endif
