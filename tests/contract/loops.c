/* SPDX-License-Identifier: MIT */
/*
 * Loops: descriptor, dispatch, take, run_until, close, late arrivals. C42: one wake is for all that
 * came before it. C43: a descriptor that nobody drains, or that somebody else drains too.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>

#include "contract.h"

static _Atomic int ran, dropped;

static cuf_future *count(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	atomic_fetch_add(&ran, 1);
	return NULL;
}

static void drop(void *arg)
{
	(void)arg;
	atomic_fetch_add(&dropped, 1);
}

static _Atomic(pthread_t) watch_thread;

static void watch(cuf_future *f, void *arg)
{
	(void)f, (void)arg;
	atomic_store(&watch_thread, pthread_self());
	atomic_fetch_add(&ran, 1);
}

static bool readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

static cuf_loop *make_loop(void)
{
	cuf_loop *l;

	if (cuf_loop_create(rt, &l))
		abort();
	return l;
}

static cuf_status end(cuf_scope *s)
{
	cuf_future *f = cuf_scope_close(s);
	cuf_status st = outcome(f);

	cuf_ignore(f);
	cuf_release(f);
	return st;
}

/* ---- descriptor and dispatch ---- */

static void check_descriptor(void)
{
	cuf_loop *l = make_loop();
	cuf_scope *s = cuf_scope_open(root, .on = l);
	int fd = cuf_loop_fd(l);
	uint64_t n;

	ok(fd >= 0, "a loop has a descriptor");
	is_int(cuf_loop_fd(l), fd, "always the same");
	ok(fcntl(fd, F_GETFL) & O_NONBLOCK, "it is non-blocking");
	ok(fcntl(fd, F_GETFD) & FD_CLOEXEC, "and closed on exec");
	ok(!readable(fd, 0), "not readable while there is nothing");
	cuf_release(cuf_then(s, cuf_ok(), count, NULL));
	ok(readable(fd, 1000), "readable when something came");
	ok(readable(fd, 0), "level-triggered");
	is_int((long long)cuf_loop_dispatch(l, 0), 0, "a dispatch of 0 runs nothing");
	ok(readable(fd, 0), "and it is readable still");
	is_int((long long)cuf_loop_dispatch(l, 10), 1, "a dispatch runs it");
	ok(!readable(fd, 0), "and it is not readable any more");
	is_int((long long)cuf_loop_dispatch(l, 10), 0, "nothing to serve is no error");

	/* C42: 1000 completions before the loop runs once */
	for (int i = 0; i < 1000; i++)
		cuf_release(cuf_then(s, cuf_ok(), count, NULL));
	atomic_store(&ran, 0);
	is_int((long long)cuf_loop_dispatch(l, 10), 10, "dispatch runs at most so many");
	ok(readable(fd, 0), "and leaves it readable for the rest");
	for (int i = 0; i < 1000 && readable(fd, 0); i++)
		cuf_loop_dispatch(l, 5000);
	is_int(atomic_load(&ran), 1000, "who follows the descriptor gets all");

	/* C43: somebody else reads it */
	cuf_release(cuf_then(s, cuf_ok(), count, NULL));
	readable(fd, 1000);
	ok(read(fd, &n, sizeof n) == sizeof n && n == 1, "one write for the change from empty");
	is_int((long long)cuf_loop_dispatch(l, 10), 1,
	       "another reader of the descriptor does no harm");
	cuf_release(cuf_then(s, cuf_ok(), count, NULL));
	ok(readable(fd, 1000), "what comes later makes it readable again");
	cuf_loop_dispatch(l, 10);
	is_int(end(s), CUF_OK, "and the scope ends");
	is_int(cuf_loop_fd(NULL), -1, "NULL has no descriptor");
	is_int((long long)cuf_loop_dispatch(NULL, 1), 0, "and serves nothing");
	cuf_loop_close(l);
	cuf_loop_close(NULL);
}

