/* SPDX-License-Identifier: MIT */
/*
 * Continuations: what they may return, when their argument is dropped, in which order and on which
 * loop they run, and what they may do (C07, C08).
 */
#include "contract.h"

static _Atomic int ran, dropped;
static cuf_future *_Atomic own; /* a continuation's own result, once the attacher knows it */

static cuf_future *same(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)arg;
	atomic_fetch_add(&ran, 1);
	return in;
}

static cuf_future *nothing(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	atomic_fetch_add(&ran, 1);
	return NULL;
}

/* Hands over one reference to @arg. */
static cuf_future *other(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in;
	atomic_fetch_add(&ran, 1);
	return cuf_retain(arg);
}

static cuf_future *recover(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	atomic_fetch_add(&ran, 1);
	return cuf_ok();
}

static void drop(void *arg)
{
	(void)arg;
	atomic_fetch_add(&dropped, 1);
}

/* ---- what a function returns ---- */

static void check_same_outcome(void)
{
	static int value;
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *good = cuf_ready(s, &value, NULL), *bad = cuf_failed(s, 7, "seven");
	cuf_future *f;

	atomic_store(&ran, 0);
	f = cuf_then(s, good, nothing, NULL);
	ok(outcome(f) == CUF_OK && cuf_value(f) == &value, "then returning NULL is as its input");
	f = cuf_then(s, good, same, NULL);
	ok(outcome(f) == CUF_OK && cuf_value(f) == &value, "then returning its input too");
	f = cuf_finally(s, good, same, NULL);
	ok(outcome(f) == CUF_OK && cuf_value(f) == &value, "and finally");
	is_int(atomic_load(&ran), 3, "each of them ran");
	f = cuf_catch(s, good, nothing, NULL);
	ok(outcome(f) == CUF_OK && cuf_value(f) == &value, "a catch passes a success on");
	f = cuf_then(s, bad, nothing, NULL);
	is_int(outcome(f), CUF_ERR_USER, "a then passes a failure on");
	ok(info_of(f).inherited && info_of(f).user_code == 7, "with its root cause");
	is_int(atomic_load(&ran), 3, "and neither ran");
	f = cuf_catch(s, bad, nothing, NULL);
	is_int(outcome(f), CUF_ERR_USER, "a catch returning NULL passes the failure on");
	f = cuf_finally(s, bad, same, NULL);
	is_int(outcome(f), CUF_ERR_USER, "and so does a finally returning its input");
	is_int(atomic_load(&ran), 5, "both ran");
	f = cuf_catch(s, bad, recover, NULL);
	is_int(outcome(f), CUF_OK, "a catch that returns cuf_ok() has recovered");
	cuf_scope_end(s);
}

