/* SPDX-License-Identifier: MIT */
#ifndef CUFUTURE_H
#define CUFUTURE_H

/*
 * cufuture: asynchronous futures over CUDA, in C.
 *
 * Every GPU operation returns a future. Which stream it runs on, which events chain it to what it
 * depends on, and how an error travels are the library's business.
 *
 *	cuf_runtime *rt;
 *	if (cuf_runtime_create(&rt, NULL))
 *		return 1;
 *	cuf_scope *s = cuf_scope_open(cuf_runtime_scope(rt));
 *
 *	cuf_future *mem = cuf_alloc(s, bytes);
 *	float *dev = cuf_address(mem);
 *	cuf_future *in = cuf_copy(s, dev, host, bytes, .after = CUF_AFTER(mem));
 *	cuf_future *k = cuf_launch(s, &scale, cuf_grid_1d(n, 256), CUF_ARGS(dev, dev, 2.0f, n),
 *				   .after = CUF_AFTER(in));
 *	cuf_future *out = cuf_copy(s, host, dev, bytes, .after = CUF_AFTER(k));
 *	cuf_then(s, out, report, host);
 *
 *	cuf_future *end = cuf_scope_close(s);
 *	if (cuf_wait(end))
 *		cuf_error_print(stderr, cuf_error_of(end));
 *	cuf_runtime_destroy(rt);
 *
 * The nouns, a header each:
 *
 *   base.h     status, errors, options, the rules for NULL and for callbacks: read it first
 *   runtime.h  the devices, threads and pools; the counters
 *   scope.h    owns what is made in it, and ends when all of that has: a request, a batch
 *   future.h   something that will have ended: wait, then, catch, all, any, timeout, promises
 *   op.h       copy, fill, launch, alloc, free, enqueue (cuBLAS and the like), call (a worker)
 *   loop.h     a queue of continuations that a thread of yours drains, with a descriptor
 *
 * and, included by those who need it, host.h: the host device and its fault script.
 *
 * What is promised:
 *
 *   - Nothing blocks but cuf_wait, cuf_wait_until, cuf_loop_run_until, cuf_loop_close, the create,
 *     shutdown and destroy of the runtime, cuf_kernel_prepare, and a cuf_pinned_get that misses its
 *     pool. A submit never waits for the GPU.
 *   - Every future settles exactly once, also after a fault, when the driver calls nobody back.
 *   - No success is reported that did not happen: the device was asked.
 *   - Errors are carried, not returned: a call that makes a future always returns one, and what
 *     depends on its success never runs and names the same root cause.
 *   - Your code never runs on the driver's thread, under a lock of the library, or ever deeper in
 *     the stack.
 *   - An operation keeps what it uses until the device has truly finished with it.
 *   - Idle costs nothing, and it all runs with no GPU, on the host device.
 *
 * The macros without _with (cuf_copy, cuf_then, ...) take options by name and are C only; behind
 * each stands the exported function. The manual page is cufuture(7).
 */

#include "cufuture/base.h"
#include "cufuture/runtime.h"
#include "cufuture/scope.h"
#include "cufuture/future.h"
#include "cufuture/op.h"
#include "cufuture/loop.h"

#endif
