/* SPDX-License-Identifier: MIT */
/*
 * Harvest: what has ended on a lane, and the loss of a device. Who harvests when: completer.c, ask.c.
 *
 * A lane's operations lie in `pending` in order; recorded events lie in `marks` in order. One holder of
 * the harvest lock asks the marks from the front until one is not ready; where no mark is left and
 * more is asked for, the published sequence number is read and then the stream itself is asked:
 * success retires all up to that number. An operation is reported as done only here: after the
 * device said so, off the driver's thread.
 *
 * A sticky error loses the device, once and for ever. Every later query errs, so nobody can tell what
 * had ended and was not harvested: that is marked outcome_unknown. A lane's operations are failed,
 * and let go of what they hold, only once its own stream returns an error.
 */
#include "harvest.h"

#include <stdio.h>
#include <string.h>

#include "error.h"
#include "expect.h"
#include "future.h"
#include "machine.h"
#include "op.h"
#include "submit.h"

/* Marks that one pass looks at; a lane has seldom more than its budget. */
#define MARKS_MAX 512

/* How long queries may answer with an error that is not sticky before the device counts as lost. Such
 * an error is a matter of the asking thread (an open capture), or a driver's fault. Arbitrary. */
#define ODD_NS 1000000000u

static int query(struct cufi_device *d, int code)
{
	/* relaxed: statistics */
	atomic_fetch_add_explicit(&d->n_queries, 1, memory_order_relaxed);
	return code;
}

/* ---- the loss of a device ---- */

#define NAMED 3 /* suspects in a message. Arbitrary */

/* Those of @l, whose harvest lock is held, after *@n named before: the first not known to have ended. */
static void name_suspects(struct cufi_lane *l, char *text, size_t bytes, unsigned *n)
{
	struct cufi_node *node = cufi_queue_front(&l->pending);
	size_t at = strlen(text);

	for (; node && *n < NAMED; node = cufi_queue_after(&l->pending, node), ++*n) {
		struct cufi_op *op = (struct cufi_op *)node;
		const char *label = cufi_op_label(op);

		if (at < bytes)
			at += (size_t)snprintf(text + at, bytes - at, "%s%s%s%s%s", *n ? ", " : "",
					       op->cls->name, label ? " \"" : "",
					       label ? label : "", label ? "\"" : "");
	}
}

/* Builds the root from the operation most likely to blame: the first not known to have ended on @l,
 * whose harvest lock is held if @held, or on another lane. */
static struct cufi_root *suspect_root(struct cufi_device *d, int code, struct cufi_lane *l,
				      bool held, struct cufi_op *culprit)
{
	/* acquire: pairs with cufi_lane_add */
	uint32_t n = atomic_load_explicit(&d->n_lanes, memory_order_acquire);
	struct cufi_op *op = culprit;
	struct cufi_lane *locked = NULL, *at = l;
	uint64_t suspects = 0;
	char names[96] = "", more[32] = "";
	unsigned named = 0;
	struct cufi_root *r;

	for (uint32_t i = 0; i <= n; i++) {
		struct cufi_lane *look = i == 0 ? l : d->lanes[i - 1];
		bool mine = held && look == l;
		uint64_t out;

		if (!look || (i && look == l))
			continue;
		out = cufi_lane_published(look) - cufi_lane_completed(look);
		suspects += out;
		if (culprit || !out || (!mine && !cufi_lock_try(&look->harvest)))
			continue;
		name_suspects(look, names, sizeof names, &named);
		if (!op && (op = (struct cufi_op *)cufi_queue_front(&look->pending)) != NULL) {
			at = look;
			locked = mine ? NULL
				      : look; /* keeps op where it is until the root is made */
		}
		if (!mine && locked != look)
			cufi_lock_give(&look->harvest);
	}
	if (suspects > named && named)
		snprintf(more, sizeof more, " or %llu more",
			 (unsigned long long)(suspects - named));
	r = cufi_root_new(d->rt, CUF_ERR_DEVICE_LOST, CUF_PHASE_EXECUTE, op,
			  "device %d is lost: %s (%s)%s%s%s; restart the process to use it again",
			  d->index, d->ops->code_name(code), d->ops->code_text(code),
			  named ? " in " : "", names, more);
	if (!r->immortal) {
		r->cuda_code = code;
		r->device = d->index;
		r->n_suspects = culprit ? 1 : suspects;
		if (!op)
			r->operation = "device";
		if (op && op->future && !culprit) {
			r->lane = at->index;
			r->seq = op->future->seq;
			r->culprit = op->future;
		}
	}
	if (locked)
		cufi_lock_give(&locked->harvest);
	return r;
}

/* @held: the caller holds @l's harvest lock. Returns the root, not held for the caller. */
static struct cufi_root *lose(struct cufi_device *d, int code, struct cufi_lane *l, bool held,
			      struct cufi_op *culprit)
{
	struct cufi_root *lost = cufi_device_lost_root(d), *r;
	uint32_t n;

