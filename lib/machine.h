/* SPDX-License-Identifier: MIT */
/*
 * The machine of a runtime: its devices and the threads that drive them. Put together in runtime.c.
 */
#ifndef CUFI_MACHINE_H
#define CUFI_MACHINE_H

#include "lane.h"

#define CUFI_ARMS 64 /* host functions outstanding: bits of a word */

/*
 * What a completer sleeps on, and what host functions ring. Static and never freed: the driver may
 * call a host function late, after the runtime is gone.
 */
struct cufi_bell {
	_Atomic uint32_t word; /* 0 awake, 1 asleep */
	_Atomic uint32_t used;
	_Atomic uint64_t fired; /* bits of arms whose host function ran */
	_Atomic uint64_t rings; /* host functions called */
	_Atomic uint32_t generations[CUFI_ARMS];
} __attribute__((aligned(64)));

struct cufi_arm {
	struct cufi_lane *lane; /* NULL: free */
	uint64_t seq;
	struct cufi_companion *companion;
};

struct cufi_kernel_table;
struct cufi_allocation_table;
struct cufi_pinned_pool;
struct cufi_keys;
struct cufi_staging;

struct cufi_machine {
	const struct cufi_device_ops *ops;
	int n_devices;
	struct cufi_device *devices;
	bool debug_sync;

	/* completer */
	struct cufi_bell *bell;
	unsigned bell_index;
	struct cufi_thread completer, standby;
	_Atomic uint32_t look; /* the tick found lanes that nobody harvests */
	_Atomic uint64_t
		busy_since; /* when the completer began to dispatch or to call; 0: it polls */
	_Atomic uint32_t standby_word;
	_Atomic uint32_t stop;
	uint64_t spin_ns;		 /* how long it polls without success before it sleeps */
	struct cufi_arm arms[CUFI_ARMS]; /* the completer's */
	/* relaxed: statistics */
	_Atomic uint64_t n_parks, n_wakes;

	struct cufi_kernel_table *kernels;
	struct cufi_allocation_table *allocations;
	struct cufi_pinned_pool *pinned;
	struct cufi_keys *keys;
	struct cufi_staging *staging;

	struct cufi_thread *workers;
	unsigned n_workers;
	_Atomic uint32_t workers_stop;
};

static inline bool cufi_debug_sync(const cuf_runtime *rt)
{
	return rt->machine->debug_sync;
}

/* completer.c */
int cufi_completer_start(cuf_runtime *rt, const struct cufi_thread_options *o);
void cufi_completer_stop(cuf_runtime *rt);
/* Both its threads look up. */
void cufi_completer_wake(cuf_runtime *rt);
void cufi_ring(cuf_runtime *rt);
/* The loss of @d is told to the user by the completer. */
void cufi_lost_device(struct cufi_device *d);

/* enqueuer.c */
int cufi_enqueuers_start(struct cufi_device *d, const struct cufi_thread_options *o);
void cufi_enqueuers_stop(struct cufi_device *d);
void cufi_enqueuers_wake(struct cufi_device *d);

/* kernel.c, op_alloc.c, pinned.c, staging.c, op_enqueue.c */
int cufi_kernels_init(cuf_runtime *rt);
void cufi_kernels_fini(cuf_runtime *rt);
int cufi_allocations_init(cuf_runtime *rt);
void cufi_allocations_fini(cuf_runtime *rt);
void cufi_free_allocation(cuf_scope *s, struct cufi_allocation *a);
int cufi_pinned_init(cuf_runtime *rt);
void cufi_pinned_fini(cuf_runtime *rt);
int cufi_staging_init(cuf_runtime *rt);
void cufi_staging_fini(cuf_runtime *rt);
int cufi_keys_init(cuf_runtime *rt);
void cufi_keys_fini(cuf_runtime *rt);

#endif
