/* Small files below /proc: read whole, numbers taken out. Their content is another process's doing
 * and untrusted. */
#ifndef ATTACH_PROC_FILE_H
#define ATTACH_PROC_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads `proc`/`pid`/`name`, at most `size` - 1 bytes of it, and terminates it. Returns its length;
 * 0, an empty text, when it cannot be read. */
size_t proc_read(const char *proc, pid_t pid, const char *name, char *text, size_t size);

/* `text` is a decimal number of at most `most` and nothing else. */
bool proc_number(const char *text, uint64_t most, uint64_t *value);

/* The same of the first line of a file. */
bool proc_file_number(const char *path, uint64_t most, uint64_t *value);

/* The number after "`name`:" at the beginning of a line, in the given base. */
bool proc_field(const char *text, const char *name, int base, uint64_t *value);

/* In the text of a stat file (proc_pid_stat(5)): its third field, the state's letter, and what
 * follows it. A name may hold anything, but not what comes behind it. NULL: no such text. */
const char *proc_stat_fields(const char *text);

/* The number of `name` in the thread's status file; as proc_field(). */
bool proc_thread_field(const char *proc, pid_t pid, pid_t thread, const char *name, int base,
		       uint64_t *value);

/* Calls `visit` for each thread of the process until it returns false; a bounded number of them. */
void proc_each_thread(const char *proc, pid_t pid, bool (*visit)(void *context, pid_t thread),
		      void *context);

#endif
