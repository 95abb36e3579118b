/* SPDX-License-Identifier: MIT */
#ifndef CUFUTURE_SCOPE_H
#define CUFUTURE_SCOPE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A scope owns what is made in it: futures, promises' futures, continuations, memory, child scopes.
 * Every call that makes a future takes its owner first. What the caller has not released, the scope
 * releases as it ends, so straight-line code never releases. Settled members that nobody refers to
 * go at once: a scope that lives long does not grow.
 *
 * A scope ends when its opener has closed it and nothing in it is outstanding, child scopes
 * included. Continuations that run in it may go on submitting through the scope that they are
 * given. The order of an end: its members settle, and truly finish on the device; memory allocated
 * in it and not freed is freed; the functions of cuf_scope_defer() run; the close future settles;
 * the parent is told.
 *
 * A continuation belongs to the scope given to cuf_then(), not to the one of the future that it
 * waits for: a request can wait for a batch that others share, and its cancel leaves the batch
 * alone.
 *
 * The opener has one handle, and cuf_scope_close() or cuf_scope_end() is its last use, exactly
 * once. A second one is a bug; a debug build names it and aborts.
 *
 * Unless a comment says otherwise:
 *   Thread:  any
 *   Blocks:  never
 *   Refs:    borrows what it is given
 *   Order:   that of the calling thread
 *   Errors:  none
 */

/**
 * struct cuf_scope_options - what holds inside a scope unless an operation says otherwise
 * @size:     sizeof(cuf_scope_options)
 * @on:       the loop that its continuations and defers run on. NULL: the parent's; the root's is
 *            the runtime's own
 * @device:   CUF_DEVICE(i). 0: the parent's
 * @priority: CUF_LOW to CUF_HIGH. 0: the parent's
 * @reserve:  operations admitted as a whole: if they do not fit under the cap, the scope is born
 *            busy, and each submit in it fails with CUF_ERR_BUSY. 0: each operation by itself
 * @label:    shown in dumps and errors; its first 23 bytes are copied
 * @file:     where it was opened; lives for ever. NULL: not known
 * @line:     the line in @file
 */
typedef struct cuf_scope_options {
	size_t size;
	cuf_loop *on;
	int device;
	int priority;
	size_t reserve;
	const char *label, *file;
	int line;
} cuf_scope_options;

/**
 * cuf_scope_open_with() - open a scope inside another
 * @parent: open, or a scope whose continuation is running
 * @o:      NULL for the defaults
 *
 * Never NULL: without memory, or with a bad argument, it is an immortal scope born failed, in which
 * every submit fails with that error. Closing that is allowed as well.
 *
 * In C: cuf_scope_open(parent, .label = "request").
 *
 * Refs:    returns a handle for one cuf_scope_close() or cuf_scope_end()
 * Errors:  carried by the scope: cuf_scope_poll()
 */
CUF_API CUF_MUST_USE cuf_scope *cuf_scope_open_with(cuf_scope *parent, const cuf_scope_options *o);

/**
 * cuf_scope_poll() - whether work submitted now would be taken
 *
 * Returns CUF_OK, or what the scope was born with or has become: CUF_ERR_BUSY (its reserve did not
 * fit), CUF_ERR_NO_MEMORY, CUF_ERR_INVALID, CUF_ERR_CANCELLED, CUF_ERR_SHUTDOWN.
 *
 * Thread:  any
 */
CUF_API cuf_status cuf_scope_poll(cuf_scope *s);

/**
 * cuf_scope_cancel() - cancel what is in the scope and not on a device yet, child scopes too
 *
 * What is on a device runs to its end and keeps its outcome. What is submitted later fails with
 * CUF_ERR_CANCELLED; watches, drops and defers run as ever. It does not close: the opener still
 * does that, once. The root keeps no list of what is straight in it: there, child scopes and what
 * is submitted later are cancelled, and the rest goes on.
 *
 * Order:   what was submitted before this call, on this thread, is cancelled or already enqueued
 */
CUF_API void cuf_scope_cancel(cuf_scope *s);

/**
 * cuf_scope_defer() - have a function called last, when the scope has ended
 * @fn: on the scope's loop, in the reverse order of the calls, once the device has let go of
 *      everything in the scope: the one place where a request and its buffers are freed, on every
 *      path. Of the root: in cuf_runtime_destroy()
 *
 * Order:   what the members did, on the device too, happens before @fn
 * Errors:  CUF_ERR_NO_MEMORY, CUF_ERR_INVALID, and what a scope born failed carries (one born busy
 *          takes defers). Then @fn is not called
 */
CUF_API cuf_status cuf_scope_defer(cuf_scope *s, cuf_drop_fn *fn, void *arg);

/**
 * cuf_scope_close() - say that no more comes from here, and learn how it all ended
 *
 * The future settles when everything in @s has, and the device has let go; it belongs to the
 * parent. It carries, as yet unobserved, the first error of a member that was not recovered by a
 * catch, ignored, or lost in an any; all other errors in @s count as looked at. The root cannot be
 * closed: an invalid future.
 *
 * Refs:    ends @s; returns one reference, owned by the parent
 * Order:   what the members and the defers did happens before it settles
 * Errors:  the first unrecovered error of a member
 */
CUF_API cuf_future *cuf_scope_close(cuf_scope *s);

/**
 * cuf_scope_end() - close a scope for which nobody waits
 *
 * Its first unrecovered error, if nobody looked at it, is reported through the hook.
 *
 * Refs:    ends @s
 */
CUF_API void cuf_scope_end(cuf_scope *s);

#ifdef __cplusplus
}
#endif

/* Named options, C only. */
#ifndef __cplusplus
/* clang-format off */
#define cuf_scope_open(...) \
	cuf_scope_open_with(CUF_HEAD_(__VA_ARGS__, 0), \
			    &(const cuf_scope_options){ .size = sizeof(cuf_scope_options), \
							.file = __FILE__, \
							.line = __LINE__, \
							CUF_TAIL_(__VA_ARGS__, ) })
/* clang-format on */
#endif

#endif
