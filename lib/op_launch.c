/* SPDX-License-Identifier: MIT */
/*
 * Launches: arguments checked against the kernel and copied, the kernel loaded where it was not yet.
 */
#include <limits.h>
#include <string.h>

#include "begin.h"
#include "error.h"
#include "future.h"
#include "kernel.h"
#include "machine.h"
#include "scope.h"
#include "submit.h"

/* An argument is aligned in its copy to no more than this: what CUDA's largest vector types need. */
#define ALIGN 16u

struct launch {
	struct cufi_place place; /* first */
	struct cufi_kernel *kernel;
	cuf_grid grid;
};

static size_t aligned(size_t bytes)
{
	return (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

/* Values are packed one behind the other, each aligned; their places follow from the sizes. */
static char *values(struct cufi_op *op)
{
	return (char *)aligned((size_t)(uintptr_t)cufi_op_bytes(op));
}

static int launch_enqueue(struct cufi_op *op, struct cufi_lane *l)
{
	struct launch *p = cufi_op_params(op);
	const struct cuf_kernel *k = p->kernel->k;
	void *args[CUFI_KERNEL_ARGS + 1];
	char *at = values(op);
	/* acquire: pairs with the release in cufi_kernel_load */
	void *handle =
		atomic_load_explicit(&p->kernel->handle[l->dev->index], memory_order_acquire);

	if (!handle) {
		/* On the enqueuer's thread only: see launch_held. */
		int code = cufi_kernel_load(l->dev, p->kernel);

		if (code)
			return code;
		/* acquire: pairs with the release in cufi_kernel_load */
		handle = atomic_load_explicit(&p->kernel->handle[l->dev->index],
					      memory_order_acquire);
	}
	for (size_t i = 0; i < k->n_args; i++) {
		args[i] = at;
		at += aligned(k->arg_bytes[i]);
	}
	args[k->n_args] = NULL;
	return l->dev->ops->launch(handle, &p->grid, args, l->stream);
}

/* Loading can wait for running kernels: not on the submitter's thread. */
static bool launch_held(struct cufi_op *op)
{
	struct launch *p = cufi_op_params(op);

	/* acquire: pairs with the release in cufi_kernel_load */
	return !atomic_load_explicit(&p->kernel->handle[op->device], memory_order_acquire);
}

static struct cufi_estimate *launch_estimate(struct cufi_op *op)
{
	return &((struct launch *)cufi_op_params(op))->kernel->duration;
}

static const char *launch_explain(struct cufi_op *op, int code, int *out_status)
{
	struct launch *p = cufi_op_params(op);

	if (code == CUFI_CODE_MISMATCH) {
		*out_status = CUF_ERR_INVALID;
		return p->kernel->message;
	}
	if (code == CUFI_CODE_INVALID_FUNCTION || code == CUFI_CODE_NO_BINARY) {
		*out_status = CUF_ERR_UNSUPPORTED;
		return p->kernel->message[0] ? p->kernel->message
					     : "the kernel has no code for this device";
	}
	return NULL;
}

static const struct cufi_op_class launch_class = {
	.name = "launch",
	.params_bytes = sizeof(struct launch),
	.device = true,
	.ready = cufi_device_op_ready,
	.held = launch_held,
	.enqueue = launch_enqueue,
	.estimate = launch_estimate,
	.explain = launch_explain,
};

/* NULL, or what is wrong with the grid: CUDA's limits, the same on every device since 5.0. */
static const char *grid_fault(const cuf_grid *g)
{
	if (!g->blocks[0] || !g->blocks[1] || !g->blocks[2])
		return "has 0 blocks (cuf_grid_1d gives that for 0 or too many elements)";
	if (!g->threads[0] || !g->threads[1] || !g->threads[2])
		return "has 0 threads in a block";
	if (g->blocks[0] > INT_MAX || g->blocks[1] > 65535 || g->blocks[2] > 65535)
		return "is too large: at most 2147483647 x 65535 x 65535 blocks";
	if (g->threads[0] > 1024 || g->threads[1] > 1024 || g->threads[2] > 64 ||
	    (uint64_t)g->threads[0] * g->threads[1] * g->threads[2] > 1024)
		return "has too many threads in a block: 1024 in all, 64 in z";
	return NULL;
}

/* NULL if it can be launched at all. */
static const char *kernel_fault(const cuf_kernel *k)
{
	if (!k)
		return "the kernel is NULL";
	if (k->size < sizeof *k)
		return "the kernel's size field is not sizeof(cuf_kernel)";
	if (!k->name)
		return "the kernel has no name";
	if (k->n_args > CUFI_KERNEL_ARGS)
		return "the kernel has more than 64 arguments";
	if (k->n_args && !k->arg_bytes)
		return "the kernel has arguments and no arg_bytes";
	return NULL;
}

cuf_future *cuf_launch_with(cuf_scope *s, const cuf_kernel *k, cuf_grid g, cuf_args a,
			    const cuf_options *o)
{
	const char *fault = kernel_fault(k), *bad_grid;
	size_t bytes = 0;
	struct cufi_begin b;
	struct launch *p;
	char *at;

	for (size_t i = 0; !fault && i < k->n_args; i++) {
		if (k->arg_bytes[i] > 4096)
			fault = "the kernel has an argument of over 4096 bytes";
		bytes += aligned(k->arg_bytes[i]);
	}
	if (!cufi_begin(&b, s, &launch_class, o, 0, fault ? 0 : bytes + ALIGN, CUFI_DEPS))
		return b.future;
	if (fault)
		return cufi_begin_failed(&b, "launch: %s", fault);
	bad_grid = grid_fault(&g);
	if (bad_grid)
		return cufi_begin_failed(&b, "launch of %s: the grid %s", k->name, bad_grid);
	if (a.n != k->n_args)
		return cufi_begin_failed(&b, "launch: %s takes %zu arguments, given %zu", k->name,
					 k->n_args, a.n);
	if (a.n && (!a.at || !a.bytes))
		return cufi_begin_failed(&b, "launch of %s: arguments without at or bytes",
					 k->name);
	for (size_t i = 0; i < a.n; i++) {
		if (a.bytes[i] != k->arg_bytes[i])
			return cufi_begin_failed(&b, "argument %zu of %s is %zu bytes, given %zu",
						 i + 1, k->name, k->arg_bytes[i], a.bytes[i]);
		if (!a.at[i])
			return cufi_begin_failed(&b, "argument %zu of %s has no address", i + 1,
						 k->name);
	}
	if (!cufi_device_pick(&b, s, -1))
		return b.future;
	if (s->rt->machine->ops == cufi_device_host() && !k->host_fn)
		return cufi_begin_fails(&b, CUF_ERR_UNSUPPORTED,
					"%s has no twin (host_fn) for the host device", k->name);
	p = cufi_op_params(b.op);
	p->place.cls = CUFI_COMPUTE;
	p->place.weight = 1;
	p->grid = g;
	p->kernel = cufi_kernel_find(s->rt, k);
	if (!p->kernel)
		return cufi_begin_fails(&b, CUF_ERR_NO_MEMORY, "launch of %s: no memory", k->name);
	at = values(b.op);
	for (size_t i = 0; i < a.n; i++) {
		memcpy(at, a.at[i], a.bytes[i]);
		at += aligned(a.bytes[i]);
	}
	cufi_device_op_start(b.op);
	return b.future;
}

cuf_status cuf_kernel_prepare(cuf_runtime *rt, const cuf_kernel *const *k, size_t n)
{
	cuf_status st = CUF_OK;

	if (!rt || (n && !k))
		return CUF_ERR_INVALID;
	if (cufi_forked(rt))
		return CUF_ERR_FORKED;
	for (size_t i = 0; i < n; i++) {
		struct cufi_kernel *e = kernel_fault(k[i]) ? NULL : cufi_kernel_find(rt, k[i]);

		if (!e) {
			st = st ? st : kernel_fault(k[i]) ? CUF_ERR_INVALID : CUF_ERR_NO_MEMORY;
			continue;
		}
		for (int d = 0; d < cufi_device_count(rt); d++) {
			int code = cufi_kernel_load(cufi_device_at(rt, d), e);

			if (!code)
				continue;
			cufi_log(rt, CUFI_LOG_ERROR, "kernel %s on device %d: %s", k[i]->name, d,
				 code == CUFI_CODE_MISMATCH ? e->message
							    : rt->machine->ops->code_text(code));
			st = st				  ? st
			     : code == CUFI_CODE_MISMATCH ? CUF_ERR_INVALID
			     : code == CUFI_CODE_INVALID_FUNCTION || code == CUFI_CODE_NO_BINARY
				     ? CUF_ERR_UNSUPPORTED
				     : CUF_ERR_DEVICE;
		}
	}
	return st;
}
