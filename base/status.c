#include <guestprof/status.h>

const char *gp_status_string(gp_status_t status)
{
	switch (status) {
	case GP_OK:
		return "GP_OK";
	case GP_ERR_INTERNAL:
		return "GP_ERR_INTERNAL";
	case GP_ERR_NOT_SUPPORTED:
		return "GP_ERR_NOT_SUPPORTED";
	case GP_ERR_NO_RESOURCES:
		return "GP_ERR_NO_RESOURCES";
	case GP_ERR_NO_MEMORY:
		return "GP_ERR_NO_MEMORY";
	case GP_ERR_INVALID_ARGS:
		return "GP_ERR_INVALID_ARGS";
	case GP_ERR_OUT_OF_RANGE:
		return "GP_ERR_OUT_OF_RANGE";
	case GP_ERR_BUFFER_TOO_SMALL:
		return "GP_ERR_BUFFER_TOO_SMALL";
	case GP_ERR_BAD_STATE:
		return "GP_ERR_BAD_STATE";
	case GP_ERR_TIMED_OUT:
		return "GP_ERR_TIMED_OUT";
	case GP_ERR_CANCELED:
		return "GP_ERR_CANCELED";
	case GP_ERR_PEER_CLOSED:
		return "GP_ERR_PEER_CLOSED";
	case GP_ERR_NOT_FOUND:
		return "GP_ERR_NOT_FOUND";
	case GP_ERR_ALREADY_EXISTS:
		return "GP_ERR_ALREADY_EXISTS";
	case GP_ERR_UNAVAILABLE:
		return "GP_ERR_UNAVAILABLE";
	case GP_ERR_ACCESS_DENIED:
		return "GP_ERR_ACCESS_DENIED";
	case GP_ERR_IO:
		return "GP_ERR_IO";
	case GP_ERR_IO_DATA_INTEGRITY:
		return "GP_ERR_IO_DATA_INTEGRITY";
	case GP_ERR_IO_DATA_LOSS:
		return "GP_ERR_IO_DATA_LOSS";
	default:
		return "GP_ERR_UNKNOWN";
	}
}
