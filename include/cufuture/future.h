/* SPDX-License-Identifier: MIT */
#ifndef CUFUTURE_FUTURE_H
#define CUFUTURE_FUTURE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A future is something that will have ended: an operation on a device, a continuation, a promise,
 * a combination. It settles exactly once, with CUF_OK and perhaps a value, or with an error. It is
 * CUF_OK only after the device was asked and said so.
 *
 * Ownership. A call that makes a future always returns one, never NULL, with one reference for the
 * caller: cuf_release() says "I need this pointer no longer". What was not released, the scope
 * releases as it ends: a pointer from a scope is good until then. Whoever keeps one longer, or
 * hands it to another thread that may, takes a reference of its own with cuf_retain(). Releasing a
 * future stops nothing: the operation goes on, and keeps what it uses until the device has finished
 * with it.
 *
 * Errors are carried, not returned: a submit that goes wrong gives a failed future, and what
 * depends on its success never runs and carries the same root cause, marked inherited.
 *
 * Continuations of one future start in the order in which they were attached, on the loop of their
 * scope or on .on, never inside the call that attaches them.
 *
 * Unless a comment says otherwise:
 *   Thread:  any
 *   Blocks:  never
 *   Refs:    borrows what it is given (what a future waits for, the runtime holds); a call that
 *            makes a future returns one reference, owned by the scope
 *   Order:   that of the calling thread
 *   Errors:  none; a call that makes a future fails it with CUF_ERR_INVALID, CUF_ERR_NO_MEMORY,
 *            CUF_ERR_SHUTDOWN or CUF_ERR_CANCELLED (its scope was), besides those named there
 */

/* ---- life cycle -------------------------------------------------------------------- */

/**
 * cuf_retain() - take another reference
 *
 * Refs:    returns @f, with one reference more; immortal futures are not counted
 */
CUF_API cuf_future *cuf_retain(cuf_future *f);

/**
 * cuf_release() - give up one reference: the caller names @f no more
 *
 * The last one, the runtime's own included, frees the future: its value is dropped then, on this
 * thread or one of the runtime's. A release too many is a bug; a debug build names it and aborts.
 *
 * Refs:    consumes one reference
 */
CUF_API void cuf_release(cuf_future *f);

/**
 * cuf_release_n() - release each of an array
 * @f: @n futures, NULL ones allowed. In C: cuf_release_all(a, b, c)
 *
 * Refs:    consumes one reference of each
 */
CUF_API void cuf_release_n(cuf_future *const *f, size_t n);

/* ---- asking and waiting ------------------------------------------------------------ */

/**
 * cuf_poll() - how it ended, or CUF_PENDING
 *
 * Does not count as looking at an error. Asks no device.
 *
 * Order:   what happened before @f settled happens before this returns its outcome
 */
CUF_API cuf_status cuf_poll(const cuf_future *f);

/**
 * cuf_wait() - wait until it has settled
 *
 * Returns its status, never CUF_PENDING. A failure counts as looked at.
 *
 * Blocks:  until @f settles. Whoever owns the loop that must run for it waits with
 *          cuf_loop_run_until()
 * Order:   what happened before @f settled happens before this returns
 * Errors:  CUF_ERR_WOULD_DEADLOCK at once, where @f has not settled and this is a callback
 *          (whoever could deliver it); @f is not concerned
 */
CUF_API cuf_status cuf_wait(cuf_future *f);

/**
 * cuf_wait_until() - wait, but not for ever
 * @deadline_ns: CLOCK_MONOTONIC; one that has passed makes it a poll
 *
 * Returns the status of @f, or CUF_PENDING at the deadline: then nothing has changed, the operation
 * still uses its buffers, and @f can be waited for again.
 *
 * Blocks:  until @f settles or the deadline passes
 * Order:   as cuf_wait()
 * Errors:  as cuf_wait()
 */
CUF_API cuf_status cuf_wait_until(cuf_future *f, uint64_t deadline_ns);

/**
 * cuf_cancel() - end @f as cancelled, unless it has gone too far
 *
 * Works while the operation is not on a device, a continuation has not started, a promise is not
 * fulfilled. What depends on @f inherits CUF_ERR_CANCELLED; what @f depends on is left alone.
 * Memory that earlier operations use is held until the device has finished with it.
 *
 * Completion, failure, timeout and cancel race for one claim, and exactly one of them is told that
 * it won. A cancel that lost changes nothing.
 *
 * Errors:  CUF_ERR_TOO_LATE: enqueued, running or settled
 */
