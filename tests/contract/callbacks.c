/* SPDX-License-Identifier: MIT */
/*
 * Continuations of device operations may do everything: submit, allocate, free, release the last
 * reference, take the program's locks. None of it happens on the driver's thread, which the host
 * device would count, and none of it stands still. Iterations: CALLBACK_TURNS.
 */
#include "tap.h"
#include "contract/rig.h"

static int turns(int usual)
{
	char *env = getenv("CALLBACK_TURNS");

	return env ? atoi(env) : under_valgrind() ? usual / 10 : usual;
}

/* ---- a continuation that does each thing there is (C03) ---- */

static atomic_int did, wrong;

static cuf_future *do_everything(cuf_scope *s, cuf_future *in, void *arg)
{
	cuf_future *a, *f, *g;
	cuf_promise *p;
	char *pinned = cuf_pinned_get(rt, 256);
	cuf_scope *t = cuf_scope_open(s);
	cuf_error_info i = { .size = sizeof i };

	(void)arg;
	a = cuf_alloc(t, 256);
	f = cuf_fill(t, cuf_address(a), 1, 256, .after = CUF_AFTER(a, in));
	f = cuf_copy(t, pinned, cuf_address(a), 256, .take = CUF_LIST(f));
	f = cuf_launch(t, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS, .take = CUF_LIST(f),
		       .exclusive = true);
	cuf_free(t, cuf_address(a), .after = CUF_AFTER(f));
	p = cuf_promise_create(t, &g);
	cuf_fill(t, NULL, 0, 0, .after = CUF_AFTER(g));
	cuf_promise_fulfil(p, NULL, NULL);
	if (cuf_poll(in) != CUF_OK || cuf_wait(in) != CUF_OK || cuf_cancel(in) != CUF_ERR_TOO_LATE)
		atomic_fetch_add(&wrong, 1);
	if (cuf_poll(f) == CUF_PENDING && cuf_wait(f) != CUF_ERR_WOULD_DEADLOCK &&
	    cuf_poll(f) == CUF_PENDING)
		atomic_fetch_add(&wrong, 1);
	cuf_error_get(cuf_error_of(in), &i);
	(void)stats();
	cuf_release(cuf_retain(f));
	cuf_pinned_put(rt, pinned); /* used again by another; what it holds does not matter */
	atomic_fetch_add(&did, 1);
	return cuf_scope_close(t);
}

static void check_everything(void)
{
	enum { STREAMS = 4 };
	int n = turns(1000);
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *last[STREAMS];
	bool all = true;

	for (int k = 0; k < STREAMS; k++)
		last[k] = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS);
	for (int i = 0; i < n; i++) {
		cuf_future *f = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS,
					   .after = CUF_AFTER(last[i % STREAMS]));

		cuf_release(last[i % STREAMS]);
		last[i % STREAMS] = cuf_then(s, f, do_everything, NULL);
		cuf_release(f);
	}
	for (int k = 0; k < STREAMS; k++)
		all &= ends(last[k]) == CUF_OK;
	ok(all, "continuations that do everything, %d on %d chains", n, STREAMS);
	is_int(atomic_load(&did), n, "each ran once");
	is_int(atomic_load(&wrong), 0, "and was answered right");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
	is_int((long long)cuf_host_calls_in_func(), 0, "not on the driver's thread");
}

/* ---- the runtime has the last reference (C04) ---- */

static atomic_int values_dropped, args_dropped;

static void drop_value(void *value)
{
	atomic_fetch_add(&values_dropped, 1);
	free(value);
}

static void drop_arg(void *arg)
{
	atomic_fetch_add(&args_dropped, 1);
	free(arg);
}

static cuf_future *make_value(cuf_scope *s, cuf_future *in, void *arg)
{
	cuf_future *f;

	(void)in, (void)arg;
	/* the value goes with whoever lets go of it last */
	f = cuf_ready(s, malloc(100), drop_value);
	return f;
}

static void check_last_reference(void)
{
	int n = turns(10000);
	unsigned seed = 12345;
	cuf_scope *s = cuf_scope_open(root);
	char *pinned = memset(cuf_pinned_get(rt, 64), 0, 64);
	cuf_future *closed;
	bool ended;

	for (int i = 0; i < n; i++) {
		cuf_future *a = cuf_alloc(s, 64), *f, *t;

		f = cuf_copy(s, cuf_address(a), pinned, 64, .after = CUF_AFTER(a));
		t = cuf_then(s, f, make_value, malloc(10), .drop = drop_arg);
		switch (rand_r(&seed) % 4) {
		case 0:
			cuf_release_all(f, t, a);
			break;
		case 1:
			cuf_release_all(a, t);
			ends(f);
			cuf_release(f);
			break;
		case 2:
			cuf_release_all(a, f);
			cuf_free(s, NULL, .take = CUF_LIST(t));
			break;
		default:
			cuf_release(f);
			ends(t);
			cuf_release_all(t, a);
		}
	}
	closed = cuf_scope_close(s);
	ended = ends(closed) == CUF_OK;
	ok(ended, "%d operations of which every reference was released", n);
	is_int(atomic_load(&values_dropped), n, "each value was dropped");
	is_int(atomic_load(&args_dropped), n, "and each argument");
	is_int((long long)cuf_host_calls_in_func(), 0, "not on the driver's thread");
	cuf_pinned_put(rt, pinned);
}

/* ---- a lock of the program's, held across submit and free, wanted in continuations (C05) ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long guarded; /* mutex */

static void lock_in_watch(cuf_future *f, void *arg)
{
	(void)f, (void)arg;
	pthread_mutex_lock(&mutex);
	guarded++;
	pthread_mutex_unlock(&mutex);
}

