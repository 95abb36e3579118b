/* SPDX-License-Identifier: MIT */
/*
 * A session: a worker runs what is on one stream, in order, until nothing is left or the first of
 * it must wait. And faults: how a device is lost.
 *
 * A fault is seen by nobody while anything still runs on the device: on a GPU the error is
 * reported once all kernels are dead, and who sees it may free what they used. Here a C function
 * cannot be killed: so no operation starts once faulting is set, and lost, which all calls return,
 * is set when the last session has ended. Then every stream runs again, and only lets go of what
 * is on it.
 */
#include <stdlib.h>
#include <string.h>

#include "host.h"

#define LOOK_TURNS  60			  /* of cufi_relax(), about 3 us (arbitrary) */
#define SPARE_LIMIT (2 * CUFI_HOST_DEPTH) /* operations a stream keeps: work, and a record each */

static _Thread_local int fault_here; /* cuf_host_fault() of the kernel that runs now */

void cuf_host_fault(int code)
{
	fault_here = code;
}

/* ---- faults ---- */

/* The caller's session is over. */
static void publish_fault(struct host_device *d)
{
	int none = 0;
	/* relaxed: a fault in a session is ordered by active, see begin_session() */
	int code = atomic_load_explicit(&d->faulting, memory_order_relaxed);

	if (code == 0)
		return;
	CUFI_TESTPOINT("host:lost"); /* nothing runs on the device any more, no call says so yet */
	/* release: pairs with cufi_host_begin(), cufi_host_lost(): all that ran on the device;
	 * relaxed: another was first, and kicks */
	if (atomic_compare_exchange_strong_explicit(&d->lost, &none, code, memory_order_release,
						    memory_order_relaxed))
		cufi_host_kick_all(d);
}

/*
 * A session: (a) active is raised, (b) faulting is read before each operation. A fault: (c)
 * faulting is written, (d) active is lowered. If (b) sees no fault, (a) came before (c), and (d)
 * is not the last: that session's own end is, and publishes.
 */
static void begin_session(struct host_device *d)
{
	/* seq_cst: pairs with set_fault(): (a) before (b) */
	atomic_fetch_add_explicit(&d->active, 1, memory_order_seq_cst);
}

static void end_session(struct host_device *d)
{
	/* seq_cst: pairs with begin_session() of others: (c) before (d), and what this one did */
	if (atomic_fetch_sub_explicit(&d->active, 1, memory_order_seq_cst) == 1)
		publish_fault(d);
}

static void set_fault(struct host_device *d, int code)
{
	int none = 0;

	CUFI_TESTPOINT("host:fault"); /* an operation ended in a fault, others may be running */
	/* seq_cst: pairs with is_faulting(): (c) before (d). The first fault counts. */
	atomic_compare_exchange_strong_explicit(&d->faulting, &none, code, memory_order_seq_cst,
						memory_order_seq_cst);
}

static bool is_faulting(struct host_device *d)
{
	/* seq_cst: pairs with set_fault(): (b) */
	return atomic_load_explicit(&d->faulting, memory_order_seq_cst) != 0;
}

/* ---- one operation ---- */

enum step { STEP_DONE, STEP_BLOCKED };

static bool is_held(struct CUstream_st *s, struct host_device *d)
{
	/* seq_cst: pairs with cuf_host_gate(), cuf_host_stall(): who opens kicks afterwards */
	return atomic_load_explicit(&s->stalled, memory_order_seq_cst) ||
	       atomic_load_explicit(&d->gate, memory_order_seq_cst);
}

static void run_kernel(const struct host_op *op)
{
	const struct host_kernel *k = op->u.launch.kernel;
	const unsigned char *bytes = op->owned != NULL ? op->owned : op->payload;
	void *args[CUFI_HOST_ARGS];
	size_t i;

	for (i = 0; i < k->kernel.n_args; i++)
		args[i] = (unsigned char *)(uintptr_t)(bytes + k->offset[i]);
	k->kernel.host_fn(&op->u.launch.grid, args);
}

static enum step run_work(struct host_device *d, struct host_op *op)
{
	uint64_t slow_ns = cufi_host_slow_ns(), start_ns = slow_ns != 0 ? cufi_now_ns() : 0;

	CUFI_TESTPOINT("host:start"); /* the stream has reached a piece of work */
	fault_here = 0;
	if (cufi_host_fault_now(d)) {
		/* relaxed: ordered by fault_now() */
		fault_here = atomic_load_explicit(&d->fault_code, memory_order_relaxed);
	} else if (op->kind == HOST_LAUNCH) {
		run_kernel(op);
	} else if (op->kind == HOST_COPY) {
		memmove(op->u.copy.dst, op->u.copy.src, op->u.copy.bytes);
	} else if (op->kind == HOST_FILL) {
		memset(op->u.copy.dst, op->u.copy.byte, op->u.copy.bytes);
	} else {
		op->u.call.fn(op->u.call.arg);
	}
	if (slow_ns != 0)
		cufi_host_sleep_until(start_ns + slow_ns);
	if (fault_here == 0)
		return STEP_DONE;
	set_fault(d, fault_here);
	return STEP_BLOCKED;
}

static enum step run_wait(struct CUstream_st *s, struct host_op *op)
{
	struct CUstream_st *on = op->u.wait.on;

	if (!op->u.wait.asked && cufi_host_reached(on, op->u.wait.seq))
		return STEP_DONE;
	if (!op->u.wait.asked) {
		op->u.wait.asked = true;
		s->waiter = (struct host_waiter){ .seq = op->u.wait.seq, .kick = s };
	}
	CUFI_TESTPOINT("host:wait"); /* the stream has found an event pending */
	return cufi_host_wait_for(on, &s->waiter) ? STEP_DONE : STEP_BLOCKED;
}

