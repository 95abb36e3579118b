/* SPDX-License-Identifier: MIT */
/*
 * Submit: lane, waits, enqueue, publish. How a lane is owned and how much it may have in flight is
 * lane.c's business; who notices the end, harvest.c's.
 *
 * The path of an operation in hand whose dependencies are all QUEUED or settled:
 *
 *	failed dependency? inherit        device lost? fail, without a call
 *	choose a lane
 *	for each dependency on another lane that nothing dominates: its event, recording it (for which
 *		its lane is owned for a moment) if it is that lane's tail and has none
 *	own the lane; taken: another; all taken: the enqueuer tries
 *	no room: to its backlog
 *	claim HELD -> ENQUEUING
 *	the tail that is about to be buried gets its event, if anybody may still name it or waits for it
 *	waits, each looked at once more; the work itself
 *	seq; QUEUED (tells dependants); pending; published; lane given back
 *
 * Never a wait on an event that is not recorded: an event exists for others only after its record
 * call returned.
 */
#include "submit.h"

#include "edge.h"
#include "error.h"
#include "expect.h"
#include "future.h"
#include "machine.h"
#include "op.h"
#include "scope.h"
#include "timer.h"

/* Lanes tried before an operation goes to the enqueuer because all were taken. Arbitrary. */
#define LANES_TRIED 4

enum where { SUBMITTER, ENQUEUER, FEED };

/* ---- failing ---- */

/* In hand, state in @from: settles with @root's error; consumes the reference. */
static void fail(struct cufi_op *op, struct cufi_root *root, bool inherited, uint32_t from)
{
	cuf_future *f = op->future;

	if (!cufi_claim(f, from, CUFI_SETTLING)) {
		if (!inherited)
			cufi_root_look(root); /* nobody ever carried it */
		cufi_root_let_go(root);
		cufi_op_drop(op);
		return;
	}
	if (op->cls->unused)
		op->cls->unused(op);
	/* Nothing of it runs, but what it depended on may: that trails. */
	cufi_settle_error(f, inherited ? &root->inherited : &root->own, false);
	cufi_op_drop(op);
}

static void fail_code(struct cufi_op *op, struct cufi_device *d, int code, struct cufi_lane *l,
		      uint32_t from)
{
	bool inherited;
	struct cufi_root *r = cufi_device_error(d, code, op, l, &inherited);

	fail(op, r, inherited, from);
}

/* ---- enqueue ---- */

static int record_timing(struct cufi_op *op, struct cufi_lane *l, bool end)
{
	struct cufi_timing *t = cufi_op_timing(op);
	struct cufi_event **at = t ? (end ? &t->end : &t->start) : NULL;
	int code = 0;

	if (!t || (end && !t->start))
		return 0;
	*at = cufi_event_get(l->dev, true, &code);
	if (*at) {
		code = l->dev->ops->event_record((*at)->handle, l->stream);
		if (code) {
			cufi_event_put(*at);
			*at = NULL;
		}
	}
	/* Without its times the operation is what it was: only a start that fails says more. */
	return end ? 0 : code;
}

/* CUF_DEBUG=sync: waits here, so that an error is this operation's own. */
static int debug_sync(struct cufi_lane *l)
{
	int code;
	unsigned spins = 0;

	if (!cufi_debug_sync(l->dev->rt))
		return 0;
	while ((code = l->dev->ops->stream_query(l->stream)) == CUFI_CODE_NOT_READY)
		cufi_relax(&spins);
	return code;
}

