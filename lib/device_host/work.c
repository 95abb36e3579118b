/* SPDX-License-Identifier: MIT */
/*
 * Putting work on a stream: copies, fills, kernels, C functions. Arguments are copied here, since
 * the caller's are gone when their turn comes. What runs them: session.c.
 */
#include <stdlib.h>
#include <string.h>

#include "host.h"

#define INVALID_CONFIGURATION 9	   /* cudaErrorInvalidConfiguration */
#define THREADS_IN_BLOCK      1024 /* CUDA's limit */

static cufi_lock kernels_lock;
static struct host_kernel *kernels; /* kernels_lock */

/* ---- copies ---- */

int cufi_host_copy(void *dst, const void *src, size_t bytes, struct CUstream_st *s)
{
	int code = cufi_host_begin(CUF_HOST_COPY, cufi_host_stream_device(s));
	enum cufi_memory to = CUFI_MEMORY_PAGEABLE, from = CUFI_MEMORY_PAGEABLE;
	struct host_op *op;
	void *snapshot = NULL;
	uint64_t seq;

	if (code == 0 && bytes != 0) {
		code = cufi_host_range(dst, bytes, &to);
		if (code == 0)
			code = cufi_host_range(src, bytes, &from);
	}
	if (code != 0 || bytes == 0)
		return cufi_host_return(code);
	/* As CUDA does it: pageable memory is read now, not in the order of the stream. */
	if (from == CUFI_MEMORY_PAGEABLE) {
		snapshot = malloc(bytes);
		if (snapshot == NULL)
			return cufi_host_return(CUFI_CODE_NO_MEMORY);
		memcpy(snapshot, src, bytes);
		src = snapshot;
	}
	op = cufi_host_op_new(s, HOST_COPY, &code);
	if (op == NULL) {
		free(snapshot);
		return cufi_host_return(code);
	}
	op->owned = snapshot;
	op->u.copy.dst = dst;
	op->u.copy.src = src;
	op->u.copy.bytes = bytes;
	seq = cufi_host_op_push(s, op);
	if (to != CUFI_MEMORY_PAGEABLE)
		return 0;
	/* And pageable memory has been written when the call returns. */
	cufi_host_await(s, seq);
	return cufi_host_return(cufi_host_lost(s->device)); /* lost: the copy was dropped */
}

int cufi_host_fill(void *dst, int byte, size_t bytes, struct CUstream_st *s)
{
	int code = cufi_host_begin(CUF_HOST_FILL, cufi_host_stream_device(s));
	enum cufi_memory to;
	struct host_op *op;

	if (code == 0 && bytes != 0) {
		code = cufi_host_range(dst, bytes, &to);
		if (code == 0 && to == CUFI_MEMORY_PAGEABLE)
			code = CUFI_CODE_INVALID_VALUE;
	}
	if (code != 0 || bytes == 0)
		return cufi_host_return(code);
	op = cufi_host_op_new(s, HOST_FILL, &code);
	if (op == NULL)
		return cufi_host_return(code);
	op->u.copy.dst = dst;
	op->u.copy.byte = byte;
	op->u.copy.bytes = bytes;
	cufi_host_op_push(s, op);
	return 0;
}

/* ---- kernels ---- */

/* The largest power of two that @bytes is a multiple of, up to a cache line: no type of that size
 * can want more. */
static size_t alignment_for(size_t bytes)
{
	size_t a = bytes & (~bytes + 1);

	return a == 0 || a > 64 ? 64 : a;
}

int cufi_host_kernel_load(const struct cuf_kernel *k, void **out_handle, size_t *out_bytes,
			  size_t max, int *out_n)
{
	int code = cufi_host_begin(CUF_HOST_KERNEL_LOAD, cufi_host_current());
	struct host_kernel *h;
	size_t i;

	if (code == 0 &&
	    (k == NULL || k->n_args > CUFI_HOST_ARGS || (k->n_args != 0 && k->arg_bytes == NULL)))
		code = CUFI_CODE_INVALID_VALUE;
	if (code == 0 && k->host_fn == NULL)
		code = CUFI_CODE_INVALID_FUNCTION;
	if (code != 0)
		return cufi_host_return(code);
	h = calloc(1, sizeof *h);
	if (h == NULL)
		return cufi_host_return(CUFI_CODE_NO_MEMORY);
	h->kernel = *k;
	for (i = 0; i < k->n_args; i++) {
		size_t a = alignment_for(k->arg_bytes[i]);

		h->bytes = (h->bytes + a - 1) / a * a;
		h->offset[i] = h->bytes;
		h->arg_bytes[i] = k->arg_bytes[i];
		h->bytes += k->arg_bytes[i];
		if (i < max)
			out_bytes[i] = k->arg_bytes[i];
	}
	*out_n = (int)k->n_args;
	*out_handle = h;
	cufi_lock_take(&kernels_lock);
	h->next = kernels;
	kernels = h;
	cufi_lock_give(&kernels_lock);
	return 0;
}

