/* SPDX-License-Identifier: MIT */
/*
 * From the end of a kernel to who waits for it: a thread in cuf_wait, a continuation on the runtime's
 * loop. The raw side: cudaStreamSynchronize, and a thread that spins on cudaEventQuery.
 */
#include "bench.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels.h"

enum { ROUNDS = 40 };

static cuf_future *spin(cuf_scope *s, uint64_t ns)
{
	return cuf_launch(s, &spin_kernel, cuf_grid_1d(1, 1), CUF_ARGS(ns));
}

static void wait_ours(struct bench *b, uint64_t ns, struct series *t)
{
	uint64_t sum = 0;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t from = cuf_now_ns();
		cuf_future *f = spin(cuf_runtime_scope(b->rt), ns);

		if (cuf_wait(f))
			exit(1);
		sum += cuf_now_ns() - from - ns;
		cuf_release(f);
	}
	t->ns[t->n++] = (double)sum / ROUNDS;
}

static cuf_future *note(cuf_scope *s, cuf_future *in, void *at)
{
	(void)s, (void)in;
	atomic_store((_Atomic uint64_t *)at, cuf_now_ns());
	return NULL;
}

static void continuation_ours(struct bench *b, uint64_t ns, struct series *t)
{
	uint64_t sum = 0;

	for (int i = 0; i < ROUNDS; i++) {
		_Atomic uint64_t at = 0;
		uint64_t from = cuf_now_ns();
		cuf_future *f = spin(cuf_runtime_scope(b->rt), ns);
		cuf_future *n = cuf_then(cuf_runtime_scope(b->rt), f, note, (void *)&at);

		while (!atomic_load(&at))
			sched_yield();
		sum += at - from - ns;
		cuf_wait(n);
		cuf_release_all(f, n);
	}
	t->ns[t->n++] = (double)sum / ROUNDS;
}

static void wait_raw(struct raw_stream *s, uint64_t ns, struct series *t)
{
	uint64_t sum = 0;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t from = cuf_now_ns();

		raw_launch_spin(s, ns);
		raw_sync(s);
		sum += cuf_now_ns() - from - ns;
	}
	t->ns[t->n++] = (double)sum / ROUNDS;
}

static void query_raw(struct raw_stream *s, struct raw_event *e, uint64_t ns, struct series *t)
{
	uint64_t sum = 0;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t from = cuf_now_ns();

		raw_launch_spin(s, ns);
		raw_record(e, s);
		while (!raw_done(e))
			;
		sum += cuf_now_ns() - from - ns;
	}
	t->ns[t->n++] = (double)sum / ROUNDS;
}

void bench_latency(struct bench *b)
{
	static const unsigned us[] = { 5, 50, 200, 1000 };
	struct raw_stream *s = b->raw ? raw_stream_create() : NULL;
	struct raw_event *e = b->raw ? raw_event_create() : NULL;

	cuf_kernel_prepare(b->rt, (const cuf_kernel *const[]){ &spin_kernel }, 1);
	for (size_t k = 0; k < sizeof us / sizeof *us; k++) {
		struct series waited = { 0 }, continued = { 0 }, sync = { 0 }, query = { 0 };
		uint64_t ns = us[k] * 1000u;
		char what[64];

		for (int r = 0; r < BENCH_REPS; r++) {
			wait_ours(b, ns, &waited);
			if (b->raw)
				wait_raw(s, ns, &sync);
			continuation_ours(b, ns, &continued);
			if (b->raw)
				query_raw(s, e, ns, &query);
		}
		snprintf(what, sizeof what, "wait, %u us kernel: excess / synchronize", us[k]);
		report(what, &waited, &sync, 0);
		snprintf(what, sizeof what, "continuation, %u us kernel: excess / spinner", us[k]);
		report(what, &continued, &query, 0);
	}
}
