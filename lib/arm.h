/* SPDX-License-Identifier: MIT */
/*
 * Host functions that wake the completer. The completer alone calls what is declared here.
 */
#ifndef CUFI_ARM_H
#define CUFI_ARM_H

#include "harvest.h"
#include "machine.h"

/* A bell for the runtime, for as long as its completer lives. False: too many runtimes. */
bool cufi_bell_take(struct cufi_machine *m);
void cufi_bell_give(struct cufi_machine *m);

/* The lowest operation of @l that the host waits for; 0: none, or somebody harvests. */
uint64_t cufi_lowest_want(struct cufi_lane *l);

/* Arms every lane that is wanted and has no arm at or below that; where it cannot, the tick serves.
 * False: somebody harvests one of them, and it is to be tried again. */
bool cufi_arms_set(struct cufi_machine *m);

/* What host functions have reported: their arms are free again. */
void cufi_arms_take(struct cufi_machine *m);

#endif
