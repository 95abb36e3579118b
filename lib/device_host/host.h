/* SPDX-License-Identifier: MIT */
/*
 * What the files of the host device share. A stream is a list of operations; whoever puts one on an
 * idle stream makes it ready, a worker takes ready streams and runs a session on each: operation
 * after operation until the list is empty or the stream must wait (an event, a host function, a
 * gate). A waiting stream holds no thread; what it waits for kicks it.
 *
 * Locks, outer first: home (table.c), slabs (stream.c), device, event, heap, stream, pool. None is
 * held while a kernel, a copy or a host function runs.
 *
 * Not modelled: how long anything takes; priorities; the context lock that makes allocations and
 * module loads wait for running kernels; capture; that a hardware queue is served in order (only
 * its depth is); that a fault ends kernels that run: they end by themselves, and are waited for.
 */
#ifndef CUFI_DEVICE_HOST_H
#define CUFI_DEVICE_HOST_H

#include "cufuture/host.h"
#include "device.h"
#include "types.h"
#include "testpoint.h"
#include "wait.h"

/* ---- table.c ---- */
int cufi_host_lost(int device); /* 0, or the code that all calls return */
int cufi_host_current(void);	/* the calling thread's device */
/* The last-error slot gets @code, unless 0. Returns @code. */
int cufi_host_return(int code);

/* ---- codes.c ---- */
const char *cufi_host_code_name(int code);
const char *cufi_host_code_text(int code);
bool cufi_host_is_sticky(int code);

/* ---- script.c ---- */
#define HOST_NO_HANDLE	(-1) /* in place of a device: what was given is no handle of ours */
#define HOST_ANY_DEVICE (-2) /* the call concerns no device */
#define HOST_CALL_OTHER (-1) /* a call of no kind: not counted, never told to fail */
extern _Thread_local bool cufi_host_in_func;
/* What every call begins with: counts it; 0, or the code that it must return. */
int cufi_host_begin(int call, int device);
/* Each kind of choice has its own sequence: how many are made of one does not move the other. */
enum host_choice { HOST_CHOOSE_STREAM, HOST_CHOOSE_FUNC, HOST_CHOICES };
uint64_t cufi_host_random(enum host_choice choice);
bool cufi_host_seeded(void);
int cufi_host_mode(uint64_t *out_delay_ns);
uint64_t cufi_host_slow_ns(void);
/* True if the operation that starts now on @d is the one told to fault. */
bool cufi_host_fault_now(struct host_device *d);
void cufi_host_unload(bool unloading); /* for tests: every call fails with UNLOADING */
bool cufi_host_touched(int device);    /* for tests: a call was made for @device since the reset */

/* ---- stream.c ---- */
int cufi_host_stream_create(int priority, struct CUstream_st **out_stream);
int cufi_host_stream_destroy(struct CUstream_st *s);
int cufi_host_stream_query(struct CUstream_st *s);
int cufi_host_stream_device(const struct CUstream_st *s);	  /* or HOST_NO_HANDLE */
struct CUstream_st *cufi_host_stream_find(struct CUstream_st *s); /* NULL if it is none of ours */
void cufi_host_stream_unfind(void);
void cufi_host_stream_ref(struct CUstream_st *s);
void cufi_host_stream_unref(struct CUstream_st *s);
/* An operation to fill in, then to push; never fails to push. NULL: out of memory. Work blocks here
 * while the hardware queue is full; *out_code is the error of a device lost meanwhile. */
