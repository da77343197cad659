/* What a session offers besides its public API (guestprof/sampler.h): learning what its guest is.
 */
#ifndef SAMPLER_SESSION_H
#define SAMPLER_SESSION_H

#include "base/error.h"

struct gp_sampler;
struct linux_guest;

/* One step of learning what the guest's kernel is, from the vCPUs' latest registers; see
 * linux_guest_learn(). Any thread, one at a time for a session. */
gp_status_t session_learn(struct gp_sampler *session, struct linux_guest *guest,
			  struct error *error);

/* The same for the end of a session: all names that can be had; linux_guest_learn_names(). */
void session_learn_names(struct gp_sampler *session, struct linux_guest *guest);

#endif
