/* SPDX-License-Identifier: MIT */
/*
 * The table of kernels: found by address without a lock, loaded once for each device, kept as long as
 * the runtime. Entries are only added, so a reader needs no protection.
 */
#include "kernel.h"

#include <stdio.h>
#include <stdlib.h>

#include "machine.h"

#define BUCKETS 256 /* arbitrary; a power of two */

struct cufi_kernel_table {
	cufi_lock lock; /* to add, and around message */
	_Atomic(struct cufi_kernel *) bucket[BUCKETS];
};

static unsigned bucket_of(const struct cuf_kernel *k)
{
	return (unsigned)(((uintptr_t)k * UINT64_C(0x9e3779b97f4a7c15)) >> 56) & (BUCKETS - 1);
}

static struct cufi_kernel *look(struct cufi_kernel_table *t, const struct cuf_kernel *k)
{
	/* acquire: pairs with the release in cufi_kernel_find: the entry is complete */
	struct cufi_kernel *e =
		atomic_load_explicit(&t->bucket[bucket_of(k)], memory_order_acquire);

	while (e && e->k != k)
		e = e->next;
	return e;
}

struct cufi_kernel *cufi_kernel_find(cuf_runtime *rt, const struct cuf_kernel *k)
{
	struct cufi_kernel_table *t = rt->machine->kernels;
	struct cufi_kernel *e = look(t, k);

	if (e)
		return e;
	cufi_lock_take(&t->lock);
	e = look(t, k);
	if (!e && (e = calloc(1, sizeof *e)) != NULL) {
		/* relaxed: statistics */
		atomic_fetch_add_explicit(&rt->n_allocations, 1, memory_order_relaxed);
		e->k = k;
		/* relaxed: written under lock */
		e->next = atomic_load_explicit(&t->bucket[bucket_of(k)], memory_order_relaxed);
		/* release: pairs with look() */
		atomic_store_explicit(&t->bucket[bucket_of(k)], e, memory_order_release);
	}
	cufi_lock_give(&t->lock);
	return e;
}

int cufi_kernel_load(struct cufi_device *d, struct cufi_kernel *e)
{
	struct cufi_kernel_table *t = d->rt->machine->kernels;
	size_t bytes[CUFI_KERNEL_ARGS];
	struct cufi_device_guard guard;
	void *handle = NULL;
	int n = -1, code;

	/* acquire: pairs with the release below */
	if (atomic_load_explicit(&e->handle[d->index], memory_order_acquire))
		return 0;
	code = d->ops->enter(d->index, &guard);
	if (code)
		return code;
	/* Loading may wait for running kernels: no lock is held. Two threads may both do it. */
	code = d->ops->kernel_load(e->k, &handle, bytes, CUFI_KERNEL_ARGS, &n);
	d->ops->leave(&guard);
	if (code == CUFI_CODE_INVALID_FUNCTION || code == CUFI_CODE_NO_BINARY) {
		cufi_lock_take(&t->lock);
		snprintf(e->message, sizeof e->message, "%s has no code for this device",
			 e->k->name);
		cufi_lock_give(&t->lock);
	}
	if (!code && n >= 0) {
		cufi_lock_take(&t->lock);
		if ((size_t)n != e->k->n_args) {
			snprintf(e->message, sizeof e->message,
				 "%s takes %d arguments on the device, its cuf_kernel says %zu",
				 e->k->name, n, e->k->n_args);
			code = CUFI_CODE_MISMATCH;
		}
		for (int i = 0; i < n && !code; i++) {
			if (bytes[i] == e->k->arg_bytes[i])
				continue;
			snprintf(e->message, sizeof e->message,
				 "argument %d of %s is %zu bytes on the device, its cuf_kernel "
				 "says %zu",
				 i + 1, e->k->name, bytes[i], e->k->arg_bytes[i]);
			code = CUFI_CODE_MISMATCH;
		}
		cufi_lock_give(&t->lock);
	}
	/* release: pairs with the acquire of a launch: the message */
	atomic_store_explicit(&e->code[d->index], code, memory_order_release);
	if (!code)
		/* release: pairs with the acquire above and in op_launch.c */
		atomic_store_explicit(&e->handle[d->index], handle, memory_order_release);
	return code;
}

int cufi_kernels_init(cuf_runtime *rt)
{
	rt->machine->kernels = calloc(1, sizeof *rt->machine->kernels);
	return rt->machine->kernels ? 0 : -1;
}

void cufi_kernels_fini(cuf_runtime *rt)
{
	struct cufi_kernel_table *t = rt->machine->kernels;

	for (unsigned i = 0; t && i < BUCKETS; i++) {
		/* relaxed: nobody else is left */
		struct cufi_kernel *e = atomic_load_explicit(&t->bucket[i], memory_order_relaxed);

		while (e) {
			struct cufi_kernel *next = e->next;

			free(e);
			e = next;
		}
	}
	free(t);
}