/* C43: nobody drains for a while, and much completes: at most one write, and no thread blocks. */
static void check_undrained(void)
{
	cuf_loop *l = make_loop();
	cuf_scope *s = cuf_scope_open(root, .on = l);
	int fd = cuf_loop_fd(l);
	long n = scaled(200000);
	uint64_t count_of_fd = 0;

	atomic_store(&ran, 0);
	for (long i = 0; i < n; i++) {
		cuf_future *f;
		cuf_promise *p = cuf_promise_create(s, &f);

		cuf_release(cuf_then(s, f, count, NULL));
		cuf_release(f);
		cuf_promise_fulfil(p, NULL, NULL);
	}
	ok(readable(fd, 1000) && read(fd, &count_of_fd, sizeof count_of_fd) > 0 && count_of_fd == 1,
	   "%ld completions that nobody drains are one write", n);
	while (cuf_loop_dispatch(l, SIZE_MAX))
		;
	is_int(atomic_load(&ran), n, "and none is lost");
	is_int(end(s), CUF_OK, "the scope ends");
	cuf_loop_close(l);
}

static size_t inner;

static cuf_future *dispatch_inside(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in;
	inner = cuf_loop_dispatch(arg, 10);
	atomic_fetch_add(&ran, 1);
	return NULL;
}

static void check_not_recursive(void)
{
	cuf_loop *l = make_loop();
	cuf_scope *s = cuf_scope_open(root, .on = l);

	atomic_store(&ran, 0);
	inner = 99;
	cuf_release(cuf_then(s, cuf_ok(), dispatch_inside, l));
	cuf_release(cuf_then(s, cuf_ok(), count, NULL));
	is_int((long long)cuf_loop_dispatch(l, 1), 1, "a continuation dispatches its own loop");
	ok(inner == 0 && atomic_load(&ran) == 1, "that does nothing");
	ok(readable(cuf_loop_fd(l), 0), "and the descriptor is readable still");
	is_int((long long)cuf_loop_dispatch(l, 10), 1, "the rest is served later");
	is_int(end(s), CUF_OK, "the scope ends");
	cuf_loop_close(l);
}

/* Asked for late, when something has come already. */
static void check_late_descriptor(void)
{
	cuf_loop *l = make_loop();
	cuf_scope *s = cuf_scope_open(root, .on = l);

	cuf_release(cuf_then(s, cuf_ok(), count, NULL));
	ok(readable(cuf_loop_fd(l), 0), "a descriptor that is asked for late is readable");
	cuf_loop_dispatch(l, 10);
	ok(!readable(cuf_loop_fd(l), 0), "until it was served");
	end(s);
	cuf_loop_close(l);
}

/* ---- take ---- */

