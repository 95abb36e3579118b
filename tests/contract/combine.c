/* SPDX-License-Identifier: MIT */
/*
 * all, any, winner and timeout: of none, of NULL, of the same twice; what becomes of losers; what
 * they leave behind on a promise that is never kept, and on work that goes on behind them.
 */
#include <kernels.h>

#include "contract.h"

static cuf_scope *s;

static cuf_status end(void)
{
	cuf_future *f = cuf_scope_close(s);
	cuf_status st = outcome(f);

	cuf_release(f);
	return st;
}

static void check_all(void)
{
	cuf_future *a, *b, *f, *none[2] = { NULL, NULL };
	cuf_promise *p, *q;

	s = cuf_scope_open(root);
	is_int(outcome(cuf_all_n(s, CUF_AFTER_N(NULL, 0))), CUF_OK, "all of none has succeeded");
	is_int(outcome(cuf_all_n(s, CUF_AFTER_N(none, 2))), CUF_OK, "all of NULL entries too");
	is_int(outcome(cuf_all(s, cuf_ok(), NULL, cuf_ok())), CUF_OK,
	       "NULL entries count for nothing");
	p = cuf_promise_create(s, &a);
	q = cuf_promise_create(s, &b);
	f = cuf_all(s, a, NULL, b, a);
	cuf_promise_fail(p, 1, "one");
	nap_ms(2);
	is_int(cuf_poll(f), CUF_PENDING, "all waits for every input, also after a failure");
	cuf_promise_fail(q, 2, "two");
	is_int(outcome(f), CUF_ERR_USER, "then it fails");
	is_int(info_of(f).user_code, 1, "with the error that was first in time");
	ok(info_of(f).inherited, "which is inherited");
	p = cuf_promise_create(s, &a);
	q = cuf_promise_create(s, &b);
	f = cuf_all(s, a, b);
	cuf_promise_fail(q, 2, "two");
	nap_ms(2);
	cuf_promise_fail(p, 1, "one");
	outcome(f);
	is_int(info_of(f).user_code, 2, "in time, not in the list");
	p = cuf_promise_create(s, &a);
	f = cuf_all(s, a, a, a);
	cuf_promise_fulfil(p, NULL, NULL);
	is_int(outcome(f), CUF_OK, "the same input three times");
	ok(!cuf_value(f), "an all has no value");
	is_int((long long)cuf_winner(f), (long long)SIZE_MAX, "and no winner");
	p = cuf_promise_create(s, &a);
	f = cuf_all(s, a, cuf_ok());
	is_int(cuf_cancel(f), CUF_OK, "an all can be cancelled");
	is_int(cuf_poll(a), CUF_PENDING, "its inputs are left alone");
	cuf_promise_fulfil(p, NULL, NULL);
	end();
}

static void check_any(void)
{
	static int value, second;
	cuf_future *a, *b, *f, *none[2] = { NULL, NULL };
	cuf_promise *p, *q;

	s = cuf_scope_open(root);
	f = cuf_any_n(s, CUF_AFTER_N(NULL, 0));
	is_int(outcome(f), CUF_ERR_INVALID, "any of none is invalid");
	f = cuf_any_n(s, CUF_AFTER_N(none, 2));
	is_int(outcome(f), CUF_ERR_INVALID, "any of NULL entries too");
	p = cuf_promise_create(s, &a);
	q = cuf_promise_create(s, &b);
	f = cuf_any(s, NULL, a, b);
	is_int((long long)cuf_winner(f), (long long)SIZE_MAX, "no winner before it has settled");
	cuf_promise_fail(p, 1, "one");
	nap_ms(2);
	is_int(cuf_poll(f), CUF_PENDING, "any goes on after a failure");
	cuf_promise_fulfil(q, &value, NULL);
	is_int(outcome(f), CUF_OK, "the first success is its");
	ok(cuf_value(f) == &value, "with that value");
	is_int((long long)cuf_winner(f), 2, "the winner's index counts NULL entries");
	p = cuf_promise_create(s, &a);
	q = cuf_promise_create(s, &b);
	f = cuf_any(s, a, b);
	cuf_promise_fulfil(q, &value, NULL);
	outcome(f);
	ok(cuf_promise_fulfil(p, &second, NULL), "a loser goes on, and is not cancelled");
	ok(cuf_value(f) == &value && cuf_value(a) == &second, "each keeps its value");
	p = cuf_promise_create(s, &a);
	q = cuf_promise_create(s, &b);
	f = cuf_any(s, a, b, a);
	cuf_promise_fail(q, 2, "two");
	nap_ms(2);
	cuf_promise_fail(p, 1, "one");
	is_int(outcome(f), CUF_ERR_USER, "any fails when all have");
	is_int(info_of(f).user_code, 2, "with the error that was first");
	is_int((long long)cuf_winner(f), (long long)SIZE_MAX, "then nobody has won");
	is_int((long long)cuf_winner(NULL), (long long)SIZE_MAX, "nor of NULL");
	end();
}

