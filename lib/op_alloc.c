/* SPDX-License-Identifier: MIT */
/*
 * Device memory: allocated at submit on a lane, so that its address is known at once; freed on the same
 * lane behind all that is named; freed with its scope otherwise.
 *
 * The table of allocations finds one by its address. An entry belongs to its scope (ring) and to the
 * table from the alloc to the free's submit, and names the alloc's future for that time.
 */
#include <stdlib.h>

#include "begin.h"
#include "error.h"
#include "future.h"
#include "machine.h"
#include "scope.h"
#include "submit.h"

#define BUCKETS 1024 /* arbitrary; a power of two */

struct cufi_allocation_table {
	struct {
		cufi_lock lock;
		struct cufi_allocation *first;
	} bucket[BUCKETS];
};

/* ---- the table and the scope's ring ---- */

static unsigned bucket_of(const void *p)
{
	return (unsigned)(((uintptr_t)p * UINT64_C(0x9e3779b97f4a7c15)) >> 54) & (BUCKETS - 1);
}

static void list_in_table(cuf_runtime *rt, struct cufi_allocation *a)
{
	struct cufi_allocation_table *t = rt->machine->allocations;
	unsigned i = bucket_of(a->ptr);

	cufi_lock_take(&t->bucket[i].lock);
	a->hash_next = t->bucket[i].first;
	t->bucket[i].first = a;
	cufi_lock_give(&t->bucket[i].lock);
}

static void list(cuf_scope *s, struct cufi_allocation *a)
{
	cufi_lock *lock = cufi_scope_lock_of(s);

	list_in_table(s->rt, a);
	cufi_lock_take(lock);
	a->scope = s;
	a->prev = NULL;
	a->next = s->allocations;
	if (a->next)
		a->next->prev = a;
	s->allocations = a;
	cufi_lock_give(lock);
}

/* Takes the entry for @ptr out of the table. NULL: there is none. */
static struct cufi_allocation *find(cuf_runtime *rt, const void *ptr)
{
	struct cufi_allocation_table *t = rt->machine->allocations;
	struct cufi_allocation **at, *a;
	unsigned i = bucket_of(ptr);

	cufi_lock_take(&t->bucket[i].lock);
	for (at = &t->bucket[i].first; (a = *at) != NULL && a->ptr != ptr; at = &a->hash_next)
		;
	if (a)
		*at = a->hash_next;
	cufi_lock_give(&t->bucket[i].lock);
	return a;
}

static void off_scope(struct cufi_allocation *a)
{
	cuf_scope *s = a->scope;
	cufi_lock *lock = cufi_scope_lock_of(s);

	cufi_lock_take(lock);
	if (a->next)
		a->next->prev = a->prev;
	if (a->prev)
		a->prev->next = a->next;
	else
		s->allocations = a->next;
	cufi_lock_give(lock);
}

int cufi_allocations_init(cuf_runtime *rt)
{
	rt->machine->allocations = calloc(1, sizeof *rt->machine->allocations);
	return rt->machine->allocations ? 0 : -1;
}

/* What the root scope still has: the runtime is going. The devices are still there. */
void cufi_allocations_fini(cuf_runtime *rt)
{
	struct cufi_allocation_table *t = rt->machine->allocations;

	for (unsigned i = 0; t && i < BUCKETS; i++) {
		while (t->bucket[i].first) {
			struct cufi_allocation *a = t->bucket[i].first;
			struct cufi_lane *l = a->lane;
			struct cufi_device_guard guard;

			t->bucket[i].first = a->hash_next;
			if (l->dev->ops->enter(l->dev->index, &guard) == 0) {
				l->dev->ops->free_async(a->ptr, l->stream);
				l->dev->ops->leave(&guard);
			}
			cufi_small_put(rt, a, sizeof *a);
		}
	}
	free(t);
	rt->machine->allocations = NULL;
}

/* ---- alloc ---- */

struct alloc {
	struct cufi_place place; /* first */
	void *ptr;
};

/* The allocation itself was made at submit; this is its place in the order. */
static int alloc_enqueue(struct cufi_op *op, struct cufi_lane *l)
{
	(void)op, (void)l;
	return 0;
}

static const struct cufi_op_class alloc_class = {
	.name = "alloc",
	.params_bytes = sizeof(struct alloc),
	.device = true,
	.ready = cufi_device_op_ready,
	.enqueue = alloc_enqueue,
};

