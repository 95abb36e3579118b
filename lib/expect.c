/* SPDX-License-Identifier: MIT */
/*
 * Durations: measured at the harvest, by kernel. What is known is an interval: the device said "not
 * yet" at its lower end, and at the upper one it had ended. Where that is wide, nobody looked in time,
 * and the estimate is taken down until somebody does; else one that was once too long would stay so
 * for ever, since who sleeps by it always comes late.
 */
#include "expect.h"

#include "future.h"
#include "op.h"

/* A "not yet" no older than this makes a sample good: a few polls. */
#define FRESH_NS 8000u
/* Operations that are added up to where the host waits. Arbitrary: the error adds up too. */
#define SUM_MAX 64

/* What is left of the sleep when it should end. Measured on a 16-core virtual machine (FLOORS): a timed
 * sleep is late by 5 us (p99 18) up to 200 us, and 19 us (p99 128) at 1 ms. */
#define MARGIN_NS    20000u
#define MARGIN_SHARE 20

void cufi_expect_started(struct cufi_lane *l)
{
	/* relaxed: a guess, see expect.h */
	atomic_store_explicit(&l->head_ns, cufi_now_ns(), memory_order_relaxed);
}

void cufi_expect_not_yet(struct cufi_lane *l)
{
	l->not_yet_ns = cufi_now_ns();
}

/* The new estimate, after work that took between @lo and @hi. */
static uint64_t improve(uint64_t old, uint64_t lo, uint64_t hi)
{
	uint64_t ns;

	if (hi - lo < FRESH_NS) /* the end itself was seen */
		return !old ? hi : old < hi ? old + (hi - old) / 4 : old - (old - hi) / 4;
	if (!old || old > hi)
		ns = hi - hi / 8;
	else if (old < lo)
		ns = lo + (hi - lo) / 2;
	else
		ns = old - old / 16;
	return ns > lo ? ns : lo + 1;
}

void cufi_expect_ended(struct cufi_lane *l, struct cufi_op *op)
{
	struct cufi_estimate *e = op->cls->estimate ? op->cls->estimate(op) : NULL;
	/* relaxed: guesses */
	uint64_t head = atomic_load_explicit(&l->head_ns, memory_order_relaxed);
	uint64_t now = cufi_now_ns();

	if (e && head && now > head) {
		uint64_t old = atomic_load_explicit(&e->ns, memory_order_relaxed);
		uint64_t lo = l->not_yet_ns > head ? l->not_yet_ns - head : 0;

		atomic_store_explicit(&e->ns, improve(old, lo, now - head), memory_order_relaxed);
	}
	/* what comes next is at the head from now on */
	atomic_store_explicit(&l->head_ns, now, memory_order_relaxed);
}

uint64_t cufi_expect_end(struct cufi_lane *l, uint64_t seq)
{
	struct cufi_node *n;
	uint64_t sum = 0;
	unsigned count = 0;

	if (!cufi_lock_try(&l->harvest))
		return 0;
	for (n = cufi_queue_front(&l->pending); n; n = cufi_queue_after(&l->pending, n)) {
		struct cufi_op *op = (struct cufi_op *)n;
		struct cufi_estimate *e = op->cls->estimate ? op->cls->estimate(op) : NULL;
		/* relaxed: a guess */
		uint64_t ns = e ? atomic_load_explicit(&e->ns, memory_order_relaxed) : 0;

		if (!ns || ++count > SUM_MAX || op->future->seq > seq) {
			sum = op->future->seq > seq ? sum : 0;
			break;
		}
		sum += ns;
	}
	cufi_lock_give(&l->harvest);
	/* relaxed: a guess */
	return sum ? atomic_load_explicit(&l->head_ns, memory_order_relaxed) + sum : 0;
}

uint64_t cufi_expect_margin(uint64_t sleep_ns)
{
	return MARGIN_NS + sleep_ns / MARGIN_SHARE;
}
