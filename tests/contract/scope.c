/* SPDX-License-Identifier: MIT */
/*
 * Scopes: when they end and in which order, what their close carries, what a cancel touches, what
 * they owe.
 */
#include "contract.h"

static _Atomic int ran, step_no;
static int order[16];

static void note(void *arg)
{
	order[atomic_fetch_add(&step_no, 1)] = (int)(intptr_t)arg;
}

static cuf_future *note_then(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in;
	note(arg);
	return NULL;
}

static cuf_future *count(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	atomic_fetch_add(&ran, 1);
	return NULL;
}

static cuf_future *recover(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	return cuf_ok();
}

/* Closes @s; its outcome. */
static cuf_status end(cuf_scope *s)
{
	cuf_future *f = cuf_scope_close(s);
	cuf_status st = outcome(f);

	cuf_release(f);
	return st;
}

/* ---- open, defer, close ---- */

static void check_order(void)
{
	cuf_scope *s = cuf_scope_open(root, .label = "outer"), *child = cuf_scope_open(s);
	cuf_future *f, *close, *after;
	cuf_promise *p = cuf_promise_create(child, &f);

	atomic_store(&step_no, 0);
	is_int(cuf_scope_poll(s), CUF_OK, "an open scope takes work");
	is_int(cuf_scope_defer(s, note, (void *)9), CUF_OK, "a defer");
	is_int(cuf_scope_defer(s, note, (void *)8), CUF_OK, "another");
	is_int(cuf_scope_defer(child, note, (void *)2), CUF_OK, "and one of a child scope");
	cuf_then(child, f, note_then, (void *)1);
	close = cuf_scope_close(s);
	after = cuf_then(root, close, note_then, (void *)10);
	nap_ms(5);
	is_int(cuf_poll(close), CUF_PENDING, "a scope does not end before its child scopes");
	cuf_scope_end(child);
	nap_ms(5);
	is_int(cuf_poll(close), CUF_PENDING, "nor before what is outstanding in them");
	cuf_promise_fulfil(p, NULL, NULL);
	is_int(outcome(after), CUF_OK, "then it does");
	is_int(cuf_poll(close), CUF_OK, "well");
	ok(atomic_load(&step_no) == 5 && order[0] == 1 && order[1] == 2 && order[2] == 8 &&
		   order[3] == 9 && order[4] == 10,
	   "members, the child's defers, its own in reverse, what waits for the close");
	cuf_release_all(close, after);
	s = cuf_scope_open(root);
	is_int(end(s), CUF_OK, "an empty scope ends at once");
}

static pthread_t defer_thread;

static void note_thread(void *arg)
{
	(void)arg;
	defer_thread = pthread_self();
	atomic_fetch_add(&ran, 1);
}

static void check_defer_loop(void)
{
	cuf_loop *loop;
	cuf_scope *s;
	cuf_future *f;

	cuf_loop_create(rt, &loop);
	s = cuf_scope_open(root, .on = loop);
	atomic_store(&ran, 0);
	cuf_scope_defer(s, note_thread, NULL);
	f = cuf_scope_close(s);
	nap_ms(5);
	ok(cuf_poll(f) == CUF_PENDING && !atomic_load(&ran), "defers wait for the scope's loop");
	is_int(cuf_loop_run_until(loop, f, cuf_now_ns() + CUF_MS(LONG_MS)), CUF_OK,
	       "and run there");
	ok(atomic_load(&ran) == 1 && pthread_equal(defer_thread, pthread_self()),
	   "on its owner's thread");
	cuf_release(f);
	cuf_loop_close(loop);
}

/* Submits into the scope, which its opener has closed, five times over. */
static cuf_future *go_on(cuf_scope *s, cuf_future *in, void *arg)
{
	intptr_t n = (intptr_t)arg;

	(void)in;
	atomic_fetch_add(&ran, 1);
	if (n < 5) {
		cuf_release(cuf_then(s, cuf_ok(), go_on, (void *)(n + 1)));
		cuf_release(cuf_call(s, count, NULL));
	}
	return NULL;
}

static void defer_and_cancel(void *arg)
{
	(void)arg;
	atomic_fetch_add(&ran, 1000);
}

