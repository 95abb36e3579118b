/* SPDX-License-Identifier: MIT */
#ifndef CUFUTURE_HOST_H
#define CUFUTURE_HOST_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The host device: a backend with CUDA's semantics and no GPU. Streams are drained by threads;
 * events, host functions, copies, fills and stream-ordered memory follow CUDA's rules; kernels are
 * their C twins. This header is opt-in. It puts C functions on such a stream, and it makes the
 * device misbehave on purpose, so that a program can be tested without a GPU, faults included.
 *
 * The host device is one for the whole process: what is said here holds for every runtime on it,
 * and may be said before or after the runtime is created. Everything is forgotten by
 * cuf_host_reset(). Without a runtime on the host device the script has no effect.
 *
 * Devices are indices from 0, as many as cuf_runtime_options.devices pretends; a script for a
 * device that nobody pretends has no effect. CUDA codes are the values of cudaError_t: 2 is out of
 * memory, 700 an illegal address, 719 a launch failure.
 *
 * Unless a comment says otherwise:
 *   Thread:  any
 *   Blocks:  never
 *   Refs:    borrows what it is given
 *   Order:   that of the calling thread
 *   Errors:  none
 */

/**
 * cuf_host_enqueue() - put a C function on a host device's stream
 * @stream:    that an enqueue callback was given, during that callback
 * @fn:        called on a thread of the host device when the stream reaches it; stands for a
 *             kernel, so it calls neither this library nor CUDA
 * @arg_bytes: not 0: @arg points to that many bytes, copied now; @fn gets the address of the copy.
 *             0: @fn gets @arg itself, without its const
 *
 * Returns 0, or a CUDA code, fit to be returned from the callback: 400 (invalid handle) if @stream
 * is NULL or no stream of the host device, 1 (invalid value) for a NULL @fn, the device's own error
 * if it is lost, or what the script says. Counts as CUF_HOST_LAUNCH.
 *
 * Thread:  that of the enqueue callback
 */
CUF_API int cuf_host_enqueue(struct CUstream_st *stream, void (*fn)(void *arg), const void *arg,
			     size_t arg_bytes);

/**
 * enum cuf_host_call - the kinds of device call that a script can count and fail
 *
 * The values are frozen, but for CUF_HOST_CALLS.
 */
enum cuf_host_call {
	CUF_HOST_ANY,		/* every kind; each call counts here and in its own kind */
	CUF_HOST_STREAM_CREATE, /* as cudaStreamCreateWithPriority */
	CUF_HOST_EVENT_CREATE,	/* as cudaEventCreateWithFlags */
	CUF_HOST_RECORD,	/* as cudaEventRecord */
	CUF_HOST_WAIT,		/* as cudaStreamWaitEvent */
	CUF_HOST_EVENT_QUERY,	/* as cudaEventQuery */
	CUF_HOST_STREAM_QUERY,	/* as cudaStreamQuery */
	CUF_HOST_LAUNCH,	/* as cudaLaunchKernelExC; cuf_host_enqueue() too */
	CUF_HOST_COPY,		/* as cudaMemcpyAsync */
	CUF_HOST_FILL,		/* as cudaMemsetAsync */
	CUF_HOST_MALLOC,	/* as cudaMallocAsync */
	CUF_HOST_FREE,		/* as cudaFreeAsync */
	CUF_HOST_FUNC,		/* as cudaLaunchHostFunc */
	CUF_HOST_PINNED_ALLOC,	/* as cudaHostAlloc */
	CUF_HOST_PINNED_FREE,	/* as cudaFreeHost */
	CUF_HOST_KERNEL_LOAD,	/* as cudaLibraryLoadData and what follows it */
	CUF_HOST_CALLS		/* how many kinds there are: no kind */
};

/**
 * cuf_host_reset() - forget script, seed, modes, gates and counters; heal the devices
 *
 * For the start of a test. No runtime on the host device may be alive.
 *
 * Thread:  one, while no other uses the host device
 */
CUF_API void cuf_host_reset(void);

/**
 * cuf_host_seed() - drive every random choice that the host device makes
 * @seed: the same one, and the same calls in the same order, give the same choices. 0, as it is
 *        until said: nothing is left to chance
 *
 * Takes effect from the next choice on.
 *
 * Thread:  any
 */
CUF_API void cuf_host_seed(uint64_t seed);

