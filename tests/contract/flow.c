/* SPDX-License-Identifier: MIT */
/*
 * The cap: what is busy and what never is, reserves, the reserve for continuations, cuf_room.
 */
#include "contract.h"

#define CAP	64
#define RESERVE 16

static _Atomic int ran, busy_inside;
static cuf_promise *gate;
static cuf_future *gated;

static cuf_future *count(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	atomic_fetch_add(&ran, 1);
	return NULL;
}

static cuf_future *hold_one(cuf_scope *s)
{
	return cuf_call(s, count, NULL, .after = CUF_AFTER(gated));
}

/* Submits held calls until one is busy. How many were taken. */
static int fill_up(cuf_scope *s)
{
	int n = 0;

	for (;;) {
		cuf_future *f = hold_one(s);
		cuf_status st = cuf_poll(f);

		cuf_release(f);
		if (st != CUF_PENDING)
			return st == CUF_ERR_BUSY ? n : -1;
		n++;
	}
}

static cuf_future *submit_inside(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)in, (void)arg;
	for (int i = 0; i < RESERVE + CAP; i++) {
		cuf_future *f = hold_one(s);

		if (cuf_poll(f) == CUF_ERR_BUSY)
			atomic_fetch_add(&busy_inside, 1);
		cuf_release(f);
	}
	return NULL;
}

static cuf_status end(cuf_scope *s)
{
	cuf_future *f = cuf_scope_close(s);
	cuf_status st = outcome(f);

	cuf_ignore(f);
	cuf_release(f);
	return st;
}

static void check_cap(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *f;
	cuf_promise *p;
	int before = atomic_load(&unobserved), n;
	static char a, b;

	gate = cuf_promise_create(root, &gated);
	n = fill_up(s);
	ok(n > CAP / 2 && n <= CAP, "over the cap work is busy, not before it");
	f = cuf_copy(s, &a, &b, 1);
	is_int(settled(f), CUF_ERR_BUSY, "a copy");
	ok(strstr(info_of(f).message, "64") != NULL, "whose message says how many that is");
	is_str(info_of(f).operation, "copy", "and what was refused");
	is_int(settled(cuf_call(s, count, NULL)), CUF_ERR_BUSY, "and a call");
	is_int(outcome(cuf_then(s, cuf_ok(), count, NULL)), CUF_OK, "a then is never busy");
	is_int(outcome(cuf_catch(s, cuf_ok(), count, NULL)), CUF_OK, "nor a catch");
	is_int(outcome(cuf_finally(s, cuf_ok(), count, NULL)), CUF_OK, "nor a finally");
	is_int(outcome(cuf_all(s, cuf_ok())), CUF_OK, "nor an all");
	is_int(outcome(cuf_any(s, cuf_ok())), CUF_OK, "nor an any");
	is_int(outcome(cuf_timeout(s, cuf_ok(), 0)), CUF_OK, "nor a timeout");
	is_int(outcome(cuf_ready(s, NULL, NULL)), CUF_OK, "nor a ready");
	is_int(outcome(cuf_free(s, NULL)), CUF_OK, "nor a free");
	p = cuf_promise_create(s, &f);
	diag("a promise is %s", p ? "taken" : "busy");
	if (p)
		cuf_promise_fulfil(p, NULL, NULL);
	cuf_promise_fulfil(gate, NULL, NULL);
	is_int(end(s), CUF_ERR_BUSY, "a busy member is an error of its scope");
	cuf_release(gated);
	nap_ms(5);
	is_int(atomic_load(&unobserved), before, "but is not reported");
	s = cuf_scope_open(root);
	is_int(outcome(cuf_call(s, count, NULL)), CUF_OK, "later there is room again");
	end(s);
}

static void check_continuations(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *f;

	gate = cuf_promise_create(root, &gated);
	fill_up(s);
	f = cuf_then(s, cuf_ok(), submit_inside, NULL);
	outcome(f);
	ok(atomic_load(&busy_inside) >= CAP && atomic_load(&busy_inside) < CAP + RESERVE,
	   "continuations draw on a reserve, which ends too");
	cuf_promise_fulfil(gate, NULL, NULL);
	end(s);
	cuf_release(gated);
}