static bool is_launchable(const struct cuf_grid *g)
{
	uint64_t threads = 1;
	int i;

	for (i = 0; i < 3; i++) {
		if (g->blocks[i] == 0 || g->threads[i] == 0 || g->threads[i] > THREADS_IN_BLOCK)
			return false;
		threads *= g->threads[i];
	}
	return threads <= THREADS_IN_BLOCK && g->blocks[0] <= INT32_MAX &&
	       g->blocks[1] <= UINT16_MAX && g->blocks[2] <= UINT16_MAX;
}

int cufi_host_launch(void *handle, const struct cuf_grid *g, void **args, struct CUstream_st *s)
{
	int code = cufi_host_begin(CUF_HOST_LAUNCH, cufi_host_stream_device(s));
	const struct host_kernel *k = handle;
	unsigned char *to;
	struct host_op *op;
	size_t i;

	if (code == 0 && s->device != cufi_host_current())
		code = CUFI_CODE_INVALID_HANDLE; /* CUDA refuses that for launches alone */
	if (code == 0 && k == NULL)
		code = CUFI_CODE_INVALID_FUNCTION;
	if (code == 0 && !is_launchable(g))
		code = INVALID_CONFIGURATION;
	if (code != 0)
		return cufi_host_return(code);
	op = cufi_host_op_new(s, HOST_LAUNCH, &code);
	if (op == NULL)
		return cufi_host_return(code);
	to = op->payload;
	if (k->bytes > sizeof op->payload) {
		to = op->owned = aligned_alloc(64, (k->bytes + 63) / 64 * 64);
		if (to == NULL) {
			cufi_host_op_cancel(s, op);
			return cufi_host_return(CUFI_CODE_NO_MEMORY);
		}
	}
	for (i = 0; i < k->kernel.n_args; i++)
		memcpy(to + k->offset[i], args[i], k->arg_bytes[i]);
	op->u.launch.kernel = k;
	op->u.launch.grid = *g;
	cufi_host_op_push(s, op);
	return 0;
}

void cufi_host_kernels_close(void)
{
	struct host_kernel *next;

	for (; kernels != NULL; kernels = next) {
		next = kernels->next;
		free(kernels);
	}
}

/* ---- C functions ---- */

static int put_function(struct CUstream_st *s, void (*fn)(void *arg), const void *arg,
			size_t arg_bytes)
{
	struct host_op *op;
	int code;

	op = cufi_host_op_new(s, HOST_CALL, &code);
	if (op == NULL)
		return code;
	op->u.call.fn = fn;
	op->u.call.arg = (void *)(uintptr_t)arg;
	if (arg_bytes != 0) {
		op->u.call.arg = op->payload;
		if (arg_bytes > sizeof op->payload)
			op->u.call.arg = op->owned = malloc(arg_bytes);
		if (op->u.call.arg == NULL) {
			cufi_host_op_cancel(s, op);
			return CUFI_CODE_NO_MEMORY;
		}
		memcpy(op->u.call.arg, arg, arg_bytes);
	}
	cufi_host_op_push(s, op);
	return 0;
}

int cuf_host_enqueue(struct CUstream_st *stream, void (*fn)(void *arg), const void *arg,
		     size_t arg_bytes)
{
	struct CUstream_st *s = cufi_host_stream_find(stream);
	int code;

	/* The stream is the caller's for the length of his callback: it does not go. */
	cufi_host_stream_unfind();
	code = cufi_host_begin(CUF_HOST_LAUNCH, cufi_host_stream_device(s));
	if (code == 0 && (fn == NULL || (arg == NULL && arg_bytes != 0)))
		code = CUFI_CODE_INVALID_VALUE;
	if (code == 0)
		code = put_function(s, fn, arg, arg_bytes);
	return cufi_host_return(code);
}
