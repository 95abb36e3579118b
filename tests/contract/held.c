/* SPDX-License-Identifier: MIT */
/*
 * Operations whose dependencies are not there yet are held on the host, in little memory, and none
 * of them is parked in a stream: others go on, and what is let go of runs in order. A million held
 * on one promise: HELD_FILLS changes how many.
 */
#include "tap.h"
#include "contract/rig.h"

static long rss_kib(void)
{
	long total, resident = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f && fscanf(f, "%ld %ld", &total, &resident) != 2)
		resident = 0;
	if (f)
		fclose(f);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* ---- B is submitted before what it depends on can be (C28) ---- */

struct other {
	cuf_scope *s;
	cuf_future *a, *b;
	int *at;
	int *back;
};

static void *submit_behind(void *arg)
{
	struct other *o = arg;

	o->b = cuf_copy(o->s, o->back, o->at, 256 * sizeof(int), .after = CUF_AFTER(o->a));
	return NULL;
}

static void check_before_producer(void)
{
	enum { TURNS = 200 };
	bool early = false, right = true;
	int *back = cuf_pinned_get(rt, 256 * sizeof(int));

	for (int i = 0; i < TURNS; i++) {
		struct other o = { .s = cuf_scope_open(root), .back = back };
		cuf_future *held, *mem = cuf_alloc(o.s, 256 * sizeof(int)), *f;
		cuf_promise *p = cuf_promise_create(o.s, &held);
		pthread_t t;

		o.at = cuf_address(mem);
		memset(back, 0, 256 * sizeof(int));
		f = cuf_fill(o.s, o.at, 0, 256 * sizeof(int), .after = CUF_AFTER(mem));
		o.a = cuf_launch(o.s, &add_one, cuf_grid_1d(256, 64), CUF_ARGS(o.at, (size_t)256),
				 .after = CUF_AFTER(f, held));
		if (pthread_create(&t, NULL, submit_behind, &o))
			abort();
		pthread_join(t, NULL);
		if (i % 20 == 0)
			sleep_ms(2);
		early |= cuf_poll(o.b) != CUF_PENDING || cuf_poll(o.a) != CUF_PENDING;
		cuf_promise_fulfil(p, NULL, NULL);
		right &= ends(o.b) == CUF_OK && back[0] == 1 && back[255] == 1;
		right &= ends(cuf_scope_close(o.s)) == CUF_OK;
	}
	ok(!early, "what depends on a held operation does not run before it");
	ok(right, "and sees what that wrote, %d times", TURNS);
	cuf_pinned_put(rt, back);
}

/* ---- one hop: promise, then kernels that the device orders ---- */

static void check_one_hop(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *held, *f;
	cuf_promise *p = cuf_promise_create(s, &held);
	uint64_t launches;

	if (!on_host) {
		skip(3, "only the host device counts launches");
		cuf_promise_fulfil(p, NULL, NULL);
		ends(cuf_scope_close(s));
		return;
	}
	f = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS);
	is_int(ends(f), CUF_OK, "the kernel is loaded");
	launches = cuf_host_calls(CUF_HOST_LAUNCH);
	cuf_host_gate(0, 1);
	f = held;
	for (int i = 0; i < 3; i++)
		f = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS,
			       .after = CUF_AFTER(f));
	cuf_promise_fulfil(p, NULL, NULL);
	ok(AWAIT(cuf_host_calls(CUF_HOST_LAUNCH) == launches + 3, 3000),
	   "three kernels behind a promise are all enqueued before the first has run");
	cuf_host_gate(0, 0);
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
}

/* ---- nothing is parked in a stream for a promise (C53) ---- */

static atomic_int stop_churning, churned;

static void *churn(void *arg)
{
	(void)arg;
	while (!atomic_load(&stop_churning)) {
		cuf_scope *s = cuf_scope_open(root);
		cuf_future *mem = cuf_alloc(s, 100000), *f;
		void *pinned = cuf_pinned_get(rt, 100000);

		f = cuf_copy(s, cuf_address(mem), pinned, 100000, .after = CUF_AFTER(mem));
		cuf_free(s, cuf_address(mem), .after = CUF_AFTER(f));
		if (ends(cuf_scope_close(s)) != CUF_OK)
			break;
		cuf_pinned_put(rt, pinned);
		atomic_fetch_add(&churned, 1);
	}
	return NULL;
}

