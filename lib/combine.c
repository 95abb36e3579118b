/* SPDX-License-Identifier: MIT */
/*
 * Futures of futures: all, any, timeout. What they leave behind when they are decided early trails as
 * for any operation that did not run: op.c.
 */
#include "begin.h"
#include "error.h"
#include "future.h"
#include "op.h"
#include "scope.h"
#include "timer.h"

static bool ok(const cuf_future *f)
{
	return cufi_word_status(cufi_word(f)) == CUF_OK;
}

/* ---- all: waits for every input, keeps the first error ---- */

struct all {
	_Atomic(cuf_future *) first; /* the first input that failed; held by its link */
};

static void all_told(struct cufi_op *op, struct cufi_link *l)
{
	struct all *a = cufi_op_params(op);
	cuf_future *none = NULL;

	if (!ok(l->on))
		/* acq_rel: pairs with the load in all_ready */
		atomic_compare_exchange_strong_explicit(&a->first, &none, l->on,
							memory_order_acq_rel, memory_order_relaxed);
	cufi_op_drop(op);
}

/* In hand with every link told: with inputs that are finished, so is the result. */
static void settle_all(struct cufi_op *op, cuf_future *as)
{
	struct cufi_link *l = cufi_op_links(op);
	bool finished = true;

	for (size_t i = 0; i < op->n_links && finished; i++)
		finished = !l[i].on || cufi_word(l[i].on) & CUFI_FINISHED;
	if (finished) {
		if (as)
			cufi_hold(as, CUFI_HOLD);
		cufi_op_release_links(op);
	}
	if (as)
		cufi_settle_as(op->future, as, finished);
	else
		cufi_settle_value(op->future, NULL, NULL, finished);
	if (!finished)
		cufi_op_drop(op);
	else if (as)
		cufi_let_go(as, CUFI_HOLD);
}

static void all_ready(struct cufi_op *op)
{
	struct all *a = cufi_op_params(op);

	if (!cufi_claim(op->future, CUFI_BIT(CUFI_HELD), CUFI_SETTLING))
		cufi_op_drop(op);
	else
		/* acquire: pairs with all_told */
		settle_all(op, atomic_load_explicit(&a->first, memory_order_acquire));
}

static const struct cufi_op_class all_class = {
	.name = "all",
	.params_bytes = sizeof(struct all),
	.ready = all_ready,
	.told = all_told,
};

/* Before the result is made, which may get the memory of what was freed. */
static void check_inputs(cuf_list l, const char *call)
{
	(void)call;
	if (!l.at || l.n > SIZE_MAX / sizeof(struct cufi_link))
		return;
	for (size_t i = 0; i < l.n; i++) {
		if (l.at[i])
			cufi_check_future(l.at[i], call);
	}
}

/* Enters the inputs as links. NULL entries are none. False: refused. */
static bool inputs(struct cufi_begin *b, cuf_list l)
{
	for (size_t i = 0; i < l.n; i++) {
		if (!l.at[i])
			continue;
		if (!cufi_same_runtime(l.at[i], b->op->scope->rt)) {
			cufi_begin_failed(b, "input %zu of %s belongs to another runtime", i,
					  b->op->cls->name);
			return false;
		}
		cufi_op_depend(b->op, i, l.at[i], false);
	}
	return true;
}

cuf_future *cuf_all_with(cuf_scope *s, cuf_list l, const cuf_options *o)
{
	struct cufi_begin b;

	check_inputs(l, "all");
	if (!cufi_begin(&b, s, &all_class, o, l.at ? l.n : 0, 0, CUFI_ALWAYS))
		return b.future;
	if (l.n && !l.at)
		return cufi_begin_failed(&b, "all: a list of %zu inputs and no array", l.n);
	if (inputs(&b, l))
		cufi_op_start(b.op);
	return b.future;
}

/* ---- any: the first success ---- */

struct any {
	_Atomic(cuf_future *) first; /* the first that failed, for when all did */
	size_t winner;		     /* written by who claimed; SIZE_MAX: none */
};

static void forget_loser(struct cufi_op *op, cuf_future *loser)
{
	struct cufi_root *root = cufi_root_of(loser);

	cufi_scope_handled(op->scope, root);
	cufi_scope_forgive(loser, root);
}

/* @f fails, or will: the scopes are not concerned. */
static void forgive(struct cufi_op *op, cuf_future *f)
{
	uint32_t w = cufi_word(f);

	if (!cufi_word_settled(w)) {
		/* It may never tell us: a registration on a promise is taken away. */
		w = cufi_word_lock(&f->word);
		if (!cufi_word_settled(w))
			w |= CUFI_FORGIVEN;
		cufi_word_unlock(&f->word, w);
	}
	if (cufi_word_settled(w) && !ok(f))
		forget_loser(op, f);
}

