/* SPDX-License-Identifier: MIT */
/*
 * Streams: their memory, the list of what was put on them, the hardware queue that bounds it, how
 * far they got and who waits for that. What an operation does when its turn comes: session.c.
 */
#include <stdlib.h>
#include <string.h>

#include "host.h"

#define MAX_SLABS  20 /* each twice as large as the one before */
#define FIRST_SLAB 16 /* streams (arbitrary) */

/* The memory of streams; all of it guarded by slabs_lock. */
static cufi_lock slabs_lock;
static struct CUstream_st *slabs[MAX_SLABS], *spare_streams;
static unsigned n_slabs, n_created;

/* A hardware queue: work pending in it, and how many enqueuers sleep because it is full. */
static struct {
	_Alignas(64) _Atomic uint32_t pending;
	atomic_uint sleepers;
} queues[CUFI_HOST_QUEUES];

/* ---- memory and handles ---- */

static struct CUstream_st *take_spare(void)
{
	struct CUstream_st *s;
	size_t i, n;

	cufi_lock_take(&slabs_lock);
	if (spare_streams == NULL && n_slabs < MAX_SLABS) {
		n = (size_t)FIRST_SLAB << n_slabs;
		s = aligned_alloc(_Alignof(struct CUstream_st), n * sizeof *s);
		if (s != NULL) {
			memset(s, 0, n * sizeof *s);
			slabs[n_slabs++] = s;
			for (i = n; i-- > 0;) {
				s[i].next = spare_streams;
				spare_streams = &s[i];
			}
		}
	}
	s = spare_streams;
	if (s != NULL) {
		spare_streams = s->next;
		s->queue = n_created++ % CUFI_HOST_QUEUES;
	}
	cufi_lock_give(&slabs_lock);
	return s;
}

int cufi_host_stream_create(int priority, struct CUstream_st **out_stream)
{
	int device = cufi_host_current();
	struct host_device *d = &cufi_host_devices[device];
	int code = cufi_host_begin(CUF_HOST_STREAM_CREATE, device);
	struct CUstream_st *s;

	(void)priority; /* CUDA clamps it; here no stream outranks another */
	if (code != 0)
		return cufi_host_return(code);
	s = take_spare();
	if (s == NULL)
		return cufi_host_return(CUFI_CODE_NO_MEMORY);
	/* A late kick may look at it meanwhile: hence the lock, and what it holds keeps its value. */
	cufi_lock_take(&s->lock);
	s->device = device;
	s->state = HOST_IDLE;
	s->again = false;
	if (s->last == NULL)
		s->last = &s->first;
	/* relaxed: nobody has the handle yet */
	atomic_store_explicit(&s->stalled, false, memory_order_relaxed);
	atomic_store_explicit(&s->issued, 0, memory_order_relaxed);
	atomic_store_explicit(&s->done, 0, memory_order_relaxed);
	atomic_store_explicit(&s->wake_at, UINT64_MAX, memory_order_relaxed);
	atomic_store_explicit(&s->refs, 1, memory_order_relaxed);
	cufi_lock_give(&s->lock);
	memset(s->freed, 0, sizeof s->freed); /* of a lost device's, if any */
	cufi_lock_take(&d->lock);
	s->next = d->streams;
	s->at = &d->streams;
	if (s->next != NULL)
		s->next->at = &s->next;
	d->streams = s;
	cufi_lock_give(&d->lock);
	/* relaxed: handed on by the caller's own means */
	atomic_store_explicit(&s->alive, HOST_ALIVE, memory_order_relaxed);
	*out_stream = s;
	return 0;
}

int cufi_host_stream_device(const struct CUstream_st *s)
{
	/* relaxed: who uses a handle that is being destroyed gets either answer */
	if (s == NULL || atomic_load_explicit(&s->alive, memory_order_relaxed) != HOST_ALIVE)
		return HOST_NO_HANDLE;
	return s->device;
}

struct CUstream_st *cufi_host_stream_find(struct CUstream_st *s)
{
	uintptr_t at = (uintptr_t)s, base;
	unsigned i;

