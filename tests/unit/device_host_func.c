/* SPDX-License-Identifier: MIT */
/*
 * The host device's host functions: one thread (F3), no calls from there (F4), and the modes
 * (F2).
 */
#include "tap.h"
#include "unit/device_host.h"

struct meeting {
	atomic_int n, inside, most;
	pthread_t thread;
	bool several;
};

static void meet_fn(void *arg)
{
	struct meeting *m = arg;
	int inside = atomic_fetch_add(&m->inside, 1) + 1;

	if (inside > atomic_load(&m->most))
		atomic_store(&m->most, inside);
	if (atomic_fetch_add(&m->n, 1) == 0)
		m->thread = pthread_self();
	else if (!pthread_equal(m->thread, pthread_self()))
		m->several = true;
	atomic_fetch_sub(&m->inside, 1);
}

static void test_one_thread(void)
{
	struct CUstream_st *s[8];
	struct meeting m = { .n = 0 };
	int i, failed = 0;

	for (i = 0; i < 8; i++)
		s[i] = new_stream(i % 2);
	for (i = 0; i < 800; i++)
		failed += ops->host_func(s[i % 8], meet_fn, &m) != 0;
	for (i = 0; i < 8; i++)
		failed += drain(s[i]) != 0;
	is_int(failed, 0, "800 host functions on 8 streams of 2 devices");
	is_int(atomic_load(&m.n), 800, "each is called once");
	ok(!m.several && atomic_load(&m.most) == 1, "all on one thread, one at a time");
	for (i = 0; i < 8; i++)
		ops->stream_destroy(s[i]);
}

static void hold_func(void *arg)
{
	hold_fn(&(struct hold *){ arg });
}

static void test_blocks_stream(void)
{
	struct CUstream_st *a = new_stream(0), *b = new_stream(0);
	struct CUevent_st *e = new_event(0, false);
	atomic_int n = 0, funcs = 0;
	struct hold h = { .entered = false };

	ops->host_func(a, hold_func, &h);
	put_count(a, &n);
	ops->event_record(e, a);
	await_flag(&h.entered);
	ops->host_func(b, bump_fn, &funcs);
	sleep_ms(5);
	is_int(atomic_load(&n), 0, "a stream waits for its host function");
	is_int(ops->event_query(e), CUFI_CODE_NOT_READY, "an event behind it is pending");
	is_int(atomic_load(&funcs), 0, "functions of other streams wait for it");
	ops->stream_destroy(b); /* busy */
	b = new_stream(0);
	put_count(b, &n);
	is_int(drain(b), 0, "work of other streams does not");
	atomic_store(&h.let_go, true);
	is_int(drain(a), 0, "the stream goes on when it has returned");
	while (atomic_load(&funcs) == 0)
		sleep_ms(1);
	is_int(atomic_load(&n), 2, "all ran");
	ops->stream_destroy(a);
	ops->stream_destroy(b);
	ops->event_destroy(e);
}

struct caller {
	struct CUstream_st *s;
	struct CUevent_st *e;
	void *mem, *pinned;
	int permitted;
	atomic_bool done;
};

