/* SPDX-License-Identifier: MIT */
/*
 * The word of a future: its state, its outcome and the lock of its two lists, in one atomic. What the
 * lists hold and who drains them: future.c. Who may make each step is said here and nowhere else.
 *
 *	bits  0-3   state
 *	bit   4     LOCK      the lists and the event of the future are being changed
 *	bit   5     PARKED    somebody sleeps on the word: a waiter, or a thread that wants LOCK
 *	bit   6     LINKS     a list is not empty (kept under LOCK): settling without it is one CAS
 *	bit   7     FINISHED  settled, and all that it stands for has let go of the user's memory
 *	bits  8-15  outcome   minus the status, once SETTLED
 *	bit  16     IMMORTAL  never counted, never freed
 *	bit  17     PROMISE   settled by the user: nothing runs behind it (trailing: op.c)
 *	bit  18     IGNORED   cuf_ignore came before the outcome
 *	bit  19     FORGIVEN  lost in an any before the outcome: no failure of its scope
 *
 *	            +-> BACKLOG ----+
 *	            |   ^   |cancel |
 *	   FREE -> HELD-+   |       v
 *	     ^      | | +---|-> ENQUEUING -> QUEUED --+
 *	     |      | |     |       | failed          | harvest
 *	     |      | +---> RUNNING-+-> FOLLOWING --+ |
 *	     |      | cancel, inherit|    | cancel  | |
 *	     |      v                v    v         v v
 *	     |   SETTLING <---------------------------+
 *	     |      |  the one who made this step, and nobody else, writes outcome and value
 *	     |      v
 *	     +-- SETTLED
 *
 *	HELD -> BACKLOG, ENQUEUING, RUNNING   who holds the operation in hand (op.c)
 *	BACKLOG -> HELD, ENQUEUING            the submit thread of the device
 *	ENQUEUING -> QUEUED                   the owner of the lane
 *	QUEUED -> SETTLING                    whoever harvests the lane (under its harvest lock)
 *	RUNNING -> FOLLOWING                  who ran the function
 *	HELD, BACKLOG, FOLLOWING -> SETTLING  anybody: cancel, deadline, inheritance, shutdown
 *	SETTLING -> SETTLED                   the claimant
 */
#ifndef CUFI_STATE_H
#define CUFI_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "testpoint.h"
#include "wait.h"

enum cufi_state {
	CUFI_FREE,
	CUFI_HELD,
	CUFI_BACKLOG,
	CUFI_ENQUEUING,
	CUFI_QUEUED,
	CUFI_RUNNING,
	CUFI_FOLLOWING,
	CUFI_SETTLING,
	CUFI_SETTLED
};

#define CUFI_STATE_MASK	   0xfu
#define CUFI_LOCK	   0x10u
#define CUFI_PARKED	   0x20u
#define CUFI_LINKS	   0x40u
#define CUFI_FINISHED	   0x80u
#define CUFI_OUTCOME_SHIFT 8
#define CUFI_OUTCOME_MASK  0xff00u
#define CUFI_IMMORTAL	   0x10000u
#define CUFI_PROMISE	   0x20000u
#define CUFI_IGNORED	   0x40000u
#define CUFI_FORGIVEN	   0x80000u

/* Sets of states, for claims. */
#define CUFI_BIT(state)	 (1u << (state))
#define CUFI_CANCELLABLE (CUFI_BIT(CUFI_HELD) | CUFI_BIT(CUFI_BACKLOG) | CUFI_BIT(CUFI_FOLLOWING))

static inline enum cufi_state cufi_state_of(uint32_t word)
{
	return (enum cufi_state)(word & CUFI_STATE_MASK);
}

static inline bool cufi_word_settled(uint32_t word)
{
	return cufi_state_of(word) == CUFI_SETTLED;
}

static inline int cufi_word_status(uint32_t word)
{
	return -(int)((word & CUFI_OUTCOME_MASK) >> CUFI_OUTCOME_SHIFT);
}

static inline uint32_t cufi_word_with(uint32_t word, enum cufi_state state)
{
	return (word & ~CUFI_STATE_MASK) | (uint32_t)state;
}