/* C10: the loser of an any, in the root, which forgives nothing and forgets nothing. */
static void check_losers_reported(void)
{
	cuf_future *a, *b, *f;
	cuf_promise *p = cuf_promise_create(root, &a), *q = cuf_promise_create(root, &b);
	int before = atomic_load(&unobserved);

	f = cuf_any(root, a, b);
	cuf_promise_fulfil(p, NULL, NULL);
	outcome(f);
	cuf_promise_fail(q, 1, "a loser that nobody looked at");
	cuf_release_all(a, b, f);
	ok(comes_to(&unobserved, before + 1), "a loser's error is reported when nobody looked");
	is_str(unobserved_message, "a loser that nobody looked at", "with its message");
}

static void check_timeout(void)
{
	static int value;
	cuf_future *a, *f;
	cuf_promise *p;

	s = cuf_scope_open(root);
	f = cuf_timeout(s, cuf_ready(s, &value, NULL), 0);
	ok(outcome(f) == CUF_OK && cuf_value(f) == &value, "what has settled cannot time out");
	p = cuf_promise_create(s, &a);
	f = cuf_timeout(s, a, cuf_now_ns() + CUF_MS(5));
	is_int(outcome(f), CUF_ERR_TIMED_OUT, "a deadline passes");
	ok(!info_of(f).inherited && !strcmp(info_of(f).operation, "timeout"),
	   "it is its own error");
	is_int(cuf_poll(a), CUF_PENDING, "what was waited for goes on");
	f = cuf_timeout(s, a, 0);
	is_int(outcome(f), CUF_ERR_TIMED_OUT, "a deadline that has passed");
	f = cuf_timeout(s, a, CUF_FOREVER);
	cuf_promise_fulfil(p, &value, NULL);
	ok(outcome(f) == CUF_OK && cuf_value(f) == &value, "and without end");
	p = cuf_promise_create(s, &a);
	f = cuf_timeout(s, a, cuf_now_ns() + CUF_MS(LONG_MS));
	cuf_promise_fail(p, 1, "one");
	ok(outcome(f) == CUF_ERR_USER && info_of(f).inherited, "a failure in time is inherited");
	end();
}

/* ---- what is left behind ---- */

/* Allocations of the runtime while @fn runs @n times. */
static uint64_t grown(void (*fn)(cuf_future *f), cuf_future *f, long n)
{
	cuf_stats before = { .size = sizeof before }, after = before;

	for (long i = 0; i < 2000; i++)
		fn(f);
	nap_ms(20);
	cuf_stats_of(rt, &before);
	for (long i = 0; i < n; i++)
		fn(f);
	cuf_stats_of(rt, &after);
	return after.allocations - before.allocations;
}

static void time_out_now(cuf_future *f)
{
	cuf_future *t = cuf_timeout(s, f, 0);

	cuf_wait(t);
	cuf_release(t);
}

static void time_out_later(cuf_future *f)
{
	cuf_future *t = cuf_timeout(s, f, cuf_now_ns() + CUF_MS(1000000));

	cuf_cancel(t);
	cuf_release(t);
}

static void win(cuf_future *f)
{
	cuf_release(cuf_any(s, f, cuf_ok()));
	cuf_release(cuf_any(s, cuf_ok(), f));
}

static void cancel_all(cuf_future *f)
{
	cuf_future *a = cuf_all(s, f, cuf_ok(), f);

	cuf_cancel(a);
	cuf_release(a);
}

static cuf_future *nothing(cuf_scope *scope, cuf_future *in, void *arg)
{
	(void)scope, (void)in, (void)arg;
	return NULL;
}

static void cancel_then(cuf_future *f)
{
	cuf_future *t = cuf_then(s, f, nothing, NULL);

	cuf_cancel(t);
	cuf_release(t);
}

static void cancel_copy(cuf_future *f)
{
	static int buffer[2];
	cuf_future *c = cuf_copy(s, &buffer[0], &buffer[1], sizeof(int), .after = CUF_AFTER(f));

	cuf_cancel(c);
	cuf_release(c);
}

static void check_bounded(void)
{
	struct {
		const char *name;
		void (*fn)(cuf_future *f);
		long n;
	} kinds[] = {
		{ "timeouts that passed", time_out_now, 50000 },
		{ "timeouts that were cancelled", time_out_later, 1000000 },
		{ "anys that were won", win, 500000 },
		{ "alls that were cancelled", cancel_all, 300000 },
		{ "thens that were cancelled", cancel_then, 300000 },
		{ "copies that were cancelled", cancel_copy, 300000 },
	};
	cuf_future *never, *end_of_s;
	cuf_promise *p;

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		long n = scaled(kinds[i].n);
		uint64_t more;

		s = cuf_scope_open(root);
		/* elsewhere: the scope of what waited must not wait for it */
		p = cuf_promise_create(root, &never);
		more = grown(kinds[i].fn, never, n);
		ok(more < 60, "%ld %s on one promise keep no memory", n, kinds[i].name);
		diag("%llu allocations", (unsigned long long)more);
		end_of_s = cuf_scope_close(s);
		ok(outcome(end_of_s) != CUF_PENDING, "and nothing of them is outstanding");
		cuf_ignore(end_of_s);
		cuf_release(end_of_s);
		cuf_promise_fulfil(p, NULL, NULL);
		cuf_release(never);
	}
}

