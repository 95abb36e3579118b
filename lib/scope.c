/* SPDX-License-Identifier: MIT */
/*
 * Scopes: opened, joined by members, cancelled, ended. How much may be outstanding: admission.c.
 *
 * A scope counts what is outstanding in it: its opener, members until they are FINISHED, watches until
 * they were called, child scopes until they ended. Who takes the count to 0 ends it, in this order:
 * memory that was allocated in it goes back (that may bring the count up again until the frees are
 * enqueued); defers run on its loop; members give up the references that the scope owes; the future
 * of cuf_scope_close() settles; the parent's count falls.
 *
 * The ring of members is guarded by one of the runtime's scope locks, found by the scope's address:
 * a future that dies while its scope ends looks its scope up under a lock that outlives both.
 */
#include "scope.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "begin.h"
#include "error.h"
#include "future.h"
#include "loop.h"
#include "op.h"
#include "options.h"

/* Errors that a scope keeps until it ends; the ones that were handled make room first. Arbitrary. */
#define NOTES_MAX 64

static void end_run(struct cufi_task *task, enum cufi_how how);

/* ---- scopes that are none ---- */

static cuf_scope *immortal(cuf_status born)
{
	static cuf_scope failed[] = {
		{ .born = CUF_ERR_INVALID },
		{ .born = CUF_ERR_NO_MEMORY },
		{ .born = CUF_ERR_FORKED },
	};

	for (size_t i = 1; i < sizeof failed / sizeof *failed; i++) {
		if (failed[i].born == born)
			return &failed[i];
	}
	return &failed[0];
}

/* ---- opened ---- */

static void init(cuf_scope *s, cuf_runtime *rt, cuf_scope *parent)
{
	memset(s, 0, sizeof *s);
	s->task.run = end_run;
	s->rt = rt;
	s->parent = parent;
	s->notes_end = &s->notes;
	/* relaxed: not shared yet */
	atomic_store_explicit(&s->outstanding, 1, memory_order_relaxed);
}

void cufi_scope_init_root(cuf_scope *s, cuf_runtime *rt)
{
	init(s, rt, NULL);
	s->on = &rt->loop;
	s->label[0] = 0;
	/* relaxed: not shared yet */
	atomic_store_explicit(&s->flags, CUFI_SCOPE_ROOT, memory_order_relaxed);
}

cuf_scope *cuf_scope_open_with(cuf_scope *parent, const cuf_scope_options *o)
{
	static const cuf_scope_options none = { .size = sizeof none };
	cuf_scope_options copy;
	cuf_runtime *rt;
	cuf_scope *s;
	cuf_status st;
	cufi_lock *lock;

	if (!parent)
		return immortal(CUF_ERR_INVALID);
	if (parent->born != CUF_OK)
		return immortal(parent->born);
	rt = parent->rt;
	if (cufi_forked(rt))
		return immortal(CUF_ERR_FORKED);
	if (!o)
		o = &none;
	if (o->size != sizeof *o) {
		if (!cufi_struct_read(&copy, sizeof copy, o))
			return immortal(CUF_ERR_INVALID);
		o = &copy;
	}
	if (o->on && o->on->rt != rt)
		return immortal(CUF_ERR_INVALID);
	if (o->device < 0 || o->device > cuf_runtime_devices(rt) || o->priority < CUF_LOW ||
	    o->priority > CUF_HIGH)
		return immortal(CUF_ERR_INVALID);
	st = cufi_reserve(rt, o->reserve);
	s = cufi_small_get(rt, sizeof *s);
	if (!s) {
		if (st == CUF_OK)
			cufi_unreserve(rt, o->reserve);
		return immortal(CUF_ERR_NO_MEMORY);
	}
	init(s, rt, parent);
	/* relaxed: not shared yet */
	if (st == CUF_OK)
		atomic_store_explicit(&s->reserved, o->reserve, memory_order_relaxed);
	else
		atomic_store_explicit(&s->flags, CUFI_SCOPE_BUSY, memory_order_relaxed);
	s->on = o->on ? o->on : parent->on;
	s->device = o->device ? o->device : parent->device;
	s->priority = o->priority > 0 ? 1 : o->priority < 0 ? -1 : parent->priority;
	s->file = o->file;
	s->line = o->line;
	if (o->label) {
		size_t n = strnlen(o->label, sizeof s->label - 1);

		memcpy(s->label, o->label, n);
	}
	cufi_scope_enter(parent);
	lock = cufi_scope_lock_of(parent);
	cufi_lock_take(lock);
	s->sibling_next = parent->children;
	if (parent->children)
		parent->children->sibling_prev = s;
	parent->children = s;
	/* Listed: a cancel of the parent finds it, or set this before. */
	if (cufi_scope_has(parent, CUFI_SCOPE_CANCELLED))
		/* release: pairs with cufi_scope_has */
		atomic_fetch_or_explicit(&s->flags, CUFI_SCOPE_CANCELLED, memory_order_release);
	cufi_lock_give(lock);
	return s;
}