static void check_take(void)
{
	cuf_loop *l = make_loop();
	cuf_scope *s = cuf_scope_open(root);
	cuf_event e[8];
	cuf_future *f, *close;
	cuf_promise *p = cuf_promise_create(s, &f);
	int fd = cuf_loop_fd(l), got = 0;
	bool right = true;

	is_int((long long)cuf_loop_take(l, e, 8), 0, "no event is there");
	cuf_post(s, f, l, 0x1234567890abcdef);
	cuf_post(s, cuf_ok(), l, 2);
	ok(readable(fd, 1000), "an event makes the descriptor readable");
	is_int((long long)cuf_loop_take(l, e, 8), 1, "it can be taken");
	ok(e[0].token == 2 && e[0].status == CUF_OK, "with its token and its status");
	cuf_promise_fail(p, 1, "one");
	readable(fd, 1000);
	ok(cuf_loop_take(l, e, 8) == 1 && e[0].token == 0x1234567890abcdef &&
		   e[0].status == CUF_ERR_USER,
	   "so can that of a failure");
	for (int i = 0; i < 20; i++)
		cuf_post(s, cuf_ok(), l, (uint64_t)i);
	for (int n; readable(fd, 0) && (n = (int)cuf_loop_take(l, e, 8)) > 0;) {
		for (int i = 0; i < n; i++)
			right = right && e[i].token == (uint64_t)got++;
	}
	ok(right && got == 20, "events come in the order of the posts, at most so many at a time");
	cuf_post(s, NULL, l, 5);
	ok(cuf_loop_take(l, e, 8) == 1 && e[0].status == CUF_ERR_INVALID,
	   "a post of NULL is an invalid future's");
	cuf_post(s, cuf_ok(), NULL, 6);
	cuf_post(NULL, cuf_ok(), l, 7);
	is_int((long long)cuf_loop_take(l, e, 8), 0, "a post without loop or scope posts nothing");
	is_int((long long)cuf_loop_take(l, NULL, 8), 0, "nothing is taken to nowhere");

	is_int((long long)cuf_loop_dispatch(l, 8), 0,
	       "a loop that was taken from is not dispatched");
	cuf_post(s, cuf_ok(), l, 8);
	close = cuf_scope_close(s);
	ok(settled(close) == CUF_ERR_USER, "a scope does not wait for its events to be taken");
	cuf_ignore(close);
	cuf_release(close);
	ok(cuf_loop_take(l, e, 8) == 1 && e[0].token == 8, "they can be taken after its end");

	s = cuf_scope_open(root);
	atomic_store(&ran, 0);
	f = cuf_then(s, cuf_ok(), count, NULL, .on = l);
	cuf_retain(f);
	cuf_loop_take(l, e, 8);
	is_int(settled(f), CUF_ERR_SHUTDOWN, "a continuation sent to a loop for events");
	is_int(atomic_load(&ran), 0, "does not run");
	cuf_ignore(f);
	cuf_release_all(f, f);
	end(s);
	cuf_loop_close(l);

	l = make_loop();
	s = cuf_scope_open(root);
	cuf_loop_dispatch(l, 1);
	cuf_post(s, cuf_ok(), l, 9);
	is_int((long long)cuf_loop_take(l, e, 8), 0,
	       "a loop that was dispatched is not taken from");
	cuf_loop_dispatch(l, 8);
	ok(!readable(cuf_loop_fd(l), 0), "an event there is forgotten");
	is_int(end(s), CUF_OK, "and the scope ends");
	cuf_loop_close(l);
}

/* ---- run_until ---- */

static void *fulfil_soon(void *arg)
{
	nap_ms(20);
	cuf_promise_fulfil(arg, NULL, NULL);
	return NULL;
}

static cuf_status in_callback[2];

static cuf_future *run_inside(cuf_scope *s, cuf_future *in, void *arg)
{
	cuf_future *f;
	cuf_promise *p = cuf_promise_create(s, &f);

	in_callback[0] = cuf_loop_run_until(arg, f, CUF_FOREVER);
	in_callback[1] = cuf_loop_run_until(arg, in, CUF_FOREVER);
	cuf_promise_fulfil(p, NULL, NULL);
	cuf_release(f);
	return NULL;
}

static void check_run_until(void)
{
	cuf_loop *l = make_loop();
	cuf_scope *s = cuf_scope_open(root, .on = l);
	uint64_t before = cuf_now_ns();
	cuf_future *f, *t, *first;
	cuf_promise *p = cuf_promise_create(s, &f);
	pthread_t thread;

	is_int(cuf_loop_run_until(l, f, cuf_now_ns() + CUF_MS(20)), CUF_PENDING,
	       "until a deadline");
	ok(cuf_now_ns() - before >= CUF_MS(20), "not before it");
	is_int(cuf_loop_run_until(l, f, 0), CUF_PENDING, "one that has passed makes it a poll");
	before = cuf_now_ns();
	is_int(cuf_loop_run_until(l, NULL, cuf_now_ns() + CUF_MS(20)), CUF_PENDING,
	       "NULL: until the deadline");
	ok(cuf_now_ns() - before >= CUF_MS(20), "not before it");
	atomic_store(&ran, 0);
	t = cuf_then(s, f, count, NULL);
	if (pthread_create(&thread, NULL, fulfil_soon, p))
		abort();
	is_int(cuf_loop_run_until(l, t, cuf_now_ns() + CUF_MS(LONG_MS)), CUF_OK,
	       "it serves the loop until a future has settled");
	is_int(atomic_load(&ran), 1, "that it ran itself");
	pthread_join(thread, NULL);

	atomic_store(&ran, 0);
	first = cuf_then(s, cuf_ok(), count, NULL);
	for (int i = 0; i < 5; i++)
		cuf_release(cuf_then(s, cuf_ok(), count, NULL));
	is_int(cuf_loop_run_until(l, first, CUF_FOREVER), CUF_OK, "with others queued behind");
	is_int(atomic_load(&ran), 1, "it leaves those");
	ok(readable(cuf_loop_fd(l), 0), "and the descriptor readable");
	is_int(cuf_loop_run_until(l, cuf_ok(), CUF_FOREVER), CUF_OK,
	       "what has settled is answered");
	is_int(atomic_load(&ran), 1, "without running anything");
	cuf_loop_dispatch(l, 100);
	is_int(atomic_load(&ran), 6, "they were there still");
	cuf_release(cuf_then(s, cuf_ok(), run_inside, l));
	cuf_loop_dispatch(l, 1);
	is_int(in_callback[0], CUF_ERR_WOULD_DEADLOCK, "inside a callback it would deadlock");
	is_int(in_callback[1], CUF_OK, "but for what has settled");
	f = cuf_failed(s, 3, "three");
	is_int(cuf_loop_run_until(l, f, CUF_FOREVER), CUF_ERR_USER, "a failure is the future's");
	is_int(cuf_loop_run_until(NULL, f, 0), CUF_ERR_INVALID, "NULL is no loop");
	f = cuf_scope_close(s);
	is_int(cuf_loop_run_until(l, f, cuf_now_ns() + CUF_MS(LONG_MS)), CUF_ERR_USER,
	       "so one waits for a scope whose loop one owns");
	cuf_release(f);
	cuf_loop_close(l);
}

