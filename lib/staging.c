/* SPDX-License-Identifier: MIT */
/*
 * Copies between pageable and device memory: through pinned buffers, by workers, in two chunks at a
 * time, so that one is on the wire while the other is filled or emptied. The driver would do this on
 * the caller's thread, and would read the source when the call is made, not when its producer ran.
 *
 * Pinned memory in use is bounded (.cap_bytes): a copy that finds no room waits in a queue, in order,
 * until another has ended.
 *
 * The copy leaves HELD when a worker begins with it, after all it depends on has settled; the user's
 * memory is touched from then until it settles. Two legs run side by side, leg k taking chunks k, k+2,
 * …; a leg is one step after the other on the workers' loop, so its fields need no lock.
 */
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "future.h"
#include "loop.h"
#include "machine.h"
#include "op.h"
#include "op_copy.h"
#include "scope.h"
#include "submit.h"

/* Large enough that a chunk's calls cost under 1 % of its transfer (FLOORS: 4 MiB take 76 us). */
#define CHUNK_BYTES ((size_t)4 << 20)

struct cufi_staging {
	cufi_lock lock;
	size_t in_use;	       /* bytes that running copies stage */
	struct cufi_op *first; /* waiting, through staged->next */
	struct cufi_op **last;
};

struct leg {
	struct staged *of;
	void *pinned;
	size_t chunk;	  /* index of the one in the buffer */
	cuf_future *copy; /* of that chunk; one reference */
};

struct staged {
	struct cufi_op *op;
	struct cufi_op *next; /* in the queue for room */
	char *dst;
	const char *src;
	size_t bytes;
	bool to_device;
	struct leg legs[2];
	_Atomic uint32_t left;	      /* legs that run */
	_Atomic(cuf_future *) failed; /* the first chunk that failed; one reference */
	_Atomic bool no_memory;
	bool admitted; /* it waited for room and has it */
};

/* ---- room ---- */

static struct staged *staged_of(struct cufi_op *op)
{
	return *(struct staged **)cufi_op_params(op);
}

static size_t stages(const struct staged *s)
{
	return s->bytes > CHUNK_BYTES ? 2 * CHUNK_BYTES : s->bytes;
}

/* True: it may begin. False: it is in the queue. What is more than the cap goes alone. */
static bool take_room(struct cufi_op *op, struct staged *s)
{
	struct cufi_staging *g = op->future->rt->machine->staging;
	bool room;

	cufi_lock_take(&g->lock);
	room = !g->first &&
	       (!g->in_use || g->in_use + stages(s) <= op->future->rt->options.cap_bytes);
	if (room) {
		g->in_use += stages(s);
	} else {
		s->next = NULL;
		*g->last = op;
		g->last = &s->next;
	}
	cufi_lock_give(&g->lock);
	return room;
}

/* Gives back what @bytes took, and lets the next begin. */
static void give_room(cuf_runtime *rt, size_t bytes)
{
	struct cufi_staging *g = rt->machine->staging;
	struct cufi_op *op;

	cufi_lock_take(&g->lock);
	g->in_use -= bytes;
	while ((op = g->first) != NULL) {
		struct staged *s = staged_of(op);

		if (g->in_use && g->in_use + stages(s) > rt->options.cap_bytes)
			break;
		g->first = s->next;
		if (!g->first)
			g->last = &g->first;
		g->in_use += stages(s);
		s->admitted = true;
		cufi_loop_push(&rt->workers, &op->task);
	}
	cufi_lock_give(&g->lock);
}

int cufi_staging_init(cuf_runtime *rt)
{
	struct cufi_staging *g = calloc(1, sizeof *g);

	if (!g)
		return -1;
	g->last = &g->first;
	rt->machine->staging = g;
	return 0;
}

void cufi_staging_fini(cuf_runtime *rt)
{
	free(rt->machine->staging);
	rt->machine->staging = NULL;
}

/* ---- legs ---- */

/* A lost device is why, or memory is out. */
static void settle_no_memory(struct cufi_op *op, size_t bytes)
{
	cuf_runtime *rt = op->future->rt;
	struct cufi_root *lost = cufi_device_lost_root(cufi_device_at(rt, op->device)), *r;

	if (lost) {
		cufi_root_hold(lost);
		cufi_settle_error(op->future, &lost->inherited, true);
		return;
	}
	r = cufi_root_new(rt, CUF_ERR_NO_MEMORY, CUF_PHASE_EXECUTE, op,
			  "no pinned memory to stage %zu bytes", bytes);
	cufi_settle_error(op->future, &r->own, true);
}

static void leg_end(struct leg *leg)
{
	struct staged *s = leg->of;
	struct cufi_op *op = s->op;
	cuf_runtime *rt = op->future->rt;
	cuf_future *failed;

	cuf_pinned_put(rt, leg->pinned);
	/* acq_rel: pairs with itself: what both legs did is seen by who settles */
	if (atomic_fetch_sub_explicit(&s->left, 1, memory_order_acq_rel) != 1)
		return;
	give_room(rt, stages(s));
	cufi_claim(op->future, CUFI_BIT(CUFI_RUNNING), CUFI_SETTLING);
	cufi_op_release_links(op);
	/* relaxed: ordered by the count */
	failed = atomic_load_explicit(&s->failed, memory_order_relaxed);
	if (failed)
		cufi_settle_as(op->future, failed, true);
	else if (atomic_load_explicit(&s->no_memory, memory_order_relaxed))
		settle_no_memory(op, s->bytes);
	else
		cufi_settle_value(op->future, NULL, NULL, true);
	if (failed)
		cuf_release(failed);
	free(s);
}