	cufi_lock_take(&slabs_lock);
	for (i = 0; i < n_slabs; i++) {
		base = (uintptr_t)slabs[i];
		if (at >= base && at - base < ((size_t)FIRST_SLAB << i) * sizeof *s &&
		    (at - base) % sizeof *s == 0 && cufi_host_stream_device(s) >= 0)
			return s;
	}
	return NULL;
}

void cufi_host_stream_unfind(void)
{
	cufi_lock_give(&slabs_lock);
}

void cufi_host_stream_ref(struct CUstream_st *s)
{
	/* relaxed: the caller has a reference, or the handle */
	atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

void cufi_host_stream_unref(struct CUstream_st *s)
{
	struct host_device *d = &cufi_host_devices[s->device];

	/* acq_rel: pairs with itself: who frees sees what others did with theirs */
	if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
		return;
	cufi_lock_take(&d->lock);
	*s->at = s->next;
	if (s->next != NULL)
		s->next->at = s->at;
	cufi_lock_give(&d->lock);
	cufi_lock_take(&slabs_lock);
	s->next = spare_streams;
	spare_streams = s;
	cufi_lock_give(&slabs_lock);
}

int cufi_host_stream_destroy(struct CUstream_st *s)
{
	uint32_t alive = HOST_ALIVE;
	int code = cufi_host_begin(HOST_CALL_OTHER, cufi_host_stream_device(s));

	if (code == CUFI_CODE_NOT_PERMITTED || code == CUFI_CODE_UNLOADING ||
	    code == CUFI_CODE_INVALID_HANDLE)
		return cufi_host_return(code);
	/* Also on a lost device, which says so. What is pending runs all the same.
	 * relaxed: only one of two destroyers may win */
	if (!atomic_compare_exchange_strong_explicit(&s->alive, &alive, 0, memory_order_relaxed,
						     memory_order_relaxed))
		return cufi_host_return(CUFI_CODE_INVALID_HANDLE);
	cufi_host_stream_unref(s);
	return cufi_host_return(code);
}

int cufi_host_stream_query(struct CUstream_st *s)
{
	int code = cufi_host_begin(CUF_HOST_STREAM_QUERY, cufi_host_stream_device(s));

	/* relaxed: what the caller knows of was put there before */
	if (code == 0 &&
	    !cufi_host_reached(s, atomic_load_explicit(&s->issued, memory_order_relaxed)))
		code = CUFI_CODE_NOT_READY;
	return cufi_host_return(code);
}

/* ---- putting operations on ---- */

/*
 * Two actors, one word. The enqueuer: (a) counts itself as a sleeper, (b) sleeps if pending is
 * still the limit. Who leaves: (c) lowers pending, (d) wakes one if there are sleepers. If (d)
 * sees none, (c) came before (a), and the kernel's own comparison in (b) finds pending changed.
 */
static void enter_queue(unsigned queue)
{
	_Atomic uint32_t *pending = &queues[queue].pending;
	/* relaxed: a counter */
	uint32_t n = atomic_load_explicit(pending, memory_order_relaxed);

	for (;;) {
		if (n < CUFI_HOST_DEPTH) {
			/* relaxed: a counter */
			if (atomic_compare_exchange_weak_explicit(
				    pending, &n, n + 1, memory_order_relaxed, memory_order_relaxed))
				return;
			continue;
		}
		CUFI_TESTPOINT("host:full"); /* the caller is about to block, as in the driver */
		/* seq_cst: pairs with leave_queue(): step (a) before (b) */
		atomic_fetch_add_explicit(&queues[queue].sleepers, 1, memory_order_seq_cst);
		if (atomic_load_explicit(pending, memory_order_seq_cst) == CUFI_HOST_DEPTH)
			(void)cufi_park(pending, CUFI_HOST_DEPTH, CUFI_FOREVER);
		/* relaxed: a wake too many does no harm */
		atomic_fetch_sub_explicit(&queues[queue].sleepers, 1, memory_order_relaxed);
		n = atomic_load_explicit(pending, memory_order_relaxed);
	}
}

static void leave_queue(unsigned queue)
{
	/* seq_cst: pairs with enter_queue(): step (c) before (d) */
	atomic_fetch_sub_explicit(&queues[queue].pending, 1, memory_order_seq_cst);
	if (atomic_load_explicit(&queues[queue].sleepers, memory_order_seq_cst) != 0)
		cufi_wake(&queues[queue].pending, 1);
}

void cufi_host_op_leaves(struct CUstream_st *s, const struct host_op *op)
{
	if (op->kind <= HOST_CALL)
		leave_queue(s->queue);
}

struct host_op *cufi_host_op_new(struct CUstream_st *s, enum host_kind kind, int *out_code)
{
	struct host_op *op;
	int lost;

	*out_code = CUFI_CODE_NO_MEMORY;
	if (kind <= HOST_CALL)
		enter_queue(s->queue);
	lost = cufi_host_lost(s->device);
	if (lost != 0) {
		*out_code = lost;
		if (kind <= HOST_CALL)
			leave_queue(s->queue);
		return NULL;
	}
	cufi_lock_take(&s->lock);
	op = s->spare;
	if (op != NULL) {
		s->spare = op->next;
		s->n_spare--;
	}
	cufi_lock_give(&s->lock);
	if (op == NULL)
		op = aligned_alloc(_Alignof(struct host_op), sizeof *op);
	if (op == NULL) {
		if (kind <= HOST_CALL)
			leave_queue(s->queue);
		return NULL;
	}
	op->kind = kind;
	op->owned = NULL;
	return op;
}

void cufi_host_op_cancel(struct CUstream_st *s, struct host_op *op)
{
	cufi_host_op_leaves(s, op);
	free(op->owned);
	free(op);
}

uint64_t cufi_host_op_push(struct CUstream_st *s, struct host_op *op)
{
	struct host_worker *w = NULL;
	uint64_t seq;

	CUFI_TESTPOINT("host:push"); /* everything is checked, the stream does not have it yet */
	cufi_lock_take(&s->lock);
	/* relaxed: written under the lock */
	seq = atomic_load_explicit(&s->issued, memory_order_relaxed) + 1;
	atomic_store_explicit(&s->issued, seq, memory_order_relaxed);
	op->seq = seq;
	op->next = NULL;
	*s->last = op;
	s->last = &op->next;
	if (s->state == HOST_IDLE) {
		cufi_host_stream_ref(s);
		s->state = HOST_READY;
		w = cufi_host_ready(s);
	}
	cufi_lock_give(&s->lock);
	cufi_host_rouse(w);
	return seq;
}

void cufi_host_kick(struct CUstream_st *s)
{
	struct host_worker *w = NULL;

	cufi_lock_take(&s->lock);
	if (s->state == HOST_BLOCKED) {
		s->state = HOST_READY;
		w = cufi_host_ready(s);
	} else if (s->state == HOST_RUNNING) {
		s->again = true;
	}
	cufi_lock_give(&s->lock);
	cufi_host_rouse(w);
}

void cufi_host_kick_all(struct host_device *d)
{
	struct CUstream_st *s;

	cufi_lock_take(&d->lock);
	for (s = d->streams; s != NULL; s = s->next)
		cufi_host_kick(s);
	cufi_lock_give(&d->lock);
}

/* ---- how far it got ---- */

/* Under the stream's lock. */
static void unlink_waiter(struct CUstream_st *s, struct host_waiter *w)
{
	if (w->prev != NULL)
		w->prev->next = w->next;
	else
		s->waiters = w->next;
	if (w->next != NULL)
		w->next->prev = w->prev;
	else
		s->last_waiter = w->prev;
	w->linked = false;
	/* relaxed: a value that is too low only costs a look; lowered by wait_for() alone */
	atomic_store_explicit(&s->wake_at, s->waiters != NULL ? s->waiters->seq : UINT64_MAX,
			      memory_order_relaxed);
}

/*
 * Two actors. The session: (a) writes done, (b) reads wake_at. Who waits, under the lock: (c) is in
 * the list and in wake_at, (d) reads done. One of (b) and (d) sees the other's write.
 */
void cufi_host_progress(struct CUstream_st *s, uint64_t seq)
{
	struct host_waiter *w;
	struct CUstream_st *kick;

	/* seq_cst: pairs with cufi_host_reached(), cufi_host_wait_for(): what operations wrote */
	atomic_store_explicit(&s->done, seq, memory_order_seq_cst);
	CUFI_TESTPOINT("host:done"); /* a query says so, nobody who sleeps was told */
	/* seq_cst: pairs with cufi_host_wait_for(): (a) before (b) */
	while (seq >= atomic_load_explicit(&s->wake_at, memory_order_seq_cst)) {
		kick = NULL;
		cufi_lock_take(&s->lock);
		w = s->waiters;
		if (w != NULL && w->seq <= seq) {
			_Atomic uint32_t *word = w->word;

			/* From here on *w is its owner's; of its word the address alone is used
			 * after the store. */
			unlink_waiter(s, w);
			kick = w->kick;
			if (word != NULL) {
				/* release: pairs with cufi_host_await(): it may return */
				atomic_store_explicit(word, 1, memory_order_release);
				cufi_wake(word, 1);
			}
		}
		cufi_lock_give(&s->lock);
		/* One at a time, without the lock: its own lock is of the same rank as ours. */
		if (kick != NULL)
			cufi_host_kick(kick);
	}
}

bool cufi_host_wait_for(struct CUstream_st *s, struct host_waiter *w)
{
	struct host_waiter *before;
	bool there;

	/* No look without the lock first: while progress() is at it, *w is not the caller's. */
	cufi_lock_take(&s->lock);
	if (!w->linked) {
		/* From the end: waits mostly come in the order of what they wait for. */
		for (before = s->last_waiter; before != NULL && before->seq > w->seq;)
			before = before->prev;
		w->prev = before;
		w->next = before != NULL ? before->next : s->waiters;
		*(before != NULL ? &before->next : &s->waiters) = w;
		*(w->next != NULL ? &w->next->prev : &s->last_waiter) = w;
		w->linked = true;
		/* seq_cst: pairs with cufi_host_progress(): (c) before (d) */
		atomic_store_explicit(&s->wake_at, s->waiters->seq, memory_order_seq_cst);
	}
	there = cufi_host_reached(s, w->seq);
	if (there && w->linked)
		unlink_waiter(s, w);
	cufi_lock_give(&s->lock);
	return there;
}

void cufi_host_wait_cancel(struct CUstream_st *s, struct host_waiter *w)
{
	cufi_lock_take(&s->lock);
	if (w->linked)
		unlink_waiter(s, w);
	cufi_lock_give(&s->lock);
}

void cufi_host_await(struct CUstream_st *s, uint64_t seq)
{
	_Atomic uint32_t word = 0;
	struct host_waiter w = { .seq = seq, .word = &word };

	if (cufi_host_wait_for(s, &w))
		return;
	/* acquire: pairs with cufi_host_progress(): what the operations wrote */
	while (atomic_load_explicit(&word, memory_order_acquire) == 0)
		(void)cufi_park(&word, 0, CUFI_FOREVER);
}

/* ---- the end ---- */

static void drop_list(struct CUstream_st *s, struct host_op *op)
{
	struct host_op *next;

	for (; op != NULL; op = next) {
		next = op->next;
		cufi_host_op_leaves(s, op);
		cufi_host_op_end(s, op);
		free(op);
	}
}

void cufi_host_streams_drop(void)
{
	struct CUstream_st *s;
	unsigned i;

	for (i = 0; i < n_slabs; i++)
		for (s = slabs[i]; s < slabs[i] + ((size_t)FIRST_SLAB << i); s++) {
			drop_list(s, s->batch);
			drop_list(s, s->first);
			s->batch = s->first = NULL;
		}
}

static void free_ops(struct host_op *op)
{
	struct host_op *next;

	for (; op != NULL; op = next) {
		next = op->next;
		free(op);
	}
}

void cufi_host_streams_close(void)
{
	struct CUstream_st *s;
	unsigned i;

	cufi_lock_take(&slabs_lock);
	for (i = 0; i < n_slabs; i++) {
		for (s = slabs[i]; s < slabs[i] + ((size_t)FIRST_SLAB << i); s++) {
			free_ops(s->spare);
			free_ops(s->spent);
		}
		free(slabs[i]);
		slabs[i] = NULL;
	}
	n_slabs = n_created = 0;
	spare_streams = NULL;
	for (i = 0; i < CUFI_HOST_DEVICES; i++)
		cufi_host_devices[i].streams = NULL;
	cufi_lock_give(&slabs_lock);
}