cuf_status cuf_scope_poll(cuf_scope *s)
{
	if (!s)
		return CUF_ERR_INVALID;
	if (s->born != CUF_OK)
		return s->born;
	if (cufi_forked(s->rt))
		return CUF_ERR_FORKED;
	if (cufi_admit_gate(s->rt) != CUF_OK)
		return CUF_ERR_SHUTDOWN;
	return cufi_scope_has(s, CUFI_SCOPE_CANCELLED) ? CUF_ERR_CANCELLED
	       : cufi_scope_has(s, CUFI_SCOPE_BUSY)    ? CUF_ERR_BUSY
						       : CUF_OK;
}

cuf_status cuf_scope_defer(cuf_scope *s, cuf_drop_fn *fn, void *arg)
{
	struct cufi_defer *d;
	cufi_lock *lock;

	if (!s || !fn)
		return CUF_ERR_INVALID;
	if (s->born != CUF_OK)
		return s->born;
	if (cufi_forked(s->rt))
		return CUF_ERR_FORKED;
	d = cufi_small_get(s->rt, sizeof *d);
	if (!d)
		return CUF_ERR_NO_MEMORY;
	d->fn = fn;
	d->arg = arg;
	lock = cufi_scope_lock_of(s);
	cufi_lock_take(lock);
	d->next = s->defers;
	s->defers = d;
	cufi_lock_give(lock);
	return CUF_OK;
}

/* ---- members ---- */

void cufi_scope_add_member(cuf_scope *s, cuf_future *f)
{
	cufi_lock *lock;

	/* release: pairs with the acquire in cufi_scope_remove_member and cuf_ignore */
	atomic_store_explicit(&f->scope, s, memory_order_release);
	if (cufi_scope_has(s, CUFI_SCOPE_ROOT))
		return;
	lock = cufi_scope_lock_of(s);
	cufi_lock_take(lock);
	if (s->members) {
		f->next = s->members->next;
		f->prev = s->members;
		f->next->prev = f;
		f->prev->next = f;
	} else {
		f->next = f->prev = f;
	}
	s->members = f;
	cufi_lock_give(lock);
}

static void ring_out(cuf_scope *s, cuf_future *f)
{
	if (f->next == f) {
		s->members = NULL;
		return;
	}
	f->next->prev = f->prev;
	f->prev->next = f->next;
	if (s->members == f)
		s->members = f->prev;
}

void cufi_scope_remove_member(cuf_future *f)
{
	/* acquire: pairs with the releases in cufi_scope_add_member and finish() */
	cuf_scope *s = atomic_load_explicit(&f->scope, memory_order_acquire);
	cufi_lock *lock;

	if (!s || s == &f->rt->root)
		return;
	/* s may be gone by now: its address is only used to find the lock that tells */
	lock = &f->rt->scope_locks[((uintptr_t)s >> 6) & (CUFI_SCOPE_LOCKS - 1)];
	cufi_lock_take(lock);
	/* relaxed: written under this lock */
	if (atomic_load_explicit(&f->scope, memory_order_relaxed) == s)
		ring_out(s, f);
	atomic_store_explicit(&f->scope, NULL, memory_order_relaxed);
	cufi_lock_give(lock);
}

void cufi_scope_enter(cuf_scope *s)
{
	if (cufi_scope_has(s, CUFI_SCOPE_ROOT))
		return; /* lives as long as the runtime, which counts for itself */
	/* relaxed: who enters is inside already, or is the opener */
	atomic_fetch_add_explicit(&s->outstanding, 1, memory_order_relaxed);
}

/* ---- errors of members ---- */

