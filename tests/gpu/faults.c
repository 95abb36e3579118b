/* SPDX-License-Identifier: MIT */
/*
 * Real faults on a real GPU, each in a process of its own, since a fault ends the device for the
 * process: every future settles in bounded time, with the device's error and the right root cause;
 * nothing behind it runs; later submits fail without a device call; CUF_DEBUG=sync names the culprit.
 * C01, C02, C09 (ii), C48 and C49 of the field cases.
 */
#include <cufuture.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels.h"
#include "tap.h"

/* The driver needs 100 to 150 ms before it says so. */
#define BOUND_NS CUF_MS(5000)

static _Atomic int ran, watched, lost_told;

static cuf_future *count(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	atomic_fetch_add(&ran, 1);
	return NULL;
}

static void watch(cuf_future *f, void *arg)
{
	(void)f, (void)arg;
	atomic_fetch_add(&watched, 1);
}

static void on_lost(int device, const cuf_error *e, void *arg)
{
	(void)e, (void)arg;
	atomic_fetch_add(&lost_told, device == 0);
}

static bool ends(cuf_future *f)
{
	return cuf_wait_until(f, cuf_now_ns() + BOUND_NS) != CUF_PENDING;
}

/* In a child. Its exit status is the bits of the points that failed. */
static int run_fault(int kind, int code, bool sync)
{
	const cuf_runtime_options o = { .size = sizeof o, .on_device_lost = on_lost };
	cuf_error_info info = { .size = sizeof info };
	cuf_stats before = { .size = sizeof before }, after = { .size = sizeof after };
	const cuf_kernel *const kernels[] = { &fault_kernel, &empty_kernel };
	cuf_future *mem, *in, *bad, *out, *then, *end, *late, *other;
	unsigned failed = 0, point = 0;
	cuf_runtime *rt;
	cuf_scope *s;
	char *host;

#define POINT(condition) failed |= (condition) ? 0u : 1u << point, point++
	if (cuf_runtime_create(&rt, &o) || cuf_kernel_prepare(rt, kernels, 2))
		return 255;
	s = cuf_scope_open(cuf_runtime_scope(rt));
	host = cuf_pinned_get(rt, 4096);
	mem = cuf_alloc(s, 4096);
	in = cuf_copy(s, cuf_address(mem), host, 4096, .after = CUF_AFTER(mem), .label = "in");
	cuf_wait(in);
	bad = cuf_launch(s, &fault_kernel, cuf_grid_1d(1, 1), CUF_ARGS(kind),
			 .after = CUF_AFTER(in), .label = "culprit");
	out = cuf_copy(s, host, cuf_address(mem), 4096, .after = CUF_AFTER(bad), .label = "out");
	then = cuf_then(s, out, count, NULL);
	other = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 1), CUF_NO_ARGS);
	cuf_watch(s, out, watch, NULL);
	POINT(ends(bad) && ends(out) && ends(then) && ends(other)); /* 0 */
	cuf_error_get(cuf_error_of(bad), &info);
	POINT(info.status == CUF_ERR_DEVICE_LOST && info.cuda_code == code); /* 1 */
	POINT(info.label && !strcmp(info.label, "culprit")); /* 2: the oldest unfinished */
	POINT(info.line > 0 && info.device == 0 && info.n_suspects >= 1); /* 3 */
	POINT(!sync || (info.n_suspects == 1 && !info.inherited));	  /* 4 */
	cuf_error_get(cuf_error_of(then), &info);
	POINT(info.inherited && info.cuda_code == code &&
	      !strcmp(info.operation, "launch")); /* 5: the same root cause */
	POINT(atomic_load(&ran) == 0);		  /* 6: nothing behind it ran */
	POINT(cuf_runtime_device_status(rt, 0) == CUF_ERR_DEVICE_LOST); /* 7 */
	cuf_stats_of(rt, &before);
	late = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 1), CUF_NO_ARGS);
	cuf_stats_of(rt, &after);
	POINT(cuf_poll(late) == CUF_ERR_DEVICE_LOST); /* 8: at once */
	POINT(before.operations == after.operations); /* 9 */
	cuf_error_get(cuf_error_of(late), &info);
	POINT(info.label && !strcmp(info.label, "culprit")); /* 10: the original error */
	end = cuf_scope_close(s);
	POINT(ends(end) && cuf_poll(end) == CUF_ERR_DEVICE_LOST); /* 11 */
	for (int i = 0; i < 200 && (!atomic_load(&watched) || !atomic_load(&lost_told)); i++)
		usleep(10000);
	POINT(atomic_load(&watched) == 1);   /* 12 */
	POINT(atomic_load(&lost_told) == 1); /* 13 */
	cuf_pinned_put(rt, host);
	cuf_runtime_destroy(rt);
	if (failed) {
		for (unsigned i = 0; i < point; i++)
			if (failed & 1u << i)
				fprintf(stderr, "fault %d: point %u failed\n", kind, i);
		return 1;
	}
	return 0;
}

static int in_child(const char *program, int kind, int code, bool sync)
{
	char kind_text[16], code_text[16];
	int status;
	pid_t pid;

	snprintf(kind_text, sizeof kind_text, "%d", kind);
	snprintf(code_text, sizeof code_text, "%d", code);
	pid = fork();
	if (!pid) {
		if (sync)
			setenv("CUF_DEBUG", "sync", 1);
		execl(program, program, kind_text, code_text, sync ? "sync" : "", (char *)NULL);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* In a child too: the parent must not have a CUDA context when it forks. */
static bool there_is_a_gpu(void)
{
	const cuf_runtime_options o = { .size = sizeof o, .backend = "cuda" };
	cuf_runtime *rt;
	int status;
	pid_t pid = fork();

	if (!pid) {
		if (cuf_runtime_create(&rt, &o))
			_exit(1);
		cuf_runtime_destroy(rt);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	static const struct {
		int kind, code;
		const char *name;
	} faults[] = {
		{ FAULT_ADDRESS, 700, "illegal address" },
		{ FAULT_MISALIGNED, 716, "misaligned address" },
		{ FAULT_TRAP, 719, "trap" },
		{ FAULT_ASSERT, 710, "device-side assert" },
	};
	enum { FAULTS = sizeof faults / sizeof *faults };

	if (argc > 3)
		return run_fault(atoi(argv[1]), atoi(argv[2]), !strcmp(argv[3], "sync"));
	setenv("CUF_DEVICE", "cuda", 1);
	setenv("CUF_LOG", "off", 1);
	if (!there_is_a_gpu())
		plan_skip_all("no usable GPU");
	plan(2 * FAULTS);
	for (int i = 0; i < FAULTS; i++) {
		is_int(in_child(argv[0], faults[i].kind, faults[i].code, false), 0,
		       "%s: all settle with their root cause", faults[i].name);
		is_int(in_child(argv[0], faults[i].kind, faults[i].code, true), 0,
		       "%s: CUF_DEBUG=sync names the culprit", faults[i].name);
	}
	return done();
}
