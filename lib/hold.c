/* SPDX-License-Identifier: MIT */
/*
 * References to a future: the user's, and the holds and names of the runtime. What happens when the last
 * one goes: future.c.
 *
 * f->ext counts the user's, and knows whether the scope still owes the release of the one that the
 * creation returned: the first cuf_release() takes that claim over. All of them together are one name
 * in f->refs. A name is a hold whose owner may still name the future as a dependency; whether any is
 * left decides if the future needs an event before it is buried (edge.c). Without a name there never is
 * one again.
 */
#include <stdio.h>
#include <stdlib.h>

#include "future.h"
#include "scope.h"

void cufi_hold(cuf_future *f, uint64_t unit)
{
	if (cufi_is_immortal(f))
		return;
	/* relaxed: whoever adds one has one */
	atomic_fetch_add_explicit(&f->refs, unit, memory_order_relaxed);
}

bool cufi_hold_if_alive(cuf_future *f)
{
	/* relaxed: the lock under which this is called orders it against the free */
	uint64_t r = atomic_load_explicit(&f->refs, memory_order_relaxed);

	do {
		if (!(uint32_t)r)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(
		&f->refs, &r, r + CUFI_HOLD, memory_order_relaxed, memory_order_relaxed));
	return true;
}

void cufi_let_go(cuf_future *f, uint64_t unit)
{
	if (cufi_is_immortal(f))
		return;
	/* acq_rel: pairs with itself: all uses happen before the free; and with cufi_names */
	if ((uint32_t)atomic_fetch_sub_explicit(&f->refs, unit, memory_order_acq_rel) == 1)
		cufi_future_dead(f);
}

/* The user's references: false if there were none. */
static bool ext_sub(cuf_future *f, bool *out_last)
{
	/* relaxed: a guess for the CAS */
	uint32_t e = atomic_load_explicit(&f->ext, memory_order_relaxed), n;

	do {
		if (e < CUFI_EXT_ONE)
			return false;
		n = (e & ~CUFI_EXT_OWED) - CUFI_EXT_ONE;
		/* acq_rel: pairs with itself: uses of f before the last release */
	} while (!atomic_compare_exchange_weak_explicit(&f->ext, &e, n, memory_order_acq_rel,
							memory_order_relaxed));
	*out_last = n == 0;
	return true;
}

static _Noreturn void misuse(const char *call, const char *what)
{
	fprintf(stderr, "cufuture: %s: %s\n", call, what);
	abort();
}

void cufi_take(cuf_future *f, uint64_t unit)
{
	bool last;

	if (cufi_is_immortal(f))
		return;
	if (!ext_sub(f, &last))
		misuse("take", "the future had been released before it was taken");
	if (!last)
		cufi_hold(f, unit);
	else if (unit == CUFI_HOLD)
		/* release: pairs with the acquire in cufi_names */
		atomic_fetch_sub_explicit(&f->refs, CUFI_NAME - CUFI_HOLD, memory_order_release);
}

cuf_future *cuf_retain(cuf_future *f)
{
	if (!f || cufi_is_immortal(f))
		return f;
	cufi_check_future(f, "cuf_retain");
	/* relaxed: whoever adds one has one */
	if (atomic_fetch_add_explicit(&f->ext, CUFI_EXT_ONE, memory_order_relaxed) < CUFI_EXT_ONE)
		/* borrowed (`in` of a continuation): the group's hold is gone, take it again */
		cufi_hold(f, CUFI_NAME);
	return f;
}

void cuf_release(cuf_future *f)
{
	bool last;

	if (!f || cufi_is_immortal(f))
		return;
	cufi_check_future(f, "cuf_release");
	if (cufi_forked(f->rt))
		return;
	if (!ext_sub(f, &last))
		misuse("cuf_release", "the future had been released already");
	if (last)
		cufi_let_go(f, CUFI_NAME);
}

void cufi_release_owed(cuf_future *f)
{
	/* relaxed: a guess for the CAS */
	uint32_t e = atomic_load_explicit(&f->ext, memory_order_relaxed), n;

	do {
		if (!(e & CUFI_EXT_OWED))
			return;
		n = (e & ~CUFI_EXT_OWED) - CUFI_EXT_ONE;
		/* acq_rel: pairs with ext_sub */
	} while (!atomic_compare_exchange_weak_explicit(&f->ext, &e, n, memory_order_acq_rel,
							memory_order_relaxed));
	if (!n)
		cufi_let_go(f, CUFI_NAME);
}

void cuf_release_n(cuf_future *const *f, size_t n)
{
	cufi_defer_drain(1);
	for (size_t i = 0; i < n; i++)
		cuf_release(f[i]);
	cufi_defer_drain(-1);
}

#ifdef CUFI_DEBUG
void cufi_check_future(const cuf_future *f, const char *call)
{
	/* relaxed: this finds misuse, it orders nothing */
	uint32_t w = atomic_load_explicit(&((cuf_future *)f)->word, memory_order_relaxed);

	if (w & CUFI_IMMORTAL)
		return;
	if (cufi_state_of(w) == CUFI_FREE ||
	    !(atomic_load_explicit(&((cuf_future *)f)->generation, memory_order_relaxed) & 1))
		misuse(call, "the future was used after its last reference was released");
}
#endif

/* ---- immortals ---- */

#define IMMORTAL(status)                                               \
	{                                                              \
		.word = CUFI_SETTLED | CUFI_FINISHED | CUFI_IMMORTAL | \
			(uint32_t) - (status) << CUFI_OUTCOME_SHIFT,   \
		.generation = 1                                        \
	}

cuf_future *cufi_future_ok(void)
{
	static cuf_future ok = IMMORTAL(CUF_OK);

	return &ok;
}

cuf_future *cufi_future_immortal(int status)
{
	static cuf_future failed[] = {
		IMMORTAL(CUF_ERR_INVALID),  IMMORTAL(CUF_ERR_NO_MEMORY),
		IMMORTAL(CUF_ERR_SHUTDOWN), IMMORTAL(CUF_ERR_FORKED),
		IMMORTAL(CUF_ERR_BUSY),	    IMMORTAL(CUF_ERR_WOULD_DEADLOCK),
	};

	for (size_t i = 0; i < sizeof failed / sizeof *failed; i++) {
		if (cufi_word_status(atomic_load_explicit(&failed[i].word, memory_order_relaxed)) ==
		    status)
			return &failed[i];
	}
	return &failed[0];
}

cuf_future *cuf_ok(void)
{
	return cufi_future_ok();
}