static void call_fn(void *arg)
{
	struct caller *c = arg;
	struct cufi_device_info info;
	struct cufi_device_guard g;
	enum cufi_memory kind;
	struct CUstream_st *s;
	struct CUevent_st *e;
	const int no = CUFI_CODE_NOT_PERMITTED;
	size_t bytes[1];
	int n, device;
	uint64_t ns;
	void *p;

	c->permitted += ops->open(1, &n) != no;
	c->permitted += ops->device_open(0, &info) != no;
	c->permitted += ops->enter(1, &g) != no;
	c->permitted += ops->stream_create(0, &s) != no;
	c->permitted += ops->stream_destroy(c->s) != no;
	c->permitted += ops->stream_query(c->s) != no;
	c->permitted += ops->stream_wait(c->s, c->e) != no;
	c->permitted += ops->host_func(c->s, call_fn, c) != no;
	c->permitted += ops->event_create(false, &e) != no;
	c->permitted += ops->event_destroy(c->e) != no;
	c->permitted += ops->event_record(c->e, c->s) != no;
	c->permitted += ops->event_query(c->e) != no;
	c->permitted += ops->event_elapsed_ns(c->e, c->e, &ns) != no;
	c->permitted += ops->copy(c->mem, c->pinned, 16, c->s) != no;
	c->permitted += ops->fill(c->mem, 0, 16, c->s) != no;
	c->permitted += ops->kernel_load(NULL, &p, bytes, 1, &n) != no;
	c->permitted += ops->launch(NULL, NULL, NULL, c->s) != no;
	c->permitted += ops->malloc_async(16, c->s, &p) != no;
	c->permitted += ops->free_async(c->mem, c->s) != no;
	c->permitted += ops->pinned_alloc(16, &p) != no;
	c->permitted += ops->pinned_free(c->pinned) != no;
	c->permitted += ops->memory_of(c->mem, &kind, &device) != no;
	c->permitted += ops->peek_error() != no;
	c->permitted += cuf_host_enqueue(c->s, call_fn, NULL, 0) != no;
	atomic_store(&c->done, true);
}

static void test_no_calls(void)
{
	struct caller c = { .s = new_stream(0), .e = new_event(0, false) };

	ops->malloc_async(64, c.s, &c.mem);
	ops->pinned_alloc(64, &c.pinned);
	is_int((int)cuf_host_calls_in_func(), 0, "no call from a host function so far");
	ops->host_func(c.s, call_fn, &c);
	await_flag(&c.done);
	drain(c.s);
	is_int(c.permitted, 0, "none of 24 calls is permitted there");
	is_int((int)cuf_host_calls_in_func(), 24, "each is counted");
	is_int(ops->event_query(c.e), 0, "nothing was destroyed");
	is_int(ops->free_async(c.mem, c.s), 0, "nor freed");
	is_int(ops->pinned_free(c.pinned), 0, "nor that");
	drain(c.s);
	ops->event_destroy(c.e);
	ops->stream_destroy(c.s);
}

static void test_modes(void)
{
	struct CUstream_st *s = new_stream(0);
	atomic_int n = 0;
	uint64_t start_ns;

	cuf_host_func_mode(CUF_HOST_FUNC_DROP, 0);
	ops->host_func(s, bump_fn, &n);
	is_int(drain(s), 0, "drop: the stream goes on");
	is_int(atomic_load(&n), 0, "without the function");
	cuf_host_func_mode(CUF_HOST_FUNC_DELAY, 20000000);
	start_ns = cufi_now_ns();
	ops->host_func(s, bump_fn, &n);
	is_int(drain(s), 0, "delay: the stream waits");
	ok(cufi_now_ns() - start_ns >= 20000000, "as long as said");
	is_int(atomic_load(&n), 1, "and the function is called");
	cuf_host_func_mode(17, 5);
	cuf_host_func_mode(CUF_HOST_FUNC_NORMAL, 1000000000);
	start_ns = cufi_now_ns();
	ops->host_func(s, bump_fn, &n);
	drain(s);
	ok(cufi_now_ns() - start_ns < 900000000, "normal: not delayed");
	is_int(atomic_load(&n), 2, "called");
	ops->stream_destroy(s);
}

/* A function on the faulting stream before the fault, one behind it, one on another stream. */
static void test_after_fault(int mode, int want)
{
	struct CUstream_st *s, *other;
	atomic_int before = 0, after = 0;
	int i;

	open_devices(1);
	cuf_host_func_mode(mode, 0);
	s = new_stream(0);
	other = new_stream(0);
	cuf_host_gate(0, 1);
	cuf_host_fault_at(0, 1, CUFI_CODE_LAUNCH_FAILURE);
	cuf_host_stall(other, 1);
	ops->host_func(s, bump_fn, &before);
	put_count(s, &before);
	ops->host_func(s, bump_fn, &after);
	ops->host_func(other, bump_fn, &after);
	cuf_host_gate(0, 0);
	is_int(drain(s), CUFI_CODE_LAUNCH_FAILURE, "mode %d: a fault between host functions", mode);
	is_int(atomic_load(&before), 1, "the first was called");
	is_int(ops->host_func(s, bump_fn, &after), CUFI_CODE_LAUNCH_FAILURE,
	       "none is taken once the fault is seen");
	for (i = 0; i < 2000 && atomic_load(&after) < want; i++)
		sleep_ms(1);
	sleep_ms(20);
	is_int(atomic_load(&after), want, "those enqueued before: %d of 2 called", want);
	close_devices(1);
}

