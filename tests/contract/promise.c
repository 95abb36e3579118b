/* SPDX-License-Identifier: MIT */
/*
 * Promises: one call uses one up, whoever decides the outcome; values are dropped once. C24: whatever
 * races for an outcome, one wins, and is told so.
 */
#include "contract.h"

static cuf_scope *s;
static _Atomic int dropped;

static void drop(void *arg)
{
	(void)arg;
	atomic_fetch_add(&dropped, 1);
}

static void check_each(void)
{
	static int value;
	cuf_future *f, *g;
	cuf_promise *p;

	s = cuf_scope_open(root);
	p = cuf_promise_create(s, &f);
	ok(p && f && cuf_poll(f) == CUF_PENDING, "a promise and its pending future");
	ok(!cuf_value(f) && !cuf_error_of(f), "without value or error yet");
	ok(cuf_promise_fulfil(p, &value, drop), "fulfil wins");
	ok(outcome(f) == CUF_OK && cuf_value(f) == &value && !cuf_error_of(f),
	   "the value is there");
	cuf_release(f);
	ok(comes_to(&dropped, 1), "and is dropped with the last reference");

	p = cuf_promise_create_with(s, &f, CUF_OPTIONS(.label = "later"));
	ok(cuf_promise_fail(p, 42, "%d is %s", 42, "wrong"), "fail wins");
	is_int(outcome(f), CUF_ERR_USER, "the future has failed");
	is_int(info_of(f).user_code, 42, "with the code");
	is_str(info_of(f).message, "42 is wrong", "the message");
	is_str(info_of(f).label, "later", "the label");
	is_str(info_of(f).operation, "promise", "and the operation");
	ok(!cuf_value(f), "and no value");

	p = cuf_promise_create(s, &f);
	ok(cuf_promise_reject(p, -1, "100% %s"), "reject wins");
	is_str(info_of(f).message, "100% %s", "and takes the text as it is");
	p = cuf_promise_create(s, &f);
	ok(cuf_promise_reject(p, 1, NULL), "reject takes no text");
	ok(outcome(f) == CUF_ERR_USER && info_of(f).message, "the message is there all the same");

	p = cuf_promise_create(s, &f);
	ok(cuf_promise_follow(p, NULL), "dropping wins");
	is_int(outcome(f), CUF_ERR_BROKEN, "the promise is broken");

	p = cuf_promise_create(s, &f);
	is_int(cuf_cancel(f), CUF_OK, "a promise's future can be cancelled");
	atomic_store(&dropped, 0);
	ok(!cuf_promise_fulfil(p, &value, drop), "then fulfil has lost");
	is_int(atomic_load(&dropped), 1, "and its value is dropped");
	p = cuf_promise_create(s, &f);
	cuf_cancel(f);
	ok(!cuf_promise_fail(p, 1, "late"), "so has fail");
	p = cuf_promise_create(s, &f);
	cuf_cancel(f);
	ok(!cuf_promise_follow(p, cuf_ok()), "and follow");
	p = cuf_promise_create(s, &f);
	cuf_cancel(f);
	ok(!cuf_promise_follow(p, NULL), "and dropping");
	is_int(cuf_cancel(f), CUF_ERR_TOO_LATE, "a second cancel is too late");

	p = cuf_promise_create(s, NULL);
	ok(!p, "NULL for the future: no promise");
	p = cuf_promise_create(NULL, &g);
	ok(!p && cuf_poll(g) == CUF_ERR_INVALID, "NULL for the scope: an invalid future");
	atomic_store(&dropped, 0);
	ok(!cuf_promise_fulfil(NULL, &value, drop) && atomic_load(&dropped) == 1,
	   "a NULL promise takes a value and drops it");
	ok(!cuf_promise_fail(NULL, 1, "x") && !cuf_promise_reject(NULL, 1, "x") &&
		   !cuf_promise_follow(NULL, cuf_ok()),
	   "and takes the other calls");
	f = cuf_scope_close(s);
	outcome(f);
	cuf_ignore(f);
	cuf_release(f);
}

