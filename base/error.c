#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

gp_status_t error_set(struct error *error, gp_status_t status, const char *format, ...)
{
	va_list arguments;

	if (!error)
		return status;
	error->status = status;
	va_start(arguments, format);
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	return status;
}

gp_status_t error_set_errno(struct error *error, int errno_value, const char *format, ...)
{
	gp_status_t status = status_from_errno(errno_value);
	va_list arguments;
	size_t length;

	if (!error)
		return status;
	error->status = status;
	va_start(arguments, format);
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	length = strlen(error->text);
	/* GNU strerrordesc_np() is thread-safe, unlike strerror(). */
	const char *description = strerrordesc_np(errno_value);
	snprintf(error->text + length, sizeof(error->text) - length, ": %s",
		 description ? description : "unknown error");
	return status;
}

gp_status_t error_prefix(struct error *error, const char *format, ...)
{
	char old[sizeof(error->text)];
	va_list arguments;
	size_t length;

	if (!error)
		return GP_ERR_INTERNAL;
	memcpy(old, error->text, sizeof(old));
	va_start(arguments, format);
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	length = strlen(error->text);
	snprintf(error->text + length, sizeof(error->text) - length, ": %s", old);
	return error->status;
}

gp_status_t status_from_errno(int errno_value)
{
	switch (errno_value) {
	case 0:
		return GP_OK;
	case ENOENT:
	case ENODEV:
	case ENXIO:
	case ESRCH:
		return GP_ERR_NOT_FOUND;
	case EACCES:
	case EPERM:
	case EROFS:
		return GP_ERR_ACCESS_DENIED;
	case ENOMEM:
		return GP_ERR_NO_MEMORY;
	case EMFILE:
	case ENFILE:
	case EAGAIN:
		return GP_ERR_NO_RESOURCES;
	case EINVAL:
	case EFAULT:
		return GP_ERR_INVALID_ARGS;
	case ENOSYS:
	case EOPNOTSUPP:
	case ENOTTY:
		return GP_ERR_NOT_SUPPORTED;
	case EBUSY:
	case ETXTBSY:
		return GP_ERR_UNAVAILABLE;
	case EEXIST:
		return GP_ERR_ALREADY_EXISTS;
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return GP_ERR_IO_DATA_LOSS;
	case EPIPE:
		return GP_ERR_PEER_CLOSED;
	case EINTR:
	case ECANCELED:
		return GP_ERR_CANCELED;
	case ETIMEDOUT:
		return GP_ERR_TIMED_OUT;
	default:
		return GP_ERR_IO;
	}
}