CUF_API cuf_status cuf_cancel(cuf_future *f);

/**
 * cuf_ignore() - its error, now or later, counts as looked at
 *
 * It also no longer makes the scope's close fail.
 *
 * Thread:  any
 */
CUF_API void cuf_ignore(cuf_future *f);

/* ---- outcome ----------------------------------------------------------------------- */

/**
 * cuf_value() - the value that it succeeded with
 *
 * NULL if it has none, has not settled, or failed. The value belongs to the future: it is dropped
 * when the last reference goes.
 *
 * Refs:    borrowed; valid while @f is held
 * Order:   as cuf_poll()
 */
CUF_API void *cuf_value(const cuf_future *f);

/**
 * cuf_error_of() - why it failed; counts as looking
 *
 * NULL if it succeeded or has not settled.
 *
 * Refs:    borrowed; valid while @f is held
 * Order:   as cuf_poll()
 */
CUF_API const cuf_error *cuf_error_of(const cuf_future *f);

/**
 * struct cuf_times - when an operation was submitted, started and ended: CLOCK_MONOTONIC, ns
 *
 * @ended_ns - @started_ns is the device's own measure. Their place on the host's clock is as good
 * as the runtime could match the two clocks.
 */
typedef struct cuf_times {
	uint64_t submitted_ns, started_ns, ended_ns;
} cuf_times;

/**
 * cuf_times_of() - how long an operation took that was submitted with .timing
 *
 * Errors:  CUF_PENDING: not settled; CUF_ERR_UNSUPPORTED: no .timing, or it never ran on a device;
 *          *@out_times is zero then
 */
CUF_API cuf_status cuf_times_of(const cuf_future *f, cuf_times *out_times);

/* ---- settled from the start -------------------------------------------------------- */

/**
 * cuf_ok() - the future that has succeeded, without a value
 *
 * One for the whole process. A catch returns it to say "recovered".
 *
 * Refs:    immortal: need not be released, and may be
 */
CUF_API cuf_future *cuf_ok(void);

/**
 * cuf_ready() - a future that has succeeded with @value
 * @drop: called with @value when the last reference goes, or at once if no future could be made.
 *        NULL: nothing to drop
 *
 * Refs:    takes @value; returns one reference, owned by @s
 */
CUF_API cuf_future *cuf_ready(cuf_scope *s, void *value, cuf_drop_fn *drop);

/**
 * cuf_failed_at() - a future that has failed, with CUF_ERR_USER
 * @code: the program's own, any int: cuf_error_info.user_code
 * @fmt:  printf's, the message
 *
 * In C and C++: cuf_failed(s, code, "...", ...), which fills in file and line.
 *
 * Refs:    returns one reference, owned by @s; @file must live for ever, the message is copied
 */
CUF_API cuf_future *cuf_failed_at(cuf_scope *s, const char *file, int line, int code,
				  const char *fmt, ...) __attribute__((format(printf, 5, 6)));
#define cuf_failed(s, ...) cuf_failed_at(s, __FILE__, __LINE__, __VA_ARGS__)

/* ---- continuations ----------------------------------------------------------------- */

/*
 * Options of all four: on, arg_bytes, drop, label, file, line. What @fn may do, and what its result
 * means: cuf_then_fn in base.h. They are never busy.
 */

/**
 * cuf_then_with() - run @fn once @f has succeeded
 *
 * If @f has settled already, @fn is handed to its loop at once; it never runs inside this call.
 *
 * Order:   what happened before @f settled happens before @fn
 * Errors:  if @f fails, @fn does not run and the result inherits the error
 */
CUF_API cuf_future *cuf_then_with(cuf_scope *s, cuf_future *f, cuf_then_fn *fn, void *arg,
				  const cuf_options *o);

/**
 * cuf_catch_with() - run @fn once @f has failed
 *
 * To recover, @fn returns cuf_ok(), cuf_ready() or any other future; NULL or its input passes the
 * error on. If @f succeeds, @fn does not run, and the result is as @f, value included.
 *
 * Order:   as cuf_then_with()
 * Errors:  as @fn returned; the error of @f counts as looked at once @fn has run
 */
CUF_API cuf_future *cuf_catch_with(cuf_scope *s, cuf_future *f, cuf_then_fn *fn, void *arg,
				   const cuf_options *o);

