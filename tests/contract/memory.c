/* SPDX-License-Identifier: MIT */
/*
 * Memory goes back only when the device has truly finished with it: behind futures that were
 * dropped, cancelled or timed out, behind joins that ended early, at the end of a scope. And
 * freeing what is not there to be freed is an error that harms nothing.
 */
#include "tap.h"
#include "contract/rig.h"

enum { BYTES = 300000, SAME = 12 };

/* ---- a free sees through what ended early to the operation behind (C15) ---- */

enum way { TIMEOUT, ANY, ALL, CANCELLED, DROPPED, THEN, CALL, DEEP, WAYS };

static const char *const names[WAYS] = { "a timeout",	  "an any",
					 "a failed all",  "a cancelled operation",
					 "a dropped one", "a then",
					 "a failed call", "a deep join" };

static cuf_future *nothing(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	return NULL;
}

/* Something that depends on @use and has settled, or never will be looked at, while @use still runs. */
static cuf_future *early(cuf_scope *s, cuf_future *use, enum way way)
{
	cuf_future *failed = cuf_failed(s, 1, "early"), *f, *held;
	cuf_promise *p;

	cuf_ignore(failed);
	switch (way) {
	case TIMEOUT:
		return cuf_timeout(s, use, cuf_now_ns() + CUF_MS(5));
	case ANY:
		return cuf_any(s, use, cuf_ok());
	case ALL:
		/* all waits for every input: what joins it does not */
		return cuf_fill(s, NULL, 0, 0, .after = CUF_AFTER(use, failed));
	case CANCELLED:
		p = cuf_promise_create(s, &held);
		f = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS,
			       .after = CUF_AFTER(use, held));
		cuf_cancel(f);
		cuf_promise_fulfil(p, NULL, NULL);
		return f;
	case DROPPED:
		return use;
	case THEN:
		f = cuf_timeout(s, use, cuf_now_ns() + CUF_MS(5));
		return cuf_finally(s, f, nothing, NULL);
	case CALL:
		return cuf_call(s, nothing, NULL, .after = CUF_AFTER(failed, use));
	default:
		f = use;
		for (int i = 0; i < 200; i++)
			f = cuf_any(s, cuf_timeout(s, f, cuf_now_ns() + CUF_MS(1)), cuf_ok());
		return cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS,
				  .after = CUF_AFTER(failed, f));
	}
}

static void check_free_waits(enum way way)
{
	cuf_scope *s = cuf_scope_open(root), *t = cuf_scope_open(root);
	struct gate g = gate_make();
	char *back = cuf_pinned_get(rt, BYTES);
	cuf_future *mem = cuf_alloc(s, BYTES), *gate, *use, *seen, *freed, *same[SAME], *f;
	bool untouched = true;
	void *at = cuf_address(mem);
	int reused = 0;

	gate = GATE_LAUNCH(s, g, .after = CUF_AFTER(mem));
	use = cuf_fill(s, at, 0x77, BYTES, .take = CUF_LIST(gate));
	seen = early(s, use, way);
	if (way != DROPPED) {
		ends(seen);
		cuf_ignore(seen);
	}
	freed = cuf_free(s, at, .after = CUF_AFTER(seen));
	if (way == DROPPED)
		cuf_release(use);
	sleep_ms(3);
	is_int(cuf_poll(freed), CUF_PENDING, "a free behind %s waits", names[way]);
	/* others of the same size, on all kinds of streams */
	for (int i = 0; i < SAME; i++) {
		same[i] = cuf_alloc(t, BYTES, .priority = i % 3 - 1);
		reused += cuf_address(same[i]) == at;
		f = cuf_fill(t, cuf_address(same[i]), 0x11, BYTES, .after = CUF_AFTER(same[i]));
		if (ends(f) != CUF_OK)
			diag("fill %d: %s", i, info_of(f).message);
	}
	is_int(reused, 0, "nobody is given that memory meanwhile");
	gate_open(g);
	is_int(ends(freed), CUF_OK, "it runs when the use has ended");
	for (int i = 0; i < SAME; i++) {
		f = cuf_copy(t, back, cuf_address(same[i]), BYTES);
		untouched &= ends(f) == CUF_OK;
		for (int k = 0; k < BYTES; k++)
			untouched &= back[k] == 0x11;
	}
	ok(untouched, "and wrote into nobody else's");
	ok(ends(cuf_scope_close(s)) != CUF_PENDING && ends(cuf_scope_close(t)) == CUF_OK,
	   "the scopes end");
	cuf_pinned_put(rt, g.flag);
	cuf_pinned_put(rt, back);
}

