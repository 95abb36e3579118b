/* SPDX-License-Identifier: MIT */
/*
 * Several devices: each operation on its own, events and streams never mixed up, edges between
 * devices held on the host or waited for on the device, copies across. With one device: skipped.
 * Which device is current in a callback: tests/unit/current_device.c.
 */
#include "tap.h"
#include "contract/rig.h"

enum { N = 256 };

static int devices;

struct place {
	cuf_future *mem;
	int *at;
};

static struct place place_on(cuf_scope *s, int device)
{
	struct place p = { .mem = cuf_alloc(s, N * sizeof(int), .device = CUF_DEVICE(device)) };

	p.at = cuf_address(p.mem);
	return p;
}

static cuf_future *add_on(cuf_scope *s, int device, int *at, const cuf_options *o)
{
	cuf_options with = *o;

	with.device = CUF_DEVICE(device);
	return cuf_launch_with(s, &add_one, cuf_grid_1d(N, 256), CUF_ARGS(at, (size_t)N), &with);
}

/* ---- 10,000 operations, alternating (C14) ---- */

static void check_alternating(bool across, bool eager)
{
	enum { OPERATIONS = 10000 };
	cuf_scope *s = cuf_scope_open(root);
	struct place p[4];
	int *back = cuf_pinned_get(rt, N * sizeof(int)), counts[4] = { 0 };
	cuf_future *last[4], *f;
	bool right = true;

	for (int d = 0; d < devices; d++) {
		p[d] = place_on(s, d);
		last[d] = cuf_fill(s, p[d].at, 0, N * sizeof(int), .after = CUF_AFTER(p[d].mem));
	}
	for (int i = 0; i < OPERATIONS; i++) {
		int d = i % devices, e = (i / 7) % devices;

		counts[d]++;
		f = add_on(s, d, p[d].at,
			   CUF_OPTIONS(.take = CUF_LIST(last[d]),
				       .after = CUF_AFTER(across && e != d ? last[e] : NULL),
				       .eager_peer = eager));
		last[d] = f;
	}
	for (int d = 0; d < devices; d++) {
		f = cuf_copy(s, back, p[d].at, N * sizeof(int), .after = CUF_AFTER(last[d]));
		right &= ends(f) == CUF_OK && back[0] == counts[d] && back[N - 1] == counts[d];
		if (back[0] != counts[d])
			diag("device %d counted %d, not %d", d, back[0], counts[d]);
	}
	ok(right, "%d operations alternate over %d devices%s%s", OPERATIONS, devices,
	   across ? ", with edges between them" : "", eager ? ", on the device" : "");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
	cuf_pinned_put(rt, back);
}

/* ---- one device hands its result to the next ---- */

static void check_relay(bool eager)
{
	enum { ROUNDS = 60 };
	cuf_scope *s = cuf_scope_open(root);
	struct place p[4];
	int *back = cuf_pinned_get(rt, N * sizeof(int)), steps = 0;
	cuf_future *f = NULL, *g;

	for (int d = 0; d < devices; d++)
		p[d] = place_on(s, d);
	f = cuf_fill(s, p[0].at, 0, N * sizeof(int), .after = CUF_AFTER(p[0].mem));
	for (int i = 0; i < ROUNDS; i++) {
		int d = i % devices, next = (i + 1) % devices;

		f = add_on(s, d, p[d].at, CUF_OPTIONS(.after = CUF_AFTER(f), .eager_peer = eager));
		steps++;
		/* read by the next device, whose memory it goes to; order edges to what read it */
		g = cuf_copy(s, p[next].at, p[d].at, N * sizeof(int),
			     .after = CUF_AFTER(p[next].mem, f), .eager_peer = eager,
			     .device = CUF_DEVICE(next));
		f = g;
	}
	f = cuf_copy(s, back, p[ROUNDS % devices].at, N * sizeof(int), .after = CUF_AFTER(f));
	is_int(ends(f), CUF_OK, "a relay over %d devices, %s", devices,
	       eager ? "edges on the device" : "edges on the host");
	ok(back[0] == steps && back[N - 1] == steps, "adds up");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
	cuf_pinned_put(rt, back);
}

/* ---- an edge to another device is held on the host, unless it is eager ---- */

