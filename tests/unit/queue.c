/* SPDX-License-Identifier: MIT */
/*
 * The queue keeps each producer's order, loses nothing, says when it was empty so that a consumer
 * who parks is woken, and what the producer wrote is there (the sanitizer looks at that).
 */
#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>

#include "queue.h"
#include "tap.h"
#include "wait.h"

#define PRODUCERS 3
#define ITEMS	  20000

struct item {
	struct cufi_node node;
	unsigned producer, number; /* plain: the queue carries them over */
};

static cufi_queue queue;
static _Atomic uint32_t doorbell; /* counts wakes */
static _Atomic unsigned rings;

static void produce(void *arg)
{
	unsigned producer = *(unsigned *)arg;

	for (unsigned i = 0; i < ITEMS; i++) {
		struct item *it = malloc(sizeof *it);

		if (it == NULL)
			abort();
		it->producer = producer;
		it->number = i;
		if (cufi_queue_push(&queue, &it->node)) {
			atomic_fetch_add(&rings, 1);
			atomic_fetch_add(&doorbell, 1);
			cufi_wake(&doorbell, 1);
		}
		if (i % 1000 == 0)
			sched_yield();
	}
}

/* Pops until all came, and parks where the queue is empty: a lost wake hangs. */
static void check_producers(void)
{
	struct cufi_thread t[PRODUCERS];
	unsigned numbers[PRODUCERS], next[PRODUCERS] = { 0 }, spins = 0;
	unsigned total = 0, strangers = 0, disordered = 0;

	cufi_queue_init(&queue);
	for (unsigned i = 0; i < PRODUCERS; i++) {
		numbers[i] = i;
		if (cufi_thread_start(&t[i], "producer", produce, &numbers[i], NULL))
			abort();
	}
	while (total < PRODUCERS * ITEMS) {
		uint32_t heard = atomic_load(&doorbell);
		struct cufi_node *front = cufi_queue_front(&queue);
		struct item *it = (struct item *)(void *)cufi_queue_pop(&queue);

		if (it == NULL) {
			if (cufi_queue_empty(&queue))
				cufi_park(&doorbell, heard, CUFI_FOREVER);
			else
				cufi_relax(&spins);
			continue;
		}
		if (front != NULL && front != &it->node)
			strangers++;
		if (it->producer >= PRODUCERS || it->number != next[it->producer]++)
			disordered++;
		total++;
		free(it);
	}
	for (unsigned i = 0; i < PRODUCERS; i++)
		cufi_thread_join(&t[i]);
	is_int(disordered, 0, "each producer's order is kept");
	is_int(strangers, 0, "front is what pop gives");
	ok(cufi_queue_pop(&queue) == NULL, "nothing came twice");
	ok(cufi_queue_empty(&queue), "the queue is empty");
	diag("%u of %d pushes found it empty", atomic_load(&rings), PRODUCERS * ITEMS);
}

static void check_alone(void)
{
	struct cufi_node n[3];

	cufi_queue_init(&queue);
	ok(cufi_queue_empty(&queue), "a new queue is empty");
	ok(cufi_queue_pop(&queue) == NULL && cufi_queue_front(&queue) == NULL, "it has no front");
	ok(cufi_queue_push(&queue, &n[0]), "the first push found it empty");
	ok(!cufi_queue_push(&queue, &n[1]), "the second not");
	ok(!cufi_queue_empty(&queue), "now it is not empty");
	ok(cufi_queue_front(&queue) == &n[0], "front: the first");
	ok(cufi_queue_pop(&queue) == &n[0], "pop: the first");
	ok(!cufi_queue_push(&queue, &n[2]), "one is left, so it was not empty");
	ok(cufi_queue_pop(&queue) == &n[1], "pop: the second");
	ok(cufi_queue_pop(&queue) == &n[2], "pop: the third");
	ok(cufi_queue_pop(&queue) == NULL, "pop: no more");
	ok(cufi_queue_push(&queue, &n[1]), "a node can be pushed again, and finds it empty");
	ok(cufi_queue_pop(&queue) == &n[1], "pop: that one");
}

int main(void)
{
	plan(17);
	check_alone();
	check_producers();
	return done();
}
