/* SPDX-License-Identifier: MIT */
/*
 * Loops: push, signal, dispatch, run_until, close. What a task does: continuation.c.
 *
 * A: who pushes                           B: who drains
 *  a1 writers + 1; closed? elsewhere       b1 signalled = 0
 *  a2 pushes the task                      b2 reads the descriptor, if there is one
 *  a3 signalled was 0 and is now 1:        b3 runs tasks, up to its bounds
 *     writes the descriptor, wakes         b4 something left: as a3
 *  a4 writers - 1
 *
 * A task pushed (a2) before b3 looked is run by b3; one pushed later finds signalled 0 (b1) or a
 * signal of a3 that b2 has not read yet. So no task waits without the descriptor being readable, and
 * there is at most one write for each b1. Closing sets closed, waits for writers to fall to 0, and
 * drains; the descriptor is closed only after that.
 */
#include "loop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "begin.h"
#include "error.h"
#include "future.h"
#include "op.h"
#include "scope.h"

/* One dispatch call of the user's runs no longer than this before it leaves the rest. Arbitrary. */
#define SLICE_NS 1000000u

/* ---- user code on this thread ---- */

static _Thread_local struct {
	unsigned depth;
	cuf_runtime *rt;
} callback;

void cufi_callback_enter(cuf_runtime *rt)
{
	/* relaxed: the exit handler only waits for it */
	if (!callback.depth++)
		atomic_fetch_add_explicit(&rt->running, 1, memory_order_relaxed);
	callback.rt = rt;
}

void cufi_callback_leave(void)
{
	/* relaxed: as above */
	if (!--callback.depth)
		atomic_fetch_sub_explicit(&callback.rt->running, 1, memory_order_relaxed);
}

bool cufi_in_callback(const cuf_runtime *rt)
{
	return callback.depth && callback.rt == rt;
}

void cufi_halt_at_exit(cuf_runtime *rt)
{
	static _Atomic uint32_t for_ever;

	/* acquire: pairs with the exit handler */
	if (!atomic_load_explicit(&rt->exiting, memory_order_acquire))
		return;
	/* release: pairs with the exit handler: no call of this thread is under way */
	atomic_fetch_add_explicit(&rt->halted, 1, memory_order_release);
	for (;;)
		cufi_park(&for_ever, 0, CUFI_FOREVER);
}

/* ---- signals ---- */

static int fd_of(const cuf_loop *l)
{
	/* acquire: pairs with the exchange in cuf_loop_fd */
	return atomic_load_explicit(&((cuf_loop *)l)->fd, memory_order_acquire);
}

static void fd_write(int fd)
{
	uint64_t one = 1;
	ssize_t n;

	do {
		n = write(fd, &one, sizeof one);
	} while (n < 0 && errno == EINTR);
	/* EAGAIN: the counter is full, so it is readable already */
}

static void signal_drainer(cuf_loop *l)
{
	int fd;

	switch (l->kind) {
	case CUFI_LOOP_RUNTIME:
		l->rt->up.poke(l->rt);
		return;
	case CUFI_LOOP_WORKERS:
		/* seq_cst: pairs with sleepers in cufi_loop_serve: it sees the word, or we see it */
		atomic_fetch_add(&l->word, 1);
		if (atomic_load(&l->sleepers))
			cufi_wake(&l->word, 1);
		return;
	case CUFI_LOOP_USER:
		break;
	}
	/* seq_cst: pairs with b1 */
	if (atomic_exchange(&l->signalled, 1))
		return;
	fd = fd_of(l);
	if (fd >= 0)
		fd_write(fd);
	atomic_fetch_add(&l->word, 1);
	if (atomic_load(&l->sleepers))
		cufi_wake(&l->word, INT32_MAX);
}

