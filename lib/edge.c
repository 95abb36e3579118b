/* SPDX-License-Identifier: MIT */
/*
 * Edges on the device: the event of a dependency, the waits of an operation, and the event that a tail
 * needs before it is buried.
 *
 * Never a wait on an event that is not recorded: an event exists for others only after its record call
 * returned, and an unrecorded one would silently be no wait at all.
 */
#include "edge.h"

#include "error.h"
#include "future.h"
#include "op.h"
#include "scope.h"

/* Recorded at the tail of @l, which is owned and whose device is entered. NULL: *out_code. */
static struct cufi_event *record(struct cufi_lane *l, int *out_code)
{
	struct cufi_device *d = l->dev;
	struct cufi_event *e = cufi_event_get(d, false, out_code);

	if (!e)
		return NULL;
	*out_code = d->ops->event_record(e->handle, l->stream);
	if (*out_code) {
		cufi_event_put(e);
		return NULL;
	}
	e->lane = l;
	e->seq = l->seq;
	e->frontier = cufi_frontier_hold(l->frontier);
	l->event_seq = l->seq;
	cufi_count(&l->n_events, 1);
	cufi_event_hold(e);
	cufi_queue_push(&l->marks, &e->mark);
	return e;
}

/* Gives @e, recorded right behind @f, to @f, unless that has settled. */
static void give_event(cuf_future *f, struct cufi_lane *l, struct cufi_event *e)
{
	uint32_t w = cufi_word_lock(&f->word);
	bool given = cufi_state_of(w) == CUFI_QUEUED && f->lane == l && f->seq == e->seq &&
		     !f->event;

	if (given) {
		cufi_event_hold(e);
		f->event = e;
	}
	cufi_word_unlock(&f->word, w);
}

/* The event of @f: one reference in *out, or NULL if it has settled. */
static bool event_of(cuf_future *f, struct cufi_event **out)
{
	uint32_t w = cufi_word_lock(&f->word);
	bool done = cufi_state_of(w) != CUFI_QUEUED;

	*out = done ? NULL : f->event;
	if (*out)
		cufi_event_hold(*out);
	cufi_word_unlock(&f->word, w);
	return done || *out;
}

/* LEFT: @op was left with the owner of @f's lane, and is out of the caller's hand. */
static enum cufi_got need_event(struct cufi_op *op, cuf_future *f, struct cufi_event **out,
				int *out_code)
{
	struct cufi_lane *l = f->lane;
	struct cufi_device_guard guard;
	enum cufi_got got = CUFI_GOT;

	if (event_of(f, out))
		return CUFI_GOT;
	CUFI_TESTPOINT("submit:need-event");
	if (!cufi_lane_own(l)) {
		/* It comes back as held; out of a backlog it is then. */
		cufi_claim(op->future, CUFI_BIT(CUFI_BACKLOG), CUFI_HELD);
		cufi_lane_request(l, op);
		return CUFI_LEFT;
	}
	if (!event_of(f, out)) {
		*out_code = l->dev->ops->enter(l->dev->index, &guard);
		if (!*out_code) {
			/* If f is not the tail, this orders after more than f; that is only slow. */
			*out = record(l, out_code);
			if (*out)
				give_event(f, l, *out);
			l->dev->ops->leave(&guard);
		}
		if (!*out)
			got = CUFI_FAILED;
	}
	cufi_lane_give_back(l);
	return got;
}

void cufi_waits_put(struct cufi_waits *w)
{
	for (size_t i = 0; i < w->n; i++)
		cufi_event_put(w->at[i]);
	w->n = 0;
}

static bool dominated(const struct cufi_waits *w, const struct cufi_lane *l, uint64_t seq)
{
	for (size_t i = 0; i < w->n; i++) {
		const struct cufi_event *e = w->at[i];

		if ((e->lane == l && e->seq >= seq) ||
		    (e->lane->dev == l->dev && cufi_frontier_covers(e->frontier, l, seq)))
			return true;
	}
	return false;
}

static void elided(struct cufi_lane *l)
{
	/* relaxed: statistics */
	atomic_fetch_add_explicit(&l->n_elided, 1, memory_order_relaxed);
}

/* Adds @e (its reference), dropping events that it dominates. False: no place. */
static bool add_wait(struct cufi_waits *w, struct cufi_event *e)
{
	size_t n = 0;

	for (size_t i = 0; i < w->n; i++) {
		struct cufi_event *old = w->at[i];

		if (old->lane->dev == e->lane->dev &&
		    ((old->lane == e->lane && old->seq <= e->seq) ||
		     cufi_frontier_covers(e->frontier, old->lane, old->seq)))
			cufi_event_put(old);
		else
			w->at[n++] = old;
	}
	w->n = n;
	if (n == CUFI_WAITS_MAX)
		return false;
	w->at[w->n++] = e;
	return true;
}

