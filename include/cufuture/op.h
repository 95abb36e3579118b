/* SPDX-License-Identifier: MIT */
#ifndef CUFUTURE_OP_H
#define CUFUTURE_OP_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Operations: what a device or a worker does. Which stream one runs on, and what chains it to its
 * dependencies, is the runtime's business. An operation keeps what it uses (copies of arguments,
 * dependencies, and for its own part the buffers) until the device has truly finished with it, also
 * when its future was released, cancelled or timed out. The program keeps its buffers until then:
 * a settled future says so, but for one that ended without having run (cancelled, inherited), where
 * operations behind it may still use them. The end of the scope covers every case.
 *
 * There is no order between two operations but through dependencies.
 *
 * Unless a comment says otherwise:
 *   Thread:  any
 *   Blocks:  never
 *   Refs:    borrows its dependencies (.take consumes them); returns one reference, owned by the
 *            scope
 *   Order:   after the dependencies, on the device; what they wrote is seen. A continuation of the
 *            result sees what the operation wrote
 *   Errors:  carried by the future: CUF_ERR_INVALID, CUF_ERR_BUSY, CUF_ERR_NO_MEMORY,
 *            CUF_ERR_DEVICE, CUF_ERR_DEVICE_LOST, CUF_ERR_CANCELLED, CUF_ERR_SHUTDOWN, and the
 *            inherited error of a dependency, in which case nothing has run
 *
 * Options of all: after, take, after_settled, label, file, line; of those on a device besides:
 * device, priority, exclusive, timing, eager_peer.
 */

/* ---- memory ------------------------------------------------------------------------ */

/**
 * cuf_copy_with() - copy bytes between host and device, in either direction, or within one
 * @dst:   host memory (pinned or not) or device memory
 * @src:   the same; must not overlap @dst
 * @bytes: 0 is allowed: nothing is copied, the dependencies are waited for
 *
 * The memory tells the direction. Memory that is not page-locked goes through staging on a worker,
 * never holding up a submit, and is read or written between the dependencies' end and the future's.
 *
 * In C: cuf_copy(s, dst, src, bytes, .after = CUF_AFTER(mem)).
 *
 * Errors:  CUF_ERR_INVALID: a NULL address with bytes, a range that wraps
 */
CUF_API cuf_future *cuf_copy_with(cuf_scope *s, void *dst, const void *src, size_t bytes,
				  const cuf_options *o);

/**
 * cuf_fill_with() - set bytes of device memory
 * @dst:   device memory
 * @byte:  its low 8 bits
 * @bytes: 0 is allowed
 *
 * In C: cuf_fill(s, dst, byte, bytes, ...).
 *
 * Errors:  as cuf_copy_with()
 */
CUF_API cuf_future *cuf_fill_with(cuf_scope *s, void *dst, int byte, size_t bytes,
				  const cuf_options *o);

/**
 * cuf_alloc_with() - allocate device memory
 * @bytes: not 0; aligned to 256 bytes at least
 *
 * Allocates at submit, in the order of a stream that has room, so that cuf_address() knows at once.
 * The dependencies in @o gate the future only; and whoever uses the memory names the future as his
 * dependency. It is freed with the scope, unless freed before.
 *
 * In C: cuf_alloc(s, bytes, ...).
 *
 * Errors:  CUF_ERR_NO_MEMORY; CUF_ERR_BUSY: no stream has room. What depends on it then never runs
 */
CUF_API cuf_future *cuf_alloc_with(cuf_scope *s, size_t bytes, const cuf_options *o);

/**
 * cuf_address() - where the memory of a cuf_alloc() is; known at once
 *
 * NULL if it was refused, or @alloc is no alloc.
 *
 * Refs:    the memory is the scope's; valid until it is freed
 */
CUF_API void *cuf_address(const cuf_future *alloc);

/**
 * cuf_free_with() - free device memory, when what uses it has finished
 * @ptr: from cuf_address(); NULL does nothing and succeeds
 *
 * Its dependencies are order only: it runs once they have truly finished on the device, whatever
 * their outcome, and sees through those that ended early (cancelled, timed out, any) to the
 * operations behind. Name every use. It is never busy.
 *
 * In C: cuf_free(s, ptr, .after = CUF_AFTER(last)).
 *
 * Errors:  CUF_ERR_INVALID: not allocated here, or freed already
 */
CUF_API cuf_future *cuf_free_with(cuf_scope *s, void *ptr, const cuf_options *o);

/* ---- kernels ----------------------------------------------------------------------- */

/**
 * struct cuf_grid - the shape of a launch
 * @blocks:       in x, y, z; none may be 0
 * @threads:      for each block, in x, y, z; none may be 0
 * @cluster:      blocks for each cluster, in x, y, z; all 0: no clusters
 * @shared_bytes: dynamic shared memory for each block
 * @cooperative:  all blocks resident at once, for grid-wide synchronisation
 */
