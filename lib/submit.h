/* SPDX-License-Identifier: MIT */
/*
 * From a device operation with nothing left to wait for to its place on a stream.
 */
#ifndef CUFI_SUBMIT_H
#define CUFI_SUBMIT_H

#include "harvest.h"
#include "lane.h"
#include "op.h"

/* What every device operation's parameters begin with. Small: there may be a million held. */
struct cufi_place {
	uint8_t lane;	 /* where it must go: index + 1; 0: the submit chooses */
	uint8_t cls;	 /* enum cufi_lane_class: what it asks for */
	uint16_t weight; /* towards the budget */
};

/* From cls->enqueue: foreign code said no; not a CUDA code. */
#define CUFI_CODE_USER (-1)

static inline struct cufi_place *cufi_place_of(struct cufi_op *op)
{
	return cufi_op_params(op);
}

/* Starts an operation whose parameters are complete: here and now, or held. */
void cufi_device_op_start(struct cufi_op *op);
/* cls->ready of every device operation. */
void cufi_device_op_ready(struct cufi_op *op);
/* The enqueuer: one held operation. */
void cufi_submit_held(struct cufi_op *op);
/* Enqueues what it can of @l's backlog. The enqueuer only. */
void cufi_feed(struct cufi_lane *l);
/* ---- choose.c; NULL: none can be had now ---- */

struct cufi_lane *cufi_lane_choose(struct cufi_device *d, struct cufi_op *op);
/* One that has room, and is the caller's then. */
struct cufi_lane *cufi_lane_own_with_room(struct cufi_device *d, struct cufi_op *op);
/* The lane of a dependency that is still its tail, if the operation may go there. */
struct cufi_lane *cufi_lane_of_dep(struct cufi_op *op, struct cufi_device *d);
/* An idle lane of those for exclusive operations, or a new one, which an enqueuer alone may make. NULL
 * and *out_code 0: to be tried again by the enqueuer. */
struct cufi_lane *cufi_lane_exclusive(struct cufi_device *d, struct cufi_op *op, bool may_add,
				      int *out_code);
/* Nothing is on it. Who owns it knows. */
bool cufi_lane_idle(struct cufi_lane *l);

/* ---- pick.c ---- */

/* Enters the device a call is about; fills op->device. False: it has failed (b->future). */
struct cufi_begin;
struct cufi_device *cufi_device_pick(struct cufi_begin *b, cuf_scope *s, int pointers_device);
struct cufi_device *cufi_device_at(cuf_runtime *rt, int index);
int cufi_device_count(const cuf_runtime *rt);

#endif
