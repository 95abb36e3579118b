/* SPDX-License-Identifier: MIT */
#include "kernels.h"

static cuf_future *report(cuf_scope *s, cuf_future *in, void *c)
{
	(void)s, (void)in;
	printf("c[9] = %g\n", (double)((float *)c)[9]);
	return NULL; /* as what it followed: success */
}

int main(void)
{
	enum { N = 1000 };
	static float host_a[N], host_b[N], host_c[N];
	size_t n = N, bytes = sizeof host_a;
	cuf_runtime *rt;
	cuf_status status = cuf_runtime_create(&rt, NULL);
	if (status) {
		fprintf(stderr, "no runtime: %s\n", cuf_strerror(status));
		return 1;
	}
	for (int i = 0; i < N; i++)
		host_a[i] = (float)i, host_b[i] = 1;

	cuf_scope *s = cuf_scope_open(cuf_runtime_scope(rt));
	cuf_future *mem_a = cuf_alloc(s, bytes), *mem_b = cuf_alloc(s, bytes);
	float *a = cuf_address(mem_a), *b = cuf_address(mem_b);
	cuf_future *in_a = cuf_copy(s, a, host_a, bytes, .after = CUF_AFTER(mem_a));
	cuf_future *in_b = cuf_copy(s, b, host_b, bytes, .after = CUF_AFTER(mem_b));
	cuf_future *sum = cuf_launch(s, &vector_add, cuf_grid_1d(n, 256), CUF_ARGS(a, b, b, n),
				     .after = CUF_AFTER(in_a, in_b), .label = "add");
	cuf_future *out = cuf_copy(s, host_c, b, bytes, .after = CUF_AFTER(sum));
	cuf_then(s, out, report, host_c);

	cuf_future *end = cuf_scope_close(s); /* settles when all of it has, with the first error */
	if ((status = cuf_wait(end)))
		cuf_error_print(stderr, cuf_error_of(end));
	cuf_runtime_destroy(rt);
	return status != 0;
}