static cuf_future *defer_late(cuf_scope *s, cuf_future *in, void *arg)
{
	cuf_scope *child = cuf_scope_open(s);

	(void)in, (void)arg;
	cuf_scope_defer(s, defer_and_cancel, NULL);
	cuf_release(cuf_then(child, cuf_ok(), count, NULL));
	cuf_scope_end(child);
	return NULL;
}

static void check_submit_while_closing(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *f;
	cuf_promise *p = cuf_promise_create(s, &f);

	atomic_store(&ran, 0);
	cuf_then(s, f, go_on, (void *)0);
	f = cuf_scope_close(s);
	cuf_promise_fulfil(p, NULL, NULL);
	is_int(outcome(f), CUF_OK, "continuations submit into a scope that closes");
	is_int(atomic_load(&ran), 11, "and it waits for what they did");
	cuf_release(f);
	s = cuf_scope_open(root);
	p = cuf_promise_create(s, &f);
	atomic_store(&ran, 0);
	cuf_then(s, f, defer_late, NULL);
	f = cuf_scope_close(s);
	cuf_promise_fulfil(p, NULL, NULL);
	is_int(outcome(f), CUF_OK, "they open child scopes and add defers");
	is_int(atomic_load(&ran), 1001, "which run");
	cuf_release(f);
}

/* ---- errors ---- */

static void check_errors(void)
{
	cuf_scope *s, *t;
	cuf_future *f, *g;
	cuf_promise *p;
	int before = atomic_load(&unobserved);

	s = cuf_scope_open(root);
	cuf_failed(s, 1, "first");
	cuf_failed(s, 2, "second");
	f = cuf_scope_close(s);
	is_int(settled(f), CUF_ERR_USER, "a close carries the error of a member");
	is_int(info_of(f).user_code, 1, "the first");
	is_int(atomic_load(&unobserved), before, "the others count as looked at");
	cuf_release(f);

	s = cuf_scope_open(root);
	cuf_catch(s, cuf_failed(s, 1, "caught"), recover, NULL);
	is_int(end(s), CUF_OK, "not if a catch recovered");

	s = cuf_scope_open(root);
	cuf_catch(s, cuf_failed(s, 1, "caught"), count, NULL);
	is_int(end(s), CUF_ERR_USER, "but if a catch passed it on");

	s = cuf_scope_open(root);
	cuf_ignore(cuf_failed(s, 1, "ignored"));
	is_int(end(s), CUF_OK, "not if it was ignored");

	s = cuf_scope_open(root);
	p = cuf_promise_create(s, &f);
	cuf_ignore(f);
	cuf_promise_fail(p, 1, "ignored before it failed");
	is_int(end(s), CUF_OK, "nor if that came first");

	s = cuf_scope_open(root);
	cuf_any(s, cuf_failed(s, 1, "lost"), cuf_ok());
	is_int(end(s), CUF_OK, "not if it was lost in an any");

	s = cuf_scope_open(root);
	p = cuf_promise_create(s, &f);
	g = cuf_any(s, f, cuf_ok());
	outcome(g);
	cuf_promise_fail(p, 1, "lost, later");
	is_int(end(s), CUF_OK, "nor if it failed after the decision");

	s = cuf_scope_open(root);
	f = cuf_failed(s, 1, "waited for");
	outcome(f);
	cuf_error_of(f);
	is_int(end(s), CUF_ERR_USER, "but if it was looked at only");

	s = cuf_scope_open(root);
	t = cuf_scope_open(s);
	cuf_failed(t, 5, "five");
	f = cuf_scope_close(t);
	settled(f);
	g = cuf_scope_close(s);
	is_int(settled(g), CUF_ERR_USER, "the error of a child scope goes up");
	is_int(info_of(g).user_code, 5, "with its root cause");
	cuf_release(g);

	s = cuf_scope_open(root);
	t = cuf_scope_open(s);
	cuf_failed(t, 5, "five");
	cuf_ignore(cuf_scope_close(t));
	is_int(end(s), CUF_OK, "unless its close was ignored");

	before = atomic_load(&unobserved);
	s = cuf_scope_open(root);
	cuf_failed(s, 6, "nobody looks");
	cuf_scope_end(s);
	ok(comes_to(&unobserved, before + 1),
	   "after cuf_scope_end() nobody looked: it is reported");
	is_str(unobserved_message, "nobody looks", "with its message");
	s = cuf_scope_open(root);
	cuf_failed(s, 6, "nobody looks at the close");
	cuf_release(cuf_scope_close(s));
	ok(comes_to(&unobserved, before + 2), "so it is where nobody looks at the close");
	is_str(unobserved_message, "nobody looks at the close", "with its message");
}

