/* SPDX-License-Identifier: MIT */
/*
 * Futures: made, settled, finished, freed; the two lists of links and who tells them. References:
 * hold.c.
 *
 * Lists. Both are rings guarded by LOCK in the word, so that a registration can be taken away again at
 * once (a lock-free list cannot: a promise that outlives a million timeouts would keep them all).
 *
 *	f->after   device edges, told when f is QUEUED or settled, and order edges of the host,
 *	           told when f is FINISHED. Success edges leave at SETTLED at the latest.
 *	f->then    told when f is SETTLED
 *
 * A: who attaches                      B: who settles (the one claimant)
 *  a1 takes LOCK                        b1 writes outcome and value (state SETTLING)
 *  a2 level reached? gives LOCK back,   b2 takes LOCK
 *     handles it itself                 b3 detaches the lists, stores SETTLED
 *  a3 else appends, gives LOCK back     b4 hands continuations to their loops, in order
 *                                       b5 gives LOCK back, tells the rest of what was detached
 *
 * a2 and b3 exclude each other, so a link is either seen by b3 or sees SETTLED. Order of attachment is
 * the order of the ring, and a continuation attached after b3 comes to a2 only after b4: it starts
 * behind those that were in the ring. Where the word has neither LINKS nor LOCK nor PARKED, b2 to b5
 * are one CAS.
 *
 * What b5 has to tell goes onto a list of the calling thread, and so does what is to be freed; one
 * loop at the bottom of the stack serves both. A chain of any length needs one frame.
 */
#include "future.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "loop.h"
#include "op.h"
#include "scope.h"

/* ---- what the thread has collected ---- */

static _Thread_local struct {
	struct cufi_link *first, **last; /* links to tell, through ->next */
	cuf_future *dead;		 /* futures to free, through ->then: nobody attaches now */
	cuf_runtime *rt;		 /* of these: */
	uint64_t retired;		 /* finished, not yet taken off rt->outstanding */
	bool draining;
	int deferred;
} work;

static void future_free(cuf_future *f);

/*
 * A runtime may be destroyed once nothing is outstanding: so that count falls when this thread has
 * nothing of it left to touch.
 */
static void flush_retired(void)
{
	uint64_t n = work.retired;

	work.retired = 0;
	if (n)
		cufi_retire(work.rt, n);
}

static void retire(cuf_runtime *rt)
{
	if (work.rt != rt)
		flush_retired();
	work.rt = rt;
	work.retired++;
}

void cufi_drain(void)
{
	if (work.draining || work.deferred)
		return;
	work.draining = true;
	for (;;) {
		struct cufi_link *l = work.first;

		if (l) {
			work.first = l->next;
			if (!work.first)
				work.last = NULL;
			cufi_link_tell(l);
		} else if (work.dead) {
			cuf_future *f = work.dead;

			work.dead = (cuf_future *)f->then;
			future_free(f);
		} else {
			break;
		}
	}
	work.draining = false;
	flush_retired();
}

void cufi_forget_work(void)
{
	work.first = NULL;
	work.last = NULL;
	work.dead = NULL;
	work.retired = 0;
}

void cufi_defer_drain(int delta)
{
	work.deferred += delta;
	if (!work.deferred)
		cufi_drain();
}

void cufi_future_dead(cuf_future *f)
{
	f->then = (struct cufi_link *)work.dead;
	work.dead = f;
	cufi_drain();
}

/* ---- rings ---- */

static void ring_append(struct cufi_link **ring, struct cufi_link *l)
{
	struct cufi_link *last = *ring;

	if (last) {
		l->next = last->next;
		l->prev = last;
		last->next->prev = l;
		last->next = l;
	} else {
		l->next = l->prev = l;
	}
	*ring = l;
}

static void ring_remove(struct cufi_link **ring, struct cufi_link *l)
{
	if (l->next == l) {
		*ring = NULL;
		return;
	}
	l->next->prev = l->prev;
	l->prev->next = l->next;
	if (*ring == l)
		*ring = l->prev;
}

/* Moves a whole ring to the thread's work. LOCK is held. */
static void collect(struct cufi_link **ring)
{
	struct cufi_link *last = *ring, *first, *l;

	if (!last)
		return;
	first = last->next;
	last->next = NULL;
	for (l = first; l; l = l->next)
		l->op_bits &= ~(uintptr_t)CUFI_LINK_ATTACHED;
	*(work.last ? work.last : &work.first) = first;
	work.last = &last->next;
	*ring = NULL;
}

/*
 * b4. What can be handed to a loop is; the rest moves to the thread's work. LOCK is held, the word says
 * SETTLED. Nothing else may be done here: what tells an operation can need LOCK of another future.
 */
