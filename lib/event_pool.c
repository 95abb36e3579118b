/* SPDX-License-Identifier: MIT */
/*
 * Events of a device: created ahead of need and on a miss, never destroyed before the device goes
 * (destroying can wait for a stuck kernel). An event goes back when nothing refers to it: not the
 * future it was recorded for, not the lane's list of marks, not an operation about to wait for it.
 */
#include <stdlib.h>

#include "lane.h"

/* Made at start. Arbitrary: more than a chain over all lanes keeps alive. */
#define EVENTS_AHEAD 64

struct cufi_event *cufi_event_get(struct cufi_device *d, bool timing, int *out_code)
{
	struct cufi_event *e;

	cufi_lock_take(&d->pool);
	e = d->events[timing];
	if (e)
		d->events[timing] = e->next;
	cufi_lock_give(&d->pool);
	if (!e) {
		e = calloc(1, sizeof *e);
		*out_code = e ? d->ops->event_create(timing, &e->handle) : CUFI_CODE_NO_MEMORY;
		if (*out_code) {
			free(e);
			return NULL;
		}
		/* relaxed: statistics */
		atomic_fetch_add_explicit(&d->n_allocations, 1, memory_order_relaxed);
		e->dev = d;
		e->timing = timing;
		cufi_lock_take(&d->pool);
		e->next_all = d->all_events;
		d->all_events = e;
		cufi_lock_give(&d->pool);
	}
	e->lane = NULL;
	e->seq = 0;
	e->frontier = NULL;
	/* relaxed: not shared yet */
	atomic_store_explicit(&e->refs, 1, memory_order_relaxed);
	*out_code = 0;
	return e;
}

void cufi_event_hold(struct cufi_event *e)
{
	/* relaxed: whoever adds one has one */
	atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
}

void cufi_event_put(struct cufi_event *e)
{
	struct cufi_device *d = e->dev;

	/* acq_rel: pairs with itself: every query and wait happens before the next record */
	if (atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) != 1)
		return;
	cufi_frontier_put(d, e->frontier);
	e->frontier = NULL;
	cufi_lock_take(&d->pool);
	e->next = d->events[e->timing];
	d->events[e->timing] = e;
	cufi_lock_give(&d->pool);
}

int cufi_event_pool_init(struct cufi_device *d)
{
	struct cufi_event *made[EVENTS_AHEAD];
	int n = 0, code = 0;

	while (n < EVENTS_AHEAD && (made[n] = cufi_event_get(d, false, &code)) != NULL)
		n++;
	for (int i = 0; i < n; i++)
		cufi_event_put(made[i]);
	return code;
}

void cufi_event_pool_fini(struct cufi_device *d)
{
	struct cufi_event *e, *next;
	struct cufi_frontier *fr, *fr_next;

	for (e = d->all_events; e; e = next) {
		next = e->next_all;
		cufi_frontier_put(d, e->frontier); /* of one that a lane's marks still have */
		d->ops->event_destroy(e->handle);
		free(e);
	}
	for (fr = d->frontiers; fr; fr = fr_next) {
		fr_next = fr->next;
		free(fr);
	}
	d->all_events = d->events[0] = d->events[1] = NULL;
	d->frontiers = NULL;
}
