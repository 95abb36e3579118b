/* SPDX-License-Identifier: MIT */
/*
 * Operations and their links: memory, what they wait for, what stays behind.
 *
 * The hand. op->waiting counts the links that are attached or being told, and one more while somebody
 * has the operation in hand: its submitter, a queue it lies in, the thread that works on it. So there
 * is always exactly one way on: whoever takes the count to 0 has it in hand again (all_told).
 *
 *	result not settled   cls->ready(op): it goes to a queue, is enqueued, or runs
 *	result settled       it was cancelled, or inherited a failure: abandon(op)
 *
 * Trailing. A result that settles without the operation having run is SETTLED but not FINISHED while
 * something it depended on may still touch the user's memory. abandon() attaches every link that
 * still holds its future again, at FINISHED; when the last one was told, the result is FINISHED. Who
 * waits for FINISHED (order edges, a free, the end of a scope) thereby sees through any number of
 * timeouts and joins to the operations behind. A promise is no operation: nothing trails it, and a
 * registration on one is taken away at once.
 *
 * link->on of an operation whose result is settled changes under LOCK of the result alone, which
 * keeps it still for cufi_op_cut_promises().
 */
#include "op.h"

#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "future.h"
#include "options.h"
#include "scope.h"

/* ---- memory ---- */

static const uint16_t small_bytes[CUFI_SIZES] = { 128, 192, 256, 384, 512, 1024 };

static unsigned size_of(size_t bytes)
{
	unsigned i = 0;

	while (i < CUFI_SIZES && bytes > small_bytes[i])
		i++;
	return i;
}

static void *get(cuf_runtime *rt, size_t bytes)
{
	unsigned size = size_of(bytes);

	if (size < CUFI_SIZES)
		return cufi_slab_get(&rt->small[size]);
	/* relaxed: statistics */
	atomic_fetch_add_explicit(&rt->n_allocations, 1, memory_order_relaxed);
	return malloc(bytes);
}

static void put(cuf_runtime *rt, void *p, unsigned size)
{
	if (size < CUFI_SIZES)
		cufi_slab_put(&rt->small[size], p);
	else
		free(p);
}

void *cufi_small_get(cuf_runtime *rt, size_t bytes)
{
	return get(rt, bytes);
}

void cufi_small_put(cuf_runtime *rt, void *p, size_t bytes)
{
	if (p)
		put(rt, p, size_of(bytes));
}

int cufi_small_init(cuf_runtime *rt)
{
	for (unsigned i = 0; i < CUFI_SIZES; i++) {
		int rc = cufi_slab_init(&rt->small[i], small_bytes[i], 0);

		if (rc)
			return rc;
	}
	return 0;
}

bool cufi_options_read(struct cufi_options *out, const cuf_options *o)
{
	if (o && o->size == sizeof *o) {
		out->o = o;
		return true;
	}
	out->o = &out->copy;
	return cufi_struct_read(&out->copy, sizeof out->copy, o);
}

struct cufi_op *cufi_op_new(cuf_scope *s, const struct cufi_op_class *cls, size_t n_links,
			    size_t bytes, const cuf_options *o)
{
	uint16_t flags =
		(o->label ? CUFI_OP_LABEL : 0) | (o->timing && cls->device ? CUFI_OP_TIMING : 0) |
		(o->exclusive ? CUFI_OP_EXCLUSIVE : 0) | (o->eager_peer ? CUFI_OP_EAGER_PEER : 0);
	size_t fixed = sizeof(struct cufi_op) + (flags & CUFI_OP_LABEL ? CUFI_LABEL_BYTES : 0) +
		       (flags & CUFI_OP_TIMING ? sizeof(struct cufi_timing) : 0) +
		       ((cls->params_bytes + 7) & ~(size_t)7);
	size_t total;
	struct cufi_op *op;

	if (n_links > UINT32_MAX - 1 ||
	    __builtin_mul_overflow(n_links, sizeof(struct cufi_link), &total) ||
	    __builtin_add_overflow(total, fixed, &total) ||
	    __builtin_add_overflow(total, bytes, &total))
		return NULL;
	op = get(s->rt, total);
	if (!op)
		return NULL;
	op->size = size_of(total);
	op->task.run = NULL;
	op->cls = cls;
	op->future = NULL;
	op->scope = s;
	/* relaxed: not shared yet */
	atomic_store_explicit(&op->waiting, 1, memory_order_relaxed);
	atomic_store_explicit(&op->flags, flags, memory_order_relaxed);
	op->n_links = (uint32_t)n_links;
	op->file = o->file;
	op->line = o->line;
	op->device = -1;
	op->priority = o->priority > 0 ? 1 : o->priority < 0 ? -1 : s->priority;
	if (flags & CUFI_OP_LABEL) {
		char *label = (char *)(op + 1);
		size_t n = strnlen(o->label, CUFI_LABEL_BYTES - 1);

		memcpy(label, o->label, n);
		label[n] = 0;
	}
	if (flags & CUFI_OP_TIMING)
		*cufi_op_timing(op) = (struct cufi_timing){ .submitted_ns = cufi_now_ns() };
	memset(cufi_op_params(op), 0, cls->params_bytes);
	for (size_t i = 0; i < n_links; i++) {
		struct cufi_link *l = &cufi_op_links(op)[i];

		l->on = NULL;
		l->op_bits = (uintptr_t)op;
	}
	return op;
}

