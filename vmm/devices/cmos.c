/* Registers as in Motorola's MC146818A data sheet; the century's place is the one that the
 * FADT names (acpi.c) and that PCs use by convention. */
#include "vmm/devices/cmos.h"

#include <stdbool.h>
#include <string.h>

enum cmos_register {
	SECONDS = 0x00,
	MINUTES = 0x02,
	HOURS = 0x04,
	DAY_OF_WEEK = 0x06,
	DAY_OF_MONTH = 0x07,
	MONTH = 0x08,
	YEAR = 0x09,
	STATUS_A = 0x0a,
	STATUS_B = 0x0b,
	STATUS_C = 0x0c,
	STATUS_D = 0x0d,
	CENTURY = 0x32,
};

#define STATUS_A_DIVIDER 0x26 /* 32768 Hz, 1024 Hz periodic rate; no update in progress */
#define STATUS_B_24_HOURS 0x02
#define STATUS_B_BINARY 0x04
#define STATUS_D_VALID 0x80
#define HOURS_PM 0x80
#define INDEX_BITS 0x7f

static time_t host_now(void)
{
	return time(NULL);
}

void cmos_init(struct cmos *cmos, time_t (*now)(void))
{
	*cmos = (struct cmos){.now = now ? now : host_now};
	cmos->ram[STATUS_B] = STATUS_B_24_HOURS;
	/* The C library's first gmtime_r() opens /etc/localtime: here, not in a confined thread. */
	cmos->shown_at = cmos->now();
	gmtime_r(&cmos->shown_at, &cmos->shown);
	pthread_mutex_init(&cmos->lock, NULL);
}

void cmos_deinit(struct cmos *cmos)
{
	pthread_mutex_destroy(&cmos->lock);
}

/* Looks at the clock anew when a guest begins to read it: at the seconds, or at status
 * register A to see that no update is in progress, after which the data sheet promises 244
 * microseconds in which nothing changes. What is more than a second old is renewed at any register.
 */
static void look_at_clock(struct cmos *cmos)
{
	time_t now = cmos->now();
	bool begins = cmos->index == SECONDS || cmos->index == STATUS_A;

	if (begins || now < cmos->shown_at || now - cmos->shown_at > 1) {
		cmos->shown_at = now;
		gmtime_r(&now, &cmos->shown);
	}
}

static uint8_t encode(const struct cmos *cmos, int value)
{
	if (cmos->ram[STATUS_B] & STATUS_B_BINARY)
		return (uint8_t)value;
	return (uint8_t)((value / 10) << 4 | value % 10);
}

static uint8_t encode_hours(const struct cmos *cmos, int hours)
{
	if (cmos->ram[STATUS_B] & STATUS_B_24_HOURS)
		return encode(cmos, hours);
	return encode(cmos, hours % 12 ? hours % 12 : 12) | (hours >= 12 ? HOURS_PM : 0);
}

static uint8_t cmos_read_register(struct cmos *cmos)
{
	const struct tm *shown = &cmos->shown;

	look_at_clock(cmos);
	switch (cmos->index) {
	case SECONDS:
		return encode(cmos, shown->tm_sec);
	case MINUTES:
		return encode(cmos, shown->tm_min);
	case HOURS:
		return encode_hours(cmos, shown->tm_hour);
	case DAY_OF_WEEK:
		return encode(cmos, shown->tm_wday + 1);
	case DAY_OF_MONTH:
		return encode(cmos, shown->tm_mday);
	case MONTH:
		return encode(cmos, shown->tm_mon + 1);
	case YEAR:
		return encode(cmos, shown->tm_year % 100);
	case CENTURY:
		return encode(cmos, (shown->tm_year + 1900) / 100);
	case STATUS_A:
		return STATUS_A_DIVIDER;
	case STATUS_C:
		return 0; /* no interrupt is ever pending */
	case STATUS_D:
		return STATUS_D_VALID;
	default:
		return cmos->ram[cmos->index];
	}
}

static void cmos_bus_write(void *device, uint64_t offset, const void *data, unsigned size)
{
	struct cmos *cmos = device;

	(void)size;
	pthread_mutex_lock(&cmos->lock);
	if (offset == 0)
		cmos->index = *(const uint8_t *)data & INDEX_BITS;
	else
		cmos->ram[cmos->index] = *(const uint8_t *)data;
	pthread_mutex_unlock(&cmos->lock);
}

static void cmos_bus_read(void *device, uint64_t offset, void *data, unsigned size)
{
	struct cmos *cmos = device;

	memset(data, 0xff, size);
	/* The index port is write-only. */
	if (offset == 0)
		return;
	pthread_mutex_lock(&cmos->lock);
	*(uint8_t *)data = cmos_read_register(cmos);
	pthread_mutex_unlock(&cmos->lock);
}

gp_status_t cmos_attach(struct cmos *cmos, struct io_bus *ports, struct error *error)
{
	return io_bus_add(
		ports, &(struct io_region){CMOS_INDEX_PORT, 2, cmos, cmos_bus_read, cmos_bus_write},
		error);
}