static enum step run_func(struct CUstream_st *s, struct host_op *op, bool lost)
{
	uint64_t delay_ns;
	int mode;

	/* acquire: pairs with call_func() in func.c: the function has returned */
	switch (atomic_load_explicit(&op->u.call.state, memory_order_acquire)) {
	case FUNC_DONE:
		return STEP_DONE;
	case FUNC_HANDED:
		return STEP_BLOCKED;
	default:
		break;
	}
	mode = cufi_host_mode(&delay_ns);
	if (mode == CUF_HOST_FUNC_DROP || (lost && mode != CUF_HOST_FUNC_AFTER_FAULT))
		return STEP_DONE;
	op->u.call.delay_ns = delay_ns;
	/* relaxed: published by the queue's lock */
	atomic_store_explicit(&op->u.call.state, FUNC_HANDED, memory_order_relaxed);
	cufi_host_func_hand(s);
	return STEP_BLOCKED;
}

static enum step run_first(struct CUstream_st *s, struct host_device *d, struct host_op *op)
{
	bool lost = cufi_host_lost(s->device) != 0;

	if (cufi_host_closing())
		return STEP_BLOCKED;
	if (!lost && (is_faulting(d) || is_held(s, d)))
		return STEP_BLOCKED;
	switch (op->kind) {
	case HOST_LAUNCH:
	case HOST_COPY:
	case HOST_FILL:
	case HOST_CALL:
		return lost ? STEP_DONE : run_work(d, op);
	case HOST_MALLOC:
		if (!lost)
			cufi_host_malloc_run(op);
		return STEP_DONE;
	case HOST_FREE:
		/* Nothing waits any more on a lost device: its frees would come in any order. */
		if (!lost)
			cufi_host_free_run(s, op);
		return STEP_DONE;
	case HOST_RECORD:
		if (op->u.record != NULL)
			cufi_host_event_stamp(op->u.record, s, op->seq);
		return STEP_DONE;
	case HOST_WAIT:
		return lost ? STEP_DONE : run_wait(s, op);
	case HOST_FUNC:
		return run_func(s, op, lost);
	}
	return STEP_DONE;
}

void cufi_host_op_end(struct CUstream_st *s, struct host_op *op)
{
	if (op->kind == HOST_RECORD && op->u.record != NULL)
		cufi_host_event_unref(op->u.record);
	if (op->kind == HOST_WAIT) {
		if (op->u.wait.asked)
			cufi_host_wait_cancel(op->u.wait.on, &s->waiter);
		cufi_host_stream_unref(op->u.wait.on);
	}
	free(op->owned);
}

/* ---- the session ---- */

/*
 * A moment's look for the next operation, before the stream goes idle: who enqueues one after the
 * other would else pay for a wake each time. Not under a scheduler, where it would only be noise.
 */
static void look_out(struct CUstream_st *s)
{
#ifndef CUFI_TESTPOINTS
	unsigned spins = 0, turn;

	if (cufi_cpus() == 1)
		return;
	for (turn = 0; turn < LOOK_TURNS; turn++) {
		/* relaxed: a hint; take_batch() looks under the lock */
		if (atomic_load_explicit(&s->issued, memory_order_relaxed) !=
		    atomic_load_explicit(&s->done, memory_order_relaxed))
			return;
		cufi_relax(&spins);
	}
#else
	(void)s;
#endif
}

/* True if there is something to run. Else the stream is idle, and the caller has its reference. */
static bool take_batch(struct CUstream_st *s)
{
	struct host_op *extra = NULL, *op;
	bool any;

	cufi_lock_take(&s->lock);
	while (s->n_spent != 0 && s->n_spare + s->n_spent > SPARE_LIMIT) {
		op = s->spent;
		s->spent = op->next;
		s->n_spent--;
		op->next = extra;
		extra = op;
	}
	if (s->n_spent != 0) {
		*s->spent_last = s->spare;
		s->spare = s->spent;
		s->n_spare += s->n_spent;
	}
	s->spent = NULL;
	s->n_spent = 0;
	s->batch = s->first;
	s->first = NULL;
	s->last = &s->first;
	any = s->batch != NULL;
	if (!any) {
		s->state = HOST_IDLE;
		s->again = false;
	}
	cufi_lock_give(&s->lock);
	while (extra != NULL) {
		op = extra;
		extra = op->next;
		free(op);
	}
	return any;
}

/* False if it was kicked meanwhile. */
static bool block(struct CUstream_st *s)
{
	bool blocked;

	cufi_lock_take(&s->lock);
	blocked = !s->again;
	s->again = false;
	if (blocked)
		s->state = HOST_BLOCKED;
	cufi_lock_give(&s->lock);
	return blocked;
}

void cufi_host_session(struct CUstream_st *s)
{
	struct host_device *d = &cufi_host_devices[s->device];
	struct host_op *op;

	begin_session(d);
	cufi_lock_take(&s->lock);
	s->state = HOST_RUNNING;
	cufi_lock_give(&s->lock);
	for (;;) {
		if (s->batch == NULL) {
			look_out(s);
			if (!take_batch(s)) {
				end_session(d);
				cufi_host_stream_unref(s);
				return;
			}
		}
		op = s->batch;
		if (run_first(s, d, op) == STEP_BLOCKED) {
			if (!block(s))
				continue;
			end_session(d);
			return;
		}
		s->batch = op->next;
		cufi_host_op_end(s, op);
		if (s->spent == NULL)
			s->spent_last = &op->next;
		op->next = s->spent;
		s->spent = op;
		s->n_spent++;
		cufi_host_progress(s, op->seq);
		cufi_host_op_leaves(s, op);
	}
}
