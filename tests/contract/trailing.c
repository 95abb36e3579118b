/* SPDX-License-Identifier: MIT */
/*
 * Order sees through what ended without having run, also where the one that orders comes to the
 * backlog of a full lane. Host device: the lane is held by a gate.
 */
#include <cufuture/host.h>

#include "contract.h"
#include "kernels.h"

enum { DEEP = 900 }; /* more than a lane may have in flight */

int main(void)
{
	cuf_future *mem, *last = NULL, *held, *bad, *between, *behind, *gate, *refused, *after;
	cuf_promise *p;
	unsigned char *at;
	cuf_scope *s;

	open_runtime((cuf_runtime_options){ 0 });
	if (strcmp(cuf_runtime_backend(rt), "host")) {
		cuf_runtime_destroy(rt);
		plan_skip_all("only the host device has gates");
	}
	plan(9);
	s = cuf_scope_open(root);
	mem = cuf_alloc(s, 64);
	at = cuf_address(mem);
	is_int(outcome(cuf_fill(s, at, 1, 64, .after = CUF_AFTER(mem))), CUF_OK, "it holds 1");
	cuf_host_gate(0, 1);
	for (int i = 0; i < DEEP; i++)
		last = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 1), CUF_NO_ARGS,
				  .after = CUF_AFTER(last));
	p = cuf_promise_create(s, &gate);
	held = cuf_fill(s, at, 2, 64, .after = CUF_AFTER(gate), .label = "held");
	bad = cuf_failed(s, 1, "on purpose");
	between = cuf_fill(s, at, 3, 64, .after = CUF_AFTER(bad), .after_settled = CUF_AFTER(held));
	is_int(cuf_poll(between), CUF_ERR_USER, "what inherits a failure settles at once");
	behind = cuf_fill(s, at + 32, 4, 1, .after = CUF_AFTER(last),
			  .after_settled = CUF_AFTER(between));
	refused = cuf_launch(s, &empty_kernel, cuf_grid_1d(0, 1), CUF_NO_ARGS,
			     .after = CUF_AFTER(held));
	after = cuf_fill(s, at + 48, 5, 1, .after_settled = CUF_AFTER(refused));
	cuf_host_gate(0, 0);
	is_int(outcome(last), CUF_OK, "the lane has emptied");
	nap_ms(50);
	is_int(cuf_poll(behind), CUF_PENDING,
	       "what is ordered behind still waits for what is held");
	is_int(cuf_poll(after), CUF_PENDING, "and so behind a launch that was refused");
	cuf_promise_fulfil(p, NULL, NULL);
	is_int(outcome(behind), CUF_OK, "it runs");
	is_int(outcome(after), CUF_OK, "and that");
	cuf_ignore(refused);
	is_int(cuf_poll(held), CUF_OK, "behind what was held");
	cuf_ignore(bad);
	is_int(outcome(cuf_scope_close(s)), CUF_OK, "the scope ends");
	cuf_runtime_destroy(rt);
	return done();
}