	if (lost)
		return lost;
	r = suspect_root(d, code, l, held, culprit);
	/* acq_rel: pairs with cufi_device_lost_root: the root is complete */
	if (!atomic_compare_exchange_strong_explicit(&d->lost, &lost, r, memory_order_acq_rel,
						     memory_order_acquire)) {
		cufi_root_look(r);
		cufi_root_let_go(r);
		return lost;
	}
	cufi_log(d->rt, CUFI_LOG_ERROR, "device %d is lost: %s", d->index, r->message);
	/* Everything outstanding on it is looked at now. */
	/* acquire: pairs with cufi_lane_add */
	n = atomic_load_explicit(&d->n_lanes, memory_order_acquire);
	for (uint32_t i = 0; i < n; i++) {
		cufi_want(d->lanes[i], cufi_lane_published(d->lanes[i]));
		cufi_hungry(d->lanes[i]);
	}
	cufi_lost_device(d);
	return r;
}

struct cufi_root *cufi_device_error(struct cufi_device *d, int code, struct cufi_op *op,
				    struct cufi_lane *l, bool *out_inherited)
{
	struct cufi_root *r;
	const char *why;
	int st;

	*out_inherited = d->ops->is_sticky(code);
	if (*out_inherited) {
		bool sure = cufi_debug_sync(d->rt);

		r = lose(d, code, l, false, sure ? op : NULL);
		*out_inherited = !sure;
		cufi_root_hold(r);
		return r;
	}
	why = op->cls->explain ? op->cls->explain(op, code, &st) : NULL;
	if (why)
		r = cufi_root_new(d->rt, st, CUF_PHASE_ENQUEUE, op, "%s", why);
	else
		r = cufi_root_new(d->rt,
				  code == CUFI_CODE_NO_MEMORY ? CUF_ERR_NO_MEMORY : CUF_ERR_DEVICE,
				  CUF_PHASE_ENQUEUE, op, "%s failed: %s (%s)", op->cls->name,
				  d->ops->code_name(code), d->ops->code_text(code));
	if (!r->immortal)
		r->cuda_code = code;
	return r;
}

static void settle_lost(cuf_future *f, struct cufi_root *root)
{
	if (cufi_word_settled(cufi_word(f))) {
		cufi_future_finish(f);
		return;
	}
	cufi_claim(f, CUFI_BIT(CUFI_QUEUED), CUFI_SETTLING);
	cufi_root_hold(root);
	cufi_settle_error(f, root->culprit == f ? &root->own : &root->unknown, true);
}

/* ---- one lane; its harvest lock is held ---- */

static void drop_marks(struct cufi_lane *l, uint64_t upto)
{
	struct cufi_event *e;

	while ((e = (struct cufi_event *)cufi_queue_front(&l->marks)) != NULL && e->seq <= upto) {
		cufi_queue_take(&l->marks);
		cufi_event_put(e);
	}
}

static void read_times(struct cufi_device *d, struct cufi_op *op)
{
	struct cufi_timing *t = cufi_op_timing(op);
	uint64_t start, end;

	if (!t || !t->start)
		return;
	if (t->end && d->base &&
	    d->ops->event_elapsed_ns(d->base->handle, t->start->handle, &start) == 0 &&
	    d->ops->event_elapsed_ns(d->base->handle, t->end->handle, &end) == 0) {
		t->started_ns = d->base_ns + start;
		t->ended_ns = d->base_ns + end;
	}
	cufi_event_put(t->start);
	if (t->end)
		cufi_event_put(t->end);
	t->start = t->end = NULL;
}

static unsigned retire(struct cufi_lane *l, uint64_t done, struct cufi_root *lost)
{
	bool alone = done == cufi_lane_completed(l) + 1;
	struct cufi_op *op;
	uint32_t weight = 0;
	unsigned n = 0;

	/* release: pairs with cufi_lane_completed. Before the settling: who is told may submit. */
	atomic_store_explicit(&l->completed, done, memory_order_release);
	while ((op = (struct cufi_op *)cufi_queue_front(&l->pending)) != NULL) {
		cuf_future *f = op->future;

		if (f->seq > done)
			break;
		cufi_queue_take(&l->pending);
		weight += cufi_place_of(op)->weight;
		n++;
		CUFI_TESTPOINT("harvest:settle");
		if (lost) {
			settle_lost(f, lost);
			continue;
		}
		read_times(l->dev, op);
		if (alone)
			cufi_expect_ended(l, op);
		if (cufi_future_done(f)) {
			cufi_count(&l->n_done, 1);
			continue;
		}
		if (cufi_claim(f, CUFI_BIT(CUFI_QUEUED), CUFI_SETTLING))
			cufi_settle_value(f, NULL, NULL, true);
		else
			cufi_future_finish(f); /* foreign code had failed it */
	}
	if (!alone && !lost && done < cufi_lane_published(l))
		cufi_expect_started(l);
	/* release: pairs with the owner's look: the weight is off the device */
	atomic_fetch_sub_explicit(&l->in_flight, weight, memory_order_release);
	return n;
}

static unsigned harvest_lost(struct cufi_lane *l, struct cufi_root *root)
{
	uint64_t upto = cufi_lane_published(l);

	if (upto == cufi_lane_completed(l))
		return 0;
	/* Until the stream itself says so, its work may still touch the user's memory. */
	if (query(l->dev, l->dev->ops->stream_query(l->stream)) == CUFI_CODE_NOT_READY)
		return 0;
	drop_marks(l, UINT64_MAX);
	return retire(l, upto, root);
}