/**
 * cuf_host_fail_call() - have one call return an error, and do nothing
 * @call:      a kind; CUF_HOST_ANY counts calls of every kind
 * @kth:       1 is the next call of that kind from now, by any thread; 0 is ignored
 * @cuda_code: what it returns; not 0
 *
 * Used up once. Several may be pending (256), also for one kind. The error is not sticky: the
 * device goes on.
 *
 * Order:   counted from this call's return on
 */
CUF_API void cuf_host_fail_call(int call, uint64_t kth, int cuda_code);

/**
 * cuf_host_fault_at() - have an operation fault while it runs
 * @device:        index from 0
 * @kth_operation: 1 is the next operation that a stream of @device starts from now: a copy, a fill,
 *                 a launch, or a function of cuf_host_enqueue(); 0 is ignored
 * @cuda_code:     the error of the device from then on; not 0
 *
 * One is pending for a device, a later call replaces it, and it is used up once.
 *
 * Sticky: what that operation was to write is undefined, nothing after it runs, and every later
 * call on the device returns the code, until cuf_host_reset(). Other devices go on.
 *
 * Source:  what a GPU does after an illegal address
 */
CUF_API void cuf_host_fault_at(int device, uint64_t kth_operation, int cuda_code);

/**
 * cuf_host_fault() - have the operation that is running fault
 * @cuda_code: as for cuf_host_fault_at()
 *
 * To be called by a kernel's twin, or by a function of cuf_host_enqueue(), on the stream's thread;
 * anywhere else it does nothing. The operation faults when that function returns.
 */
CUF_API void cuf_host_fault(int cuda_code);

/* What becomes of host functions (cudaLaunchHostFunc), those of the runtime: users have none. */
enum cuf_host_func_mode {
	CUF_HOST_FUNC_NORMAL,	  /* called in stream order; not called after a fault */
	CUF_HOST_FUNC_DROP,	  /* never called: the stream goes on without */
	CUF_HOST_FUNC_DELAY,	  /* called late, the stream waits for it */
	CUF_HOST_FUNC_AFTER_FAULT /* called in stream order, after a fault too, with no status */
};

/**
 * cuf_host_func_mode() - choose what becomes of host functions
 * @mode:     one of enum cuf_host_func_mode; others are ignored
 * @delay_ns: CUF_HOST_FUNC_DELAY: how late at least. Else not read
 *
 * Holds for functions that a stream has not reached yet. Drivers differ in the first and last; one
 * that delays or drops is a broken one, which a runtime must survive.
 *
 * Source:  NORMAL is driver 580 on an H200; AFTER_FAULT was reported of others
 */
CUF_API void cuf_host_func_mode(int mode, uint64_t delay_ns);

/**
 * cuf_host_gate() - stop or release all streams of a device
 * @device: index from 0
 * @closed: not 0: each stream stops before its next operation, that which runs now ends first;
 *          0: they go on
 *
 * Not counted: one opening undoes any number of closings. Queues fill up behind a closed gate, and
 * a full queue blocks its enqueuer, as on a GPU.
 *
 * Thread:  any
 */
CUF_API void cuf_host_gate(int device, int closed);

/**
 * cuf_host_stall() - the same for one stream
 * @stream: that an enqueue callback was given. NULL is no stream: nothing is done
 * @closed: as cuf_host_gate()
 *
 * A stream runs when neither its own gate nor its device's is closed. That a stream is gone, or is
 * none of the host device's, does no harm.
 *
 * Thread:  any
 */
CUF_API void cuf_host_stall(struct CUstream_st *stream, int closed);

/**
 * cuf_host_slow() - have each operation take a while
 * @ns_per_operation: at least so long, from its start; 0: as long as it takes
 *
 * Holds for operations that start from now on, on every device.
 *
 * Thread:  any
 */
CUF_API void cuf_host_slow(uint64_t ns_per_operation);

/**
 * cuf_host_calls() - how many calls were made of a kind, those that failed too
 * @call: a kind; CUF_HOST_ANY: all. 0 for a value that is no kind
 *
 * Since the process started, or the last cuf_host_reset().
 *
 * Thread:  any
 */
CUF_API uint64_t cuf_host_calls(int call);

/**
 * cuf_host_calls_in_func() - how many device calls were made from inside a host function
 *
 * CUDA forbids them: must stay 0. A test asserts that at its end.
 *
 * Thread:  any
 */
CUF_API uint64_t cuf_host_calls_in_func(void);

#ifdef __cplusplus
}
#endif

#endif