/* A function whose turn has come but for the one that is running. */
static void test_fault_before_turn(void)
{
	struct CUstream_st *s[3];
	struct hold h = { .entered = false };
	atomic_int n = 0;
	int i;

	open_devices(2);
	for (i = 0; i < 3; i++)
		s[i] = new_stream(i == 0);
	ops->host_func(s[0], hold_func, &h);
	await_flag(&h.entered);
	ops->host_func(s[1], bump_fn, &n);
	sleep_ms(5); /* let it arrive */
	cuf_host_fault_at(0, 1, CUFI_CODE_LAUNCH_FAILURE);
	put_count(s[2], &n);
	is_int(drain(s[2]), CUFI_CODE_LAUNCH_FAILURE, "a fault while a function waits its turn");
	atomic_store(&h.let_go, true);
	is_int(drain(s[0]), 0, "the one that runs returns");
	sleep_ms(10);
	is_int(atomic_load(&n), 0, "the other is not called");
	close_devices(2);
}

/* With a seed the order between streams is not that of arrival, and the same each time. */
struct order {
	struct order *all;
	int which, *at;
	atomic_int *n;
};

static void order_fn(void *arg)
{
	struct order *o = arg;

	o->at[atomic_fetch_add(o->n, 1)] = o->which;
}

static void run_order(uint64_t seed, int at[6])
{
	struct CUstream_st *s[7];
	struct order o[6];
	struct hold h = { .entered = false };
	atomic_int n = 0, reached = 0;
	int i;

	open_devices(1);
	for (i = 0; i < 7; i++)
		s[i] = new_stream(0);
	ops->host_func(s[6], hold_func, &h);
	await_flag(&h.entered);
	for (i = 0; i < 6; i++) {
		o[i] = (struct order){ .which = i, .at = at, .n = &n };
		put_count(s[i], &reached);
		ops->host_func(s[i], order_fn, &o[i]);
		while (atomic_load(&reached) != i + 1)
			sleep_ms(1);
		sleep_ms(10); /* let the function arrive */
	}
	cuf_host_seed(seed);
	atomic_store(&h.let_go, true);
	for (i = 0; i < 7; i++)
		drain(s[i]);
	close_devices(1);
}

static void test_seed(void)
{
	int plain[6], seeded[6], again[6], seed, differs = 0, repeats = 0, i;
	bool in_order = true;

	run_order(0, plain);
	for (i = 0; i < 6; i++)
		in_order = in_order && plain[i] == i;
	ok(in_order, "no seed: in order of arrival");
	for (seed = 1; seed <= 3; seed++) {
		run_order((uint64_t)seed, seeded);
		run_order((uint64_t)seed, again);
		differs += memcmp(seeded, plain, sizeof plain) != 0;
		repeats += memcmp(seeded, again, sizeof again) == 0;
	}
	ok(differs > 0, "a seed changes the order");
	is_int(repeats, 3, "and repeats it");
}

int main(void)
{
	plan(36);
	open_devices(2);
	test_one_thread();
	test_blocks_stream();
	test_no_calls();
	test_modes();
	close_devices(2);
	test_after_fault(CUF_HOST_FUNC_NORMAL, 0);
	test_after_fault(CUF_HOST_FUNC_AFTER_FAULT, 2);
	test_fault_before_turn();
	test_seed();
	return done();
}