enum cufi_got cufi_waits_collect(struct cufi_op *op, struct cufi_lane *lane, struct cufi_waits *w,
				 int *out_code)
{
	struct cufi_link *links = cufi_op_links(op);

	w->n = 0;
	for (size_t i = 0; i < op->n_links; i++) {
		cuf_future *on = links[i].on;
		struct cufi_event *e = NULL;
		enum cufi_got got;

		if (!on || cufi_state_of(cufi_word(on)) != CUFI_QUEUED)
			continue;
		if (on->lane == lane || dominated(w, on->lane, on->seq)) {
			elided(lane);
			continue;
		}
		got = need_event(op, on, &e, out_code);
		if (got != CUFI_GOT) {
			cufi_waits_put(w);
			return got;
		}
		if (e && !add_wait(w, e)) {
			cufi_event_put(e);
			cufi_waits_put(w);
			*out_code = CUFI_CODE_NOT_SUPPORTED;
			return CUFI_FAILED;
		}
	}
	return CUFI_GOT;
}

int cufi_waits_issue(struct cufi_lane *l, struct cufi_waits *w)
{
	for (size_t i = 0; i < w->n; i++) {
		struct cufi_event *e = w->at[i];
		int code;

		if (e->lane->dev == l->dev && (cufi_frontier_covers(l->frontier, e->lane, e->seq) ||
					       cufi_lane_completed(e->lane) >= e->seq)) {
			elided(l);
			continue;
		}
		code = l->dev->ops->stream_wait(l->stream, e->handle);
		if (code)
			return code;
		cufi_count(&l->n_waits, 1);
		cufi_frontier_merge(l, e);
	}
	return 0;
}

/* ---- burying ---- */

static uint32_t own_edges(struct cufi_op *op, const cuf_future *f)
{
	struct cufi_link *links = cufi_op_links(op);
	uint32_t n = 0;

	for (size_t i = 0; i < op->n_links; i++)
		n += links[i].on == f;
	return n;
}

/*
 * The common case without LOCK: @op depends on the tail, so that it is there, and nobody else has a name
 * for it or has attached anything. Without a name nobody ever will.
 */
static bool buries_its_own(struct cufi_lane *l, struct cufi_op *op)
{
	cuf_future *t = l->tail;
	uint32_t own = own_edges(op, t);

	return own && t->lane == l && t->seq == l->seq && cufi_names(t) == own &&
	       cufi_word(t) == CUFI_QUEUED && !cufi_scope_has(t->op->scope, CUFI_SCOPE_CLOSING);
}

/*
 * Whether the tail of @l, which @op is about to bury, needs its event: somebody else may still name
 * it as a dependency (names are read before the lists: who gave up his name has attached what he
 * wanted), or waits for it on the host. The tail may have settled and its memory be another future's:
 * what is read under LOCK says so.
 */
static bool tail_needs_event(struct cufi_lane *l, struct cufi_op *op)
{
	cuf_future *t = l->tail;
	bool needs = false;
	uint32_t w;

	if (!t || l->event_seq == l->seq || cufi_lane_completed(l) >= l->seq)
		return false;
	if (buries_its_own(l, op))
		return false;
	w = cufi_word_lock(&t->word);
	if (cufi_state_of(w) == CUFI_QUEUED && t->lane == l && t->seq == l->seq) {
		uint32_t names = cufi_names(t);

		CUFI_TESTPOINT("submit:names");
		needs = names > own_edges(op, t) || t->after || t->then || w & CUFI_PARKED ||
			cufi_scope_has(t->op->scope, CUFI_SCOPE_CLOSING);
	}
	cufi_word_unlock(&t->word, w);
	return needs;
}

/* The event just recorded bounds the depth of the queue. */
static void count_mark(struct cufi_lane *l)
{
	cufi_count(&l->n_marks, 1);
	cufi_count(&l->n_events, -1);
}

int cufi_bury(struct cufi_lane *l, struct cufi_op *op, bool mark)
{
	struct cufi_event *e;
	int code;

	mark &= l->event_seq < l->seq && cufi_lane_completed(l) < l->seq;
	if (!mark && !tail_needs_event(l, op))
		return 0;
	e = record(l, &code);
	if (!e)
		return code;
	if (mark)
		count_mark(l);
	give_event(l->tail, l, e);
	cufi_event_put(e);
	return 0;
}

int cufi_record_tail(struct cufi_lane *l)
{
	struct cufi_event *e;
	int code;

	if (l->event_seq == l->seq)
		return 0;
	e = record(l, &code);
	if (!e)
		return code;
	give_event(l->tail, l, e);
	cufi_event_put(e);
	return 0;
}

void cufi_mark_full(struct cufi_lane *l)
{
	struct cufi_device_guard guard;

	if (l->seq == 0 || cufi_lane_completed(l) >= l->seq)
		return;
	if (l->event_seq < l->seq && l->dev->ops->enter(l->dev->index, &guard) == 0) {
		int code;
		struct cufi_event *e = record(l, &code);

		if (e) {
			count_mark(l);
			give_event(l->tail, l, e);
			cufi_event_put(e);
		}
		l->dev->ops->leave(&guard);
	}
	cufi_want(l, l->seq);
}
