/* SPDX-License-Identifier: MIT */
/*
 * What tests that force races share: a runtime whose tick is off, so that nothing rescues what a
 * lost wake-up left behind, and a thread that is stopped at a testpoint. Include after
 * contract/rig.h, in one file of a program.
 */
#ifndef TESTS_UNIT_RACES_H
#define TESTS_UNIT_RACES_H

#include "lane.h"
#include "machine.h"
#include "testpoint.h"
#include "wait.h"

static inline bool no_tick(cuf_runtime *r)
{
	(void)r;
	return false;
}

static inline void start_without_tick(int mode)
{
	const cuf_kernel *kernels[] = { &empty_kernel, &spin_until_kernel };

	RIG_START(.backend = "host", .devices = 1, .mode = mode);
	/* before the first operation: the timer has no tick to give yet */
	rt->up.tick = no_tick;
	cuf_kernel_prepare(rt, kernels, 2);
}

/* Stops the thread that comes to @label, until it is let go. */
struct stop {
	const char *label;
	atomic_bool there, go;
};

static inline void stop_here(void *arg)
{
	struct stop *s = arg;

	atomic_store(&s->there, true);
	while (!atomic_load(&s->go))
		nanosleep(&(struct timespec){ 0, 50000 }, NULL);
}

static inline void stop_arm(struct stop *s, const char *label)
{
	s->label = label;
	atomic_store(&s->there, false);
	atomic_store(&s->go, false);
	cufi_testpoint_arm(label, stop_here, s, 1);
}

static inline bool stop_reached(struct stop *s)
{
	return AWAIT(atomic_load(&s->there), 5000);
}

static inline void stop_go(struct stop *s)
{
	atomic_store(&s->go, true);
	cufi_testpoint_disarm(s->label);
}

static inline cuf_future *empty_launch(cuf_scope *s, const cuf_options *o)
{
	return cuf_launch_with(s, &empty_kernel, cuf_grid_1d(1, 1), CUF_NO_ARGS, o);
}

static inline void note_settled(cuf_future *f, void *arg)
{
	(void)f;
	atomic_store((atomic_bool *)arg, true);
}

/* Has a watch told of its end; nobody waits, who would ask the device himself. */
static inline cuf_status settles(cuf_future *f, unsigned ms)
{
	static atomic_bool told[256]; /* one each: a late one must not be taken for the next */
	static atomic_uint n;
	atomic_bool *mine = &told[atomic_fetch_add(&n, 1) % 256];

	atomic_store(mine, false);
	cuf_watch(root, f, note_settled, mine);
	AWAIT(atomic_load(mine), ms);
	return cuf_poll(f);
}

#endif
