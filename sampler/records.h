/* What pending ticks become: records in the ring of their vCPU. All but the last one of a stop are
 * partial records, which the last one's record, with the stack, completes.
 *
 * With a vCPU stopped, or in the tick's handler: nothing allocates, takes a lock or makes a system
 * call. On the vCPU's tick thread, but records_settle().
 */
#ifndef SAMPLER_RECORDS_H
#define SAMPLER_RECORDS_H

#include "fxt/sample.h"
#include "sampler/sampler_vcpu.h"

/* Between these two the ring is being written and the tick's handler leaves it alone. */
void records_begin(struct sampler_vcpu *vcpu);
void records_end(struct sampler_vcpu *vcpu);

/* Writes all pending ticks but the very last as partial records of the open continuation (opened
 * when the first one is needed). Returns the last run; its count is 0 when nothing was pending. The
 * time it takes is bounded by the ring's size: once it is full the rest is counted at once. */
struct pending_run records_write_partials(struct sampler_vcpu *vcpu);

/* Writes the last tick's record, which completes the partial ones before it. */
void records_write_full(struct sampler_vcpu *vcpu, struct fxt_sample *sample);

/* Counts all pending ticks as filtered. */
void records_filter(struct sampler_vcpu *vcpu);

/* Writes what is pending without a stack, and what the ring owes; then the vCPU is quiet. Also on
 * any thread once the tick thread has ended. */
void records_finish(struct sampler_vcpu *vcpu);

/* As far as the ring has room: writes the drop records that are still due, and closes partial
 * records whose full one found the ring full by a record that is no tick (it has no time). By the
 * ring's producer, which after stop is the reader. */
void records_settle(struct sampler_vcpu *vcpu);

#endif
