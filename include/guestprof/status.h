/* Status values of the guestprof API.
 *
 * A call returns GP_OK (zero) or one of the negative values below. Names and numbers
 * are those of Zircon's zx_status_t (zircon/errors.h), because the sampler API has the
 * shape of Fuchsia's RFC-0274.
 */
#ifndef GUESTPROF_STATUS_H
#define GUESTPROF_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GP_EXPORT __attribute__((visibility("default")))

typedef int32_t gp_status_t;

enum {
	GP_OK = 0,
	GP_ERR_INTERNAL = -1,           /* a defect of guestprof itself */
	GP_ERR_NOT_SUPPORTED = -2,      /* this machine, kernel or guest cannot do that */
	GP_ERR_NO_RESOURCES = -3,       /* a limit of the system: timers, locked memory, files */
	GP_ERR_NO_MEMORY = -4,          /* an allocation failed */
	GP_ERR_INVALID_ARGS = -10,      /* an argument is outside what the call documents */
	GP_ERR_OUT_OF_RANGE = -14,      /* a number is outside its range */
	GP_ERR_BUFFER_TOO_SMALL = -15,  /* the given buffer cannot hold the result */
	GP_ERR_BAD_STATE = -20,         /* not in this state: started twice, not started */
	GP_ERR_TIMED_OUT = -21,         /* a time limit was over first */
	GP_ERR_CANCELED = -23,          /* the user or a signal ended it */
	GP_ERR_PEER_CLOSED = -24,       /* the other side is gone */
	GP_ERR_NOT_FOUND = -25,         /* no such file, symbol, device */
	GP_ERR_ALREADY_EXISTS = -26,    /* another exclusive session has this target */
	GP_ERR_UNAVAILABLE = -28,       /* in use by another process */
	GP_ERR_ACCESS_DENIED = -30,     /* the caller lacks a right */
	GP_ERR_IO = -40,                /* reading or writing failed */
	GP_ERR_IO_DATA_INTEGRITY = -42, /* bytes that are not what they should be */
	GP_ERR_IO_DATA_LOSS = -43,      /* something could not be written: disk full */
};

/* The name of a status, "GP_ERR_BAD_STATE" for example; never NULL, static storage.
 * A number that is no status gives "GP_ERR_UNKNOWN". */
GP_EXPORT const char *gp_status_string(gp_status_t status);

#ifdef __cplusplus
}
#endif

#endif
