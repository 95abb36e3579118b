/* SPDX-License-Identifier: MIT */
/*
 * The caller's last-error slot, as the host device has it: an error of his that is in it neither
 * fails an operation nor goes away by one, and no operation's error gets there (C11).
 */
#include "tap.h"
#include "contract/rig.h"

#include "device_host/host.h"

static const struct cufi_device_ops *ops;

/* An error of the program's own, that it has not looked at. */
static void fail_own(void)
{
	if (ops->stream_query(NULL) != CUFI_CODE_INVALID_HANDLE)
		abort();
}

/* The slot is cleared as cudaGetLastError() does: by a guard that found it empty. */
static void clear(void)
{
	struct cufi_device_guard g = { .slot_empty = true, .previous = cufi_host_current() };

	ops->leave(&g);
}

static int no_code(struct CUstream_st *stream, void *arg)
{
	(void)stream, (void)arg;
	return 0;
}

static void submit_all(cuf_scope *s, char *pinned, cuf_future **out)
{
	cuf_future *a = cuf_alloc(s, 4096), *f;

	f = cuf_copy(s, cuf_address(a), pinned, 4096, .after = CUF_AFTER(a));
	f = cuf_fill(s, cuf_address(a), 3, 100, .after = CUF_AFTER(f));
	f = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 1), CUF_NO_ARGS, .after = CUF_AFTER(f),
		       .priority = CUF_HIGH);
	f = cuf_enqueue(s, no_code, NULL, .after = CUF_AFTER(f));
	out[0] = cuf_copy(s, pinned, cuf_address(a), 4096, .after = CUF_AFTER(f));
	out[1] = cuf_free(s, cuf_address(a), .after = CUF_AFTER(out[0]));
}

static void check_own_stays(void)
{
	enum { TURNS = 50 };
	cuf_scope *s = cuf_scope_open(root);
	char *pinned = memset(cuf_pinned_get(rt, 4096), 0, 4096);
	cuf_future *f[2];
	int well = 0, after_submit = 0, after_wait = 0;

	for (int i = 0; i < TURNS; i++) {
		clear();
		fail_own();
		submit_all(s, pinned, f);
		if (ops->peek_error() != CUFI_CODE_INVALID_HANDLE)
			diag("turn %d: %d", i, ops->peek_error());
		after_submit += ops->peek_error() == CUFI_CODE_INVALID_HANDLE;
		well += ends(f[1]) == CUF_OK && pinned[0] == 3;
		/* waiting may ask the device */
		after_wait += ops->peek_error() == CUFI_CODE_INVALID_HANDLE;
		cuf_release_all(f[0], f[1]);
	}
	is_int(well, TURNS, "operations succeed with the caller's error in the slot");
	is_int(after_submit, TURNS, "submits leave it there");
	is_int(after_wait, TURNS, "and so do waits");
	clear();
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
	cuf_pinned_put(rt, pinned);
}

static void check_none_left(void)
{
	cuf_scope *s = cuf_scope_open(root);
	char *pinned = memset(cuf_pinned_get(rt, 4096), 0, 4096);
	struct gate g = gate_make();
	cuf_future *f[2], *slow;
	bool empty = true, failed = false;
	static const int kinds[] = { CUF_HOST_LAUNCH, CUF_HOST_COPY, CUF_HOST_FILL, CUF_HOST_MALLOC,
				     CUF_HOST_RECORD, CUF_HOST_WAIT, CUF_HOST_FREE };

	clear();
	for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
		cuf_host_fail_call(kinds[k], 1, 999);
		submit_all(s, pinned, f);
		failed |= ends(f[0]) != CUF_OK;
		empty &= ops->peek_error() == 0;
		ends(f[1]);
		cuf_release_all(f[0], f[1]);
	}
	ok(failed, "calls of operations fail");
	ok(empty, "and leave nothing in the caller's slot");
	slow = GATE_LAUNCH(s, g, .label = "gate");
	is_int(cuf_wait_until(slow, cuf_now_ns() + CUF_MS(3)), CUF_PENDING,
	       "waiting asks the device");
	is_int(ops->peek_error(), 0, "whose not-ready does not stay there either");
	gate_open(g);
	is_int(ends(slow), CUF_OK, "which ends");
	ends(cuf_scope_close(s));
	is_int(ops->peek_error(), 0, "nothing is left at the end");
	cuf_pinned_put(rt, pinned);
	cuf_pinned_put(rt, g.flag);
}

int main(void)
{
	const cuf_kernel *kernels[] = { &empty_kernel, &spin_until_kernel };

	ops = cufi_device_host();
	RIG_START(.backend = "host");
	plan(4 + 6 + 1);
	cuf_kernel_prepare(rt, kernels, 2);
	check_own_stays();
	check_none_left();
	return rig_end();
}
