/* SPDX-License-Identifier: MIT */
/*
 * What a program asks of a future: its state, to wait for it, its value, its times, to cancel it.
 * Errors: error.c.
 */
#include "error.h"
#include "future.h"
#include "loop.h"
#include "op.h"
#include "scope.h"

uint64_t cuf_now_ns(void)
{
	return cufi_now_ns();
}

cuf_status cuf_poll(const cuf_future *f)
{
	uint32_t w;

	if (!f)
		return CUF_ERR_INVALID;
	cufi_check_future(f, "cuf_poll");
	w = cufi_word(f);
	if (cufi_word_settled(w))
		return cufi_word_status(w);
	return cufi_forked(f->rt) ? CUF_ERR_FORKED : CUF_PENDING;
}

void *cuf_value(const cuf_future *f)
{
	uint32_t w;

	if (!f)
		return NULL;
	cufi_check_future(f, "cuf_value");
	w = cufi_word(f);
	if (w & CUFI_IMMORTAL || !cufi_word_settled(w) || cufi_word_status(w) != CUF_OK)
		return NULL;
	return f->value_kind == CUFI_VALUE_OTHER ? f->u.other->u.own.value : f->u.own.value;
}

cuf_status cuf_times_of(const cuf_future *f, cuf_times *out_times)
{
	struct cufi_timing *t;
	uint32_t w;

	if (!f || !out_times)
		return CUF_ERR_INVALID;
	*out_times = (cuf_times){ 0, 0, 0 };
	w = cufi_word(f);
	if (!cufi_word_settled(w))
		return CUF_PENDING;
	t = f->op ? cufi_op_timing(f->op) : NULL;
	if (!t || !t->ended_ns)
		return CUF_ERR_UNSUPPORTED;
	*out_times = (cuf_times){ t->submitted_ns, t->started_ns, t->ended_ns };
	return CUF_OK;
}

/* ---- waiting ---- */

/* Sleeps on the word until @until, or shorter. */
static uint32_t nap(cuf_future *f, uint32_t w, uint64_t until)
{
	/* relaxed: the flag publishes nothing; the outcome is read with acquire behind it */
	if (!(w & (CUFI_LOCK | CUFI_PARKED)) &&
	    !atomic_compare_exchange_strong_explicit(&f->word, &w, w | CUFI_PARKED,
						     memory_order_relaxed, memory_order_relaxed))
		return cufi_word(f);
	if (!(w & CUFI_LOCK))
		cufi_park_sharp(&f->word, w | CUFI_PARKED, until);
	return cufi_word(f);
}

/*
 * Asks the device itself for a while, where that can be quicker than to be woken: at once, and again
 * when the operation is due, after a sleep until shortly before.
 */
static uint32_t spin(cuf_future *f, uint64_t deadline_ns)
{
	cuf_runtime *rt = f->rt;
	uint32_t w = cufi_word(f);
	uint64_t now, until, due;
	bool napped = false;
	unsigned spins = 0;

	if (cufi_word_settled(w) || !rt->spin_ns)
		return w;
	now = cufi_now_ns();
	until = now + rt->spin_ns;
	while (!cufi_word_settled(w = cufi_word(f)) && now < until && now < deadline_ns) {
		if (cufi_state_of(w) != CUFI_QUEUED) {
			cufi_relax(&spins);
		} else if (!napped && (due = rt->up.expect(f)) != 0) {
			napped = true;
			w = nap(f, w, due < deadline_ns ? due : deadline_ns);
			until = cufi_now_ns() + rt->spin_ns;
		} else if (!rt->up.help(f)) {
			cufi_relax(&spins);
		}
		now = cufi_now_ns();
	}
	return w;
}

static cuf_status wait(cuf_future *f, uint64_t deadline_ns)
{
	uint32_t w = spin(f, deadline_ns);

	while (!cufi_word_settled(w)) {
		if (w & CUFI_LOCK) {
			cufi_word_unlock(&f->word, cufi_word_lock(&f->word));
			w = cufi_word(f);
			continue;
		}
		/* relaxed: the flag publishes nothing; the outcome is read with acquire below */
		if (!(w & CUFI_PARKED) && !atomic_compare_exchange_weak_explicit(
						  &f->word, &w, w | CUFI_PARKED,
						  memory_order_relaxed, memory_order_relaxed)) {
			w = cufi_word(f);
			continue;
		}
		w |= CUFI_PARKED;
		if (cufi_state_of(w) == CUFI_QUEUED)
			f->rt->up.observe(f);
		CUFI_TESTPOINT("ask:park");
		if (!cufi_park(&f->word, w, deadline_ns)) {
			w = cufi_word(f);
			break;
		}
		w = cufi_word(f);
	}
	return cufi_word_settled(w) ? cufi_word_status(w) : CUF_PENDING;
}

cuf_status cuf_wait_until(cuf_future *f, uint64_t deadline_ns)
{
	cuf_status st;

	if (!f)
		return CUF_ERR_INVALID;
	cufi_check_future(f, "cuf_wait");
	st = cuf_poll(f);
	if (st == CUF_PENDING) {
		if (cufi_in_callback(f->rt))
			return CUF_ERR_WOULD_DEADLOCK;
		/* somebody may release it meanwhile: it has to outlive the wait */
		cufi_hold(f, CUFI_HOLD);
		st = wait(f, deadline_ns);
		if (st < 0)
			cufi_root_look(cufi_root_of(f));
		cufi_let_go(f, CUFI_HOLD);
		return st;
	}
	if (st < 0 && st != CUF_ERR_FORKED)
		cufi_root_look(cufi_root_of(f));
	return st;
}

cuf_status cuf_wait(cuf_future *f)
{
	return cuf_wait_until(f, CUF_FOREVER);
}

/* ---- cancel ---- */

bool cufi_cancel(cuf_future *f, cuf_status st)
{
	struct cufi_op *op = f->op;
	struct cufi_root *r;
	/* relaxed: the bit never changes */
	bool promise = atomic_load_explicit(&f->word, memory_order_relaxed) & CUFI_PROMISE;

	if ((op->cls->fixed && st == CUF_ERR_CANCELLED) ||
	    !cufi_claim(f, CUFI_CANCELLABLE, CUFI_SETTLING))
		return false;
	r = cufi_root_new(f->rt, st, CUF_PHASE_SUBMIT, op, "%s was %s before it was enqueued",
			  op->cls->name,
			  st == CUF_ERR_CANCELLED ? "cancelled" : "stopped by the shutdown");
	/* Nothing trails a promise. A scope that nobody closes must not hold up a shutdown. */
	cufi_settle_error(f, &r->own, promise || op->cls->fixed);
	cufi_op_cut_promises(op);
	return true;
}

cuf_status cuf_cancel(cuf_future *f)
{
	uint32_t w;
	bool won;

	if (!f)
		return CUF_ERR_INVALID;
	cufi_check_future(f, "cuf_cancel");
	w = cufi_word(f);
	if (w & CUFI_IMMORTAL || cufi_word_settled(w))
		return CUF_ERR_TOO_LATE;
	if (cufi_forked(f->rt))
		return CUF_ERR_FORKED;
	/* What it ends may be the last that was outstanding: told when nothing of it is left to do. */
	cufi_defer_drain(1);
	won = cufi_cancel(f, CUF_ERR_CANCELLED);
	cufi_defer_drain(-1);
	return won ? CUF_OK : CUF_ERR_TOO_LATE;
}
