/* SPDX-License-Identifier: MIT */
/*
 * The fault script, the seed, the modes and the counters: the public cuf_host_ functions but
 * cuf_host_enqueue() (work.c), and what the rest asks of them. They are one for the process and
 * outlive open() and close(). What a fault does to a device: session.c.
 */
#include <string.h>

#include "host.h"

#define MAX_RULES 256 /* failing calls that may be pending; more are ignored (arbitrary) */

struct rule {
	int call;
	uint64_t at; /* number of the call, counted as calls[call] is */
	int code;
};

static cufi_lock rules_lock;
static struct rule rules[MAX_RULES]; /* rules_lock */
static atomic_uint n_rules;	     /* written under rules_lock */

static _Atomic uint64_t calls[CUF_HOST_CALLS];
static _Atomic uint64_t calls_in_func;
static atomic_int func_mode;
static _Atomic uint64_t func_delay_ns, slow_ns, seed, random_state[HOST_CHOICES];
static atomic_bool unloading;

_Thread_local bool cufi_host_in_func; /* true in the host function thread, inside a function */

/* relaxed, in all of this file: counters and settings; nothing is published by them. A test that
 * sets one before it submits is ordered by the stream's lock. */
#define LOAD(v)	    atomic_load_explicit(&(v), memory_order_relaxed)
#define STORE(v, x) atomic_store_explicit(&(v), (x), memory_order_relaxed)
#define ADD(v, x)   atomic_fetch_add_explicit(&(v), (x), memory_order_relaxed)

/* The code of a rule that @n-th call of kind @call, the @any-th of all, uses up; or 0. */
static int use_rule(int call, uint64_t n, uint64_t any)
{
	unsigned i, count;
	int code = 0;

	cufi_lock_take(&rules_lock);
	count = LOAD(n_rules);
	for (i = 0; i < count && code == 0; i++)
		/* Not only equal: a call may have been counted while its rule was being written. */
		if ((rules[i].call == call && n >= rules[i].at) ||
		    (rules[i].call == CUF_HOST_ANY && any >= rules[i].at)) {
			code = rules[i].code;
			rules[i] = rules[count - 1];
			STORE(n_rules, count - 1);
		}
	cufi_lock_give(&rules_lock);
	return code;
}

int cufi_host_begin(int call, int device)
{
	uint64_t n = 0, any = 0;
	int code;

	if (call != HOST_CALL_OTHER) {
		n = ADD(calls[call], 1) + 1;
		any = ADD(calls[CUF_HOST_ANY], 1) + 1;
	}
	if (cufi_host_in_func) {
		ADD(calls_in_func, 1);
		return CUFI_CODE_NOT_PERMITTED;
	}
	if (LOAD(unloading))
		return CUFI_CODE_UNLOADING;
	if (call != HOST_CALL_OTHER && LOAD(n_rules) != 0) {
		code = use_rule(call, n, any);
		if (code != 0)
			return code;
	}
	if (device == HOST_ANY_DEVICE)
		return 0;
	if (device < 0 || device >= CUFI_HOST_DEVICES)
		return CUFI_CODE_INVALID_HANDLE;
	if (!LOAD(cufi_host_devices[device].touched))
		STORE(cufi_host_devices[device].touched, true);
	return cufi_host_lost(device);
}

void cuf_host_reset(void)
{
	int i;

	cufi_lock_take(&rules_lock);
	STORE(n_rules, 0);
	cufi_lock_give(&rules_lock);
	for (i = 0; i < CUF_HOST_CALLS; i++)
		STORE(calls[i], 0);
	STORE(calls_in_func, 0);
	STORE(func_mode, CUF_HOST_FUNC_NORMAL);
	STORE(func_delay_ns, 0);
	STORE(slow_ns, 0);
	STORE(unloading, false);
	cuf_host_seed(0);
	for (i = 0; i < CUFI_HOST_DEVICES; i++) {
		struct host_device *d = &cufi_host_devices[i];

		STORE(d->fault_in, 0);
		STORE(d->faulting, 0);
		STORE(d->lost, 0);
		STORE(d->touched, false);
		cuf_host_gate(i, 0);
	}
}

