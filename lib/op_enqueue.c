/* SPDX-License-Identifier: MIT */
/*
 * Foreign code on a stream of ours: called once, with its lane owned and no lock held; keys.
 *
 * A key's callbacks run in the order of submit and their work is ordered on the device: each enqueue
 * with a key depends, for order only, on the one before it with that key. The table of keys names the
 * last of each; an entry whose last has finished is taken over.
 */
#include <stdlib.h>
#include <string.h>

#include "begin.h"
#include "error.h"
#include "future.h"
#include "loop.h"
#include "machine.h"
#include "scope.h"
#include "submit.h"

/* Launches that a callback is taken to make if it does not say. The API's promise. */
#define WEIGHT 32u

#define BUCKETS 64 /* arbitrary; a power of two */

struct key {
	const void *key;
	struct key *next;
	cuf_future *last; /* one name */
};

struct cufi_keys {
	cufi_lock lock;
	struct key *bucket[BUCKETS];
};

struct enqueue {
	struct cufi_place place; /* first */
	int code;		 /* what fn returned */
	union {
		cuf_enqueue_fn *fn;
		struct cufi_link *why; /* SKIP: the dependency that failed */
	};
	void *arg;
	cuf_drop_fn *drop;
};

static void run_drop(struct enqueue *p)
{
	if (p->drop) {
		cuf_drop_fn *drop = p->drop;

		p->drop = NULL;
		drop(p->arg);
	}
}

static int enqueue_enqueue(struct cufi_op *op, struct cufi_lane *l)
{
	struct enqueue *p = cufi_op_params(op);
	cuf_runtime *rt = l->dev->rt;
	int code;

	cufi_callback_enter(rt);
	code = p->fn(l->stream, p->arg);
	run_drop(p);
	cufi_callback_leave();
	if (!code)
		return 0;
	p->code = code;
	return CUFI_CODE_USER;
}

static int enqueue_user_code(struct cufi_op *op)
{
	return ((struct enqueue *)cufi_op_params(op))->code;
}

/* ---- a drop that comes without the call, on the runtime's loop ---- */

static void drop_run(struct cufi_task *task, enum cufi_how how)
{
	struct cufi_op *op = (struct cufi_op *)task;

	(void)how;
	cufi_callback_enter(op->scope->rt);
	run_drop(cufi_op_params(op));
	cufi_callback_leave();
	cufi_op_drop(op);
}

static bool enqueue_abandoned(struct cufi_op *op)
{
	struct enqueue *p = cufi_op_params(op);

	if (!p->drop)
		return false;
	op->task.run = drop_run;
	cufi_loop_push(&op->scope->rt->loop, &op->task);
	return true;
}

/* ---- failing without the call: the drop comes first ---- */

static void skip_run(struct cufi_task *task, enum cufi_how how)
{
	struct cufi_op *op = (struct cufi_op *)task;
	struct enqueue *p = cufi_op_params(op);
	bool mine =
		cufi_claim(op->future, CUFI_BIT(CUFI_HELD) | CUFI_BIT(CUFI_BACKLOG), CUFI_SETTLING);

	(void)how;
	cufi_callback_enter(op->scope->rt);
	run_drop(p);
	cufi_callback_leave();
	if (mine) {
		/* other dependencies may not have ended yet: they trail */
		cufi_settle_as(op->future, p->why->on, false);
		cufi_op_cut_promises(op);
	}
	cufi_op_drop(op);
}

/* A dependency failed; whose thread this is, nobody knows: the runtime's loop goes on. */
static bool enqueue_failed(struct cufi_op *op, struct cufi_link *l)
{
	struct enqueue *p = cufi_op_params(op);

	/* not p->drop: the loop may be running it for another dependency */
	if (!cufi_op_has(op, CUFI_OP_DROPS))
		return false;
	/* relaxed: the flag decides only who goes to the loop */
	if (atomic_fetch_or_explicit(&op->flags, CUFI_OP_SKIP, memory_order_relaxed) &
	    CUFI_OP_SKIP) {
		cufi_op_drop(op);
		return true;
	}
	p->why = l;
	op->task.run = skip_run;
	cufi_loop_push(&op->scope->rt->loop, &op->task);
	return true;
}

/* Where it would have been enqueued. */
static void enqueue_unused(struct cufi_op *op)
{
	cufi_callback_enter(op->scope->rt);
	run_drop(cufi_op_params(op));
	cufi_callback_leave();
}

