/* SPDX-License-Identifier: MIT */
/*
 * Which labels are armed, and what runs there. Empty without CUFI_TESTPOINTS. What to do with a
 * thread that comes to a label is the test's business; switching threads there is the virtual
 * scheduler's (tests/explore/sched.c).
 */
#include "testpoint.h"

#ifdef CUFI_TESTPOINTS
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wait.h"

#define MAX_ARMS 64 /* labels one test program may arm (arbitrary) */

/* In a slot of its own until its label is armed again: hits can be read after the disarm. */
struct arm {
	char label[64]; /* "" never used */
	void (*fn)(void *arg);
	void *arg;
	int times; /* calls left to make; 0: passed only, -1: disarmed */
	unsigned hits;
};

/* The real mutex, not cufi_lock: that one is itself full of yields under a scheduler. */
static pthread_mutex_t arms_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct arm arms[MAX_ARMS];
static atomic_uint armed; /* how many are not disarmed: lets the others pass without the mutex */

void cufi_wait_yield(const char *label); /* wait.c */

static struct arm *find_arm(const char *label)
{
	size_t i;

	for (i = 0; i < MAX_ARMS && arms[i].label[0] != '\0'; i++)
		if (strcmp(arms[i].label, label) == 0)
			return &arms[i];
	return i < MAX_ARMS ? &arms[i] : NULL;
}

void cufi_testpoint(const char *label)
{
	void (*fn)(void *arg) = NULL;
	void *arg = NULL;

	/* relaxed: a test that arms while others run orders that by its own means */
	if (atomic_load_explicit(&armed, memory_order_relaxed) != 0) {
		struct arm *a;

		pthread_mutex_lock(&arms_mutex);
		a = find_arm(label);
		if (a != NULL && a->label[0] != '\0' && a->times >= 0) {
			a->hits++;
			if (a->times > 0) {
				a->times--;
				fn = a->fn;
				arg = a->arg;
			}
		}
		pthread_mutex_unlock(&arms_mutex);
		if (fn != NULL)
			fn(arg); /* may block for long, and pass testpoints itself */
	}
	cufi_wait_yield(label);
}

void cufi_testpoint_arm(const char *label, void (*fn)(void *arg), void *arg, int times)
{
	struct arm *a;

	pthread_mutex_lock(&arms_mutex);
	a = find_arm(label);
	if (a == NULL || strlen(label) >= sizeof(a->label)) {
		(void)fprintf(stderr, "testpoint: no room to arm %s\n", label);
		abort();
	}
	if (a->label[0] == '\0' || a->times < 0)
		/* relaxed: see cufi_testpoint() */
		atomic_fetch_add_explicit(&armed, 1, memory_order_relaxed);
	memcpy(a->label, label, strlen(label) + 1);
	a->fn = fn;
	a->arg = arg;
	a->times = times > 0 ? times : 0;
	a->hits = 0;
	pthread_mutex_unlock(&arms_mutex);
}

void cufi_testpoint_disarm(const char *label)
{
	struct arm *a;

	pthread_mutex_lock(&arms_mutex);
	a = find_arm(label);
	if (a != NULL && a->label[0] != '\0' && a->times >= 0) {
		a->times = -1;
		/* relaxed: see cufi_testpoint() */
		atomic_fetch_sub_explicit(&armed, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&arms_mutex);
}

unsigned cufi_testpoint_hits(const char *label)
{
	struct arm *a;
	unsigned hits = 0;

	pthread_mutex_lock(&arms_mutex);
	a = find_arm(label);
	if (a != NULL)
		hits = a->hits;
	pthread_mutex_unlock(&arms_mutex);
	return hits;
}
#else
typedef int cufi_testpoint_unused; /* ISO C wants a declaration in each file */
#endif
