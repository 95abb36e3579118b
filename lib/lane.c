/* SPDX-License-Identifier: MIT */
/*
 * Devices and lanes: made, owned, given back, how much may be in flight on each.
 *
 * Ownership. A thread that enqueues owns the lane for that time; it owns one lane at a time, holds no
 * lock meanwhile, and nobody waits for it.
 *
 * A: who finds the lane taken              B: the owner
 *  a1 pushes its operation to requests      b1 owner = 0
 *  a2 requests_n + 1                        b2 requests_n > 0: owns it again, and sends what it finds
 *  a3 tries to own once more; got it: b2        there to the device's enqueuer; then b1
 *
 * a2 and a3, b1 and b2 are sequentially consistent: either a3 finds the lane free, or b2 sees a2.
 *
 * Budget. A lane is granted weight in large pieces, at most half of what the device has left and at
 * least 4; a second piece at most, so that one lane that stalls never takes it all. At the end of each
 * piece stands a mark (an event), whose completion gives the piece back.
 */
#include "lane.h"

#include <stdlib.h>

#include "op.h"

static int priority_of(const struct cufi_device *d, int priority)
{
	/* normal and low are the lowest, which is also what streams get by default: normal does
	 * not outrank the caller's own streams */
	return priority > 0 ? d->info.priority_high : d->info.priority_low;
}

struct cufi_lane *cufi_lane_add(struct cufi_device *d, enum cufi_lane_class cls, int priority,
				int *out_code)
{
	/* relaxed: only one thread adds lanes at a time */
	uint32_t n = atomic_load_explicit(&d->n_lanes, memory_order_relaxed);
	struct cufi_lane *l;

	*out_code = CUFI_CODE_NO_MEMORY;
	l = n < CUFI_LANES_MAX ? aligned_alloc(64, (sizeof *l + 63) & ~(size_t)63) : NULL;
	if (!l)
		return NULL;
	*l = (struct cufi_lane){ .dev = d, .index = n, .cls = cls, .priority = priority };
	*out_code = d->ops->stream_create(priority_of(d, priority), &l->stream);
	if (*out_code) {
		free(l);
		return NULL;
	}
	cufi_queue_init(&l->requests);
	cufi_queue_init(&l->backlog);
	cufi_queue_init(&l->marks);
	cufi_queue_init(&l->pending);
	d->lanes[n] = l;
	/* release: pairs with the acquire loads of n_lanes: the lane is complete */
	atomic_store_explicit(&d->n_lanes, n + 1, memory_order_release);
	return l;
}

static void remove_lanes(struct cufi_device *d)
{
	/* relaxed: the device's threads are gone */
	uint32_t n = atomic_load_explicit(&d->n_lanes, memory_order_relaxed);

	for (uint32_t i = 0; i < n; i++) {
		d->ops->stream_destroy(d->lanes[i]->stream);
		cufi_frontier_put(d, d->lanes[i]->frontier);
		free(d->lanes[i]);
	}
	for (int i = 0; i < CUFI_COMPANIONS; i++) {
		if (d->companions[i].stream)
			d->ops->stream_destroy(d->companions[i].stream);
	}
}

int cufi_device_init(struct cufi_device *d, cuf_runtime *rt, const struct cufi_device_ops *ops,
		     int index, unsigned lanes)
{
	struct cufi_device_guard guard;
	/* A copy engine each way, kernels of high and of low priority, the rest for normal work. */
	unsigned special = lanes >= 8 ? lanes / 8 : lanes >= 4 ? 1 : 0;
	int code;

	d->rt = rt;
	d->ops = ops;
	d->index = index;
	d->left = CUFI_BUDGET;
	for (int i = 0; i < 2; i++) {
		d->enqueuers[i].dev = d;
		cufi_queue_init(&d->enqueuers[i].queue);
	}
	code = ops->device_open(index, &d->info);
	if (code)
		return code;
	code = ops->enter(index, &guard);
	if (code) {
		ops->device_close(index);
		return code;
	}
	code = cufi_event_pool_init(d);
	for (unsigned i = 0; i < lanes && !code; i++) {
		enum cufi_lane_class cls = i < special	     ? CUFI_H2D
					   : i < 2 * special ? CUFI_D2H
							     : CUFI_COMPUTE;
		int priority = lanes >= 8 && i >= 2 * special && i < 3 * special   ? CUF_HIGH
			       : lanes >= 8 && i >= 3 * special && i < 4 * special ? CUF_LOW
										   : CUF_NORMAL;

		cufi_lane_add(d, cls, priority, &code);
	}
	d->n_shared = lanes;
	for (int i = 0; i < CUFI_COMPANIONS && !code; i++)
		code = ops->stream_create(d->info.priority_high, &d->companions[i].stream);
	if (code) {
		remove_lanes(d);
		cufi_event_pool_fini(d);
	}
	ops->leave(&guard);
	if (code)
		ops->device_close(index);
	return code;
}

void cufi_device_fini(struct cufi_device *d)
{
	struct cufi_device_guard guard;
	bool entered = d->ops->enter(d->index, &guard) == 0;

	if (d->base)
		cufi_event_put(d->base);
	remove_lanes(d);
	cufi_event_pool_fini(d);
	if (entered)
		d->ops->leave(&guard);
	d->ops->device_close(d->index);
}

