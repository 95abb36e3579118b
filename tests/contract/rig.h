/* SPDX-License-Identifier: MIT */
/*
 * What contract tests of the device path share: a runtime that is started again for each part,
 * gates that hold a lane, a counter of errors nobody looked at, time, threads. Public API only.
 * Include once, after tap.h; call rig_start() before plan(), and rig_end() last.
 */
#ifndef TESTS_CONTRACT_RIG_H
#define TESTS_CONTRACT_RIG_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <cufuture.h>
#include <cufuture/host.h>

#include <dlfcn.h>
#include <stdatomic.h>

#include "kernels.h"

static cuf_runtime *rt;
static cuf_scope *root;
static bool on_host;			    /* the host device: its script is to be had */
static bool rig_clean = true;		    /* no device call inside a host function so far */
static atomic_int unobserved, lost_devices; /* how often the hooks were called */

__attribute__((unused)) static void rig_unobserved(const cuf_error *e, void *arg)
{
	(void)e, (void)arg;
	atomic_fetch_add(&unobserved, 1);
}

__attribute__((unused)) static void rig_device_lost(int device, const cuf_error *e, void *arg)
{
	(void)device, (void)e, (void)arg;
	atomic_fetch_add(&lost_devices, 1);
}

__attribute__((unused)) static void rig_log(int level, const char *line, void *arg)
{
	(void)level, (void)line, (void)arg;
}

/* Ends the runtime there is, and starts one; the host device begins anew. */
#define RIG_START(...)                                                                    \
	rig_start_with(&(const cuf_runtime_options){ .size = sizeof(cuf_runtime_options), \
						     .on_unobserved = rig_unobserved,     \
						     .on_device_lost = rig_device_lost,   \
						     .on_log = rig_log,                   \
						     __VA_ARGS__ })

static inline void rig_stop(void)
{
	cuf_runtime_destroy(rt);
	rt = NULL;
	root = NULL;
	rig_clean &= cuf_host_calls_in_func() == 0;
}

static inline void rig_start_with(const cuf_runtime_options *o)
{
	cuf_status st;

	rig_stop();
	cuf_host_reset();
	atomic_store(&unobserved, 0);
	atomic_store(&lost_devices, 0);
	st = cuf_runtime_create(&rt, o);
	if (st == CUF_ERR_UNSUPPORTED && !tap_.planned)
		plan_skip_all("no usable device");
	if (st != CUF_OK) {
		printf("Bail out! no runtime: %s\n", cuf_strerror(st));
		exit(1);
	}
	root = cuf_runtime_scope(rt);
	/* what the host device counted, only a runtime on it can have called */
	on_host = cuf_host_calls(CUF_HOST_ANY) != 0;
}

/* The last point of each program; exit status of main. */
static inline int rig_end(void)
{
	rig_stop();
	ok(rig_clean, "no device call was made inside a host function");
	return done();
}

/* Times and sizes are not ours either with a sanitizer built in. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* Under valgrind, which runs one thread at a time: times say nothing, and counts have to be small. */
__attribute__((unused)) static inline bool under_valgrind(void)
{
	const char *preload = getenv("LD_PRELOAD");

	return preload && strstr(preload, "vgpreload");
}

/* ---- time ---- */

static inline uint64_t ms_since(uint64_t start_ns)
{
	return (cuf_now_ns() - start_ns) / 1000000u;
}

static inline void sleep_ms(unsigned ms)
{
	struct timespec t = { ms / 1000, (long)(ms % 1000) * 1000000 };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

/* Waits for a condition that another thread makes true; false: it did not in @ms. */
#define AWAIT(condition, ms)                                              \
	({                                                                \
		uint64_t await_until_ = cuf_now_ns() + CUF_MS(ms);        \
		while (!(condition) && cuf_now_ns() < await_until_)       \
			nanosleep(&(struct timespec){ 0, 200000 }, NULL); \
		(bool)(condition);                                        \
	})

/* How it ended, within 20 s: more than anything here needs, less than the watchdog. */
static inline cuf_status ends(cuf_future *f)
{
	return cuf_wait_until(f, cuf_now_ns() + CUF_MS(20000));
}

static inline cuf_error_info info_of(const cuf_future *f)
{
	cuf_error_info i = { .size = sizeof i };

	cuf_error_get(cuf_error_of(f), &i);
	return i;
}

static inline cuf_stats stats(void)
{
	cuf_stats s = { .size = sizeof s };

	cuf_stats_of(rt, &s);
	return s;
}

/* ---- gates: a kernel that runs until it is let go holds its lane, on every device ---- */

struct gate {
	int *flag; /* pinned */
};

static inline struct gate gate_make(void)
{
	struct gate g = { cuf_pinned_get(rt, sizeof *g.flag) };

	if (!g.flag)
		abort();
	__atomic_store_n(g.flag, 0, __ATOMIC_RELAXED);
	return g;
}

static inline void gate_open(struct gate g)
{
	__atomic_store_n(g.flag, 1, __ATOMIC_RELEASE);
}

#define GATE_LAUNCH(s, g, ...)                                                                    \
	cuf_launch(s, &spin_until_kernel, cuf_grid_1d(1, 32), CUF_ARGS((volatile int *)(g).flag), \
		   __VA_ARGS__)

/* ---- work put on a stream by an enqueue callback ---- */

/* A C function on @stream, when it is reached: a host function on a GPU. A code, 0 for success. */
static inline int put_function(struct CUstream_st *stream, void (*fn)(void *arg), void *arg)
{
	static int (*launch)(struct CUstream_st *, void (*)(void *), void *);
	static const char *const names[] = { "libcudart.so.13", "libcudart.so.12", "libcudart.so" };

	if (on_host)
		return cuf_host_enqueue(stream, fn, arg, 0);
	for (size_t i = 0; !launch && i < sizeof names / sizeof *names; i++) {
		void *library = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);

		if (library)
			*(void **)&launch = dlsym(library, "cudaLaunchHostFunc");
	}
	return launch ? launch(stream, fn, arg) : -1;
}

#endif