/* The operation is on the stream. The lane is owned; @op may be gone when this returns. */
static void publish(struct cufi_op *op, struct cufi_lane *l, bool queued)
{
	cuf_future *f = op->future;
	cuf_scope *s = op->scope;
	bool handover = cufi_op_has(op, CUFI_OP_HANDOVER);
	bool wanted;

	/* relaxed: the state is made below */
	atomic_store_explicit(&f->lane, l, memory_order_relaxed);
	f->seq = ++l->seq;
	l->tail = f;
	cufi_op_release_links(op);
	if (handover) {
		cufi_scope_remove_member(f);
		op->scope = &f->rt->root;
	}
	if (queued)
		cufi_future_queued(f);
	if (cufi_traced(f->rt))
		cufi_trace_queued(f);
	CUFI_TESTPOINT("submit:publish");
	cufi_count(&l->n_operations, 1);
	/* seq_cst: pairs with cuf_scope_close: either it saw QUEUED, or we see CLOSING. The future is
	 * looked at before the harvester can find it. */
	wanted =
		atomic_load(&f->word) & (CUFI_LINKS | CUFI_PARKED) ||
		cufi_scope_has(op->scope, CUFI_SCOPE_CLOSING) || !queued ||
		/* relaxed: a drain, or who waits for room, that begins now wants every lane itself */
		atomic_load_explicit(&f->rt->gate, memory_order_relaxed) ||
		atomic_load_explicit(&f->rt->rooms, memory_order_relaxed);
	cufi_queue_push(&l->pending, &op->task.node);
	/* release: pairs with cufi_lane_published: pending holds it, f says where it is */
	atomic_store_explicit(&l->published, l->seq, memory_order_release);
	cufi_tick_on(l->dev->rt);
	if (cufi_lane_completed(l) + 1 == l->seq)
		cufi_expect_started(l);
	if (wanted || cufi_device_lost_root(l->dev))
		cufi_want(l, l->seq);
	cufi_lane_give_back(l);
	if (handover)
		cufi_scope_leave(s);
}

static void settle_user_code(struct cufi_op *op)
{
	int code = op->cls->user_code(op);
	struct cufi_root *r = cufi_root_new(op->scope->rt, CUF_ERR_USER, CUF_PHASE_ENQUEUE, op,
					    "the enqueue callback returned %d", code);

	if (!r->immortal)
		r->user_code = code;
	cufi_settle_error(op->future, &r->own, false);
}

/*
 * The lane is owned, the weight is reserved, @w holds the events of what is not on it. Everything is given
 * back. @from: the state it is claimed from.
 */
static void enqueue(struct cufi_op *op, struct cufi_lane *l, struct cufi_waits *w, bool mark,
		    uint32_t from)
{
	struct cufi_device *d = l->dev;
	uint32_t weight = cufi_place_of(op)->weight;
	struct cufi_device_guard guard;
	int code;

	CUFI_TESTPOINT("submit:claim");
	if (!cufi_claim(op->future, from, CUFI_ENQUEUING)) {
		cufi_lane_unreserve(l, weight);
		cufi_lane_give_back(l);
		cufi_waits_put(w);
		cufi_op_drop(op);
		return;
	}
	code = d->ops->enter(d->index, &guard);
	if (!code) {
		code = cufi_bury(l, op, mark);
		if (!code)
			code = cufi_waits_issue(l, w);
		if (!code)
			code = record_timing(op, l, false);
		if (!code)
			code = op->cls->enqueue(op, l);
		if (!code && (record_timing(op, l, true), true))
			code = debug_sync(l);
		d->ops->leave(&guard);
	}
	cufi_waits_put(w);
	if (!code) {
		publish(op, l, true);
	} else if (code == CUFI_CODE_USER) {
		/* Foreign code failed, and may have enqueued something all the same: the result is
		 * failed now, and finished when the lane has come this far. */
		if (cufi_claim(op->future, CUFI_BIT(CUFI_ENQUEUING), CUFI_SETTLING))
			settle_user_code(op);
		publish(op, l, false);
	} else {
		cufi_lane_unreserve(l, weight);
		cufi_lane_give_back(l);
		fail_code(op, d, code, l, CUFI_BIT(CUFI_ENQUEUING));
	}
}

/* ---- the way there ---- */

static void to_backlog(struct cufi_op *op, struct cufi_lane *l)
{
	/* relaxed: the claim below is what publishes it */
	atomic_store_explicit(&op->future->lane, l, memory_order_relaxed);
	if (!cufi_claim(op->future, CUFI_BIT(CUFI_HELD), CUFI_BACKLOG)) {
		cufi_op_drop(op);
		return;
	}
	CUFI_TESTPOINT("submit:backlog");
	/* seq_cst: pairs with cufi_feed: it counts us, or we find it hungry */
	atomic_fetch_add(&l->backlog_n, 1);
	cufi_queue_push(&l->backlog, &op->task.node);
	cufi_hungry(l);
}

/*
 * @l's dependency asks for nothing more: settled, and for an order edge also finished. One that ended
 * without having run orders behind what it depended on itself (trailing: op.c).
 */
static bool is_over(const struct cufi_link *l)
{
	uint32_t w = cufi_word(l->on);

	return cufi_word_settled(w) && (!(l->op_bits & CUFI_LINK_ORDER) || w & CUFI_FINISHED);
}

