/* SPDX-License-Identifier: MIT */
#ifndef CUFUTURE_BASE_H
#define CUFUTURE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * What every other header stands on: status, version, the opaque types, the kinds of callback,
 * the options that calls share, and errors. It also says once what holds for every call.
 *
 * Contract blocks. Each function's comment ends with lines of this form. A line that is left out
 * equals the default of its header, and where a header gives none, this one:
 *
 *   Thread:  any, several at once on the same object
 *   Blocks:  never (for the GPU, for another thread's work, or for a full queue)
 *   Refs:    borrows what it is given, keeps nothing after it returned
 *   Order:   that of the calling thread alone
 *   Errors:  none
 *
 * NULL. Said here and nowhere else:
 *   - releasing, ignoring, closing, ending or destroying NULL does nothing;
 *   - a NULL entry of a dependency list is no dependency;
 *   - NULL for a scope, a future, a kernel or a function, where a future is made, gives an immortal
 *     future that failed with CUF_ERR_INVALID; what is asked of a NULL future is answered as that
 *     future would answer; a call that returns a status returns CUF_ERR_INVALID;
 *   - NULL for options is a structure of zeros; a NULL error is the success of CUF_OK;
 *   - NULL for an out_ parameter is CUF_ERR_INVALID, unless its comment allows it.
 *
 * Options. A structure that begins with `size` carries sizeof of the caller's own declaration. A
 * smaller one is accepted (what is missing is zero), a larger one too while every byte this library
 * does not know is zero. Otherwise the call fails as invalid. A size under sizeof(size_t) is
 * invalid. (A cuf_kernel is given whole.) Zero is the default of every field. A call ignores the fields that it has no use for.
 *
 * Units. Sizes are bytes. Times are nanoseconds of CLOCK_MONOTONIC, deadlines are points in time.
 * Devices are indices from 0, but in options, where 0 means "not said": there it is CUF_DEVICE(i).
 *
 * After fork() every call in the child fails with CUF_ERR_FORKED, or does nothing.
 */

#define CUF_API	     __attribute__((visibility("default")))
#define CUF_MUST_USE __attribute__((warn_unused_result))

/* The version of these headers. cuf_version() gives that of the library in use. */
#define CUF_VERSION_MAJOR 0
#define CUF_VERSION_MINOR 1
#define CUF_VERSION_PATCH 0

typedef struct cuf_runtime cuf_runtime; /* runtime.h */
typedef struct cuf_scope cuf_scope;	/* scope.h */
typedef struct cuf_future cuf_future;	/* future.h */
typedef struct cuf_promise cuf_promise; /* future.h */
typedef struct cuf_loop cuf_loop;	/* loop.h */
typedef struct cuf_error cuf_error;	/* below */
typedef struct cuf_kernel cuf_kernel;	/* op.h */
struct CUstream_st;			/* what cudaStream_t points to */

/**
 * enum cuf_status - how something ended, or that it has not
 *
 * Zero is success, failures are negative. CUF_PENDING, the only positive value, comes from a poll
 * and from a wait whose deadline passed, never from anything else. The values are frozen.
 */
typedef enum cuf_status {
	CUF_PENDING = 1,	     /* not settled yet */
	CUF_OK = 0,		     /* done, and the device said so */
	CUF_ERR_INVALID = -1,	     /* a bad argument: the message names it and the call */
	CUF_ERR_NO_MEMORY = -2,	     /* host or device memory is out */
	CUF_ERR_DEVICE = -3,	     /* a CUDA call failed; the device goes on */
	CUF_ERR_DEVICE_LOST = -4,    /* a sticky error: the device takes no more work */
	CUF_ERR_CANCELLED = -5,	     /* cuf_cancel() or cuf_scope_cancel() came first */
	CUF_ERR_TIMED_OUT = -6,	     /* the deadline of cuf_timeout() came first */
	CUF_ERR_BROKEN = -7,	     /* the promise was dropped unfulfilled */
	CUF_ERR_WOULD_DEADLOCK = -8, /* nobody could end that wait */
	CUF_ERR_SHUTDOWN = -9,	     /* the runtime or the loop is closing */
	CUF_ERR_FORKED = -10,	     /* the runtime belongs to the parent process */
	CUF_ERR_BUSY = -11,	     /* over the cap of operations in flight: cuf_room() */
	CUF_ERR_USER = -12,	     /* user code said so; its code is cuf_error_info.user_code */
	CUF_ERR_TOO_LATE = -13,	     /* cannot be cancelled any more */
	CUF_ERR_NOT_ENQUEUED = -14,  /* not on a stream yet (interop only) */
	CUF_ERR_UNSUPPORTED = -15    /* this device, backend or build cannot do it */
} cuf_status;

/*
 * Priorities of operations and scopes. High is the highest that the device reports; normal and low
 * are its lowest, which is also what streams get by default, so that normal does not outrank streams
 * of the caller's own. Low and normal work has lanes apart. Large copies have none of their own for a
 * priority.
 */
enum { CUF_LOW = -1, CUF_NORMAL = 0, CUF_HIGH = 1 };

/* Deadlines: CUF_FOREVER never passes. cuf_now_ns() + CUF_MS(n) is in n milliseconds. */
#define CUF_FOREVER UINT64_MAX
#define CUF_MS(n)   (1000000u * (uint64_t)(n))

/**
 * cuf_version() - the version of the library that is loaded, as "0.1.0"
 *
 * Refs:    a string that lives for ever
 */
CUF_API const char *cuf_version(void);

/**
 * cuf_strerror() - the meaning of a status, in a few words without a full stop
 *
 * Total: every int gives a string, one that is no status gives "unknown status".
 *
 * Refs:    a string that lives for ever
 */
CUF_API const char *cuf_strerror(cuf_status st);

/**
 * cuf_now_ns() - the time that deadlines are measured by: CLOCK_MONOTONIC in nanoseconds
 *
 * Thread:  any
 */
CUF_API uint64_t cuf_now_ns(void);

/*
 * Callbacks. None ever runs on the driver's thread, inside the call that attached it, under a lock
 * of the library, or deeper in the stack because a chain is long.
 *
 * Each of them MAY
 *   - submit work, attach continuations, fulfil promises, cancel, retain and release;
 *   - open, cancel, close and end scopes, its own result's scope included;
 *   - ask anything of futures that it holds, and wait for one that has settled;
 *   - call CUDA (but see cuf_enqueue_fn), and take the program's own locks.
 *
 * Each of them MUST NOT
 *   - wait for a future that has not settled: that returns CUF_ERR_WOULD_DEADLOCK;
 *   - shut down or destroy the runtime: CUF_ERR_WOULD_DEADLOCK too;
 *   - be left by a C++ exception, longjmp() or thread cancellation;
 *   - take long on a loop that others share, the runtime's own above all: use cuf_call(), or a loop
 *     drained by a thread of the program's own, for what computes or blocks.
 */

/**
 * cuf_then_fn - a continuation, or the function of cuf_call()
 * @s:   the scope that owns the result: submit into it; borrowed
 * @in:  what it was attached to, settled; borrowed, valid until it returns. cuf_ok() for a cuf_call
 * @arg: as attached, or the copy made for .arg_bytes
 *
 * Returns NULL or @in for "as @in: the same outcome, the same value". Any other future hands over
 * one reference, and the result settles when that future does. Returning the continuation's own
 * result fails it with CUF_ERR_WOULD_DEADLOCK.
 */
typedef cuf_future *cuf_then_fn(cuf_scope *s, cuf_future *in, void *arg);

/**
 * cuf_watch_fn - called exactly once, whatever became of @f
 * @f:   settled; borrowed, valid until it returns
 */
typedef void cuf_watch_fn(cuf_future *f, void *arg);

/**
 * cuf_drop_fn - the last call that concerns @arg: free it here
 */
typedef void cuf_drop_fn(void *arg);

/**
 * cuf_enqueue_fn - put work of another library on the stream that the runtime chose
 * @stream: what cudaStream_t points to; not to be kept, synchronised or destroyed
 *
 * Called once or never, on the submitting thread or later on one of the runtime's, with the device
 * of the operation current. Returns 0, or any other int: the operation fails with CUF_ERR_USER and
 * that code in cuf_error_info.user_code. On the host device @stream takes cuf_host_enqueue()
 * (host.h).
 *
 * It MAY besides launch kernels and graphs, call cuBLAS, cuFFT or NCCL on @stream, and submit.
 * It MUST NOT besides
 *   - wait for the device in any form, or begin a capture on @stream;
 *   - return with an NCCL group still open: what marks the operation's end goes in after it
 *     returns;
 *   - make more launches than .weight says (32 unless said): the queue's budget counts on it.
 */
typedef int cuf_enqueue_fn(struct CUstream_st *stream, void *arg);

/**
 * struct cuf_list - futures, by pointer and count
 * @n:  how many
 * @at: @n pointers; NULL ones are no dependency. Borrowed for the call; NULL where @n is 0
 */
typedef struct cuf_list {
	size_t n;
	cuf_future *const *at;
} cuf_list;

/**
 * struct cuf_options - what may be said to any call that makes a future
 *
 * In C the macros named like the calls take these fields by name:
 *
 *	cuf_copy(s, dst, src, bytes, .after = CUF_AFTER(a, b), .label = "in");
 *
 * @size:          sizeof(cuf_options)
 * @after:         runs once all of these have succeeded; if one fails, it never runs and inherits
 *                 that error. Borrowed
 * @take:          the same, and the caller's reference to each goes with it, whatever becomes of
 *                 the call: these are never named again. Spares the runtime an event
 * @after_settled: order only: runs once these have ended, whatever their outcome. Borrowed
 * @on:            continuations: the loop that @fn and @drop run on. NULL: the scope's
 * @device:        CUF_DEVICE(i). 0: the scope's, or where the pointers live
 * @priority:      CUF_LOW to CUF_HIGH. 0: the scope's
 * @exclusive:     a stream of its own, shared with nothing: for kernels that wait for another
 * @timing:        measure it, see cuf_times_of()
 * @eager_peer:    dependencies on another device are enqueued as a device-side wait at once, not
 *                 held on the host: may run though the other device failed
 * @weight:        cuf_enqueue: launches it makes at most, for the queue's budget. 0: 32
 * @label:         shown in errors and traces; its first 23 bytes are copied
 * @arg_bytes:     not 0: arg points to that many bytes, which are copied at submit, and the
 *                 callback gets the address of the copy
 * @drop:          called with arg (with the copy, if there is one) exactly once, whether or not fn
 *                 ran, on the loop of fn, before the result settles (after it settled as cancelled,
 *                 where it is cancelled). Of a call that is refused at once: inside that call,
 *                 with the caller's own arg
 * @key:           cuf_enqueue: callbacks with one key never overlap, keep the order of submit, and
 *                 their work is ordered on the device. NULL: none
 * @file:          what errors say about where this was submitted; lives for ever. NULL: not known
 * @line:          the line in @file
 */
typedef struct cuf_options {
	size_t size;
	cuf_list after;
	cuf_list take;
	cuf_list after_settled;
	cuf_loop *on;
	int device;
	int priority;
	bool exclusive, timing;
	bool eager_peer;
	unsigned weight;
	const char *label;
	size_t arg_bytes;
	cuf_drop_fn *drop;
	const void *key;
	const char *file;
	int line;
} cuf_options;

/* A device in options, from its index: 0 is then free to mean "not said". */
#define CUF_DEVICE(i) ((i) + 1)

/*
 * A cuf_error says why a future failed: immutable, shared by all that inherit it.
 *
 * An error is *observed* once anybody looked at any future that carries it: by a wait that returned
 * it, cuf_error_of(), a catch, finally, watch or post that ran for it, or cuf_ignore(). A poll does
 * not look. A root error that nobody looked at when its last carrier goes is reported once, to
 * cuf_runtime_options.on_unobserved or as a line on stderr. CUF_ERR_BUSY is not reported.
 *
 * Valid while a future that carries it is held, or during the callback that was given it.
 */

/* Where in its life an operation failed. */
enum { CUF_PHASE_SUBMIT, CUF_PHASE_ENQUEUE, CUF_PHASE_EXECUTE };

/**
 * struct cuf_error_info - an error, field by field
 * @size:            sizeof(cuf_error_info), set by the caller
 * @status:          never CUF_OK
 * @cuda_code:       the value of a cudaError_t, 0 if no CUDA call is behind it
 * @user_code:       what user code returned or failed with, else 0
 * @phase:           CUF_PHASE_SUBMIT, CUF_PHASE_ENQUEUE or CUF_PHASE_EXECUTE
 * @operation:       what failed first: "copy", "launch", "then", ...; never NULL
 * @label:           its label; "" if it had none
 * @file:            where it was submitted; NULL if not known
 * @message:         the whole story in one line, as cuf_error_message()
 * @line:            the line in @file, 0 if not known
 * @device:          index from 0; -1 if no device was concerned
 * @lane:            the runtime's number for the stream, where seq is not 0
 * @seq:             the operation's number on it, from 1; 0 if none
 * @inherited:       the future that was asked never ran, or passed on what another one failed with
 * @outcome_unknown: the device was lost before it said whether this had finished
 * @root:            the first error of the chain; the error itself where it is that one
 * @n_suspects:      device lost: how many operations may be to blame (@message names some). Else 0
 *
 * Strings and @root live as long as the error.
 */
typedef struct cuf_error_info {
	size_t size;
	cuf_status status;
	int cuda_code, user_code, phase;
	const char *operation, *label, *file, *message;
	int line, device;
	uint64_t lane, seq;
	bool inherited, outcome_unknown;
	const cuf_error *root;
	size_t n_suspects;
} cuf_error_info;

/**
 * cuf_error_get() - all of an error at once
 * @out_info: its size field set by the caller; no byte beyond that size is written
 *
 * A NULL @e gives CUF_OK and empty fields.
 *
 * Refs:    borrows @e; the strings live as long as it
 */
CUF_API void cuf_error_get(const cuf_error *e, cuf_error_info *out_info);

/**
 * cuf_error_message() - an error as one line of text, without a newline
 *
 * Never NULL: that of a NULL error is cuf_strerror(CUF_OK).
 *
 * Refs:    borrows @e; the string lives as long as it
 */
CUF_API const char *cuf_error_message(const cuf_error *e);

/**
 * cuf_error_status() - the status of an error; CUF_OK for NULL
 *
 * Thread:  any
 */
CUF_API cuf_status cuf_error_status(const cuf_error *e);

/**
 * cuf_error_print() - write an error for a person to read: its message and what is known besides
 *
 * One or more whole lines. What @to refuses is lost.
 *
 * Blocks:  as @to does
 */
CUF_API void cuf_error_print(FILE *to, const cuf_error *e);

#ifdef __cplusplus
}
#endif

