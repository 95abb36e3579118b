/* SPDX-License-Identifier: MIT */
/*
 * Waiting: until a deadline, by many, released meanwhile, interrupted by signals. C39: the fulfiller
 * touches nothing once the waiter may free. C40: no wake is lost between the look and the sleep.
 */
#include "contract.h"

static void check_deadline(void)
{
	cuf_future *f;
	cuf_promise *p = cuf_promise_create(root, &f);
	uint64_t before = cuf_now_ns(), now;

	is_int(cuf_wait_until(f, 0), CUF_PENDING, "a deadline that has passed makes it a poll");
	is_int(cuf_wait_until(f, before + CUF_MS(20)), CUF_PENDING, "a deadline passes");
	now = cuf_now_ns();
	ok(now - before >= CUF_MS(20), "not before its time");
	ok(now - before < CUF_MS(5000), "nor long after");
	cuf_promise_fulfil(p, &before, NULL);
	is_int(cuf_wait_until(f, 0), CUF_OK, "C46: later it can be waited for again");
	ok(cuf_wait(f) == CUF_OK && cuf_value(f) == &before, "and gives its value");
	cuf_release(f);
	is_int(cuf_wait(cuf_ok()), CUF_OK, "the immortal success");
	is_int(cuf_wait(NULL), CUF_ERR_INVALID, "NULL");
}

static void *wait_for(void *f)
{
	return (void *)(intptr_t)(cuf_wait_until(f, cuf_now_ns() + CUF_MS(LONG_MS)) ==
				  CUF_ERR_USER);
}

static void *wait_briefly(void *f)
{
	int pending = 0;

	while (cuf_wait_until(f, cuf_now_ns() + 50000) == CUF_PENDING)
		pending++;
	return (void *)(intptr_t)(pending > 0);
}

static void check_many(void)
{
	pthread_t thread[12];
	cuf_future *f;
	cuf_promise *p = cuf_promise_create(root, &f);
	int woken = 0;

	for (int i = 0; i < 12; i++) {
		if (pthread_create(&thread[i], NULL, i % 3 ? wait_for : wait_briefly, f))
			abort();
	}
	nap_ms(20);
	cuf_promise_fail(p, 1, "one");
	for (int i = 0; i < 12; i++) {
		void *right;

		pthread_join(thread[i], &right);
		woken += (intptr_t)right;
	}
	is_int(woken, 12, "all who wait are woken");
	cuf_release(f);
}

static void *release_soon(void *f)
{
	nap_ms(5);
	cuf_release(f);
	return NULL;
}

/* The future is released by everybody while it is waited for. */
static void check_released(void)
{
	cuf_future *f;
	cuf_promise *p = cuf_promise_create(root, &f);
	pthread_t thread;

	if (pthread_create(&thread, NULL, release_soon, f))
		abort();
	is_int(cuf_wait_until(f, cuf_now_ns() + CUF_MS(20)), CUF_PENDING,
	       "a wait survives the release of its future by another thread");
	pthread_join(thread, NULL);
	cuf_promise_fulfil(p, NULL, NULL);
}

/* ---- signals ---- */

static void on_signal(int n)
{
	(void)n;
}

static _Atomic int stop;

static void *send_signals(void *arg)
{
	pthread_t *to = arg;

	while (!atomic_load(&stop)) {
		pthread_kill(*to, SIGUSR1);
		nanosleep(&(struct timespec){ 0, 100000 }, NULL);
	}
	return NULL;
}

static void check_signals(void)
{
	struct sigaction a = { .sa_handler = on_signal };
	pthread_t me = pthread_self(), sender;
	uint64_t before = cuf_now_ns();
	cuf_loop *loop;
	cuf_future *f;
	cuf_promise *p = cuf_promise_create(root, &f);

	sigaction(SIGUSR1, &a, NULL);
	cuf_loop_create(rt, &loop);
	if (pthread_create(&sender, NULL, send_signals, &me))
		abort();
	is_int(cuf_wait_until(f, before + CUF_MS(50)), CUF_PENDING, "signals do not end a wait");
	ok(cuf_now_ns() - before >= CUF_MS(50), "before its time");
	is_int(cuf_loop_run_until(loop, f, cuf_now_ns() + CUF_MS(50)), CUF_PENDING,
	       "nor cuf_loop_run_until()");
	ok(cuf_now_ns() - before >= CUF_MS(100), "before its time");
	atomic_store(&stop, 1);
	pthread_join(sender, NULL);
	cuf_promise_fulfil(p, NULL, NULL);
	cuf_release(f);
	cuf_loop_close(loop);
}

