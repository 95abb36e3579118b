/* SPDX-License-Identifier: MIT */
/*
 * The virtual scheduler: runs a program one thread at a time and changes threads at testpoints, locks,
 * parks, wakes and turns of spinning loops only, as a seed says. The clock is virtual: it creeps at
 * each of those steps and leaps to the earliest deadline when all threads are parked. So a run of
 * seconds takes microseconds, and the same seed gives the same run.
 *
 * A program is a function; its threads are those of cufi_thread_start(). It must end with all of them
 * joined. What it does between two steps is atomic for the others: a race is explored as far as
 * its accesses have testpoints between them. Blocking on anything but lib/wait.h (a pthread mutex
 * held across a step, a read) blocks the whole: the test's watchdog then says so.
 *
 * On a deadlock (all parked, no deadline), after too many steps, on a failed check, on a signal that
 * kills: prints the seed, each thread's last label and the end of the schedule, and aborts.
 *
 * From the environment: EXPLORE_SEED=N runs seed N alone; EXPLORE_SEEDS=N so many; EXPLORE_STEPS=N
 * allows so many steps (1,000,000); EXPLORE_SHOW=N shows the last N steps on failure (60).
 */
#ifndef EXPLORE_SCHED_H
#define EXPLORE_SCHED_H

#include <stdbool.h>
#include <stdint.h>

/* Runs @program(@arg) under the schedule of @seed. Returns the number of steps. */
uint64_t sched_run(uint64_t seed, void (*program)(void *arg), void *arg);

/* Of the last run: a number that differs where its schedule did. */
uint64_t sched_fingerprint(void);

/* Seeds 1 to @count, or as the environment says. Returns how many ran; @prepare, if not NULL, is
 * called before each, outside. */
uint64_t sched_sweep(uint64_t count, void (*prepare)(void *arg), void (*program)(void *arg),
		     void *arg);

/* In a program: a number below @n that belongs to the seed. */
uint32_t sched_random(uint32_t n);

/* In a program, or after its run: unless @condition, fails as a deadlock does. */
#define sched_check(condition, ...) \
	((condition) ? (void)0 : sched_fail(__FILE__, __LINE__, #condition, __VA_ARGS__))
void sched_fail(const char *file, int line, const char *condition, const char *fmt, ...)
	__attribute__((noreturn, format(printf, 4, 5)));

#endif
