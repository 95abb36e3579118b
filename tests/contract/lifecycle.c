/* SPDX-License-Identifier: MIT */
/*
 * The ends of a runtime: shutdown that drains or abandons, with deadlines and promises that nobody
 * keeps; destroy; two at once; fork (C27); exit with work outstanding (C25).
 */
#include <kernels.h>
#include <sys/wait.h>

#include "contract.h"

static _Atomic int ran, dropped;

static cuf_future *count(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	atomic_fetch_add(&ran, 1);
	return NULL;
}

static void watch(cuf_future *f, void *arg)
{
	_Atomic int *status = arg;

	atomic_store(status, cuf_poll(f));
	atomic_fetch_add(&ran, 1);
}

static void drop(void *arg)
{
	(void)arg;
	atomic_fetch_add(&dropped, 1);
}

static void begin(void)
{
	open_runtime((cuf_runtime_options){ .workers = 2 });
	atomic_store(&ran, 0);
	atomic_store(&dropped, 0);
	atomic_store(&unobserved, 0);
}

static uint64_t in_ms(unsigned ms)
{
	return cuf_now_ns() + CUF_MS(ms);
}

/* ---- draining ---- */

/* A chain through continuations, which go on submitting while the runtime drains. */
static cuf_future *go_on(cuf_scope *s, cuf_future *in, void *arg)
{
	intptr_t n = (intptr_t)arg;

	(void)in;
	atomic_fetch_add(&ran, 1);
	nap_ms(1);
	return n ? cuf_then(s, cuf_call(s, count, NULL), go_on, (void *)(n - 1)) : NULL;
}

static void check_drain(void)
{
	cuf_future *f, *late;
	cuf_scope *s;

	begin();
	is_int(cuf_runtime_shutdown(rt, CUF_DRAIN, CUF_FOREVER), CUF_OK,
	       "an idle runtime drains at once");
	is_int(cuf_runtime_shutdown(rt, CUF_DRAIN, 0), CUF_OK, "and again");
	is_int(cuf_runtime_shutdown(rt, CUF_ABANDON, 0), CUF_OK, "and abandons after that");
	is_int(settled(cuf_ready(root, NULL, NULL)), CUF_ERR_SHUTDOWN, "then it takes no work");
	cuf_runtime_destroy(rt);

	begin();
	s = cuf_scope_open(root);
	f = cuf_then(s, cuf_ok(), go_on, (void *)20);
	cuf_retain(f);
	cuf_scope_end(s);
	is_int(cuf_runtime_shutdown(rt, CUF_DRAIN, in_ms(LONG_MS)), CUF_OK,
	       "draining runs what continuations submit");
	is_int(cuf_poll(f), CUF_OK, "to its end");
	is_int(atomic_load(&ran), 41, "all of it");
	late = cuf_then(root, f, count, NULL, .drop = drop);
	is_int(settled(late), CUF_ERR_SHUTDOWN, "a late submit");
	is_int(atomic_load(&dropped), 1, "drops its argument");
	is_int(cuf_poll(f), CUF_OK, "what is held can be asked until the end");
	cuf_release(f);
	cuf_runtime_destroy(rt);
}

static void *drain(void *arg)
{
	atomic_store((_Atomic int *)arg, cuf_runtime_shutdown(rt, CUF_DRAIN, in_ms(LONG_MS)));
	return NULL;
}

static void check_submit_while_draining(void)
{
	static _Atomic int status;
	pthread_t thread;
	cuf_future *f, *then, *late;
	cuf_promise *p;

	begin();
	p = cuf_promise_create(root, &f);
	then = cuf_then(root, f, go_on, (void *)3);
	if (pthread_create(&thread, NULL, drain, &status))
		abort();
	nap_ms(10);
	late = cuf_call(root, count, NULL);
	is_int(settled(late), CUF_ERR_SHUTDOWN, "while it drains a submit from outside is late");
	ok(cuf_promise_fulfil(p, NULL, NULL), "but a promise can be kept");
	pthread_join(thread, NULL);
	is_int(atomic_load(&status), CUF_OK, "and the drain ends");
	is_int(cuf_poll(then), CUF_OK, "with all that came of it");
	is_int(atomic_load(&ran), 7, "which ran");
	cuf_runtime_destroy(rt);
}