/* ---- cancel ---- */

static void check_cancel(void)
{
	cuf_scope *shared = cuf_scope_open(root), *one = cuf_scope_open(root),
		  *two = cuf_scope_open(root), *child, *late;
	cuf_future *batch, *a, *b, *c, *d;
	cuf_promise *p = cuf_promise_create(shared, &batch);

	/* One batch, two requests that wait for it: the cancel of one leaves all else alone. */
	atomic_store(&ran, 0);
	a = cuf_then(one, batch, count, NULL);
	b = cuf_then(two, batch, count, NULL);
	child = cuf_scope_open(one);
	c = cuf_then(child, batch, count, NULL);
	d = cuf_copy(one, &ran, &ran, 0, .after = CUF_AFTER(batch));
	cuf_scope_cancel(one);
	is_int(cuf_poll(a), CUF_ERR_CANCELLED, "a cancelled scope's continuation is cancelled");
	is_int(cuf_poll(c), CUF_ERR_CANCELLED, "and its child's");
	is_int(cuf_poll(d), CUF_ERR_CANCELLED, "and an operation that was held");
	is_int(cuf_poll(batch), CUF_PENDING, "the batch it waited for is not");
	is_int(cuf_poll(b), CUF_PENDING, "nor another request");
	is_int(cuf_scope_poll(one), CUF_ERR_CANCELLED, "it says so");
	is_int(cuf_scope_poll(child), CUF_ERR_CANCELLED, "its child as well");
	is_int(cuf_scope_poll(two), CUF_OK, "another does not");
	is_int(settled(cuf_then(one, cuf_ok(), count, NULL)), CUF_ERR_CANCELLED,
	       "what is submitted later is cancelled: a then");
	is_int(settled(cuf_call(one, count, NULL)), CUF_ERR_CANCELLED, "a call");
	is_int(settled(cuf_fill(one, &ran, 0, 0)), CUF_ERR_CANCELLED, "a fill");
	is_int(settled(cuf_all(one, cuf_ok())), CUF_ERR_CANCELLED, "an all");
	is_int(settled(cuf_ready(one, NULL, NULL)), CUF_ERR_CANCELLED, "a ready");
	is_int(settled(cuf_then(child, cuf_ok(), count, NULL)), CUF_ERR_CANCELLED,
	       "and in its child");
	late = cuf_scope_open(one);
	is_int(settled(cuf_then(late, cuf_ok(), count, NULL)), CUF_ERR_CANCELLED,
	       "and in one opened later");
	cuf_scope_end(late);
	is_int(atomic_load(&ran), 0, "none of it ran");
	cuf_scope_defer(one, note_thread, NULL);
	nap_ms(5);
	is_int(atomic_load(&ran), 0, "a cancel does not close");
	cuf_promise_fulfil(p, NULL, NULL);
	is_int(outcome(b), CUF_OK, "the other request gets its batch");
	is_int(end(two), CUF_OK, "and ends well");
	is_int(end(shared), CUF_OK, "so does the batch");
	cuf_scope_end(one);
	nap_ms(5);
	is_int(atomic_load(&ran), 1, "a cancelled scope still waits for its children");
	cuf_scope_end(child);
	ok(comes_to(&ran, 2), "and then runs its defers");
}

static cuf_scope *open_child;

static void check_cancel_children(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *f;

	atomic_store(&ran, 0);
	open_child = cuf_scope_open(s);
	cuf_scope_defer(s, note_thread, NULL);
	cuf_scope_cancel(s);
	f = cuf_scope_close(s);
	nap_ms(5);
	ok(settled(cuf_then(open_child, cuf_ok(), count, NULL)) == CUF_ERR_CANCELLED &&
		   !atomic_load(&ran),
	   "a cancelled scope waits for its open children, and defers still come last");
	cuf_scope_end(open_child);
	ok(comes_to(&ran, 1), "then its defers run");
	settled(f);
	cuf_ignore(f);
	cuf_release(f);
}

