#include "tools/lab/pump.h"

#include <errno.h>
#include <unistd.h>

static bool has_bytes(const struct lab_pump *pump)
{
	return pump->start < pump->used;
}

struct pollfd lab_pump_wait(const struct lab_pump *pump)
{
	if (has_bytes(pump))
		return (struct pollfd){.fd = pump->to, .events = POLLOUT};
	return (struct pollfd){.fd = pump->ended ? -1 : pump->from, .events = POLLIN};
}

static void put(struct lab_pump *pump)
{
	size_t size = pump->used - pump->start;
	ssize_t done;

	if (pump->piece && size > pump->piece)
		size = pump->piece;
	done = write(pump->to, pump->bytes + pump->start, size);
	if (done > 0) {
		pump->start += (size_t)done;
	} else if (errno != EINTR && errno != EAGAIN) {
		pump->broken = true;
		lab_pump_stop(pump);
	}
}

static void take(struct lab_pump *pump)
{
	ssize_t got = read(pump->from, pump->bytes, sizeof(pump->bytes));

	pump->start = 0;
	pump->used = got > 0 ? (size_t)got : 0;
	pump->taken += pump->used;
	/* A pty ends with EIO, when the last process has closed it. */
	if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN))
		pump->ended = true;
	if (pump->all_is_known)
		lab_pump_set_end(pump, pump->all);
}

void lab_pump_move(struct lab_pump *pump)
{
	if (has_bytes(pump))
		put(pump);
	else if (!pump->ended)
		take(pump);
}

bool lab_pump_is_done(const struct lab_pump *pump)
{
	return pump->ended && !has_bytes(pump);
}

void lab_pump_set_end(struct lab_pump *pump, uint64_t all)
{
	pump->all = all;
	pump->all_is_known = true;
	if (pump->taken >= all)
		pump->ended = true;
}

void lab_pump_stop(struct lab_pump *pump)
{
	pump->ended = true;
	pump->start = pump->used = 0;
}
