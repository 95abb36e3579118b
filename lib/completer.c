/* SPDX-License-Identifier: MIT */
/*
 * The completer: polls while things complete, and is woken by a host function when nothing did for a
 * while. What a poll does: harvest.c.
 *
 * A: who wants (l, seq)                  B: the completer going to sleep
 *  a1 want, and the lane's bit            b1 bell = asleep
 *  a2 bell asleep, and nothing armed      b2 reads the bits, arms every lane that is wanted
 *     at or below seq? rings              b3 loop has work, or a look is asked for? awake again
 *                                         b4 parks while the bell says asleep
 *
 * a1 and a2, b1 and b2 are sequentially consistent: b2 sees the want, or a2 sees it asleep. Whoever
 * takes the bell from asleep to awake wakes it: who wants, or a host function (arm.c).
 */
#include "harvest.h"

#include <string.h>

#include "arm.h"
#include "error.h"
#include "expect.h"
#include "future.h"
#include "loop.h"
#include "machine.h"
#include "op.h"
#include "scope.h"
#include "timer.h"

/* How long the completer polls without success before it sleeps: about what a wake costs (FLOORS). */
#define SPIN_BALANCED_NS 60000u
#define SPIN_LATENCY_NS	 5000000u

/* Between two polls that find nothing: queries contend with who submits, and 2 us of pause cost 0.5 us
 * of latency (FLOORS). */
#define PAUSE_NS 2000u

/* Sleeps shorter than this are not worth it: a sleeper wakes about 5 us late (FLOORS). */
#define SLEEP_MIN_NS 10000u

/* A dispatch longer than this has the standby harvest in the completer's place. DESIGN. */
#define BUSY_NS 1000000u

/* ---- wanting ---- */

void cufi_want(struct cufi_lane *l, uint64_t seq)
{
	struct cufi_device *d = l->dev;
	uint64_t want = atomic_load(&l->want), armed;

	/* seq_cst (a1): pairs with b2 */
	while (want < seq && !atomic_compare_exchange_weak(&l->want, &want, seq))
		;
	CUFI_TESTPOINT("completer:want");
	atomic_fetch_or(&d->wanted, UINT64_C(1) << l->index);
	/* seq_cst (a2) */
	armed = atomic_load(&l->armed);
	if (armed && armed <= seq && armed > cufi_lane_completed(l))
		return;
	cufi_ring(d->rt);
}

static void want_all(cuf_runtime *rt)
{
	for (int i = 0; i < rt->machine->n_devices; i++) {
		struct cufi_device *d = &rt->machine->devices[i];
		/* acquire: pairs with cufi_lane_add */
		uint32_t n = atomic_load_explicit(&d->n_lanes, memory_order_acquire);

		for (uint32_t k = 0; k < n; k++) {
			if (cufi_lane_published(d->lanes[k]) > cufi_lane_completed(d->lanes[k]))
				cufi_want(d->lanes[k], cufi_lane_published(d->lanes[k]));
		}
	}
}

static void observe(cuf_future *f)
{
	cufi_want(f->lane, f->seq);
}

static bool help(cuf_future *f)
{
	struct cufi_lane *l = f->lane;
	struct cufi_device *d = l->dev;
	struct cufi_device_guard guard;
	unsigned n = 0;

	/* A query would overwrite an error that the caller's thread still has to look at. */
	if (d->ops->peek_error() || d->ops->enter(d->index, &guard))
		return false;
	n = cufi_harvest(l, f->seq);
	d->ops->leave(&guard);
	return n > 0;
}

/* When a waiter should begin to ask; 0: now. */
static uint64_t expect(cuf_future *f)
{
	uint64_t now = cufi_now_ns(), end = cufi_expect_end(f->lane, f->seq);

	if (end <= now)
		return 0;
	end -= cufi_expect_margin(end - now);
	return end > now + SLEEP_MIN_NS ? end : 0;
}

