/* SPDX-License-Identifier: MIT */
#ifndef CUFUTURE_LOOP_H
#define CUFUTURE_LOOP_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A loop is a queue of continuations, or of events, that its owner drains: the only kind of
 * executor there is. The runtime drains its own; its workers share one (cuf_runtime_workers() in
 * runtime.h); a server has one for each of its event loops, and watches cuf_loop_fd() there.
 *
 * What comes to a loop: continuations of scopes opened with .on, or attached with .on, to be served
 * by cuf_loop_dispatch() or cuf_loop_run_until(); or events of cuf_post(), to be fetched with
 * cuf_loop_take(). A loop is for one of the two, and its first use says for which: dispatch,
 * run_until, or take. Dispatch on a loop for events serves nothing, and so does take on one for
 * continuations; what was sent to a loop of the wrong kind ends as if that loop were closed.
 *
 * Unless a comment says otherwise:
 *   Thread:  any
 *   Blocks:  never
 *   Refs:    borrows what it is given
 *   Order:   that of the calling thread
 *   Errors:  none
 */

/**
 * struct cuf_event - what cuf_post() sends
 * @token:  as posted
 * @status: how the future ended
 */
typedef struct cuf_event {
	uint64_t token;
	cuf_status status;
} cuf_event;

/**
 * cuf_loop_create() - make a loop
 * @out_loop: where it goes; NULL is stored on failure
 *
 * Refs:    returns a loop for one cuf_loop_close(), before its runtime is destroyed
 * Errors:  CUF_ERR_NO_MEMORY: also when descriptors are out; CUF_ERR_SHUTDOWN
 */
CUF_API cuf_status cuf_loop_create(cuf_runtime *rt, cuf_loop **out_loop);

/**
 * cuf_loop_close() - end a loop: the owner drains it no more
 *
 * What is queued ends here, on this thread: thens, catches and finallies fail with
 * CUF_ERR_SHUTDOWN, watches and drops run, events are forgotten. What arrives later fails the same
 * way, and its watches and drops run on the runtime's loop. Close scopes that use it first, and
 * wait for them.
 *
 * The descriptor is closed only when nobody can write to it any more: take it out of the event loop
 * before this call.
 *
 * Thread:  the owner's; no other may be in a call on @l
 * Blocks:  while the callbacks it runs do; until writers of the descriptor are out
 * Refs:    ends @l
 */
CUF_API void cuf_loop_close(cuf_loop *l);

/**
 * cuf_loop_fd() - a descriptor that is readable while there is something to serve
 *
 * For poll, epoll, libuv. Level-triggered, non-blocking, close-on-exec; the program need not read
 * it (doing so does no harm), and must not write or close it. -1 for NULL.
 *
 * Refs:    owned by @l
 */
CUF_API int cuf_loop_fd(const cuf_loop *l);

/**
 * cuf_loop_dispatch() - run continuations that are queued
 * @max: at most so many; 0: none
 *
 * Returns how many ran. Not recursive: inside a continuation of this loop it does nothing, and
 * returns 0. If something is left, the descriptor is readable still. One call serves all the wakes
 * before it; nothing to serve is no error.
 *
 * Thread:  the owner's, or several that share the loop
 * Blocks:  while the continuations do
 * Order:   continuations of one future start in the order of attachment
 */
CUF_API size_t cuf_loop_dispatch(cuf_loop *l, size_t max);

/**
 * cuf_loop_take() - fetch events that cuf_post() sent
 * @out_events: room for @max
 *
 * Returns how many were stored; 0: none are there.
 *
 * Thread:  the owner's, or several that share the loop
 * Order:   what happened before a future settled happens before its event is returned
 */
CUF_API size_t cuf_loop_take(cuf_loop *l, cuf_event *out_events, size_t max);

/**
 * cuf_loop_run_until() - serve the loop until @f has settled, or a deadline
 * @f:           NULL: until the deadline
 * @deadline_ns: CLOCK_MONOTONIC; CUF_FOREVER
 *
 * How the owner of a loop waits. Returns the status of @f, as cuf_wait(), or CUF_PENDING at the
 * deadline. Then it finishes the continuation that it is in, and leaves the others queued.
 *
 * Thread:  the owner's, or several that share the loop
 * Blocks:  until @f settles or the deadline passes
 * Order:   what happened before @f settled happens before this returns
 * Errors:  CUF_ERR_WOULD_DEADLOCK inside a callback, where @f has not settled
 */
CUF_API cuf_status cuf_loop_run_until(cuf_loop *l, cuf_future *f, uint64_t deadline_ns);

#ifdef __cplusplus
}
#endif

#endif