/* ---- deadlines and promises that nobody keeps ---- */

static void check_unfulfilled(void)
{
	static _Atomic int status;
	cuf_future *f, *then, *held, *all, *close, *timeout;
	uint64_t before;
	cuf_promise *p;
	cuf_scope *s;
	static char a, b;

	begin();
	s = cuf_scope_open(root);
	cuf_scope_defer(s, drop, NULL);
	p = cuf_promise_create(s, &f);
	then = cuf_then(s, f, count, NULL, .drop = drop);
	held = cuf_copy(s, &a, &b, 1, .after = CUF_AFTER(f));
	all = cuf_all(s, f, cuf_ok());
	timeout = cuf_timeout(s, f, in_ms(1000000));
	cuf_watch(s, f, watch, &status);
	cuf_retain(f), cuf_retain(then), cuf_retain(held), cuf_retain(all), cuf_retain(timeout);
	close = cuf_scope_close(s);
	before = cuf_now_ns();
	is_int(cuf_runtime_shutdown(rt, CUF_DRAIN, in_ms(30)), CUF_PENDING,
	       "a drain with a promise that nobody keeps ends at its deadline");
	ok(cuf_now_ns() - before >= CUF_MS(30) && cuf_now_ns() - before < CUF_MS(5000),
	   "not before it, nor long after");
	is_int(cuf_poll(f), CUF_ERR_SHUTDOWN, "the promise's future has failed");
	ok(cuf_poll(then) == CUF_ERR_SHUTDOWN && cuf_poll(held) == CUF_ERR_SHUTDOWN &&
		   cuf_poll(all) == CUF_ERR_SHUTDOWN && cuf_poll(timeout) == CUF_ERR_SHUTDOWN,
	   "and so has what waited for it");
	ok(comes_to(&ran, 1) && atomic_load(&status) == CUF_ERR_SHUTDOWN, "its watch was called");
	ok(settled(close) < 0, "its scope has ended");
	ok(comes_to(&dropped, 2), "drops and defers ran");
	ok(!cuf_promise_fulfil(p, &a, drop), "the promise cannot be kept any more");
	is_int(atomic_load(&dropped), 3, "and its value is dropped");
	cuf_release_all(f, then, held, all, timeout, close);
	cuf_runtime_destroy(rt);
}

static void check_abandon(void)
{
	static _Atomic int status;
	cuf_future *f, *then, *held;
	uint64_t before = cuf_now_ns();
	cuf_promise *p;
	static char a, b;

	begin();
	p = cuf_promise_create(root, &f);
	then = cuf_then(root, f, count, NULL, .drop = drop);
	held = cuf_copy(root, &a, &b, 1, .after = CUF_AFTER(f));
	cuf_watch(root, f, watch, &status);
	is_int(cuf_runtime_shutdown(rt, CUF_ABANDON, in_ms(LONG_MS)), CUF_OK,
	       "abandoning ends what waits");
	ok(cuf_now_ns() - before < CUF_MS(5000), "at once");
	ok(cuf_poll(f) == CUF_ERR_SHUTDOWN && cuf_poll(then) == CUF_ERR_SHUTDOWN &&
		   cuf_poll(held) == CUF_ERR_SHUTDOWN,
	   "with that status");
	ok(atomic_load(&ran) == 1 && atomic_load(&status) == CUF_ERR_SHUTDOWN && dropped == 1,
	   "watches and drops ran");
	ok(!cuf_promise_fail(p, 1, "late"), "the promise cannot be broken any more");
	cuf_runtime_destroy(rt);
}