static void check_not_parked(void)
{
	enum { HELD = 100 };
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *held, *f[HELD], *mem = cuf_alloc(s, 64 * HELD);
	cuf_promise *p = cuf_promise_create(s, &held);
	pthread_t t;
	bool pending = true, all = true;
	int n;

	for (int i = 0; i < HELD; i++)
		f[i] = cuf_fill(s, (char *)cuf_address(mem) + 64 * i, i, 64,
				.after = CUF_AFTER(mem, held, i > 50 ? f[i - 1] : NULL));
	if (pthread_create(&t, NULL, churn, NULL))
		abort();
	ok(AWAIT(atomic_load(&churned) >= 50, 10000),
	   "others allocate, copy and free beside %d operations held on a promise", HELD);
	for (int i = 0; i < HELD; i++)
		pending &= cuf_poll(f[i]) == CUF_PENDING;
	ok(pending, "which are held");
	cuf_promise_fulfil(p, NULL, NULL);
	for (int i = 0; i < HELD; i++)
		all &= ends(f[i]) == CUF_OK;
	ok(all, "until the promise is kept");
	n = atomic_load(&churned);
	ok(AWAIT(atomic_load(&churned) > n, 10000), "and others still go on");
	atomic_store(&stop_churning, 1);
	pthread_join(t, NULL);
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
}

/* ---- many on one promise ---- */

static void check_million(bool fails)
{
	char *env = getenv("HELD_FILLS");
	size_t n = env		      ? strtoul(env, NULL, 0)
		   : SANITIZED	      ? 50000
		   : under_valgrind() ? 5000
				      : 1000000;
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *held, *mem = cuf_alloc(s, n), *closed;
	cuf_promise *p = cuf_promise_create(s, &held);
	char *at = cuf_address(mem);
	uint64_t fills, submitted, done;
	cuf_stats before = stats(), after;
	long rss, grown;

	is_int(ends(mem), CUF_OK, "memory");
	fills = cuf_host_calls(CUF_HOST_FILL);
	rss = rss_kib();
	submitted = cuf_now_ns();
	for (size_t i = 0; i < n; i++)
		cuf_release(cuf_fill(s, at + i, 1, 1, .after = CUF_AFTER(held)));
	submitted = cuf_now_ns() - submitted;
	grown = rss_kib() - rss;
	diag("%zu held fills: %ld MiB, %ld bytes each, %llu ns each to submit", n, grown / 1024,
	     grown * 1024 / (long)n, (unsigned long long)(submitted / n));
	if (SANITIZED || under_valgrind())
		skip(1, "a sanitizer's memory counts too");
	else
		ok(grown < 256 * 1024, "%zu fills held on one promise take less than 256 MiB", n);
	is_int(cuf_poll(held), CUF_PENDING, "they are held");
	is_int((long long)(cuf_host_calls(CUF_HOST_FILL) - fills), 0, "none has run");
	done = cuf_now_ns();
	if (fails)
		cuf_promise_fail(p, 7, "not today");
	else
		cuf_promise_fulfil(p, NULL, NULL);
	closed = cuf_scope_close(s);
	is_int(cuf_wait_until(closed, cuf_now_ns() + CUF_MS(100000)), fails ? CUF_ERR_USER : CUF_OK,
	       "they end with it");
	done = cuf_now_ns() - done;
	diag("%llu ns each to end", (unsigned long long)(done / n));
	after = stats();
	is_int((long long)(after.failed - before.failed), fails ? (long long)n + 2 : 0, "%s",
	       fails ? "each inherits, and the scope" : "none fails");
	if (on_host)
		is_int((long long)(cuf_host_calls(CUF_HOST_FILL) - fills), fails ? 0 : (long long)n,
		       "%s", fails ? "none runs" : "each runs once");
	else
		skip(1, "only the host device counts fills");
}

/* ---- ends without having run ---- */

static cuf_future *never(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in;
	atomic_fetch_add((atomic_int *)arg, 1);
	return NULL;
}

static int never_put(struct CUstream_st *stream, void *arg)
{
	(void)stream;
	atomic_fetch_add((atomic_int *)arg, 1);
	return 0;
}

static atomic_int drops;

static void count_drop(void *arg)
{
	(void)arg;
	atomic_fetch_add(&drops, 1);
}

