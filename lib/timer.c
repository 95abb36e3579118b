/* SPDX-License-Identifier: MIT */
/*
 * The timer thread and its heap.
 */
#include "timer.h"

#include <stdlib.h>
#include <string.h>

#include "future.h"
#include "op.h"

struct cufi_timers {
	cufi_lock lock;
	struct cufi_op **heap; /* by deadline */
	size_t n, room;
	uint64_t next_ns;      /* what the thread sleeps towards; under lock */
	uint64_t tick_ns;      /* of the next tick; written by the thread */
	_Atomic uint32_t tick; /* ticks are on */
	_Atomic uint32_t word; /* parked on by the thread */
	_Atomic uint32_t stop;
	struct cufi_thread thread;
};

static struct cufi_timer *timer_of(struct cufi_op *op)
{
	return cufi_op_params(op);
}

/* ---- the heap; under lock ---- */

static void place(struct cufi_timers *t, size_t i, struct cufi_op *op)
{
	t->heap[i] = op;
	timer_of(op)->index = i + 1;
}

static void up(struct cufi_timers *t, size_t i, struct cufi_op *op)
{
	while (i) {
		size_t parent = (i - 1) / 2;

		if (timer_of(t->heap[parent])->deadline_ns <= timer_of(op)->deadline_ns)
			break;
		place(t, i, t->heap[parent]);
		i = parent;
	}
	place(t, i, op);
}

static void down(struct cufi_timers *t, size_t i, struct cufi_op *op)
{
	for (;;) {
		size_t child = 2 * i + 1;

		if (child >= t->n)
			break;
		if (child + 1 < t->n && timer_of(t->heap[child + 1])->deadline_ns <
						timer_of(t->heap[child])->deadline_ns)
			child++;
		if (timer_of(op)->deadline_ns <= timer_of(t->heap[child])->deadline_ns)
			break;
		place(t, i, t->heap[child]);
		i = child;
	}
	place(t, i, op);
}

static void take_out(struct cufi_timers *t, size_t i)
{
	struct cufi_op *last = t->heap[--t->n];

	timer_of(t->heap[i])->index = CUFI_TIMER_OFF;
	if (i == t->n)
		return;
	if (i && timer_of(last)->deadline_ns < timer_of(t->heap[(i - 1) / 2])->deadline_ns)
		up(t, i, last);
	else
		down(t, i, last);
}

/* ---- added and removed ---- */

static void nudge(struct cufi_timers *t)
{
	/* release: pairs with the acquire in timer_main */
	atomic_fetch_add_explicit(&t->word, 1, memory_order_release);
	cufi_wake(&t->word, 1);
}

bool cufi_timer_add(struct cufi_op *op, uint64_t deadline_ns)
{
	struct cufi_timers *t = op->scope->rt->timers;
	bool first;

	timer_of(op)->deadline_ns = deadline_ns;
	cufi_lock_take(&t->lock);
	if (t->n == t->room) {
		size_t room = t->room ? 2 * t->room : 64;
		struct cufi_op **heap = realloc(t->heap, room * sizeof *heap);

		if (!heap) {
			cufi_lock_give(&t->lock);
			return false;
		}
		/* relaxed: statistics */
		atomic_fetch_add_explicit(&op->scope->rt->n_allocations, 1, memory_order_relaxed);
		t->heap = heap;
		t->room = room;
	}
	up(t, t->n++, op);
	first = deadline_ns < t->next_ns;
	if (first)
		t->next_ns = deadline_ns;
	cufi_lock_give(&t->lock);
	if (first)
		nudge(t);
	return true;
}

void cufi_timer_remove(struct cufi_op *op)
{
	/* no future: it was refused while it was made; no timers: the runtime is being taken down */
	struct cufi_timers *t = op->future ? op->future->rt->timers : NULL;

	if (!t)
		return;
	cufi_lock_take(&t->lock);
	if (timer_of(op)->index != CUFI_TIMER_OFF)
		take_out(t, timer_of(op)->index - 1);
	cufi_lock_give(&t->lock);
}

void cufi_tick_on(cuf_runtime *rt)
{
	struct cufi_timers *t = rt->timers;

	/* seq_cst: pairs with the store in tick(): it sees what is queued, or we see it off */
	if (atomic_load(&t->tick) || atomic_exchange(&t->tick, 1))
		return;
	nudge(t);
}

/* ---- the thread ---- */

static void tick(cuf_runtime *rt, uint64_t now)
{
	struct cufi_timers *t = rt->timers;

	t->tick_ns = now + CUFI_TICK_NS;
	if (rt->up.tick(rt))
		return;
	/* seq_cst: pairs with cufi_tick_on: whoever queued before this store is seen behind it */
	atomic_store(&t->tick, 0);
	if (rt->up.tick(rt))
		atomic_store(&t->tick, 1);
}

static void fire(struct cufi_timers *t, uint64_t now)
{
	cufi_lock_take(&t->lock);
	while (t->n && timer_of(t->heap[0])->deadline_ns <= now) {
		struct cufi_op *op = t->heap[0];
		bool alive = cufi_hold_if_alive(op->future);

		take_out(t, 0);
		cufi_lock_give(&t->lock);
		CUFI_TESTPOINT("timer:fire");
		if (alive) {
			cuf_future *f = op->future;

			timer_of(op)->fired(op);
			cufi_let_go(f, CUFI_HOLD);
		}
		cufi_lock_take(&t->lock);
	}
	t->next_ns = t->n ? timer_of(t->heap[0])->deadline_ns : CUFI_FOREVER;
	cufi_lock_give(&t->lock);
}

static void timer_main(void *arg)
{
	cuf_runtime *rt = arg;
	struct cufi_timers *t = rt->timers;
	bool ticking = false;

	for (;;) {
		/* acquire: pairs with nudge() */
		uint32_t word = atomic_load_explicit(&t->word, memory_order_acquire);
		uint64_t now, until;

		/* acquire: pairs with cufi_timers_stop */
		if (atomic_load_explicit(&t->stop, memory_order_acquire))
			return;
		now = cufi_now_ns();
		fire(t, now);
		cufi_lock_take(&t->lock);
		until = t->next_ns;
		cufi_lock_give(&t->lock);
		/* The first tick comes one interval after there was a reason for it. */
		if (atomic_load(&t->tick) && !ticking)
			t->tick_ns = now + CUFI_TICK_NS;
		ticking = atomic_load(&t->tick);
		if (ticking) {
			if (now >= t->tick_ns)
				tick(rt, now);
			if (t->tick_ns < until)
				until = t->tick_ns;
		}
		cufi_park(&t->word, word, until);
	}
}

int cufi_timers_start(cuf_runtime *rt, const struct cufi_thread_options *o)
{
	struct cufi_timers *t = calloc(1, sizeof *t);
	int rc;

	if (!t)
		return -1;
	t->next_ns = CUFI_FOREVER;
	rt->timers = t;
	rc = cufi_thread_start(&t->thread, "timer", timer_main, rt, o);
	if (rc) {
		free(t);
		rt->timers = NULL;
	}
	return rc;
}

void cufi_timers_stop(cuf_runtime *rt)
{
	struct cufi_timers *t = rt->timers;

	if (!t)
		return;
	/* release: pairs with timer_main */
	atomic_store_explicit(&t->stop, 1, memory_order_release);
	nudge(t);
	cufi_thread_join(&t->thread);
	free(t->heap);
	free(t);
	rt->timers = NULL;
}