/* A scope that its opener never closed, a loop that was never drained, events never taken. */
static void check_left_open(void)
{
	uint64_t before;
	cuf_future *f, *g, *close;
	cuf_scope *s, *t;
	cuf_loop *loop, *events;

	begin();
	cuf_loop_create(rt, &loop);
	cuf_loop_create(rt, &events);
	s = cuf_scope_open(root, .on = loop);
	f = cuf_then(s, cuf_ok(), count, NULL, .drop = drop);
	t = cuf_scope_open(s);
	close = cuf_scope_close(s);
	cuf_post(t, cuf_ok(), events, 1);
	g = cuf_ready(root, &ran, drop);
	(void)f, (void)close, (void)g;
	before = cuf_now_ns();
	is_int(cuf_runtime_shutdown(rt, CUF_DRAIN, in_ms(30)), CUF_PENDING,
	       "a loop that nobody drains does not hold a shutdown for ever");
	ok(cuf_now_ns() - before < CUF_MS(5000), "but until the deadline");
	cuf_runtime_destroy(rt);
	ok(true, "and a destroy takes what was left open");
	is_int(atomic_load(&dropped), 2,
	       "drops that waited for the loop ran, values held are dropped");
}

/* ---- what the device has not finished ---- */

static void check_device_outstanding(void)
{
	const cuf_kernel *k = &spin_kernel;
	cuf_future *f, *g;

	begin();
	cuf_kernel_prepare(rt, &k, 1);
	f = cuf_launch(root, &spin_kernel, cuf_grid_1d(1, 1), CUF_ARGS((uint64_t)CUF_MS(150)));
	g = cuf_then(root, f, count, NULL);
	is_int(cuf_runtime_shutdown(rt, CUF_DRAIN, in_ms(10)), CUF_PENDING,
	       "a kernel outlives the deadline of a shutdown");
	ok(cuf_poll(f) == CUF_ERR_SHUTDOWN && cuf_poll(g) == CUF_ERR_SHUTDOWN,
	   "all futures have settled all the same");
	ok(info_of(f).outcome_unknown, "whether it ran to its end is not known");
	cuf_runtime_destroy(rt);
	ok(true, "destroy waits for the device to let go");

	begin();
	cuf_kernel_prepare(rt, &k, 1);
	f = cuf_launch(root, &spin_kernel, cuf_grid_1d(1, 1), CUF_ARGS((uint64_t)CUF_MS(50)));
	g = cuf_then(root, f, count, NULL);
	is_int(cuf_runtime_shutdown(rt, CUF_DRAIN, in_ms(LONG_MS)), CUF_OK,
	       "a drain waits for kernels");
	ok(cuf_poll(f) == CUF_OK && cuf_poll(g) == CUF_OK && atomic_load(&ran) == 1,
	   "and for what follows");
	cuf_runtime_destroy(rt);

	begin();
	cuf_kernel_prepare(rt, &k, 1);
	f = cuf_launch(root, &spin_kernel, cuf_grid_1d(1, 1), CUF_ARGS((uint64_t)CUF_MS(50)));
	g = cuf_launch(root, &spin_kernel, cuf_grid_1d(1, 1), CUF_ARGS((uint64_t)CUF_MS(1)),
		       .after = CUF_AFTER(f));
	cuf_runtime_destroy(rt);
	ok(true, "destroy alone abandons");
}

/* ---- destroy ---- */

static void *fulfil(void *arg)
{
	cuf_promise_fulfil(arg, NULL, NULL);
	return NULL;
}

/* The thread that settled the last future may be in its call still. */
static void check_destroy_behind_fulfil(void)
{
	int rounds = (int)scaled(300);

	for (int i = 0; i < rounds; i++) {
		cuf_future *f;
		cuf_promise *p;
		pthread_t thread;

		begin();
		p = cuf_promise_create(root, &f);
		if (i & 1)
			cuf_watch(root, f, watch, &dropped);
		if (pthread_create(&thread, NULL, fulfil, p))
			abort();
		if (i % 3)
			cuf_wait(f);
		else
			cuf_runtime_shutdown(rt, CUF_DRAIN, in_ms(LONG_MS));
		cuf_runtime_destroy(rt);
		pthread_join(thread, NULL);
	}
	ok(true, "a runtime is destroyed while the thread that ended it all returns");
}

