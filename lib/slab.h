/* SPDX-License-Identifier: MIT */
/*
 * Memory of futures, operations and scopes: objects of one size, never given back to the system
 * before the slab is destroyed, so that a stale pointer points to an object of the same type. Free
 * objects wait in one list, and up to 32 in a pocket of each thread. It does not know what an object
 * is, nor when it is dead: its state word and generation say so (state.h).
 */
#ifndef CUFI_SLAB_H
#define CUFI_SLAB_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "wait.h"

/* The first bytes of an object, which outlive its put: others may go on reading them as atomics.
 * What follows is poisoned under AddressSanitizer while the object is free. */
#define CUFI_SLAB_KEPT_BYTES 16

struct cufi_slab_chunk;

struct cufi_slab {
	size_t object_bytes; /* rounded up to a multiple of 16; constant after init */
	size_t limit;	     /* constant after init */
	uint64_t serial;     /* no two slabs have one; constant after init */
	int slot;	     /* of threads' pockets; -1: without; constant after init */

	cufi_lock lock;
	void *batches; /* under lock: free objects; see slab.c */
	/* Written under lock, read by anybody. */
	_Atomic(struct cufi_slab_chunk *) newest;
	_Atomic uint64_t chunks;
	_Atomic size_t carved; /* objects that exist */
	_Atomic size_t listed; /* objects in batches */
};

/*
 * Objects of @object_bytes (1 to 32768), aligned to 64 bytes where that is a multiple of 64, else to
 * 16; at most @limit_objects of them (0: no limit; a limit is exact, at the cost of the pockets).
 * Returns 0 or EINVAL.
 */
int cufi_slab_init(struct cufi_slab *s, size_t object_bytes, size_t limit_objects);

/* Gives everything back, live objects too. Nobody else may be in the slab, or look again. */
void cufi_slab_destroy(struct cufi_slab *s);

/*
 * NULL: out of memory, or at the limit and nothing free. A fresh object is all zero; a used one has
 * its first CUFI_SLAB_KEPT_BYTES as its last user left them, the rest undefined.
 */
void *cufi_slab_get(struct cufi_slab *s);

/* Any thread. The last 16 bytes are the slab's from here on. */
void cufi_slab_put(struct cufi_slab *s, void *object);

/*
 * Calls @fn for every object that exists, live, free, or (all zero) not handed out yet, in any
 * thread, while others get and put. @fn reads no more than the kept bytes until it knows better.
 */
void cufi_slab_walk(struct cufi_slab *s, void (*fn)(void *object, void *arg), void *arg);

/* Objects got and not put; exact while nobody is at it. */
size_t cufi_slab_in_use(struct cufi_slab *s);

/* Allocations made from the system so far. */
uint64_t cufi_slab_chunks(const struct cufi_slab *s);

#ifdef CUFI_TESTPOINTS
/* The calling thread has no pockets from now on: which object it gets depends on the order alone
 * in which threads come to the list, so that a seed replays. */
void cufi_slab_without_pockets(void);
#endif

#endif
