/* SPDX-License-Identifier: MIT */
/*
 * The life of a future: made, attached to, claimed, settled, finished, freed. What an operation waits
 * for, and what happens when it need wait no longer: op.h.
 */
#ifndef CUFI_FUTURE_H
#define CUFI_FUTURE_H

#include "core.h"

/*
 * A future for @op in @s: HELD, with the caller's reference, and one hold that goes when it is
 * finished. NULL: out of memory. @extra: bits for its word (CUFI_PROMISE).
 */
cuf_future *cufi_future_new(cuf_scope *s, struct cufi_op *op, uint32_t extra);

/* Immortal futures: success; a failure for the case named. */
cuf_future *cufi_future_ok(void);
cuf_future *cufi_future_immortal(int status);

static inline bool cufi_is_immortal(const cuf_future *f)
{
	/* relaxed: the bit never changes */
	return atomic_load_explicit(&f->word, memory_order_relaxed) & CUFI_IMMORTAL;
}

/* @unit: CUFI_HOLD or CUFI_NAME. Letting go of the last hold frees, never deeper in the stack. */
void cufi_hold(cuf_future *f, uint64_t unit);
bool cufi_hold_if_alive(cuf_future *f);
void cufi_let_go(cuf_future *f, uint64_t unit);
/* Its last hold is gone: frees it. */
void cufi_future_dead(cuf_future *f);
/* Turns the user's reference into a hold of @unit. */
void cufi_take(cuf_future *f, uint64_t unit);

static inline uint32_t cufi_names(const cuf_future *f)
{
	/* acquire: pairs with the release in cufi_let_go: who named f has attached what it wanted */
	return (uint32_t)(atomic_load_explicit(&f->refs, memory_order_acquire) >> 32);
}

static inline uint32_t cufi_word(const cuf_future *f)
{
	/* acquire: pairs with cufi_word_unlock: outcome and value, lane and seq */
	return atomic_load_explicit(&f->word, memory_order_acquire);
}

static inline bool cufi_claim(cuf_future *f, uint32_t from, enum cufi_state to)
{
	return cufi_word_claim(&f->word, from, to);
}

/* Puts @l (its ->on holds) into the right list of l->on. False: no need to wait at that level. */
bool cufi_attach(struct cufi_link *l, enum cufi_level level);
/* Takes @l out again. False: it has been told, or is being told. */
bool cufi_detach(struct cufi_link *l);

/*
 * The claimant (state SETTLING) gives the outcome. @finished: nothing it stands for still touches
 * memory; otherwise cufi_future_finish() follows. Tells what waits, from a list and not recursively.
 */
void cufi_settle_value(cuf_future *f, void *value, cuf_drop_fn *drop, bool finished);
/* A value nobody wants: @drop (NULL: nothing) is a callback of the user's like any other. */
void cufi_drop_value(cuf_runtime *rt, cuf_drop_fn *drop, void *value);
/* With the outcome of @as, which is settled; a failure is marked inherited. */
void cufi_settle_as(cuf_future *f, cuf_future *as, bool finished);
/* Consumes one reference on the root of @e. */
void cufi_settle_error(cuf_future *f, const cuf_error *e, bool finished);
void cufi_future_finish(cuf_future *f);
/* The short way for what nobody waits for: QUEUED to settled and finished, without a value, in one
 * step. False: not so; claim and settle it. The caller counts the success. */
bool cufi_future_done(cuf_future *f);

/* ENQUEUING -> QUEUED; tells device edges. The lane is owned and has not published @seq yet. */
void cufi_future_queued(cuf_future *f);

/* Work that the calling thread has collected: links to tell, futures to free. Flat. */
void cufi_drain(void);
void cufi_defer_drain(int delta); /* +1: collect only, -1: and drain */

/* Cancelled, or stopped by a shutdown (@st says which). False: too late. @f is held by the caller. */
bool cufi_cancel(cuf_future *f, cuf_status st);

/* The runtime goes: gives up what a future still holds, whoever holds it. */
void cufi_future_purge(cuf_future *f);

/* Gives up the reference that the scope owes for @f, if it still does. */
void cufi_release_owed(cuf_future *f);

/* The runtime goes: what was to be freed or told on this thread is forgotten. */
void cufi_forget_work(void);

/* Where a debug build looks whether the memory is still what it was. */
#ifdef CUFI_DEBUG
void cufi_check_future(const cuf_future *f, const char *call);
#else
#define cufi_check_future(f, call) ((void)0)
#endif

#endif
