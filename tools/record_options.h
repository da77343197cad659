/* The command line of guestprof record. */
#ifndef TOOLS_RECORD_OPTIONS_H
#define TOOLS_RECORD_OPTIONS_H

#include "vmm/machine.h"

#include <guestprof/sampler.h>

#include <stdbool.h>
#include <stdint.h>

#define RECORD_SYMBOL_FILES_MAX 8

struct record_options {
	struct machine_config machine;
	uint64_t period_ns;   /* 0: boot without sampling; events for hardware events */
	bool frequency_given; /* -F */
	bool period_given;    /* --period */
	const char *event;    /* the tick source's name */
	gp_tick_source_t source;
	uint32_t jitter_percent;
	uint32_t sampled_vcpus[MACHINE_VCPUS_MAX];
	size_t sampled_vcpu_count; /* 0: all */
	uint32_t depth;
	uint64_t duration_ns;
	uint64_t timeout_ns;
	const char *output;
	bool json;
	const char *symbol_files[RECORD_SYMBOL_FILES_MAX]; /* FILE or FILE@BASE */
	unsigned symbol_file_count;
	const char *symfs; /* NULL: none */
};

/* Returns -1 to go on, or the exit code (help was printed, or what is wrong). */
int record_options_parse(int argc, char **argv, struct record_options *options);

#endif
