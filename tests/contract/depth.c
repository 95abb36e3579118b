/* SPDX-License-Identifier: MIT */
/*
 * Thousands of submits behind a stream that does not move return at once, other streams go on, and
 * when it moves everything runs in order. What waits in the backlog can be cancelled.
 */
#include "tap.h"
#include "contract/rig.h"

enum { DEEP = 5000, N = 64 };

/* One step whose place in the order shows in the result: x = a x + b y, with y all ones. */
static float part(int i)
{
	return 0.25f + (float)(i % 7) / 16;
}

static cuf_future *step(cuf_scope *s, float *at, const float *ones, int i, const cuf_options *o)
{
	return cuf_launch_with(
		s, &mix, cuf_grid_1d(N, 64),
		CUF_ARGS((const float *)at, ones, at, part(i), 1 - part(i), (size_t)N), o);
}

static float steps_here(int n)
{
	volatile float x = 0.0f;

	for (int i = 0; i < n; i++) {
		volatile float ax = part(i) * x, by = (1 - part(i)) * 0.74609375f;

		x = ax + by;
	}
	return x;
}

struct work {
	cuf_scope *s;
	float *at, *ones, *back;
	cuf_future *ready;
};

static struct work prepare(void)
{
	struct work w = { .s = cuf_scope_open(root), .back = cuf_pinned_get(rt, 2 * N * 4) };
	cuf_future *mem = cuf_alloc(w.s, 2 * N * sizeof(float)), *f;

	w.at = cuf_address(mem);
	w.ones = w.at + N;
	for (int i = 0; i < 2 * N; i++)
		w.back[i] = i < N ? 0.0f : 0.74609375f;
	f = cuf_copy(w.s, w.at, w.back, 2 * N * sizeof(float), .after = CUF_AFTER(mem));
	if (ends(f) != CUF_OK)
		abort();
	w.ready = f;
	return w;
}

static bool result_is(struct work *w, cuf_future *last, int steps)
{
	float want = steps_here(steps);
	cuf_future *f = cuf_copy(w->s, w->back, w->at, N * sizeof(float), .after = CUF_AFTER(last));

	if (ends(f) != CUF_OK)
		return false;
	for (int i = 0; i < N; i++) {
		if (w->back[i] != want) {
			diag("element %d is %.9g, not %.9g", i, (double)w->back[i], (double)want);
			return false;
		}
	}
	return true;
}

/* ---- 5,000 behind a stalled stream ---- */

static void check_stalled(bool take)
{
	struct work w = prepare();
	struct gate g = gate_make();
	uint64_t start, worst = 0, all = cuf_now_ns();
	cuf_future *f = GATE_LAUNCH(w.s, g, .label = "gate"), *next, *other;
	int slow = 0, went = 0;
	bool right = true;

	for (int i = 0; i < DEEP; i++) {
		uint64_t took = cuf_now_ns();

		next = step(w.s, w.at, w.ones, i,
			    take ? CUF_OPTIONS(.take = CUF_LIST(f))
				 : CUF_OPTIONS(.after = CUF_AFTER(f)));
		took = cuf_now_ns() - took;
		worst = took > worst ? took : worst;
		slow += took > 1000000;
		if (!take)
			cuf_release(f);
		f = next;
	}
	all = cuf_now_ns() - all;
	diag("%d submits: %llu us each, %llu us at worst, %d over 1 ms", DEEP,
	     (unsigned long long)(all / DEEP / 1000), (unsigned long long)(worst / 1000), slow);
	/* another thread of this machine may take the core now and then */
	ok(slow <= DEEP / (SANITIZED ? 20 : 200) || under_valgrind(),
	   "each submit behind a stalled stream returns within a millisecond");
	ok(all < 2000000000u, "and all of them do soon");
	is_int(cuf_poll(f), CUF_PENDING, "they wait");
	start = cuf_now_ns();
	for (int i = 0; i < 100; i++) {
		other = cuf_launch(w.s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS);
		went += cuf_wait_until(other, start + CUF_MS(5000)) == CUF_OK;
		cuf_release(other);
	}
	is_int(went, 100, "others go on beside it");
	is_int(cuf_poll(f), CUF_PENDING, "while they wait");
	gate_open(g);
	right = result_is(&w, f, DEEP);
	ok(right, "then all run, in order");
	is_int(ends(cuf_scope_close(w.s)), CUF_OK, "their scope ends");
	cuf_pinned_put(rt, g.flag);
	cuf_pinned_put(rt, w.back);
}