void cuf_host_seed(uint64_t value)
{
	int i;

	STORE(seed, value);
	for (i = 0; i < HOST_CHOICES; i++)
		STORE(random_state[i], value);
}

bool cufi_host_seeded(void)
{
	return LOAD(seed) != 0;
}

/* splitmix64: any state is a good one, and a step is one addition, so that threads may share it. */
uint64_t cufi_host_random(enum host_choice choice)
{
	uint64_t z = ADD(random_state[choice], 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

void cuf_host_fail_call(int call, uint64_t kth, int cuda_code)
{
	unsigned count;

	if (call < 0 || call >= CUF_HOST_CALLS || kth == 0 || cuda_code == 0)
		return;
	cufi_lock_take(&rules_lock);
	count = LOAD(n_rules);
	if (count < MAX_RULES) {
		rules[count] = (struct rule){ call, LOAD(calls[call]) + kth, cuda_code };
		STORE(n_rules, count + 1);
	}
	cufi_lock_give(&rules_lock);
}

void cuf_host_fault_at(int device, uint64_t kth_operation, int cuda_code)
{
	struct host_device *d;

	if (device < 0 || device >= CUFI_HOST_DEVICES || kth_operation == 0 || cuda_code == 0)
		return;
	d = &cufi_host_devices[device];
	STORE(d->fault_in, 0);
	STORE(d->fault_code, cuda_code);
	/* release: pairs with cufi_host_fault_now(): the code */
	atomic_store_explicit(&d->fault_in, kth_operation, memory_order_release);
}

bool cufi_host_fault_now(struct host_device *d)
{
	uint64_t n = LOAD(d->fault_in);

	/* acquire: pairs with cuf_host_fault_at(): the code; relaxed: tried again */
	while (n != 0 &&
	       !atomic_compare_exchange_weak_explicit(&d->fault_in, &n, n - 1, memory_order_acquire,
						      memory_order_relaxed))
		;
	return n == 1;
}

void cuf_host_func_mode(int mode, uint64_t delay_ns)
{
	if (mode < CUF_HOST_FUNC_NORMAL || mode > CUF_HOST_FUNC_AFTER_FAULT)
		return;
	STORE(func_delay_ns, mode == CUF_HOST_FUNC_DELAY ? delay_ns : 0);
	STORE(func_mode, mode);
}

int cufi_host_mode(uint64_t *out_delay_ns)
{
	*out_delay_ns = LOAD(func_delay_ns);
	return LOAD(func_mode);
}

void cuf_host_gate(int device, int closed)
{
	if (device < 0 || device >= CUFI_HOST_DEVICES)
		return;
	/* seq_cst: pairs with is_held() in session.c: a session that found it closed is kicked */
	atomic_store_explicit(&cufi_host_devices[device].gate, closed != 0, memory_order_seq_cst);
	if (!closed)
		cufi_host_kick_all(&cufi_host_devices[device]);
}

void cuf_host_stall(struct CUstream_st *stream, int closed)
{
	struct CUstream_st *s = cufi_host_stream_find(stream);

	if (s != NULL) {
		/* seq_cst: pairs with is_held() in session.c: as in cuf_host_gate() */
		atomic_store_explicit(&s->stalled, closed != 0, memory_order_seq_cst);
		if (!closed)
			cufi_host_kick(s);
	}
	cufi_host_stream_unfind();
}

void cuf_host_slow(uint64_t ns_per_operation)
{
	STORE(slow_ns, ns_per_operation);
}

uint64_t cufi_host_slow_ns(void)
{
	return LOAD(slow_ns);
}

uint64_t cuf_host_calls(int call)
{
	return call >= 0 && call < CUF_HOST_CALLS ? LOAD(calls[call]) : 0;
}

uint64_t cuf_host_calls_in_func(void)
{
	return LOAD(calls_in_func);
}

void cufi_host_unload(bool on)
{
	STORE(unloading, on);
}

bool cufi_host_touched(int device)
{
	return LOAD(cufi_host_devices[device].touched);
}
