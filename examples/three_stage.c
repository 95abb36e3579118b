/* SPDX-License-Identifier: MIT */
/*
 * Load, preprocess, compute, for many batches, all submitted at once. A batch uses one of a few
 * buffers, after the batch that had it before; there is no other order between batches, and so
 * they overlap.
 */
#include "kernels.h"

enum { BATCHES = 64, BUFFERS = 4, N = 1 << 16 };

struct buffer {
	float *host, *dev;		 /* host: pinned */
	cuf_future *allocated, *checked; /* checked: the last batch in it has ended */
};

struct batch {
	int number;
	float *host;
};

static float number_in(const struct batch *b, size_t i)
{
	return (float)((i * 7 + (size_t)b->number) % 1009);
}

/* Stands for a file or a socket: on a worker, which may block. */
static cuf_future *load(cuf_scope *s, cuf_future *in, void *arg)
{
	const struct batch *b = arg;

	(void)s, (void)in;
	for (size_t i = 0; i < N; i++)
		b->host[i] = number_in(b, i);
	return NULL;
}

static cuf_future *check(cuf_scope *s, cuf_future *in, void *arg)
{
	const struct batch *b = arg;

	(void)in;
	for (size_t i = 0; i < N; i++)
		if (b->host[i] != 1.5f * number_in(b, i))
			return cuf_failed(s, b->number, "batch %d is wrong at %zu", b->number, i);
	return NULL;
}

static void submit(cuf_scope *s, int number, struct buffer *buf)
{
	struct batch b = { number, buf->host };
	const size_t n = N, bytes = n * sizeof(float);
	const cuf_grid grid = cuf_grid_1d(n, 256);
	float *dev = buf->dev;

	cuf_future *loaded = cuf_call(s, load, &b, .arg_bytes = sizeof b, .label = "load",
				      .after = CUF_AFTER(buf->checked));
	cuf_future *in =
		cuf_copy(s, dev, b.host, bytes, .after = CUF_AFTER(loaded, buf->allocated));
	cuf_future *ready = cuf_launch(s, &scale, grid, CUF_ARGS(dev, dev, 0.5f, n),
				       .after = CUF_AFTER(in), .label = "preprocess");
	cuf_future *done = cuf_launch(s, &mix, grid, CUF_ARGS(dev, dev, dev, 2.0f, 1.0f, n),
				      .after = CUF_AFTER(ready), .label = "compute");
	cuf_future *out = cuf_copy(s, b.host, dev, bytes, .after = CUF_AFTER(done));

	buf->checked = cuf_call(s, check, &b, .arg_bytes = sizeof b, .label = "check",
				.after = CUF_AFTER(out));
}

int main(void)
{
	struct buffer buffers[BUFFERS] = { 0 };
	cuf_runtime *rt;
	cuf_status status = cuf_runtime_create(&rt, NULL);

	if (status) {
		fprintf(stderr, "no runtime: %s\n", cuf_strerror(status));
		return 1;
	}
	cuf_scope *s = cuf_scope_open(cuf_runtime_scope(rt), .label = "three_stage");
	for (struct buffer *b = buffers; b < buffers + BUFFERS; b++) {
		b->allocated = cuf_alloc(s, N * sizeof(float));
		b->dev = cuf_address(b->allocated);
		b->host = cuf_pinned_get(rt, N * sizeof(float));
		if (!b->host) /* what waits for this never runs, and says why */
			b->checked = cuf_failed(s, 1, "no pinned memory");
	}
	for (int i = 0; i < BATCHES; i++)
		submit(s, i, &buffers[i % BUFFERS]);
	cuf_future *end = cuf_scope_close(s); /* settles when all batches have been checked */
	status = cuf_wait(end);
	if (status)
		cuf_error_print(stderr, cuf_error_of(end));
	else
		printf("%d batches of %d numbers are right\n", BATCHES, N);
	for (struct buffer *b = buffers; b < buffers + BUFFERS; b++)
		cuf_pinned_put(rt, b->host);
	cuf_runtime_destroy(rt);
	return status != 0;
}