/* ---- C39 and C40 by stress ---- */

static _Atomic(cuf_promise *) handed;

static unsigned delay(unsigned *seed)
{
	*seed = *seed * 1103515245u + 12345u;
	return *seed >> 16;
}

/* Some rounds at once, some after a moment, some when the other must be asleep by then. */
static void dawdle(unsigned r)
{
	if (r % 16 == 0)
		nanosleep(&(struct timespec){ 0, 1 + r % 50000 }, NULL);
	else
		for (volatile unsigned i = 0; i < r % 200; i++)
			;
}

static void *fulfil_handed(void *arg)
{
	unsigned seed = 1;

	(void)arg;
	for (;;) {
		cuf_promise *p = atomic_exchange(&handed, NULL);

		if (p == (cuf_promise *)&handed)
			return NULL;
		if (!p)
			continue;
		dawdle(delay(&seed));
		cuf_promise_fulfil(p, NULL, NULL);
	}
}

static void check_one_in_flight(const char *mode_name, int mode)
{
	cuf_runtime_options o = { .size = sizeof o, .mode = mode };
	cuf_runtime *other;
	cuf_scope *s;
	pthread_t thread;
	unsigned seed = 7;
	long rounds = scaled(40000), lost = 0;

	if (cuf_runtime_create(&other, &o))
		abort();
	s = cuf_scope_open(cuf_runtime_scope(other));
	if (pthread_create(&thread, NULL, fulfil_handed, NULL))
		abort();
	for (long i = 0; i < rounds && !lost; i++) {
		cuf_future *f;
		cuf_promise *p = cuf_promise_create(s, &f);
		cuf_status st;

		atomic_store(&handed, p);
		dawdle(delay(&seed));
		/* C39: some give up early, and free at once */
		st = cuf_wait_until(f, i % 8 == 0 ? cuf_now_ns() + 10000
						  : cuf_now_ns() + CUF_MS(LONG_MS));
		cuf_release(f);
		lost += st != CUF_OK && !(st == CUF_PENDING && i % 8 == 0);
		while (atomic_load(&handed))
			sched_yield();
	}
	atomic_store(&handed, (cuf_promise *)&handed);
	pthread_join(thread, NULL);
	atomic_store(&handed, NULL);
	is_int(lost, 0, "%s: %ld rounds of one promise and one waiter lose no wake", mode_name,
	       rounds);
	cuf_scope_end(s);
	cuf_runtime_destroy(other);
}

static _Atomic long ran;

static cuf_future *count(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	atomic_fetch_add(&ran, 1);
	return NULL;
}

/* The completer and the workers go to sleep while one thing is handed to them. */
static void check_idle_threads(void)
{
	cuf_scope *s = cuf_scope_open(root);
	unsigned seed = 3;
	long rounds = scaled(60000), late = 0;
	static char a[64], b[64];

	for (long i = 0; i < rounds && !late; i++) {
		cuf_future *f = i % 3 == 0   ? cuf_then(s, cuf_ok(), count, NULL)
				: i % 3 == 1 ? cuf_call(s, count, NULL)
					     : cuf_copy(s, a, b, sizeof a);

		late += cuf_wait_until(f, cuf_now_ns() + CUF_MS(LONG_MS)) != CUF_OK;
		cuf_release(f);
		dawdle(delay(&seed));
	}
	is_int(late, 0, "%ld times one thing for a thread that goes idle: none is left lying",
	       rounds);
	cuf_scope_end(s);
}

/* Promise 7: with nothing outstanding no thread wakes. */
static void check_idle(void)
{
	cuf_stats before = { .size = sizeof before }, after = before;

	nap_ms(50);
	cuf_stats_of(rt, &before);
	nap_ms(200);
	cuf_stats_of(rt, &after);
	ok(before.parks == after.parks && before.wakes == after.wakes &&
		   before.queries == after.queries,
	   "an idle runtime neither parks, wakes nor asks");
}

int main(void)
{
	plan(20);
	open_runtime((cuf_runtime_options){ .workers = 2 });
	check_deadline();
	check_many();
	check_released();
	check_signals();
	check_one_in_flight("balanced", CUF_BALANCED);
	check_one_in_flight("power", CUF_POWER);
	check_one_in_flight("latency", CUF_LATENCY);
	check_idle_threads();
	check_idle();
	close_runtime("waits");
	return done();
}