static size_t chunk_bytes(const struct staged *s, size_t chunk)
{
	size_t at = chunk * CHUNK_BYTES;

	return s->bytes - at < CHUNK_BYTES ? s->bytes - at : CHUNK_BYTES;
}

static bool stopped(struct staged *s)
{
	/* relaxed: only to stop early */
	return atomic_load_explicit(&s->failed, memory_order_relaxed) != NULL;
}

static void chunk_done(cuf_future *copy, void *arg);

/* Begins with the leg's chunk, if there is one. */
static void leg_step(struct leg *leg)
{
	struct staged *s = leg->of;
	cuf_runtime *rt = s->op->future->rt;
	size_t at = leg->chunk * CHUNK_BYTES, n;

	if (at >= s->bytes || stopped(s)) {
		leg_end(leg);
		return;
	}
	n = chunk_bytes(s, leg->chunk);
	if (s->to_device) {
		memcpy(leg->pinned, s->src + at, n);
		leg->copy = cufi_copy_chunk(&rt->root, s->dst + at, leg->pinned, n, s->op->device,
					    true);
	} else {
		leg->copy = cufi_copy_chunk(&rt->root, leg->pinned, s->src + at, n, s->op->device,
					    false);
	}
	cuf_watch_with(&rt->root, leg->copy, chunk_done, leg,
		       &(const cuf_options){ .size = sizeof(cuf_options), .on = &rt->workers });
}

static void chunk_done(cuf_future *copy, void *arg)
{
	struct leg *leg = arg;
	struct staged *s = leg->of;

	if (cuf_poll(copy) != CUF_OK) {
		cuf_future *none = NULL;

		/* release: pairs with the count in leg_end */
		if (atomic_compare_exchange_strong_explicit(&s->failed, &none, leg->copy,
							    memory_order_release,
							    memory_order_relaxed))
			cuf_retain(copy);
	} else if (!s->to_device) {
		memcpy(s->dst + leg->chunk * CHUNK_BYTES, leg->pinned, chunk_bytes(s, leg->chunk));
	}
	cuf_release(leg->copy);
	leg->copy = NULL;
	leg->chunk += 2;
	leg_step(leg);
}

static void staged_run(struct cufi_task *task, enum cufi_how how)
{
	struct cufi_op *op = (struct cufi_op *)task;
	struct staged *s = staged_of(op);
	uint32_t legs = s->bytes > CHUNK_BYTES ? 2 : 1;

	(void)how; /* the workers' loop is never closed */
	if (!s->admitted && !take_room(op, s))
		return; /* in hand of the queue */
	if (!cufi_claim(op->future, CUFI_BIT(CUFI_HELD), CUFI_RUNNING)) {
		give_room(op->future->rt, stages(s));
		cufi_op_drop(op);
		return;
	}
	*(struct staged **)cufi_op_params(op) = NULL; /* freed by the last leg */
	/* relaxed: the legs start below */
	atomic_store_explicit(&s->left, legs, memory_order_relaxed);
	for (uint32_t i = 0; i < legs; i++) {
		s->legs[i] = (struct leg){ .of = s, .chunk = i };
		s->legs[i].pinned = cuf_pinned_get(op->future->rt,
						   s->bytes < CHUNK_BYTES ? s->bytes : CHUNK_BYTES);
	}
	for (uint32_t i = 0; i < legs; i++) {
		if (s->legs[i].pinned) {
			leg_step(&s->legs[i]);
		} else {
			/* relaxed: ordered by the count */
			atomic_store_explicit(&s->no_memory, true, memory_order_relaxed);
			leg_end(&s->legs[i]);
		}
	}
}

static void staged_ready(struct cufi_op *op)
{
	op->task.run = staged_run;
	cufi_loop_push(&op->scope->rt->workers, &op->task);
}

static void staged_dispose(struct cufi_op *op)
{
	free(staged_of(op));
}

const struct cufi_op_class cufi_staged_class = {
	.name = "copy",
	.params_bytes = sizeof(struct staged *),
	.ready = staged_ready,
	.dispose = staged_dispose,
};

void cufi_staged_start(struct cufi_op *op, void *dst, const void *src, size_t bytes, bool to_device)
{
	struct staged *s = calloc(1, sizeof *s);

	/* relaxed: statistics */
	atomic_fetch_add_explicit(&op->scope->rt->n_allocations, 1, memory_order_relaxed);
	if (!s) {
		if (cufi_claim(op->future, CUFI_BIT(CUFI_HELD), CUFI_SETTLING)) {
			cufi_op_release_links(op);
			cufi_settle_error(op->future, &cufi_root_immortal(CUF_ERR_NO_MEMORY)->own,
					  true);
		} else {
			cufi_op_drop(op);
		}
		return;
	}
	*s = (struct staged){
		.op = op, .dst = dst, .src = src, .bytes = bytes, .to_device = to_device
	};
	*(struct staged **)cufi_op_params(op) = s;
	cufi_op_start(op);
}
