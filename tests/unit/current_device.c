/* SPDX-License-Identifier: MIT */
/*
 * Which device is current: in a continuation that of its operation, in an enqueue callback that of
 * the enqueue, and in the caller's thread afterwards what it was before, also where a call failed.
 */
#include "tap.h"
#include "contract/rig.h"

#include "device_host/host.h"

static atomic_int wrong, seen;

static cuf_future *look(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in;
	atomic_fetch_add(&seen, 1);
	if (cufi_host_current() != (int)(intptr_t)arg)
		atomic_fetch_add(&wrong, 1);
	return NULL;
}

static int look_in_enqueue(struct CUstream_st *stream, void *arg)
{
	atomic_fetch_add(&seen, 1);
	if (cufi_host_current() != (int)(intptr_t)arg ||
	    cufi_host_stream_device(stream) != (int)(intptr_t)arg)
		atomic_fetch_add(&wrong, 1);
	return 0;
}

#define UNCHANGED(call)                                                                \
	do {                                                                           \
		call;                                                                  \
		if (cufi_host_current() != mine) {                                     \
			diag("%s left device %d current", #call, cufi_host_current()); \
			same = false;                                                  \
		}                                                                      \
	} while (0)

static void check_callbacks(int mine)
{
	const struct cufi_device_ops *ops = cufi_device_host();
	struct cufi_device_guard guard;
	cuf_scope *s = cuf_scope_open(root);
	int n = 0;

	atomic_store(&wrong, 0);
	atomic_store(&seen, 0);
	if (ops->enter(mine, &guard))
		abort();
	for (int i = 0; i < 200; i++) {
		int d = i % 3;
		cuf_future *f = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 1), CUF_NO_ARGS,
					   .device = CUF_DEVICE(d));

		cuf_then(s, f, look, (void *)(intptr_t)d,
			 .on = i % 2 ? cuf_runtime_workers(rt) : NULL);
		cuf_enqueue(s, look_in_enqueue, (void *)(intptr_t)d, .device = CUF_DEVICE(d),
			    .after = CUF_AFTER(i % 4 ? f : NULL));
		n += 2;
	}
	is_int(ends(cuf_scope_close(s)), CUF_OK,
	       "callbacks of three devices, submitted on device %d", mine);
	is_int(atomic_load(&seen), n, "each ran");
	is_int(atomic_load(&wrong), 0, "with its operation's device current");
	is_int(cufi_host_current(), mine, "the caller's is what it was");
	ops->leave(&guard);
}

static void check_calls(int mine)
{
	const struct cufi_device_ops *ops = cufi_device_host();
	struct cufi_device_guard guard;
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *a, *f;
	char *pinned, heap[64] = "";
	bool same = true;
	static const int kinds[] = { CUF_HOST_LAUNCH, CUF_HOST_COPY,	     CUF_HOST_FILL,
				     CUF_HOST_MALLOC, CUF_HOST_RECORD,	     CUF_HOST_WAIT,
				     CUF_HOST_FREE,   CUF_HOST_STREAM_CREATE };

	if (ops->enter(mine, &guard))
		abort();
	UNCHANGED(pinned = cuf_pinned_get(rt, 5 << 20));
	for (int d = 0; d < 3; d++) {
		for (int fails = 0; fails < 3; fails++) {
			for (size_t k = 0; fails && k < sizeof kinds / sizeof *kinds; k++)
				cuf_host_fail_call(kinds[k], (uint64_t)fails, 400);
			UNCHANGED(a = cuf_alloc(s, 64, .device = CUF_DEVICE(d)));
			UNCHANGED(
				f = cuf_copy(s, cuf_address(a), pinned, 64, .after = CUF_AFTER(a)));
			UNCHANGED(f = cuf_copy(s, cuf_address(a), heap, 64, .after = CUF_AFTER(f)));
			UNCHANGED(f = cuf_fill(s, cuf_address(a), 1, 64, .after = CUF_AFTER(f)));
			UNCHANGED(f = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 1), CUF_NO_ARGS,
						 .after = CUF_AFTER(f, a), .device = CUF_DEVICE(d),
						 .timing = true));
			UNCHANGED(cuf_wait(f));
			UNCHANGED(f = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 1), CUF_NO_ARGS,
						 .exclusive = true, .device = CUF_DEVICE(d)));
			UNCHANGED(cuf_free(s, cuf_address(a), .after = CUF_AFTER(f)));
			UNCHANGED(cuf_wait_until(f, cuf_now_ns() + 1000));
			UNCHANGED(cuf_wait(f));
		}
	}
	UNCHANGED(f = cuf_scope_close(s));
	UNCHANGED(cuf_wait(f));
	ok(same, "no call changes the caller's device %d", mine);
	UNCHANGED(cuf_pinned_put(rt, pinned));
	ops->leave(&guard);
}

int main(void)
{
	const cuf_kernel *kernels[] = { &empty_kernel };

	RIG_START(.backend = "host", .devices = 3);
	plan(3 * 4 + 3 + 1);
	cuf_kernel_prepare(rt, kernels, 1);
	for (int i = 0; i < 3; i++)
		check_callbacks(i);
	for (int i = 0; i < 3; i++) {
		RIG_START(.backend = "host", .devices = 3);
		check_calls(i);
	}
	return rig_end();
}