/* Takes LOCK. Returns the word as it was, LOCK and PARKED apart. */
static inline uint32_t cufi_word_lock(_Atomic uint32_t *word)
{
	/* relaxed: only a guess for the CAS */
	uint32_t w = atomic_load_explicit(word, memory_order_relaxed);
	unsigned spins = 0;

	for (;;) {
		if (!(w & CUFI_LOCK)) {
			/* acquire: pairs with the release in cufi_word_unlock: the lists and the event */
			if (atomic_compare_exchange_weak_explicit(word, &w, w | CUFI_LOCK,
								  memory_order_acquire,
								  memory_order_relaxed))
				return w & ~CUFI_PARKED;
			continue;
		}
		if (spins < 64) {
			cufi_relax(&spins);
			/* relaxed: as above */
			w = atomic_load_explicit(word, memory_order_relaxed);
			continue;
		}
		if (!(w & CUFI_PARKED)) {
			/* relaxed: the flag publishes nothing but itself */
			if (!atomic_compare_exchange_weak_explicit(word, &w, w | CUFI_PARKED,
								   memory_order_relaxed,
								   memory_order_relaxed))
				continue;
			w |= CUFI_PARKED;
		}
		cufi_park(word, w, CUFI_FOREVER);
		w = atomic_load_explicit(word, memory_order_relaxed);
	}
}

/*
 * Gives LOCK back and leaves @to in the word (without LOCK and PARKED). Wakes all who sleep: those
 * who wait for the outcome look again and go back to sleep. Touches nothing but the address of the
 * word after the exchange: what it belonged to may be gone.
 */
static inline void cufi_word_unlock(_Atomic uint32_t *word, uint32_t to)
{
	/* release: pairs with the acquire in cufi_word_lock and with every acquire load of the word;
	 * seq_cst: and with who looks at the word after it announced a want (scope.c, harvest.c) */
	uint32_t was = atomic_exchange_explicit(word, to & ~(CUFI_LOCK | CUFI_PARKED),
						memory_order_seq_cst);

	if (was & CUFI_PARKED)
		cufi_wake(word, INT32_MAX);
}

/* Leaves @to in the word and keeps LOCK, which the caller has. */
static inline void cufi_word_set(_Atomic uint32_t *word, uint32_t to)
{
	/* relaxed: a guess for the CAS; somebody may be setting PARKED */
	uint32_t w = atomic_load_explicit(word, memory_order_relaxed);

	/* release: pairs with the acquire loads of the word: outcome and value */
	while (!atomic_compare_exchange_weak_explicit(word, &w, (w & CUFI_PARKED) | CUFI_LOCK | to,
						      memory_order_release, memory_order_relaxed))
		;
}

/*
 * The atomic claim: from one of the states in @from to @to. False: somebody else was first.
 * Completion, cancel, failure and deadline all come through here.
 */
static inline bool cufi_word_claim(_Atomic uint32_t *word, uint32_t from, enum cufi_state to)
{
	/* relaxed: only a guess for the CAS */
	uint32_t w = atomic_load_explicit(word, memory_order_relaxed);

	CUFI_TESTPOINT("state:claim");
	for (;;) {
		if (!(from & CUFI_BIT(cufi_state_of(w))))
			return false;
		/* LOCK may be held by somebody who changes a list: he stores the state he found, so
		 * wait for him.
		 * acq_rel: pairs with the releases in cufi_word_unlock and here: what the former
		 * holder of the operation wrote */
		if (w & CUFI_LOCK) {
			w = cufi_word_lock(word);
			if (!(from & CUFI_BIT(cufi_state_of(w)))) {
				cufi_word_unlock(word, w);
				return false;
			}
			cufi_word_unlock(word, cufi_word_with(w, to));
			return true;
		}
		/* acq_rel: pairs with the releases as above */
		if (atomic_compare_exchange_weak_explicit(word, &w, cufi_word_with(w, to),
							  memory_order_acq_rel,
							  memory_order_relaxed))
			return true;
	}
}

#endif