static void check_follow(void)
{
	static int value;
	cuf_future *f, *g, *bad;
	cuf_promise *p, *q;

	s = cuf_scope_open(root);
	p = cuf_promise_create(s, &f);
	ok(cuf_promise_follow(p, cuf_ready(s, &value, NULL)), "follow what has settled");
	ok(outcome(f) == CUF_OK && cuf_value(f) == &value, "its value");
	bad = cuf_failed(s, 5, "five");
	p = cuf_promise_create(s, &f);
	cuf_promise_follow(p, bad);
	ok(outcome(f) == CUF_ERR_USER && info_of(f).user_code == 5 && info_of(f).inherited,
	   "its error, inherited");
	p = cuf_promise_create(s, &f);
	q = cuf_promise_create(s, &g);
	ok(cuf_promise_follow(p, g), "follow what has not");
	is_int(cuf_poll(f), CUF_PENDING, "until it has");
	cuf_promise_fulfil(q, &value, NULL);
	ok(outcome(f) == CUF_OK && cuf_value(f) == &value, "its value then");
	p = cuf_promise_create(s, &f);
	q = cuf_promise_create(s, &g);
	cuf_promise_follow(p, g);
	is_int(cuf_cancel(f), CUF_OK, "a follower can be cancelled");
	is_int(cuf_poll(g), CUF_PENDING, "what it followed is left alone");
	cuf_promise_fulfil(q, NULL, NULL);
	p = cuf_promise_create(s, &f);
	cuf_promise_follow(p, f);
	is_int(outcome(f), CUF_ERR_WOULD_DEADLOCK, "what would wait for itself fails");
	f = cuf_scope_close(s);
	outcome(f);
	cuf_ignore(f);
	cuf_release(f);
}

/* What happened before the fulfil is seen by continuations and waiters, with plain memory. */
static int published[16];

static cuf_future *look(cuf_scope *scope, cuf_future *in, void *arg)
{
	_Atomic int *right = arg;
	const int *v = cuf_value(in);

	(void)scope;
	if (v && *v == 77)
		atomic_fetch_add(right, 1);
	return NULL;
}

static void *fulfil_later(void *arg)
{
	published[3] = 77;
	cuf_promise_fulfil(arg, &published[3], NULL);
	return NULL;
}

static void check_publication(void)
{
	static _Atomic int right;
	int rounds = (int)scaled(2000), seen = 0;

	s = cuf_scope_open(root);
	for (int i = 0; i < rounds; i++) {
		cuf_future *f, *t;
		cuf_promise *p = cuf_promise_create(s, &f);
		pthread_t thread;

		published[3] = 0;
		t = cuf_then(s, f, look, &right);
		if (pthread_create(&thread, NULL, fulfil_later, p))
			abort();
		outcome(f);
		seen += published[3] == 77;
		outcome(t);
		pthread_join(thread, NULL);
		cuf_release_all(f, t);
	}
	is_int(seen, rounds, "a waiter sees what was written before the fulfil");
	is_int(atomic_load(&right), rounds, "so does a continuation");
	cuf_scope_end(s);
}

/* ---- C24 ---- */

#define BATCH 1000 /* a multiple of 8 */

struct entry {
	cuf_promise *p;
	cuf_future *f, *t; /* the promise's, and a timeout of it */
	bool fulfilled, failed;
	cuf_status cancelled, timeout_cancelled;
	_Atomic int ran, dropped;
};

static struct entry batch[BATCH];
static pthread_barrier_t barrier;
static long rounds;
static _Atomic long go;

static void count_drop(void *arg)
{
	atomic_fetch_add(&((struct entry *)arg)->dropped, 1);
}

static void count_watch(cuf_future *f, void *arg)
{
	(void)f;
	atomic_fetch_add(&((struct entry *)arg)->ran, 1);
}

/* Racers take the entries in step as far as they can: each waits for the first to be there. */
static void meet(long round, int i)
{
	long place = round * BATCH + i, at = atomic_load(&go);

	while (at < place && !atomic_compare_exchange_weak(&go, &at, place))
		;
}