static void check_other_future(void)
{
	static int value, second;
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *good = cuf_ready(s, &value, NULL), *bad = cuf_failed(s, 8, "eight"), *f,
		   *pending;
	cuf_future *first = cuf_failed(s, 1, "one");
	cuf_promise *p;

	f = cuf_then(s, good, other, cuf_ready(s, &second, NULL));
	ok(outcome(f) == CUF_OK && cuf_value(f) == &second, "a ready future returned: its value");
	f = cuf_then(s, good, other, bad);
	ok(outcome(f) == CUF_ERR_USER && info_of(f).user_code == 8, "a failed one: its error");
	f = cuf_catch(s, first, other, bad);
	ok(outcome(f) == CUF_ERR_USER && info_of(f).user_code == 8, "a catch may fail anew");
	f = cuf_finally(s, good, other, bad);
	ok(outcome(f) == CUF_ERR_USER && info_of(f).user_code == 8,
	   "what a finally returns may fail what had succeeded");
	f = cuf_finally(s, first, other, bad);
	ok(outcome(f) == CUF_ERR_USER && info_of(f).user_code == 1, "but keeps the first failure");
	f = cuf_finally(s, good, other, cuf_ready(s, &second, NULL));
	ok(outcome(f) == CUF_OK && cuf_value(f) == &value, "and the first value");

	p = cuf_promise_create(s, &pending);
	atomic_store(&ran, 0);
	f = cuf_then(s, good, other, pending);
	comes_to(&ran, 1);
	nap_ms(5);
	is_int(cuf_poll(f), CUF_PENDING, "a pending future returned: the result waits for it");
	cuf_promise_fulfil(p, &second, NULL);
	ok(outcome(f) == CUF_OK && cuf_value(f) == &second, "and is as it");
	p = cuf_promise_create(s, &pending);
	f = cuf_finally(s, first, other, pending);
	nap_ms(5);
	is_int(cuf_poll(f), CUF_PENDING, "a finally waits for what it returned, a failure too");
	cuf_promise_fulfil(p, NULL, NULL);
	ok(outcome(f) == CUF_ERR_USER && info_of(f).user_code == 1, "and then fails as its input");
	p = cuf_promise_create(s, &pending);
	atomic_store(&ran, 0);
	f = cuf_then(s, good, other, pending);
	comes_to(&ran, 1);
	nap_ms(5);
	is_int(cuf_cancel(f), CUF_OK, "a result that follows can be cancelled");
	is_int(cuf_poll(pending), CUF_PENDING, "and what it followed is left alone");
	ok(cuf_promise_fulfil(p, NULL, NULL), "and can be fulfilled");
	cuf_scope_end(s);
}

static cuf_future *return_own(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	while (!atomic_load(&own))
		nap_ms(1);
	return cuf_retain(atomic_load(&own));
}

static void check_own_result(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *f = cuf_then(s, cuf_ok(), return_own, NULL);

	atomic_store(&own, f);
	is_int(outcome(f), CUF_ERR_WOULD_DEADLOCK, "returning one's own result would deadlock");
	atomic_store(&own, NULL);
	cuf_scope_end(s);
}

/* ---- drops and copies ---- */

static _Atomic int drop_early; /* the result had settled when drop ran */
static cuf_future *_Atomic result;

static void drop_and_look(void *arg)
{
	(void)arg;
	while (!atomic_load(&result))
		nap_ms(1);
	if (cuf_poll(atomic_load(&result)) != CUF_PENDING)
		atomic_fetch_add(&drop_early, 1);
	atomic_fetch_add(&dropped, 1);
}

static void check_drop(void)
{
	static int arg;
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *bad = cuf_failed(s, 1, "bad"), *pending, *f;
	cuf_promise *p;
	struct {
		const char *name;
		cuf_future *f;
	} path[5];
	cuf_future *(*const ways[])(cuf_scope *, cuf_future *, cuf_then_fn *, void *,
				    const cuf_options *) = { cuf_then_with, cuf_catch_with,
							     cuf_finally_with };

	path[0].name = "success", path[0].f = cuf_ok();
	path[1].name = "failure", path[1].f = bad;
	for (int i = 0; i < 2; i++) {
		for (int k = 0; k < 3; k++) {
			atomic_store(&dropped, 0);
			atomic_store(&drop_early, 0);
			atomic_store(&result, NULL);
			f = ways[k](s, path[i].f, nothing, &arg,
				    CUF_OPTIONS(.drop = drop_and_look));
			atomic_store(&result, f);
			outcome(f);
			ok(atomic_load(&dropped) == 1 && !atomic_load(&drop_early),
			   "way %d, %s: the drop ran once, before the result settled", k,
			   path[i].name);
		}
	}
	atomic_store(&dropped, 0);
	p = cuf_promise_create(s, &pending);
	f = cuf_then(s, pending, nothing, &arg, .drop = drop);
	is_int(cuf_cancel(f), CUF_OK, "a continuation whose input is pending can be cancelled");
	is_int(cuf_poll(f), CUF_ERR_CANCELLED, "and has settled at once");
	ok(comes_to(&dropped, 1), "its drop runs");
	cuf_promise_fulfil(p, NULL, NULL);
	cuf_call(s, nothing, &arg, .drop = drop);
	ok(comes_to(&dropped, 2), "that of a call too");
	cuf_call(s, nothing, &arg, .drop = drop, .after = CUF_AFTER(bad));
	ok(comes_to(&dropped, 3), "that of a call whose dependency failed");
	p = cuf_promise_create(s, &pending);
	f = cuf_call(s, nothing, &arg, .drop = drop, .after = CUF_AFTER(pending));
	cuf_cancel(f);
	ok(comes_to(&dropped, 4), "that of a cancelled call");
	cuf_promise_follow(p, NULL);
	cuf_then(s, NULL, nothing, &arg, .drop = drop);
	cuf_then(s, cuf_ok(), NULL, &arg, .drop = drop);
	cuf_then(NULL, cuf_ok(), nothing, &arg, .drop = drop);
	cuf_call(s, NULL, &arg, .drop = drop);
	ok(comes_to(&dropped, 8), "those of continuations that were refused");
	f = cuf_scope_close(s);
	cuf_ignore(f);
	outcome(f);
	is_int(atomic_load(&dropped), 8, "and each only once");
	cuf_release(f);
}

