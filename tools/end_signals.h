/* SIGINT, SIGTERM and SIGHUP end what a command records, in order. One recording in a process. */
#ifndef TOOLS_END_SIGNALS_H
#define TOOLS_END_SIGNALS_H

/* From here on these signals are noted, and SIGPIPE is ignored. `end` is called in a signal
 * handler, with what was aimed at. */
void end_signals_catch(void (*end)(void *target));

/* What is to be ended; NULL: nothing any more. It is at once if a signal has come before. */
void end_signals_aim(void *target);

/* Calls `restore`, which must be safe in a signal handler, before this process dies of a fault or
 * an abort. */
void crash_signals_catch(void (*restore)(void));

#endif