/* ---- close ---- */

static void check_close(void)
{
	cuf_loop *l = make_loop(), *m = make_loop();
	cuf_scope *s = cuf_scope_open(root, .on = l), *t = cuf_scope_open(root);
	cuf_future *then, *catch, *finally, *late, *pending, *pending2,
		*bad = cuf_failed(t, 1, "one");
	cuf_promise *p = cuf_promise_create(t, &pending), *q = cuf_promise_create(t, &pending2);

	atomic_store(&ran, 0);
	atomic_store(&dropped, 0);
	then = cuf_then(s, cuf_ok(), count, NULL, .drop = drop);
	catch = cuf_catch(s, bad, count, NULL, .drop = drop);
	finally = cuf_finally(s, bad, count, NULL, .drop = drop);
	cuf_watch(s, cuf_ok(), watch, NULL, .drop = drop);
	cuf_post(t, cuf_ok(), m, 1);
	late = cuf_then(s, pending, count, NULL, .drop = drop);
	cuf_watch(s, pending, watch, NULL, .drop = drop);
	cuf_scope_defer(s, drop, NULL);
	cuf_retain(late);
	cuf_loop_close(l);
	is_int(settled(then), CUF_ERR_SHUTDOWN, "close: a then that was queued fails");
	is_int(settled(catch), CUF_ERR_SHUTDOWN, "a catch");
	is_int(settled(finally), CUF_ERR_SHUTDOWN, "and a finally");
	is_int(atomic_load(&ran), 1, "of functions a watch ran alone");
	ok(pthread_equal(atomic_load(&watch_thread), pthread_self()), "on this thread");
	is_int(atomic_load(&dropped), 4, "drops ran, once");
	is_int(cuf_poll(late), CUF_PENDING, "what waits for something else waits on");
	cuf_promise_fulfil(p, NULL, NULL);
	is_int(settled(late), CUF_ERR_SHUTDOWN, "what arrives later fails the same way");
	ok(comes_to(&ran, 2), "its watches run");
	ok(comes_to(&dropped, 6), "and its drops");
	ok(!pthread_equal(atomic_load(&watch_thread), pthread_self()), "on the runtime's loop");
	cuf_ignore(late);
	cuf_release(late);
	ok(end(s) == CUF_ERR_SHUTDOWN && atomic_load(&dropped) == 7, "defers run as well");

	cuf_post(t, pending2, m, 2);
	cuf_loop_close(m);
	cuf_promise_fulfil(q, NULL, NULL);
	ok(end(t) != CUF_PENDING, "events in a closed loop are forgotten, the scope ends");
}