/* Every unsettled dependency is on @l or in its backlog, and one at least is in the backlog. */
static struct cufi_lane *backlog_of_deps(struct cufi_op *op, struct cufi_device *d)
{
	struct cufi_link *links = cufi_op_links(op);
	struct cufi_lane *lane = NULL;
	bool any = false;

	for (size_t i = 0; i < op->n_links; i++) {
		cuf_future *on = links[i].on;
		struct cufi_lane *l;
		enum cufi_state st;

		if (!on || is_over(&links[i]))
			continue;
		st = cufi_state_of(cufi_word(on));
		if (st != CUFI_QUEUED && st != CUFI_BACKLOG)
			return NULL;
		/* relaxed: the state was read with acquire. If it is put elsewhere meanwhile, this one
		 * comes to a wrong backlog, and is held when its turn comes. */
		l = atomic_load_explicit(&on->lane, memory_order_relaxed);
		if (l->dev != d || (lane && l != lane))
			return NULL;
		lane = l;
		any |= st == CUFI_BACKLOG;
	}
	return any ? lane : NULL;
}

/* All dependencies are QUEUED or settled still? If not (a backlog was cut), waits for them again. */
static bool still_ready(struct cufi_op *op)
{
	struct cufi_link *links = cufi_op_links(op);

	for (size_t i = 0; i < op->n_links; i++) {
		if (links[i].on && !is_over(&links[i]) &&
		    cufi_state_of(cufi_word(links[i].on)) != CUFI_QUEUED)
			return false;
	}
	return true;
}

/*
 * In hand, HELD (or BACKLOG, @where FEED, and then for @lane). Returns false only for FEED: the lane
 * is taken or full, @op is still in hand.
 */
static bool submit(struct cufi_op *op, enum where where, struct cufi_lane *lane)
{
	struct cufi_device *d = cufi_device_at(op->scope->rt, op->device);
	const struct cufi_place *p = cufi_place_of(op);
	uint32_t from = where == FEED ? CUFI_BIT(CUFI_BACKLOG) : CUFI_BIT(CUFI_HELD);
	struct cufi_root *lost = cufi_device_lost_root(d);
	struct cufi_link *dep = cufi_op_failed_dep(op);
	/* No backlog ever holds one: it has a lane for itself. An alloc is none, it is on its lane. */
	bool exclusive = cufi_op_has(op, CUFI_OP_EXCLUSIVE) && !p->lane;
	struct cufi_waits waits;
	int code = 0;
	bool mark;

	if (dep) {
		if (op->cls->failed && op->cls->failed(op, dep))
			return true;
		cufi_op_inherit(op, dep->on, from);
		cufi_op_drop(op);
		return true;
	}
	if (lost) {
		cufi_root_hold(lost);
		fail(op, lost, true, from);
		return true;
	}
	if (where != FEED) {
		if (p->lane)
			lane = d->lanes[p->lane - 1];
		else if (!exclusive)
			lane = cufi_lane_of_dep(op, d);
	}
	for (int tries = 0;; tries++) {
		if (exclusive)
			lane = cufi_lane_exclusive(d, op, where == ENQUEUER, &code);
		else if (!lane)
			lane = cufi_lane_choose(d, op);
		if (!lane && exclusive) {
			if (!code)
				cufi_device_op_ready(op); /* the enqueuer may make one */
			else
				fail_code(op, d, code, NULL, from);
			return true;
		}
		if (!lane) {
			/* all of them are taken by somebody who enqueues */
			lane = d->lanes[d->n_shared - 1];
		}
		switch (cufi_waits_collect(op, lane, &waits, &code)) {
		case CUFI_GOT:
			break;
		case CUFI_LEFT:
			return true;
		case CUFI_FAILED:
			fail_code(op, d, code, lane, from);
			return true;
		}
		/* relaxed: only who feeds takes it down, and he goes on to the end */
		if (where != FEED && !exclusive &&
		    atomic_load_explicit(&lane->backlog_n, memory_order_relaxed)) {
			cufi_waits_put(&waits);
			to_backlog(op, lane);
			return true;
		}
		if (cufi_lane_own(lane)) {
			if (!exclusive || cufi_lane_idle(lane))
				break;
			cufi_lane_give_back(lane); /* somebody was quicker */
		} else if (where == FEED && !cufi_lane_own_for_feed(lane)) {
			cufi_waits_put(&waits);
			return false;
		} else if (where == FEED) {
			break;
		}
		cufi_waits_put(&waits);
		if (exclusive)
			continue;
		if (p->lane || tries == LANES_TRIED) {
			to_backlog(op, lane);
			return true;
		}
		lane = NULL;
	}
	mark = cufi_lane_mark_due(lane, p->weight);
	if (!cufi_lane_reserve(lane, p->weight)) {
		struct cufi_device_guard guard;

		/* The device may have gone on since anybody looked. Not where a query would overwrite
		 * an error that the caller has still to look at. */
		if ((where != SUBMITTER || !d->ops->peek_error()) &&
		    d->ops->enter(d->index, &guard) == 0) {
			cufi_harvest(lane, lane->seq);
			d->ops->leave(&guard);
		}
		if (!cufi_lane_reserve(lane, p->weight)) {
			cufi_mark_full(lane);
			cufi_lane_give_back(lane);
			cufi_waits_put(&waits);
			if (where == FEED)
				return false;
			if (exclusive)
				/* idle, but what ended is still being taken off: it is tried again */
				cufi_device_op_ready(op);
			else
				to_backlog(op, lane);
			return true;
		}
	}
	enqueue(op, lane, &waits, mark, from);
	return true;
}

