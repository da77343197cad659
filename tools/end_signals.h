/* SIGINT, SIGTERM and SIGHUP end a recording properly. One recording in a process. */
#ifndef TOOLS_END_SIGNALS_H
#define TOOLS_END_SIGNALS_H

/* From now on these signals are handled, and SIGPIPE is ignored. `end` is called in a signal
 * handler, with the target that was set. */
void end_signals_catch(void (*end)(void *target));

/* Sets the target; NULL: none. It ends at once if a signal has come before. */
void end_signals_aim(void *target);

/* Calls `restore`, which must be safe in a signal handler, before this process dies of a fault or
 * an abort. */
void crash_signals_catch(void (*restore)(void));

#endif