static void check_root(void)
{
	cuf_future *f;

	begin();
	cuf_scope_defer(root, drop, NULL);
	f = cuf_ready(root, NULL, drop);
	cuf_release(cuf_ready(root, NULL, drop));
	(void)f;
	is_int(atomic_load(&dropped), 1, "what the root has, it keeps");
	cuf_runtime_destroy(rt);
	is_int(atomic_load(&dropped), 3, "until the destroy: values and defers");
}

static void check_two(void)
{
	cuf_runtime *one, *two;
	cuf_future *f, *g;
	cuf_promise *p, *q;

	begin();
	one = rt;
	p = cuf_promise_create(root, &f);
	begin();
	two = rt;
	q = cuf_promise_create(root, &g);
	cuf_promise_fulfil(p, NULL, NULL);
	is_int(cuf_runtime_shutdown(one, CUF_DRAIN, in_ms(LONG_MS)), CUF_OK,
	       "one of two is shut down");
	cuf_runtime_destroy(one);
	is_int(cuf_poll(g), CUF_PENDING, "the other goes on");
	cuf_promise_fulfil(q, NULL, NULL);
	is_int(outcome(cuf_call(cuf_runtime_scope(two), count, NULL)), CUF_OK, "and works");
	cuf_runtime_destroy(two);
	for (int i = 0; i < 100; i++) {
		begin();
		if (i & 1)
			outcome(cuf_call(root, count, NULL));
		cuf_runtime_destroy(rt);
	}
	ok(true, "a hundred runtimes, one after the other");
}

/* C26: threads go on submitting while the runtime shuts down. */
static _Atomic int stop;

static void *submit(void *arg)
{
	_Atomic int *bad = arg;

	while (!atomic_load(&stop)) {
		cuf_future *f = cuf_then(root, cuf_ok(), count, NULL, .drop = drop);
		cuf_status st = settled(f);

		if (st != CUF_OK && st != CUF_ERR_SHUTDOWN)
			atomic_fetch_add(bad, 1);
		cuf_release(f);
	}
	return NULL;
}

static void check_shutdown_while_submitting(void)
{
	static _Atomic int bad;
	pthread_t thread[2];

	for (int i = 0; i < 20; i++) {
		begin();
		atomic_store(&stop, 0);
		for (int k = 0; k < 2; k++) {
			if (pthread_create(&thread[k], NULL, submit, &bad))
				abort();
		}
		nap_ms(2);
		cuf_runtime_shutdown(rt, i & 1 ? CUF_DRAIN : CUF_ABANDON, in_ms(1000));
		nap_ms(1);
		atomic_store(&stop, 1);
		for (int k = 0; k < 2; k++)
			pthread_join(thread[k], NULL);
		cuf_runtime_destroy(rt);
	}
	is_int(atomic_load(&bad), 0, "submits race with a shutdown: done, or shutting down");
}

/* ---- fork ---- */