void cufi_lost_device(struct cufi_device *d)
{
	/* release: pairs with tell_lost */
	atomic_store_explicit(&d->lost_untold, 1, memory_order_release);
	cufi_ring(d->rt);
}

static void tell_lost(cuf_runtime *rt)
{
	struct cufi_machine *m = rt->machine;

	for (int i = 0; i < m->n_devices; i++) {
		struct cufi_device *d = &m->devices[i];

		/* acquire: pairs with cufi_lost_device */
		if (!atomic_load_explicit(&d->lost_untold, memory_order_acquire))
			continue;
		/* relaxed: only the completer takes it down */
		atomic_store_explicit(&d->lost_untold, 0, memory_order_relaxed);
		if (rt->options.on_device_lost)
			rt->options.on_device_lost(i, &cufi_device_lost_root(d)->own,
						   rt->options.arg);
	}
}

/* ---- polling ---- */

static unsigned poll_wanted(struct cufi_device *d)
{
	uint64_t bits = atomic_load(&d->wanted);
	struct cufi_device_guard guard;
	bool entered;
	unsigned n = 0;

	if (!bits || !cufi_harvest_enter(d, &guard, &entered))
		return 0;
	for (; bits; bits &= bits - 1) {
		struct cufi_lane *l = d->lanes[__builtin_ctzll(bits)];
		uint64_t want = atomic_load(&l->want);

		n += cufi_harvest(l, want);
		if (cufi_lane_completed(l) < want)
			continue;
		/* seq_cst: pairs with a1: a want that came meanwhile is seen here, or sets the bit
		 * after this */
		atomic_fetch_and(&d->wanted, ~(UINT64_C(1) << l->index));
		if (cufi_lane_completed(l) < atomic_load(&l->want))
			atomic_fetch_or(&d->wanted, UINT64_C(1) << l->index);
	}
	if (entered)
		d->ops->leave(&guard);
	return n;
}

/* What the tick found that nobody harvests. */
static unsigned poll_stale(struct cufi_device *d)
{
	uint64_t bits = atomic_exchange(&d->stale, 0);
	struct cufi_device_guard guard;
	unsigned n = 0;

	if (!bits || d->ops->enter(d->index, &guard))
		return 0;
	for (; bits; bits &= bits - 1) {
		struct cufi_lane *l = d->lanes[__builtin_ctzll(bits)];

		n += cufi_harvest(l, cufi_lane_published(l));
		/* a backlog that nobody feeds is looked at as well */
		if (atomic_load(&l->backlog_n))
			cufi_hungry(l);
	}
	d->ops->leave(&guard);
	return n;
}

static unsigned poll_all(cuf_runtime *rt, bool stale)
{
	struct cufi_machine *m = rt->machine;
	unsigned n = 0;

	for (int i = 0; i < m->n_devices; i++)
		n += poll_wanted(&m->devices[i]) + (stale ? poll_stale(&m->devices[i]) : 0);
	return n;
}

static bool anything_wanted(struct cufi_machine *m)
{
	for (int i = 0; i < m->n_devices; i++) {
		if (atomic_load(&m->devices[i].wanted))
			return true;
	}
	return false;
}

/* ---- sleeping ---- */

/* When to look again, by how long the same work took before; 0: nobody knows. */
static uint64_t next_look(struct cufi_machine *m, uint64_t now)
{
	uint64_t first = UINT64_MAX;

	for (int i = 0; i < m->n_devices; i++) {
		struct cufi_device *d = &m->devices[i];

		for (uint64_t bits = atomic_load(&d->wanted); bits; bits &= bits - 1) {
			struct cufi_lane *l = d->lanes[__builtin_ctzll(bits)];
			uint64_t seq = cufi_lowest_want(l), end = seq ? cufi_expect_end(l, seq) : 0;

			/* one of which nobody knows: a host function tells of all */
			if (seq && !end)
				return 0;
			if (end && end < first)
				first = end;
		}
	}
	if (first == UINT64_MAX || first <= now)
		return 0;
	first -= cufi_expect_margin(first - now);
	return first > now + SLEEP_MIN_NS ? first : 0;
}

