#include "tools/end_signals.h"

#include "base/container.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static void (*end_target)(void *target);
static void *_Atomic aimed_at;
static volatile sig_atomic_t signalled;

static void end_in_order(int signal)
{
	void *target = aimed_at;

	(void)signal;
	signalled = 1;
	if (target)
		end_target(target);
}

/* Handlers, not a signalfd: every tick of every vCPU would wake a thread that polls one, whatever
 * its mask (fs/signalfd.c). */
void end_signals_catch(void (*end)(void *target))
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = end_in_order, .sa_flags = SA_RESTART};

	end_target = end;
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		sigaction(signals[i], &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

void end_signals_aim(void *target)
{
	aimed_at = target;
	if (target && signalled)
		end_target(target);
}

static void (*restore_before_death)(void);

static void restore_and_die(int signal)
{
	restore_before_death();
	raise(signal); /* SA_RESETHAND: the default action now */
}

void crash_signals_catch(void (*restore)(void))
{
	static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGQUIT};
	struct sigaction action = {.sa_handler = restore_and_die,
				   .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};

	restore_before_death = restore;
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		sigaction(signals[i], &action, NULL);
}
