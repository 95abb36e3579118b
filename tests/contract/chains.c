/* SPDX-License-Identifier: MIT */
/*
 * C06: chains of 200,000 links are built, run, failed, cancelled and released on a thread with a
 * stack of 256 KiB, in order, and so are values that hold each other.
 */
#include "contract.h"

#define STACK_BYTES (256 * 1024)

static long links;
static _Atomic long ran, dropped, disordered;

static cuf_future *step(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in;
	if (atomic_fetch_add(&ran, 1) != (long)(intptr_t)arg)
		atomic_fetch_add(&disordered, 1);
	return NULL;
}

static void drop(void *arg)
{
	(void)arg;
	atomic_fetch_add(&dropped, 1);
}

static cuf_future *build(cuf_scope *s, cuf_future *f, bool with_drop)
{
	atomic_store(&ran, 0);
	atomic_store(&dropped, 0);
	atomic_store(&disordered, 0);
	for (long i = 0; i < links; i++) {
		cuf_future *n = with_drop ? cuf_then(s, f, step, (void *)(intptr_t)i, .drop = drop)
					  : cuf_then(s, f, step, (void *)(intptr_t)i);

		if (i)
			cuf_release(f);
		f = n;
	}
	return f;
}

static cuf_status end(cuf_scope *s)
{
	cuf_future *f = cuf_scope_close(s);
	cuf_status st = outcome(f);

	cuf_release(f);
	return st;
}

static void check_fulfilled(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *first, *last;
	cuf_promise *p = cuf_promise_create(s, &first);

	last = build(s, first, false);
	cuf_promise_fulfil(p, &links, NULL);
	is_int(outcome(last), CUF_OK, "a long chain on a promise that is fulfilled");
	ok(cuf_value(last) == &links, "the value goes through all of it");
	ok(atomic_load(&ran) == links && !atomic_load(&disordered), "each link ran, in order");
	is_int(end(s), CUF_OK, "and its scope ends");
}

static void check_failed(bool with_drop)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *first, *last;
	cuf_promise *p = cuf_promise_create(s, &first);

	last = build(s, first, with_drop);
	cuf_promise_fail(p, 3, "three");
	is_int(outcome(last), CUF_ERR_USER, "a long chain on a promise that fails%s",
	       with_drop ? ", with drops" : "");
	is_int(info_of(last).user_code, 3, "the root cause goes through all of it");
	is_int(atomic_load(&ran), 0, "no link ran");
	is_int(atomic_load(&dropped), with_drop ? links : 0, "each drop did");
	is_int(end(s), CUF_ERR_USER, "and its scope ends");
}

static void check_complete(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *f = cuf_ready(s, &links, NULL);
	cuf_future *last = build(s, f, false);

	is_int(outcome(last), CUF_OK, "a chain attached link by link to what is complete");
	is_int(atomic_load(&ran), links, "each link ran");
	for (long i = 0; i < links; i++) {
		cuf_future *n = cuf_then(s, f, step, NULL);

		cuf_release(f);
		f = n;
		if (i % 1000 == 0)
			outcome(f);
	}
	is_int(end(s), CUF_OK, "and once more, with waits between");
}

static void check_released(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *first, *last;
	cuf_promise *p = cuf_promise_create(s, &first);

	last = build(s, first, true);
	cuf_release(last);
	cuf_release(first);
	cuf_promise_follow(p, NULL);
	is_int(end(s), CUF_ERR_BROKEN, "a chain that was released and never fulfilled");
	is_int(atomic_load(&ran), 0, "no link ran");
	is_int(atomic_load(&dropped), links, "each drop did");
}

