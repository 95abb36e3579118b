/* SPDX-License-Identifier: MIT */
/*
 * The bell that the completer sleeps by, and the host functions that ring it: arming. When it sleeps and
 * what it does when rung: completer.c.
 *
 * A host function costs the GPU an idle 60 us if it stands between two operations of a stream, and
 * its wake takes 20 to 95 us where a query takes 10 (FLOORS, H200). So none is put behind every
 * operation: one is armed for a lane only when the host waits for something there and the completer
 * is about to sleep, as network drivers do with interrupts. It is armed for the lowest that is
 * waited for: behind its event on a companion stream, where it is in nobody's way, or, where no event
 * has been recorded at or behind it, at the tail of the lane itself.
 *
 * The function takes the bell from asleep to awake and does nothing else: no lock, no allocation, no
 * CUDA call. Its argument is an index and a generation into static memory, because the driver may
 * call it late or never; if never, the tick is 10 ms away.
 */
#include "arm.h"

#include "edge.h"
#include "future.h"
#include "machine.h"
#include "op.h"
#include "scope.h"

#define BELLS 64 /* runtimes of a process at one time */

static struct cufi_bell bells[BELLS];

/* ---- the bell ---- */

static void ring(struct cufi_bell *b)
{
	/* seq_cst: pairs with b1 */
	if (atomic_exchange(&b->word, 0))
		cufi_wake(&b->word, 1);
}

void cufi_ring(cuf_runtime *rt)
{
	struct cufi_machine *m = rt->machine;

	/* seq_cst: pairs with b1: awake, it looks again before it sleeps */
	if (!atomic_load(&m->bell->word))
		return;
	/* relaxed: statistics */
	atomic_fetch_add_explicit(&m->n_wakes, 1, memory_order_relaxed);
	ring(m->bell);
}

/* On the driver's thread. */
static void host_function(void *arg)
{
	uintptr_t v = (uintptr_t)arg;
	struct cufi_bell *b = &bells[v & 63];
	unsigned arm = (v >> 6) & 63;

	/* relaxed: statistics */
	atomic_fetch_add_explicit(&b->rings, 1, memory_order_relaxed);
	/* acquire: pairs with the release in arm_lane: an arm of this generation is outstanding */
	if (atomic_load_explicit(&b->generations[arm], memory_order_acquire) == (uint32_t)(v >> 12))
		/* release: pairs with the exchange in cufi_arms_take */
		atomic_fetch_or_explicit(&b->fired, UINT64_C(1) << arm, memory_order_release);
	ring(b);
}

bool cufi_bell_take(struct cufi_machine *m)
{
	for (unsigned i = 0; i < BELLS; i++) {
		uint32_t unused = 0;

		/* seq_cst: taken and given by threads that start and stop runtimes */
		if (!atomic_compare_exchange_strong(&bells[i].used, &unused, 1))
			continue;
		m->bell = &bells[i];
		m->bell_index = i;
		atomic_store(&m->bell->word, 0);
		atomic_store(&m->bell->fired, 0);
		atomic_store(&m->bell->rings, 0);
		return true;
	}
	return false;
}

void cufi_bell_give(struct cufi_machine *m)
{
	for (unsigned i = 0; i < CUFI_ARMS; i++)
		/* relaxed: a late call finds another generation */
		atomic_fetch_add_explicit(&m->bell->generations[i], 1, memory_order_relaxed);
	atomic_store(&m->bell->used, 0);
	m->bell = NULL;
}

/* ---- arms; the completer only ---- */

/* @a is over. The lane is armed at the lowest of what is left. */
static void disarm(struct cufi_machine *m, struct cufi_arm *a)
{
	struct cufi_lane *l = a->lane;
	uint64_t lowest = 0;

	a->lane = NULL;
	if (a->companion)
		/* relaxed: the completer's */
		atomic_store_explicit(&a->companion->slot, 0, memory_order_relaxed);
	for (unsigned i = 0; i < CUFI_ARMS; i++) {
		if (m->arms[i].lane == l && (!lowest || m->arms[i].seq < lowest))
			lowest = m->arms[i].seq;
	}
	/* seq_cst: pairs with cufi_want */
	atomic_store(&l->armed, lowest);
}

void cufi_arms_take(struct cufi_machine *m)
{
	uint64_t bits;

	/* relaxed: a guess */
	if (!atomic_load_explicit(&m->bell->fired, memory_order_relaxed))
		return;
	/* acquire: pairs with host_function */
	bits = atomic_exchange_explicit(&m->bell->fired, 0, memory_order_acquire);
	for (; bits; bits &= bits - 1) {
		struct cufi_arm *a = &m->arms[__builtin_ctzll(bits)];

		if (a->lane)
			disarm(m, a);
	}
}

/* A host function that is never called must not keep its arm: it is given up once its lane has come
 * further and, on a companion, the stream is empty. */
static void give_up_stale(struct cufi_machine *m)
{
	for (unsigned i = 0; i < CUFI_ARMS; i++) {
		struct cufi_arm *a = &m->arms[i];

		if (!a->lane || a->seq > cufi_lane_completed(a->lane) ||
		    (a->companion &&
		     a->lane->dev->ops->stream_query(a->companion->stream) == CUFI_CODE_NOT_READY))
			continue;
		/* relaxed: a late call finds another generation */
		atomic_fetch_add_explicit(&m->bell->generations[i], 1, memory_order_relaxed);
		disarm(m, a);
	}
}

