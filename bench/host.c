/* SPDX-License-Identifier: MIT */
/*
 * What needs no device: a promise and a long chain of continuations, in units of one uncontended
 * compare-and-swap.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

enum { N = 1000 };

static cuf_future *nothing(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	return NULL;
}

void bench_host(struct bench *b)
{
	struct series build = { 0 }, run = { 0 };
	double cas = bench_cas_ns();

	for (int r = 0; r < BENCH_REPS; r++) {
		cuf_scope *s = cuf_scope_open(cuf_runtime_scope(b->rt));
		cuf_future *f;
		cuf_promise *p = cuf_promise_create(s, &f);
		uint64_t from = cuf_now_ns();

		for (int i = 0; i < N; i++) {
			cuf_future *n = cuf_then(s, f, nothing, NULL);

			cuf_release(f);
			f = n;
		}
		series_add(&build, from, N);
		from = cuf_now_ns();
		cuf_promise_fulfil(p, NULL, NULL);
		if (cuf_wait(f))
			exit(1);
		series_add(&run, from, N);
		cuf_scope_end(s);
	}
	report("promise, then, then, ...: build", &build, NULL, 0);
	report_value("  in compare-and-swaps", series_median(&build) / cas, "cas", 0);
	report("promise, then, then, ...: run", &run, NULL, 0);
	report_value("  in compare-and-swaps", series_median(&run) / cas, "cas", 0);
}