static const struct cufi_op_class enqueue_class = {
	.name = "enqueue",
	.params_bytes = sizeof(struct enqueue),
	.device = true,
	.ready = cufi_device_op_ready,
	.enqueue = enqueue_enqueue,
	.user_code = enqueue_user_code,
	.abandoned = enqueue_abandoned,
	.failed = enqueue_failed,
	.unused = enqueue_unused,
};

/* ---- keys ---- */

/* Makes @op follow the last with @key, and be the last. False: no memory. Link 0. */
static bool follow_key(struct cufi_op *op, const void *key)
{
	struct cufi_keys *t = op->scope->rt->machine->keys;
	unsigned i = (unsigned)(((uintptr_t)key * UINT64_C(0x9e3779b97f4a7c15)) >> 58);
	cuf_future *last = NULL;
	struct key *k;

	cufi_lock_take(&t->lock);
	for (k = t->bucket[i]; k && k->key != key; k = k->next)
		;
	/* An entry whose work has ended serves another key. */
	for (struct key *old = t->bucket[i]; !k && old; old = old->next) {
		if (cufi_word(old->last) & CUFI_FINISHED && cufi_word_settled(cufi_word(old->last)))
			k = old;
	}
	if (!k && (k = calloc(1, sizeof *k)) != NULL) {
		/* relaxed: statistics */
		atomic_fetch_add_explicit(&op->scope->rt->n_allocations, 1, memory_order_relaxed);
		k->next = t->bucket[i];
		t->bucket[i] = k;
	}
	if (k) {
		if (k->key == key)
			cufi_op_depend(op, 0, k->last, true);
		last = k->last;
		k->key = key;
		k->last = op->future;
		cufi_hold(op->future, CUFI_NAME);
	}
	cufi_lock_give(&t->lock);
	if (last)
		cufi_let_go(last, CUFI_NAME);
	return k != NULL;
}

int cufi_keys_init(cuf_runtime *rt)
{
	rt->machine->keys = calloc(1, sizeof *rt->machine->keys);
	return rt->machine->keys ? 0 : -1;
}

void cufi_keys_fini(cuf_runtime *rt)
{
	struct cufi_keys *t = rt->machine->keys;

	for (unsigned i = 0; t && i < BUCKETS; i++) {
		while (t->bucket[i]) {
			struct key *k = t->bucket[i];

			t->bucket[i] = k->next;
			cufi_let_go(k->last, CUFI_NAME);
			free(k);
		}
	}
	free(t);
	rt->machine->keys = NULL;
}

/* ---- submitted ---- */

cuf_future *cuf_enqueue_with(cuf_scope *s, cuf_enqueue_fn *fn, void *arg, const cuf_options *o)
{
	size_t bytes = o && o->size > offsetof(cuf_options, arg_bytes) ? o->arg_bytes : 0;
	struct cufi_begin b;
	struct enqueue *p;

	if (!cufi_begin(&b, s, &enqueue_class, o, 1, bytes, CUFI_DEPS)) {
		if (b.o->drop)
			b.o->drop(arg);
		return b.future;
	}
	if (!fn || (bytes && !arg)) {
		if (b.o->drop)
			b.o->drop(arg);
		return cufi_begin_failed(&b, "enqueue: %s",
					 fn ? ".arg_bytes without an argument"
					    : "the function is NULL");
	}
	if (!cufi_device_pick(&b, s, -1)) {
		if (b.o->drop)
			b.o->drop(arg);
		return b.future;
	}
	p = cufi_op_params(b.op);
	p->place.cls = CUFI_COMPUTE;
	p->place.weight = (uint16_t)(!b.o->weight		? WEIGHT
				     : b.o->weight > UINT16_MAX ? UINT16_MAX
								: b.o->weight);
	p->fn = fn;
	p->arg = arg;
	p->drop = b.o->drop;
	if (bytes) {
		p->arg = cufi_op_bytes(b.op);
		memcpy(p->arg, arg, bytes);
	}
	cufi_op_set(b.op, CUFI_OP_APART | (p->drop ? CUFI_OP_DROPS : 0));
	if (b.o->key && !follow_key(b.op, b.o->key)) {
		run_drop(p);
		return cufi_begin_fails(&b, CUF_ERR_NO_MEMORY, "enqueue: no memory for a key");
	}
	cufi_device_op_start(b.op);
	return b.future;
}
