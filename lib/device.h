/* SPDX-License-Identifier: MIT */
/*
 * The table of operations that a device gives the runtime: one function for each CUDA runtime call
 * that we use, with that call's semantics. Two tables stand behind it: device_cuda.c and
 * device_host/. Nothing above this line knows which of them it talks to, and nothing above it
 * names a CUDA symbol.
 *
 * Every function that returns int returns 0 or a CUDA error code (the host device uses the same
 * numbers). Unless a function says otherwise it may be called from any thread but the driver's
 * callback thread, and between enter() and leave() for the device it concerns.
 */
#ifndef CUFI_DEVICE_H
#define CUFI_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cufuture/op.h"

struct CUstream_st;
struct CUevent_st;

/* The error codes that the runtime itself has to tell apart. The numbers are CUDA's. */
enum cufi_code {
	CUFI_CODE_OK = 0,
	CUFI_CODE_INVALID_VALUE = 1,
	CUFI_CODE_NO_MEMORY = 2,
	CUFI_CODE_UNLOADING = 4,
	CUFI_CODE_NO_DRIVER = 35,
	CUFI_CODE_INVALID_FUNCTION = 98,
	CUFI_CODE_NO_DEVICE = 100,
	CUFI_CODE_INVALID_DEVICE = 101,
	CUFI_CODE_NO_BINARY = 209,
	CUFI_CODE_INVALID_HANDLE = 400,
	CUFI_CODE_NOT_READY = 600,
	CUFI_CODE_ILLEGAL_ADDRESS = 700,
	CUFI_CODE_ASSERT = 710,
	CUFI_CODE_MISALIGNED = 716,
	CUFI_CODE_LAUNCH_FAILURE = 719,
	CUFI_CODE_NOT_PERMITTED = 800,
	CUFI_CODE_NOT_SUPPORTED = 801
};

/* What a pointer points to. UNKNOWN_HOST is memory that CUDA was never told of: pageable. */
enum cufi_memory {
	CUFI_MEMORY_PAGEABLE,
	CUFI_MEMORY_PINNED,
	CUFI_MEMORY_DEVICE,
	CUFI_MEMORY_MANAGED
};

/* What enter() found, for leave() to put back. Lives on the caller's stack. */
struct cufi_device_guard {
	int device;
	bool pushed;	 /* the device's context was pushed (or the current device switched) */
	int previous;	 /* host device: what was current before */
	bool slot_empty; /* the thread's last-error slot was empty: leave() may clear it */
};

struct cufi_device_info {
	char name[64];
	int priority_low, priority_high; /* as cudaDeviceGetStreamPriorityRange: low 0, high -5 */
	int multiprocessors;
	bool can_map_host; /* kernels may use pinned host memory by its host address */
	size_t memory_bytes;
};

struct cufi_device_ops {
	const char *name; /* "cuda", "host" */

	/* ---- the process; not between enter() and leave() ---- */

	/* Opens the backend. @want: how many devices to pretend (host device), or 0. Idempotent and
	 * counted: close() once for each open(). */
	int (*open)(int want, int *out_count);
	void (*close)(void);
	/* Makes the device usable from any thread (the primary context is retained). */
	int (*device_open)(int device, struct cufi_device_info *out_info);
	void (*device_close)(int device);
	/* For our own threads, once: captures open in other threads must not be disturbed by us
	 * (cudaThreadExchangeStreamCaptureMode(relaxed)). */
	void (*thread_relaxed)(void);
	/* Name and text of a code, static. */
	const char *(*code_name)(int code);
	const char *(*code_text)(int code);
	/* True for codes that no device survives: every later call on it returns the same. */
	bool (*is_sticky)(int code);

	/* ---- the caller's thread ---- */

	/* Makes @device current if it is not; never creates a context elsewhere. */
	int (*enter)(int device, struct cufi_device_guard *out_guard);
	/* Puts back what was current; clears the thread's last-error slot if it was empty before. */
	void (*leave)(struct cufi_device_guard *guard);
	/* The thread's pending last error without clearing it (0: the slot is empty). */
	int (*peek_error)(void);

	/* ---- streams: non-blocking, ordered ---- */
	int (*stream_create)(int priority, struct CUstream_st **out_stream);
	int (*stream_destroy)(struct CUstream_st *stream);
	int (*stream_query)(struct CUstream_st *stream);
	int (*stream_wait)(struct CUstream_st *stream, struct CUevent_st *event);
	/* The function gets @arg on the driver's thread, and may not call back into the table. */
	int (*host_func)(struct CUstream_st *stream, void (*fn)(void *arg), void *arg);

	/* ---- events ---- */
	int (*event_create)(bool timing, struct CUevent_st **out_event);
	int (*event_destroy)(struct CUevent_st *event);
	int (*event_record)(struct CUevent_st *event, struct CUstream_st *stream);
	int (*event_query)(struct CUevent_st *event);
	/* Nanoseconds from @start to @end, both timing and completed. */
	int (*event_elapsed_ns)(struct CUevent_st *start, struct CUevent_st *end, uint64_t *out_ns);

	/* ---- work ---- */

	/* Direction is inferred from the addresses (cudaMemcpyDefault); not for pageable memory. */
	int (*copy)(void *dst, const void *src, size_t bytes, struct CUstream_st *stream);
	int (*fill)(void *dst, int byte, size_t bytes, struct CUstream_st *stream);
	/* Loads @kernel on the current device. Blocks; may wait for running kernels. Fills the handle
	 * that launch() takes, and the sizes of the parameters (at most @max; *out_n what there are;
	 * -1 where they are not known). */
	int (*kernel_load)(const struct cuf_kernel *kernel, void **out_handle, size_t *out_bytes,
			   size_t max, int *out_n);
	/* @args: one pointer to each argument. */
	int (*launch)(void *handle, const struct cuf_grid *grid, void **args,
		      struct CUstream_st *stream);

	/* ---- memory ---- */
	int (*malloc_async)(size_t bytes, struct CUstream_st *stream, void **out_ptr);
	int (*free_async)(void *ptr, struct CUstream_st *stream);
	int (*pinned_alloc)(size_t bytes,
			    void **out_ptr); /* portable: for every device; may block */
	int (*pinned_free)(void *ptr);	     /* may block */
	/* What is at @ptr, and the device that owns it (-1: none). Any thread, no enter(). */
	int (*memory_of)(const void *ptr, enum cufi_memory *out_kind, int *out_device);
};

/* The tables. cufi_device_cuda() is NULL in a library built without CUDA. */
const struct cufi_device_ops *cufi_device_cuda(void);
const struct cufi_device_ops *cufi_device_host(void);

#endif
