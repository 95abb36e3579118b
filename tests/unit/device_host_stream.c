/* SPDX-License-Identifier: MIT */
/*
 * The host device's streams: order, queries, waits across streams and devices, the bounded
 * queue.
 */
#include "tap.h"
#include "unit/device_host.h"

#define LONG_QUEUE 20000 /* records that did not block on an H200 */

/* ---- order ---- */

struct trace {
	atomic_int n;
	int at[4096];
};
struct step {
	struct trace *t;
	int what;
};

static void trace_fn(void *arg)
{
	struct step *step = arg;

	step->t->at[atomic_fetch_add(&step->t->n, 1)] = step->what;
}

static int put_trace(struct CUstream_st *s, struct trace *t, int what)
{
	struct step step = { t, what };

	return cuf_host_enqueue(s, trace_fn, &step, sizeof step);
}

static void test_order(void)
{
	static struct trace t;
	struct CUstream_st *s = new_stream(0);
	bool in_order = true;
	int i, failed = 0;

	is_int(ops->stream_query(s), 0, "an unused stream is not busy");
	for (i = 0; i < 4096; i++)
		failed += put_trace(s, &t, i) != 0;
	is_int(failed, 0, "4096 functions go on a stream");
	is_int(drain(s), 0, "and it drains");
	for (i = 0; i < 4096; i++)
		in_order = in_order && t.at[i] == i;
	ok(in_order, "they ran in order");
	is_int(ops->stream_destroy(s), 0, "stream destroyed");
}

static void test_concurrency(void)
{
	struct CUstream_st *s[24];
	struct hold h[24];
	int i;

	for (i = 0; i < 24; i++) {
		s[i] = new_stream(0);
		put_hold(s[i], &h[i]);
	}
	for (i = 0; i < 24; i++)
		await_flag(&h[i].entered);
	ok(true, "24 streams run 24 endless kernels at once");
	is_int(ops->stream_query(s[0]), CUFI_CODE_NOT_READY, "a running stream is busy");
	for (i = 23; i >= 0; i--)
		atomic_store(&h[i].let_go, true);
	for (i = 0; i < 24; i++) {
		drain(s[i]);
		ops->stream_destroy(s[i]);
	}
}

/* ---- waits ---- */

static void test_wait(int from, int to)
{
	struct CUstream_st *a = new_stream(from), *b = new_stream(to);
	struct CUevent_st *e = new_event(from, false);
	struct hold h;
	static struct trace t;

	atomic_store(&t.n, 0);
	put_hold(a, &h);
	put_trace(a, &t, 1);
	is_int(ops->event_record(e, a), 0, "device %d to %d: recorded", from, to);
	is_int(ops->stream_wait(b, e), 0, "waits");
	put_trace(b, &t, 2);
	await_flag(&h.entered);
	sleep_ms(5);
	is_int(atomic_load(&t.n), 0, "neither has run");
	is_int(ops->stream_query(b), CUFI_CODE_NOT_READY, "the waiting stream is busy");
	atomic_store(&h.let_go, true);
	is_int(drain(b), 0, "it goes on");
	ok(t.at[0] == 1 && t.at[1] == 2, "in the order of the event");
	ops->event_destroy(e);
	ops->stream_destroy(a);
	ops->stream_destroy(b);
}

static void test_many_waiters(void)
{
	enum { N = 40, ROUNDS = 25 };
	struct CUstream_st *a = new_stream(0), *b[N];
	struct CUevent_st *e = new_event(0, false);
	atomic_int n = 0;
	struct hold h;
	int i, r, wrong = 0;

	for (i = 0; i < N; i++)
		b[i] = new_stream(i % 2);
	put_hold(a, &h);
	for (r = 0; r < ROUNDS; r++) {
		put_count(a, &n);
		ops->event_record(e, a);
		for (i = 0; i < N; i++) {
			wrong += ops->stream_wait(b[(i * 7) % N], e) != 0;
			wrong += put_count(b[(i * 7) % N], &n) != 0;
		}
	}
	atomic_store(&h.let_go, true);
	for (i = 0; i < N; i++)
		wrong += drain(b[i]) != 0;
	wrong += drain(a) != 0;
	is_int(wrong, 0, "40 streams wait for 25 places of one");
	is_int(atomic_load(&n), ROUNDS * (N + 1), "all of it ran");
	for (i = 0; i < N; i++)
		ops->stream_destroy(b[i]);
	ops->stream_destroy(a);
	ops->event_destroy(e);
}

