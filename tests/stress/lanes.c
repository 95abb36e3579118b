/* SPDX-License-Identifier: MIT */
/*
 * Many threads keep many lanes of several devices busy with everything at once: random edges of
 * every kind, cancels and timeouts, keys, exclusive and timed work, memory, pageable and pinned
 * copies, watches; on the host device with random delays besides. Checked: what each chain of
 * increments counted, that each watch and drop was called once, that all memory went back, that
 * everything ends. STRESS_SECONDS (2), STRESS_THREADS (4), STRESS_SEED.
 */
#include "tap.h"
#include "contract/rig.h"

enum { OPERATIONS = 80, RECENT = 16, N = 32, DEVICES_MAX = 4, THREADS_MAX = 64 };

static int devices;
static uint64_t until_ns;
static atomic_int failures;

struct counter {
	atomic_long watches, watched, drops, dropped, added;
};

struct worker {
	pthread_t thread;
	uint64_t seed;
	int index;
	long operations;
	bool right;
};

static uint64_t draw(struct worker *w, uint64_t below)
{
	w->seed ^= w->seed << 13;
	w->seed ^= w->seed >> 7;
	w->seed ^= w->seed << 17;
	return w->seed % below;
}

/* Futures that other threads may depend on: each slot has a reference. */
static struct {
	pthread_mutex_t lock;
	cuf_future *at[RECENT];
} shared = { .lock = PTHREAD_MUTEX_INITIALIZER };

static cuf_future *share(struct worker *w, cuf_future *f)
{
	uint64_t i = draw(w, RECENT);
	cuf_future *old;

	pthread_mutex_lock(&shared.lock);
	old = shared.at[i];
	shared.at[i] = f ? cuf_retain(f) : NULL;
	pthread_mutex_unlock(&shared.lock);
	return old;
}

static void count_watch(cuf_future *f, void *arg)
{
	struct counter *c = arg;
	cuf_status st = cuf_poll(f);

	if (st != CUF_OK && st != CUF_ERR_CANCELLED && st != CUF_ERR_TIMED_OUT &&
	    st != CUF_ERR_USER && st != CUF_ERR_BUSY)
		atomic_fetch_add(&failures, 1);
	atomic_fetch_add(&c->watched, 1);
}

static void count_added(cuf_future *f, void *arg)
{
	struct counter *c = arg;

	if (cuf_poll(f) == CUF_OK)
		atomic_fetch_add(&c->added, 1);
	atomic_fetch_add(&c->watched, 1);
}

static void count_drop(void *arg)
{
	atomic_fetch_add(&((struct counter *)arg)->dropped, 1);
}

static int put_nothing(struct CUstream_st *stream, void *arg)
{
	(void)stream, (void)arg;
	return 0;
}

static cuf_future *pass(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	return NULL;
}