void cufi_device_op_ready(struct cufi_op *op)
{
	cufi_enqueuer_push(cufi_device_at(op->scope->rt, op->device), op);
}

/* On the thread apart: @op is the front of @l, which is this thread's until `apart` is 0 again. */
static void feed_apart(struct cufi_op *op, struct cufi_lane *l)
{
	bool done = submit(op, FEED, l);

	if (done) {
		l->front = NULL;
		atomic_fetch_sub(&l->backlog_n, 1);
	}
	/* seq_cst: pairs with cufi_feed */
	if (atomic_exchange(&l->apart, 0) == 2 || done)
		cufi_hungry(l);
}

void cufi_submit_held(struct cufi_op *op)
{
	struct cufi_lane *l = cufi_op_has(op, CUFI_OP_APART) ? op->future->lane : NULL;

	cufi_defer_drain(1);
	/* While it is not 0, front changes on this thread alone. */
	if (l && atomic_load(&l->apart) && l->front == op)
		feed_apart(op, l);
	else
		submit(op, ENQUEUER, NULL);
	cufi_defer_drain(-1);
}

void cufi_device_op_start(struct cufi_op *op)
{
	struct cufi_device *d = cufi_device_at(op->scope->rt, op->device);
	struct cufi_lane *l;

	cufi_defer_drain(1);
	l = cufi_place_of(op)->lane || cufi_op_has(op, CUFI_OP_EXCLUSIVE) ? NULL
									  : backlog_of_deps(op, d);
	if (l)
		to_backlog(op, l);
	else if (!cufi_op_attach_all(op))
		cufi_op_drop(op);
	else if (cufi_op_has(op, CUFI_OP_HANDOVER) || (op->cls->held && op->cls->held(op)))
		cufi_device_op_ready(op);
	else
		submit(op, SUBMITTER, NULL);
	cufi_defer_drain(-1);
}

void cufi_feed(struct cufi_lane *l)
{
	uint32_t apart = 1;

	/* seq_cst: pairs with feed_apart: it sees 2, or has given the front back */
	if (atomic_compare_exchange_strong(&l->apart, &apart, 2) || apart)
		return;
	for (;;) {
		struct cufi_op *op = l->front;

		if (!op)
			op = (struct cufi_op *)cufi_queue_pop(&l->backlog);
		l->front = op;
		if (!op)
			return;
		cufi_defer_drain(1);
		if (!still_ready(op)) {
			/* It came before what it waits for (or that was put back): held again. */
			l->front = NULL;
			atomic_fetch_sub(&l->backlog_n, 1);
			if (cufi_claim(op->future, CUFI_BIT(CUFI_BACKLOG), CUFI_HELD) &&
			    cufi_op_attach_all(op))
				cufi_device_op_ready(op);
			else
				cufi_op_drop(op);
		} else if (cufi_op_has(op, CUFI_OP_APART) &&
			   cufi_state_of(cufi_word(op->future)) == CUFI_BACKLOG) {
			/* Foreign code may take any time, and other lanes are to be fed. */
			atomic_store(&l->apart, 1);
			cufi_enqueuer_push(l->dev, op);
			cufi_defer_drain(-1);
			return;
		} else if (submit(op, FEED, l)) {
			l->front = NULL;
			atomic_fetch_sub(&l->backlog_n, 1);
		} else {
			cufi_defer_drain(-1);
			return;
		}
		cufi_defer_drain(-1);
	}
}