static struct cufi_companion *free_companion(struct cufi_device *d)
{
	for (int i = 0; i < CUFI_COMPANIONS; i++) {
		/* relaxed: the completer's */
		if (!atomic_load_explicit(&d->companions[i].slot, memory_order_relaxed))
			return &d->companions[i];
	}
	return NULL;
}

static int free_arm(struct cufi_machine *m)
{
	for (int i = 0; i < CUFI_ARMS; i++) {
		if (!m->arms[i].lane)
			return i;
	}
	return -1;
}

/* The lowest operation of @l that the host waits for; the harvest lock is held. 0: none. */
static uint64_t scan_wanted(struct cufi_lane *l)
{
	uint64_t want = atomic_load(&l->want);
	struct cufi_node *n;

	for (n = cufi_queue_front(&l->pending); n; n = cufi_queue_after(&l->pending, n)) {
		struct cufi_op *op = (struct cufi_op *)n;
		/* relaxed: a want that comes now rings */
		uint32_t w = atomic_load_explicit(&op->future->word, memory_order_relaxed);

		if (w & (CUFI_LINKS | CUFI_PARKED) || cufi_word_settled(w) ||
		    cufi_scope_has(op->scope, CUFI_SCOPE_CLOSING))
			return op->future->seq;
	}
	return cufi_lane_completed(l) < want ? want : 0;
}

uint64_t cufi_lowest_want(struct cufi_lane *l)
{
	uint64_t seq;

	if (!cufi_lock_try(&l->harvest))
		return 0;
	seq = scan_wanted(l);
	cufi_lock_give(&l->harvest);
	return seq;
}

/* The same, and its event (one reference) if it or a later one has been recorded: then that one's. */
static uint64_t lowest_event(struct cufi_lane *l, struct cufi_event **out, bool *out_taken)
{
	struct cufi_node *n;
	uint64_t seq;

	*out = NULL;
	*out_taken = !cufi_lock_try(&l->harvest);
	if (*out_taken)
		return 0;
	seq = scan_wanted(l);
	for (n = cufi_queue_front(&l->marks); n && !*out; n = cufi_queue_after(&l->marks, n)) {
		struct cufi_event *e = (struct cufi_event *)n;

		if (seq && e->seq >= seq) {
			cufi_event_hold(e);
			*out = e;
			seq = e->seq;
		}
	}
	cufi_lock_give(&l->harvest);
	return seq;
}

/* False: somebody harvests it. */
static bool arm_lane(struct cufi_machine *m, struct cufi_lane *l)
{
	struct cufi_device *d = l->dev;
	struct cufi_companion *c = free_companion(d);
	uint64_t armed = atomic_load(&l->armed), seq;
	struct cufi_event *e;
	int i, code = 0;
	uintptr_t arg;
	bool taken;

	seq = lowest_event(l, &e, &taken);
	i = free_arm(m);
	/* armed at or below that: it will ring in time */
	if (!seq || (armed && armed <= seq) || i < 0 || (e && !c)) {
		if (e)
			cufi_event_put(e);
		return !taken; /* the tick serves */
	}
	/* release: pairs with host_function */
	arg = (uintptr_t)(atomic_fetch_add_explicit(&m->bell->generations[i], 1,
						    memory_order_release) +
			  1)
		      << 12 |
	      (unsigned)i << 6 | m->bell_index;
	arg &= (UINT64_C(1) << 44) - 1;
	if (e) {
		code = d->ops->stream_wait(c->stream, e->handle);
		if (!code)
			code = d->ops->host_func(c->stream, host_function, (void *)arg);
		cufi_event_put(e);
	} else {
		/* Nothing recorded at or behind it: it is at the tail, and so may the function be. */
		c = NULL;
		if (!cufi_lane_own_for_arm(l))
			return true; /* its owner wakes us */
		seq = l->seq;
		/* With the function at its end the stream cannot be asked before that has run, and it
		 * may run late: an event tells. */
		code = cufi_record_tail(l);
		if (!code)
			code = d->ops->host_func(l->stream, host_function, (void *)arg);
		cufi_lane_give_back(l);
	}
	if (code)
		return true; /* the next query says why */
	/* relaxed: statistics */
	atomic_fetch_add_explicit(&d->n_arms, 1, memory_order_relaxed);
	m->arms[i].lane = l;
	m->arms[i].seq = seq;
	m->arms[i].companion = c;
	if (c)
		/* relaxed: the completer's */
		atomic_store_explicit(&c->slot, (uint32_t)i + 1, memory_order_relaxed);
	if (!armed || seq < armed)
		atomic_store(&l->armed, seq);
	return true;
}

bool cufi_arms_set(struct cufi_machine *m)
{
	bool all = true;

	give_up_stale(m);
	for (int i = 0; i < m->n_devices; i++) {
		struct cufi_device *d = &m->devices[i];
		uint64_t bits = atomic_load(&d->wanted);
		struct cufi_device_guard guard;

		if (!bits || cufi_device_lost_root(d) || d->ops->enter(d->index, &guard))
			continue;
		for (; bits; bits &= bits - 1) {
			struct cufi_lane *l = d->lanes[__builtin_ctzll(bits)];

			if (cufi_lane_completed(l) < atomic_load(&l->want))
				all &= arm_lane(m, l);
		}
		d->ops->leave(&guard);
	}
	return all;
}
