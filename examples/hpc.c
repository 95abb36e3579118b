/* SPDX-License-Identifier: MIT */
/*
 * y = 5 x in tiles: copies and kernels of one overlap with those of the next. Two kernels run side
 * by side, then cuBLAS adds what they made (with -DWITH_CUBLAS; else a C function on the host
 * device, a kernel on a GPU). What went wrong is told once, at the end.
 */
#include "kernels.h"

#include <cufuture/host.h>
#ifdef WITH_CUBLAS
#include <cublas_v2.h>
#else
typedef void *cublasHandle_t;
#define cublasCreate(blas)  ((void)(blas), 0)
#define cublasDestroy(blas) ((void)(blas))
#endif

enum { TILE = 1 << 16, TILES = 37 };

struct axpy {
	cublasHandle_t blas; /* NULL: none, this is the host device */
	const float *x;
	float *y;
};

static void host_axpy(void *arg)
{
	const struct axpy *p = arg;

	for (int i = 0; p->x && i < TILE; i++)
		p->y[i] += p->x[i];
}

/* Puts work on the stream that the runtime chose. */
static int run_axpy(struct CUstream_st *stream, void *arg)
{
#ifdef WITH_CUBLAS
	const struct axpy *p = arg;

	if (p->blas)
		return cublasSetStream(p->blas, stream) ||
		       cublasSaxpy(p->blas, TILE, &(float){ 1 }, p->x, 1, p->y, 1);
#endif
	return cuf_host_enqueue(stream, host_axpy, arg, sizeof(struct axpy));
}

static void submit(cuf_scope *s, const float *x, float *y, cublasHandle_t blas, bool library)
{
	const size_t n = TILE, bytes = n * sizeof(float);
	const cuf_grid g = cuf_grid_1d(n, 256);
	cuf_future *mem = cuf_alloc(s, 6 * bytes), *sum, *out[2] = { NULL };
	float *dev = cuf_address(mem); /* NULL: refused, and the scope has the error */

	for (size_t i = 0; dev && i < TILES; i++, x += n, y += n) {
		float *dx = dev + i % 2 * 3 * n, *l = dx + n, *r = l + n;
		struct axpy a = { blas, r, l };
		cuf_future *in = cuf_copy(s, dx, x, bytes, .after = CUF_AFTER(mem, out[i % 2]));
		cuf_future *left = cuf_launch(s, &scale, g, CUF_ARGS(dx, l, 2.0f, n),
					      .after = CUF_AFTER(in), .label = "left");
		cuf_future *right = cuf_launch(s, &scale, g, CUF_ARGS(dx, r, 3.0f, n),
					       .after = CUF_AFTER(in), .label = "right");

		if (library) /* .key: they share a handle, so one at a time */
			sum = cuf_enqueue(s, run_axpy, &a, .arg_bytes = sizeof a, .key = blas,
					  .after = CUF_AFTER(left, right), .label = "axpy");
		else
			sum = cuf_launch(s, &mix, g, CUF_ARGS(r, l, l, 1.0f, 1.0f, n),
					 .after = CUF_AFTER(left, right), .label = "axpy");
		out[i % 2] = cuf_copy(s, y, l, bytes, .after = CUF_AFTER(sum));
	}
}

int main(void)
{
	static float x[TILES * TILE], y[TILES * TILE];
	struct axpy a = { 0 };
	cuf_runtime *rt;
	int wrong = 0;

	if (cuf_runtime_create(&rt, NULL))
		return fprintf(stderr, "hpc: no runtime\n"), 1;
	cuf_scope *root = cuf_runtime_scope(rt), *s = cuf_scope_open(root, .label = "hpc");
	bool host = !cuf_wait(cuf_enqueue(root, run_axpy, &a, .arg_bytes = sizeof a));
	if (!host && cublasCreate(&a.blas))
		fprintf(stderr, "hpc: no cuBLAS, so a kernel of ours adds\n");
	for (int i = 0; i < TILES * TILE; i++)
		x[i] = (float)(i % 1013);
	submit(s, x, y, a.blas, host || a.blas);
	cuf_future *end = cuf_scope_close(s);
	cuf_status status = cuf_wait(end);
	if (status)
		cuf_error_print(stderr, cuf_error_of(end));
	for (int i = 0; i < TILES * TILE; i++)
		wrong += y[i] != 5 * x[i];
	printf("%d tiles, %d numbers wrong\n", TILES, wrong);
	cublasDestroy(a.blas);
	cuf_runtime_destroy(rt);
	return status || wrong;
}
