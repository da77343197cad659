/* What QEMU's emulation of several CPUs gets wrong, kept from happening: for process 1 of L1. With
 * the reasons, which were found the hard way, in docs/design/lab.md. */
#ifndef TOOLS_LAB_QEMU_RACES_H
#define TOOLS_LAB_QEMU_RACES_H

#include "base/error.h"

#include <stdbool.h>

/* Lets L1's kernel change its own code for the last time, and then starts all CPUs but the first,
 * which alone it was booted with (maxcpus=1). Needs /dev, /proc, /sys. */
gp_status_t qemu_races_start_cpus(struct error *error);

/* Keeps this process and those it starts off the CPU on which no guest may run. False: errno. */
bool qemu_races_keep_off_the_first_cpu(void);

#endif