static void push_then(cuf_future *f)
{
	struct cufi_link *last = f->then, *l, *next;

	l = last->next;
	last->next = NULL;
	f->then = NULL;
	for (; l; l = next) {
		struct cufi_op *op = cufi_link_op(l);

		next = l->next;
		l->op_bits &= ~(uintptr_t)CUFI_LINK_ATTACHED;
		if (op->cls->push && op->cls->push(op, l))
			continue;
		l->next = NULL;
		*(work.last ? work.last : &work.first) = l;
		work.last = &l->next;
	}
}

/* Moves the links of @ring for which @level (and, if @success, being a success edge) holds. */
static void collect_some(struct cufi_link **ring, enum cufi_level level, bool success)
{
	struct cufi_link *last = *ring, *l, *next, *keep = NULL;

	if (!last)
		return;
	l = last->next;
	last->next = NULL;
	for (; l; l = next) {
		next = l->next;
		if (cufi_link_level(l) <= level && !(success && l->op_bits & CUFI_LINK_ORDER)) {
			l->op_bits &= ~(uintptr_t)CUFI_LINK_ATTACHED;
			l->next = NULL;
			*(work.last ? work.last : &work.first) = l;
			work.last = &l->next;
		} else {
			ring_append(&keep, l);
		}
	}
	*ring = keep;
}

static uint32_t with_links(const cuf_future *f, uint32_t w)
{
	return f->after || f->then ? w | CUFI_LINKS : w & ~CUFI_LINKS;
}

bool cufi_attach(struct cufi_link *l, enum cufi_level level)
{
	cuf_future *f = l->on;
	uint32_t w;
	bool wait, observe = false;

	/* acquire: pairs with cufi_word_unlock: the outcome */
	w = atomic_load_explicit(&f->word, memory_order_acquire);
	if (w & CUFI_FINISHED && cufi_word_settled(w) && !(w & CUFI_LOCK))
		return false;
	if (level == CUFI_AT_QUEUED && cufi_state_of(w) == CUFI_QUEUED)
		return false;
	CUFI_TESTPOINT("future:attach");
	w = cufi_word_lock(&f->word);
	switch (cufi_state_of(w)) {
	case CUFI_SETTLED:
		wait = !(w & CUFI_FINISHED) &&
		       (level == CUFI_AT_FINISHED ||
			(level == CUFI_AT_QUEUED && l->op_bits & CUFI_LINK_ORDER));
		break;
	case CUFI_QUEUED:
		wait = level != CUFI_AT_QUEUED;
		observe = wait;
		break;
	default:
		wait = true;
	}
	if (wait) {
		l->op_bits = (l->op_bits & ~(uintptr_t)CUFI_LINK_LEVEL) | level |
			     CUFI_LINK_ATTACHED;
		ring_append(level == CUFI_AT_SETTLED ? &f->then : &f->after, l);
		w |= CUFI_LINKS;
	}
	/* Once LOCK is given back, the link may be told and f, which the link held, may go. */
	if (observe)
		cufi_hold(f, CUFI_HOLD);
	cufi_word_unlock(&f->word, w);
	if (observe) {
		f->rt->up.observe(f);
		cufi_let_go(f, CUFI_HOLD);
	}
	return wait;
}

bool cufi_detach(struct cufi_link *l)
{
	cuf_future *f = l->on;
	uint32_t w = cufi_word_lock(&f->word);
	bool was = l->op_bits & CUFI_LINK_ATTACHED;

	if (was) {
		ring_remove(cufi_link_level(l) == CUFI_AT_SETTLED ? &f->then : &f->after, l);
		l->op_bits &= ~(uintptr_t)CUFI_LINK_ATTACHED;
	}
	cufi_word_unlock(&f->word, with_links(f, w));
	return was;
}

/* ---- made and freed ---- */

cuf_future *cufi_future_new(cuf_scope *s, struct cufi_op *op, uint32_t extra)
{
	cuf_runtime *rt = s->rt;
	cuf_future *f = cufi_slab_get(&rt->futures);
	uint32_t w = CUFI_FREE, generation;
	unsigned spins = 0;

	if (!f)
		return NULL;
	/* relaxed: only who takes or frees the memory writes it */
	generation = atomic_load_explicit(&f->generation, memory_order_relaxed);
	atomic_store_explicit(&f->generation, generation + 1, memory_order_relaxed);
	atomic_store_explicit(&f->refs, CUFI_NAME + CUFI_HOLD, memory_order_relaxed);
	atomic_store_explicit(&f->ext, CUFI_EXT_ONE | CUFI_EXT_OWED, memory_order_relaxed);
	f->value_kind = CUFI_VALUE_OWN;
	f->rt = rt;
	f->after = f->then = NULL;
	f->u.own.value = NULL;
	f->u.own.drop = NULL;
	atomic_store_explicit(&f->lane, NULL, memory_order_relaxed);
	f->seq = 0;
	f->event = NULL;
	f->op = op;
	op->future = f;
	/* relaxed: a count */
	atomic_fetch_add_explicit(&rt->outstanding, 1, memory_order_relaxed);
	/* A thread with a stale pointer may hold LOCK for an instant (edge.c looks at its tail); it
	 * sees FREE and reads no more.
	 * release: pairs with the acquire loads of the word: all of the above */
	while (!atomic_compare_exchange_weak_explicit(&f->word, &w, CUFI_HELD | extra,
						      memory_order_release, memory_order_relaxed)) {
		w = CUFI_FREE;
		cufi_relax(&spins);
	}
	cufi_scope_enter(s);
	cufi_scope_add_member(s, f);
	return f;
}