/* ---- all streams stalled, operations that depend on nothing ---- */

static atomic_int ran;

static void count_ran(void *arg)
{
	(void)arg;
	atomic_fetch_add(&ran, 1);
}

static int put_counter(struct CUstream_st *stream, void *arg)
{
	(void)arg;
	return put_function(stream, count_ran, NULL);
}

static void check_all_stalled(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *mem = cuf_alloc(s, DEEP), *spare = cuf_alloc(s, 64), *f, *freed;
	char *at = cuf_address(mem);
	uint64_t all;
	int busy = 0;

	if (!on_host) {
		skip(8, "only the host device stops all streams");
		ends(cuf_scope_close(s));
		return;
	}
	is_int(ends(spare), CUF_OK, "memory");
	cuf_host_gate(0, 1);
	all = cuf_now_ns();
	for (int i = 0; i < DEEP; i++)
		cuf_release(cuf_fill(s, at + i, i, 1, .after = CUF_AFTER(mem)));
	for (int i = 0; i < 100; i++)
		cuf_release(cuf_enqueue(s, put_counter, NULL));
	freed = cuf_free(s, cuf_address(spare));
	all = cuf_now_ns() - all;
	ok(all < 2000000000u, "%d fills and callbacks on streams that all stand still return",
	   DEEP);
	is_int(cuf_poll(freed), CUF_PENDING, "a free too, which is never busy");
	for (int i = 0; i < 40; i++) {
		f = cuf_alloc(s, 100);
		busy += cuf_poll(f) == CUF_ERR_BUSY && !cuf_address(f);
		cuf_ignore(f);
	}
	is_int(busy, 40, "an alloc is busy, and says so, where no stream has room");
	cuf_host_gate(0, 0);
	is_int(ends(freed), CUF_OK, "the streams go on");
	f = cuf_scope_close(s);
	is_int(ends(f), CUF_OK, "everything ends");
	is_int(atomic_load(&ran), 100, "each callback's work has run");
	s = cuf_scope_open(root);
	f = cuf_alloc(s, 100);
	is_int(ends(f), CUF_OK, "and memory can be had again");
	ends(cuf_scope_close(s));
}

/* ---- a long chain that nothing holds up ---- */

static void check_long(void)
{
	enum { LONG = 10000 };
	struct work w = prepare();
	cuf_future *f = w.ready;

	for (int i = 0; i < LONG; i++)
		f = step(w.s, w.at, w.ones, i, CUF_OPTIONS(.take = CUF_LIST(f)));
	ok(result_is(&w, f, LONG), "a chain of %d, in order", LONG);
	is_int(ends(cuf_scope_close(w.s)), CUF_OK, "its scope ends");
	cuf_pinned_put(rt, w.back);
}

/* ---- cancel in a backlog ---- */

static void check_cancel(void)
{
	enum { CHAIN = 3000, AT = 2500 };
	static cuf_future *f[CHAIN];
	struct work w = prepare();
	struct gate g = gate_make();
	cuf_future *gate = GATE_LAUNCH(w.s, g, .label = "gate");
	int cancelled = 0, early = 0;
	bool all = true;

	for (int i = 0; i < CHAIN; i++)
		f[i] = step(w.s, w.at, w.ones, i,
			    CUF_OPTIONS(.after = CUF_AFTER(i ? f[i - 1] : gate)));
	is_int(cuf_cancel(f[AT]), CUF_OK, "one in the middle of a backlog is cancelled");
	is_int(cuf_poll(f[AT]), CUF_ERR_CANCELLED, "at once");
	gate_open(g);
	ok(result_is(&w, f[AT - 1], AT), "those before it run");
	for (int i = AT; i < CHAIN; i++)
		cancelled += ends(f[i]) == CUF_ERR_CANCELLED;
	is_int(cancelled, CHAIN - AT, "those behind it inherit");
	for (int i = 0; i < AT; i++)
		all &= cuf_poll(f[i]) == CUF_OK;
	ok(all, "the others are well");
	early = result_is(&w, w.ready, AT);
	ok(early, "and nothing more has run");
	is_int(ends(cuf_scope_close(w.s)), CUF_ERR_CANCELLED, "the scope says so");
	cuf_pinned_put(rt, g.flag);
	cuf_pinned_put(rt, w.back);
}