static cuf_future *lock_in_then(cuf_scope *s, cuf_future *in, void *arg)
{
	cuf_future *f;

	(void)in, (void)arg;
	pthread_mutex_lock(&mutex);
	guarded++;
	f = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS);
	pthread_mutex_unlock(&mutex);
	return f;
}

static int lock_in_enqueue(struct CUstream_st *stream, void *arg)
{
	(void)stream, (void)arg;
	/* the submitter holds it: it is called inside his call, or later by the runtime */
	return 0;
}

static void *submit_locked(void *arg)
{
	int n = turns(1000);

	(void)arg;
	for (int i = 0; i < n; i++) {
		cuf_scope *s = cuf_scope_open(root);
		cuf_future *a, *f, *t;

		pthread_mutex_lock(&mutex);
		a = cuf_alloc(s, 10000);
		f = cuf_fill(s, cuf_address(a), 1, 10000, .after = CUF_AFTER(a));
		t = cuf_then(s, f, lock_in_then, NULL);
		cuf_watch(s, t, lock_in_watch, NULL);
		cuf_enqueue(s, lock_in_enqueue, NULL, .after = CUF_AFTER(t));
		cuf_free(s, cuf_address(a), .after = CUF_AFTER(f));
		cuf_cancel(t);
		pthread_mutex_unlock(&mutex);
		if (i % 8 == 0)
			ends(cuf_scope_close(s));
		else
			cuf_scope_end(s);
	}
	return NULL;
}

static void check_user_lock(void)
{
	enum { THREADS = 3 };
	pthread_t t[THREADS];
	long want = (long)turns(1000) * THREADS;
	bool all;

	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&t[i], NULL, submit_locked, NULL))
			abort();
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	all = AWAIT(({
			    bool there;
			    pthread_mutex_lock(&mutex);
			    there = guarded >= want;
			    pthread_mutex_unlock(&mutex);
			    there;
		    }),
		    20000);
	ok(all, "a mutex held across submits and frees, wanted in continuations: all goes on");
	is_int((long long)cuf_host_calls_in_func(), 0, "none of it on the driver's thread");
}

/* ---- what a continuation returned is waited for (C21) ---- */

struct inner {
	int *at;
	size_t n;
};

static cuf_future *start_slow(cuf_scope *s, cuf_future *in, void *arg)
{
	struct inner *i = arg;
	uint64_t ns = 2000000;
	cuf_future *f;

	(void)in;
	f = cuf_launch(s, &spin_kernel, cuf_grid_1d(1, 32), CUF_ARGS(ns));
	return cuf_launch(s, &add_one, cuf_grid_1d(i->n, 64), CUF_ARGS(i->at, i->n),
			  .take = CUF_LIST(f));
}

static cuf_future *start_failing(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)in, (void)arg;
	return cuf_copy(s, NULL, &did, 4, .label = "inner");
}

static void check_inner(void)
{
	enum { N = 100 };
	cuf_scope *s = cuf_scope_open(root);
	int *back = cuf_pinned_get(rt, N * sizeof *back);
	cuf_future *mem = cuf_alloc(s, N * sizeof *back), *f, *outer, *bad;
	struct inner i = { cuf_address(mem), N };
	bool right = true;

	for (int k = 0; k < 20; k++) {
		f = cuf_fill(s, i.at, 0, N * sizeof *back, .after = CUF_AFTER(mem));
		outer = cuf_then(s, f, start_slow, &i);
		f = cuf_copy(s, back, i.at, N * sizeof *back, .after = CUF_AFTER(outer));
		right &= ends(f) == CUF_OK && back[0] == 1 && back[N - 1] == 1;
	}
	ok(right, "what waits for a continuation waits for the work that it returned");
	bad = cuf_then(s, f, start_failing, NULL);
	f = cuf_copy(s, back, i.at, 4, .after = CUF_AFTER(bad));
	is_int(ends(f), CUF_ERR_INVALID, "and inherits its failure");
	is_str(info_of(f).label, "inner", "from there");
	is_int(ends(cuf_scope_close(s)), CUF_ERR_INVALID, "their scope says so");
	cuf_pinned_put(rt, back);
}

/* ---- a continuation that takes long, while others complete (C34 b) ---- */

static atomic_int sleeping;

static cuf_future *sleep_300_ms(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	atomic_store(&sleeping, 1);
	sleep_ms(300);
	atomic_store(&sleeping, 0);
	return NULL;
}

static cuf_future *pass(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	return NULL;
}

/* The thread that is held up is the one that looks for ends: another one has to. */
static void check_slow_continuation(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *f = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS), *slow, *then;
	int n = 0;

	slow = cuf_then(s, f, sleep_300_ms, NULL);
	if (!AWAIT(atomic_load(&sleeping), 5000))
		diag("the slow continuation does not run");
	while (atomic_load(&sleeping)) {
		f = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS);
		/* on another loop; and who waits for this one cannot ask the device himself */
		then = cuf_then(s, f, pass, NULL, .on = cuf_runtime_workers(rt));
		if (ends(then) == CUF_OK && atomic_load(&sleeping))
			n++;
		cuf_release_all(f, then);
	}
	ok(n >= 3, "others run while a continuation on the runtime's loop takes 300 ms");
	diag("%d of them", n);
	is_int(ends(slow), CUF_OK, "it ends too");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
}

int main(void)
{
	const cuf_kernel *kernels[] = { &empty_kernel, &spin_kernel, &add_one };

	RIG_START(.devices = 1);
	plan(5 + 4 + 2 + 4 + 3 + 1 + 1);
	cuf_kernel_prepare(rt, kernels, 3);
	check_everything();
	check_last_reference();
	check_user_lock();
	check_inner();
	check_slow_continuation();
	is_int(atomic_load(&unobserved), 0, "no error went unobserved");
	return rig_end();
}
