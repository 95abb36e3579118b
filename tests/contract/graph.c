/* SPDX-License-Identifier: MIT */
/*
 * Graphs of operations give what one thread computing the same in order gives: chains, diamonds,
 * fans, and random graphs over shared buffers with every kind of hazard, from several threads. A
 * buffer begins as a number that no right result contains, so that whatever runs too early shows.
 */
#include "tap.h"
#include "contract/rig.h"

#include <math.h>

enum { N = 64 };		  /* floats in a buffer */
static const float poison = 1e6f; /* right results stay below 2 */

static cuf_future *mix_into(cuf_scope *s, const float *x, const float *y, float *out, float a,
			    float b, const cuf_options *o)
{
	return cuf_launch_with(s, &mix, cuf_grid_1d(N, 32), CUF_ARGS(x, y, out, a, b, (size_t)N),
			       o);
}

/* What the kernel does, rounded after each step as there. */
static void mix_here(const float *x, const float *y, float *out, float a, float b)
{
	for (int i = 0; i < N; i++) {
		volatile float ax = a * x[i], by = b * y[i];

		out[i] = ax + by;
	}
}

static bool same(const float *got, const float *want, const char *what, int which)
{
	for (int i = 0; i < N; i++) {
		if (got[i] != want[i]) {
			diag("%s %d: element %d is %.9g, not %.9g", what, which, i, (double)got[i],
			     (double)want[i]);
			return false;
		}
	}
	return true;
}

/* ---- chains ---- */

static void check_chain(bool take, int links)
{
	cuf_scope *s = cuf_scope_open(root);
	int *back = cuf_pinned_get(rt, N * sizeof *back);
	cuf_future *f = cuf_alloc(s, N * sizeof *back), *next;
	int *at = cuf_address(f);
	bool right = true;

	next = cuf_fill(s, at, 0, N * sizeof *back, .after = CUF_AFTER(f));
	for (int i = 0; i < links; i++) {
		f = next;
		if (take) {
			next = cuf_launch(s, &add_one, cuf_grid_1d(N, 32), CUF_ARGS(at, (size_t)N),
					  .take = CUF_LIST(f));
		} else {
			next = cuf_launch(s, &add_one, cuf_grid_1d(N, 32), CUF_ARGS(at, (size_t)N),
					  .after = CUF_AFTER(f));
			cuf_release(f);
		}
	}
	f = cuf_copy(s, back, at, N * sizeof *back, .take = CUF_LIST(next));
	is_int(ends(f), CUF_OK, "a chain of %d, %s", links, take ? "taken" : "held");
	for (int i = 0; i < N; i++)
		right &= back[i] == links;
	ok(right, "counted every link once");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
	cuf_pinned_put(rt, back);
}

/* ---- diamonds and fans ---- */

static void check_diamonds(void)
{
	enum { MANY = 200 };
	cuf_scope *s = cuf_scope_open(root);
	float *back = cuf_pinned_get(rt, sizeof *back * N * MANY), want[N], one[N];
	cuf_future *mem = cuf_alloc(s, sizeof *back * N * 4 * MANY), *last[MANY];
	float *at = cuf_address(mem);
	bool right = true;

	for (int i = 0; i < MANY; i++) {
		float *p = at + (size_t)4 * N * i;
		cuf_future *a, *b, *c, *d;

		a = cuf_fill(s, p, 0x3f, sizeof *p * N, .after = CUF_AFTER(mem));
		b = mix_into(s, p, p, p + N, 0.5f, 0.25f, CUF_OPTIONS(.after = CUF_AFTER(a)));
		c = mix_into(s, p, p, p + 2 * N, 0.125f, 0.5f, CUF_OPTIONS(.take = CUF_LIST(a)));
		d = mix_into(s, p + N, p + 2 * N, p + 3 * N, 0.5f, 2.0f,
			     CUF_OPTIONS(.take = CUF_LIST(b, c)));
		last[i] = cuf_copy(s, back + N * i, p + 3 * N, sizeof *p * N, .take = CUF_LIST(d));
	}
	memset(one, 0x3f, sizeof one);
	for (int i = 0; i < N; i++) {
		volatile float b = 0.5f * one[i] + 0.25f * one[i],
			       c = 0.125f * one[i] + 0.5f * one[i];

		want[i] = 0.5f * b + 2.0f * c;
	}
	for (int i = 0; i < MANY; i++) {
		right &= ends(last[i]) == CUF_OK;
		right = right && same(back + N * i, want, "diamond", i);
	}
	ok(right, "%d diamonds", MANY);
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
	cuf_pinned_put(rt, back);
}

