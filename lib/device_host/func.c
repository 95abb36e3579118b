/* SPDX-License-Identifier: MIT */
/*
 * Host functions: one thread calls those of the whole process, one at a time, while the stream of
 * each waits. A function is called after a fault only where the mode says so.
 */
#include "host.h"

static struct {
	cufi_lock lock;			   /* guards from here */
	struct CUstream_st *first, **last; /* streams whose first operation is to be called */
	unsigned n;
	/* to here */
	_Atomic uint32_t word; /* 1: there is something to do */
	atomic_bool closing;
	struct cufi_thread thread;
} funcs = { .last = &funcs.first };

int cufi_host_func(struct CUstream_st *s, void (*fn)(void *arg), void *arg)
{
	int code = cufi_host_begin(CUF_HOST_FUNC, cufi_host_stream_device(s));
	struct host_op *op;

	if (code == 0 && fn == NULL)
		code = CUFI_CODE_INVALID_VALUE;
	if (code != 0)
		return cufi_host_return(code);
	op = cufi_host_op_new(s, HOST_FUNC, &code);
	if (op == NULL)
		return cufi_host_return(code);
	op->u.call.fn = fn;
	op->u.call.arg = arg;
	/* relaxed: published by the stream's lock */
	atomic_init(&op->u.call.state, FUNC_WAITING);
	cufi_host_op_push(s, op);
	return 0;
}

void cufi_host_func_hand(struct CUstream_st *s)
{
	cufi_lock_take(&funcs.lock);
	s->func_next = NULL;
	*funcs.last = s;
	funcs.last = &s->func_next;
	funcs.n++;
	cufi_lock_give(&funcs.lock);
	/* release: pairs with run_funcs(): nothing but the wake */
	if (atomic_exchange_explicit(&funcs.word, 1, memory_order_release) == 0)
		cufi_wake(&funcs.word, 1);
}

/* The first, or with a seed any: host functions of different streams have no order. */
static struct CUstream_st *take_stream(void)
{
	struct CUstream_st **at = &funcs.first, *s;
	uint64_t skip;

	cufi_lock_take(&funcs.lock);
	skip = funcs.n > 1 && cufi_host_seeded() ? cufi_host_random(HOST_CHOOSE_FUNC) % funcs.n : 0;
	while (skip-- > 0)
		at = &(*at)->func_next;
	s = *at;
	if (s != NULL) {
		*at = s->func_next;
		if (funcs.last == &s->func_next)
			funcs.last = at;
		funcs.n--;
	}
	cufi_lock_give(&funcs.lock);
	return s;
}

static bool is_closing(void)
{
	/* acquire: pairs with cufi_host_func_close(): nothing but the flag */
	return atomic_load_explicit(&funcs.closing, memory_order_acquire);
}

static bool may_call(const struct host_device *d)
{
	uint64_t delay_ns;

	/* relaxed: a function that began before the fault is one that began before it */
	return atomic_load_explicit(&d->faulting, memory_order_relaxed) == 0 ||
	       cufi_host_mode(&delay_ns) == CUF_HOST_FUNC_AFTER_FAULT;
}

static void call_func(struct CUstream_st *s)
{
	struct host_op *op = s->batch; /* the stream waits for us: nobody else touches it */

	if (op->u.call.delay_ns != 0)
		cufi_host_sleep_until(cufi_now_ns() + op->u.call.delay_ns);
	CUFI_TESTPOINT(
		"host:func"); /* the stream has reached a function, which was not called yet */
	if (!cufi_host_closing() && may_call(&cufi_host_devices[s->device])) {
		cufi_host_in_func = true;
		op->u.call.fn(op->u.call.arg);
		cufi_host_in_func = false;
	}
	CUFI_TESTPOINT("host:func-done"); /* it has returned, the stream still waits */
	/* release: pairs with run_func() in session.c: what the function did */
	atomic_store_explicit(&op->u.call.state, FUNC_DONE, memory_order_release);
	cufi_host_kick(s);
}

static void run_funcs(void *arg)
{
	struct CUstream_st *s;

	(void)arg;
	while (!is_closing()) {
		/* relaxed: what comes after it sets the word again */
		atomic_store_explicit(&funcs.word, 0, memory_order_relaxed);
		while (!is_closing() && (s = take_stream()) != NULL)
			call_func(s);
		/* acquire: pairs with cufi_host_func_hand(): nothing but the wake */
		while (!is_closing() &&
		       atomic_load_explicit(&funcs.word, memory_order_acquire) == 0)
			(void)cufi_park(&funcs.word, 0, CUFI_FOREVER);
	}
}

int cufi_host_func_open(void)
{
	/* relaxed: no other thread is here yet */
	atomic_store_explicit(&funcs.closing, false, memory_order_relaxed);
	return cufi_thread_start(&funcs.thread, "host-func", run_funcs, NULL, NULL) != 0
		       ? CUFI_CODE_NO_MEMORY
		       : 0;
}

void cufi_host_func_close(void)
{
	/* release: pairs with is_closing(): nothing but the flag */
	atomic_store_explicit(&funcs.closing, true, memory_order_release);
	/* release: pairs with run_funcs(): the flag */
	atomic_store_explicit(&funcs.word, 1, memory_order_release);
	cufi_wake(&funcs.word, 1);
	cufi_thread_join(&funcs.thread);
	funcs.first = NULL;
	funcs.last = &funcs.first;
	funcs.n = 0;
}