/* Who waits for an earlier place than those before him is told when it is reached. */
static void test_wait_order(void)
{
	struct CUstream_st *a = new_stream(0), *late = new_stream(0), *early = new_stream(0);
	struct CUevent_st *e1 = new_event(0, false), *e2 = new_event(0, false);
	struct hold h1, h2;

	put_hold(a, &h1);
	ops->event_record(e1, a);
	put_hold(a, &h2);
	ops->event_record(e2, a);
	ops->stream_wait(late, e2);
	sleep_ms(5); /* let it get there */
	ops->stream_wait(early, e1);
	sleep_ms(5);
	atomic_store(&h1.let_go, true);
	is_int(drain(early), 0, "an early place is told of, though a later one is waited for");
	is_int(ops->stream_query(late), CUFI_CODE_NOT_READY, "which is not reached");
	atomic_store(&h2.let_go, true);
	is_int(drain(late), 0, "until it is");
	drain(a);
	ops->event_destroy(e1);
	ops->event_destroy(e2);
	ops->stream_destroy(a);
	ops->stream_destroy(late);
	ops->stream_destroy(early);
}

static void test_destroy_pending(void)
{
	struct CUstream_st *s = new_stream(0), *again;
	atomic_int n = 0;
	struct hold h;

	put_hold(s, &h);
	put_count(s, &n);
	is_int(ops->stream_destroy(s), 0, "a busy stream is destroyed");
	is_int(ops->stream_query(s), CUFI_CODE_INVALID_HANDLE, "its handle is no longer one");
	is_int(ops->stream_destroy(s), CUFI_CODE_INVALID_HANDLE, "nor can it be destroyed again");
	is_int(cuf_host_enqueue(s, count_fn, NULL, 0), CUFI_CODE_INVALID_HANDLE, "or enqueued on");
	cuf_host_stall(s, 1);
	again = new_stream(0);
	ok(again != s, "a new stream is another one while it is busy");
	atomic_store(&h.let_go, true);
	while (atomic_load(&n) == 0)
		sleep_ms(1);
	ok(true, "what was on it runs");
	ops->stream_destroy(again);
}

/* ---- the bounded queue ---- */

struct filler {
	struct CUstream_st *s;
	atomic_int *n;
	int count;
	atomic_int put;
	pthread_t id;
};

static void *fill(void *arg)
{
	struct filler *f = arg;
	int i;

	for (i = 0; i < f->count; i++) {
		put_count(f->s, f->n);
		atomic_fetch_add(&f->put, 1);
	}
	return NULL;
}

static void test_queue_depth(void)
{
	struct CUstream_st *s = new_stream(0), *same, *other[7];
	struct CUevent_st *e = new_event(0, false);
	struct cufi_device_guard g;
	atomic_int n = 0;
	struct filler f = { .s = s, .n = &n, .count = CUFI_HOST_DEPTH + 1 };
	void *mem = NULL, *pinned = NULL;
	int i, failed = 0;

	for (i = 0; i < 7; i++)
		other[i] = new_stream(0);
	same = new_stream(0); /* the eighth after it shares its hardware queue */
	cuf_host_stall(s, 1);
	pthread_create(&f.id, NULL, fill, &f);
	while (atomic_load(&f.put) < CUFI_HOST_DEPTH)
		sleep_ms(1);
	sleep_ms(20);
	is_int(atomic_load(&f.put), CUFI_HOST_DEPTH, "1,021 launches go in, the next one blocks");
	for (i = 0; i < LONG_QUEUE; i++)
		failed += ops->event_record(e, s) != 0;
	is_int(failed, 0, "records do not block behind it");
	is_int(ops->stream_wait(other[0], e), 0, "nor does a wait");
	is_int(ops->host_func(s, bump_fn, &n), 0, "nor a host function");
	is_int(ops->malloc_async(4096, s, &mem), 0, "nor an allocation");
	for (i = 1; i < 7; i++)
		failed += put_count(other[i], &n) != 0 || drain(other[i]) != 0;
	is_int(failed, 0, "streams of the other hardware queues go on");
	/* One operation of the same queue ends: there is room for one. */
	is_int(ops->enter(0, &g), 0, "entered");
	is_int(ops->pinned_alloc(64, &pinned), 0, "pinned memory");
	ops->leave(&g);
	cuf_host_stall(s, 0);
	pthread_join(f.id, NULL);
	drain(s);
	is_int(atomic_load(&n), CUFI_HOST_DEPTH + 1 + 6 + 1, "all of it ran");
	/* The same limit from another stream of the queue. */
	cuf_host_stall(s, 1);
	atomic_store(&n, 0);
	for (i = 0; i < CUFI_HOST_DEPTH; i++)
		put_count(s, &n);
	f = (struct filler){ .s = same, .n = &n, .count = 1 };
	pthread_create(&f.id, NULL, fill, &f);
	sleep_ms(20);
	is_int(atomic_load(&f.put), 0, "a stream that shares the queue blocks too");
	cuf_host_stall(s, 0);
	pthread_join(f.id, NULL);
	drain(s);
	drain(same);
	is_int(atomic_load(&n), CUFI_HOST_DEPTH + 1, "until there is room");
	ops->free_async(mem, s);
	ops->pinned_free(pinned);
	drain(other[0]);
	for (i = 0; i < 7; i++)
		ops->stream_destroy(other[i]);
	ops->stream_destroy(s);
	ops->stream_destroy(same);
	ops->event_destroy(e);
}

