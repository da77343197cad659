/* A model of fxt/ring.c for spin: no record lost or read torn, every drop counted and told.
 *
 * Run:    spin -a tests/model/ring.pml && gcc -O2 -o pan pan.c && ./pan
 * Result: "errors: 0", and 0 states unreached in both processes; about 7 million states, 10 s.
 * A mutation that must fail, as a check of the model: -DTORN publishes before copying,
 * -DSTALE frees the space before copying out, -DUNTOLD forgets the account of drops
 * (spin -a -DTORN tests/model/ring.pml ...).
 *
 * Mapping, in the order of the code's steps:
 *   produced, consumed, seen        fxt_ring.produced, .consumed, .consumed_seen, in words
 *   pending                         fxt_ring.pending.records (bytes and times follow it)
 *   producer: room                  has_room(): first against `seen`, then against a fresh load
 *   producer: drop                  drop()
 *   producer: copy, publish         copy_in() word by word, publish()
 *   producer: flush                 fxt_ring_flush_drops() after the last record
 *   consumer: load, copy, free      fxt_ring_read(): one load of `produced`, copy_out() word by word
 *                                   of what fits in its buffer, one store of `consumed`
 *
 * Records have 1 to 3 words; word 0 holds the number of words (the header), every word the record's
 * number. A drop record has 2 words here, of which the second holds the count. Processor and
 * compiler reordering is not modelled: spin interleaves single steps. The order of the copies
 * and the index is what release and acquire in the code promise; ThreadSanitizer checks that
 * side (tests/thread/fxt_ring.c).
 */
#define SIZE 4	  /* words in the ring */
#define RECORDS 6 /* given to the producer */
#define DROP 15	  /* the number that marks a drop record */

typedef word_t {
	byte words;  /* in a record's first word its size, else 0 */
	byte number; /* of the record it belongs to; DROP in a drop record's first word */
}

word_t ring[SIZE];
byte produced, consumed;
byte written, dropped; /* totals as the producer counts them */
bool stopped;

/* What the consumer found. */
byte last, received, told;

/* producer's own */
byte seen, pending;

inline put(position, w, n)
{
	ring[(position) % SIZE].words = w;
	ring[(position) % SIZE].number = n;
}

inline room()
{
	fits = (SIZE - (produced - seen) >= need);
	if
	:: !fits ->
		seen = consumed; /* acquire */
		fits = (SIZE - (produced - seen) >= need)
	:: else -> skip
	fi
}

active proctype producer()
{
	byte number = 1, size, need, front, at, i, header;
	bool fits;

	do
	:: number <= RECORDS ->
		/* any size */
		if
		:: size = 1
		:: size = 2
		:: size = 3
		fi;
		/* the drop record that goes in front */
		front = (pending != 0 -> 2 : 0);
		need = size + front;
		room();
		if
		:: !fits ->
			pending++;
			dropped++
		:: else ->
			at = produced;
#ifdef TORN
			produced = produced + need;
#endif
			if
			:: pending != 0 ->
				put(at, 2, DROP);
				put(at + 1, 0, pending);
				at = at + 2;
				pending = 0
			:: else -> skip
			fi;
			i = 0;
			do
			:: i < size ->
				header = (i == 0 -> size : 0);
				put(at + i, header, number);
				i++
			:: else -> break
			od;
			written++;
#ifndef TORN
			produced = at + size /* release */
#endif
		fi;
		number++
	:: else -> break
	od;
#ifndef UNTOLD
	/* flush: again and again, until there is room */
	do
	:: pending == 0 -> break
	:: else ->
		/* a turn that finds no room changes nothing: wait until it does */
		(SIZE - (produced - consumed) >= 2);
		need = 2;
		room();
		assert(fits);
		at = produced;
		put(at, 2, DROP);
		put(at + 1, 0, pending);
		pending = 0;
		produced = at + 2
	od;
#endif
	stopped = true
}

active proctype consumer()
{
	byte end, at, size, i, number, limit;
	bool was_stopped;

	do
	:: true ->
		/* what was written before the stop was seen is read in this very turn */
		was_stopped = stopped;
		end = produced; /* acquire */
		if
		:: limit = 3
		:: limit = SIZE
		fi;
		at = consumed;
#ifdef STALE
		consumed = end;
#endif
		do
		:: at != end ->
			size = ring[at % SIZE].words;
			number = ring[at % SIZE].number;
			/* the header can be trusted */
			assert(size >= 1 && size <= 3);
			assert(size <= end - at);
			if
			:: size > limit -> break
			:: else -> skip
			fi;
			limit = limit - size;
			if
			:: number == DROP ->
				told = told + ring[(at + 1) % SIZE].number;
				last = last + ring[(at + 1) % SIZE].number
			:: else ->
				/* in order, and what is missing has been told before */
				assert(number == last + 1);
				i = 1;
				do
				:: i < size ->
					assert(ring[(at + i) % SIZE].words == 0);
					assert(ring[(at + i) % SIZE].number == number);
					i++
				:: else -> break
				od;
				last = number;
				received++
			fi;
			at = at + size
		:: else -> break
		od;
#ifndef STALE
		consumed = at; /* release */
#endif
		if
		:: was_stopped && at == end -> break
		:: else -> skip
		fi
	od;
	assert(received == written);
	assert(told == dropped);
	assert(received + told == RECORDS)
}
