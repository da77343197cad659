/* Clocks and waits, in nanoseconds. All but sleep_ns() may be called in a signal handler and with
 * a vCPU stopped: no system call where there is a vDSO. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define NS_PER_SECOND UINT64_C(1000000000)
#define NS_PER_MILLISECOND UINT64_C(1000000)
#define NS_PER_MICROSECOND UINT64_C(1000)

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

static inline uint64_t monotonic_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* The time base of a trace: goes on while the host sleeps. */
static inline uint64_t boot_ns(void)
{
	return clock_ns(CLOCK_BOOTTIME);
}

static inline struct timespec timespec_of(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / NS_PER_SECOND),
				 .tv_nsec = (long)(ns % NS_PER_SECOND)};
}

/* A signal may end it early. */
static inline void sleep_ns(uint64_t ns)
{
	struct timespec time = timespec_of(ns);

	nanosleep(&time, NULL);
}

/* What is left until `deadline_ns` of CLOCK_MONOTONIC, as poll() takes it: rounded up, 0 when it
 * has passed. */
static inline int milliseconds_until(uint64_t deadline_ns)
{
	uint64_t now = monotonic_ns();
	uint64_t left = deadline_ns > now ? (deadline_ns - now - 1) / NS_PER_MILLISECOND + 1 : 0;

	return left < INT32_MAX ? (int)left : INT32_MAX;
}

#endif