/* Sleeps through most of what is awaited, without arming anything. False: it is not known how long. */
static bool sleep_through(cuf_runtime *rt)
{
	struct cufi_machine *m = rt->machine;
	uint64_t until = next_look(m, cufi_now_ns());

	if (!until)
		return false;
	CUFI_TESTPOINT("completer:expect");
	/* seq_cst (b1) */
	atomic_store(&m->bell->word, 1);
	CUFI_TESTPOINT("completer:sleep");
	/* b3; who wanted something sooner before b1 found us awake */
	if (!cufi_loop_has_work(&rt->loop) && !atomic_load(&m->look) && !atomic_load(&m->stop) &&
	    next_look(m, cufi_now_ns()) >= until) {
		while (atomic_load(&m->bell->word) && cufi_park(&m->bell->word, 1, until))
			;
	}
	atomic_store(&m->bell->word, 0);
	return true;
}

/* ---- the thread ---- */

static void sleep_until_rung(cuf_runtime *rt)
{
	struct cufi_machine *m = rt->machine;

	/* seq_cst (b1) */
	atomic_store(&m->bell->word, 1);
	CUFI_TESTPOINT("completer:sleep");
	/* b3; what completed while it armed is looked at once more */
	if (!cufi_arms_set(m) || cufi_loop_has_work(&rt->loop) || atomic_load(&m->look) ||
	    atomic_load(&m->stop) || atomic_load(&m->bell->fired) ||
	    (anything_wanted(m) && poll_all(rt, false))) {
		atomic_store(&m->bell->word, 0);
		return;
	}
	/* relaxed: statistics */
	atomic_fetch_add_explicit(&m->n_parks, 1, memory_order_relaxed);
	while (atomic_load(&m->bell->word))
		cufi_park(&m->bell->word, 1, CUFI_FOREVER);
}

static void pause_until(cuf_runtime *rt, uint64_t until)
{
	unsigned spins = 0;

	while (cufi_now_ns() < until && !cufi_loop_has_work(&rt->loop))
		cufi_relax(&spins);
}

static void completer_main(void *arg)
{
	cuf_runtime *rt = arg;
	struct cufi_machine *m = rt->machine;
	uint64_t last = 0, now;

	m->ops->thread_relaxed();
	for (;;) {
		bool look = atomic_exchange(&m->look, 0);
		size_t n;

		cufi_halt_at_exit(rt);
		cufi_arms_take(m);
		n = poll_all(rt, look);
		if (cufi_loop_has_work(&rt->loop)) {
			/* relaxed: the tick reads it as a hint */
			atomic_store_explicit(&m->busy_since, cufi_now_ns(), memory_order_relaxed);
			n += cufi_loop_run(&rt->loop, 64, BUSY_NS);
			atomic_store_explicit(&m->busy_since, 0, memory_order_relaxed);
		}
		tell_lost(rt);
		if (n) {
			/* More completes meanwhile: fewer queries for it. */
			last = cufi_now_ns();
			pause_until(rt, last + PAUSE_NS);
			continue;
		}
		if (atomic_load(&m->stop))
			return;
		if (m->spin_ns && anything_wanted(m)) {
			if (sleep_through(rt)) {
				last = cufi_now_ns();
				continue;
			}
			now = cufi_now_ns();
			if (!last)
				last = now;
			if (now - last < m->spin_ns) {
				pause_until(rt, now + PAUSE_NS);
				continue;
			}
		}
		sleep_until_rung(rt);
		last = 0;
	}
}