void cufi_loop_push(cuf_loop *l, struct cufi_task *task)
{
	task->node.mark = CUFI_RUN;
	if (l->kind == CUFI_LOOP_USER) {
		/* seq_cst: pairs with cuf_loop_close: it sees us as a writer, or we see it closed */
		atomic_fetch_add(&l->writers, 1);
		if (atomic_load(&l->closed)) {
			atomic_fetch_sub(&l->writers, 1);
			task->node.mark = CUFI_CLOSED;
			l = &l->rt->loop;
		}
	}
	CUFI_TESTPOINT("loop:push");
	cufi_queue_push(&l->queue, &task->node);
	signal_drainer(l);
	if (l->kind == CUFI_LOOP_USER)
		atomic_fetch_sub(&l->writers, 1);
}

bool cufi_loop_has_work(cuf_loop *l)
{
	/* acquire: pairs with the exit handler */
	return !atomic_load_explicit(&l->rt->exiting, memory_order_acquire) &&
	       !cufi_queue_empty(&l->queue);
}

static struct cufi_task *pop(cuf_loop *l)
{
	struct cufi_node *n;

	cufi_lock_take(&l->consumer);
	n = cufi_queue_pop(&l->queue);
	cufi_lock_give(&l->consumer);
	return (struct cufi_task *)n;
}

/* Loops that this thread is running, the innermost first. */
static _Thread_local struct running {
	const cuf_loop *loop;
	struct running *outer;
} * running;

static bool runs_here(const cuf_loop *l)
{
	const struct running *r = running;

	while (r && r->loop != l)
		r = r->outer;
	return r != NULL;
}

size_t cufi_loop_run(cuf_loop *l, size_t max, uint64_t slice_ns)
{
	uint64_t until = cufi_now_ns() + slice_ns;
	struct running here = { l, running };
	size_t n = 0;

	running = &here;
	while (n < max) {
		struct cufi_task *task;

		/* acquire: pairs with the exit handler */
		if (atomic_load_explicit(&l->rt->exiting, memory_order_acquire))
			break;
		task = pop(l);
		if (!task)
			break;
		task->run(task, task->node.mark);
		n++;
		if (n % 8 == 0 && cufi_now_ns() > until)
			break;
	}
	running = here.outer;
	return n;
}

/* ---- the owner's ---- */

cuf_status cuf_loop_create(cuf_runtime *rt, cuf_loop **out_loop)
{
	cuf_loop *l;

	if (!out_loop)
		return CUF_ERR_INVALID;
	*out_loop = NULL;
	if (!rt)
		return CUF_ERR_INVALID;
	if (cufi_forked(rt))
		return CUF_ERR_FORKED;
	/* acquire: pairs with the store in cuf_runtime_shutdown */
	if (atomic_load_explicit(&rt->gate, memory_order_acquire))
		return CUF_ERR_SHUTDOWN;
	l = aligned_alloc(64, (sizeof *l + 63) & ~(size_t)63);
	if (!l)
		return CUF_ERR_NO_MEMORY;
	cufi_loop_init(l, rt, CUFI_LOOP_USER);
	l->fd_made = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (l->fd_made < 0) {
		free(l);
		return CUF_ERR_NO_MEMORY;
	}
	cufi_lock_take(&rt->loops_lock);
	l->next = rt->loops;
	rt->loops = l;
	cufi_lock_give(&rt->loops_lock);
	*out_loop = l;
	return CUF_OK;
}

void cufi_loop_init(cuf_loop *l, cuf_runtime *rt, enum cufi_loop_kind kind)
{
	memset(l, 0, sizeof *l);
	l->rt = rt;
	l->kind = kind;
	/* relaxed: not shared yet */
	atomic_store_explicit(&l->fd, -1, memory_order_relaxed);
	l->fd_made = -1;
	cufi_queue_init(&l->queue);
}

void cufi_loop_free(cuf_loop *l)
{
	if (l->fd_made >= 0)
		close(l->fd_made);
	free(l);
}

int cuf_loop_fd(const cuf_loop *l)
{
	cuf_loop *loop = (cuf_loop *)l;
	int fd, none = -1;

	if (!l)
		return -1;
	fd = fd_of(l);
	if (fd >= 0 || l->kind != CUFI_LOOP_USER)
		return fd;
	fd = loop->fd_made;
	/* acq_rel: pairs with fd_of */
	if (!atomic_compare_exchange_strong_explicit(&loop->fd, &none, fd, memory_order_acq_rel,
						     memory_order_acquire))
		return none;
	/* What was signalled before there was a descriptor. seq_cst: pairs with signal_drainer */
	if (atomic_load(&loop->signalled) || cufi_loop_has_work(loop))
		fd_write(fd);
	return fd;
}