static void *race(void *arg)
{
	intptr_t who = (intptr_t)arg;

	for (long r = 0; r < rounds; r++) {
		pthread_barrier_wait(&barrier);
		for (int i = 0; i < BATCH; i++) {
			/* each begins elsewhere in a block of 8, so that every order happens */
			int k = (i & ~7) | ((i + 3 * (int)who + (int)r) & 7);
			struct entry *e = &batch[k];

			meet(r, i);
			if (who == 1)
				e->cancelled = cuf_cancel(e->f);
			else if (who == 2)
				e->timeout_cancelled = cuf_cancel(e->t);
			else if (k & 1)
				e->fulfilled = cuf_promise_fulfil(e->p, e, count_drop);
			else
				e->failed = cuf_promise_fail(e->p, k, "race");
		}
		pthread_barrier_wait(&barrier);
	}
	return NULL;
}

/* How often something was not as it should be. */
static int judge(struct entry *e)
{
	cuf_status f = outcome(e->f), t = outcome(e->t);
	int wins = e->fulfilled + e->failed + (e->cancelled == CUF_OK), wrong = 0;
	bool own = t == CUF_OK ? false : !info_of(e->t).inherited;

	wrong += wins != 1;
	wrong += f != (e->fulfilled ? CUF_OK : e->failed ? CUF_ERR_USER : CUF_ERR_CANCELLED);
	wrong += e->cancelled != CUF_OK && e->cancelled != CUF_ERR_TOO_LATE;
	/* the timeout: told that its cancel won if and only if it was cancelled itself */
	wrong += (e->timeout_cancelled == CUF_OK) != (t == CUF_ERR_CANCELLED && own);
	wrong += t != CUF_ERR_TIMED_OUT && t != f && !(t == CUF_ERR_CANCELLED && own);
	cuf_error_of(e->f);
	return wrong;
}

static void check_races(void)
{
	pthread_t thread[3];
	long wrong = 0, wins[4] = { 0 };

	rounds = scaled(1000000) / BATCH;
	if (!rounds)
		rounds = 1;
	pthread_barrier_init(&barrier, NULL, 4);
	for (intptr_t i = 0; i < 3; i++) {
		if (pthread_create(&thread[i], NULL, race, (void *)i))
			abort();
	}
	for (long r = 0; r < rounds; r++) {
		cuf_future *close;

		s = cuf_scope_open(root);
		for (int i = 0; i < BATCH; i++) {
			struct entry *e = &batch[i];

			e->p = cuf_promise_create(s, &e->f);
			/* the timer thread is the fourth racer */
			e->t = cuf_timeout(s, e->f, cuf_now_ns() + 20000 + (uint64_t)i * 300);
			cuf_watch(s, e->f, count_watch, e);
			cuf_watch(s, e->t, count_watch, e);
			e->fulfilled = e->failed = false;
			e->cancelled = e->timeout_cancelled = CUF_PENDING;
		}
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
		for (int i = 0; i < BATCH; i++) {
			struct entry *e = &batch[i];

			wrong += judge(e);
			wins[0] += e->fulfilled || e->failed;
			wins[1] += e->cancelled == CUF_OK;
			wins[2] += e->timeout_cancelled == CUF_OK;
			wins[3] += cuf_poll(e->t) == CUF_ERR_TIMED_OUT;
			cuf_release_all(e->f, e->t);
		}
		close = cuf_scope_close(s);
		outcome(close);
		cuf_ignore(close);
		cuf_release(close);
		for (int i = 0; i < BATCH; i++) {
			struct entry *e = &batch[i];

			wrong += atomic_exchange(&e->ran, 0) != 2;
			/* a thread of the runtime may have the last reference for an instant longer */
			wrong += !comes_to(&e->dropped, i & 1);
			atomic_store(&e->dropped, 0);
		}
	}
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	pthread_barrier_destroy(&barrier);
	diag("won: promise %ld, cancel %ld, timeout's cancel %ld, deadline %ld", wins[0], wins[1],
	     wins[2], wins[3]);
	is_int(wrong, 0, "%ld races: one wins each, and is told so; watches run once",
	       rounds * BATCH);
	ok(wins[0] && wins[1], "and both sides won");
}

int main(void)
{
	plan(43);
	open_runtime((cuf_runtime_options){ 0 });
	check_each();
	check_follow();
	check_publication();
	check_races();
	close_runtime("promise");
	return done();
}
