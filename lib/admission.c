/* SPDX-License-Identifier: MIT */
/*
 * How much may be outstanding in a runtime: the cap, reservations of scopes, the gate of a shutdown,
 * cuf_room. And what a child process may do: nothing.
 */
#include <pthread.h>

#include "begin.h"
#include "error.h"
#include "future.h"
#include "loop.h"
#include "op.h"
#include "scope.h"

/* Near the cap, one operation in so many has all lanes looked at. Arbitrary; a power of two. */
#define WANT_EVERY 64u

/* ---- fork ---- */

static _Atomic unsigned forks;

static void in_child(void)
{
	/* relaxed: the child has one thread */
	atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void watch_fork(void)
{
	pthread_atfork(NULL, NULL, in_child);
}

unsigned cufi_fork_count(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_fork);
	/* relaxed: changes in a new process only */
	return atomic_load_explicit(&forks, memory_order_relaxed);
}

bool cufi_forked(const cuf_runtime *rt)
{
	/* relaxed: as above */
	return atomic_load_explicit(&forks, memory_order_relaxed) != rt->fork_count;
}

/* ---- cap ---- */

static uint64_t in_flight(const cuf_runtime *rt)
{
	/* seq_cst: pairs with the fetch_sub in cufi_retire: a waiter for room listed itself before */
	return atomic_load(&((cuf_runtime *)rt)->outstanding) +
	       atomic_load(&((cuf_runtime *)rt)->reserved);
}

cuf_status cufi_reserve(cuf_runtime *rt, size_t n)
{
	uint64_t r;

	if (!n)
		return CUF_OK;
	if (n > rt->options.cap)
		return CUF_ERR_BUSY;
	/* relaxed: a guess for the CAS */
	r = atomic_load_explicit(&rt->reserved, memory_order_relaxed);
	do {
		/* relaxed: the cap is kept to within what races past it at one instant */
		if (atomic_load_explicit(&rt->outstanding, memory_order_relaxed) + r + n >
		    rt->options.cap)
			return CUF_ERR_BUSY;
	} while (!atomic_compare_exchange_weak_explicit(
		&rt->reserved, &r, r + n, memory_order_relaxed, memory_order_relaxed));
	return CUF_OK;
}

static void wake_rooms(cuf_runtime *rt, bool all);

void cufi_unreserve(cuf_runtime *rt, size_t n)
{
	if (!n)
		return;
	/* seq_cst: as in cufi_retire */
	atomic_fetch_sub(&rt->reserved, n);
	if (atomic_load(&rt->rooms))
		wake_rooms(rt, false);
}

/* One operation of what @s reserved. */
static bool draw(cuf_scope *s)
{
	/* relaxed: a count */
	size_t n = atomic_load_explicit(&s->reserved, memory_order_relaxed);

	while (n) {
		if (atomic_compare_exchange_weak_explicit(
			    &s->reserved, &n, n - 1, memory_order_relaxed, memory_order_relaxed)) {
			atomic_fetch_sub_explicit(&s->rt->reserved, 1, memory_order_relaxed);
			return true;
		}
	}
	return false;
}

cuf_status cufi_admit_gate(const cuf_runtime *rt)
{
	/* acquire: pairs with the store in cuf_runtime_shutdown */
	uint32_t gate = atomic_load_explicit(&((cuf_runtime *)rt)->gate, memory_order_acquire);

	return gate && (gate > 1 || !cufi_in_callback(rt)) ? CUF_ERR_SHUTDOWN : CUF_OK;
}

cuf_status cufi_admit(cuf_scope *s, bool always)
{
	cuf_runtime *rt = s->rt;
	uint64_t n;

	if (cufi_forked(rt))
		return CUF_ERR_FORKED;
	if (cufi_admit_gate(rt) != CUF_OK)
		return CUF_ERR_SHUTDOWN;
	if (always || draw(s))
		return CUF_OK;
	if (cufi_scope_has(s, CUFI_SCOPE_BUSY))
		return CUF_ERR_BUSY;
	/* relaxed: as in cufi_reserve */
	n = atomic_load_explicit(&rt->outstanding, memory_order_relaxed) +
	    atomic_load_explicit(&rt->reserved, memory_order_relaxed);
	/* From three quarters on, what nobody waits for is looked at all the same. */
	if (n >= rt->options.cap - rt->options.cap / 4 && n % WANT_EVERY == 0)
		rt->up.want_all(rt);
	return n >= rt->options.cap + (cufi_in_callback(rt) ? rt->options.reserve : 0)
		       ? CUF_ERR_BUSY
		       : CUF_OK;
}