/* The close future stands for the end of all that is in the scope: nobody can end it early. */
static void check_close_cancelled(void)
{
	cuf_scope *s = cuf_scope_open(root), *t = cuf_scope_open(s), *u = cuf_scope_open(t);
	cuf_future *f = cuf_retain(cuf_scope_close(t)), *g;

	cuf_scope_cancel(s);
	nap_ms(2);
	is_int(cuf_poll(f), CUF_PENDING,
	       "a close does not settle while something in its scope is outstanding, cancelled or not");
	g = cuf_scope_close(s);
	cuf_scope_end(u);
	settled(f);
	cuf_ignore(f);
	settled(g);
	cuf_ignore(g);
	cuf_release_all(f, g);
}

static void check_cancel_root(void)
{
	cuf_runtime *first = rt;
	cuf_scope *s, *first_root = root;
	cuf_future *f;

	open_runtime((cuf_runtime_options){ 0 });
	s = cuf_scope_open(root);
	f = cuf_then(s, cuf_ok(), count, NULL, .on = NULL);
	outcome(f);
	cuf_promise *p = cuf_promise_create(s, &f);
	cuf_scope_cancel(root);
	is_int(cuf_poll(f), CUF_ERR_CANCELLED, "a cancel of the root reaches child scopes");
	is_int(settled(cuf_ready(root, NULL, NULL)), CUF_ERR_CANCELLED,
	       "and what is submitted later straight into it");
	cuf_promise_fulfil(p, NULL, NULL);
	cuf_scope_end(s);
	cuf_runtime_destroy(rt);
	rt = first;
	root = first_root;
}

/* ---- what it owes ---- */

static _Atomic int values_dropped;

static void drop_value(void *arg)
{
	(void)arg;
	atomic_fetch_add(&values_dropped, 1);
}

static void check_references(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *kept, *close;

	cuf_ready(s, NULL, drop_value);
	cuf_ready(s, NULL, drop_value);
	cuf_release(cuf_ready(s, NULL, drop_value));
	is_int(atomic_load(&values_dropped), 1, "what was released goes at once");
	kept = cuf_ready(s, &ran, drop_value);
	cuf_retain(kept);
	close = cuf_scope_close(s);
	is_int(outcome(close), CUF_OK, "straight-line code never releases");
	is_int(atomic_load(&values_dropped), 3, "the scope does, as it ends");
	ok(cuf_poll(kept) == CUF_OK && cuf_value(kept) == &ran, "what was retained outlives it");
	cuf_release(kept);
	is_int(atomic_load(&values_dropped), 4, "until it is released");
	cuf_release(close);
	s = cuf_scope_open(root);
	kept = cuf_ready(s, &ran, drop_value);
	cuf_retain(kept);
	cuf_release(kept);
	is_int(end(s), CUF_OK, "two references, one given up:");
	is_int(atomic_load(&values_dropped), 4, "the other is the caller's, not the scope's");
	cuf_release(kept);
	is_int(atomic_load(&values_dropped), 5, "and goes when he says");
}

static void check_growth(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_stats before = { .size = sizeof before }, after = before;
	long n = scaled(200000);

	for (long i = 0; i < 1000; i++)
		cuf_release(cuf_ready(s, NULL, NULL));
	cuf_stats_of(rt, &before);
	for (long i = 0; i < n; i++) {
		cuf_future *f = cuf_then(s, cuf_ok(), count, NULL);

		if (i % 100 == 0)
			outcome(f);
		cuf_release(f);
	}
	cuf_stats_of(rt, &after);
	ok(after.allocations - before.allocations < 50, "a scope that lives long does not grow");
	is_int(end(s), CUF_OK, "and ends");
}

/* ---- none, or born failed ---- */

