/* SPDX-License-Identifier: MIT */
#ifndef CUFUTURE_RUNTIME_H
#define CUFUTURE_RUNTIME_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A runtime: the devices, the threads that complete and settle, the workers, the pools, and the
 * root scope. Most programs have one, from start to end. Two in one process share nothing, and a
 * future of one given to the other is invalid there.
 *
 * Its threads (named cuf-...) block all signals. With nothing outstanding none of them wakes.
 *
 * Unless a comment says otherwise:
 *   Thread:  any
 *   Blocks:  never
 *   Refs:    borrows what it is given
 *   Order:   that of the calling thread
 *   Errors:  none
 */

/* What is traded for what. The semantics are the same in all three. */
enum {
	CUF_BALANCED, /* sleeps through most of an operation, then looks; no spinning when idle */
	CUF_LATENCY,  /* looks more often: a core may be busy while something is outstanding */
	CUF_POWER     /* never spins: every completion is a wake-up */
};

/**
 * struct cuf_runtime_options - how a runtime is made
 * @size:           sizeof(cuf_runtime_options)
 * @backend:        "cuda", "host", or "auto": CUDA if there is a usable device, else the host
 *                  device. NULL: what the environment's CUF_DEVICE says, else "auto"
 * @devices:        host device: how many to pretend, 64 at most. 0: 1
 * @mode:           CUF_BALANCED, CUF_LATENCY or CUF_POWER
 * @workers:        threads for cuf_call(), pageable copies and the workers' loop. 0: chosen
 * @lanes:          streams of each device, 32 at most; of 8 and more an eighth each for large copies
 *                  in, large copies out, high and low priority. 0: chosen
 * @cap:            operations in flight, over which work is busy. 0: chosen
 * @cap_bytes:      bytes that outstanding copies may stage through pinned memory. 0: chosen
 * @reserve:        operations over @cap kept for work submitted from continuations. 0: chosen
 * @pinned_bytes:   pinned host memory to have ready for cuf_pinned_get(). 0: none
 * @stack_bytes:    stack of each thread of the runtime. 0: the system's default
 * @affinity_bytes: size of the set at @affinity
 * @affinity:       a cpu_set_t for the runtime's threads. NULL: not confined to one core by the
 *                  creator's mask
 * @on_unobserved:  an error that nobody looked at is going. NULL: a line on stderr, rate-limited
 * @on_device_lost: a device took a sticky error; once for each device, @device is an index from 0
 * @on_log:         what CUF_LOG asks for; @level: 1 error, 2 info, 3 trace. @line has no newline.
 *                  NULL: stderr
 * @arg:            the last argument of these three
 *
 * The hooks run on threads of the runtime or of its callers, possibly several at once, with no lock
 * held. They MAY read the error and submit; they MUST NOT wait, shut down or destroy. @e and @line
 * are valid during the call.
 */
typedef struct cuf_runtime_options {
	size_t size;
	const char *backend;
	int devices;
	int mode;
	unsigned workers, lanes;
	size_t cap, cap_bytes, reserve, pinned_bytes, stack_bytes, affinity_bytes;
	const void *affinity;
	void (*on_unobserved)(const cuf_error *e, void *arg);
	void (*on_device_lost)(int device, const cuf_error *e, void *arg);
	void (*on_log)(int level, const char *line, void *arg);
	void *arg;
} cuf_runtime_options;

/**
 * cuf_runtime_create() - start a runtime
 * @out_rt: where it goes; NULL is stored on failure
 * @o:      NULL for the defaults
 *
 * Creates no context on a device that the process was not meant to use: those that
 * CUDA_VISIBLE_DEVICES hides stay untouched.
 *
 * Blocks:  while devices start
 * Refs:    returns a runtime to be destroyed once
 * Errors:  CUF_ERR_UNSUPPORTED: "cuda" was asked for and no device is usable; CUF_ERR_INVALID:
 *          options, or a CUF_DEVICE that is none of the three; CUF_ERR_NO_MEMORY; CUF_ERR_DEVICE
 */
CUF_API cuf_status cuf_runtime_create(cuf_runtime **out_rt, const cuf_runtime_options *o);

enum {
	CUF_DRAIN,  /* everything that needs only the device or continuations runs to its end */
	CUF_ABANDON /* what is not on a device yet fails now, with CUF_ERR_SHUTDOWN */
};

/**
 * cuf_runtime_shutdown() - take no more work, and let end what is outstanding
 * @how:         CUF_DRAIN or CUF_ABANDON
 * @deadline_ns: until when; CUF_FOREVER for as long as it takes
 *
 * From now on submits fail with CUF_ERR_SHUTDOWN, but, while draining, those made from
 * continuations. What then waits for promises that nobody fulfilled fails at the deadline, and so
 * does what the device has not finished. Every future has settled when it returns, but the results
 * of callbacks that are still running: nobody can stop those.
 *
 * Returns CUF_OK if all had ended by the deadline, CUF_PENDING if the deadline ended something.
 * Calling it again is allowed, to abandon after a drain for one.
 *
 * Thread:  any, but no callback
 * Blocks:  until the deadline at most
 * Errors:  CUF_ERR_WOULD_DEADLOCK inside a callback; CUF_ERR_INVALID
 */
CUF_API cuf_status cuf_runtime_shutdown(cuf_runtime *rt, int how, uint64_t deadline_ns);

/**
 * cuf_runtime_destroy() - end a runtime; abandons what shutdown left
 *
 * Everything that belongs to it goes: futures still held, the root scope, pinned memory, loops that
 * were not closed (close those before, from their owners). Inside a callback it does nothing but
 * log.
 *
 * Not needed at exit(): the exit handler waits a second at most, and makes no CUDA call.
 *
 * Thread:  one, while no other thread uses @rt any more; no callback
 * Blocks:  until running callbacks have returned and the devices have let go of the program's
 *          memory; what a device never finishes is left behind, not freed under it
 */