/*
 * How far the marks say that the lane has come: returns the highest seq that has ended, from @done on.
 * To ask a mark that has ended costs nine times what asking one that has not does (1.35 us to 0.15,
 * cudart 13.0), so not each is asked: the first; if that has ended, the last; then by halves.
 * *out_left: marks are left. *out_code: an error that a query returned.
 */
static uint64_t ask_marks(struct cufi_lane *l, uint64_t done, bool *out_left, int *out_code)
{
	struct cufi_event *at[MARKS_MAX];
	struct cufi_node *node;
	size_t n = 0, lo, hi, i;

	drop_marks(l, done);
	node = cufi_queue_front(&l->marks);
	*out_left = node != NULL;
	if (!node)
		return done;
	*out_code = query(l->dev, l->dev->ops->event_query(((struct cufi_event *)node)->handle));
	if (*out_code)
		return done;
	for (; node && n < MARKS_MAX; node = cufi_queue_after(&l->marks, node))
		at[n++] = (struct cufi_event *)node;
	/* at[0..lo) have ended, at[hi..n) have not */
	lo = 1;
	hi = n;
	for (i = n - 1; lo < hi; i = lo + (hi - lo) / 2) {
		int code = query(l->dev, l->dev->ops->event_query(at[i]->handle));

		if (code && code != CUFI_CODE_NOT_READY) {
			*out_code = code;
			break;
		}
		if (code)
			hi = i;
		else
			lo = i + 1;
	}
	*out_left = lo < n || node;
	done = at[lo - 1]->seq;
	drop_marks(l, done);
	return done;
}

/* A query that fails by itself says nothing of the work: it is asked again, but not for ever. */
static bool odd_too_long(struct cufi_lane *l)
{
	uint64_t now = cufi_now_ns();

	if (!l->odd_since)
		l->odd_since = now;
	return now - l->odd_since > ODD_NS;
}

static unsigned harvest(struct cufi_lane *l, uint64_t upto)
{
	struct cufi_device *d = l->dev;
	struct cufi_root *lost = cufi_device_lost_root(d);
	uint64_t done = cufi_lane_completed(l), seq;
	unsigned n = 0;
	bool left;
	int code = 0;

	if (lost)
		return harvest_lost(l, lost);
	done = ask_marks(l, done, &left, &code);
	if (!left && !code && done < upto) {
		/* The order matters: what is published later is not covered by the answer. */
		seq = cufi_lane_published(l);
		CUFI_TESTPOINT("harvest:query");
		if (seq > done) {
			code = query(d, d->ops->stream_query(l->stream));
			if (!code)
				done = seq;
		}
	}
	if (done > cufi_lane_completed(l))
		n = retire(l, done, NULL);
	else if (code == CUFI_CODE_NOT_READY)
		cufi_expect_not_yet(l);
	if (!code || code == CUFI_CODE_NOT_READY)
		l->odd_since = 0;
	else if (d->ops->is_sticky(code) || odd_too_long(l))
		n += harvest_lost(l, lose(d, code, l, true, NULL));
	return n;
}

unsigned cufi_harvest(struct cufi_lane *l, uint64_t upto)
{
	unsigned n;

	/* relaxed: nothing outstanding is the common answer of a scan */
	if (!cufi_lock_try(&l->harvest))
		return 0;
	/* What is settled is told after the lock: no code of the user's runs under it. */
	cufi_defer_drain(1);
	n = harvest(l, upto);
	cufi_lock_give(&l->harvest);
	/* seq_cst: pairs with to_backlog() in submit.c */
	if (n && atomic_load(&l->backlog_n))
		cufi_hungry(l);
	cufi_defer_drain(-1);
	return n;
}

void cufi_device_lose(struct cufi_device *d, int code)
{
	lose(d, code, NULL, false, NULL);
}

bool cufi_harvest_enter(struct cufi_device *d, struct cufi_device_guard *guard, bool *out_entered)
{
	int code = d->ops->enter(d->index, guard);

	*out_entered = !code;
	if (!code)
		return true;
	if (!d->ops->is_sticky(code))
		return false;
	lose(d, code, NULL, false, NULL);
	return true;
}

unsigned cufi_harvest_all(struct cufi_device *d)
{
	/* acquire: pairs with cufi_lane_add */
	uint32_t lanes = atomic_load_explicit(&d->n_lanes, memory_order_acquire);
	struct cufi_device_guard guard;
	bool begun = false, entered = false;
	unsigned n = 0;

	for (uint32_t i = 0; i < lanes; i++) {
		struct cufi_lane *l = d->lanes[i];
		uint64_t upto = cufi_lane_published(l);

		if (upto == cufi_lane_completed(l))
			continue;
		if (!begun && !cufi_harvest_enter(d, &guard, &entered))
			return n;
		begun = true;
		n += cufi_harvest(l, upto);
	}
	if (entered)
		d->ops->leave(&guard);
	return n;
}
