/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the host device share: a bare table, opened; waiting by asking; a kernel that
 * can be held. Include after tap.h, in one file of a program.
 */
#ifndef TESTS_UNIT_DEVICE_HOST_H
#define TESTS_UNIT_DEVICE_HOST_H

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "device_host/host.h"

static const struct cufi_device_ops *ops;

/* Opens @devices devices after a reset, with device 0 current. */
static inline void open_devices(int devices)
{
	struct cufi_device_info info;
	int i, n = 0;

	ops = cufi_device_host();
	cuf_host_reset();
	if (ops->open(devices, &n) != 0 || n != devices)
		abort();
	for (i = 0; i < n; i++)
		if (ops->device_open(i, &info) != 0)
			abort();
}

static inline void close_devices(int devices)
{
	while (devices-- > 0)
		ops->device_close(devices);
	ops->close();
}

/* Both create on device @device, whatever the thread's current one. */
static inline struct CUstream_st *new_stream(int device)
{
	struct cufi_device_guard g;
	struct CUstream_st *s = NULL;

	if (ops->enter(device, &g) != 0 || ops->stream_create(0, &s) != 0)
		abort();
	ops->leave(&g);
	return s;
}

static inline struct CUevent_st *new_event(int device, bool timing)
{
	struct cufi_device_guard g;
	struct CUevent_st *e = NULL;

	if (ops->enter(device, &g) != 0 || ops->event_create(timing, &e) != 0)
		abort();
	ops->leave(&g);
	return e;
}

static inline void sleep_ms(unsigned ms)
{
	_Atomic uint32_t word = 0;
	uint64_t until_ns = cufi_now_ns() + ms * UINT64_C(1000000);

	while (cufi_park(&word, 0, until_ns))
		;
}

/* What the stream says once it is no longer busy. */
static inline int drain(struct CUstream_st *s)
{
	unsigned spins = 0;
	int code;

	while ((code = ops->stream_query(s)) == CUFI_CODE_NOT_READY)
		cufi_relax(&spins);
	return code;
}

static inline int drain_event(struct CUevent_st *e)
{
	unsigned spins = 0;
	int code;

	while ((code = ops->event_query(e)) == CUFI_CODE_NOT_READY)
		cufi_relax(&spins);
	return code;
}

/* A function on a stream that runs until it is let go. */
struct hold {
	atomic_bool entered, let_go;
};

static inline void hold_fn(void *arg)
{
	struct hold *h = *(struct hold **)arg;
	unsigned spins = 0;

	atomic_store(&h->entered, true);
	while (!atomic_load(&h->let_go))
		cufi_relax(&spins);
}

static inline int put_hold(struct CUstream_st *s, struct hold *h)
{
	atomic_store(&h->entered, false);
	atomic_store(&h->let_go, false);
	return cuf_host_enqueue(s, hold_fn, &h, sizeof h);
}

static inline void await_flag(atomic_bool *flag)
{
	unsigned spins = 0;

	while (!atomic_load(flag))
		cufi_relax(&spins);
}

/* A function on a stream that adds one. */
static inline void count_fn(void *arg)
{
	atomic_fetch_add(*(atomic_int **)arg, 1);
}

static inline int put_count(struct CUstream_st *s, atomic_int *n)
{
	return cuf_host_enqueue(s, count_fn, &n, sizeof n);
}

/* The same as a host function: its argument is not copied. */
static inline void bump_fn(void *n)
{
	atomic_fetch_add((atomic_int *)n, 1);
}

#endif