CUF_API void cuf_runtime_destroy(cuf_runtime *rt);

/**
 * cuf_runtime_scope() - the root scope: lives as long as @rt
 *
 * Never closed or ended. Work submitted straight into it belongs to nobody's request; what was not
 * released there is released by cuf_runtime_destroy().
 *
 * Refs:    borrowed from @rt
 */
CUF_API cuf_scope *cuf_runtime_scope(cuf_runtime *rt);

/**
 * cuf_runtime_workers() - the loop that the worker threads drain
 *
 * For .on, where a continuation computes or blocks. Several threads drain it, so continuations
 * there start in order but run side by side. It is never closed, dispatched or taken from by the
 * program.
 *
 * Refs:    borrowed from @rt
 */
CUF_API cuf_loop *cuf_runtime_workers(cuf_runtime *rt);

/**
 * cuf_runtime_backend() - what the devices are: "cuda" or "host"; "none" for NULL
 *
 * Refs:    a string that lives for ever
 */
CUF_API const char *cuf_runtime_backend(const cuf_runtime *rt);

/**
 * cuf_runtime_devices() - how many devices there are; 0 for NULL
 *
 * Thread:  any
 */
CUF_API int cuf_runtime_devices(const cuf_runtime *rt);

/**
 * cuf_runtime_device_status() - whether a device takes work
 * @device: index from 0
 *
 * Asks no device: it is what the runtime knows.
 *
 * Errors:  CUF_ERR_DEVICE_LOST for the rest of the process once a sticky error was seen;
 *          CUF_ERR_INVALID: no such device
 */
CUF_API cuf_status cuf_runtime_device_status(const cuf_runtime *rt, int device);

/**
 * cuf_kernel_prepare() - load kernels on every device, before anything spins there
 * @k: @n kernels; each is to live, unchanged, as long as @rt
 *
 * A first launch loads a module, and that may wait for the device to drain: fatal where a kernel
 * spins until a later one runs. Kernels that are not prepared are loaded behind their first launch.
 *
 * Blocks:  while modules load; that may wait for running kernels
 * Errors:  CUF_ERR_INVALID: argument count or sizes differ from the device's own;
 *          CUF_ERR_UNSUPPORTED: no code for this device, no twin on the host device;
 *          CUF_ERR_DEVICE. The first failure is returned, the rest are tried all the same
 * Source:  lazy module loading of the CUDA driver
 */
CUF_API cuf_status cuf_kernel_prepare(cuf_runtime *rt, const cuf_kernel *const *k, size_t n);

/**
 * cuf_pinned_get() - page-locked host memory, from the runtime's pool
 * @bytes: not 0; aligned for any type, and to a cache line
 *
 * Copies from and to it need no staging. Its contents are undefined.
 *
 * Blocks:  where the pool has none left of that size: the driver's own allocation, which may wait
 *          for the device. Get what a server needs at start, or set .pinned_bytes
 * Refs:    returns memory for cuf_pinned_put(); NULL if there is none
 */
CUF_API void *cuf_pinned_get(cuf_runtime *rt, size_t bytes);

/**
 * cuf_pinned_put() - give pinned memory back to the pool
 * @p: from cuf_pinned_get() of @rt, whole; NULL is allowed
 *
 * Only when no operation uses it any more: in a cuf_scope_defer() function, or after those futures
 * have settled *and* their scope has let go (a cancelled copy may have started).
 */
CUF_API void cuf_pinned_put(cuf_runtime *rt, void *p);

/**
 * struct cuf_stats - what the runtime has done since it was created
 * @size:          sizeof(cuf_stats), set by the caller
 * @operations:    put on a device: copies, fills, launches, allocations, frees, enqueues
 * @events:        device events recorded to order or observe work, depth marks not counted
 * @depth_marks:   device events recorded to bound the depth of a queue
 * @waits:         waits for an event put on a stream
 * @waits_elided:  dependencies that needed none
 * @arms:          host functions put on a stream to be woken
 * @callbacks:     of those, how many the driver has called
 * @queries:       events and streams asked
 * @parks:         times that a thread of the runtime went to sleep
 * @wakes:         times that one was woken
 * @continuations: functions run: thens, catches, finallies, watches, calls
 * @allocations:   of host memory, from the system
 * @succeeded:     futures settled with CUF_OK
 * @failed:        futures settled with an error, inherited ones too, cancelled ones not
 * @cancelled:     futures that cuf_cancel() or cuf_scope_cancel() ended
 *
 * Each counter is exact once nothing is outstanding; together they are no snapshot before.
 */
typedef struct cuf_stats {
	size_t size;
	uint64_t operations, events, depth_marks, waits, waits_elided, arms, callbacks, queries,
		parks, wakes, continuations, allocations, succeeded, failed, cancelled;
} cuf_stats;

/**
 * cuf_stats_of() - read the counters
 * @out_stats: its size field set by the caller; no byte beyond that size is written
 *
 * Thread:  any
 */
CUF_API void cuf_stats_of(cuf_runtime *rt, cuf_stats *out_stats);

/**
 * cuf_dump() - write what is outstanding, for a person: devices, lanes, futures and their states
 *
 * For a program that hangs. Its form may change.
 *
 * Blocks:  as @to does
 */
CUF_API void cuf_dump(cuf_runtime *rt, FILE *to);

#ifdef __cplusplus
}
#endif

#endif