static int child_status(pid_t pid)
{
	int status;

	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* How many calls in the child did not say that they are in one. */
static int in_child(cuf_future *pending, cuf_future *done, cuf_promise *p, cuf_scope *s,
		    cuf_loop *loop)
{
	cuf_stats st = { .size = sizeof st };
	cuf_runtime *mine;
	cuf_event e;
	cuf_loop *l;
	cuf_future *f;
	cuf_promise *q;
	int bad = 0;

	alarm(10); /* a hang is a death by signal */
	bad += cuf_wait(pending) != CUF_ERR_FORKED;
	bad += cuf_wait_until(pending, 0) != CUF_ERR_FORKED;
	bad += cuf_cancel(pending) != CUF_ERR_FORKED;
	bad += cuf_poll(cuf_then(s, cuf_ok(), count, NULL)) != CUF_ERR_FORKED;
	bad += cuf_poll(cuf_call(s, count, NULL)) != CUF_ERR_FORKED;
	bad += cuf_poll(cuf_alloc(s, 64)) != CUF_ERR_FORKED;
	bad += cuf_poll(cuf_copy(s, &st, &e, 4)) != CUF_ERR_FORKED;
	bad += cuf_poll(cuf_fill(s, &st, 0, 4)) != CUF_ERR_FORKED;
	bad += cuf_poll(cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 1), CUF_NO_ARGS)) !=
	       CUF_ERR_FORKED;
	bad += cuf_poll(cuf_all(s, pending)) != CUF_ERR_FORKED;
	bad += cuf_poll(cuf_any(s, pending)) != CUF_ERR_FORKED;
	bad += cuf_poll(cuf_timeout(s, pending, 0)) != CUF_ERR_FORKED;
	bad += cuf_poll(cuf_room(s, 1)) != CUF_ERR_FORKED;
	bad += cuf_poll(cuf_ready(s, NULL, NULL)) != CUF_ERR_FORKED;
	q = cuf_promise_create(s, &f);
	bad += q || cuf_poll(f) != CUF_ERR_FORKED;
	bad += cuf_promise_fulfil(p, NULL, NULL);
	bad += cuf_scope_poll(s) != CUF_ERR_FORKED;
	bad += cuf_scope_poll(cuf_scope_open(s)) != CUF_ERR_FORKED;
	bad += cuf_scope_defer(s, drop, NULL) != CUF_ERR_FORKED;
	bad += cuf_loop_create(rt, &l) != CUF_ERR_FORKED;
	bad += cuf_loop_dispatch(loop, 1) != 0;
	bad += cuf_loop_take(loop, &e, 1) != 0;
	bad += cuf_loop_run_until(loop, pending, 0) != CUF_ERR_FORKED;
	bad += cuf_runtime_shutdown(rt, CUF_DRAIN, CUF_FOREVER) != CUF_ERR_FORKED;
	bad += cuf_pinned_get(rt, 64) != NULL;
	bad += cuf_kernel_prepare(rt, NULL, 0) != CUF_ERR_FORKED;
	cuf_stats_of(rt, &st);
	cuf_dump(rt, stderr);
	cuf_ignore(done);
	cuf_release(done);
	cuf_release(pending);
	cuf_scope_cancel(s);
	bad += cuf_poll(cuf_scope_close(s)) != CUF_ERR_FORKED;
	cuf_loop_close(loop);
	cuf_runtime_destroy(rt);
	bad += cuf_runtime_create(&mine, NULL) != CUF_ERR_FORKED || mine;
	return bad;
}

static _Atomic int hammering;

