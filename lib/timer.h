/* SPDX-License-Identifier: MIT */
/*
 * Deadlines: one thread, one heap. The thread makes no CUDA call and runs no user code but drops of
 * values; it settles timeouts and wakes others. It also gives the tick (completer.c).
 */
#ifndef CUFI_TIMER_H
#define CUFI_TIMER_H

#include "core.h"

#define CUFI_TIMER_OFF 0

/* The parameters of an operation with a deadline begin with this. */
struct cufi_timer {
	uint64_t deadline_ns;
	size_t index; /* in the heap + 1, or OFF; under the timers' lock */
	void (*fired)(struct cufi_op *op);
};

int cufi_timers_start(cuf_runtime *rt, const struct cufi_thread_options *o);
void cufi_timers_stop(cuf_runtime *rt);

/* False: no memory. The operation's future is alive until it was removed or fired. */
bool cufi_timer_add(struct cufi_op *op, uint64_t deadline_ns);
void cufi_timer_remove(struct cufi_op *op);

/*
 * From now on rt->up.tick is called every CUFI_TICK_NS, on the timer thread, until it returns false.
 * Cheap when the tick is on already.
 */
#define CUFI_TICK_NS \
	5000000u /* two of them see a dropped or late callback: 10 ms at most (DESIGN) */
void cufi_tick_on(cuf_runtime *rt);

#endif