void cufi_scope_note(cuf_scope *s, struct cufi_root *root)
{
	struct cufi_note *n, **at;
	cufi_lock *lock = cufi_scope_lock_of(s);
	struct cufi_root *out = NULL;
	unsigned count = 0;

	if (cufi_scope_has(s, CUFI_SCOPE_ROOT))
		return;
	n = cufi_small_get(s->rt, sizeof *n);
	if (!n)
		return; /* the futures still carry it */
	n->next = NULL;
	n->root = root;
	n->handled = false;
	cufi_root_hold(root);
	cufi_lock_take(lock);
	for (at = &s->notes; *at && (*at)->root != root; at = &(*at)->next)
		count++;
	if (*at) {
		out = root;
	} else if (count >= NOTES_MAX) {
		for (at = &s->notes; *at && !(*at)->handled; at = &(*at)->next)
			;
		if (*at) {
			struct cufi_note *old = *at;

			*at = old->next;
			if (s->notes_end == &old->next)
				s->notes_end = at;
			*s->notes_end = n;
			s->notes_end = &n->next;
			n = old;
		}
		out = n->root;
	} else {
		*s->notes_end = n;
		s->notes_end = &n->next;
	}
	cufi_lock_give(lock);
	if (out) {
		cufi_root_let_go(out);
		cufi_small_put(s->rt, n, sizeof *n);
	}
}

static void mark_handled(cuf_scope *s, struct cufi_root *root)
{
	for (struct cufi_note *n = s->notes; n; n = n->next) {
		if (n->root == root)
			n->handled = true;
	}
}

void cufi_scope_handled(cuf_scope *s, struct cufi_root *root)
{
	cufi_lock *lock = cufi_scope_lock_of(s);

	cufi_lock_take(lock);
	mark_handled(s, root);
	cufi_lock_give(lock);
}

void cufi_scope_forgive(cuf_future *f, struct cufi_root *root)
{
	/* acquire: pairs with the release in cufi_scope_add_member */
	cuf_scope *s = atomic_load_explicit(&f->scope, memory_order_acquire);
	cufi_lock *lock;

	if (!s)
		return;
	/* as in cufi_scope_remove_member: s may be gone */
	lock = &f->rt->scope_locks[((uintptr_t)s >> 6) & (CUFI_SCOPE_LOCKS - 1)];
	cufi_lock_take(lock);
	/* relaxed: written under this lock */
	if (atomic_load_explicit(&f->scope, memory_order_relaxed) == s)
		mark_handled(s, root);
	cufi_lock_give(lock);
}

/* ---- cancelled ---- */

/* The member behind @after (held), or the first; held. NULL: that was the last. */
static cuf_future *next_member(cuf_scope *s, cuf_future *after)
{
	cufi_lock *lock = cufi_scope_lock_of(s);
	cuf_future *f = NULL, *at;

	cufi_lock_take(lock);
	at = after ? after->next : s->members ? s->members->next : NULL;
	if (after && s->members == after)
		at = NULL;
	for (; at; at = s->members == at ? NULL : at->next) {
		if (cufi_hold_if_alive(at)) {
			f = at;
			break;
		}
	}
	cufi_lock_give(lock);
	if (after)
		cufi_let_go(after, CUFI_HOLD);
	return f;
}

static void cancel_members(cuf_scope *s)
{
	cuf_future *f = NULL;

	while ((f = next_member(s, f)) != NULL)
		cufi_cancel(f, CUF_ERR_CANCELLED);
}

/* The first of @s and its siblings that has not begun to end; entered. The parent's lock is held. */
static cuf_scope *enter_first(cuf_scope *s)
{
	for (; s; s = s->sibling_next) {
		/* relaxed: a count above 0 keeps it listed */
		uint64_t n = atomic_load_explicit(&s->outstanding, memory_order_relaxed);

		while (n && !atomic_compare_exchange_weak_explicit(&s->outstanding, &n, n + 1,
								   memory_order_relaxed,
								   memory_order_relaxed))
			;
		if (n)
			break;
	}
	return s;
}

/*
 * The scope after @s in a walk over @top and all below it, in any order. Both are entered, so that
 * they stay; @s is left. Child scopes that are opened meanwhile may be missed.
 */