/* ---- gates ---- */

static void test_gates(void)
{
	struct CUstream_st *a = new_stream(0), *b = new_stream(0), *c = new_stream(1);
	atomic_int n = 0, on_c = 0;
	uint64_t start_ns;

	cuf_host_gate(0, 1);
	cuf_host_gate(0, 1);
	put_count(a, &n);
	put_count(b, &n);
	put_count(c, &on_c);
	is_int(drain(c), 0, "another device runs behind a closed gate");
	sleep_ms(5);
	is_int(atomic_load(&n), 0, "nothing of the gated one does");
	cuf_host_gate(0, 0);
	is_int(drain(a) | drain(b), 0, "one opening undoes two closings");
	is_int(atomic_load(&n), 2, "and all runs");
	cuf_host_stall(a, 1);
	put_count(a, &n);
	put_count(b, &n);
	is_int(drain(b), 0, "another stream runs beside a stalled one");
	is_int(ops->stream_query(a), CUFI_CODE_NOT_READY, "which is busy");
	cuf_host_gate(0, 1);
	cuf_host_stall(a, 0);
	sleep_ms(5);
	is_int(ops->stream_query(a), CUFI_CODE_NOT_READY, "and stays so behind its device's gate");
	cuf_host_gate(0, 0);
	is_int(drain(a), 0, "and drains when both are open");
	cuf_host_stall(NULL, 1);
	cuf_host_stall((struct CUstream_st *)(void *)&n, 1);
	ok(true, "stalling what is no stream does nothing");
	cuf_host_slow(10000000);
	start_ns = cufi_now_ns();
	put_count(a, &n);
	put_count(a, &n);
	drain(a);
	ok(cufi_now_ns() - start_ns >= 20000000, "slow operations take their time");
	cuf_host_slow(0);
	ops->stream_destroy(a);
	ops->stream_destroy(b);
	ops->stream_destroy(c);
}

static void test_handles(void)
{
	struct CUevent_st *e = new_event(0, false);

	is_int(ops->stream_query(NULL), CUFI_CODE_INVALID_HANDLE, "no stream: query");
	is_int(ops->stream_wait(NULL, e), CUFI_CODE_INVALID_HANDLE, "no stream: wait");
	is_int(ops->event_record(e, NULL), CUFI_CODE_INVALID_HANDLE, "no stream: record");
	is_int(ops->host_func(NULL, count_fn, NULL), CUFI_CODE_INVALID_HANDLE, "no stream: func");
	is_int(ops->stream_destroy(NULL), CUFI_CODE_INVALID_HANDLE, "no stream: destroy");
	is_int(cuf_host_enqueue(NULL, count_fn, NULL, 0), CUFI_CODE_INVALID_HANDLE,
	       "no stream: enqueue");
	is_int(cuf_host_enqueue((struct CUstream_st *)(void *)&e, count_fn, NULL, 0),
	       CUFI_CODE_INVALID_HANDLE, "none of ours: enqueue");
	ops->event_destroy(e);
}

int main(void)
{
	plan(64);
	open_devices(2);
	test_order();
	test_concurrency();
	test_wait(0, 0);
	test_wait(0, 1);
	test_wait(1, 0);
	test_many_waiters();
	test_wait_order();
	test_destroy_pending();
	test_queue_depth();
	test_gates();
	test_handles();
	close_devices(2);
	return done();
}