/**
 * cuf_finally_with() - run @fn once @f has settled, either way
 *
 * The result is as @f, but waits for the future that @fn returned.
 *
 * Order:   as cuf_then_with()
 * Errors:  that of @f; if @f succeeded, that of the future @fn returned
 */
CUF_API cuf_future *cuf_finally_with(cuf_scope *s, cuf_future *f, cuf_then_fn *fn, void *arg,
				     const cuf_options *o);

/**
 * cuf_watch_with() - call @fn exactly once, however @f ends; no result
 *
 * Cancelled scopes and shutting down included. It belongs to @s, which does not end before @fn has
 * returned. The error of @f counts as looked at.
 *
 * Refs:    borrows @f
 * Order:   as cuf_then_with()
 */
CUF_API void cuf_watch_with(cuf_scope *s, cuf_future *f, cuf_watch_fn *fn, void *arg,
			    const cuf_options *o);

/**
 * cuf_post() - as cuf_watch(), but as data: {token, status} to be taken with cuf_loop_take()
 * @loop:  that the event goes to; NULL is invalid, and nothing is posted
 * @token: the program's own, returned as it is
 *
 * For bindings that want no callback from C. The scope does not end before the event is in the
 * loop; it does not wait for it to be taken. The error of @f counts as looked at.
 *
 * Refs:    borrows @f: who wants to ask it when the event comes keeps a reference
 * Order:   what happened before @f settled happens before the take returns the event
 */
CUF_API void cuf_post(cuf_scope *s, cuf_future *f, cuf_loop *loop, uint64_t token);

/* ---- combinators ------------------------------------------------------------------- */

/* Options of these: label, file, line. In C: cuf_all(s, a, b), cuf_all_n(s, list), and so on. */

/**
 * cuf_all_with() - settles when every input has, with the first error if there is one
 * @l: NULL entries count as nothing; of no inputs it is CUF_OK
 *
 * First is first in time. Other errors stay with their own futures, for whoever looks. Never busy.
 *
 * Order:   what happened before any input settled happens before the result settles
 * Errors:  the first of its inputs, inherited
 */
CUF_API cuf_future *cuf_all_with(cuf_scope *s, cuf_list l, const cuf_options *o);

/**
 * cuf_any_with() - the first success; fails when all have failed
 *
 * Has the value of the input that won. The others go on and are not cancelled; once there is a
 * winner, their errors no longer make a scope's close fail. Never busy.
 *
 * Order:   what happened before the winner settled happens before the result settles
 * Errors:  all failed: the error that was first, inherited; of no inputs CUF_ERR_INVALID
 */
CUF_API cuf_future *cuf_any_with(cuf_scope *s, cuf_list l, const cuf_options *o);

/**
 * cuf_winner() - which input a cuf_any() settled with: its index in the list
 *
 * SIZE_MAX if it has not settled, failed, or is no any.
 *
 * Order:   as cuf_poll()
 */
CUF_API size_t cuf_winner(const cuf_future *any);

/**
 * cuf_timeout_with() - as @f, or failed with CUF_ERR_TIMED_OUT at the deadline
 *
 * Settles only its own future: it is no cancel. @f goes on, and uses its buffers until it has
 * ended.
 *
 * Errors:  CUF_ERR_TIMED_OUT, or that of @f, inherited
 */
CUF_API cuf_future *cuf_timeout_with(cuf_scope *s, cuf_future *f, uint64_t deadline_ns,
				     const cuf_options *o);

/**
 * cuf_room_with() - settles when @operations more fit under the cap
 *
 * Says when to go on, and keeps nothing: others may be faster. To have room kept, open a scope with
 * .reserve. Never busy.
 *
 * Errors:  CUF_ERR_INVALID: more than the cap
 */
CUF_API cuf_future *cuf_room_with(cuf_scope *s, size_t operations, const cuf_options *o);

/* ---- promises ---------------------------------------------------------------------- */

/*
 * A promise is the other end of a future: a handle of its own, used up by the one call of fulfil,
 * reject, fail or follow. Each returns whether it decided the outcome. false: another one had (a
 * cancel, a shutdown); the value is then dropped by the library. None of them calls CUDA, and none
 * runs a continuation.
 */