typedef struct cuf_grid {
	uint32_t blocks[3], threads[3], cluster[3];
	size_t shared_bytes;
	bool cooperative;
} cuf_grid;

/**
 * struct cuf_args - the arguments of a launch
 * @n:     how many
 * @at:    the address of each value; the values are copied at submit
 * @bytes: the size of each value
 *
 * In C: CUF_ARGS(dst, src, 2.0f, n), or CUF_NO_ARGS.
 */
typedef struct cuf_args {
	size_t n;
	const void *const *at;
	const size_t *bytes;
} cuf_args;

/**
 * struct cuf_kernel - a kernel: a device function, and a twin for the host device
 * @size:      sizeof(cuf_kernel)
 * @name:      shown in messages; the entry's name in @image
 * @image:     a fatbin (or cubin) whose entry is @name, or NULL and
 * @device_fn: a symbol from nvcc: the address of a __global__ function's host stub
 * @host_fn:   the twin, called once for a launch: it loops over the grid itself. @args: the
 *             addresses of the @n_args values. It follows the rules of a kernel: no call to this
 *             library or to CUDA. NULL: a launch on the host device fails with CUF_ERR_UNSUPPORTED
 * @n_args:    how many arguments
 * @arg_bytes: @n_args sizes: launches are checked against them, and they against the device's own
 *             when the kernel is loaded
 *
 * Constant and static as a rule; must live as long as the runtime, unchanged.
 */
struct cuf_kernel {
	size_t size;
	const char *name;
	const void *image;
	const void *device_fn;
	void (*host_fn)(const cuf_grid *grid, void *const *args);
	size_t n_args;
	const size_t *arg_bytes;
};

/**
 * cuf_launch_with() - run a kernel
 * @k: kept: must live as long as the runtime
 * @g: copied
 * @a: copied, values too
 *
 * Checked at submit; a message says "argument 3 of scale is 4 bytes, given 8". A kernel that is not
 * loaded on its device yet is loaded by a thread of the runtime, and the submit returns at once;
 * see cuf_kernel_prepare() for why that may not be wanted.
 *
 * In C: cuf_launch(s, &scale, cuf_grid_1d(n, 256), CUF_ARGS(dst, 2.0f, n), .after = CUF_AFTER(in)).
 *
 * Errors:  CUF_ERR_INVALID: argument count or sizes, a grid of zero or too large for the device;
 *          CUF_ERR_UNSUPPORTED: no code for this device, no twin on the host device
 */
CUF_API cuf_future *cuf_launch_with(cuf_scope *s, const cuf_kernel *k, cuf_grid g, cuf_args a,
				    const cuf_options *o);

/* ---- work of others ---------------------------------------------------------------- */

/**
 * cuf_enqueue_with() - have a function put work on a stream
 * @fn: called once or never, see cuf_enqueue_fn in base.h; on this thread inside this call where
 *      the operation can be enqueued now, else later on one of the runtime's
 *
 * For cuBLAS, cuFFT, NCCL groups, <<<>>> and cudaGraphLaunch. The future settles when the device
 * has finished what @fn put there. Options besides: weight, arg_bytes, drop, key. Use one key for
 * all that share a library handle. If no stream has room, or @fn queues more than .weight, a launch
 * in it blocks in the driver.
 *
 * In C: cuf_enqueue(s, fn, arg, .arg_bytes = sizeof arg, .key = handle).
 *
 * Blocks:  never itself; as long as @fn does, where it runs inside this call
 * Errors:  CUF_ERR_USER: @fn returned a code that is not 0; what it had enqueued before runs all
 *          the same, and what it uses is held until then
 */
CUF_API cuf_future *cuf_enqueue_with(cuf_scope *s, cuf_enqueue_fn *fn, void *arg,
				     const cuf_options *o);

/**
 * cuf_call_with() - run a function on a worker thread
 * @fn: a cuf_then_fn; its input is cuf_ok(). NULL returned: success; else the future it returned
 *
 * Runs when the dependencies have succeeded and finished: it may read what they copied to the host.
 * It may compute and block; the workers are few. Options besides: arg_bytes, drop.
 *
 * In C: cuf_call(s, fn, arg, .after = CUF_AFTER(out)).
 *
 * Order:   what the dependencies did, on the device too, happens before @fn
 * Errors:  those of the future that @fn returned
 */
CUF_API cuf_future *cuf_call_with(cuf_scope *s, cuf_then_fn *fn, void *arg, const cuf_options *o);

/* ---- sugar ------------------------------------------------------------------------- */

/**
 * cuf_grid_1d() - enough blocks of @threads threads for @n elements, in x
 *
 * Of no elements, no threads, or more blocks than INT32_MAX it is a grid of 0 blocks, with which a
 * launch gives a failed future.
 */
