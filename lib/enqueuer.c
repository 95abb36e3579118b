/* SPDX-License-Identifier: MIT */
/*
 * The threads of a device that enqueue what could not be enqueued by its submitter: operations that
 * were held, backlogs, kernels not loaded yet; and, on a thread apart because it may take any time,
 * foreign code. How an operation is enqueued: submit.c.
 */
#include "future.h"
#include "loop.h"
#include "machine.h"
#include "op.h"
#include "submit.h"

static void wake(struct cufi_enqueuer *q)
{
	/* seq_cst: pairs with asleep in enqueuer_main: it sees the word, or we see it asleep */
	atomic_fetch_add(&q->word, 1);
	if (atomic_load(&q->asleep))
		cufi_wake(&q->word, 1);
}

void cufi_enqueuer_push(struct cufi_device *d, struct cufi_op *op)
{
	struct cufi_enqueuer *q = &d->enqueuers[cufi_op_has(op, CUFI_OP_APART) ? 1 : 0];

	CUFI_TESTPOINT("enqueuer:push");
	cufi_queue_push(&q->queue, &op->task.node);
	wake(q);
}

void cufi_hungry(struct cufi_lane *l)
{
	/* seq_cst: pairs with the exchange in enqueuer_main */
	atomic_fetch_or(&l->dev->hungry, UINT64_C(1) << l->index);
	wake(&l->dev->enqueuers[0]);
}

static bool feed(struct cufi_device *d)
{
	uint64_t bits = atomic_exchange(&d->hungry, 0);

	if (!bits)
		return false;
	for (; bits; bits &= bits - 1)
		cufi_feed(d->lanes[__builtin_ctzll(bits)]);
	return true;
}

static void enqueuer_main(void *arg)
{
	struct cufi_enqueuer *q = arg;
	struct cufi_device *d = q->dev;
	bool first = q == &d->enqueuers[0];

	d->ops->thread_relaxed();
	for (;;) {
		uint32_t word = atomic_load(&q->word);
		struct cufi_op *op;

		cufi_halt_at_exit(d->rt);
		op = (struct cufi_op *)cufi_queue_pop(&q->queue);
		if (op) {
			cufi_submit_held(op);
			continue;
		}
		if (first && feed(d))
			continue;
		if (!cufi_queue_empty(&q->queue))
			continue; /* a push is half done */
		if (atomic_load(&d->stop))
			return;
		/* seq_cst: pairs with wake() */
		atomic_store(&q->asleep, 1);
		CUFI_TESTPOINT("enqueuer:sleep");
		if (cufi_queue_empty(&q->queue) && !(first && atomic_load(&d->hungry)))
			cufi_park(&q->word, word, CUFI_FOREVER);
		atomic_store(&q->asleep, 0);
	}
}

int cufi_enqueuers_start(struct cufi_device *d, const struct cufi_thread_options *o)
{
	int rc = cufi_thread_start(&d->enqueuers[0].thread, "submit", enqueuer_main,
				   &d->enqueuers[0], o);

	if (!rc)
		rc = cufi_thread_start(&d->enqueuers[1].thread, "enqueue", enqueuer_main,
				       &d->enqueuers[1], o);
	return rc;
}

void cufi_enqueuers_wake(struct cufi_device *d)
{
	for (int i = 0; i < 2; i++) {
		atomic_fetch_add(&d->enqueuers[i].word, 1);
		cufi_wake(&d->enqueuers[i].word, 1);
	}
}

void cufi_enqueuers_stop(struct cufi_device *d)
{
	atomic_store(&d->stop, 1);
	cufi_enqueuers_wake(d);
	for (int i = 0; i < 2; i++) {
		if (d->enqueuers[i].thread.running)
			cufi_thread_join(&d->enqueuers[i].thread);
	}
}
