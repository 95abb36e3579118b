/* SPDX-License-Identifier: MIT */
/*
 * Frontiers: for each lane, up to which sequence number of every other lane of the device it is
 * ordered. Versions are immutable once an event carries them, and shared until the lane waits again.
 * Only lanes of one device are compared; edges to others are never elided.
 */
#include <stdlib.h>
#include <string.h>

#include "lane.h"

bool cufi_frontier_covers(const struct cufi_frontier *fr, const struct cufi_lane *from,
			  uint64_t seq)
{
	return fr && fr->seq[from->index] >= seq;
}

struct cufi_frontier *cufi_frontier_hold(struct cufi_frontier *fr)
{
	if (fr)
		/* relaxed: whoever adds one has one */
		atomic_fetch_add_explicit(&fr->refs, 1, memory_order_relaxed);
	return fr;
}

void cufi_frontier_put(struct cufi_device *d, struct cufi_frontier *fr)
{
	/* acq_rel: pairs with itself: all reads happen before the memory is used again */
	if (!fr || atomic_fetch_sub_explicit(&fr->refs, 1, memory_order_acq_rel) != 1)
		return;
	cufi_lock_take(&d->pool);
	fr->next = d->frontiers;
	d->frontiers = fr;
	cufi_lock_give(&d->pool);
}

static struct cufi_frontier *get(struct cufi_device *d)
{
	struct cufi_frontier *fr;

	cufi_lock_take(&d->pool);
	fr = d->frontiers;
	if (fr)
		d->frontiers = fr->next;
	cufi_lock_give(&d->pool);
	if (fr)
		return fr;
	/* relaxed: statistics */
	atomic_fetch_add_explicit(&d->n_allocations, 1, memory_order_relaxed);
	return malloc(sizeof *fr);
}

void cufi_frontier_merge(struct cufi_lane *l, const struct cufi_event *e)
{
	struct cufi_device *d = l->dev;
	struct cufi_frontier *fr = l->frontier;
	/* A version that only this lane holds is shared with no event.
	 * acquire: pairs with cufi_frontier_put: an event that let go of it has done reading */
	bool own = fr && atomic_load_explicit(&fr->refs, memory_order_acquire) == 1;

	if (!own) {
		struct cufi_frontier *fresh = get(d);

		if (!fresh)
			return; /* knows less, waits more */
		/* relaxed: not shared yet */
		atomic_store_explicit(&fresh->refs, 1, memory_order_relaxed);
		if (fr)
			memcpy(fresh->seq, fr->seq, sizeof fr->seq);
		else
			memset(fresh->seq, 0, sizeof fresh->seq);
		cufi_frontier_put(d, fr);
		l->frontier = fr = fresh;
	}
	if (e->lane->dev != d)
		return;
	for (unsigned i = 0; e->frontier && i < CUFI_LANES_MAX; i++) {
		if (e->frontier->seq[i] > fr->seq[i])
			fr->seq[i] = e->frontier->seq[i];
	}
	if (e->seq > fr->seq[e->lane->index])
		fr->seq[e->lane->index] = e->seq;
}
