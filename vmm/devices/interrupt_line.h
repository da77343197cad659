/* One interrupt input of the guest's in-kernel interrupt controller.
 *
 * KVM listens on the eventfd (KVM_IRQFD); every signal is one edge. In a test nobody
 * listens and the test reads the counter. All our lines are edge-triggered, active-high,
 * and announced as such by ACPI.
 */
#ifndef VMM_DEVICES_INTERRUPT_LINE_H
#define VMM_DEVICES_INTERRUPT_LINE_H

#include "base/io.h"

#include <stdint.h>

struct interrupt_line {
	int event_fd; /* EFD_NONBLOCK; -1: not connected, raising does nothing */
	uint32_t gsi; /* global system interrupt number */
};

/* Raises one edge. Any thread; does not block. */
static inline void interrupt_line_raise(const struct interrupt_line *line)
{
	if (line->event_fd >= 0)
		io_signal(line->event_fd);
}

#endif
