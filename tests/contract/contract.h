/* SPDX-License-Identifier: MIT */
/*
 * What the contract tests share: a runtime whose unobserved errors are counted, promises to hold
 * things up with, waiting that gives up and shows what is outstanding. Include once in a program.
 */
#ifndef CONTRACT_H
#define CONTRACT_H

#include <cufuture.h>
#include <stdatomic.h>
#include <unistd.h>

#include "tap.h"

/* Longer than anything here takes, on any machine. A wait that long is a failure. */
#define LONG_MS 20000

static cuf_runtime *rt;
static cuf_scope *root;
static _Atomic int unobserved; /* errors reported through the hook */
static char unobserved_message[256];

static inline void count_unobserved(const cuf_error *e, void *arg)
{
	(void)arg;
	snprintf(unobserved_message, sizeof unobserved_message, "%s", cuf_error_message(e));
	atomic_fetch_add(&unobserved, 1);
}

static inline void open_runtime(cuf_runtime_options o)
{
	o.size = sizeof o;
	if (!o.on_unobserved)
		o.on_unobserved = count_unobserved;
	if (cuf_runtime_create(&rt, &o)) {
		diag("no runtime");
		abort();
	}
	root = cuf_runtime_scope(rt);
}

static inline void nap_ms(long ms)
{
	nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL);
}

/* Percent of the rounds that a test does by default: 1 under valgrind, more for a long run. */
static inline long scaled(long n)
{
	const char *percent = getenv("TEST_SCALE");
	long m = percent ? n / 100 * atol(percent) : n;

	return m > 100 ? m : 100;
}

/* How @f ended, by a poll (so that it does not count as looked at); CUF_PENDING: it never did. */
static inline cuf_status settled(cuf_future *f)
{
	uint64_t until = cuf_now_ns() + CUF_MS(LONG_MS);

	while (cuf_poll(f) == CUF_PENDING && cuf_now_ns() < until)
		nap_ms(1);
	return cuf_poll(f);
}

/* The same by a wait. */
static inline cuf_status outcome(cuf_future *f)
{
	cuf_status st = cuf_wait_until(f, cuf_now_ns() + CUF_MS(LONG_MS));

	if (st == CUF_PENDING) {
		diag("still pending");
		cuf_dump(rt, stderr);
	}
	return st;
}

/* Whether *@n comes to be @want. */
static inline bool comes_to(_Atomic int *n, int want)
{
	uint64_t until = cuf_now_ns() + CUF_MS(LONG_MS);

	while (atomic_load(n) != want && cuf_now_ns() < until)
		nap_ms(1);
	return atomic_load(n) == want;
}

static inline cuf_error_info info_of(cuf_future *f)
{
	cuf_error_info info = { .size = sizeof info };

	cuf_error_get(cuf_error_of(f), &info);
	return info;
}

/* Nothing is outstanding in the runtime, nor comes to be. */
static inline void close_runtime(const char *what)
{
	cuf_status st = cuf_runtime_shutdown(rt, CUF_DRAIN, cuf_now_ns() + CUF_MS(LONG_MS));

	ok(st == CUF_OK, "%s: nothing is outstanding at the end", what);
	if (st != CUF_OK)
		cuf_dump(rt, stderr);
	cuf_runtime_destroy(rt);
	rt = NULL;
}

#endif