static void check_fans(void)
{
	enum { WIDE = 500 };
	cuf_scope *s = cuf_scope_open(root);
	int *back = cuf_pinned_get(rt, sizeof *back * N * WIDE);
	cuf_future *mem = cuf_alloc(s, sizeof *back * N * WIDE), *leaf[WIDE], *start, *f;
	int *at = cuf_address(mem);
	bool right = true;

	start = cuf_fill(s, at, 0, sizeof *back * N * WIDE, .after = CUF_AFTER(mem));
	for (int i = 0; i < WIDE; i++) {
		leaf[i] = cuf_launch(s, &add_one, cuf_grid_1d(N, 32),
				     CUF_ARGS(at + (size_t)N * i, (size_t)N),
				     .after = CUF_AFTER(start));
	}
	/* all of them, twice named */
	f = cuf_launch(s, &add_one, cuf_grid_1d((size_t)N * WIDE, 256),
		       CUF_ARGS(at, (size_t)N * WIDE), .after = CUF_AFTER_N(leaf, WIDE),
		       .take = CUF_AFTER_N(leaf, WIDE));
	f = cuf_copy(s, back, at, sizeof *back * N * WIDE, .take = CUF_LIST(f));
	is_int(ends(f), CUF_OK, "one to %d, and back to one", WIDE);
	for (int i = 0; i < N * WIDE; i++)
		right &= back[i] == 2;
	ok(right, "each leaf before the join, and after the start");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
	cuf_pinned_put(rt, back);
}

/* ---- random graphs ---- */

enum { BUFFERS = 20, READERS = 8, THREADS = 4 };

/* A buffer: who wrote it last, who has read it since; a reference of each. */
struct buffer {
	float *at, here[N];
	cuf_future *writer, *reader[READERS];
	int n_readers;
};

struct graph {
	pthread_t thread;
	uint64_t seed;
	int operations;
	cuf_scope *scope;
	struct buffer buffer[BUFFERS];
	const float *shared, *shared_here; /* what no graph writes */
	cuf_future *shared_ready;
	bool right;
};

static uint64_t draw(struct graph *g, uint64_t below)
{
	g->seed ^= g->seed << 13;
	g->seed ^= g->seed >> 7;
	g->seed ^= g->seed << 17;
	return g->seed % below;
}

static struct buffer *draw_buffer(struct graph *g, const struct buffer *but)
{
	struct buffer *b;

	do
		b = &g->buffer[draw(g, BUFFERS)];
	while (b == but);
	return b;
}

static void note_reader(struct buffer *b, cuf_future *f)
{
	if (b->n_readers == READERS) {
		/* No room to remember another: the oldest has ended before this goes on. */
		ends(b->reader[0]);
		cuf_release(b->reader[0]);
		memmove(b->reader, b->reader + 1, sizeof b->reader[0] * (READERS - 1));
		b->n_readers--;
	}
	b->reader[b->n_readers++] = cuf_retain(f);
}

/*
 * One operation: reads two buffers (or one, or none), writes a third. It comes after who wrote what
 * it reads, and after who wrote and read what it overwrites: as a success edge with the reference
 * given away, as one with the reference kept, or as an order edge.
 */
static void add_operation(struct graph *g)
{
	static const float parts[] = { 0.125f, 0.375f, 0.5f, 0.625f };
	struct buffer *out = draw_buffer(g, NULL), *x = draw_buffer(g, out),
		      *y = draw_buffer(g, out);
	uint64_t what = draw(g, 10), edge = draw(g, 3);
	float a = parts[draw(g, 4)], b = 1.0f - a;
	int byte = draw(g, 2) ? 0x3e : 0x3f;
	cuf_future *after[3 + READERS], *before[1 + READERS], *f;
	size_t n_after = 0, n_before = 0;
	cuf_options o = { .size = sizeof o };

	if (draw(g, 8) == 0)
		o.priority = draw(g, 2) ? CUF_HIGH : CUF_LOW;
	if (out->writer)
		before[n_before++] = out->writer;
	for (int i = 0; i < out->n_readers; i++)
		before[n_before++] = out->reader[i];
	if (what < 9)
		after[n_after++] = x->writer;
	if (what < 3)
		after[n_after++] = g->shared_ready;
	else if (what < 7)
		after[n_after++] = y->writer;
	if (edge == 0)
		o.take = CUF_AFTER_N(before, n_before);
	else if (edge == 1)
		o.after_settled = CUF_AFTER_N(before, n_before);
	else
		for (size_t i = 0; i < n_before; i++)
			after[n_after++] = before[i];
	o.after = CUF_AFTER_N(after, n_after);
	if (what < 3) {
		f = mix_into(g->scope, x->at, g->shared, out->at, a, b, &o);
		mix_here(x->here, g->shared_here, out->here, a, b);
	} else if (what < 7) {
		f = mix_into(g->scope, x->at, y->at, out->at, a, b, &o);
		mix_here(x->here, y->here, out->here, a, b);
	} else if (what < 9) {
		f = cuf_copy_with(g->scope, out->at, x->at, sizeof x->here, &o);
		memcpy(out->here, x->here, sizeof x->here);
	} else {
		f = cuf_fill_with(g->scope, out->at, byte, sizeof out->here, &o);
		memset(out->here, byte, sizeof out->here);
	}
	if (edge != 0)
		cuf_release_n(before, n_before);
	out->n_readers = 0;
	out->writer = f;
	if (what < 9)
		note_reader(x, f);
	if (what >= 3 && what < 7 && y != x)
		note_reader(y, f);
}

