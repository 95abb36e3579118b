/* SPDX-License-Identifier: MIT */
/*
 * Random graphs of everything that makes a future, from several threads, with cancels, timeouts,
 * releases, scopes that close early and loops that are drained meanwhile. Each future settles, each
 * callback comes once, the counters add up, and nothing is outstanding at the end.
 *
 * STRESS_SECONDS (2), STRESS_THREADS (4), STRESS_SEED (the time).
 */
#include <cufuture.h>
#include <kernels.h>
#include <stdatomic.h>
#include <unistd.h>

#include "tap.h"

#define NODES 100
#define PLACE 64 /* bytes of memory for each node: nothing else orders them */

static cuf_runtime *rt;
static uint64_t until_ns;
static _Atomic long graphs, stuck, wrong, watched, watches, dropped, drops, unseen;
static _Atomic bool over;
static cuf_loop *shared; /* drained by a thread of ours */

struct thread {
	pthread_t id;
	uint64_t seed;
};

static unsigned next(struct thread *t, unsigned n)
{
	t->seed ^= t->seed << 13;
	t->seed ^= t->seed >> 7;
	t->seed ^= t->seed << 17;
	return (unsigned)(t->seed >> 33) % n;
}

static void drop(void *arg)
{
	(void)arg;
	atomic_fetch_add(&dropped, 1);
}

static cuf_future *same(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)arg;
	return in;
}

static cuf_future *recover(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	return cuf_ok();
}

static cuf_future *nothing(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	return NULL;
}

/* Goes on submitting: something that is followed, something that is not. */
static cuf_future *more(cuf_scope *s, cuf_future *in, void *arg)
{
	intptr_t n = (intptr_t)arg;

	cuf_release(cuf_call(s, nothing, NULL, .after = CUF_AFTER(in)));
	switch (n % 4) {
	case 0:
		return cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 1), CUF_NO_ARGS);
	case 1:
		return cuf_then(s, cuf_call(s, nothing, NULL), more, (void *)(n / 4));
	case 2:
		return cuf_failed(s, (int)n, "inside");
	default:
		return cuf_timeout(s, in, cuf_now_ns() + 1000);
	}
}

static void watch(cuf_future *f, void *arg)
{
	(void)arg;
	if (cuf_poll(f) == CUF_PENDING)
		atomic_fetch_add(&wrong, 1);
	atomic_fetch_add(&watched, 1);
}

static int enqueue(struct CUstream_st *stream, void *arg)
{
	(void)stream;
	return (int)(intptr_t)arg;
}

static cuf_future *any_before(struct thread *t, cuf_future **f, int i)
{
	return i ? f[next(t, (unsigned)i)] : cuf_ok();
}