/* Whether the loop may be used in this way (1 dispatch, 2 take): the first use decides. */
static bool use(cuf_loop *l, uint32_t how)
{
	uint32_t was = 0;

	/* relaxed: a loop is drained by one thread, or by several that dispatch alike */
	return atomic_compare_exchange_strong_explicit(&l->use, &was, how, memory_order_relaxed,
						       memory_order_relaxed) ||
	       was == how;
}

/* b1 and b2. */
static void unsignal(cuf_loop *l)
{
	int fd = fd_of(l);
	uint64_t count;
	ssize_t n;

	/* seq_cst: pairs with the exchange in signal_drainer */
	atomic_store(&l->signalled, 0);
	if (fd < 0)
		return;
	do {
		n = read(fd, &count, sizeof count);
	} while (n < 0 && errno == EINTR);
	/* EAGAIN: another reader was here, or the write is on its way and comes again */
}

size_t cuf_loop_dispatch(cuf_loop *l, size_t max)
{
	size_t n;

	if (!l || cufi_forked(l->rt) || runs_here(l) || !use(l, 1))
		return 0;
	unsignal(l);
	n = cufi_loop_run(l, max, SLICE_NS);
	if (cufi_loop_has_work(l))
		signal_drainer(l);
	return n;
}

size_t cuf_loop_take(cuf_loop *l, cuf_event *out_events, size_t max)
{
	size_t n = 0;

	if (!l || !out_events || cufi_forked(l->rt) || !use(l, 2))
		return 0;
	unsignal(l);
	while (n < max) {
		struct cufi_task *task = pop(l);

		if (!task)
			break;
		if (cufi_post_take(task, &out_events[n]))
			n++;
		else
			task->run(task, CUFI_CLOSED); /* a continuation has no place here */
	}
	if (cufi_loop_has_work(l))
		signal_drainer(l);
	return n;
}

/* Wakes the loop when @f settles. */
static void waker_told(struct cufi_op *op, struct cufi_link *l)
{
	cuf_loop *loop = *(cuf_loop **)cufi_op_params(op);

	(void)l;
	/* seq_cst: as in signal_drainer */
	atomic_fetch_add(&loop->word, 1);
	cufi_wake(&loop->word, INT32_MAX);
	cufi_op_drop(op);
}

static void waker_ready(struct cufi_op *op)
{
	(void)op; /* the waiting thread frees it */
}

static const struct cufi_op_class waker_class = {
	.name = "run_until",
	.params_bytes = sizeof(cuf_loop *),
	.ready = waker_ready,
	.told = waker_told,
};

/* Serves @l until @f (NULL: never) has settled, or the deadline, one task at a time: what is behind the
 * one that settled it stays. */
static cuf_status serve(cuf_loop *l, cuf_future *f, uint64_t deadline_ns)
{
	cuf_status st;

	for (;;) {
		/* acquire: pairs with the adds to the word */
		uint32_t word = atomic_load_explicit(&l->word, memory_order_acquire);

		unsignal(l);
		do {
			st = f ? cuf_poll(f) : CUF_PENDING;
		} while (st == CUF_PENDING && cufi_now_ns() < deadline_ns &&
			 cufi_loop_run(l, 1, SLICE_NS));
		if (st != CUF_PENDING || cufi_now_ns() >= deadline_ns)
			break;
		/* seq_cst: pairs with signal_drainer */
		atomic_fetch_add(&l->sleepers, 1);
		if (!cufi_loop_has_work(l))
			cufi_park(&l->word, word, deadline_ns);
		atomic_fetch_sub(&l->sleepers, 1);
	}
	if (cufi_loop_has_work(l))
		signal_drainer(l);
	return st;
}