/* ---- the end of a scope ---- */

static void mark(void *arg)
{
	atomic_store((atomic_int *)arg, 1);
}

static void check_scope_end(void)
{
	cuf_scope *s = cuf_scope_open(root);
	struct gate g = gate_make();
	static atomic_int deferred;
	cuf_future *mem = cuf_alloc(s, BYTES), *gate = GATE_LAUNCH(s, g, .after = CUF_AFTER(mem));
	cuf_future *use = cuf_fill(s, cuf_address(mem), 1, BYTES, .take = CUF_LIST(gate)), *closed;
	cuf_future *late = cuf_timeout(s, use, cuf_now_ns() + CUF_MS(2));

	cuf_scope_defer(s, mark, &deferred);
	is_int(ends(late), CUF_ERR_TIMED_OUT, "a request times out");
	cuf_scope_cancel(s);
	closed = cuf_scope_close(s);
	sleep_ms(10);
	is_int(cuf_poll(closed), CUF_PENDING,
	       "its scope does not end while the device works for it");
	is_int(atomic_load(&deferred), 0, "nor are its defers called");
	gate_open(g);
	is_int(ends(closed), CUF_ERR_TIMED_OUT, "then it does");
	is_int(atomic_load(&deferred), 1, "and they are");
	cuf_pinned_put(rt, g.flag);
}

/* What a scope allocated and nobody freed goes with it: more in all than there is. */
static void check_scopes_free(void)
{
	enum { SCOPES = 3000 };
	bool all = true;
	uint64_t mallocs = cuf_host_calls(CUF_HOST_MALLOC), frees = cuf_host_calls(CUF_HOST_FREE);
	size_t bytes = on_host ? 64 << 20 : 256 << 20; /* 192 GiB, 750 GiB */

	for (int i = 0; i < SCOPES && all; i++) {
		cuf_scope *s = cuf_scope_open(root);
		cuf_future *a = cuf_alloc(s, bytes), *b = cuf_alloc(s, 100), *f;

		f = cuf_fill(s, cuf_address(a), 0, 64, .after = CUF_AFTER(a));
		if (i % 2)
			cuf_free(s, cuf_address(b), .after = CUF_AFTER(b));
		if (i % 7 == 0)
			cuf_release_all(a, b, f);
		all = ends(cuf_scope_close(s)) == CUF_OK;
	}
	ok(all, "%d scopes that free nothing themselves do not run out of memory", SCOPES);
	if (on_host)
		is_int((long long)(cuf_host_calls(CUF_HOST_FREE) - frees),
		       (long long)(cuf_host_calls(CUF_HOST_MALLOC) - mallocs),
		       "as many frees as allocations");
	else
		skip(1, "only the host device counts calls");
}

/* Freed in another scope than it was allocated in, before and after that one ended. */
static void check_other_scope(void)
{
	cuf_scope *s = cuf_scope_open(root), *t = cuf_scope_open(root);
	cuf_future *a = cuf_alloc(s, 100), *f;
	void *at = cuf_address(a);
	uint64_t frees = cuf_host_calls(CUF_HOST_FREE);

	f = cuf_free(t, at, .after = CUF_AFTER(a));
	is_int(ends(f), CUF_OK, "freed from another scope");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its own scope ends");
	is_int(ends(cuf_scope_close(t)), CUF_OK, "so does the other");
	if (on_host)
		is_int((long long)(cuf_host_calls(CUF_HOST_FREE) - frees), 1, "it was freed once");
	else
		skip(1, "only the host device counts calls");
	/* a scope that ends while a held free of its memory is in another one */
	{
		cuf_future *held;
		cuf_promise *p;

		s = cuf_scope_open(root);
		t = cuf_scope_open(root);
		p = cuf_promise_create(t, &held);
		a = cuf_alloc(s, 100);
		f = cuf_free(t, cuf_address(a), .after = CUF_AFTER(held));
		is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends before a held free");
		is_int(cuf_poll(f), CUF_PENDING, "which is held");
		cuf_promise_fail(p, 1, "free all the same");
		is_int(ends(f), CUF_OK, "until its dependency has ended, in whatever way");
		cuf_ignore(held);
		ends(cuf_scope_close(t));
	}
}

