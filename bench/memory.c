/* SPDX-License-Identifier: MIT */
/*
 * Memory: a million fills held on one promise; allocations for each operation in steady state.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels.h"

enum { HELD = 1000000, STEADY = 20000 };

static size_t resident_kib(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	size_t kib = 0;

	while (f && fgets(line, sizeof line, f)) {
		if (sscanf(line, "VmRSS: %zu", &kib) == 1)
			break;
	}
	if (f)
		fclose(f);
	return kib;
}

static void held_fills(struct bench *b)
{
	cuf_scope *s = cuf_scope_open(cuf_runtime_scope(b->rt));
	cuf_future *mem = cuf_alloc(s, 256), *gate, *end;
	cuf_promise *p = cuf_promise_create(s, &gate);
	void *at = cuf_address(mem);
	size_t before = resident_kib(), after;

	for (int i = 0; i < HELD; i++)
		cuf_release(cuf_fill(s, at, i, 256, .after = CUF_AFTER(gate)));
	after = resident_kib();
	report_value("1,000,000 fills held on one promise", (double)(after - before) / 1024, "MiB",
		     256);
	cuf_promise_fail(p, 1, "not run");
	end = cuf_scope_close(s);
	cuf_wait(end);
	cuf_release(end);
}

static uint64_t allocations(struct bench *b)
{
	cuf_stats stats = { .size = sizeof stats };

	cuf_stats_of(b->rt, &stats);
	return stats.allocations;
}

static void steady(struct bench *b)
{
	cuf_scope *s = cuf_scope_open(cuf_runtime_scope(b->rt));
	uint64_t before = 0;
	cuf_future *f = NULL;

	for (int i = 0; i < 2 * STEADY; i++) {
		if (i == STEADY) /* the first half is the warm-up */
			before = allocations(b);
		f = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 1), CUF_NO_ARGS,
			       .take = CUF_AFTER(f));
		if (i % 100 == 99 && cuf_wait(f))
			exit(1);
	}
	report_value("allocations in 20,000 operations, steady", (double)(allocations(b) - before),
		     "", 0);
	cuf_scope_end(s);
}

void bench_memory(struct bench *b)
{
	steady(b);
	held_fills(b);
}
