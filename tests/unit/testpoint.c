/* SPDX-License-Identifier: MIT */
/*
 * An armed label calls its function as often as was asked, whichever thread comes by, and can hold a
 * thread there; labels that are not armed cost nothing and count nothing.
 */
#include "tap.h"
#include "testpoint.h"
#include "wait.h"

#ifndef CUFI_TESTPOINTS
int main(void)
{
	CUFI_TESTPOINT("unit: nothing");
	plan_skip_all("built without testpoints");
}
#else

static void count(void *arg)
{
	atomic_fetch_add((_Atomic int *)arg, 1);
}

static void check_arming(void)
{
	_Atomic int calls = 0, others = 0;

	CUFI_TESTPOINT("unit: a");
	is_int(cufi_testpoint_hits("unit: a"), 0, "not armed: no hits");
	cufi_testpoint_arm("unit: a", count, &calls, 2);
	cufi_testpoint_arm("unit: b", count, &others, 1);
	for (int i = 0; i < 5; i++)
		CUFI_TESTPOINT("unit: a");
	is_int(atomic_load(&calls), 2, "called twice, as asked");
	is_int(atomic_load(&others), 0, "another label's function is not");
	is_int(cufi_testpoint_hits("unit: a"), 5, "passed five times");
	cufi_testpoint_arm("unit: a", count, &others, 1);
	is_int(cufi_testpoint_hits("unit: a"), 0, "arming again begins anew");
	CUFI_TESTPOINT("unit: a");
	is_int(atomic_load(&others), 1, "with the new function");
	cufi_testpoint_disarm("unit: a");
	CUFI_TESTPOINT("unit: a");
	is_int(cufi_testpoint_hits("unit: a"), 1, "disarmed: counts no more");
	cufi_testpoint_arm("unit: a", NULL, NULL, 0);
	CUFI_TESTPOINT("unit: a");
	is_int(cufi_testpoint_hits("unit: a"), 1, "armed to count only");
	cufi_testpoint_disarm("unit: a");
	cufi_testpoint_disarm("unit: a");
	cufi_testpoint_disarm("unit: b");
	cufi_testpoint_disarm("unit: never armed");
	is_int(atomic_load(&calls) + atomic_load(&others), 3,
	       "disarming twice, or nothing, is nothing");
}

#define THREADS 4
#define PASSES	2000

static void pass_by(void *arg)
{
	(void)arg;
	for (int i = 0; i < PASSES; i++)
		CUFI_TESTPOINT("unit: crowd");
}

static void check_crowd(void)
{
	struct cufi_thread t[THREADS];
	_Atomic int calls = 0;

	cufi_testpoint_arm("unit: crowd", count, &calls, 1000);
	for (int i = 0; i < THREADS; i++)
		if (cufi_thread_start(&t[i], "crowd", pass_by, NULL, NULL))
			abort();
	for (int i = 0; i < THREADS; i++)
		cufi_thread_join(&t[i]);
	is_int(atomic_load(&calls), 1000, "from four threads: called as often as asked");
	is_int(cufi_testpoint_hits("unit: crowd"), THREADS * PASSES, "and all passes counted");
	cufi_testpoint_disarm("unit: crowd");
}

struct gate {
	_Atomic uint32_t reached, opened, passed;
};

static void stand(void *arg)
{
	struct gate *g = arg;

	atomic_store(&g->reached, 1);
	cufi_wake(&g->reached, 1);
	while (!atomic_load(&g->opened))
		cufi_park(&g->opened, 0, CUFI_FOREVER);
}

static void walk_through(void *arg)
{
	struct gate *g = arg;

	CUFI_TESTPOINT("unit: gate");
	atomic_store(&g->passed, 1);
}

static void check_gate(void)
{
	struct gate g = { 0 };
	struct cufi_thread t;

	cufi_testpoint_arm("unit: gate", stand, &g, 1);
	if (cufi_thread_start(&t, "walker", walk_through, &g, NULL))
		abort();
	while (!atomic_load(&g.reached))
		cufi_park(&g.reached, 0, CUFI_FOREVER);
	CUFI_TESTPOINT("unit: gate"); /* its one call is used up: others walk through */
	is_int(atomic_load(&g.passed), 0, "a thread is held at the label");
	atomic_store(&g.opened, 1);
	cufi_wake(&g.opened, 1);
	cufi_thread_join(&t);
	is_int(atomic_load(&g.passed), 1, "and let go");
	cufi_testpoint_disarm("unit: gate");
}

int main(void)
{
	plan(13);
	check_arming();
	check_crowd();
	check_gate();
	return done();
}
#endif
