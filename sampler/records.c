#include "sampler/records.h"

#include "base/clock.h"
#include "base/container.h"

#define CONTINUATION_VCPU_SHIFT 48

static void add_to(_Atomic uint64_t *counter, uint64_t more)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
			      memory_order_relaxed);
}

static bool encode_and_write(struct sampler_vcpu *vcpu, const struct fxt_sample *sample,
			     uint64_t now)
{
	uint64_t words[FXT_SAMPLE_WORDS(GP_SAMPLER_DEPTH_MAX)];
	size_t used = fxt_sample_encode(sample, words, ARRAY_SIZE(words));

	return fxt_ring_write(&vcpu->ring, words, used, now);
}

/* Writes the record of one tick and counts it as `counter`, or as dropped. */
static bool write_record(struct sampler_vcpu *vcpu, const struct fxt_sample *sample,
			 _Atomic uint64_t *counter)
{
	bool written = encode_and_write(vcpu, sample, sample->timestamp);

	add_to(written ? counter : &vcpu->dropped, 1);
	return written;
}

/* One that found the ring full leaves completing to the next. */
void records_write_full(struct sampler_vcpu *vcpu, struct fxt_sample *sample)
{
	if (vcpu->open_continuation) {
		sample->flags |= FXT_SAMPLE_COMPLETION;
		sample->completion = vcpu->open_continuation;
	}
	if (write_record(vcpu, sample, &vcpu->full))
		vcpu->open_continuation = 0;
}

/* The ids of one vCPU: its number + 1 in the high bits, so that no two vCPUs share any. */
static uint64_t take_continuation(struct sampler_vcpu *vcpu)
{
	return (uint64_t)(vcpu->index + 1) << CONTINUATION_VCPU_SHIFT | vcpu->next_continuation++;
}

/* A tick without a stack of its own. */
static bool write_partial(struct sampler_vcpu *vcpu, uint64_t timestamp, bool in_guest)
{
	struct fxt_sample sample = {
		.flags = FXT_SAMPLE_CONTINUATION | FXT_SAMPLE_TIMESTAMP | FXT_SAMPLE_VCPU |
			 FXT_SAMPLE_MODE | FXT_SAMPLE_STACK_END,
		.continuation = vcpu->open_continuation,
		.timestamp = timestamp,
		.vcpu = vcpu->index,
		.mode = in_guest ? FXT_MODE_UNKNOWN : FXT_MODE_IN_VMM,
		.stack_end = FXT_STACK_END_NOT_WALKED,
	};

	return write_record(vcpu, &sample, &vcpu->partial);
}

/* Ticks that have no room at all: counted, and told by the next drop record. */
static void drop_ticks(struct sampler_vcpu *vcpu, uint64_t ticks, uint64_t first, uint64_t last)
{
	add_to(&vcpu->dropped, ticks);
	fxt_ring_count_drops(&vcpu->ring, ticks, first, last);
}

/* The runs that are there now are about to be read: the handler leaves them alone. Returns their
 * end. */
static unsigned begin_reading(struct sampler_vcpu *vcpu)
{
	unsigned head = vcpu->head;

	vcpu->read_head = head;
	atomic_signal_fence(memory_order_seq_cst);
	return head;
}

struct pending_run records_write_partials(struct sampler_vcpu *vcpu)
{
	uint64_t period = vcpu->session->period_ns;
	uint64_t overflowed = vcpu->overflowed;
	struct pending_run last = {0};
	unsigned head = begin_reading(vcpu);

	while (vcpu->tail != head) {
		struct pending_run run = vcpu->runs[vcpu->tail];
		bool is_last = (vcpu->tail + 1) % PENDING_RUNS == head;
		uint64_t partials = run.count - (is_last ? 1 : 0);
		uint64_t first = run.last - (run.count - 1) * period;

		vcpu->tail = (vcpu->tail + 1) % PENDING_RUNS;
		for (uint64_t i = 0; i < partials; i++) {
			bool opens = !vcpu->open_continuation;

			if (opens)
				vcpu->open_continuation = take_continuation(vcpu);
			if (write_partial(vcpu, first + i * period, run.in_guest))
				continue;
			/* An id that nothing in the trace has: there is nothing to complete. */
			if (opens)
				vcpu->open_continuation = 0;
			if (i + 1 < partials)
				drop_ticks(vcpu, partials - i - 1, first + (i + 1) * period,
					   run.last);
			break;
		}
		last = run;
	}
	if (overflowed != vcpu->overflowed_counted) {
		drop_ticks(vcpu, overflowed - vcpu->overflowed_counted, vcpu->overflowed_last,
			   vcpu->overflowed_last);
		vcpu->overflowed_counted = overflowed;
	}
	return last;
}