static inline cuf_grid cuf_grid_1d(size_t n, uint32_t threads)
{
	cuf_grid g = { { 0, 1, 1 }, { threads, 1, 1 }, { 0, 0, 0 }, 0, false };
	size_t b = threads ? n / threads + (n % threads != 0) : 0;

	g.blocks[0] = b > INT32_MAX ? 0 : (uint32_t)b;
	return g;
}

#ifdef __cplusplus
}
#endif

/* Named options, C only. */
#ifndef __cplusplus
/* clang-format off */
#define cuf_copy(s, dst, src, ...) \
	cuf_copy_with(s, dst, src, CUF_HEAD_(__VA_ARGS__, 0), CUF_OPTIONS(CUF_TAIL_(__VA_ARGS__, )))
#define cuf_fill(s, dst, byte, ...) \
	cuf_fill_with(s, dst, byte, CUF_HEAD_(__VA_ARGS__, 0), \
		      CUF_OPTIONS(CUF_TAIL_(__VA_ARGS__, )))
#define cuf_alloc(s, ...) \
	cuf_alloc_with(s, CUF_HEAD_(__VA_ARGS__, 0), CUF_OPTIONS(CUF_TAIL_(__VA_ARGS__, )))
#define cuf_free(s, ...) \
	cuf_free_with(s, CUF_HEAD_(__VA_ARGS__, 0), CUF_OPTIONS(CUF_TAIL_(__VA_ARGS__, )))
#define cuf_launch(s, k, g, ...) CUF_LAUNCH_(s, k, g, __VA_ARGS__, )
#define CUF_LAUNCH_(s, k, g, args, ...) cuf_launch_with(s, k, g, args, CUF_OPTIONS(__VA_ARGS__))
#define cuf_enqueue(s, fn, ...) \
	cuf_enqueue_with(s, fn, CUF_HEAD_(__VA_ARGS__, 0), CUF_OPTIONS(CUF_TAIL_(__VA_ARGS__, )))
#define cuf_call(s, fn, ...) \
	cuf_call_with(s, fn, CUF_HEAD_(__VA_ARGS__, 0), CUF_OPTIONS(CUF_TAIL_(__VA_ARGS__, )))

/*
 * CUF_ARGS() - 1 to 12 kernel arguments: any expressions, evaluated once each. Arrays decay to
 * pointers; the sizes go with the values. Mind the types: 2.0 is a double, n may be a size_t.
 */
#define CUF_AT_(x) (__typeof__(((void)0, (x)))[1]){ (x) }
#define CUF_SZ_(x) sizeof(__typeof__(((void)0, (x))))
#define CUF_N_(...) CUF_N__(__VA_ARGS__, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define CUF_N__(a, b, c, d, e, f, g, h, i, j, k, l, n, ...) n
#define CUF_CAT_(a, b) CUF_CAT__(a, b)
#define CUF_CAT__(a, b) a##b
#define CUF_M1_(m, a) m(a)
#define CUF_M2_(m, a, ...) m(a), CUF_M1_(m, __VA_ARGS__)
#define CUF_M3_(m, a, ...) m(a), CUF_M2_(m, __VA_ARGS__)
#define CUF_M4_(m, a, ...) m(a), CUF_M3_(m, __VA_ARGS__)
#define CUF_M5_(m, a, ...) m(a), CUF_M4_(m, __VA_ARGS__)
#define CUF_M6_(m, a, ...) m(a), CUF_M5_(m, __VA_ARGS__)
#define CUF_M7_(m, a, ...) m(a), CUF_M6_(m, __VA_ARGS__)
#define CUF_M8_(m, a, ...) m(a), CUF_M7_(m, __VA_ARGS__)
#define CUF_M9_(m, a, ...) m(a), CUF_M8_(m, __VA_ARGS__)
#define CUF_M10_(m, a, ...) m(a), CUF_M9_(m, __VA_ARGS__)
#define CUF_M11_(m, a, ...) m(a), CUF_M10_(m, __VA_ARGS__)
#define CUF_M12_(m, a, ...) m(a), CUF_M11_(m, __VA_ARGS__)
#define CUF_MAP_(m, ...) CUF_CAT_(CUF_CAT_(CUF_M, CUF_N_(__VA_ARGS__)), _)(m, __VA_ARGS__)
#define CUF_ARGS(...) \
	((cuf_args){ CUF_N_(__VA_ARGS__), (const void *const[]){ CUF_MAP_(CUF_AT_, __VA_ARGS__) }, \
		     (const size_t[]){ CUF_MAP_(CUF_SZ_, __VA_ARGS__) } })
#define CUF_NO_ARGS ((cuf_args){ 0, NULL, NULL })
/* clang-format on */
#endif

#endif