static void check_cancelled(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *first, *middle, *last, *f;
	cuf_promise *p = cuf_promise_create(s, &first);
	cuf_scope *t = cuf_scope_open(root);

	f = build(s, first, false);
	middle = cuf_then(s, f, step, (void *)(intptr_t)links);
	last = middle;
	for (long i = 0; i < links; i++) {
		cuf_future *n = cuf_then(s, last, step, NULL);

		if (i)
			cuf_release(last);
		last = n;
	}
	is_int(cuf_cancel(middle), CUF_OK, "the middle of a long chain is cancelled");
	is_int(outcome(last), CUF_ERR_CANCELLED, "what is behind it inherits that");
	is_int(cuf_poll(f), CUF_PENDING, "what is before it is left alone");
	cuf_promise_fulfil(p, NULL, NULL);
	is_int(outcome(f), CUF_OK, "and completes");
	is_int(atomic_load(&ran), links, "only that part ran");
	is_int(end(s), CUF_ERR_CANCELLED, "and the scope ends");

	p = cuf_promise_create(root, &first);
	f = build(t, first, true);
	cuf_scope_cancel(t);
	is_int(outcome(f), CUF_ERR_CANCELLED, "a scope with a long chain in it is cancelled");
	is_int(end(t), CUF_ERR_CANCELLED, "and ends without its promise, which belongs elsewhere");
	is_int(atomic_load(&dropped), links, "each drop ran");
	cuf_promise_fulfil(p, NULL, NULL);
	cuf_release(first);
}

/* Other shapes of the same fault: all of all of ..., promises that follow, values that hold values. */
static void release(void *f)
{
	cuf_release(f);
	atomic_fetch_add(&dropped, 1);
}

static void check_others(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *first, *f, *n;
	cuf_promise *p = cuf_promise_create(s, &first), *q;

	f = cuf_retain(first);
	for (long i = 0; i < links; i++) {
		n = i & 1 ? cuf_all(s, f, cuf_ok()) : cuf_any(s, f, first);
		cuf_release(f);
		f = n;
	}
	cuf_promise_fulfil(p, NULL, NULL);
	is_int(outcome(f), CUF_OK, "a chain of alls and anys");
	cuf_release_all(f, first);
	p = cuf_promise_create(s, &first);
	f = cuf_retain(first);
	for (long i = 0; i < links; i++) {
		q = cuf_promise_create(s, &n);
		cuf_promise_follow(q, f);
		cuf_release(f);
		f = n;
	}
	cuf_promise_fulfil(p, NULL, NULL);
	is_int(outcome(f), CUF_OK, "a chain of promises that follow");
	cuf_release_all(f, first);
	f = NULL;
	atomic_store(&dropped, 0);
	for (long i = 0; i < links; i++)
		f = cuf_ready(s, f, release);
	cuf_release(f);
	is_int(end(s), CUF_OK, "a chain of values, each of which holds the next");
	is_int(atomic_load(&dropped), links, "goes as a whole");
}

static void nest_end(void *arg)
{
	atomic_fetch_add((_Atomic long *)arg, 1);
}

static void check_scopes(void)
{
	cuf_scope *s = cuf_scope_open(root), *at = s, *child;
	long depth = links / 10;
	cuf_future *f;
	static _Atomic long ended;
	cuf_promise *p;

	for (long i = 0; i < depth; i++) {
		child = cuf_scope_open(at);
		if (i)
			cuf_scope_end(at);
		at = child;
	}
	p = cuf_promise_create(at, &f);
	cuf_scope_defer(at, nest_end, &ended);
	cuf_scope_end(at);
	cuf_promise_fulfil(p, NULL, NULL);
	is_int(end(s), CUF_OK, "scopes nested %ld deep", depth);
	is_int(atomic_load(&ended), 1, "end from within");
}

static void *run(void *arg)
{
	(void)arg;
	check_fulfilled();
	check_failed(false);
	check_failed(true);
	check_complete();
	check_released();
	check_cancelled();
	check_others();
	check_scopes();
	return NULL;
}

int main(void)
{
	pthread_attr_t attr;
	pthread_t thread;

	links = scaled(200000);
	plan(36);
	open_runtime((cuf_runtime_options){ .stack_bytes = STACK_BYTES });
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	if (pthread_create(&thread, &attr, run, NULL))
		abort();
	pthread_attr_destroy(&attr);
	pthread_join(thread, NULL);
	close_runtime("chains");
	return done();
}