static void *run_graph(void *arg)
{
	struct graph *g = arg;
	float *back = cuf_pinned_get(rt, sizeof *back * N * BUFFERS);
	cuf_future *last[BUFFERS];

	for (int i = 0; i < g->operations; i++)
		add_operation(g);
	for (int i = 0; i < BUFFERS; i++)
		last[i] = cuf_copy(g->scope, back + N * i, g->buffer[i].at, sizeof *back * N,
				   .after = CUF_AFTER(g->buffer[i].writer));
	g->right = true;
	for (int i = 0; i < BUFFERS; i++) {
		struct buffer *b = &g->buffer[i];

		g->right &= ends(last[i]) == CUF_OK;
		g->right = g->right && same(back + N * i, b->here, "buffer", i);
		cuf_release(last[i]);
		cuf_release(b->writer);
		cuf_release_n(b->reader, (size_t)b->n_readers);
	}
	cuf_pinned_put(rt, back);
	return NULL;
}

/* Memory, as soon as a lane has room: an alloc is refused as busy where none has. */
static cuf_future *alloc(cuf_scope *s, size_t bytes)
{
	cuf_future *mem = cuf_alloc(s, bytes);

	while (!cuf_address(mem) && cuf_wait(mem) == CUF_ERR_BUSY) {
		cuf_ignore(mem);
		cuf_release(mem);
		usleep(1000);
		mem = cuf_alloc(s, bytes);
	}
	return mem;
}

static void start_graph(struct graph *g, cuf_scope *s, const float *poisoned)
{
	cuf_future *mem = alloc(s, sizeof(float) * N * BUFFERS), *f;
	float *at = cuf_address(mem);

	g->scope = s;
	for (int i = 0; i < BUFFERS; i++) {
		struct buffer *b = &g->buffer[i];
		int byte = 0x3d + i % 3;

		b->at = at + N * i;
		f = cuf_copy(s, b->at, poisoned, sizeof *at * N, .after = CUF_AFTER(mem));
		b->writer = cuf_fill(s, b->at, byte, sizeof *at * N, .take = CUF_LIST(f));
		memset(b->here, byte, sizeof b->here);
	}
	cuf_release(mem);
	if (pthread_create(&g->thread, NULL, run_graph, g))
		abort();
}

static void check_random(uint64_t seed, int operations)
{
	static struct graph g[THREADS];
	cuf_scope *s = cuf_scope_open(root);
	float *poisoned = cuf_pinned_get(rt, sizeof *poisoned * N), here[N];
	cuf_future *mem = alloc(s, sizeof here), *ready;
	bool right = true;

	for (int i = 0; i < N; i++)
		poisoned[i] = poison;
	memset(here, 0x3e, sizeof here);
	/* late, so that everything which reads it early shows */
	ready = cuf_copy(s, cuf_address(mem), poisoned, sizeof here, .after = CUF_AFTER(mem));
	ready = cuf_launch(s, &spin_kernel, cuf_grid_1d(1, 32), CUF_ARGS((uint64_t)3000000),
			   .take = CUF_LIST(ready));
	ready = cuf_fill(s, cuf_address(mem), 0x3e, sizeof here, .take = CUF_LIST(ready));
	for (int i = 0; i < THREADS; i++) {
		memset(&g[i], 0, sizeof g[i]);
		g[i].seed = seed * 1000003 + (uint64_t)i * 7919 + 1;
		g[i].operations = operations;
		g[i].shared = cuf_address(mem);
		g[i].shared_here = here;
		g[i].shared_ready = ready;
		start_graph(&g[i], s, poisoned);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(g[i].thread, NULL);
		right &= g[i].right;
	}
	ok(right, "%d random graphs of %d operations, seed %llu", THREADS, operations,
	   (unsigned long long)seed);
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
	cuf_pinned_put(rt, poisoned);
}

int main(void)
{
	uint64_t seed = getenv("GRAPH_SEED") ? strtoull(getenv("GRAPH_SEED"), NULL, 0) : 0;

	RIG_START(.devices = 1);
	plan(4 * 3 + 2 + 3 + 5 * 2 + 2 + 1 + 1);
	check_chain(true, 100);
	check_chain(false, 100);
	check_chain(true, 3000);
	check_chain(false, 3000);
	check_diamonds();
	check_fans();
	for (uint64_t i = 1; i <= 5; i++)
		check_random(seed ? seed + i - 1 : i, 1500);
	/* few lanes, many graphs: taken lanes, requests, backlogs */
	RIG_START(.devices = 1, .lanes = 2);
	check_random(seed ? seed : 6, 1500);
	is_int(atomic_load(&unobserved), 0, "no error went unobserved");
	return rig_end();
}