static void check_reserve(void)
{
	cuf_scope *s, *t, *u;
	int n, more = 0;

	gate = cuf_promise_create(root, &gated);
	s = cuf_scope_open(root, .reserve = CAP / 2);
	is_int(cuf_scope_poll(s), CUF_OK, "a scope with a reserve that fits");
	t = cuf_scope_open(root, .reserve = CAP);
	is_int(cuf_scope_poll(t), CUF_ERR_BUSY, "one whose reserve does not is born busy");
	is_int(settled(hold_one(t)), CUF_ERR_BUSY, "and each submit in it fails");
	is_int(end(t), CUF_ERR_BUSY, "as its close says");
	t = cuf_scope_open(root);
	n = fill_up(t);
	ok(n < CAP / 2, "what is reserved is not to be had elsewhere");
	for (int i = 0; i < CAP / 2; i++) {
		cuf_future *f = hold_one(s);

		more += cuf_poll(f) == CUF_PENDING;
		cuf_release(f);
	}
	is_int(more, CAP / 2, "but is there for its scope");
	u = cuf_scope_open(root, .reserve = SIZE_MAX);
	is_int(cuf_scope_poll(u), CUF_ERR_BUSY, "a reserve beyond all is busy");
	cuf_scope_end(u);
	cuf_promise_fulfil(gate, NULL, NULL);
	is_int(end(s), CUF_OK, "the scope with the reserve ends well");
	end(t);
	cuf_release(gated);
	s = cuf_scope_open(root, .reserve = CAP / 2);
	end(s);
	s = cuf_scope_open(root, .reserve = CAP / 2);
	is_int(cuf_scope_poll(s), CUF_OK, "what was not used of a reserve comes back");
	end(s);
}

static void check_room(void)
{
	cuf_scope *s = cuf_scope_open(root), *t = cuf_scope_open(root);
	cuf_future *f, *g, *c;

	is_int(outcome(cuf_room(s, 1)), CUF_OK, "there is room");
	is_int(outcome(cuf_room(s, CAP)), CUF_OK, "for as many as the cap");
	f = cuf_room(s, CAP + 1);
	is_int(outcome(f), CUF_ERR_INVALID, "but never for more");
	cuf_ignore(f);
	gate = cuf_promise_create(root, &gated);
	fill_up(t);
	f = cuf_room(s, 8);
	g = cuf_room(s, CAP / 2);
	c = cuf_room(s, 1);
	nap_ms(5);
	ok(cuf_poll(f) == CUF_PENDING && cuf_poll(g) == CUF_PENDING, "over the cap there is none");
	is_int(cuf_cancel(c), CUF_OK, "waiting for room can be cancelled");
	cuf_ignore(c);
	cuf_promise_fulfil(gate, NULL, NULL);
	is_int(outcome(f), CUF_OK, "until something ended");
	is_int(outcome(g), CUF_OK, "and more");
	end(t);
	is_int(end(s), CUF_OK, "the scope ends");
	cuf_release(gated);
}

/* Producers that go on when there is room keep the runtime within its bounds, and all gets done. */
static void *produce(void *arg)
{
	cuf_scope *s = arg;

	for (long i = 0, n = scaled(20000); i < n;) {
		cuf_future *f = cuf_call(s, count, NULL);

		if (cuf_poll(f) == CUF_ERR_BUSY) {
			cuf_ignore(f);
			cuf_release(f);
			f = cuf_room(s, 4);
			if (outcome(f) != CUF_OK)
				return arg;
		} else {
			i++;
		}
		cuf_release(f);
	}
	return NULL;
}

static void check_producers(void)
{
	cuf_scope *s = cuf_scope_open(root);
	pthread_t thread[3];
	int failed = 0;

	atomic_store(&ran, 0);
	for (int i = 0; i < 3; i++) {
		if (pthread_create(&thread[i], NULL, produce, s))
			abort();
	}
	for (int i = 0; i < 3; i++) {
		void *bad;

		pthread_join(thread[i], &bad);
		failed += bad != NULL;
	}
	is_int(failed, 0, "who waits for room gets it");
	end(s);
	is_int(atomic_load(&ran), 3 * scaled(20000), "and all is done");
}

int main(void)
{
	plan(37);
	open_runtime((cuf_runtime_options){ .workers = 2, .cap = CAP, .reserve = RESERVE });
	check_cap();
	check_continuations();
	check_reserve();
	check_room();
	check_producers();
	close_runtime("flow");
	return done();
}
