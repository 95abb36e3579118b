/* SPDX-License-Identifier: MIT */
/*
 * The completer goes to sleep while somebody begins to want something: whatever the instant, it
 * hears of it. The tick is off: a wake-up that is lost stays lost.
 */
#include "tap.h"
#include "contract/rig.h"

#ifndef CUFI_TESTPOINTS
int main(void)
{
	plan_skip_all("built without testpoints");
}
#else
#include "unit/races.h"

static atomic_bool told, other;

static bool asleep(void)
{
	return atomic_load(&rt->machine->bell->word) != 0;
}

/*
 * The completer is between saying that it sleeps and looking at what is wanted (b1, b2 in
 * completer.c), as somebody begins to want something that has ended, or is still running.
 */
static void check_falling_asleep(bool runs)
{
	cuf_scope *s = cuf_scope_open(root);
	struct gate g = gate_make();
	struct stop at;
	cuf_future *first = empty_launch(s, CUF_HERE), *f;

	atomic_store(&told, false);
	atomic_store(&other, false);
	stop_arm(&at, "completer:sleep");
	cuf_watch(s, first, note_settled, &told);
	ok(stop_reached(&at), "the completer falls asleep");
	f = runs ? GATE_LAUNCH(s, g, .label = "slow") : empty_launch(s, CUF_HERE);
	cuf_watch(s, f, note_settled, &other);
	stop_go(&at);
	if (runs) {
		ok(AWAIT(asleep(), 3000), "it sleeps with something wanted");
		gate_open(g);
	} else {
		skip(1, "nothing to sleep for");
	}
	ok(AWAIT(atomic_load(&other), 5000), "what was wanted meanwhile settles");
	ok(AWAIT(atomic_load(&told), 5000), "as what was wanted before");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
	cuf_pinned_put(rt, g.flag);
}

/* Who wants has said so for the lane, not yet for the device, as the completer falls asleep. */
static void *want(void *arg)
{
	atomic_store(&told, false);
	cuf_watch(root, arg, note_settled, &told);
	return NULL;
}

static void check_wanting(void)
{
	cuf_scope *s = cuf_scope_open(root);
	struct gate g = gate_make();
	struct stop at;
	cuf_future *f = GATE_LAUNCH(s, g, .label = "gate");
	pthread_t t;

	stop_arm(&at, "completer:want");
	if (pthread_create(&t, NULL, want, f))
		abort();
	ok(stop_reached(&at), "somebody is about to want something");
	ok(AWAIT(asleep(), 3000), "the completer sleeps");
	gate_open(g);
	sleep_ms(3);
	ok(!atomic_load(&told), "and does not know of it");
	stop_go(&at);
	pthread_join(t, NULL);
	ok(AWAIT(atomic_load(&told), 5000), "until it is told");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
	cuf_pinned_put(rt, g.flag);
}

/* A waiter has looked, and is about to sleep, as the operation ends and is settled. */
static void *wait_for(void *arg)
{
	return (void *)(intptr_t)cuf_wait(arg);
}

static void check_waiter(void)
{
	cuf_scope *s = cuf_scope_open(root);
	struct gate g = gate_make();
	struct stop at;
	cuf_future *f = GATE_LAUNCH(s, g, .label = "gate");
	pthread_t t;
	void *got;

	stop_arm(&at, "ask:park");
	if (pthread_create(&t, NULL, wait_for, f))
		abort();
	ok(stop_reached(&at), "a waiter is about to sleep");
	gate_open(g);
	is_int(settles(f, 5000), CUF_OK, "what it waits for settles");
	stop_go(&at);
	pthread_join(t, &got);
	is_int((int)(intptr_t)got, CUF_OK, "it does not sleep on that");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
	cuf_pinned_put(rt, g.flag);
}

/* One that is expected to take long is slept through; a short one wanted later is not. */
static void check_slept_through(void)
{
	cuf_scope *s = cuf_scope_open(root);
	uint64_t ns = 300000000, start;
	struct stop at;
	cuf_future *f, *quick;

	for (int i = 0; i < 2; i++) {
		f = cuf_launch(s, &spin_kernel, cuf_grid_1d(1, 1), CUF_ARGS(ns));
		is_int(settles(f, 5000), CUF_OK, "a kernel of 300 ms");
	}
	stop_arm(&at, "completer:expect");
	f = cuf_launch(s, &spin_kernel, cuf_grid_1d(1, 1), CUF_ARGS(ns));
	cuf_watch(s, f, note_settled, &told);
	if (!AWAIT(atomic_load(&at.there), 100)) {
		skip(2, "the completer does not sleep through it");
	} else {
		/* it knows how long it will sleep */
		quick = empty_launch(s, CUF_HERE);
		start = cuf_now_ns();
		atomic_store(&told, false);
		cuf_watch(s, quick, note_settled, &told);
		stop_go(&at);
		ok(AWAIT(atomic_load(&told), 5000),
		   "a short one wanted as it falls asleep settles");
		ok(ms_since(start) < 150, "long before the other");
	}
	stop_go(&at);
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
}

int main(void)
{
	plan(2 * (2 * 5) + 5 + 4 + 5 + 1);
	for (int i = 0; i < 2; i++) {
		start_without_tick(i ? CUF_POWER : CUF_BALANCED);
		check_falling_asleep(false);
		check_falling_asleep(true);
	}
	check_wanting();
	check_waiter();
	start_without_tick(CUF_BALANCED);
	check_slept_through();
	return rig_end();
}
#endif