static cuf_future *make(struct thread *t, cuf_scope *s, cuf_future **f, int i, cuf_promise **p,
			cuf_future *mem, char *host)
{
	cuf_future *a = any_before(t, f, i), *b = any_before(t, f, i), *taken;
	cuf_loop *on = next(t, 8) ? NULL : next(t, 2) ? cuf_runtime_workers(rt) : shared;
	cuf_drop_fn *d = next(t, 4) ? NULL : drop;
	char *dev = cuf_address(mem);
	size_t bytes = 1 + next(t, PLACE - 1);

	switch (next(t, 24)) {
	case 0:
	case 1:
	case 2:
	case 3:
		return cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 1), CUF_NO_ARGS,
				  .after = CUF_AFTER(a, b));
	case 4:
		taken = cuf_retain(a);
		return cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 1), CUF_NO_ARGS,
				  .take = CUF_AFTER(taken), .after_settled = CUF_AFTER(b));
	case 5:
		return cuf_launch(s, &spin_kernel, cuf_grid_1d(1, 1),
				  CUF_ARGS((uint64_t)next(t, 100000)), .after = CUF_AFTER(a));
	case 6:
		return cuf_fill(s, dev ? dev + i * PLACE : NULL, 1, bytes,
				.after = CUF_AFTER(mem, a, b));
	case 7:
		return cuf_copy(s, dev ? dev + i * PLACE : NULL, host + i * PLACE, bytes,
				.after = CUF_AFTER(mem, a, b));
	case 8:
		return cuf_copy(s, host + i * PLACE, dev ? dev + i * PLACE : NULL, bytes,
				.after = CUF_AFTER(mem), .after_settled = CUF_AFTER(a, b));
	case 9:
		atomic_fetch_add(&drops, d != NULL);
		return cuf_then(s, a, same, NULL, .drop = d, .on = on);
	case 10:
		atomic_fetch_add(&drops, d != NULL);
		return cuf_catch(s, a, recover, NULL, .drop = d, .on = on);
	case 11:
		atomic_fetch_add(&drops, d != NULL);
		return cuf_finally(s, a, more, (void *)(intptr_t)next(t, 64), .drop = d, .on = on);
	case 12:
		atomic_fetch_add(&drops, d != NULL);
		return cuf_then(s, a, more, (void *)(intptr_t)next(t, 64), .drop = d, .on = on);
	case 13:
		return cuf_all(s, a, b, NULL);
	case 14:
		return cuf_any(s, a, b);
	case 15:
		return cuf_timeout(s, a, cuf_now_ns() + next(t, 200000));
	case 16:
		atomic_fetch_add(&drops, d != NULL);
		return cuf_call(s, nothing, NULL, .after = CUF_AFTER(a, b), .drop = d);
	case 17:
		atomic_fetch_add(&drops, d != NULL);
		return cuf_call(s, more, (void *)(intptr_t)next(t, 64), .after = CUF_AFTER(a),
				.drop = d);
	case 18:
		*p = cuf_promise_create(s, &taken);
		return taken;
	case 19:
		return next(t, 4) ? cuf_ready(s, NULL, NULL) : cuf_failed(s, i, "a leaf");
	case 20:
		return cuf_alloc(s, 256, .after = CUF_AFTER(a));
	case 21:
		atomic_fetch_add(&drops, d != NULL);
		return cuf_enqueue(s, enqueue, (void *)(intptr_t)(next(t, 10) == 0), .drop = d,
				   .after = CUF_AFTER(a), .key = next(t, 2) ? &shared : NULL);
	case 22:
		atomic_fetch_add(&watches, 1);
		cuf_watch(s, a, watch, NULL, .on = on);
		return cuf_room(s, 1);
	default:
		return cuf_free(s, NULL, .after = CUF_AFTER(a, b));
	}
}

static void keep(struct thread *t, cuf_promise *p, cuf_future *as)
{
	switch (next(t, 5)) {
	case 0:
		cuf_promise_fail(p, 1, "kept");
		break;
	case 1:
		cuf_promise_follow(p, NULL);
		break;
	case 2:
		cuf_promise_follow(p, as);
		break;
	default:
		cuf_promise_fulfil(p, NULL, NULL);
	}
}

static void one_graph(struct thread *t)
{
	cuf_scope *s = cuf_scope_open(cuf_runtime_scope(rt), .label = "graph"), *child = s;
	cuf_future *f[NODES], *mem = cuf_alloc(s, NODES * PLACE), *end;
	cuf_promise *p[NODES] = { NULL };
	bool early = next(t, 2), released[NODES] = { false };
	char *host = cuf_pinned_get(rt, NODES * PLACE);
	int n = 1 + (int)next(t, NODES);

	for (int i = 0; i < n; i++) {
		if (next(t, 40) == 0) {
			if (child != s)
				cuf_scope_end(child);
			child = cuf_scope_open(s);
		}
		f[i] = make(t, next(t, 4) ? s : child, f, i, &p[i], mem, host);
		cuf_retain(f[i]);
		if (next(t, 2)) /* the one that the scope would give up */
			cuf_release(f[i]);
		if (next(t, 25) == 0)
			cuf_cancel(f[next(t, (unsigned)i + 1)]);
		if (next(t, 300) == 0)
			cuf_scope_cancel(next(t, 2) ? s : child);
		if (p[i] && early) {
			keep(t, p[i], any_before(t, f, i));
			p[i] = NULL;
		}
	}
	for (int i = 0; i < n; i++) {
		if (p[i])
			keep(t, p[i], any_before(t, f, i));
	}
	for (int i = 0; i < n; i++) {
		if (next(t, 3) == 0) {
			cuf_release(f[i]);
			released[i] = true;
		}
	}
	if (child != s)
		cuf_scope_end(child);
	end = cuf_scope_close(s);
	if (cuf_wait_until(end, cuf_now_ns() + CUF_MS(30000)) == CUF_PENDING) {
		if (!atomic_fetch_add(&stuck, 1))
			cuf_dump(rt, stderr);
		atomic_store(&over, true);
		return;
	}
	cuf_release(end);
	for (int i = 0; i < n; i++) {
		if (released[i])
			continue;
		if (cuf_poll(f[i]) == CUF_PENDING)
			atomic_fetch_add(&wrong, 1);
		cuf_release(f[i]);
	}
	cuf_pinned_put(rt, host);
	atomic_fetch_add(&graphs, 1);
}