struct host_op *cufi_host_op_new(struct CUstream_st *s, enum host_kind kind, int *out_code);
uint64_t cufi_host_op_push(struct CUstream_st *s, struct host_op *op);
/* An operation that is not pushed after all. */
void cufi_host_op_cancel(struct CUstream_st *s, struct host_op *op);
/* Its place in the hardware queue is free again. */
void cufi_host_op_leaves(struct CUstream_st *s, const struct host_op *op);
/* A blocked or running stream looks again at what it waits for. */
void cufi_host_kick(struct CUstream_st *s);
void cufi_host_kick_all(struct host_device *d);
static inline bool cufi_host_reached(struct CUstream_st *s, uint64_t seq)
{
	/* seq_cst: pairs with cufi_host_progress(): what the operations wrote, and see there */
	return atomic_load_explicit(&s->done, memory_order_seq_cst) >= seq;
}
void cufi_host_progress(struct CUstream_st *s, uint64_t seq); /* the session's: @seq has ended */
/* True if @s has reached w->seq; else @w is in its list, and will be told. */
bool cufi_host_wait_for(struct CUstream_st *s, struct host_waiter *w);
void cufi_host_wait_cancel(struct CUstream_st *s, struct host_waiter *w);
void cufi_host_await(struct CUstream_st *s, uint64_t seq); /* the caller sleeps until then */
void cufi_host_streams_drop(void);  /* no thread of ours is left: what is pending is let go of */
void cufi_host_streams_close(void); /* after that: the memory of all streams */

/* ---- session.c ---- */
void cufi_host_session(struct CUstream_st *s);
void cufi_host_op_end(struct CUstream_st *s, struct host_op *op); /* lets go of what it holds */

/* ---- pool.c ---- */
struct host_worker;
int cufi_host_pool_open(void);
void cufi_host_pool_close(void);
/* Under the stream's lock; who returns from it passes the result to rouse() without that lock. */
struct host_worker *cufi_host_ready(struct CUstream_st *s);
void cufi_host_rouse(struct host_worker *w);
void cufi_host_sleep_until(uint64_t deadline_ns); /* cut short when the pool closes */
bool cufi_host_closing(void);

/* ---- func.c ---- */
int cufi_host_func_open(void);
void cufi_host_func_close(void);
int cufi_host_func(struct CUstream_st *s, void (*fn)(void *arg), void *arg);
void cufi_host_func_hand(struct CUstream_st *s); /* the first of its batch is to be called */

/* ---- event.c ---- */
int cufi_host_event_create(bool timing, struct CUevent_st **out_event);
int cufi_host_event_destroy(struct CUevent_st *e);
int cufi_host_event_record(struct CUevent_st *e, struct CUstream_st *s);
int cufi_host_event_query(struct CUevent_st *e);
int cufi_host_event_elapsed(struct CUevent_st *start, struct CUevent_st *end, uint64_t *out_ns);
int cufi_host_stream_wait(struct CUstream_st *s, struct CUevent_st *e);
void cufi_host_event_stamp(struct CUevent_st *e, struct CUstream_st *s, uint64_t seq);
void cufi_host_event_unref(struct CUevent_st *e);
void cufi_host_events_close(void);

/* ---- work.c ---- */
int cufi_host_copy(void *dst, const void *src, size_t bytes, struct CUstream_st *s);
int cufi_host_fill(void *dst, int byte, size_t bytes, struct CUstream_st *s);
int cufi_host_kernel_load(const struct cuf_kernel *k, void **out_handle, size_t *out_bytes,
			  size_t max, int *out_n);
int cufi_host_launch(void *handle, const struct cuf_grid *g, void **args, struct CUstream_st *s);
void cufi_host_kernels_close(void);

/* ---- memory.c ---- */
#define HOST_MEMORY_BYTES ((size_t)8 << 30) /* of each device (arbitrary) */
int cufi_host_malloc(size_t bytes, struct CUstream_st *s, void **out_ptr);
int cufi_host_free(void *ptr, struct CUstream_st *s);
int cufi_host_pinned_alloc(size_t bytes, void **out_ptr);
int cufi_host_pinned_free(void *ptr);
int cufi_host_memory_of(const void *ptr, enum cufi_memory *out_kind, int *out_device);
/* The same for a range: INVALID_VALUE if it leaves its allocation or that is freed. */
int cufi_host_range(const void *ptr, size_t bytes, enum cufi_memory *out_kind);
void cufi_host_malloc_run(const struct host_op *op);
void cufi_host_free_run(struct CUstream_st *s, const struct host_op *op);
void cufi_host_memory_close(void);

#endif
