/* SPDX-License-Identifier: MIT */
/*
 * From the end of an operation on the device to its future. A role that any thread of ours or a waiter
 * may take, lane by lane, under the lane's harvest lock.
 */
#ifndef CUFI_HARVEST_H
#define CUFI_HARVEST_H

#include "lane.h"

/*
 * Asks the device what has ended on @l, @upto if it can be told, and settles it. Returns how many; 0
 * too if somebody else is at it. After cufi_harvest_enter.
 */
unsigned cufi_harvest(struct cufi_lane *l, uint64_t upto);
/*
 * Makes @d current for that; *out_entered: to be left again. A lost device cannot be made current where
 * it is not, which is how its loss may show first; its streams can be asked all the same. False: not now.
 */
bool cufi_harvest_enter(struct cufi_device *d, struct cufi_device_guard *guard, bool *out_entered);
/* The same for all lanes of @d with anything outstanding. Enters the device. */
unsigned cufi_harvest_all(struct cufi_device *d);

/* A call that is no operation's said @code, which is sticky. */
void cufi_device_lose(struct cufi_device *d, int code);

/* The host wants to know when (l, seq) has ended. */
void cufi_want(struct cufi_lane *l, uint64_t seq);

/*
 * The error for @code of a call for @op (on @l). A sticky one loses the device, and belongs to whatever
 * ran before; another one is @op's own. One reference; *out_inherited: an earlier failure.
 */
struct cufi_root *cufi_device_error(struct cufi_device *d, int code, struct cufi_op *op,
				    struct cufi_lane *l, bool *out_inherited);

#endif
