/* SPDX-License-Identifier: MIT */
/*
 * Queues between threads: liburcu's wait-free concurrent queue, many producers and one consumer at a
 * time (consumers exclude each other by a lock of their own). liburcu's queues are reached through
 * this file alone: ThreadSanitizer does not see liburcu 0.13's barriers, so each node carries a
 * word of ours that is released before the enqueue and acquired after the dequeue. Only the
 * non-blocking forms are used: the blocking ones may sleep 10 ms for an enqueuer that was preempted.
 */
#ifndef CUFI_QUEUE_H
#define CUFI_QUEUE_H

#ifdef _LGPL_SOURCE
#error "_LGPL_SOURCE would inline liburcu here, where ThreadSanitizer misunderstands it"
#endif

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <urcu/wfcqueue.h>

#include "wait.h"

struct cufi_node {
	struct cds_wfcq_node urcu;
	atomic_uint bridge;
	unsigned mark; /* the pusher's, for who pops it */
};

typedef struct cufi_queue {
	struct __cds_wfcq_head head; /* written by the consumer */
	/* Room, not alignment: the two are in different lines in any memory, malloc's too. */
	char apart[64 - sizeof(struct __cds_wfcq_head)];
	struct cds_wfcq_tail tail; /* written by producers */
} cufi_queue;

static inline void cufi_queue_init(cufi_queue *q)
{
	__cds_wfcq_init(&q->head, &q->tail);
}

/* Any thread. True if the queue was empty before: the consumer may need a wake. */
static inline bool cufi_queue_push(cufi_queue *q, struct cufi_node *n)
{
	cds_wfcq_node_init(&n->urcu);
	/* release: pairs with the acquire in cufi_queue_pop: all that the producer wrote */
	atomic_store_explicit(&n->bridge, 1, memory_order_release);
	return !cds_wfcq_enqueue(__cds_wfcq_head_cast(&q->head), &q->tail, &n->urcu);
}

/*
 * The consumer. NULL: empty, or a producer is in the middle of a push (it will be there soon). That
 * producer may have found the queue not empty, the node before its own being there still, so that
 * nobody will wake: a consumer parks only if cufi_queue_empty(), else it relaxes and pops again.
 */
static inline struct cufi_node *cufi_queue_pop(cufi_queue *q)
{
	struct cds_wfcq_node *n =
		__cds_wfcq_dequeue_nonblocking(__cds_wfcq_head_cast(&q->head), &q->tail);

	if (n == NULL || n == CDS_WFCQ_WOULDBLOCK)
		return NULL;
	/* acquire: pairs with the release in cufi_queue_push */
	(void)atomic_load_explicit(&((struct cufi_node *)n)->bridge, memory_order_acquire);
	return (struct cufi_node *)n;
}

/* The consumer. The first node, left in place; NULL as for pop. */
static inline struct cufi_node *cufi_queue_front(cufi_queue *q)
{
	struct cds_wfcq_node *n =
		__cds_wfcq_first_nonblocking(__cds_wfcq_head_cast(&q->head), &q->tail);

	if (n == NULL || n == CDS_WFCQ_WOULDBLOCK)
		return NULL;
	/* acquire: pairs with the release in cufi_queue_push */
	(void)atomic_load_explicit(&((struct cufi_node *)n)->bridge, memory_order_acquire);
	return (struct cufi_node *)n;
}

/*
 * The consumer. Takes off the node that cufi_queue_front() just gave. It is the only one and a producer
 * is in the middle of a push behind it: waits for him, whose next instruction it is.
 */
static inline void cufi_queue_take(cufi_queue *q)
{
	unsigned spins = 0;

	while (!cufi_queue_pop(q))
		cufi_relax(&spins);
}

/* The consumer. The node behind @n, left in place; NULL as for pop. */
static inline struct cufi_node *cufi_queue_after(cufi_queue *q, struct cufi_node *n)
{
	struct cds_wfcq_node *next =
		__cds_wfcq_next_nonblocking(__cds_wfcq_head_cast(&q->head), &q->tail, &n->urcu);

	if (next == NULL || next == CDS_WFCQ_WOULDBLOCK)
		return NULL;
	/* acquire: pairs with the release in cufi_queue_push */
	(void)atomic_load_explicit(&((struct cufi_node *)next)->bridge, memory_order_acquire);
	return (struct cufi_node *)next;
}

/* Any thread. False as soon as a push has begun; true is a thing of the past unless no producer can be
 * at work. */
static inline bool cufi_queue_empty(cufi_queue *q)
{
	return cds_wfcq_empty(__cds_wfcq_head_cast(&q->head), &q->tail);
}

#endif