/* Harvests while the completer is held up by a continuation of the user's. */
static void standby_main(void *arg)
{
	cuf_runtime *rt = arg;
	struct cufi_machine *m = rt->machine;

	m->ops->thread_relaxed();
	for (;;) {
		/* acquire: pairs with the adds to the word */
		uint32_t word = atomic_load_explicit(&m->standby_word, memory_order_acquire);

		if (atomic_load(&m->stop))
			return;
		cufi_halt_at_exit(rt);
		poll_all(rt, true);
		cufi_park(&m->standby_word, word, CUFI_FOREVER);
	}
}

/*
 * On the timer thread: wakes, and calls nothing. Lanes that somebody harvested since the last tick are
 * left to him: his caches hold what is to be settled, and ours would take it from him.
 */
static bool tick(cuf_runtime *rt)
{
	struct cufi_machine *m = rt->machine;
	/* relaxed: a hint */
	uint64_t busy = atomic_load_explicit(&m->busy_since, memory_order_relaxed);
	bool outstanding = false, look = false;

	for (int i = 0; i < m->n_devices; i++) {
		struct cufi_device *d = &m->devices[i];
		/* acquire: pairs with cufi_lane_add */
		uint32_t n = atomic_load_explicit(&d->n_lanes, memory_order_acquire);

		for (uint32_t k = 0; k < n; k++) {
			struct cufi_lane *l = d->lanes[k];
			uint64_t done = cufi_lane_completed(l);

			if (cufi_lane_published(l) == done && !atomic_load(&l->backlog_n)) {
				l->ticked = 0;
				continue;
			}
			outstanding = true;
			if (l->ticked == done + 1) {
				atomic_fetch_or(&d->stale, UINT64_C(1) << k);
				look = true;
			}
			l->ticked = done + 1;
		}
	}
	if (!look)
		return outstanding;
	atomic_store(&m->look, 1);
	if (busy && cufi_now_ns() - busy > BUSY_NS) {
		/* release: pairs with standby_main */
		atomic_fetch_add_explicit(&m->standby_word, 1, memory_order_release);
		cufi_wake(&m->standby_word, 1);
	} else {
		cufi_ring(rt);
	}
	return true;
}

static void event_put(struct cufi_event *e)
{
	cufi_event_put(e);
}

int cufi_completer_start(cuf_runtime *rt, const struct cufi_thread_options *o)
{
	struct cufi_machine *m = rt->machine;
	int rc;

	if (!cufi_bell_take(m))
		return -1;
	m->spin_ns = cufi_cpus() < 2		       ? 0
		     : rt->options.mode == CUF_LATENCY ? SPIN_LATENCY_NS
		     : rt->options.mode == CUF_POWER   ? 0
						       : SPIN_BALANCED_NS;
	rt->spin_ns = m->spin_ns;
	rt->up.observe = observe;
	rt->up.want_all = want_all;
	rt->up.help = help;
	rt->up.expect = expect;
	rt->up.poke = cufi_ring;
	rt->up.tick = tick;
	rt->up.event_put = event_put;
	rc = cufi_thread_start(&m->completer, "completer", completer_main, rt, o);
	if (!rc)
		rc = cufi_thread_start(&m->standby, "standby", standby_main, rt, o);
	if (rc)
		cufi_completer_stop(rt);
	return rc;
}

void cufi_completer_wake(cuf_runtime *rt)
{
	struct cufi_machine *m = rt->machine;

	cufi_ring(rt);
	/* release: pairs with standby_main */
	atomic_fetch_add_explicit(&m->standby_word, 1, memory_order_release);
	cufi_wake(&m->standby_word, 1);
}

void cufi_completer_stop(cuf_runtime *rt)
{
	struct cufi_machine *m = rt->machine;

	if (!m->bell)
		return;
	atomic_store(&m->stop, 1);
	cufi_completer_wake(rt);
	if (m->completer.running)
		cufi_thread_join(&m->completer);
	if (m->standby.running)
		cufi_thread_join(&m->standby);
	cufi_bell_give(m);
}