/* One request: a scope, some dozens of operations in it, its end. */
static void request(struct worker *w)
{
	struct counter c = { 0 };
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *recent[RECENT] = { NULL }, *chain = NULL, *mem, *last;
	char pageable[OPERATIONS][40] = { "" }, *pinned = memset(cuf_pinned_get(rt, 4096), 0, 4096);
	int device = (int)draw(w, (uint64_t)devices), n = 20 + (int)draw(w, OPERATIONS - 20);
	static const int keys[3];
	int *at, before;

	mem = cuf_alloc(s, 4096 + N * sizeof(int), .device = CUF_DEVICE(device));
	at = cuf_address(mem);
	if (!at) {
		/* busy: not an error here */
		ends(cuf_scope_close(s));
		cuf_pinned_put(rt, pinned);
		return;
	}
	chain = cuf_fill(s, at, 0, 4096 + N * sizeof(int), .after = CUF_AFTER(mem));
	for (int i = 0; i < n; i++) {
		uint64_t what = draw(w, 16);
		cuf_future *after[3] = { recent[draw(w, RECENT)], NULL, NULL }, *taken = NULL, *f;
		cuf_options o = { .size = sizeof o };

		if (draw(w, 3) == 0)
			after[1] = recent[draw(w, RECENT)];
		if (draw(w, 4) == 0)
			taken = share(w, NULL);
		o.device = CUF_DEVICE(draw(w, 4) ? device : (int)draw(w, (uint64_t)devices));
		o.priority = (int)draw(w, 3) - 1;
		o.exclusive = draw(w, 40) == 0;
		o.timing = draw(w, 10) == 0;
		o.eager_peer = draw(w, 3) == 0;
		if (draw(w, 5) == 0)
			o.after_settled = CUF_AFTER_N(after, 3);
		else
			o.after = CUF_AFTER_N(after, 3);
		o.take = CUF_AFTER_N(&taken, 1);
		if (what < 5) {
			/* the chain: order only, so that it goes on whatever was cancelled */
			cuf_future *order[2] = { chain, after[0] };

			o.after = (cuf_list){ 0, NULL };
			o.after_settled = CUF_AFTER_N(order, 2);
			o.device = CUF_DEVICE(device);
			f = cuf_launch_with(s, &add_one, cuf_grid_1d(N, 32),
					    CUF_ARGS(at, (size_t)N), &o);
			atomic_fetch_add(&c.watches, 1);
			cuf_watch(s, f, count_added, &c);
			chain = f;
		} else if (what < 7) {
			o.device = CUF_DEVICE(device);
			o.after_settled = CUF_AFTER_N(&chain, 1);
			f = cuf_copy_with(s, pinned + 128 + 48 * i, at + N, 48, &o);
		} else if (what < 8) {
			o.device = CUF_DEVICE(device);
			o.after_settled = CUF_AFTER_N(&chain, 1);
			f = cuf_copy_with(s, pageable[i], at + N, sizeof pageable[i], &o);
		} else if (what < 9) {
			o.key = &keys[draw(w, 3)];
			o.drop = count_drop;
			o.weight = 1 + (unsigned)draw(w, 40);
			atomic_fetch_add(&c.drops, 1);
			f = cuf_enqueue_with(s, put_nothing, &c, &o);
		} else if (what < 10 && after[0]) {
			cuf_release_n(&taken, 1);
			f = cuf_timeout(s, after[0], cuf_now_ns() + draw(w, 300000));
		} else if (what < 11 && after[0]) {
			cuf_release_n(&taken, 1);
			f = draw(w, 2) ? cuf_all_n(s, CUF_AFTER_N(after, 3))
				       : cuf_any_n(s, CUF_AFTER_N(after, 3));
		} else if (what < 12 && after[0]) {
			cuf_release_n(&taken, 1);
			f = cuf_then(s, after[0], pass, NULL);
		} else if (what < 13) {
			cuf_future *spare;

			cuf_release_n(&taken, 1);
			spare = cuf_alloc(s, 1 + draw(w, 10000), .device = o.device);
			f = cuf_free(s, cuf_address(spare), .after = CUF_AFTER(spare, after[0]));
			cuf_release(spare);
		} else {
			f = cuf_launch_with(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS, &o);
		}
		if (f != chain && draw(w, 12) == 0)
			cuf_cancel(f);
		if (draw(w, 6) == 0) {
			atomic_fetch_add(&c.watches, 1);
			cuf_watch(s, f, count_watch, &c);
		}
		if (draw(w, 8) == 0)
			cuf_release(share(w, f));
		recent[draw(w, RECENT)] = f; /* the scope has a reference to each */
		w->operations++;
	}
	last = cuf_copy(s, pinned, at, N * sizeof(int), .after_settled = CUF_AFTER(chain));
	before = ends(last) == CUF_OK ? *(int *)(void *)pinned : -1;
	if (draw(w, 10) == 0)
		cuf_scope_cancel(s);
	last = cuf_scope_close(s);
	if (ends(last) == CUF_PENDING) {
		diag("thread %d: a scope does not end", w->index);
		cuf_dump(rt, stdout);
		w->right = false;
		return;
	}
	cuf_ignore(last);
	cuf_release(last);
	if (before != (int)atomic_load(&c.added)) {
		diag("thread %d: a chain counted %d, %ld increments succeeded", w->index, before,
		     atomic_load(&c.added));
		w->right = false;
	}
	if (atomic_load(&c.watched) != atomic_load(&c.watches) ||
	    atomic_load(&c.dropped) != atomic_load(&c.drops)) {
		diag("thread %d: %ld of %ld watches, %ld of %ld drops", w->index,
		     atomic_load(&c.watched), atomic_load(&c.watches), atomic_load(&c.dropped),
		     atomic_load(&c.drops));
		w->right = false;
	}
	cuf_pinned_put(rt, pinned);
}