static void check_none(void)
{
	cuf_scope *s = cuf_scope_open(NULL), *busy;
	cuf_scope_options bad = { .size = sizeof bad, .device = CUF_DEVICE(1000) };
	cuf_future *f;

	is_int(cuf_scope_poll(s), CUF_ERR_INVALID, "a scope in NULL is born failed");
	is_int(cuf_poll(cuf_ready(s, NULL, drop_value)), CUF_ERR_INVALID, "each submit fails so");
	is_int(cuf_scope_defer(s, note_thread, NULL), CUF_ERR_INVALID, "a defer is refused");
	is_int(cuf_poll(cuf_scope_close(s)), CUF_ERR_INVALID, "closing is allowed");
	cuf_scope_end(s);
	s = cuf_scope_open_with(root, &bad);
	is_int(cuf_scope_poll(s), CUF_ERR_INVALID, "so is one for a device that is none");
	cuf_scope_end(s);
	is_int(cuf_scope_poll(NULL), CUF_ERR_INVALID, "NULL is no scope");
	is_int(cuf_scope_defer(root, NULL, NULL), CUF_ERR_INVALID, "NULL is no function");
	cuf_scope_cancel(NULL);
	cuf_scope_end(NULL);
	is_int(cuf_poll(cuf_scope_close(NULL)), CUF_ERR_INVALID, "NULL cannot be closed");

	busy = cuf_scope_open(root, .reserve = (size_t)1 << 40);
	is_int(cuf_scope_poll(busy), CUF_ERR_BUSY, "a reserve over the cap: born busy");
	f = cuf_call(busy, count, NULL);
	is_int(settled(f), CUF_ERR_BUSY, "each operation in it fails so");
	atomic_store(&ran, 0);
	is_int(cuf_scope_defer(busy, note_thread, NULL), CUF_OK, "it takes defers");
	is_int(end(busy), CUF_ERR_BUSY, "its close carries that");
	is_int(atomic_load(&ran), 1, "and the defer ran");
}

/* ---- many threads ---- */

static void *open_and_end(void *arg)
{
	cuf_scope *shared = arg;

	for (long i = 0, n = scaled(20000); i < n; i++) {
		cuf_scope *s = cuf_scope_open(i & 1 ? shared : root);
		cuf_future *f = cuf_then(s, cuf_ok(), count, NULL);

		if (i % 3 == 0)
			cuf_release(f);
		if (i % 7 == 0)
			cuf_scope_cancel(s);
		if (i % 5 == 0) {
			f = cuf_scope_close(s);
			cuf_wait(f);
			cuf_release(f);
		} else {
			cuf_scope_end(s);
		}
	}
	return NULL;
}

static void check_threads(void)
{
	cuf_scope *shared = cuf_scope_open(root);
	pthread_t thread[3];

	for (int i = 0; i < 3; i++) {
		if (pthread_create(&thread[i], NULL, open_and_end, shared))
			abort();
	}
	for (long i = 0; i < 200; i++) {
		cuf_stats st = { .size = sizeof st };

		cuf_stats_of(rt, &st);
		nap_ms(1);
	}
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	cuf_future *f = cuf_scope_close(shared);
	ok(outcome(f) != CUF_PENDING, "scopes are opened and ended by several threads");
	cuf_ignore(f);
	cuf_release(f);
}

static _Atomic int stop_cancelling;

static void *cancel_over_and_over(void *arg)
{
	while (!atomic_load(&stop_cancelling))
		cuf_scope_cancel(arg);
	return NULL;
}

/* A cancel walks a tree of scopes that end, and whose futures die, at that moment. */
static void check_cancel_races(void)
{
	int ended = 0, rounds = (int)scaled(2000);

	for (int i = 0; i < rounds; i++) {
		cuf_scope *s = cuf_scope_open(root), *child[8];
		pthread_t thread;
		cuf_future *f;

		atomic_store(&stop_cancelling, 0);
		for (int k = 0; k < 8; k++)
			child[k] = cuf_scope_open(k < 4 ? s : child[k - 4]);
		if (pthread_create(&thread, NULL, cancel_over_and_over, s))
			abort();
		for (int k = 7; k >= 0; k--) {
			for (int n = 0; n < 5; n++)
				cuf_release(cuf_then(child[k], cuf_ok(), count, NULL));
			cuf_call(child[k], count, NULL);
			cuf_scope_end(child[k]);
		}
		atomic_store(&stop_cancelling, 1);
		pthread_join(thread, NULL);
		f = cuf_scope_close(s);
		ended += outcome(f) != CUF_PENDING;
		cuf_ignore(f);
		cuf_release(f);
	}
	is_int(ended, rounds, "cancels race with the ends of scopes");
}

int main(void)
{
	plan(87);
	open_runtime((cuf_runtime_options){ .workers = 2 });
	check_order();
	check_defer_loop();
	check_submit_while_closing();
	check_errors();
	check_cancel();
	check_cancel_children();
	check_close_cancelled();
	check_cancel_root();
	check_references();
	check_growth();
	check_none();
	check_threads();
	check_cancel_races();
	close_runtime("scope");
	return done();
}