struct numbers {
	int a, b;
};

static _Atomic int sum;

static cuf_future *add(cuf_scope *s, cuf_future *in, void *arg)
{
	struct numbers *n = arg;

	(void)s, (void)in;
	atomic_store(&sum, n->a + n->b);
	n->a = 100;
	return NULL;
}

static void add_again(void *arg)
{
	const struct numbers *n = arg;

	atomic_fetch_add(&sum, n->a);
}

static void check_arg_bytes(void)
{
	cuf_scope *s = cuf_scope_open(root);
	struct numbers n = { 1, 2 };
	cuf_future *pending, *f;
	cuf_promise *p = cuf_promise_create(s, &pending);

	f = cuf_then(s, pending, add, &n, .arg_bytes = sizeof n, .drop = add_again);
	n.a = n.b = 1000;
	cuf_promise_fulfil(p, NULL, NULL);
	outcome(f);
	is_int(atomic_load(&sum), 103, "the argument was copied, fn and drop got the copy");
	is_int(n.a, 1000, "and the original was left alone");
	cuf_scope_end(s);
}

/* ---- order ---- */

#define MANY 2000
static _Atomic int next_place;
static int places[MANY];

static cuf_future *take_place(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in;
	places[atomic_fetch_add(&next_place, 1)] = (int)(intptr_t)arg;
	return NULL;
}

static void take_watch(cuf_future *f, void *arg)
{
	take_place(NULL, f, arg);
}

static bool in_order(int n)
{
	for (int i = 0; i < n; i++) {
		if (places[i] != i)
			return false;
	}
	return true;
}

static _Atomic int settle_at; /* how many are attached when the other thread may settle */

static void *settle_late(void *arg)
{
	int when = 1 + rand() % 1000;

	while (atomic_load(&settle_at) < when)
		;
	cuf_promise_fulfil(arg, NULL, NULL);
	return NULL;
}

/* Attaches @n in all ways, one after the other, while another thread settles. */
static bool race_order(int n)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *f, *end;
	cuf_promise *p = cuf_promise_create(s, &f);
	pthread_t thread;
	bool right;

	atomic_store(&next_place, 0);
	atomic_store(&settle_at, 0);
	if (pthread_create(&thread, NULL, settle_late, p))
		abort();
	for (int i = 0; i < n; i++) {
		void *arg = (void *)(intptr_t)i;

		if (i % 3 == 0)
			cuf_release(cuf_then(s, f, take_place, arg));
		else if (i % 3 == 1)
			cuf_release(cuf_finally(s, f, take_place, arg));
		else
			cuf_watch(s, f, take_watch, arg);
		atomic_store(&settle_at, i + 1);
	}
	atomic_store(&settle_at, INT32_MAX);
	pthread_join(thread, NULL);
	end = cuf_scope_close(s);
	right = outcome(end) == CUF_OK && atomic_load(&next_place) == n && in_order(n);
	cuf_release(end);
	return right;
}