/* Descriptors go with their loops. */
static void check_descriptors_go(void)
{
	struct rlimit old, low;
	int made = 0;

	getrlimit(RLIMIT_NOFILE, &old);
	low = old;
	low.rlim_cur = 200;
	setrlimit(RLIMIT_NOFILE, &low);
	for (int i = 0; i < 500; i++) {
		cuf_loop *l;

		if (cuf_loop_create(rt, &l))
			break;
		made += cuf_loop_fd(l) >= 0;
		cuf_loop_close(l);
	}
	setrlimit(RLIMIT_NOFILE, &old);
	is_int(made, 500, "a closed loop has given its descriptor back");
}

static void check_descriptors_out(void)
{
	struct rlimit old, low = { 0, 0 };
	cuf_loop *l = (cuf_loop *)&low;
	cuf_status st;

	getrlimit(RLIMIT_NOFILE, &old);
	low.rlim_max = old.rlim_max;
	setrlimit(RLIMIT_NOFILE, &low);
	st = cuf_loop_create(rt, &l);
	setrlimit(RLIMIT_NOFILE, &old);
	is_int(st, CUF_ERR_NO_MEMORY, "a loop without a descriptor cannot be made");
	ok(!l, "NULL is stored");
	l = (cuf_loop *)&low;
	is_int(cuf_loop_create(NULL, &l), CUF_ERR_INVALID, "nor one of no runtime");
	ok(!l, "NULL is stored");
	is_int(cuf_loop_create(rt, NULL), CUF_ERR_INVALID, "nor to nowhere");
}

/* ---- C41 and C42 by stress: threads complete, the owner drains, closes and makes anew ---- */

static _Atomic(cuf_scope *) current;
static _Atomic int stop, users;

static void *complete(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop)) {
		cuf_scope *s;
		cuf_future *f;
		cuf_promise *p;
		int n = 0;

		atomic_fetch_add(&users, 1);
		s = atomic_load(&current);
		if (s) {
			p = cuf_promise_create(s, &f);
			cuf_watch(s, f, watch, NULL);
			cuf_release(f);
			cuf_promise_fulfil(p, NULL, NULL);
			n = atomic_fetch_add(&dropped, 1); /* how many watches there are */
		}
		atomic_fetch_sub(&users, 1);
		if (n % 64 == 0)
			nap_ms(1);
	}
	return NULL;
}

static void check_stress(void)
{
	pthread_t thread[3];
	int rounds = (int)scaled(500), ended = 0;

	atomic_store(&ran, 0);
	atomic_store(&dropped, 0);
	for (int i = 0; i < 3; i++) {
		if (pthread_create(&thread[i], NULL, complete, NULL))
			abort();
	}
	for (int i = 0; i < rounds; i++) {
		cuf_loop *l = make_loop();
		cuf_scope *s = cuf_scope_open(root, .on = l);
		cuf_future *f;

		atomic_store(&current, s);
		for (int k = 0; k < 3; k++) {
			if (readable(cuf_loop_fd(l), 100))
				cuf_loop_dispatch(l, 100);
		}
		atomic_store(&current, NULL);
		if (i & 1) {
			/* closed while they complete: the rest goes to the runtime's loop */
			cuf_loop_close(l);
			while (atomic_load(&users))
				sched_yield();
			ended += end(s) != CUF_PENDING;
		} else {
			while (atomic_load(&users))
				sched_yield();
			f = cuf_scope_close(s);
			ended += cuf_loop_run_until(l, f, cuf_now_ns() + CUF_MS(LONG_MS)) == CUF_OK;
			cuf_release(f);
			cuf_loop_close(l);
		}
	}
	atomic_store(&stop, 1);
	for (int i = 0; i < 3; i++)
		pthread_join(thread[i], NULL);
	is_int(ended, rounds, "loops come and go while others complete");
	is_int(atomic_load(&ran), atomic_load(&dropped), "no watch is lost, none called twice");
}

int main(void)
{
	plan(88);
	open_runtime((cuf_runtime_options){ .workers = 2 });
	check_descriptor();
	check_undrained();
	check_not_recursive();
	check_late_descriptor();
	check_take();
	check_run_until();
	check_close();
	check_descriptors_go();
	check_descriptors_out();
	check_stress();
	close_runtime("loops");
	return done();
}