void cufi_op_free(cuf_runtime *rt, struct cufi_op *op)
{
	if (op->cls->dispose)
		op->cls->dispose(op);
	cufi_op_release_links(op);
	put(rt, op, op->size);
}

/* ---- links ---- */

static uint64_t unit_of(const struct cufi_op *op)
{
	return op->cls->device ? CUFI_NAME : CUFI_HOLD;
}

void cufi_op_depend(struct cufi_op *op, size_t i, cuf_future *f, bool order)
{
	struct cufi_link *l = &cufi_op_links(op)[i];

	if (!f)
		return;
	cufi_hold(f, unit_of(op));
	cufi_link_enter(l, op, f, order);
}

void cufi_op_release_links(struct cufi_op *op)
{
	struct cufi_link *l = cufi_op_links(op);

	for (size_t i = 0; i < op->n_links; i++) {
		if (l[i].on) {
			cuf_future *on = l[i].on;

			l[i].on = NULL;
			cufi_let_go(on, unit_of(op));
		}
	}
}

/* The level at which @op has to hear of @l's future. */
static enum cufi_level level_of(const struct cufi_op *op, const struct cufi_link *l)
{
	bool order = l->op_bits & CUFI_LINK_ORDER;

	if (op->cls->device) {
		const struct cufi_op *on = l->on->op;

		if (!on || !on->cls->device || on->device == op->device ||
		    cufi_op_has(op, CUFI_OP_EAGER_PEER))
			return CUFI_AT_QUEUED;
	}
	return order ? CUFI_AT_FINISHED : CUFI_AT_SETTLED;
}

static bool failed(const cuf_future *f)
{
	uint32_t w = cufi_word(f);

	return cufi_word_settled(w) && cufi_word_status(w) != CUF_OK;
}

struct cufi_link *cufi_op_failed_dep(struct cufi_op *op)
{
	struct cufi_link *l = cufi_op_links(op);

	for (size_t i = 0; i < op->n_links; i++) {
		if (l[i].on && !(l[i].op_bits & CUFI_LINK_ORDER) && failed(l[i].on))
			return &l[i];
	}
	return NULL;
}

bool cufi_op_settled(const struct cufi_op *op)
{
	enum cufi_state st;

	if (!op->future)
		return false;
	st = cufi_state_of(cufi_word(op->future));
	return st == CUFI_SETTLING || st == CUFI_SETTLED;
}

void cufi_link_let_go(struct cufi_op *op, struct cufi_link *l)
{
	cuf_future *on;
	uint32_t w = cufi_word_lock(&op->future->word);

	on = l->on;
	l->on = NULL;
	cufi_word_unlock(&op->future->word, w);
	if (on)
		cufi_let_go(on, unit_of(op));
}

/* @l, which counts in op->waiting, is not attached and op's result is settled: on to FINISHED. */
static void trail(struct cufi_op *op, struct cufi_link *l)
{
	/* relaxed: the bit never changes */
	if (!(atomic_load_explicit(&l->on->word, memory_order_relaxed) & CUFI_PROMISE) &&
	    cufi_attach(l, CUFI_AT_FINISHED))
		return;
	cufi_link_let_go(op, l);
	cufi_op_drop(op);
}

/* In hand, all told, settled. */
static void abandon(struct cufi_op *op)
{
	struct cufi_link *l = cufi_op_links(op);

	if (cufi_op_has(op, CUFI_OP_TRAILING)) {
		cufi_future_finish(op->future);
		return;
	}
	if (op->cls->abandoned && op->cls->abandoned(op))
		return;
	cufi_op_set(op, CUFI_OP_TRAILING);
	for (size_t i = 0; i < op->n_links; i++) {
		if (l[i].on) {
			/* relaxed: the hand keeps the count above 0 */
			atomic_fetch_add_explicit(&op->waiting, 1, memory_order_relaxed);
			trail(op, &l[i]);
		}
	}
	cufi_op_drop(op);
}