static void any_told(struct cufi_op *op, struct cufi_link *l)
{
	struct any *a = cufi_op_params(op);
	cuf_future *none = NULL;

	if (!ok(l->on)) {
		/* acq_rel: pairs with the load in any_ready */
		atomic_compare_exchange_strong_explicit(&a->first, &none, l->on,
							memory_order_acq_rel, memory_order_relaxed);
	} else if (cufi_claim(op->future, CUFI_BIT(CUFI_HELD), CUFI_SETTLING)) {
		struct cufi_link *links = cufi_op_links(op);

		a->winner = (size_t)(l - links);
		for (size_t i = 0; i < op->n_links; i++) {
			/* under LOCK: the link may be told, and let go of its future, meanwhile */
			uint32_t w = cufi_word_lock(&op->future->word);
			cuf_future *f = links[i].on;

			if (f)
				cufi_hold(f, CUFI_HOLD);
			cufi_word_unlock(&op->future->word, w);
			if (f) {
				forgive(op, f);
				cufi_let_go(f, CUFI_HOLD);
			}
		}
		cufi_settle_as(op->future, l->on, false);
		cufi_op_cut_promises(op);
	}
	cufi_op_drop(op);
}

static void any_ready(struct cufi_op *op)
{
	struct any *a = cufi_op_params(op);
	/* acquire: pairs with any_told */
	cuf_future *first = atomic_load_explicit(&a->first, memory_order_acquire);

	if (!cufi_claim(op->future, CUFI_BIT(CUFI_HELD), CUFI_SETTLING))
		cufi_op_drop(op);
	else if (first)
		settle_all(op, first);
	else
		cufi_settle_error(op->future,
				  &cufi_root_new(op->scope->rt, CUF_ERR_INVALID, CUF_PHASE_SUBMIT,
						 op, "any of no futures: nothing could succeed")
					   ->own,
				  true);
}

/* A loser that fails after the decision is forgiven by the scopes all the same. */
static void any_late(struct cufi_op *op, struct cufi_link *l)
{
	if (ok(op->future) && cufi_word_settled(cufi_word(l->on)) && !ok(l->on))
		forget_loser(op, l->on);
}

static const struct cufi_op_class any_class = {
	.name = "any",
	.params_bytes = sizeof(struct any),
	.ready = any_ready,
	.told = any_told,
	.late = any_late,
};

cuf_future *cuf_any_with(cuf_scope *s, cuf_list l, const cuf_options *o)
{
	struct cufi_begin b;

	check_inputs(l, "any");
	if (!cufi_begin(&b, s, &any_class, o, l.at ? l.n : 0, 0, CUFI_ALWAYS))
		return b.future;
	((struct any *)cufi_op_params(b.op))->winner = SIZE_MAX;
	if (l.n && !l.at)
		return cufi_begin_failed(&b, "any: a list of %zu inputs and no array", l.n);
	if (inputs(&b, l))
		cufi_op_start(b.op);
	return b.future;
}

size_t cuf_winner(const cuf_future *any)
{
	uint32_t w;

	if (!any || !any->op || any->op->cls != &any_class)
		return SIZE_MAX;
	w = cufi_word(any);
	if (!cufi_word_settled(w) || cufi_word_status(w) != CUF_OK)
		return SIZE_MAX;
	return ((struct any *)cufi_op_params(any->op))->winner;
}

/* ---- timeout: settles its own future only ---- */

static void timeout_told(struct cufi_op *op, struct cufi_link *l)
{
	cufi_timer_remove(op);
	if (cufi_claim(op->future, CUFI_BIT(CUFI_HELD), CUFI_SETTLING))
		settle_all(op, l->on);
	else
		cufi_op_drop(op);
}

/* On the timer thread; the future is held. */
static void timeout_fired(struct cufi_op *op)
{
	struct cufi_root *r;

	if (!cufi_claim(op->future, CUFI_BIT(CUFI_HELD), CUFI_SETTLING))
		return;
	r = cufi_root_new(op->scope->rt, CUF_ERR_TIMED_OUT, CUF_PHASE_EXECUTE, op,
			  "the deadline passed; the operation behind it goes on");
	cufi_settle_error(op->future, &r->own, false);
	cufi_op_cut_promises(op);
}

static void timeout_dispose(struct cufi_op *op)
{
	cufi_timer_remove(op);
}

static const struct cufi_op_class timeout_class = {
	.name = "timeout",
	.params_bytes = sizeof(struct cufi_timer),
	.told = timeout_told,
	.dispose = timeout_dispose,
};

cuf_future *cuf_timeout_with(cuf_scope *s, cuf_future *f, uint64_t deadline_ns,
			     const cuf_options *o)
{
	struct cufi_begin b;
	struct cufi_timer *t;

	if (f)
		cufi_check_future(f, "timeout");
	if (!cufi_begin(&b, s, &timeout_class, o, 1, 0, CUFI_ALWAYS))
		return b.future;
	t = cufi_op_params(b.op);
	t->fired = timeout_fired;
	if (!f || !cufi_same_runtime(f, s->rt))
		return cufi_begin_failed(&b, "timeout: the future %s",
					 f ? "belongs to another runtime" : "is NULL");
	cufi_op_depend(b.op, 0, f, false);
	if (deadline_ns != CUF_FOREVER && !cufi_word_settled(cufi_word(f)) &&
	    !cufi_timer_add(b.op, deadline_ns))
		return cufi_begin_fails(&b, CUF_ERR_NO_MEMORY, "timeout: no memory for a timer");
	cufi_op_wait_for(b.op, cufi_op_links(b.op), CUFI_AT_SETTLED);
	/* The deadline may have passed before that: nobody else takes the registration away. */
	cufi_op_cut_late(b.op);
	return b.future;
}