static void check_held(void)
{
	cuf_scope *s = cuf_scope_open(root);
	struct gate g = gate_make();
	cuf_future *gate, *held, *eager, *bad, *order;
	uint64_t launches;

	if (!on_host) {
		skip(7, "only the host device counts launches");
		cuf_pinned_put(rt, g.flag);
		ends(cuf_scope_close(s));
		return;
	}
	gate = GATE_LAUNCH(s, g, .device = CUF_DEVICE(0));
	launches = cuf_host_calls(CUF_HOST_LAUNCH);
	held = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS,
			  .after = CUF_AFTER(gate), .device = CUF_DEVICE(1));
	sleep_ms(10);
	is_int((long long)(cuf_host_calls(CUF_HOST_LAUNCH) - launches), 0,
	       "an operation behind another device's is held");
	eager = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS,
			   .after = CUF_AFTER(gate), .device = CUF_DEVICE(1), .eager_peer = true);
	is_int((long long)(cuf_host_calls(CUF_HOST_LAUNCH) - launches), 1,
	       "an eager one is enqueued at once");
	sleep_ms(5);
	ok(cuf_poll(held) == CUF_PENDING && cuf_poll(eager) == CUF_PENDING, "both wait");
	gate_open(g);
	is_int(ends(held), CUF_OK, "the held one runs");
	is_int(ends(eager), CUF_OK, "so does the eager one");
	/* an order edge to what failed on another device */
	bad = cuf_copy(s, NULL, g.flag, 4, .device = CUF_DEVICE(0));
	order = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS,
			   .after_settled = CUF_AFTER(bad), .device = CUF_DEVICE(1));
	is_int(ends(order), CUF_OK, "order only: a failure over there does not matter");
	cuf_ignore(bad);
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
	cuf_pinned_put(rt, g.flag);
}

/* ---- the scope's device, where memory is, what is asked for ---- */

static int which;

static int note_device(struct CUstream_st *stream, void *arg)
{
	(void)stream;
	*(int *)arg = 1;
	return 0;
}

static void check_choice(void)
{
	cuf_scope *s = cuf_scope_open(root, .device = CUF_DEVICE(1));
	struct place p = place_on(root, 1);
	cuf_future *f, *other;
	cuf_error_info i;

	f = cuf_copy(s, NULL, p.at, 4);
	ends(f);
	cuf_ignore(f);
	f = cuf_fill(root, p.at, 0, N, .after = CUF_AFTER(p.mem), .label = "there");
	is_int(ends(f), CUF_OK, "a fill goes where its memory is");
	f = cuf_enqueue(s, note_device, &which, .device = CUF_DEVICE(devices));
	is_int(ends(f), CUF_ERR_INVALID, "a device that is not there");
	i = info_of(f);
	ok(strstr(i.message, "no device") != NULL, "is named");
	cuf_ignore(f);
	other = cuf_alloc(s, 64);
	f = cuf_launch(s, &add_one, cuf_grid_1d(1, 32),
		       CUF_ARGS((int *)cuf_address(other), (size_t)1), .after = CUF_AFTER(other));
	is_int(ends(f), CUF_OK, "a scope's device is the default in it");
	f = cuf_free(root, p.at, .after = CUF_AFTER(p.mem));
	is_int(ends(f), CUF_OK, "memory of device 1 is freed there");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "the scope ends");
}

int main(void)
{
	const cuf_kernel *kernels[] = { &empty_kernel, &spin_until_kernel, &add_one };

	RIG_START(.devices = 4);
	devices = cuf_runtime_devices(rt);
	if (devices < 2)
		plan_skip_all("one device");
	if (devices > 4)
		devices = 4;
	cuf_kernel_prepare(rt, kernels, 3);
	plan(2 * (3 * 2 + 2 * 3 + 7 + 6) + 1 + 1);
	for (int i = 0; i < 2; i++) {
		check_alternating(false, false);
		check_alternating(true, false);
		check_alternating(true, true);
		check_relay(false);
		check_relay(true);
		check_held();
		check_choice();
		if (i == 0) {
			RIG_START(.devices = 2);
			cuf_kernel_prepare(rt, kernels, 3);
		}
		devices = 2;
	}
	is_int(atomic_load(&unobserved), 0, "no error went unobserved");
	return rig_end();
}