static void check_scope_cancel(void)
{
	struct work w = prepare();
	struct gate g = gate_make();
	cuf_scope *t = cuf_scope_open(w.s);
	cuf_future *f = GATE_LAUNCH(t, g, .label = "gate"), *gate = cuf_retain(f), *closed;

	for (int i = 0; i < DEEP; i++)
		f = step(t, w.at, w.ones, i, CUF_OPTIONS(.take = CUF_LIST(f)));
	cuf_scope_cancel(t);
	is_int(cuf_poll(f), CUF_ERR_CANCELLED, "the scope of a backlog is cancelled");
	closed = cuf_scope_close(t);
	sleep_ms(10);
	is_int(cuf_poll(closed), CUF_PENDING, "it ends when the device has let go");
	gate_open(g);
	is_int(ends(closed), CUF_ERR_CANCELLED, "and says how");
	is_int(ends(gate), CUF_OK, "what was on the device ran");
	cuf_release(gate);
	is_int(ends(cuf_scope_close(w.s)), CUF_ERR_CANCELLED, "the outer scope ends");
	cuf_pinned_put(rt, g.flag);
	cuf_pinned_put(rt, w.back);
}

/* ---- several threads, each with a stalled chain of its own ---- */

enum { THREADS = 4 };

static struct gate gates[THREADS];
static struct work works[THREADS]; /* made before any gate closes: that waits */
static atomic_int submitted;

static void *stalled_chain(void *arg)
{
	int k = (int)(intptr_t)arg;
	struct work w = works[k];
	cuf_future *f = GATE_LAUNCH(w.s, gates[k], .label = "gate"), *side = NULL;
	bool right;

	for (int i = 0; i < 2000; i++) {
		f = step(w.s, w.at, w.ones, i,
			 CUF_OPTIONS(.take = CUF_LIST(f), .after = CUF_AFTER(side)));
		/* now and then a reader, before the next step overwrites what it reads */
		if (i % 100 == 50)
			side = cuf_copy(w.s, w.back, w.at, 4, .after = CUF_AFTER(f));
	}
	atomic_fetch_add(&submitted, 1);
	right = result_is(&w, f, 2000);
	right &= ends(side) == CUF_OK;
	right &= ends(cuf_scope_close(w.s)) == CUF_OK;
	cuf_pinned_put(rt, w.back);
	return right ? arg : (void *)-1;
}

static void check_threads(void)
{
	pthread_t t[THREADS];
	bool right = true;
	void *got;

	for (int i = 0; i < THREADS; i++)
		gates[i] = gate_make(), works[i] = prepare();
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&t[i], NULL, stalled_chain, (void *)(intptr_t)i))
			abort();
	ok(AWAIT(atomic_load(&submitted) == THREADS, 20000),
	   "%d threads submit 2,000 each behind gates of their own", THREADS);
	/* all: chains share streams, so one may come behind another's gate */
	for (int i = THREADS; i-- > 0;)
		gate_open(gates[i]);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(t[i], &got);
		right &= got == (void *)(intptr_t)i;
		cuf_pinned_put(rt, gates[i].flag);
	}
	ok(right, "and each comes out right");
}

int main(void)
{
	const cuf_kernel *kernels[] = { &empty_kernel, &spin_until_kernel, &mix };

	RIG_START(.devices = 1);
	plan(2 * 7 + 8 + 2 + 7 + 5 + 2 + 2 + 1 + 1);
	cuf_kernel_prepare(rt, kernels, 3);
	check_stalled(true);
	check_stalled(false);
	check_all_stalled();
	check_long();
	check_cancel();
	check_scope_cancel();
	check_threads();
	RIG_START(.devices = 1, .lanes = 1);
	cuf_kernel_prepare(rt, kernels, 3);
	check_long();
	is_int(atomic_load(&unobserved), 0, "no error went unobserved");
	return rig_end();
}
