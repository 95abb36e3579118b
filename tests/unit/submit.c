/* SPDX-License-Identifier: MIT */
/*
 * A submit is stopped between two of its steps, and the rest of the world goes on: a tail that is
 * about to be buried, an operation on its way into a backlog or onto a stream, a scope that is
 * closed meanwhile. The tick is off: what is forgotten then stays so.
 */
#include "tap.h"
#include "contract/rig.h"

#ifndef CUFI_TESTPOINTS
int main(void)
{
	plan_skip_all("built without testpoints");
}
#else
#include "unit/races.h"

static atomic_bool told;

/* ---- record before burying: who can name the tail was just counted ---- */

struct burial {
	cuf_scope *s;
	cuf_future *tail;
	bool release;
};

static void *attach(void *arg)
{
	struct burial *b = arg;

	atomic_store(&told, false);
	cuf_watch(b->s, b->tail, note_settled, &told);
	if (b->release)
		cuf_release(b->tail);
	return NULL;
}

/* In another thread: that of the submit has the tail's lock. */
static pthread_t attacher;

static void attach_apart(void *arg)
{
	if (pthread_create(&attacher, NULL, attach, arg))
		abort();
	sleep_ms(20);
}

static void check_names(bool release)
{
	struct burial b = { .s = cuf_scope_open(root), .release = release };
	struct gate g = gate_make(), h = gate_make();
	cuf_future *over;

	b.tail = GATE_LAUNCH(b.s, g, .label = "tail");
	cufi_testpoint_arm("submit:names", attach_apart, &b, 1);
	over = GATE_LAUNCH(b.s, h, .after = CUF_AFTER(b.tail));
	cufi_testpoint_disarm("submit:names");
	pthread_join(attacher, NULL);
	gate_open(g);
	ok(AWAIT(atomic_load(&told), 5000),
	   "a tail is watched%s as it is buried: the watch is called",
	   release ? ", and released," : "");
	is_int(cuf_poll(over), CUF_PENDING, "though what buried it goes on");
	gate_open(h);
	is_int(ends(cuf_scope_close(b.s)), CUF_OK, "their scope ends");
	cuf_pinned_put(rt, g.flag);
	cuf_pinned_put(rt, h.flag);
}

/* ---- on its way into a backlog, as the lane runs dry ---- */

struct submitter {
	cuf_scope *s;
	cuf_future *after, *made;
	pthread_t thread;
};

static void *submit_one(void *arg)
{
	struct submitter *a = arg;

	a->made = empty_launch(a->s, CUF_OPTIONS(.after = CUF_AFTER(a->after)));
	return NULL;
}

static void start_submitter(struct submitter *a)
{
	if (pthread_create(&a->thread, NULL, submit_one, a))
		abort();
}

/* A chain that fills its lane, and some more. Its last. */
static cuf_future *fill_up(cuf_scope *s, struct gate g)
{
	cuf_future *f = GATE_LAUNCH(s, g, .label = "gate");

	for (int i = 0; i < 1500; i++)
		f = empty_launch(s, CUF_OPTIONS(.take = CUF_LIST(f)));
	return f;
}

static void check_backlog(void)
{
	cuf_scope *s = cuf_scope_open(root);
	struct gate g = gate_make();
	struct submitter a = { .s = s };
	struct cufi_lane *l;
	struct stop at;

	a.after = fill_up(s, g);
	l = a.after->lane;
	ok(l && atomic_load(&l->backlog_n) > 0, "there is a backlog");
	stop_arm(&at, "submit:backlog");
	start_submitter(&a);
	ok(stop_reached(&at), "another operation is on its way there");
	gate_open(g);
	is_int(settles(a.after, 5000), CUF_OK, "meanwhile the lane runs dry");
	ok(AWAIT(!atomic_load(&l->in_flight), 3000), "with nobody left to feed it");
	stop_go(&at);
	pthread_join(a.thread, NULL);
	is_int(settles(a.made, 5000), CUF_OK, "it is fed all the same");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
	cuf_pinned_put(rt, g.flag);
}

/* ---- on the stream, not yet to be found, as its scope is closed ---- */

static struct submitter inside;

static cuf_future *submit_in_scope(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)in;
	inside.made = empty_launch(s, CUF_HERE);
	(void)arg;
	return NULL;
}

static void check_closed_meanwhile(void)
{
	cuf_scope *s = cuf_scope_open(root);
	struct stop at;
	cuf_future *held, *closed;
	cuf_promise *p = cuf_promise_create(root, &held);

	cuf_then(s, held, submit_in_scope, NULL, .on = cuf_runtime_workers(rt));
	stop_arm(&at, "submit:publish");
	cuf_promise_fulfil(p, NULL, NULL);
	ok(stop_reached(&at), "a continuation is about to publish an operation");
	closed = cuf_scope_close(s);
	sleep_ms(5);
	is_int(cuf_poll(closed), CUF_PENDING, "its scope is closed");
	stop_go(&at);
	is_int(settles(closed, 5000), CUF_OK, "and ends when the operation has");
	cuf_release(held);
}

/* ---- let go of, as the enqueuer falls asleep ---- */

static void check_enqueuer(void)
{
	cuf_scope *s = cuf_scope_open(root);
	struct stop at;
	cuf_future *held, *f, *g, *more;
	cuf_promise *p = cuf_promise_create(s, &held), *q = cuf_promise_create(s, &more);

	f = empty_launch(s, CUF_OPTIONS(.after = CUF_AFTER(held)));
	g = empty_launch(s, CUF_OPTIONS(.after = CUF_AFTER(more)));
	stop_arm(&at, "enqueuer:sleep");
	cuf_promise_fulfil(p, NULL, NULL);
	ok(stop_reached(&at), "the enqueuer falls asleep");
	cuf_promise_fulfil(q, NULL, NULL);
	stop_go(&at);
	is_int(settles(g, 5000), CUF_OK, "what it is given meanwhile it enqueues");
	is_int(settles(f, 5000), CUF_OK, "as what it was given before");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
}

/* ---- cancelled between the last look and the claim ---- */

static void cancel_it(void *arg)
{
	cuf_future **f = arg;

	if (*f && cuf_cancel(*f) != CUF_OK)
		diag("too late to cancel");
}

static void check_cancelled(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *held, *f, *before = empty_launch(s, CUF_HERE);
	cuf_promise *p = cuf_promise_create(s, &held);
	uint64_t launches;

	is_int(ends(before), CUF_OK, "one before");
	f = empty_launch(s, CUF_OPTIONS(.after = CUF_AFTER(held, before)));
	launches = cuf_host_calls(CUF_HOST_LAUNCH);
	cufi_testpoint_arm("submit:claim", cancel_it, &f, 1);
	cuf_promise_fulfil(p, NULL, NULL);
	is_int(settles(f, 5000), CUF_ERR_CANCELLED, "cancelled just before it is enqueued");
	cufi_testpoint_disarm("submit:claim");
	is_int(ends(cuf_scope_close(s)), CUF_ERR_CANCELLED, "its scope ends");
	is_int((long long)(cuf_host_calls(CUF_HOST_LAUNCH) - launches), 0, "it was not enqueued");
}

int main(void)
{
	start_without_tick(CUF_BALANCED);
	plan(2 * 3 + 6 + 3 + 4 + 4 + 1);
	check_names(false);
	check_names(true);
	check_backlog();
	check_closed_meanwhile();
	check_enqueuer();
	check_cancelled();
	return rig_end();
}
#endif
