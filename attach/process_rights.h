/* Why one process may not look into another: what the host demands and this one lacks. */
#ifndef ATTACH_PROCESS_RIGHTS_H
#define ATTACH_PROCESS_RIGHTS_H

#include <stddef.h>
#include <sys/types.h>

/* What would allow this process to trace process `pid` below `proc` ("/proc"), as advice in one
 * line. Supposes that it was refused: never empty. By the rules of ptrace(2), "Ptrace access mode
 * checking", and of Documentation/admin-guide/LSM/Yama.rst. */
void process_rights(const char *proc, pid_t pid, char *text, size_t size);

#endif