static void *run(void *arg)
{
	struct worker *w = arg;

	w->right = true;
	while (w->right && cuf_now_ns() < until_ns) {
		if (on_host && w->index == 0 && draw(w, 8) == 0)
			cuf_host_slow(draw(w, 2) ? 0 : draw(w, 50000));
		request(w);
	}
	return NULL;
}

static long number(const char *name, long usual)
{
	char *v = getenv(name);

	return v && *v ? strtol(v, NULL, 0) : usual;
}

int main(void)
{
	static struct worker w[THREADS_MAX];
	const cuf_kernel *kernels[] = { &empty_kernel, &add_one };
	uint64_t seed = (uint64_t)number("STRESS_SEED", (long)(cuf_now_ns() % 1000000000));
	long threads = number("STRESS_THREADS", 4), seconds = number("STRESS_SECONDS", 2);
	long operations = 0;
	bool right = true;
	cuf_stats st;

	if (threads > THREADS_MAX)
		threads = THREADS_MAX;
	RIG_START(.devices = 3, .lanes = seed % 2 ? 0 : 4);
	devices = cuf_runtime_devices(rt);
	if (devices > DEVICES_MAX)
		devices = DEVICES_MAX;
	plan(5);
	diag("STRESS_SEED=%llu STRESS_THREADS=%ld STRESS_SECONDS=%ld", (unsigned long long)seed,
	     threads, seconds);
	cuf_host_seed(seed);
	cuf_kernel_prepare(rt, kernels, 2);
	until_ns = cuf_now_ns() + CUF_MS(1000 * (uint64_t)seconds);
	for (long i = 0; i < threads; i++) {
		w[i].index = (int)i;
		w[i].seed = seed * 2654435761u + (uint64_t)i * 40503 + 1;
		if (pthread_create(&w[i].thread, NULL, run, &w[i]))
			abort();
	}
	for (long i = 0; i < threads; i++) {
		pthread_join(w[i].thread, NULL);
		right &= w[i].right;
		operations += w[i].operations;
	}
	cuf_host_slow(0);
	ok(right, "every chain counted right, every watch and drop was called once");
	is_int(atomic_load(&failures), 0, "nothing failed but what was made to");
	for (int i = 0; i < RECENT; i++)
		cuf_release(shared.at[i]);
	is_int(cuf_runtime_shutdown(rt, CUF_DRAIN, cuf_now_ns() + CUF_MS(20000)), CUF_OK,
	       "nothing is left");
	st = stats();
	diag("%ld operations, %llu on devices, %llu waits, %llu elided, %llu events, %llu arms",
	     operations, (unsigned long long)st.operations, (unsigned long long)st.waits,
	     (unsigned long long)st.waits_elided, (unsigned long long)st.events,
	     (unsigned long long)st.arms);
	if (on_host)
		is_int((long long)(cuf_host_calls(CUF_HOST_MALLOC) - cuf_host_calls(CUF_HOST_FREE)),
		       0, "all memory went back");
	else
		skip(1, "only the host device counts calls");
	return rig_end();
}