/* One dependency fails while another is still open: settled at once, and the other is let go of. */
static void check_fails_early(void)
{
	static atomic_int calls;
	cuf_scope *s = cuf_scope_open(root), *t = cuf_scope_open(root);
	cuf_future *bad, *open, *f[4];
	cuf_promise *p = cuf_promise_create(t, &bad), *q = cuf_promise_create(t, &open);

	f[0] = cuf_call(s, never, &calls, .after = CUF_AFTER(bad, open), .drop = count_drop);
	f[1] = cuf_enqueue(s, never_put, &calls, .after = CUF_AFTER(open, bad), .drop = count_drop);
	f[2] = cuf_call(s, never, &calls, .after = CUF_AFTER(open, bad));
	f[3] = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS,
			  .after = CUF_AFTER(open, bad));
	cuf_promise_fail(p, 4, "bad");
	for (int i = 0; i < 4; i++) {
		is_int(cuf_wait_until(f[i], cuf_now_ns() + CUF_MS(3000)), CUF_ERR_USER,
		       "a failed dependency ends what has another one open");
		is_int(info_of(f[i]).user_code, 4, "with its error");
	}
	is_int(atomic_load(&drops), 2, "each drop came before");
	is_int(ends(cuf_scope_close(s)), CUF_ERR_USER,
	       "their scope ends: a promise is not waited for");
	/* their memory is used again, and the promise must not remember them */
	for (int i = 0; i < 200; i++)
		cuf_release(cuf_call(t, never, &calls, .after = CUF_AFTER(bad)));
	cuf_promise_fulfil(q, NULL, NULL);
	is_int(ends(open), CUF_OK, "the open one is fulfilled later");
	is_int(ends(cuf_scope_close(t)), CUF_ERR_USER, "its scope ends");
	is_int(atomic_load(&calls), 0, "and nothing was called");
}

static void check_cancelled(void)
{
	enum { CHAIN = 50 };
	cuf_scope *s = cuf_scope_open(root), *t = cuf_scope_open(s);
	cuf_future *held, *f[CHAIN], *broken, *g, *mem = cuf_alloc(s, 64);
	cuf_promise *p = cuf_promise_create(s, &held), *q;
	int cancelled = 0;

	for (int i = 0; i < CHAIN; i++)
		f[i] = cuf_fill(s, cuf_address(mem), i, 64,
				.after = CUF_AFTER(mem, i ? f[i - 1] : held));
	is_int(cuf_cancel(f[20]), CUF_OK, "one of a chain is cancelled");
	for (int i = 20; i < CHAIN; i++)
		cancelled += cuf_poll(f[i]) == CUF_ERR_CANCELLED;
	is_int(cancelled, CHAIN - 20, "those behind it inherit that");
	is_int(cuf_poll(f[19]), CUF_PENDING, "those before it are as they were");
	is_int(cuf_cancel(f[20]), CUF_ERR_TOO_LATE, "it is cancelled once");
	cuf_promise_fulfil(p, NULL, NULL);
	is_int(ends(f[19]), CUF_OK, "and run");
	is_int(cuf_cancel(f[19]), CUF_ERR_TOO_LATE, "what has ended is not cancelled");
	q = cuf_promise_create(t, &broken);
	g = cuf_fill(t, cuf_address(mem), 0, 64, .after = CUF_AFTER(broken));
	cuf_scope_cancel(t);
	is_int(ends(g), CUF_ERR_CANCELLED, "a cancelled scope cancels what is held in it");
	cuf_promise_follow(q, NULL);
	is_int(ends(cuf_scope_close(t)), CUF_ERR_CANCELLED, "and ends");
	q = cuf_promise_create(s, &broken);
	g = cuf_fill(s, cuf_address(mem), 0, 64, .after = CUF_AFTER(broken));
	cuf_promise_follow(q, NULL);
	is_int(ends(g), CUF_ERR_BROKEN, "nor is anything done for a promise that is dropped");
	ends(cuf_scope_close(s));
}

int main(void)
{
	const cuf_kernel *kernels[] = { &empty_kernel };

	RIG_START(.devices = 1);
	plan(2 + 3 + 5 + 2 * 7 + 13 + 9 + 1 + 1);
	cuf_kernel_prepare(rt, kernels, 1);
	check_before_producer();
	check_one_hop();
	check_not_parked();
	check_million(false);
	check_million(true);
	check_fails_early();
	check_cancelled();
	is_int(atomic_load(&unobserved), 0, "no error went unobserved");
	return rig_end();
}