static cuf_scope *next_scope(cuf_scope *top, cuf_scope *s)
{
	cuf_scope *n = NULL, *up = s;
	cufi_lock *lock = cufi_scope_lock_of(s);

	cufi_lock_take(lock);
	n = enter_first(s->children);
	cufi_lock_give(lock);
	while (!n && up != top) {
		cuf_scope *parent = up->parent;

		lock = cufi_scope_lock_of(parent);
		cufi_lock_take(lock);
		n = enter_first(up->sibling_next);
		cufi_lock_give(lock);
		/* up stays listed while entered; its parent outlives it */
		if (!n) {
			cufi_scope_enter(parent);
			cufi_scope_leave(up);
			up = parent;
		}
	}
	cufi_scope_leave(up);
	return n;
}

void cuf_scope_cancel(cuf_scope *s)
{
	cuf_scope *at = s;

	if (!s || s->born != CUF_OK || cufi_forked(s->rt))
		return;
	cufi_defer_drain(1);
	cufi_scope_enter(s);
	cufi_scope_enter(s);
	while (at) {
		/* release: pairs with the acquire in cufi_scope_has */
		atomic_fetch_or_explicit(&at->flags, CUFI_SCOPE_CANCELLED, memory_order_release);
		cancel_members(at);
		at = next_scope(s, at);
	}
	cufi_scope_leave(s);
	cufi_defer_drain(-1);
}

/* ---- ended ---- */

static _Thread_local struct {
	cuf_scope *first;
	bool running;
} ending;

/* The future of a close has no links; the scope has it in hand until it ends. */
static const struct cufi_op_class close_class = { .name = "scope close", .fixed = true };

static void settle_close(cuf_future *f, struct cufi_root *first)
{
	if (!cufi_claim(f, CUFI_BIT(CUFI_HELD), CUFI_SETTLING)) {
		/* stopped by a shutdown: the scope ended without it */
	} else if (first) {
		cufi_root_hold(first);
		cufi_settle_error(f, &first->inherited, true);
	} else {
		cufi_settle_value(f, NULL, NULL, true);
	}
	cufi_let_go(f, CUFI_HOLD); /* the scope's */
}

static void finish(cuf_scope *s)
{
	cuf_runtime *rt = s->rt;
	cuf_scope *parent = s->parent;
	cufi_lock *lock = cufi_scope_lock_of(s);
	struct cufi_root *first = NULL;
	struct cufi_note *n, *next;

	for (;;) {
		cuf_future *f;
		bool alive = false;

		cufi_lock_take(lock);
		f = s->members;
		if (f) {
			ring_out(s, f);
			/* else its last hold is gone: it is on its way out */
			alive = cufi_hold_if_alive(f);
			/* release: pairs with the acquire in cufi_scope_remove_member, which does not
			 * take the lock then: the last touch of one that is dying */
			atomic_store_explicit(&f->scope, NULL, memory_order_release);
		}
		cufi_lock_give(lock);
		if (!f)
			break;
		if (alive) {
			cufi_release_owed(f);
			cufi_let_go(f, CUFI_HOLD);
		}
	}
	for (n = s->notes; n; n = n->next) {
		if (!n->handled && !first)
			first = n->root;
		else
			cufi_root_look(n->root);
	}
	if (s->closing)
		settle_close(s->closing, first);
	for (n = s->notes; n; n = next) {
		next = n->next;
		cufi_root_let_go(n->root);
		cufi_small_put(rt, n, sizeof *n);
	}
	/* relaxed: nobody else is left */
	cufi_unreserve(rt, atomic_load_explicit(&s->reserved, memory_order_relaxed));
	lock = cufi_scope_lock_of(parent);
	cufi_lock_take(lock);
	if (s->sibling_next)
		s->sibling_next->sibling_prev = s->sibling_prev;
	if (s->sibling_prev)
		s->sibling_prev->sibling_next = s->sibling_next;
	else
		parent->children = s->sibling_next;
	cufi_lock_give(lock);
	cufi_small_put(rt, s, sizeof *s);
	cufi_scope_leave(parent);
}

static void run_defers(cuf_scope *s)
{
	struct cufi_defer *d;

	cufi_callback_enter(s->rt);
	while ((d = s->defers) != NULL) {
		cuf_drop_fn *fn = d->fn;
		void *arg = d->arg;

		s->defers = d->next;
		cufi_small_put(s->rt, d, sizeof *d);
		fn(arg);
	}
	cufi_callback_leave();
}