static void *run(void *arg)
{
	while (cuf_now_ns() < until_ns && !atomic_load(&over))
		one_graph(arg);
	return NULL;
}

static void *drain(void *arg)
{
	(void)arg;
	while (!atomic_load(&over))
		cuf_loop_run_until(shared, NULL, cuf_now_ns() + CUF_MS(20));
	return NULL;
}

static void on_unobserved(const cuf_error *e, void *arg)
{
	(void)e, (void)arg;
	atomic_fetch_add(&unseen, 1);
}

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *v = getenv(name);

	return v && *v ? strtoull(v, NULL, 0) : otherwise;
}

int main(void)
{
	cuf_runtime_options o = { .size = sizeof o, .workers = 2, .on_unobserved = on_unobserved };
	const cuf_kernel *kernels[] = { &empty_kernel, &spin_kernel };
	uint64_t seconds = number("STRESS_SECONDS", 2), seed = number("STRESS_SEED", cuf_now_ns());
	unsigned n = (unsigned)number("STRESS_THREADS", 4);
	struct thread t[64];
	pthread_t drainer;
	char timeout[24];
	cuf_status st;

	snprintf(timeout, sizeof timeout, "%llu", (unsigned long long)seconds + 90);
	setenv("TAP_TIMEOUT", timeout, 0);
	plan(6);
	if (n < 1 || n > 64)
		n = 4;
	diag("STRESS_SEED=%llu STRESS_THREADS=%u STRESS_SECONDS=%llu", (unsigned long long)seed, n,
	     (unsigned long long)seconds);
	if (cuf_runtime_create(&rt, &o) || cuf_kernel_prepare(rt, kernels, 2) ||
	    cuf_loop_create(rt, &shared))
		abort();
	until_ns = cuf_now_ns() + seconds * 1000000000;
	if (pthread_create(&drainer, NULL, drain, NULL))
		abort();
	for (unsigned i = 0; i < n; i++) {
		t[i].seed = (seed + i + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
		if (pthread_create(&t[i].id, NULL, run, &t[i]))
			abort();
	}
	for (unsigned i = 0; i < n; i++)
		pthread_join(t[i].id, NULL);
	ok(atomic_load(&stuck) == 0, "every graph came to its end");
	st = cuf_runtime_shutdown(rt, CUF_DRAIN, cuf_now_ns() + CUF_MS(20000));
	ok(st == CUF_OK, "nothing is outstanding at the end");
	if (st != CUF_OK)
		cuf_dump(rt, stderr);
	atomic_store(&over, true);
	pthread_join(drainer, NULL);
	cuf_loop_close(shared);
	ok(atomic_load(&graphs) > 0, "%ld graphs", atomic_load(&graphs));
	ok(atomic_load(&wrong) == 0, "every future has settled, none before it was watched");
	ok(atomic_load(&watched) == atomic_load(&watches), "each watch was called once");
	ok(atomic_load(&dropped) == atomic_load(&drops), "each argument was dropped once");
	diag("watches %ld of %ld, drops %ld of %ld, %ld errors reported", atomic_load(&watched),
	     atomic_load(&watches), atomic_load(&dropped), atomic_load(&drops),
	     atomic_load(&unseen));
	cuf_runtime_destroy(rt);
	return done();
}