/* The same, woken by @f too. */
static cuf_status serve_until(cuf_loop *l, cuf_future *f, uint64_t deadline_ns)
{
	static const cuf_options none = { .size = sizeof none };
	struct cufi_op *waker = cufi_op_new(&l->rt->root, &waker_class, 1, 0, &none);
	cuf_status st;

	if (!waker)
		return CUF_ERR_NO_MEMORY;
	*(cuf_loop **)cufi_op_params(waker) = l;
	cufi_op_depend(waker, 0, f, false);
	/* relaxed: the hand keeps the count above 0 */
	atomic_fetch_add_explicit(&waker->waiting, 1, memory_order_relaxed);
	if (!cufi_attach(cufi_op_links(waker), CUFI_AT_SETTLED))
		/* relaxed: as above */
		atomic_fetch_sub_explicit(&waker->waiting, 1, memory_order_relaxed);
	st = serve(l, f, deadline_ns);
	if (!cufi_detach(cufi_op_links(waker))) {
		unsigned spins = 0;

		/* acquire: pairs with cufi_op_drop in waker_told: it is done with the operation.
		 * The hand is ours, so the count ends at 1. */
		while (atomic_load_explicit(&waker->waiting, memory_order_acquire) != 1)
			cufi_relax(&spins);
	}
	cufi_op_free(l->rt, waker);
	return st;
}

cuf_status cuf_loop_run_until(cuf_loop *l, cuf_future *f, uint64_t deadline_ns)
{
	cuf_status st;

	if (!l)
		return CUF_ERR_INVALID;
	if (cufi_forked(l->rt))
		return CUF_ERR_FORKED;
	if ((f && !cufi_same_runtime(f, l->rt)) || !use(l, 1))
		return CUF_ERR_INVALID;
	st = f ? cuf_poll(f) : CUF_PENDING;
	if (st == CUF_PENDING && cufi_in_callback(l->rt))
		return CUF_ERR_WOULD_DEADLOCK;
	if (st == CUF_PENDING)
		st = f ? serve_until(l, f, deadline_ns) : serve(l, NULL, deadline_ns);
	if (st < 0 && cuf_poll(f) == st)
		cufi_root_look(cufi_root_of(f));
	return st;
}

void cuf_loop_close(cuf_loop *l)
{
	struct cufi_task *task;
	unsigned spins = 0;

	if (!l || l->kind != CUFI_LOOP_USER || cufi_forked(l->rt))
		return;
	/* seq_cst: pairs with cufi_loop_push */
	if (atomic_exchange(&l->closed, 1))
		return;
	while (atomic_load(&l->writers))
		cufi_relax(&spins);
	unsignal(l);
	while ((task = pop(l)) != NULL)
		task->run(task, CUFI_CLOSED);
	/* No writer is left, and none comes. relaxed: the owner's call */
	atomic_store_explicit(&l->fd, -1, memory_order_relaxed);
	close(l->fd_made);
	l->fd_made = -1;
}

/* ---- the workers' ---- */

void cufi_loop_wake_all(cuf_loop *l)
{
	/* seq_cst: as in signal_drainer */
	atomic_fetch_add(&l->word, 1);
	cufi_wake(&l->word, INT32_MAX);
}

void cufi_loop_serve(cuf_loop *l, _Atomic uint32_t *stop)
{
	for (;;) {
		/* acquire: pairs with the adds to the word */
		uint32_t word = atomic_load_explicit(&l->word, memory_order_acquire);

		cufi_halt_at_exit(l->rt);
		if (cufi_loop_run(l, SIZE_MAX, UINT64_MAX / 2))
			continue;
		/* seq_cst: pairs with signal_drainer */
		atomic_fetch_add(&l->sleepers, 1);
		if (!cufi_loop_has_work(l)) {
			/* acquire: pairs with the release in runtime.c */
			if (atomic_load_explicit(stop, memory_order_acquire)) {
				atomic_fetch_sub(&l->sleepers, 1);
				return;
			}
			cufi_park(&l->word, word, CUFI_FOREVER);
		}
		atomic_fetch_sub(&l->sleepers, 1);
	}
}