cuf_future *cuf_alloc_with(cuf_scope *s, size_t bytes, const cuf_options *o)
{
	struct cufi_device_guard guard;
	struct cufi_allocation *a;
	struct cufi_root *lost;
	struct cufi_device *d;
	struct cufi_lane *l;
	struct cufi_begin b;
	struct alloc *p;
	void *ptr = NULL;
	int code;

	if (!cufi_begin(&b, s, &alloc_class, o, 0, 0, CUFI_DEPS))
		return b.future;
	if (!bytes)
		return cufi_begin_failed(&b, "alloc of 0 bytes");
	d = cufi_device_pick(&b, s, -1);
	if (!d)
		return b.future;
	lost = cufi_device_lost_root(d);
	if (lost)
		return cufi_begin_fails_as(&b, lost, true);
	p = cufi_op_params(b.op);
	p->place.cls = CUFI_COMPUTE;
	p->place.weight = 1;
	a = cufi_small_get(s->rt, sizeof *a);
	if (!a)
		return cufi_begin_fails(&b, CUF_ERR_NO_MEMORY, "alloc of %zu bytes: no host memory",
					bytes);
	l = cufi_lane_own_with_room(d, b.op);
	if (!l) {
		cufi_small_put(s->rt, a, sizeof *a);
		return cufi_begin_fails(&b, CUF_ERR_BUSY,
					"alloc of %zu bytes: no lane of device %d has room", bytes,
					d->index);
	}
	code = d->ops->enter(d->index, &guard);
	if (!code) {
		code = d->ops->malloc_async(bytes, l->stream, &ptr);
		d->ops->leave(&guard);
	}
	cufi_lane_give_back(l);
	if (code) {
		bool inherited;
		struct cufi_root *r = cufi_device_error(d, code, b.op, l, &inherited);

		cufi_small_put(s->rt, a, sizeof *a);
		cufi_begin_fails_as(&b, r, inherited);
		cufi_root_let_go(r);
		return b.future;
	}
	p->ptr = ptr;
	p->place.lane = (uint8_t)(l->index + 1);
	a->ptr = ptr;
	a->lane = l;
	a->future = b.future;
	cufi_hold(b.future, CUFI_NAME);
	list(s, a);
	cufi_device_op_start(b.op);
	return b.future;
}

void *cuf_address(const cuf_future *alloc)
{
	if (!alloc || !alloc->op || alloc->op->cls != &alloc_class)
		return NULL;
	cufi_check_future(alloc, "cuf_address");
	return ((struct alloc *)cufi_op_params(alloc->op))->ptr;
}

/* ---- free ---- */

struct free_params {
	struct cufi_place place;   /* first */
	struct cufi_allocation *a; /* out of table and scope; NULL: nothing to free, or done */
};

static int free_enqueue(struct cufi_op *op, struct cufi_lane *l)
{
	struct free_params *p = cufi_op_params(op);
	int code = l->dev->ops->free_async(p->a->ptr, l->stream);

	if (!code) {
		cufi_small_put(l->dev->rt, p->a, sizeof *p->a);
		p->a = NULL;
	}
	return code;
}

/* Cancelled, or the call failed: the memory is the scope's again, and goes with it. */
static bool free_abandoned(struct cufi_op *op)
{
	struct free_params *p = cufi_op_params(op);

	if (p->a && cufi_op_has(op, CUFI_OP_INTERNAL))
		list_in_table(op->scope->rt, p->a);
	else if (p->a)
		list(op->scope, p->a);
	p->a = NULL;
	return false;
}

static void nothing_ready(struct cufi_op *op)
{
	if (!cufi_claim(op->future, CUFI_BIT(CUFI_HELD), CUFI_SETTLING)) {
		cufi_op_drop(op);
		return;
	}
	cufi_op_release_links(op);
	cufi_settle_value(op->future, NULL, NULL, true);
}

static const struct cufi_op_class free_class = {
	.name = "free",
	.params_bytes = sizeof(struct free_params),
	.device = true,
	.ready = cufi_device_op_ready,
	.enqueue = free_enqueue,
	.abandoned = free_abandoned,
};

static const struct cufi_op_class nothing_class = {
	.name = "free",
	.params_bytes = sizeof(struct free_params),
	.ready = nothing_ready,
};

/* Starts @b's free of @a (out of the table), on the alloc's lane, behind the alloc: link 0. */
static void start(struct cufi_begin *b, struct cufi_allocation *a)
{
	struct free_params *p = cufi_op_params(b->op);

	p->place.cls = CUFI_COMPUTE;
	p->place.weight = 1;
	p->place.lane = (uint8_t)(a->lane->index + 1);
	p->a = a;
	cufi_op_set_device(b->op, a->lane->dev->index);
	if (a->future) {
		cufi_op_depend(b->op, 0, a->future, true);
		cufi_let_go(a->future, CUFI_NAME);
		a->future = NULL;
	}
	cufi_device_op_start(b->op);
}

cuf_future *cuf_free_with(cuf_scope *s, void *ptr, const cuf_options *o)
{
	struct cufi_allocation *a;
	struct cufi_begin b;

	if (!cufi_begin(&b, s, ptr ? &free_class : &nothing_class, o, 1, 0,
			CUFI_ALWAYS | CUFI_DEPS | CUFI_ORDER_ONLY))
		return b.future;
	if (!ptr) {
		cufi_op_start(b.op);
		return b.future;
	}
	a = find(s->rt, ptr);
	if (!a)
		return cufi_begin_failed(&b, "free of %p: not allocated here, or freed already",
					 ptr);
	off_scope(a);
	start(&b, a);
	return b.future;
}

void cufi_free_allocation(cuf_scope *s, struct cufi_allocation *a)
{
	struct cufi_begin b;

	if (!find(s->rt, a->ptr))
		return; /* a cuf_free from elsewhere has it, and takes it off the scope */
	off_scope(a);
	if (!cufi_begin(&b, s, &free_class, NULL, 1, 0, CUFI_ALWAYS | CUFI_INTERNAL)) {
		/* No memory for an operation: it goes with the runtime. */
		list_in_table(s->rt, a);
		return;
	}
	cufi_op_set(b.op, CUFI_OP_INTERNAL | CUFI_OP_HANDOVER);
	start(&b, a);
	cuf_release(b.future);
}