void records_settle(struct sampler_vcpu *vcpu)
{
	struct fxt_sample close = {
		.flags = FXT_SAMPLE_COMPLETION | FXT_SAMPLE_VCPU | FXT_SAMPLE_STACK_END,
		.completion = vcpu->open_continuation,
		.vcpu = vcpu->index,
		.stack_end = FXT_STACK_END_NOT_WALKED,
	};

	/* The account of drops comes first, so that the closing record cannot become a drop. */
	if (fxt_ring_flush_drops(&vcpu->ring) && vcpu->open_continuation &&
	    vcpu->ring.size - fxt_ring_size_available(&vcpu->ring) >= FXT_SAMPLE_WORDS(0) * 8 &&
	    encode_and_write(vcpu, &close, boot_ns()))
		vcpu->open_continuation = 0;
}

void records_filter(struct sampler_vcpu *vcpu)
{
	uint64_t overflowed = vcpu->overflowed, passed = overflowed - vcpu->overflowed_counted;
	unsigned head = begin_reading(vcpu);

	while (vcpu->tail != head) {
		passed += vcpu->runs[vcpu->tail].count;
		vcpu->tail = (vcpu->tail + 1) % PENDING_RUNS;
	}
	vcpu->overflowed_counted = overflowed;
	add_to(&vcpu->filtered, passed);
}

/* Closes what is pending; producing. */
static void finish(struct sampler_vcpu *vcpu)
{
	struct pending_run last = {0};

	if (vcpu->session->filter.active)
		records_filter(vcpu);
	else
		last = records_write_partials(vcpu);
	if (last.count) {
		/* The session ends before this tick's stop: the record closes what is open and
		 * says that nobody looked. */
		struct fxt_sample sample = {
			.flags = FXT_SAMPLE_TIMESTAMP | FXT_SAMPLE_VCPU | FXT_SAMPLE_MODE |
				 FXT_SAMPLE_STACK_END,
			.timestamp = last.last,
			.vcpu = vcpu->index,
			.mode = last.in_guest ? FXT_MODE_UNKNOWN : FXT_MODE_IN_VMM,
			.stack_end = FXT_STACK_END_NOT_WALKED,
		};

		records_write_full(vcpu, &sample);
	}
	records_settle(vcpu);
	atomic_store_explicit(&vcpu->quiet, true, memory_order_release);
}

void records_begin(struct sampler_vcpu *vcpu)
{
	vcpu->producing = true;
	atomic_signal_fence(memory_order_seq_cst);
}

void records_finish(struct sampler_vcpu *vcpu)
{
	records_begin(vcpu);
	finish(vcpu);
	atomic_signal_fence(memory_order_seq_cst);
	vcpu->producing = false;
}

/* The last signal of a stopping session may come while the handler finds us producing, and then
 * leaves its work to us; or just behind that, and then does it itself. It must be done once: after
 * it the ring belongs to the reader. */
void records_end(struct sampler_vcpu *vcpu)
{
	for (;;) {
		atomic_signal_fence(memory_order_seq_cst);
		vcpu->producing = false;
		atomic_signal_fence(memory_order_seq_cst);
		if (!atomic_load_explicit(&vcpu->stopping, memory_order_acquire) ||
		    atomic_load_explicit(&vcpu->quiet, memory_order_relaxed))
			return;
		records_begin(vcpu);
		/* Once more: the handler may have finished in between, and the session may have
		 * been started anew since, so that it is not quiet and not to be. From here on
		 * the handler leaves it to us, and whoever stops the session waits. */
		if (atomic_load_explicit(&vcpu->stopping, memory_order_acquire) &&
		    !atomic_load_explicit(&vcpu->quiet, memory_order_relaxed))
			finish(vcpu);
	}
}
