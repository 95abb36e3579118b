/* SPDX-License-Identifier: MIT */
/*
 * Which lane an operation goes to. In this order: the one of a dependency that is still its tail, if
 * class and priority fit; an idle one; the least loaded. Exclusive operations have lanes of their own,
 * made when they are first wanted: else as many of them as there are lanes would leave none to others.
 */
#include "future.h"
#include "op.h"
#include "submit.h"

static bool class_fits(const struct cufi_lane *l, const struct cufi_op *op,
		       const struct cufi_place *p)
{
	return l->cls == p->cls && (l->priority == op->priority || p->cls != CUFI_COMPUTE);
}

static uint64_t load_of(struct cufi_lane *l)
{
	/* relaxed: an estimate */
	return atomic_load_explicit(&l->published, memory_order_relaxed) -
	       atomic_load_explicit(&l->completed, memory_order_relaxed) +
	       atomic_load_explicit(&l->backlog_n, memory_order_relaxed) +
	       /* a host function that comes late holds the lane */
	       (atomic_load_explicit(&l->armed, memory_order_relaxed) != 0);
}

struct cufi_lane *cufi_lane_choose(struct cufi_device *d, struct cufi_op *op)
{
	static _Thread_local unsigned next;
	static _Atomic unsigned threads;
	static _Thread_local bool seeded;
	const struct cufi_place *p = cufi_place_of(op);
	unsigned n = d->n_shared;
	struct cufi_lane *best = NULL;
	uint64_t least = UINT64_MAX;

	if (!seeded) {
		/* relaxed: only to start threads at different lanes */
		next = 3 * atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed);
		seeded = true;
	}
	for (int pass = 0; pass < 2 && !best; pass++) {
		for (unsigned i = 0; i < n; i++) {
			struct cufi_lane *l = d->lanes[(next + i) % n];
			uint64_t load;

			/* second pass: there is no lane of this kind */
			if (pass == 0 ? !class_fits(l, op, p) : l->cls != CUFI_COMPUTE)
				continue;
			/* relaxed: a taken lane is only less welcome */
			if (atomic_load_explicit(&l->owner, memory_order_relaxed))
				continue;
			load = load_of(l);
			if (load < least) {
				best = l;
				least = load;
				if (!load)
					break;
			}
		}
	}
	if (best)
		next = best->index + 1;
	return best;
}

struct cufi_lane *cufi_lane_own_with_room(struct cufi_device *d, struct cufi_op *op)
{
	const struct cufi_place *p = cufi_place_of(op);

	/* The one it would choose; if that is full, all of them: the least loaded may be granted less
	 * than another has left. */
	for (uint32_t i = 0; i <= d->n_shared; i++) {
		struct cufi_lane *l = i ? d->lanes[i - 1] : cufi_lane_choose(d, op);

		/* relaxed: only a lane without a backlog has room */
		if (!l || (i && !class_fits(l, op, p)) ||
		    atomic_load_explicit(&l->backlog_n, memory_order_relaxed) || !cufi_lane_own(l))
			continue;
		if (cufi_lane_reserve(l, p->weight)) {
			/* the operation itself reserves for good */
			cufi_lane_unreserve(l, p->weight);
			return l;
		}
		cufi_lane_give_back(l);
	}
	return NULL;
}

/* The lane of a dependency that is still its tail, if the operation may go there. */
struct cufi_lane *cufi_lane_of_dep(struct cufi_op *op, struct cufi_device *d)
{
	struct cufi_link *links = cufi_op_links(op);
	const struct cufi_place *p = cufi_place_of(op);

	for (size_t i = 0; i < op->n_links; i++) {
		cuf_future *on = links[i].on;
		struct cufi_lane *l;

		if (!on || cufi_state_of(cufi_word(on)) != CUFI_QUEUED)
			continue;
		l = on->lane;
		if (l->dev == d && l->index < d->n_shared && class_fits(l, op, p) &&
		    cufi_lane_published(l) == on->seq)
			return l;
	}
	return NULL;
}

bool cufi_lane_idle(struct cufi_lane *l)
{
	return !load_of(l);
}

static struct cufi_lane *idle(struct cufi_device *d, struct cufi_op *op)
{
	const struct cufi_place *p = cufi_place_of(op);
	/* acquire: pairs with cufi_lane_add */
	unsigned n = atomic_load_explicit(&d->n_lanes, memory_order_acquire);

	for (unsigned i = d->n_shared; i < n; i++) {
		struct cufi_lane *l = d->lanes[i];

		/* relaxed: who chose it before us has it */
		if (class_fits(l, op, p) && cufi_lane_idle(l) &&
		    !atomic_load_explicit(&l->owner, memory_order_relaxed))
			return l;
	}
	return NULL;
}

struct cufi_lane *cufi_lane_exclusive(struct cufi_device *d, struct cufi_op *op, bool may_add,
				      int *out_code)
{
	struct cufi_lane *l = idle(d, op);
	struct cufi_device_guard guard;

	*out_code = 0;
	if (l || !may_add)
		return l;
	*out_code = d->ops->enter(d->index, &guard);
	if (*out_code)
		return NULL;
	cufi_harvest_all(d);
	l = idle(d, op);
	if (!l && cufi_lock_try(&d->grow)) {
		l = cufi_lane_add(d, cufi_place_of(op)->cls, op->priority, out_code);
		cufi_lock_give(&d->grow);
	}
	d->ops->leave(&guard);
	return l;
}