/**
 * cuf_promise_create_with() - a promise, and its future
 * @out_future: the future, owned by @s
 * @o:          label, file, line
 *
 * Without memory, or with a bad argument, the future is a failed one and NULL is returned, which
 * every call below takes (they return false and drop the value).
 *
 * A promise that its holder will not fulfil is rejected with CUF_ERR_BROKEN when it is dropped:
 * cuf_promise_follow(p, NULL). The scope waits for it as for everything else.
 *
 * Refs:    returns a handle for exactly one of the calls below; one reference in @out_future
 */
CUF_API cuf_promise *cuf_promise_create_with(cuf_scope *s, cuf_future **out_future,
					     const cuf_options *o);

/**
 * cuf_promise_fulfil() - succeed, with @value
 * @drop: called with @value exactly once: when the future's last reference goes, or at once if this
 *        returns false. NULL: nothing to drop
 *
 * Refs:    consumes @p
 * Order:   what this thread did before happens before every continuation
 */
CUF_API bool cuf_promise_fulfil(cuf_promise *p, void *value, cuf_drop_fn *drop);

/**
 * cuf_promise_follow() - settle when @f does and as it does, with the same root cause
 * @f: borrowed. NULL: nobody keeps this promise, it fails with CUF_ERR_BROKEN
 *
 * Refs:    consumes @p
 * Errors:  a future that would wait for itself fails with CUF_ERR_WOULD_DEADLOCK
 */
CUF_API bool cuf_promise_follow(cuf_promise *p, cuf_future *f);

/**
 * cuf_promise_fail() - fail, with CUF_ERR_USER, the code @code and a message
 * @fmt: printf's
 *
 * Refs:    consumes @p
 * Order:   as cuf_promise_fulfil()
 */
CUF_API bool cuf_promise_fail(cuf_promise *p, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/**
 * cuf_promise_reject() - as cuf_promise_fail(), for languages without variable arguments
 * @text: the message, taken as it is; copied. NULL: none
 *
 * Refs:    consumes @p
 * Order:   as cuf_promise_fulfil()
 */
CUF_API bool cuf_promise_reject(cuf_promise *p, int code, const char *text);

#ifdef __cplusplus
}
#endif

/* Named options, C only: cuf_then(s, f, fn, arg, .on = loop, .label = "report"). */
#ifndef __cplusplus
/* clang-format off */
#define cuf_then(s, f, fn, ...) \
	cuf_then_with(s, f, fn, CUF_HEAD_(__VA_ARGS__, 0), CUF_OPTIONS(CUF_TAIL_(__VA_ARGS__, )))
#define cuf_catch(s, f, fn, ...) \
	cuf_catch_with(s, f, fn, CUF_HEAD_(__VA_ARGS__, 0), CUF_OPTIONS(CUF_TAIL_(__VA_ARGS__, )))
#define cuf_finally(s, f, fn, ...) \
	cuf_finally_with(s, f, fn, CUF_HEAD_(__VA_ARGS__, 0), CUF_OPTIONS(CUF_TAIL_(__VA_ARGS__, )))
#define cuf_watch(s, f, fn, ...) \
	cuf_watch_with(s, f, fn, CUF_HEAD_(__VA_ARGS__, 0), CUF_OPTIONS(CUF_TAIL_(__VA_ARGS__, )))

#define cuf_all(s, ...) cuf_all_with(s, CUF_LIST(__VA_ARGS__), CUF_HERE)
#define cuf_any(s, ...) cuf_any_with(s, CUF_LIST(__VA_ARGS__), CUF_HERE)
#define cuf_all_n(s, list) cuf_all_with(s, list, CUF_HERE)
#define cuf_any_n(s, list) cuf_any_with(s, list, CUF_HERE)
#define cuf_timeout(s, f, deadline_ns) cuf_timeout_with(s, f, deadline_ns, CUF_HERE)
#define cuf_room(s, operations) cuf_room_with(s, operations, CUF_HERE)
#define cuf_promise_create(s, out_future) cuf_promise_create_with(s, out_future, CUF_HERE)

#define cuf_release_all(...) \
	cuf_release_n((cuf_future *[]){ __VA_ARGS__ }, \
		      sizeof((cuf_future *[]){ __VA_ARGS__ }) / sizeof(cuf_future *))
/* clang-format on */

/* cuf_auto f = cuf_copy(...); is released where f goes out of its block. */
static inline void cuf_release_at(cuf_future **f)
{
	cuf_release(*f);
}
#define cuf_auto __attribute__((cleanup(cuf_release_at))) cuf_future *
#endif

#endif
