/* SPDX-License-Identifier: MIT */
/*
 * The threads that drain streams, for all devices. A session may last as long as a user's kernel
 * does, and that may wait for another stream: so as long as a stream is ready, there is a worker
 * that is not in a session and will take it, woken or made anew. There are never more workers than
 * were needed at once. What a session does: session.c.
 */
#include <stdio.h>
#include <stdlib.h>

#include "host.h"

/* How many of the streams that became ready first a seed chooses among (arbitrary). */
#define CHOICE 8u

struct host_worker {
	struct host_worker *next, *idle_next;
	struct cufi_thread thread;
	_Atomic uint32_t word; /* 1: woken */
};

static struct host_worker spawn; /* the address alone: a worker is to be made */

static struct {
	cufi_lock lock; /* guards from here */
	struct CUstream_st *ready, **ready_last;
	unsigned looking; /* workers in no session that will look at the list before they sleep */
	unsigned n_workers;
	struct host_worker *idle; /* the last to fall asleep first: its cache is warm */
	struct host_worker *all;
	/* to here */
	_Atomic uint32_t closing; /* slow operations sleep on it */
} pool = { .ready_last = &pool.ready };

/* Under the lock. Whom rouse() has to be given, so that somebody looks. */
static struct host_worker *have_one_look(void)
{
	struct host_worker *w = pool.idle;

	if (pool.looking != 0 || pool.ready == NULL)
		return NULL;
	pool.looking++;
	if (w == NULL)
		return &spawn;
	pool.idle = w->idle_next;
	return w;
}

struct host_worker *cufi_host_ready(struct CUstream_st *s)
{
	struct host_worker *w;

	cufi_lock_take(&pool.lock);
	s->ready_next = NULL;
	*pool.ready_last = s;
	pool.ready_last = &s->ready_next;
	w = have_one_look();
	cufi_lock_give(&pool.lock);
	return w;
}

/* Under the lock. */
static struct CUstream_st *take_ready(void)
{
	struct CUstream_st **at = &pool.ready, *s;

	if (pool.ready != NULL && pool.ready->ready_next != NULL && cufi_host_seeded()) {
		uint64_t skip = cufi_host_random(HOST_CHOOSE_STREAM) % CHOICE;

		while (skip-- > 0)
			at = (*at)->ready_next != NULL ? &(*at)->ready_next : &pool.ready;
	}
	s = *at;
	if (s != NULL) {
		*at = s->ready_next;
		if (pool.ready_last == &s->ready_next)
			pool.ready_last = at;
	}
	return s;
}

static void run_worker(void *arg)
{
	struct host_worker *w = arg, *other;
	struct CUstream_st *s;

	cufi_lock_take(&pool.lock);
	/* relaxed: written under the lock. Who made or woke this worker has counted it as looking. */
	while (atomic_load_explicit(&pool.closing, memory_order_relaxed) == 0) {
		s = take_ready();
		pool.looking--;
		if (s != NULL) {
			other = have_one_look();
			cufi_lock_give(&pool.lock);
			cufi_host_rouse(other);
			cufi_host_session(s);
			cufi_lock_take(&pool.lock);
			pool.looking++;
			continue;
		}
		/* relaxed: whoever takes it off the idle list does so under the lock */
		atomic_store_explicit(&w->word, 0, memory_order_relaxed);
		w->idle_next = pool.idle;
		pool.idle = w;
		cufi_lock_give(&pool.lock);
		/* acquire: pairs with cufi_host_rouse(): nothing but the wake */
		while (atomic_load_explicit(&w->word, memory_order_acquire) == 0)
			(void)cufi_park(&w->word, 0, CUFI_FOREVER);
		cufi_lock_take(&pool.lock);
	}
	cufi_lock_give(&pool.lock);
}

/* The lock is held while the thread starts: the closer may not see half of it. */
static int start_worker(void)
{
	struct host_worker *w = calloc(1, sizeof *w);
	char name[16];
	int err = CUFI_CODE_NO_MEMORY;

	cufi_lock_take(&pool.lock);
	/* relaxed: written under the lock */
	if (w != NULL && atomic_load_explicit(&pool.closing, memory_order_relaxed) == 0) {
		(void)snprintf(name, sizeof name, "host-%u", pool.n_workers % 10000);
		err = cufi_thread_start(&w->thread, name, run_worker, w, NULL);
	}
	if (err == 0) {
		pool.n_workers++;
		w->next = pool.all;
		pool.all = w;
	} else {
		/* No thread to be had: whoever ends its session next looks. */
		pool.looking--;
		free(w);
	}
	cufi_lock_give(&pool.lock);
	return err;
}

void cufi_host_rouse(struct host_worker *w)
{
	if (w == NULL)
		return;
	if (w == &spawn) {
		(void)start_worker();
		return;
	}
	/* release: pairs with run_worker(): nothing but the wake */
	atomic_store_explicit(&w->word, 1, memory_order_release);
	cufi_wake(&w->word, 1);
}

int cufi_host_pool_open(void)
{
	/* One is there from the start, so that a failure to make more only costs parallelism.
	 * relaxed: no other thread is here yet */
	atomic_store_explicit(&pool.closing, 0, memory_order_relaxed);
	pool.looking = 1;
	pool.ready = NULL; /* a host function's last kick may have come after the close */
	pool.ready_last = &pool.ready;
	return start_worker() != 0 ? CUFI_CODE_NO_MEMORY : 0;
}

void cufi_host_pool_close(void)
{
	struct host_worker *w, *next, *idle;

	cufi_lock_take(&pool.lock);
	/* relaxed: under the lock; cufi_host_sleep_until() looks again when woken */
	atomic_store_explicit(&pool.closing, 1, memory_order_relaxed);
	idle = pool.idle;
	pool.idle = NULL;
	cufi_lock_give(&pool.lock);
	cufi_wake(&pool.closing, INT32_MAX);
	for (w = idle; w != NULL; w = next) {
		next = w->idle_next;
		cufi_host_rouse(w);
	}
	/* None is added any more; none leaves the list but here. */
	for (w = pool.all; w != NULL; w = next) {
		next = w->next;
		cufi_thread_join(&w->thread);
		free(w);
	}
	pool.all = NULL;
	pool.n_workers = 0;
}

bool cufi_host_closing(void)
{
	/* relaxed: only ends sleeps and sessions sooner */
	return atomic_load_explicit(&pool.closing, memory_order_relaxed) != 0;
}

void cufi_host_sleep_until(uint64_t deadline_ns)
{
	while (!cufi_host_closing())
		if (!cufi_park(&pool.closing, 0, deadline_ns))
			return;
}
