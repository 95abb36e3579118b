/* SPDX-License-Identifier: MIT */
/*
 * Chains of empty kernels, drained: with taken references and one observer at the end, with held
 * references, and with a continuation on every operation. The raw side: the launches on one stream,
 * an event behind each where ours has a reference that somebody may still name.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels.h"

enum { N = 2000 };

static void must(cuf_future *f, const char *what)
{
	if (cuf_wait(f)) {
		fprintf(stderr, "%s: ", what);
		cuf_error_print(stderr, cuf_error_of(f));
		exit(1);
	}
}

static cuf_future *empty(cuf_scope *s, const cuf_options *o)
{
	return cuf_launch_with(s, &empty_kernel, cuf_grid_1d(1, 1), CUF_NO_ARGS, o);
}

static void taken(struct bench *b, struct series *t)
{
	cuf_scope *s = cuf_scope_open(cuf_runtime_scope(b->rt));
	uint64_t from = cuf_now_ns();
	cuf_future *f = NULL;

	for (int i = 0; i < N; i++)
		f = empty(s, CUF_OPTIONS(.take = CUF_AFTER(f)));
	must(f, "taken");
	series_add(t, from, N);
	cuf_scope_end(s);
}

static void held(struct bench *b, struct series *t)
{
	static cuf_future *f[N];
	cuf_scope *s = cuf_scope_open(cuf_runtime_scope(b->rt));
	uint64_t from = cuf_now_ns();

	for (int i = 0; i < N; i++)
		f[i] = empty(s, CUF_OPTIONS(.after = CUF_AFTER(i ? f[i - 1] : NULL)));
	must(f[N - 1], "held");
	series_add(t, from, N);
	cuf_scope_end(s);
}

static cuf_future *count(cuf_scope *s, cuf_future *in, void *n)
{
	(void)s, (void)in;
	++*(int *)n;
	return NULL;
}

static void observed(struct bench *b, struct series *t)
{
	cuf_scope *s = cuf_scope_open(cuf_runtime_scope(b->rt));
	uint64_t from = cuf_now_ns();
	cuf_future *f = NULL, *end;
	int n = 0;

	for (int i = 0; i < N; i++) {
		f = empty(s, CUF_OPTIONS(.take = CUF_AFTER(f)));
		cuf_release(cuf_then(s, f, count, &n));
	}
	end = cuf_scope_close(s);
	must(end, "observed");
	series_add(t, from, N);
	cuf_release(end);
	if (n != N) {
		fprintf(stderr, "observed: %d of %d continuations ran\n", n, N);
		exit(1);
	}
}

static void raw(struct raw_stream *s, struct raw_event **e, struct series *t)
{
	uint64_t from = cuf_now_ns();

	for (int i = 0; i < N; i++) {
		raw_launch_empty(s);
		if (e)
			raw_record(e[i], s);
	}
	raw_sync(s);
	series_add(t, from, N);
}

/* Host cost of the call alone: few enough that nothing is harvested between. */
static void launch_alone(struct bench *b, struct series *t)
{
	cuf_scope *s = cuf_scope_open(cuf_runtime_scope(b->rt));
	cuf_future *f = NULL, *end;
	uint64_t from = cuf_now_ns();

	for (int i = 0; i < 200; i++)
		f = empty(s, CUF_OPTIONS(.take = CUF_AFTER(f)));
	series_add(t, from, 200);
	end = cuf_scope_close(s);
	must(end, "launch");
	cuf_release(end);
}

static void raw_alone(struct raw_stream *s, struct series *t)
{
	uint64_t from = cuf_now_ns();

	for (int i = 0; i < 200; i++)
		raw_launch_empty(s);
	series_add(t, from, 200);
	raw_sync(s);
}

void bench_chain(struct bench *b)
{
	struct series ours_taken = { 0 }, ours_held = { 0 }, ours_observed = { 0 }, alone = { 0 };
	struct series raw_plain = { 0 }, raw_recorded = { 0 }, raw_launches = { 0 };
	struct raw_stream *s = b->raw ? raw_stream_create() : NULL;
	static struct raw_event *e[N];

	for (int i = 0; b->raw && i < N; i++)
		e[i] = raw_event_create();
	cuf_kernel_prepare(b->rt, (const cuf_kernel *const[]){ &empty_kernel }, 1);
	for (int r = -2; r < BENCH_REPS; r++) {
		if (r == 0) /* what came before was the warm-up */
			ours_taken.n = ours_held.n = ours_observed.n = alone.n = raw_plain.n =
				raw_recorded.n = raw_launches.n = 0;
		taken(b, &ours_taken);
		if (b->raw)
			raw(s, NULL, &raw_plain);
		held(b, &ours_held);
		if (b->raw)
			raw(s, e, &raw_recorded);
		observed(b, &ours_observed);
		launch_alone(b, &alone);
		if (b->raw)
			raw_alone(s, &raw_launches);
	}
	report("chain, taken, one observer / launches", &ours_taken, &raw_plain, 1.15);
	report("chain, held / launches", &ours_held, &raw_plain, 1.5);
	report("chain, held / launch + record", &ours_held, &raw_recorded, 0);
	report("chain, every operation observed / launches", &ours_observed, &raw_plain, 2);
	report("chain, observed / launch + record", &ours_observed, &raw_recorded, 0);
	report("launch alone / raw launch", &alone, &raw_launches, 0);
}
