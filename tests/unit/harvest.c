/* SPDX-License-Identifier: MIT */
/*
 * What is asked and what is published meanwhile: an answer covers what was there when it was asked
 * for, nothing is reported that has not ended, and nothing that has ended is forgotten.
 */
#include "tap.h"
#include "contract/rig.h"

#ifndef CUFI_TESTPOINTS
int main(void)
{
	plan_skip_all("built without testpoints");
}
#else
#include "unit/races.h"

struct late {
	cuf_scope *s;
	cuf_future *tail, *made;
	struct gate g;
	bool gated, ended;
	struct CUstream_st *stream;
};

/* At the instant between the look at what is published and the question: one more is. */
static void publish_one(void *arg)
{
	struct late *l = arg;

	if (l->gated) {
		l->made = GATE_LAUNCH(l->s, l->g, .after = CUF_AFTER(l->tail));
		return;
	}
	l->made = empty_launch(l->s, CUF_OPTIONS(.after = CUF_AFTER(l->tail)));
	/* and it has ended, so that the answer is yes for both */
	l->ended = AWAIT(cufi_device_host()->stream_query(l->tail->lane->stream) == 0, 3000);
}

static void check_published_meanwhile(bool gated)
{
	struct late l = { .s = cuf_scope_open(root), .gated = gated };
	struct cufi_lane *lane;
	uint64_t seq;

	l.g = gate_make();
	l.tail = empty_launch(l.s, CUF_HERE);
	lane = l.tail->lane;
	seq = l.tail->seq;
	ok(AWAIT(cufi_device_host()->stream_query(lane->stream) == 0, 3000),
	   "one has ended and nobody has asked");
	cufi_testpoint_arm("harvest:query", publish_one, &l, 1);
	is_int(settles(l.tail, 5000), CUF_OK,
	       "one more is published while it is asked for: it settles");
	cufi_testpoint_disarm("harvest:query");
	ok(l.made && l.made->lane == lane && l.made->seq > seq,
	   "the other is on the same lane, behind it");
	if (gated) {
		sleep_ms(20);
		is_int(cuf_poll(l.made), CUF_PENDING, "and pending as long as it runs");
		gate_open(l.g);
	} else {
		ok(l.ended, "and had ended before the answer");
	}
	is_int(settles(l.made, 5000), CUF_OK, "then it settles too");
	is_int(ends(cuf_scope_close(l.s)), CUF_OK, "their scope ends");
	cuf_pinned_put(rt, l.g.flag);
}

/* A role: while one harvests a lane, another finds that out and goes on; nothing is lost. */
static void check_two_harvesters(void)
{
	cuf_scope *s = cuf_scope_open(root);
	static atomic_bool told;
	cuf_future *f, *g;
	struct stop at;

	f = empty_launch(s, CUF_HERE);
	AWAIT(cufi_device_host()->stream_query(f->lane->stream) == 0, 3000);
	stop_arm(&at, "harvest:settle");
	cuf_watch(root, f, note_settled, &told);
	ok(stop_reached(&at), "the completer is about to settle one");
	g = empty_launch(s, CUF_OPTIONS(.after = CUF_AFTER(f)));
	is_int(cuf_wait_until(f, cuf_now_ns() + CUF_MS(20)), CUF_PENDING,
	       "a waiter finds the lane in other hands");
	stop_go(&at);
	is_int(ends(f), CUF_OK, "and gets its answer");
	is_int(ends(g), CUF_OK, "as does what came behind");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
}

/* Queries that fail by themselves are asked again; they neither settle anything nor lose the device. */
static void check_odd_answers(void)
{
	cuf_scope *s = cuf_scope_open(root);
	struct gate g = gate_make();
	cuf_future *f = GATE_LAUNCH(s, g, .label = "gate");

	for (int i = 1; i <= 40; i++) {
		cuf_host_fail_call(CUF_HOST_STREAM_QUERY, (uint64_t)i, 999);
		cuf_host_fail_call(CUF_HOST_EVENT_QUERY, (uint64_t)i, 999);
	}
	is_int(cuf_wait_until(f, cuf_now_ns() + CUF_MS(30)), CUF_PENDING,
	       "answers that are neither yes nor no settle nothing");
	is_int(cuf_runtime_device_status(rt, 0), CUF_OK, "nor is the device lost by them");
	gate_open(g);
	is_int(ends(f), CUF_OK, "it is asked again");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
	cuf_pinned_put(rt, g.flag);
}

int main(void)
{
	start_without_tick(CUF_BALANCED);
	plan(2 * 6 + 5 + 4 + 1);
	check_published_meanwhile(true);
	check_published_meanwhile(false);
	check_two_harvesters();
	check_odd_answers();
	return rig_end();
}
#endif