static void all_told(struct cufi_op *op)
{
	/* relaxed: nobody else counts at 0 */
	atomic_store_explicit(&op->waiting, 1, memory_order_relaxed);
	CUFI_TESTPOINT("op:all-told");
	if (cufi_op_settled(op))
		abandon(op);
	else
		op->cls->ready(op);
}

void cufi_op_drop(struct cufi_op *op)
{
	/* acq_rel: pairs with itself: what every link's teller saw is seen by who goes on */
	if (atomic_fetch_sub_explicit(&op->waiting, 1, memory_order_acq_rel) == 1)
		all_told(op);
}

bool cufi_op_inherit(struct cufi_op *op, cuf_future *dep, uint32_t from)
{
	if (!cufi_claim(op->future, from, CUFI_SETTLING))
		return false;
	cufi_settle_as(op->future, dep, false);
	cufi_op_cut_promises(op);
	return true;
}

void cufi_op_told(struct cufi_op *op, struct cufi_link *l)
{
	if (!(l->op_bits & CUFI_LINK_ORDER) && failed(l->on)) {
		if (op->cls->failed && op->cls->failed(op, l))
			return;
		cufi_op_inherit(op, l->on, CUFI_BIT(CUFI_HELD) | CUFI_BIT(CUFI_BACKLOG));
	}
	if (cufi_op_settled(op))
		trail(op, l);
	else
		cufi_op_drop(op);
}

void cufi_link_tell(struct cufi_link *l)
{
	struct cufi_op *op = cufi_link_op(l);

	CUFI_TESTPOINT("op:tell");
	if (cufi_op_settled(op)) {
		if (op->cls->late)
			op->cls->late(op, l);
		trail(op, l);
	} else if (op->cls->told) {
		op->cls->told(op, l);
	} else {
		cufi_op_told(op, l);
	}
}

void cufi_op_wait_for(struct cufi_op *op, struct cufi_link *l, enum cufi_level level)
{
	(void)op;
	if (!cufi_attach(l, level))
		cufi_link_tell(l);
}

bool cufi_op_attach_all(struct cufi_op *op)
{
	struct cufi_link *l = cufi_op_links(op);
	bool all = true;

	for (size_t i = 0; i < op->n_links; i++) {
		enum cufi_level level;

		if (!l[i].on)
			continue;
		level = level_of(op, &l[i]);
		/* The common case: a device edge to what is on its lane already. */
		if (level == CUFI_AT_QUEUED && !op->cls->told &&
		    cufi_state_of(cufi_word(l[i].on)) == CUFI_QUEUED)
			continue;
		/* relaxed: the hand keeps the count above 0 */
		atomic_fetch_add_explicit(&op->waiting, 1, memory_order_relaxed);
		if (cufi_attach(&l[i], level))
			all = false;
		else if (op->cls->told || failed(l[i].on))
			cufi_link_tell(&l[i]), all = false;
		else
			/* relaxed: as above */
			atomic_fetch_sub_explicit(&op->waiting, 1, memory_order_relaxed);
	}
	/* Whoever settled it in the meantime cut what was attached by then; here is the rest. */
	if (!all && cufi_op_settled(op))
		cufi_op_cut_promises(op);
	return all;
}

void cufi_op_start(struct cufi_op *op)
{
	if (cufi_op_attach_all(op) && op->cls->ready) {
		op->cls->ready(op);
		return;
	}
	cufi_op_drop(op);
}

void cufi_op_cut_late(struct cufi_op *op)
{
	/* Whoever cut before the attach set the flag before he looked, under LOCK of the promise. */
	if (cufi_op_has(op, CUFI_OP_CUT))
		cufi_op_cut_promises(op);
}

void cufi_op_cut_promises(struct cufi_op *op)
{
	struct cufi_link *l = cufi_op_links(op);

	cufi_op_set(op, CUFI_OP_CUT);

	for (size_t i = 0; i < op->n_links; i++) {
		uint32_t w = cufi_word_lock(&op->future->word);
		/* acquire: pairs with cufi_link_enter */
		cuf_future *on = __atomic_load_n(&l[i].on, __ATOMIC_ACQUIRE);
		/* relaxed: the bit never changes */
		bool cut = on &&
			   atomic_load_explicit(&on->word, memory_order_relaxed) & CUFI_PROMISE &&
			   cufi_detach(&l[i]);

		cufi_word_unlock(&op->future->word, w);
		if (cut) {
			cufi_link_let_go(op, &l[i]);
			cufi_op_drop(op);
		}
	}
}