static void check_order(void)
{
	int right = 0, rounds = (int)scaled(200);

	for (int i = 0; i < rounds; i++)
		right += race_order(MANY / 2);
	is_int(right, rounds, "continuations start in the order of attachment, settled meanwhile");
}

static _Atomic(pthread_t) thread_of_fn, thread_of_drop;

static cuf_future *note_thread(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	atomic_store(&thread_of_fn, pthread_self());
	return NULL;
}

static void note_drop_thread(void *arg)
{
	(void)arg;
	atomic_store(&thread_of_drop, pthread_self());
}

static void check_loops(void)
{
	pthread_t me = pthread_self();
	cuf_loop *mine, *second;
	cuf_scope *s, *t;
	cuf_future *f;

	cuf_loop_create(rt, &mine);
	cuf_loop_create(rt, &second);
	s = cuf_scope_open(root, .on = mine);
	t = cuf_scope_open(s);
	f = cuf_then(t, cuf_ok(), note_thread, NULL, .drop = note_drop_thread);
	nap_ms(5);
	is_int(cuf_poll(f), CUF_PENDING, "on a loop of the program's nothing runs by itself");
	is_int((long long)cuf_loop_dispatch(mine, 10), 1, "its owner runs it");
	ok(pthread_equal(atomic_load(&thread_of_fn), me) &&
		   pthread_equal(atomic_load(&thread_of_drop), me),
	   "function and drop, on his thread");
	is_int(cuf_poll(f), CUF_OK, "and then it has settled");
	f = cuf_then(t, cuf_ok(), note_thread, NULL, .on = second);
	is_int((long long)cuf_loop_dispatch(mine, 10), 0, ".on: not on the scope's loop");
	is_int((long long)cuf_loop_dispatch(second, 10), 1, "but on the one named");
	f = cuf_then(t, cuf_ok(), note_thread, NULL, .on = cuf_runtime_workers(rt),
		     .drop = note_drop_thread);
	is_int(outcome(f), CUF_OK, "on the workers' loop");
	ok(!pthread_equal(atomic_load(&thread_of_fn), me) &&
		   pthread_equal(atomic_load(&thread_of_fn), atomic_load(&thread_of_drop)),
	   "both on one thread of the workers");
	cuf_scope_end(t);
	f = cuf_scope_close(s);
	is_int(cuf_loop_run_until(mine, f, cuf_now_ns() + CUF_MS(LONG_MS)), CUF_OK, "scopes end");
	cuf_release(f);
	cuf_loop_close(mine);
	cuf_loop_close(second);
}

/* ---- inside a continuation ---- */

static cuf_status waits[5];

struct inner {
	cuf_future *ready, *pending;
};

static cuf_future *wait_in_it(cuf_scope *s, cuf_future *in, void *arg)
{
	struct inner *inner = arg;

	(void)s, (void)in;
	while (!atomic_load(&own))
		nap_ms(1);
	waits[0] = cuf_wait(inner->pending);
	waits[1] = cuf_wait(atomic_load(&own));
	waits[2] = cuf_wait(inner->ready);
	waits[3] = cuf_runtime_shutdown(rt, CUF_DRAIN, CUF_FOREVER);
	waits[4] = cuf_wait_until(inner->pending, cuf_now_ns() + CUF_MS(1));
	cuf_runtime_destroy(rt);
	return NULL;
}

static void wait_in_drop(void *arg)
{
	waits[0] = cuf_wait(arg);
}

static void wait_in_watch(cuf_future *f, void *arg)
{
	(void)f;
	waits[1] = cuf_wait(arg);
}