static void *hammer(void *arg)
{
	(void)arg;
	while (atomic_load(&hammering)) {
		cuf_scope *s = cuf_scope_open(root);
		cuf_loop *l;

		for (int i = 0; i < 20; i++)
			cuf_release(cuf_then(s, cuf_ok(), count, NULL));
		cuf_failed(s, 1, "hammer");
		cuf_ignore(cuf_scope_close(s));
		if (!cuf_loop_create(rt, &l))
			cuf_loop_close(l);
		cuf_pinned_put(rt, cuf_pinned_get(rt, 100));
	}
	return NULL;
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
static const bool sanitized = true;
#elif defined(__has_feature)
static const bool sanitized = __has_feature(thread_sanitizer) || __has_feature(address_sanitizer);
#else
static const bool sanitized = false;
#endif

static bool instrumented(void)
{
	const char *preload = getenv("LD_PRELOAD");

	return sanitized || (preload && strstr(preload, "vgpreload"));
}

static void check_fork(bool busy)
{
	const char *when = busy ? "while threads are in calls" : "at rest";
	int bad = 0, failed = 0, rounds = busy ? 20 : 1;
	cuf_future *pending, *done, *f;
	pthread_t thread[2];
	cuf_promise *p;
	cuf_loop *loop;
	cuf_scope *s;

	begin();
	cuf_loop_create(rt, &loop);
	s = cuf_scope_open(root);
	p = cuf_promise_create(s, &pending);
	done = cuf_failed(s, 1, "done");
	atomic_store(&hammering, busy);
	for (int i = 0; busy && i < 2; i++) {
		if (pthread_create(&thread[i], NULL, hammer, NULL))
			abort();
	}
	for (int i = 0; i < rounds; i++) {
		pid_t pid;

		fflush(stdout);
		pid = fork();
		if (!pid) {
			bad = in_child(pending, done, p, s, loop);
			if (busy && instrumented())
				_exit(bad); /* leak checks are not for children */
			exit(bad);
		}
		bad = child_status(pid);
		failed += bad != 0;
		if (bad)
			diag("child: %d", bad);
	}
	is_int(failed, 0, "fork %s: each call in the child says so, and it exits cleanly", when);
	atomic_store(&hammering, 0);
	for (int i = 0; busy && i < 2; i++)
		pthread_join(thread[i], NULL);
	f = cuf_then(s, pending, count, NULL);
	ok(cuf_promise_fulfil(p, NULL, NULL) && outcome(f) == CUF_OK, "fork %s: the parent goes on",
	   when);
	cuf_loop_close(loop);
	cuf_ignore(done);
	cuf_scope_end(s);
	is_int(cuf_runtime_shutdown(rt, CUF_DRAIN, in_ms(LONG_MS)), CUF_OK,
	       "fork %s: and ends, with nothing outstanding", when);
	cuf_runtime_destroy(rt);
}

/* ---- exit ---- */

static cuf_future *sleep_long(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	sleep(30);
	return NULL;
}

static cuf_future *exit_inside(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in;
	exit((int)(intptr_t)arg);
}

/* In a process of its own: it exits with work outstanding. */
static void exit_with_work(int kind)
{
	cuf_future *f;

	alarm(20);

	open_runtime((cuf_runtime_options){ .workers = 2 });
	for (int i = 0; i < 100; i++) {
		cuf_promise *p = cuf_promise_create(root, &f);

		(void)p;
		cuf_then(root, f, count, NULL);
		cuf_launch(root, &spin_kernel, cuf_grid_1d(1, 1), CUF_ARGS((uint64_t)CUF_MS(100)));
		cuf_call(root, count, NULL);
	}
	if (kind == 1)
		cuf_call(root, sleep_long, NULL);
	else if (kind == 2)
		cuf_then(root, cuf_ok(), sleep_long, NULL);
	else if (kind == 3)
		cuf_then(root, cuf_ok(), exit_inside, (void *)(intptr_t)43);
	else if (kind == 4)
		cuf_call(root, exit_inside, (void *)(intptr_t)44);
	nap_ms(20);
	if (kind >= 3)
		sleep(30);
	exit(40 + kind);
}

static void check_exit(void)
{
	static const char *const what[] = { "100 futures outstanding", "a worker that sleeps",
					    "a continuation that sleeps", "exit in a continuation",
					    "exit on a worker" };
	char path[4096] = "";

	/* not the link itself: under valgrind it is valgrind */
	if (readlink("/proc/self/exe", path, sizeof path - 1) < 0)
		abort();
	for (int kind = 0; kind < 5; kind++) {
		uint64_t before = cuf_now_ns();
		pid_t pid;
		int status;

		fflush(stdout);
		pid = fork();
		if (!pid) {
			char number[2] = { (char)('0' + kind), 0 };

			execl(path, path, number, (char *)NULL);
			_exit(127);
		}
		status = child_status(pid);
		is_int(status, 40 + kind, "exit() with %s: the program's status", what[kind]);
		/* C25: 2 s; a slow machine starts a runtime in there too */
		ok(cuf_now_ns() - before < CUF_MS(4000), "exit() with %s: soon", what[kind]);
	}
}

int main(int argc, char **argv)
{
	if (argc > 1)
		exit_with_work(*argv[1] - '0');
	plan(64);
	check_drain();
	check_submit_while_draining();
	check_unfulfilled();
	check_abandon();
	check_left_open();
	check_device_outstanding();
	check_destroy_behind_fulfil();
	check_root();
	check_two();
	check_shutdown_while_submitting();
	check_fork(false);
	check_fork(true);
	check_exit();
	return done();
}
