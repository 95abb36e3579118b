/* SPDX-License-Identifier: MIT */
/*
 * What orders an operation behind others on the device.
 */
#ifndef CUFI_EDGE_H
#define CUFI_EDGE_H

#include "submit.h"

/* One for each lane that is waited for: at most those of a device, and of peers if eager. */
#define CUFI_WAITS_MAX (4 * CUFI_LANES_MAX)

struct cufi_waits {
	size_t n;
	struct cufi_event *at[CUFI_WAITS_MAX];
};

/* LEFT: the operation was left with the owner of a dependency's lane, out of the caller's hand. */
enum cufi_got { CUFI_GOT, CUFI_LEFT, CUFI_FAILED };

/*
 * The events of all dependencies of @op that are not on @lane and that no other dominates. No lane is
 * owned by the caller. On anything but GOT @w is empty; FAILED: *out_code.
 */
enum cufi_got cufi_waits_collect(struct cufi_op *op, struct cufi_lane *lane, struct cufi_waits *w,
				 int *out_code);
void cufi_waits_put(struct cufi_waits *w);

/* The owner of @l: makes its stream wait, looking at each once more. 0 or a code. */
int cufi_waits_issue(struct cufi_lane *l, struct cufi_waits *w);

/* The owner of @l, whose device is entered: @op goes behind the tail. Records the tail's event if it
 * needs one, or if @mark: here ends what the lane was granted. 0 or a code. */
int cufi_bury(struct cufi_lane *l, struct cufi_op *op, bool mark);

/* The same without anybody going there: the tail has an event afterwards. */
int cufi_record_tail(struct cufi_lane *l);

/* The owner of @l: it is full, and ends in a mark that somebody will look at. */
void cufi_mark_full(struct cufi_lane *l);

#endif