static void check_wait(cuf_loop *on, const char *where)
{
	cuf_scope *s = cuf_scope_open(root);
	struct inner inner = { .ready = cuf_failed(s, 3, "three") };
	cuf_promise *p = cuf_promise_create(s, &inner.pending);
	cuf_future *f, *end;

	atomic_store(&own, NULL);
	f = cuf_then(s, cuf_ok(), wait_in_it, &inner, .on = on);
	atomic_store(&own, f);
	is_int(outcome(f), CUF_OK, "%s: waiting and destroying inside a continuation comes back",
	       where);
	is_int(waits[0], CUF_ERR_WOULD_DEADLOCK, "%s: a pending future would deadlock", where);
	is_int(waits[1], CUF_ERR_WOULD_DEADLOCK, "%s: so would its own result", where);
	is_int(waits[2], CUF_ERR_USER, "%s: a settled one answers", where);
	is_int(waits[3], CUF_ERR_WOULD_DEADLOCK, "%s: a shutdown would deadlock", where);
	is_int(waits[4], CUF_ERR_WOULD_DEADLOCK, "%s: with a deadline too", where);
	waits[0] = waits[1] = CUF_OK;
	cuf_then(s, cuf_ok(), nothing, inner.pending, .drop = wait_in_drop, .on = on);
	cuf_watch(s, cuf_ok(), wait_in_watch, inner.pending, .on = on);
	f = cuf_then(s, cuf_ok(), nothing, NULL, .on = on);
	outcome(f);
	nap_ms(5); /* on the workers they run side by side */
	cuf_promise_fulfil(p, NULL, NULL);
	end = cuf_scope_close(s);
	is_int(outcome(end), CUF_ERR_USER, "%s: the scope ends", where);
	is_int(waits[0], CUF_ERR_WOULD_DEADLOCK, "%s: nor can one wait in a drop", where);
	is_int(waits[1], CUF_ERR_WOULD_DEADLOCK, "%s: nor in a watch", where);
	cuf_release(end);
}

static void wait_in_value_drop(void *arg)
{
	waits[0] = cuf_wait_until(arg, cuf_now_ns() + CUF_MS(500));
	atomic_fetch_add(&dropped, 1);
}

/* The last reference goes on a thread of the runtime: the value's drop is a callback there. */
static void check_wait_in_value_drop(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *pending, *f, *end;
	cuf_promise *p = cuf_promise_create(s, &pending), *held;

	atomic_store(&dropped, 0);
	waits[0] = CUF_OK;
	held = cuf_promise_create(s, &f);
	cuf_release(cuf_then(s, f, same, NULL));
	cuf_release(f);
	cuf_promise_fulfil(held, pending, wait_in_value_drop);
	ok(comes_to(&dropped, 1), "the value is dropped when its last user has gone");
	is_int(waits[0], CUF_ERR_WOULD_DEADLOCK, "and one cannot wait in that");
	cuf_promise_fulfil(p, NULL, NULL);
	end = cuf_scope_close(s);
	outcome(end);
	cuf_release(end);
}

/* C07: everything that one may do in a continuation, to the future it runs for. */
static pthread_mutex_t users_lock = PTHREAD_MUTEX_INITIALIZER;

static cuf_future *do_all(cuf_scope *s, cuf_future *in, void *arg)
{
	cuf_stats stats = { .size = sizeof stats };
	cuf_future *f, *made;
	cuf_promise *p;
	cuf_scope *child;

	(void)arg;
	pthread_mutex_lock(&users_lock);
	pthread_mutex_unlock(&users_lock);
	if (cuf_poll(in) != CUF_OK || cuf_wait(in) != CUF_OK || cuf_cancel(in) != CUF_ERR_TOO_LATE)
		atomic_fetch_add(&dropped, 1);
	cuf_value(in);
	cuf_release(cuf_then(s, in, nothing, NULL));
	cuf_release(cuf_retain(in));
	cuf_release(cuf_call(s, nothing, NULL, .after = CUF_AFTER(in)));
	cuf_release(cuf_copy(s, &stats, &stats, 0, .after = CUF_AFTER(in)));
	p = cuf_promise_create(s, &made);
	cuf_release(cuf_then(s, made, nothing, NULL));
	cuf_promise_fulfil(p, NULL, NULL);
	f = cuf_all(s, in, made);
	cuf_release_all(f, made);
	child = cuf_scope_open(s);
	cuf_scope_cancel(child);
	cuf_scope_end(child);
	cuf_stats_of(rt, &stats);
	atomic_fetch_add(&ran, 1);
	return NULL;
}