/* ---- room ---- */

struct room {
	struct cufi_op *next; /* rt->room_list; under rooms_lock */
	uint64_t operations;
};

static void room_ready(struct cufi_op *op)
{
	if (cufi_claim(op->future, CUFI_BIT(CUFI_HELD), CUFI_SETTLING))
		cufi_settle_value(op->future, NULL, NULL, true);
	else
		cufi_op_drop(op);
}

static const struct cufi_op_class room_class = {
	.name = "room",
	.params_bytes = sizeof(struct room),
	.ready = room_ready,
};

/* Takes everybody (or all for whom there is room now) off the list, in the order they came. */
static void wake_rooms(cuf_runtime *rt, bool all)
{
	struct cufi_op *op, *next, *go = NULL, **end = &go, **at;

	cufi_lock_take(&rt->rooms_lock);
	for (at = &rt->room_list; (op = *at) != NULL;) {
		struct room *r = cufi_op_params(op);

		if (!all && in_flight(rt) + r->operations > rt->options.cap + 1) {
			/* the room itself is one of those outstanding */
			at = &r->next;
			continue;
		}
		*at = r->next;
		r->next = NULL;
		*end = op;
		end = &r->next;
		/* seq_cst: pairs with the load in cufi_retire */
		atomic_fetch_sub(&rt->rooms, 1);
	}
	cufi_lock_give(&rt->rooms_lock);
	for (op = go; op; op = next) {
		next = ((struct room *)cufi_op_params(op))->next;
		room_ready(op);
	}
}

cuf_future *cuf_room_with(cuf_scope *s, size_t operations, const cuf_options *o)
{
	struct cufi_begin b;
	struct cufi_op **at;
	struct room *r;
	cuf_runtime *rt;

	if (!cufi_begin(&b, s, &room_class, o, 0, 0, CUFI_ALWAYS))
		return b.future;
	rt = s->rt;
	if (operations > rt->options.cap)
		return cufi_begin_failed(&b,
					 "room for %zu operations can never be had: the cap is %zu",
					 operations, rt->options.cap);
	r = cufi_op_params(b.op);
	r->operations = operations;
	cufi_lock_take(&rt->rooms_lock);
	for (at = &rt->room_list; *at; at = &((struct room *)cufi_op_params(*at))->next)
		;
	*at = b.op;
	/* seq_cst: pairs with the load in cufi_retire: either it sees us, or we see its count */
	atomic_fetch_add(&rt->rooms, 1);
	cufi_lock_give(&rt->rooms_lock);
	wake_rooms(rt, false);
	/* Who waits for room waits for whatever is in flight. */
	rt->up.want_all(rt);
	return b.future;
}

void cufi_rooms_flush(cuf_runtime *rt)
{
	wake_rooms(rt, true);
}

void cufi_retire(cuf_runtime *rt, uint64_t n)
{
	/*
	 * Once the count is 0, a shutdown may go on and rt be destroyed; its memory stays a runtime's
	 * (runtime.c), so that these looks are harmless.
	 * seq_cst: pairs with cuf_room_with and cuf_runtime_shutdown: who announced himself before
	 * he looked at the count is seen here, or sees the new count
	 */
	uint64_t left = atomic_fetch_sub(&rt->outstanding, n) - n;

	if (atomic_load(&rt->rooms))
		wake_rooms(rt, false);
	if (!left && atomic_load(&rt->gate)) {
		/* relaxed: parked on by shutdown, which looks at the count again */
		atomic_fetch_add_explicit(&rt->drained, 1, memory_order_relaxed);
		cufi_wake(&rt->drained, INT32_MAX);
	}
}
