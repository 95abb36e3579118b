/* SPDX-License-Identifier: MIT */
/*
 * A fault in the middle of a chain: the library that should filter the samples refuses. What
 * depends on it never runs, and names the same root cause; a catch does without the filter. A
 * launch that cannot be made, and that nobody asked for, makes its scope fail.
 */
#include "kernels.h"

enum { N = 4, NO_LICENCE = 42 };

struct samples {
	float *host, *dev;
	size_t n;
};

/* Stands for a call of cuBLAS, cuFFT, NCCL, ... that puts work on @stream. */
static int filter(struct CUstream_st *stream, void *arg)
{
	(void)stream, (void)arg;
	return NO_LICENCE;
}

/* Every field of an error is there to be asked for. These are the same on any device. */
static void tell(const char *what, cuf_future *f)
{
	cuf_error_info e = { .size = sizeof e };

	cuf_error_get(cuf_error_of(f), &e);
	printf("%s: %s; first was \"%s\" (%s), code %d%s\n", what, cuf_strerror(e.status), e.label,
	       e.operation, e.user_code, e.inherited ? ", inherited" : "");
	cuf_error_print(stderr, cuf_error_of(f)); /* or all of it, for a person */
}

/* Recovers: the result is as the future returned here. */
static cuf_future *without_filter(cuf_scope *s, cuf_future *in, void *arg)
{
	const struct samples *p = arg;

	tell("scaled", in);
	cuf_future *k = cuf_launch(s, &scale, cuf_grid_1d(p->n, 256),
				   CUF_ARGS(p->dev, p->dev, 10.0f, p->n), .label = "unfiltered");

	return cuf_copy(s, p->host, p->dev, p->n * sizeof(float), .take = CUF_AFTER(k));
}

static cuf_future *report(cuf_scope *s, cuf_future *in, void *arg)
{
	const struct samples *p = arg;

	(void)s, (void)in;
	printf("recovered: %g %g %g %g\n", (double)p->host[0], (double)p->host[1],
	       (double)p->host[2], (double)p->host[3]);
	return NULL;
}

static void submit(cuf_scope *s, float *host, size_t n)
{
	cuf_future *mem = cuf_alloc(s, n * sizeof(float), .label = "samples");
	struct samples p = { host, cuf_address(mem), n };
	cuf_future *in = cuf_copy(s, p.dev, host, n * sizeof(float), .after = CUF_AFTER(mem));
	cuf_future *filtered =
		cuf_enqueue(s, filter, NULL, .after = CUF_AFTER(in), .label = "filter");
	cuf_future *scaled = cuf_launch(s, &scale, cuf_grid_1d(n, 256),
					CUF_ARGS(p.dev, p.dev, 2.0f, n),
					.after = CUF_AFTER(filtered), .label = "scale");
	cuf_future *out = cuf_copy(s, host, p.dev, n * sizeof(float), .after = CUF_AFTER(scaled));
	cuf_future *good = cuf_catch(s, out, without_filter, &p, .arg_bytes = sizeof p);

	cuf_then(s, good, report, &p, .arg_bytes = sizeof p);
}

int main(void)
{
	static float host[N] = { 1, 2, 3, 4 };
	cuf_runtime *rt;
	cuf_status status = cuf_runtime_create(&rt, NULL);

	if (status) {
		fprintf(stderr, "no runtime: %s\n", cuf_strerror(status));
		return 1;
	}
	cuf_scope *s = cuf_scope_open(cuf_runtime_scope(rt), .label = "caught");
	submit(s, host, N);
	cuf_future *end = cuf_scope_close(s);

	status = cuf_wait(end);
	printf("the scope whose error was caught: %s\n", cuf_strerror(status));
	if (status)
		cuf_error_print(stderr, cuf_error_of(end));

	s = cuf_scope_open(cuf_runtime_scope(rt), .label = "not caught");
	cuf_launch(s, &empty_kernel, cuf_grid_1d(0, 256), CUF_NO_ARGS, .label = "no blocks");
	end = cuf_scope_close(s);
	if (cuf_wait(end) == CUF_OK)
		status = CUF_ERR_INVALID;
	tell("the other scope", end);
	cuf_runtime_destroy(rt);
	return status != 0;
}