static void check_all_calls(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *f, *end;
	cuf_promise *p = cuf_promise_create(s, &f);

	atomic_store(&ran, 0);
	atomic_store(&dropped, 0);
	for (int i = 0; i < 100; i++)
		cuf_release(cuf_then(s, f, do_all, NULL));
	pthread_mutex_lock(&users_lock);
	cuf_promise_fulfil(p, NULL, NULL); /* C07: with a lock that the continuation takes */
	pthread_mutex_unlock(&users_lock);
	end = cuf_scope_close(s);
	is_int(outcome(end), CUF_OK, "a continuation may do anything to its input and its scope");
	is_int(atomic_load(&ran), 100 * 4, "what was attached inside ran, once");
	is_int(atomic_load(&dropped), 0, "and its input answered as a settled future");
	cuf_release(end);
}

/* ---- watch ---- */

static _Atomic int watched_status;

static void watch(cuf_future *f, void *arg)
{
	(void)arg;
	atomic_store(&watched_status, cuf_poll(f));
	atomic_fetch_add(&ran, 1);
}

static void check_watch(void)
{
	cuf_scope *s = cuf_scope_open(root), *t = cuf_scope_open(root);
	cuf_future *f, *end;
	cuf_promise *p = cuf_promise_create(s, &f);

	atomic_store(&ran, 0);
	atomic_store(&dropped, 0);
	cuf_watch(t, f, watch, NULL, .drop = drop);
	cuf_scope_cancel(t);
	cuf_watch(t, f, watch, NULL, .drop = drop);
	end = cuf_scope_close(t);
	nap_ms(5);
	is_int(cuf_poll(end), CUF_PENDING, "a scope does not end before its watches were called");
	is_int(atomic_load(&ran), 0, "a watch is not called before its future has settled");
	cuf_promise_fail(p, 4, "four");
	is_int(outcome(end), CUF_OK, "what a watch saw is no failure of its scope");
	is_int(atomic_load(&ran), 2, "watches are called in a cancelled scope too, once");
	is_int(atomic_load(&dropped), 2, "and so are their drops");
	is_int(atomic_load(&watched_status), CUF_ERR_USER, "with the outcome");
	cuf_release(end);
	p = cuf_promise_create(s, &f);
	cuf_watch(s, f, watch, NULL);
	cuf_cancel(f);
	ok(comes_to(&ran, 3) && atomic_load(&watched_status) == CUF_ERR_CANCELLED,
	   "a watch sees that its future was cancelled");
	cuf_promise_fulfil(p, NULL, NULL);
	cuf_watch(s, NULL, watch, NULL);
	ok(comes_to(&ran, 4) && atomic_load(&watched_status) == CUF_ERR_INVALID,
	   "a watch of NULL sees an invalid future");
	cuf_scope_end(s);
}

int main(void)
{
	plan(84);
	open_runtime((cuf_runtime_options){ .workers = 2 });
	check_same_outcome();
	check_other_future();
	check_own_result();
	check_drop();
	check_arg_bytes();
	check_order();
	check_loops();
	check_wait(NULL, "runtime's loop");
	check_wait(cuf_runtime_workers(rt), "workers");
	check_wait_in_value_drop();
	check_all_calls();
	check_watch();
	close_runtime("then");
	return done();
}