void cufi_drop_value(cuf_runtime *rt, cuf_drop_fn *drop, void *value)
{
	if (!drop)
		return;
	cufi_callback_enter(rt);
	drop(value);
	cufi_callback_leave();
}

static void drop_value(cuf_future *f, uint32_t w)
{
	if (cufi_word_status(w) != CUF_OK)
		cufi_root_let_go(f->u.error->root);
	else if (f->value_kind == CUFI_VALUE_OTHER)
		cufi_let_go(f->u.other, CUFI_HOLD);
	else if (f->u.own.drop)
		cufi_drop_value(f->rt, f->u.own.drop, f->u.own.value);
}

static void future_free(cuf_future *f)
{
	cuf_runtime *rt = f->rt;
	unsigned spins = 0;
	/* relaxed: the last hold was let go of with acq_rel */
	uint32_t w = atomic_load_explicit(&f->word, memory_order_relaxed);

	cufi_scope_remove_member(f);
	drop_value(f, w);
	cufi_op_free(rt, f->op);
	f->op = NULL;
	/* relaxed: as in cufi_future_new */
	atomic_store_explicit(&f->generation,
			      atomic_load_explicit(&f->generation, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	/* A stale LOCK goes at once; nobody sleeps for the outcome of what nobody refers to.
	 * release: pairs with the acquire of who locks it by a stale pointer */
	while (w & (CUFI_LOCK | CUFI_PARKED) ||
	       !atomic_compare_exchange_weak_explicit(&f->word, &w, CUFI_FREE, memory_order_release,
						      memory_order_relaxed)) {
		cufi_relax(&spins);
		w = atomic_load_explicit(&f->word, memory_order_relaxed);
	}
	cufi_slab_put(&rt->futures, f);
}

void cufi_future_purge(cuf_future *f)
{
	/* relaxed: nobody else is left */
	uint32_t w = atomic_load_explicit(&f->word, memory_order_relaxed);

	if (!cufi_word_settled(w) ||
	    !(uint32_t)atomic_load_explicit(&f->refs, memory_order_relaxed))
		return;
	if (cufi_word_status(w) != CUF_OK || f->value_kind == CUFI_VALUE_OWN)
		drop_value(f, w);
	cufi_op_free(f->rt, f->op);
}

/* ---- settled ---- */

/* State SETTLING, outcome and value written: stores SETTLED and tells. */
static void publish(cuf_future *f, int status, bool finished)
{
	cuf_runtime *rt = f->rt;
	cuf_scope *s = f->op->scope;
	uint32_t out = CUFI_SETTLED | (uint32_t)-status << CUFI_OUTCOME_SHIFT;
	struct cufi_event *event = NULL;
	/* relaxed: a guess for the CAS */
	uint32_t w = atomic_load_explicit(&f->word, memory_order_relaxed);

	/* relaxed: statistics */
	atomic_fetch_add_explicit(status == CUF_OK		? &rt->n_succeeded
				  : status == CUF_ERR_CANCELLED ? &rt->n_cancelled
								: &rt->n_failed,
				  1, memory_order_relaxed);
	if (cufi_traced(rt))
		cufi_trace_settled(f, status);
	CUFI_TESTPOINT("future:publish");
	if (finished && status == CUF_OK && !f->event &&
	    !(w & (CUFI_LOCK | CUFI_PARKED | CUFI_LINKS)) &&
	    /* release: pairs with the acquire loads of the word: outcome and value */
	    atomic_compare_exchange_strong_explicit(&f->word, &w,
						    (w & CUFI_PROMISE) | out | CUFI_FINISHED,
						    memory_order_release, memory_order_relaxed)) {
		/* nobody to tell */
	} else {
		w = cufi_word_lock(&f->word);
		finished |= (w & CUFI_FINISHED) != 0;
		event = f->event;
		f->event = NULL;
		if (finished)
			collect(&f->after);
		else
			collect_some(&f->after, CUFI_AT_SETTLED, true);
		if (status != CUF_OK && w & CUFI_IGNORED)
			cufi_root_look(f->u.error->root);
		if (status != CUF_OK && w & (CUFI_IGNORED | CUFI_FORGIVEN))
			cufi_scope_handled(s, f->u.error->root);
		w = (w & CUFI_PROMISE) | out | (finished ? CUFI_FINISHED : 0);
		if (f->then) {
			cufi_word_set(&f->word, w);
			CUFI_TESTPOINT("future:push");
			push_then(f);
		}
		cufi_word_unlock(&f->word, with_links(f, w));
	}
	if (event)
		rt->up.event_put(event);
	if (finished) {
		retire(rt);
		cufi_scope_leave(s);
		cufi_let_go(f, CUFI_HOLD);
	}
	cufi_drain();
}

void cufi_future_finish(cuf_future *f)
{
	cuf_runtime *rt = f->rt;
	cuf_scope *s = f->op->scope;
	uint32_t w = cufi_word_lock(&f->word);
	bool settled = cufi_word_settled(w);

	if (settled)
		collect(&f->after);
	cufi_word_unlock(&f->word, with_links(f, w | CUFI_FINISHED));
	if (!settled)
		return; /* SETTLING: publish() sees the bit and does the rest */
	retire(rt);
	cufi_scope_leave(s);
	cufi_let_go(f, CUFI_HOLD);
	cufi_drain();
}

bool cufi_future_done(cuf_future *f)
{
	cuf_runtime *rt = f->rt;
	cuf_scope *s = f->op->scope;
	struct cufi_event *event;
	/* relaxed: a guess for the CAS */
	uint32_t w = atomic_load_explicit(&f->word, memory_order_relaxed);

	/* The value is none: so cufi_future_new left it. */
	if (w != CUFI_QUEUED || cufi_traced(rt))
		return false;
	/* acq_rel: pairs with the acquire loads of the word: the outcome; and with who gave it an
	 * event under LOCK, which nobody does any more behind this */
	if (!atomic_compare_exchange_strong_explicit(&f->word, &w, CUFI_SETTLED | CUFI_FINISHED,
						     memory_order_acq_rel, memory_order_relaxed))
		return false;
	event = f->event;
	f->event = NULL;
	if (event)
		rt->up.event_put(event);
	retire(rt);
	cufi_scope_leave(s);
	cufi_let_go(f, CUFI_HOLD);
	return true;
}

void cufi_settle_value(cuf_future *f, void *value, cuf_drop_fn *drop, bool finished)
{
	f->value_kind = CUFI_VALUE_OWN;
	f->u.own.value = value;
	f->u.own.drop = drop;
	publish(f, CUF_OK, finished);
}

void cufi_settle_error(cuf_future *f, const cuf_error *e, bool finished)
{
	f->u.error = e;
	if (!cufi_op_has(f->op, CUFI_OP_INTERNAL))
		cufi_scope_note(f->op->scope, e->root);
	else
		cufi_root_look(e->root);
	publish(f, e->root->status, finished);
}

void cufi_settle_as(cuf_future *f, cuf_future *as, bool finished)
{
	int status = cufi_word_status(cufi_word(as));

	if (status != CUF_OK) {
		struct cufi_root *root = cufi_root_of(as);
		bool unknown = !cufi_is_immortal(as) && as->u.error->outcome_unknown;

		cufi_root_hold(root);
		cufi_settle_error(f, unknown ? &root->unknown : &root->inherited, finished);
		return;
	}
	if (as->value_kind == CUFI_VALUE_OTHER)
		as = as->u.other;
	if (cufi_is_immortal(as) || (!as->u.own.value && !as->u.own.drop)) {
		cufi_settle_value(f, NULL, NULL, finished);
		return;
	}
	cufi_hold(as, CUFI_HOLD);
	f->value_kind = CUFI_VALUE_OTHER;
	f->u.other = as;
	publish(f, CUF_OK, finished);
}

void cufi_future_queued(cuf_future *f)
{
	uint32_t w;

	CUFI_TESTPOINT("future:queued");
	/* relaxed: a guess for the CAS */
	w = atomic_load_explicit(&f->word, memory_order_relaxed);
	if (!(w & (CUFI_LOCK | CUFI_PARKED | CUFI_LINKS)) &&
	    /* seq_cst: pairs as cufi_word_unlock */
	    atomic_compare_exchange_strong(&f->word, &w, cufi_word_with(w, CUFI_QUEUED)))
		return;
	w = cufi_word_lock(&f->word);
	collect_some(&f->after, CUFI_AT_QUEUED, false);
	w = with_links(f, w);
	/* Who sleeps on the word is woken, sees QUEUED, and asks for the end himself. */
	cufi_word_unlock(&f->word, cufi_word_with(w, CUFI_QUEUED));
}
