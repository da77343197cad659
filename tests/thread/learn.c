/* A session over a stock kernel's memory image, learned from again and again while vCPUs are
 * stopped and sampled, as a program of its own for ThreadSanitizer. Without an image it says so and
 * exits with 77, which counts as skipped. */
#include "guest-introspection/linux/linux_guest.h"
#include "tests/image_memory.h"
#include "tests/unit/fake_target.h"

#include <stdio.h>

#define IMAGE "6.1"
#define SKIPPED 77

static int fail(const char *what)
{
	fprintf(stderr, "learn: %s\n", what);
	return 1;
}

int main(void)
{
	const gp_sampler_config_t config = {
		.size = sizeof(config), .period_ns = 500000, .max_depth = 64};
	static struct fake_target fake;
	static struct image image;
	struct fake_counts counts = {0};
	const char *wrong;
	gp_sampler_t *session;
	char why[256] = "";
	unsigned learned = 0;

	if (!image_open(&image, IMAGE)) {
		printf("learn: no memory image " IMAGE_DIRECTORY "/" IMAGE
		       ": run tests/images/make-image.sh " IMAGE "\n");
		return SKIPPED;
	}
	fake_target_init(&fake, image.cpu_count);
	fake.image = &image.memory.memory;
	fake.cpus = image.cpus;
	if (gp_sampler_create(&fake.target, 0, &config, &session) || gp_sampler_start(session, 0))
		return fail("no session");
	for (unsigned i = 0; i < 12; i++) {
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
		learned += gp_sampler_learn_guest(session, 0, why, sizeof(why)) == GP_OK;
		/* As if boot had gone on: what was learned is prepared anew and exchanged. */
		sampler_target_guest(&fake.target)->settled = false;
	}
	gp_sampler_stop(session, 0);
	wrong = fake_count_records(session, &counts);
	gp_sampler_close(session);
	fake_target_deinit(&fake);
	image_close(&image);
	if (wrong)
		return fail(wrong);
	if (learned < 5)
		return fail(why);
	printf("learn: learned %u times during %llu samples\n", learned,
	       (unsigned long long)counts.full);
	return 0;
}