/* ---- ownership ---- */

static void serve_requests(struct cufi_lane *l)
{
	struct cufi_node *n;

	while ((n = cufi_queue_pop(&l->requests)) != NULL) {
		/* seq_cst: as below */
		atomic_fetch_sub(&l->requests_n, 1);
		cufi_enqueuer_push(l->dev, (struct cufi_op *)n);
	}
	/* seq_cst: as below */
	if (atomic_exchange(&l->feed_request, 0)) {
		atomic_fetch_sub(&l->requests_n, 1);
		cufi_hungry(l);
	}
	/* seq_cst: as below */
	if (atomic_exchange(&l->arm_request, 0)) {
		atomic_fetch_sub(&l->requests_n, 1);
		l->dev->rt->up.poke(l->dev->rt);
	}
}

void cufi_lane_give_back(struct cufi_lane *l)
{
	for (;;) {
		CUFI_TESTPOINT("lane:give-back");
		/* seq_cst (b1, b2): pairs with cufi_lane_request */
		atomic_exchange(&l->owner, 0);
		if (!atomic_load(&l->requests_n) || !cufi_lane_own(l))
			return;
		serve_requests(l);
	}
}

void cufi_lane_request(struct cufi_lane *l, struct cufi_op *op)
{
	cufi_queue_push(&l->requests, &op->task.node);
	/* seq_cst (a2, a3): pairs with cufi_lane_give_back */
	atomic_fetch_add(&l->requests_n, 1);
	CUFI_TESTPOINT("lane:request");
	if (cufi_lane_own(l)) {
		serve_requests(l);
		cufi_lane_give_back(l);
	}
}

static bool own_or_ask(struct cufi_lane *l, _Atomic uint32_t *request)
{
	if (cufi_lane_own(l))
		return true;
	/* seq_cst: as in cufi_lane_request */
	if (!atomic_exchange(request, 1))
		atomic_fetch_add(&l->requests_n, 1);
	CUFI_TESTPOINT("lane:request");
	return cufi_lane_own(l);
}

bool cufi_lane_own_for_feed(struct cufi_lane *l)
{
	return own_or_ask(l, &l->feed_request);
}

bool cufi_lane_own_for_arm(struct cufi_lane *l)
{
	return own_or_ask(l, &l->arm_request);
}

/* ---- budget ---- */

/*
 * Weight is reserved before it is enqueued, so that grants of idle lanes can be taken back without
 * owning them.
 *
 * A: the owner                         B: who takes back, under budget
 *  a1 in_flight + weight                b1 limit = 0
 *  a2 in_flight <= limit? goes on       b2 in_flight is 0? it is taken back
 *  a3 else asks under budget            b3 else limit as it was
 *
 * a1 and a2, b1 and b2 are sequentially consistent: either a2 sees the limit of b1, and waits for
 * budget in a3, or b2 sees the weight.
 */
static void take_back(struct cufi_device *d, struct cufi_lane *l)
{
	uint32_t limit = atomic_load(&l->limit);

	if (!limit || atomic_load(&l->in_flight))
		return;
	atomic_store(&l->limit, 0);
	CUFI_TESTPOINT("lane:take-back");
	if (atomic_load(&l->in_flight)) {
		atomic_store(&l->limit, limit);
		return;
	}
	d->left += limit;
	l->grants = 0;
}

/* The piece that may be granted to @l now; budget is held. */
static uint32_t piece(struct cufi_device *d, const struct cufi_lane *l)
{
	uint32_t g, keep = 0;
	/* acquire: pairs with cufi_lane_add */
	uint32_t n = atomic_load_explicit(&d->n_lanes, memory_order_acquire);

	for (uint32_t i = 0; i < n; i++) {
		if (d->lanes[i] == l)
			continue;
		take_back(d, d->lanes[i]);
		if (i < d->n_shared && !d->lanes[i]->grants)
			keep += CUFI_BUDGET_LANE;
	}
	g = d->left / 2;
	if (g + keep > d->left)
		g = d->left > keep ? d->left - keep : 0;
	if (g < CUFI_BUDGET_LANE)
		g = CUFI_BUDGET_LANE;
	return g < d->left ? g : d->left;
}

bool cufi_lane_reserve(struct cufi_lane *l, uint32_t weight)
{
	struct cufi_device *d = l->dev;
	/* seq_cst (a1, a2) */
	uint32_t n = atomic_fetch_add(&l->in_flight, weight), g;
	bool room = n + weight <= atomic_load(&l->limit);

	if (room)
		return true;
	cufi_lock_take(&d->budget);
	if (!n && l->grants) {
		/* all that was granted has come back */
		d->left += atomic_load(&l->limit);
		atomic_store(&l->limit, 0);
		l->grants = 0;
	}
	if (l->grants < 2) {
		/* on a lane for exclusive operations there is one at a time */
		g = l->index < d->n_shared ? piece(d, l) : weight < d->left ? weight : d->left;
		d->left -= g;
		atomic_fetch_add(&l->limit, g);
		l->grants++;
	}
	/* What weighs more than a lane can ever have (foreign code) goes alone. */
	room = n + weight <= atomic_load(&l->limit) || !n;
	cufi_lock_give(&d->budget);
	if (!room)
		cufi_lane_unreserve(l, weight);
	return room;
}