static void end_run(struct cufi_task *task, enum cufi_how how)
{
	cuf_scope *s = (cuf_scope *)task;

	(void)how; /* a defer runs on every path */
	run_defers(s);
	finish(s);
}

void cufi_scope_end_root(cuf_scope *s)
{
	run_defers(s);
}

/* Nothing is outstanding any more. */
static void end(cuf_scope *s)
{
	cuf_runtime *rt = s->rt;

	if (s->allocations) {
		/* relaxed: nobody else is inside */
		atomic_store_explicit(&s->outstanding, 1, memory_order_relaxed);
		while (s->allocations)
			rt->up.free_allocation(s, s->allocations);
		cufi_scope_leave(s);
		return;
	}
	/* relaxed: nobody else is inside */
	atomic_fetch_or_explicit(&s->flags, CUFI_SCOPE_ENDED, memory_order_relaxed);
	if (s->defers)
		cufi_loop_push(s->on, &s->task);
	else
		finish(s);
}

void cufi_scope_leave(cuf_scope *s)
{
	if (cufi_scope_has(s, CUFI_SCOPE_ROOT))
		return;
	CUFI_TESTPOINT("scope:leave");
	/* acq_rel: pairs with itself: all that members did happens before the end */
	if (atomic_fetch_sub_explicit(&s->outstanding, 1, memory_order_acq_rel) != 1)
		return;
	s->ending = ending.first;
	ending.first = s;
	if (ending.running)
		return;
	ending.running = true;
	cufi_defer_drain(1);
	while ((s = ending.first) != NULL) {
		ending.first = s->ending;
		end(s);
	}
	ending.running = false;
	cufi_defer_drain(-1);
}

/* Every member on a device is observed now: the scope waits for it. */
static void observe_members(cuf_scope *s)
{
	cufi_lock *lock = cufi_scope_lock_of(s);
	cuf_future *f;

	cufi_lock_take(lock);
	f = s->members;
	if (f) {
		do {
			f = f->next;
			/* seq_cst: pairs with the exchange in cufi_word_unlock: either we see QUEUED,
			 * or the enqueuer sees CLOSING */
			if (cufi_state_of(atomic_load(&f->word)) == CUFI_QUEUED)
				s->rt->up.observe(f);
		} while (f != s->members);
	}
	cufi_lock_give(lock);
}

static bool closing(cuf_scope *s, const char *call)
{
	uint32_t was;

	if (!s || s->born != CUF_OK || cufi_forked(s->rt))
		return false;
	/* seq_cst: pairs with the load in submit.c: see observe_members */
	was = atomic_fetch_or(&s->flags, CUFI_SCOPE_CLOSING);
	if (was & (CUFI_SCOPE_CLOSING | CUFI_SCOPE_ROOT)) {
#ifdef CUFI_DEBUG
		fprintf(stderr, "cufuture: %s: the scope%s%s%s %s\n", call,
			s->label[0] ? " \"" : "", s->label, s->label[0] ? "\"" : "",
			was & CUFI_SCOPE_ROOT ? "is the runtime's own" : "was closed already");
		abort();
#else
		(void)call;
		return false;
#endif
	}
	return true;
}

cuf_future *cuf_scope_close(cuf_scope *s)
{
	cuf_options o = { .size = sizeof o };
	struct cufi_begin b;

	if (!s || s->born != CUF_OK)
		return cufi_future_immortal(s ? s->born : CUF_ERR_INVALID);
	if (cufi_forked(s->rt))
		return cufi_future_immortal(CUF_ERR_FORKED);
	if (!closing(s, "cuf_scope_close"))
		return cufi_future_immortal(CUF_ERR_INVALID);
	o.file = s->file;
	o.line = s->line;
	if (!cufi_begin(&b, s->parent, &close_class, &o, 0, 0, CUFI_ALWAYS | CUFI_CLOSE)) {
		/* no memory (or the gate is shut): the scope ends all the same */
		observe_members(s);
		cufi_scope_leave(s);
		return b.future;
	}
	s->closing = b.future;
	cufi_hold(b.future, CUFI_HOLD);
	observe_members(s);
	cufi_scope_leave(s);
	return b.future;
}

void cuf_scope_end(cuf_scope *s)
{
	if (!closing(s, "cuf_scope_end"))
		return;
	observe_members(s);
	cufi_scope_leave(s);
}
