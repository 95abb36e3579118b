/* SPDX-License-Identifier: MIT */
/*
 * Pinned host memory: a pool in classes of powers of two. A miss takes a slab from the device, which
 * may block; nothing is given back before the runtime goes.
 */
#include <stdlib.h>

#include "error.h"
#include "harvest.h"
#include "machine.h"
#include "scope.h"

#define SMALLEST   12u /* log2: a page */
#define CLASSES	   36u
#define SLAB_BYTES ((size_t)1 << 20) /* small blocks are cut from one of these. Arbitrary */
#define MAGIC	   0x70696e6eu

/* In front of every block, on a cache line of its own. */
struct block {
	uint32_t magic, cls;
	struct block *next; /* free */
} __attribute__((aligned(64)));

struct slab {
	struct slab *next;
	void *at;
};

struct cufi_pinned_pool {
	cufi_lock lock;
	struct block *free[CLASSES];
	struct slab *slabs;
};

static unsigned class_of(size_t bytes)
{
	unsigned cls = 0;

	while (cls < CLASSES && ((size_t)1 << (cls + SMALLEST)) < bytes)
		cls++;
	return cls;
}

static size_t block_bytes(unsigned cls)
{
	return ((size_t)1 << (cls + SMALLEST)) + sizeof(struct block);
}

/* From the device; blocks. Puts blocks of @cls into the pool. */
static bool refill(cuf_runtime *rt, unsigned cls)
{
	const struct cufi_device_ops *ops = rt->machine->ops;
	struct cufi_pinned_pool *p = rt->machine->pinned;
	size_t each = block_bytes(cls), n = each < SLAB_BYTES ? SLAB_BYTES / each : 1;
	struct cufi_device_guard guard;
	struct slab *s = malloc(sizeof *s);
	int code = CUFI_CODE_NO_MEMORY;

	if (!s)
		return false;
	/* By any device: one that is lost gives nothing any more. */
	for (int i = 0; i < rt->machine->n_devices && code; i++) {
		code = ops->enter(i, &guard);
		if (!code) {
			code = ops->pinned_alloc(n * each, &s->at);
			ops->leave(&guard);
		}
		if (code && ops->is_sticky(code))
			cufi_device_lose(&rt->machine->devices[i], code);
	}
	if (code) {
		cufi_log(rt, CUFI_LOG_ERROR, "no pinned memory (%zu bytes): %s", n * each,
			 ops->code_text(code));
		free(s);
		return false;
	}
	/* relaxed: statistics */
	atomic_fetch_add_explicit(&rt->n_allocations, 1, memory_order_relaxed);
	cufi_lock_take(&p->lock);
	s->next = p->slabs;
	p->slabs = s;
	for (size_t i = 0; i < n; i++) {
		struct block *b = (struct block *)((char *)s->at + i * each);

		b->magic = MAGIC;
		b->cls = cls;
		b->next = p->free[cls];
		p->free[cls] = b;
	}
	cufi_lock_give(&p->lock);
	return true;
}

void *cuf_pinned_get(cuf_runtime *rt, size_t bytes)
{
	unsigned cls = class_of(bytes);
	struct cufi_pinned_pool *p;
	struct block *b;

	if (!rt || !bytes || cls == CLASSES || cufi_forked(rt))
		return NULL;
	p = rt->machine->pinned;
	do {
		cufi_lock_take(&p->lock);
		b = p->free[cls];
		if (b)
			p->free[cls] = b->next;
		cufi_lock_give(&p->lock);
	} while (!b && refill(rt, cls));
	return b ? b + 1 : NULL;
}

void cuf_pinned_put(cuf_runtime *rt, void *ptr)
{
	struct cufi_pinned_pool *p;
	struct block *b;

	if (!rt || !ptr || cufi_forked(rt))
		return;
	p = rt->machine->pinned;
	b = (struct block *)ptr - 1;
	if (b->magic != MAGIC || b->cls >= CLASSES) {
		cufi_log(rt, CUFI_LOG_ERROR, "cuf_pinned_put: %p is not from cuf_pinned_get", ptr);
		return;
	}
	cufi_lock_take(&p->lock);
	b->next = p->free[b->cls];
	p->free[b->cls] = b;
	cufi_lock_give(&p->lock);
}

int cufi_pinned_init(cuf_runtime *rt)
{
	rt->machine->pinned = calloc(1, sizeof *rt->machine->pinned);
	if (!rt->machine->pinned)
		return -1;
	/* So that the first small copies of pageable memory need not wait for the driver. */
	for (size_t have = 0; have < rt->options.pinned_bytes; have += SLAB_BYTES) {
		if (!refill(rt, class_of(SLAB_BYTES / 4)))
			return -1;
	}
	return 0;
}

void cufi_pinned_fini(cuf_runtime *rt)
{
	const struct cufi_device_ops *ops = rt->machine->ops;
	struct cufi_pinned_pool *p = rt->machine->pinned;
	struct cufi_device_guard guard;
	bool entered = p && p->slabs && ops->enter(0, &guard) == 0;

	while (p && p->slabs) {
		struct slab *s = p->slabs;

		p->slabs = s->next;
		ops->pinned_free(s->at);
		free(s);
	}
	if (entered)
		ops->leave(&guard);
	free(p);
	rt->machine->pinned = NULL;
}
