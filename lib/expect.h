/* SPDX-License-Identifier: MIT */
/*
 * When a lane can be expected to have come how far: from how long the same work took before. Only
 * says when to look; whether something has ended, the device says (harvest.c).
 */
#ifndef CUFI_EXPECT_H
#define CUFI_EXPECT_H

#include "lane.h"

/* How long one kind of work takes. Relaxed: a guess that every harvest may improve. */
struct cufi_estimate {
	_Atomic uint64_t ns; /* 0: not known */
};

/* Another operation is at the head of the lane now, as far as is known. */
void cufi_expect_started(struct cufi_lane *l);
/* The harvester's: the device said "not yet". */
void cufi_expect_not_yet(struct cufi_lane *l);
/* The harvester's: @op, at the head, ended, and nothing else did; it is about to be settled. */
void cufi_expect_ended(struct cufi_lane *l, struct cufi_op *op);

/*
 * When (l, seq) can be expected to have ended; 0: nobody knows. Takes the harvest lock if it is free.
 */
uint64_t cufi_expect_end(struct cufi_lane *l, uint64_t seq);

/* How long before that to wake: the longer the sleep, the later a machine wakes the sleeper. */
uint64_t cufi_expect_margin(uint64_t sleep_ns);

#endif
