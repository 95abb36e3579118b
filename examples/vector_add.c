/* SPDX-License-Identifier: MIT */
/*
 * A million floats, c = a + b, each of them checked. The host's arrays are plain memory: copies go
 * through the runtime's own pinned memory, and submitting them does not wait.
 */
#include "kernels.h"

#include <stdlib.h>

#define N ((size_t)1000000)

/* On a worker, since it takes a while. */
static cuf_future *check(cuf_scope *s, cuf_future *in, void *arg)
{
	const float *a = arg, *b = a + N, *c = b + N;

	(void)in;
	for (size_t i = 0; i < N; i++)
		if (c[i] != a[i] + b[i])
			return cuf_failed(s, 1, "c[%zu] is %g, not %g", i, (double)c[i],
					  (double)(a[i] + b[i]));
	return NULL;
}

static cuf_future *submit(cuf_scope *s, float *host)
{
	const size_t n = N, bytes = n * sizeof(float);
	float *a = host, *b = a + n, *c = b + n;
	cuf_future *mem[3] = { cuf_alloc(s, bytes), cuf_alloc(s, bytes), cuf_alloc(s, bytes) };
	float *dev_a = cuf_address(mem[0]), *dev_b = cuf_address(mem[1]);
	float *dev_c = cuf_address(mem[2]);
	cuf_future *in_a = cuf_copy(s, dev_a, a, bytes, .after = CUF_AFTER(mem[0]));
	cuf_future *in_b = cuf_copy(s, dev_b, b, bytes, .after = CUF_AFTER(mem[1]));
	cuf_future *sum = cuf_launch(s, &vector_add, cuf_grid_1d(n, 256),
				     CUF_ARGS(dev_a, dev_b, dev_c, n),
				     .after = CUF_AFTER(in_a, in_b, mem[2]), .label = "sum");
	cuf_future *out = cuf_copy(s, c, dev_c, bytes, .after = CUF_AFTER(sum), .label = "out");

	return cuf_call(s, check, host, .after = CUF_AFTER(out), .label = "check");
}

int main(void)
{
	float *host = malloc(3 * N * sizeof(float));
	cuf_runtime *rt;
	cuf_status status = cuf_runtime_create(&rt, NULL);

	if (!host || status) {
		fprintf(stderr, "cannot start: %s\n",
			cuf_strerror(host ? status : CUF_ERR_NO_MEMORY));
		cuf_runtime_destroy(rt);
		free(host);
		return 1;
	}
	for (size_t i = 0; i < N; i++) {
		host[i] = (float)i;
		host[N + i] = (float)(i % 1000) / 2;
	}

	cuf_scope *s = cuf_scope_open(cuf_runtime_scope(rt), .label = "vector_add");
	submit(s, host);
	cuf_future *end = cuf_scope_close(s); /* also frees the device's memory, on every path */

	status = cuf_wait(end);
	if (status)
		cuf_error_print(stderr, cuf_error_of(end));
	else
		printf("%zu sums are right, the last is %.1f\n", N, (double)host[3 * N - 1]);
	cuf_runtime_destroy(rt);
	free(host);
	return status != 0;
}