/*
 * Named options, C only. In C++ fill a cuf_options. What the macros build
 * lives until the end of the enclosing block, as any compound literal.
 */
#ifndef __cplusplus
/* clang-format off */
#define CUF_HEAD_(a, ...) (a)
#define CUF_TAIL_(a, ...) __VA_ARGS__

/* A cuf_options with the fields named, and with this file and line. */
#define CUF_OPTIONS(...) \
	(&(const cuf_options){ \
		.size = sizeof(cuf_options), .file = __FILE__, .line = __LINE__, __VA_ARGS__ })
/* One with this file and line only. */
#define CUF_HERE \
	(&(const cuf_options){ .size = sizeof(cuf_options), .file = __FILE__, .line = __LINE__ })

/* One or more futures as a cuf_list. Each argument is evaluated once. */
#define CUF_LIST(...) \
	((cuf_list){ sizeof((cuf_future *[]){ __VA_ARGS__ }) / sizeof(cuf_future *), \
		     (cuf_future *[]){ __VA_ARGS__ } })
/* The same, as one reads it: .after = CUF_AFTER(a, b). */
#define CUF_AFTER(...) CUF_LIST(__VA_ARGS__)
/* An array of n futures as a cuf_list. */
#define CUF_AFTER_N(p, n) ((cuf_list){ (n), (p) })
/* clang-format on */
#endif

#endif