/* A free that is cancelled, by itself or with its scope, or fails, leaves the memory to the scope. */
static void check_cancelled_frees(void)
{
	uint64_t mallocs = cuf_host_calls(CUF_HOST_MALLOC), frees = cuf_host_calls(CUF_HOST_FREE);
	cuf_scope *s;
	cuf_future *a, *f, *held;
	cuf_promise *p;
	int failed = 0;

	for (int way = 0; way < 3; way++) {
		s = cuf_scope_open(root);
		p = cuf_promise_create(root, &held);
		a = cuf_alloc(s, 5000);
		f = cuf_fill(s, cuf_address(a), 0, 5000, .after = CUF_AFTER(a, held));
		f = cuf_free(s, cuf_address(a), .after = CUF_AFTER(f));
		if (way == 0)
			is_int(cuf_cancel(f), CUF_OK, "a free is cancelled");
		else if (way == 1)
			cuf_scope_cancel(s);
		else if (on_host)
			cuf_host_fail_call(CUF_HOST_FREE, ++failed, 999);
		cuf_promise_fulfil(p, NULL, NULL);
		is_int(ends(f),
		       way < 2	 ? CUF_ERR_CANCELLED
		       : on_host ? CUF_ERR_DEVICE
				 : CUF_OK,
		       "%s",
		       way == 0	  ? "that is how it ends"
		       : way == 1 ? "another with its scope"
				  : "a third one fails");
		cuf_ignore(f);
		ok(ends(cuf_scope_close(s)) != CUF_PENDING, "its scope ends");
		cuf_release(held);
	}
	sleep_ms(5);
	if (on_host)
		is_int((long long)(cuf_host_calls(CUF_HOST_FREE) - frees) - failed,
		       (long long)(cuf_host_calls(CUF_HOST_MALLOC) - mallocs),
		       "and the memory went back with it, each time");
	else
		skip(1, "only the host device counts calls");
}

/* ---- what cannot be freed ---- */

static void check_bad_frees(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *a = cuf_alloc(s, 1000), *f;
	char *at = cuf_address(a), here[16], *heap = malloc(16), *pinned = cuf_pinned_get(rt, 16);
	void *const bad[] = { at + 256, here, heap, pinned, at };
	static const char *const what[] = { "an address inside an allocation", "the stack",
					    "the heap", "pinned memory", "what was freed before" };

	for (int i = 0; i < 5; i++) {
		if (i == 4)
			is_int(ends(cuf_free(s, at, .after = CUF_AFTER(a))), CUF_OK, "freed once");
		f = cuf_free(s, bad[i]);
		is_int(ends(f), CUF_ERR_INVALID, "%s is not freed", what[i]);
		ok(strstr(info_of(f).message, "not allocated here") != NULL,
		   "and the message says why");
	}
	is_int(cuf_runtime_device_status(rt, 0), CUF_OK, "the device is well");
	free(heap);
	cuf_pinned_put(rt, pinned);
	ends(cuf_scope_close(s));
}

/* From many threads: what each wrote into its memory stays there until it frees it. */
static void *use_memory(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;
	bool right = true;

	for (int i = 0; i < 200 && right; i++) {
		cuf_scope *s = cuf_scope_open(root);
		unsigned char byte = (unsigned char)(seed * 50 + (unsigned)i), back[2000];
		size_t n = 1 + rand_r(&seed) % sizeof back;
		cuf_future *a = cuf_alloc(s, n), *f;

		f = cuf_fill(s, cuf_address(a), byte, n, .after = CUF_AFTER(a));
		f = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS,
			       .take = CUF_LIST(f), .priority = CUF_HIGH);
		f = cuf_copy(s, back, cuf_address(a), n, .take = CUF_LIST(f));
		cuf_free(s, cuf_address(a), .after = CUF_AFTER(f));
		right = ends(cuf_scope_close(s)) == CUF_OK;
		for (size_t k = 0; k < n; k++)
			right &= back[k] == byte;
	}
	return right ? NULL : arg;
}

static void check_threads(void)
{
	pthread_t t[4];
	bool right = true;
	void *got;

	for (uintptr_t i = 0; i < 4; i++)
		if (pthread_create(&t[i], NULL, use_memory, (void *)(i + 1)))
			abort();
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], &got);
		right &= got == NULL;
	}
	ok(right, "four threads allocate, write, read and free");
}

int main(void)
{
	const cuf_kernel *kernels[] = { &empty_kernel, &spin_until_kernel };

	RIG_START(.devices = 1);
	plan(WAYS * 5 + 5 + 2 + 7 + 8 + 12 + 1 + 1 + 1);
	cuf_kernel_prepare(rt, kernels, 2);
	for (int i = 0; i < WAYS; i++)
		check_free_waits((enum way)i);
	check_scope_end();
	check_scopes_free();
	check_other_scope();
	check_cancelled_frees();
	check_bad_frees();
	check_threads();
	is_int(atomic_load(&unobserved), 0, "no error went unobserved");
	return rig_end();
}
