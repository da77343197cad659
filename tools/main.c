#include <guestprof/status.h>

int main(void)
{
	return 0;
}