/* C46: a timer that comes late finds another object in the memory, and must leave it alone. */
static void check_stale_timers(void)
{
	cuf_future *a, *f;
	long n = scaled(20000), wrong = 0;

	s = cuf_scope_open(root);
	for (long i = 0; i < n; i++) {
		cuf_promise *p = cuf_promise_create(s, &a);
		cuf_status st;

		f = cuf_timeout(s, a, cuf_now_ns() + (uint64_t)(i % 100) * 500);
		if (i & 1)
			sched_yield();
		cuf_promise_fulfil(p, NULL, NULL);
		st = outcome(f);
		wrong += st != CUF_OK && st != CUF_ERR_TIMED_OUT;
		cuf_release_all(a, f);
		/* what is likely in the same memory */
		f = cuf_timeout(s, cuf_ok(), cuf_now_ns() + CUF_MS(LONG_MS));
		wrong += outcome(f) != CUF_OK;
		cuf_release(f);
		p = cuf_promise_create(s, &a);
		f = cuf_timeout(s, a, cuf_now_ns() + CUF_MS(LONG_MS));
		wrong += cuf_poll(f) != CUF_PENDING;
		cuf_promise_fulfil(p, NULL, NULL);
		wrong += outcome(f) != CUF_OK;
		cuf_release_all(a, f);
	}
	is_int(wrong, 0, "timers race with completion, and touch no object but their own");
	end();
}

/* ---- trailing: work goes on behind what ended early ---- */

static _Atomic int ran;

static void note_end(void *arg)
{
	(void)arg;
	atomic_fetch_add(&ran, 1);
}

/* A kernel that runs until *@flag, and what ended early in front of it. */
static void check_trailing(const char *what, cuf_future *(*early)(cuf_future *k))
{
	volatile int *flag = cuf_pinned_get(rt, sizeof *flag);
	cuf_future *mem, *k, *e, *gone, *later, *close;

	*flag = 0;
	atomic_store(&ran, 0);
	s = cuf_scope_open(root);
	cuf_scope_defer(s, note_end, NULL);
	mem = cuf_alloc(s, 4096);
	k = cuf_launch(s, &spin_until_kernel, cuf_grid_1d(1, 1), CUF_ARGS((int *)flag),
		       .after = CUF_AFTER(mem));
	e = early(k);
	ok(settled(e) < 0 && cuf_poll(k) == CUF_PENDING, "%s: it ended, the kernel runs", what);
	cuf_ignore(e);
	gone = cuf_free(s, cuf_address(mem), .after = CUF_AFTER(e));
	later = cuf_call(s, nothing, NULL, .after_settled = CUF_AFTER(e));
	close = cuf_scope_close(s);
	nap_ms(30);
	is_int(cuf_poll(gone), CUF_PENDING, "%s: a free behind it sees through to the kernel",
	       what);
	is_int(cuf_poll(later), CUF_PENDING, "%s: so does an order edge", what);
	ok(cuf_poll(close) == CUF_PENDING && !atomic_load(&ran), "%s: and the end of the scope",
	   what);
	__atomic_store_n((int *)flag, 1, __ATOMIC_RELEASE);
	is_int(outcome(close), CUF_OK, "%s: all of them end with the kernel", what);
	is_int(atomic_load(&ran), 1, "%s: and the defer runs", what);
	cuf_release(close);
	cuf_pinned_put(rt, (void *)flag);
}

static cuf_future *by_timeout(cuf_future *k)
{
	return cuf_timeout(s, k, cuf_now_ns() + CUF_MS(2));
}

static cuf_future *by_cancel(cuf_future *k)
{
	cuf_future *f = cuf_all(s, k, cuf_ok());

	cuf_cancel(f);
	return f;
}

static cuf_future *by_inheritance(cuf_future *k)
{
	cuf_future *bad = cuf_failed(s, 1, "one");

	cuf_ignore(bad);
	return cuf_call(s, nothing, NULL, .after = CUF_AFTER(bad, k));
}

static cuf_future *through_many(cuf_future *k)
{
	cuf_future *f = cuf_timeout(s, k, cuf_now_ns() + CUF_MS(2)), *n;

	for (int i = 0; i < 1000; i++) {
		cuf_ignore(f);
		n = i % 3 ? cuf_all(s, f, cuf_ok()) : cuf_then(s, f, nothing, NULL);
		f = n;
	}
	return f;
}

int main(void)
{
	const cuf_kernel *k = &spin_until_kernel;

	plan(73);
	open_runtime((cuf_runtime_options){ .workers = 2 });
	cuf_kernel_prepare(rt, &k, 1);
	check_all();
	check_any();
	check_losers_reported();
	check_timeout();
	check_bounded();
	check_stale_timers();
	check_trailing("timeout", by_timeout);
	check_trailing("cancel", by_cancel);
	check_trailing("inheritance", by_inheritance);
	check_trailing("a thousand joins", through_many);
	close_runtime("combine");
	return done();
}
