/* The PC's real-time clock and its battery-backed RAM (Motorola MC146818).
 *
 * Ports 0x70 (index; bit 7 masks the NMI and is ignored) and 0x71 (data). The time is the host's,
 * in UTC, and cannot be set: what the guest writes to the clock is accepted and forgotten. Reads of
 * the time registers see one instant from the moment the seconds are selected, so that they never
 * tear; "update in progress" is never set. No alarms, no interrupts. Any thread.
 */
#ifndef VMM_DEVICES_CMOS_H
#define VMM_DEVICES_CMOS_H

#include "vmm/devices/io_bus.h"

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#define CMOS_INDEX_PORT 0x70
#define CMOS_DATA_PORT 0x71

struct cmos {
	pthread_mutex_t lock;
	time_t (*now)(void);
	uint8_t index;
	time_t shown_at; /* the instant the time registers show */
	struct tm shown; /* the same, in UTC */
	uint8_t ram[128];
};

/* `now` gives seconds since 1970 in UTC; NULL is the host's clock. */
void cmos_init(struct cmos *cmos, time_t (*now)(void));
void cmos_deinit(struct cmos *cmos);
gp_status_t cmos_attach(struct cmos *cmos, struct io_bus *ports, struct error *error);

#endif
