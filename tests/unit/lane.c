/* SPDX-License-Identifier: MIT */
/*
 * A lane that is taken: who wants it leaves a request, and whatever the instant at which the owner
 * gives it back, the request is served. And a lane's grant is not taken back under its owner.
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

/* A tail without an event, on a lane that does not move. */
struct tail {
	cuf_scope *s;
	struct gate g;
	cuf_future *f;
	struct cufi_lane *lane;
};

static struct tail make_tail(void)
{
	struct tail t = { .s = cuf_scope_open(root), .g = gate_make() };

	t.f = GATE_LAUNCH(t.s, t.g, .label = "tail");
	t.lane = t.f->lane;
	if (!t.lane || t.f->event)
		diag("the tail is not as it should be");
	return t;
}

static bool end_tail(struct tail *t, cuf_future *user)
{
	bool pending, well;

	sleep_ms(5);
	pending = cuf_poll(user) == CUF_PENDING;
	gate_open(t->g);
	well = settles(user, 5000) == CUF_OK;
	well &= ends(cuf_scope_close(t->s)) == CUF_OK;
	cuf_pinned_put(rt, t->g.flag);
	return pending && well;
}

static cuf_future *use_elsewhere(struct tail *t)
{
	return empty_launch(t->s, CUF_OPTIONS(.after = CUF_AFTER(t->f), .priority = CUF_HIGH));
}

/* ---- taken when its event is needed ---- */

static void own(void *lane)
{
	if (!cufi_lane_own(lane))
		abort();
}

static void check_left(void)
{
	struct tail t = make_tail();
	cuf_future *user;
	uint64_t waits = cuf_host_calls(CUF_HOST_WAIT);

	cufi_testpoint_arm("submit:need-event", own, t.lane, 1);
	cufi_testpoint_arm("lane:request", own, NULL, 0);
	user = use_elsewhere(&t);
	cufi_testpoint_disarm("submit:need-event");
	is_int(cufi_testpoint_hits("lane:request"), 1,
	       "the producer's lane is taken: a request is left");
	cufi_testpoint_disarm("lane:request");
	is_int(cuf_poll(user), CUF_PENDING, "and the submit returns");
	sleep_ms(10);
	is_int((long long)(cuf_host_calls(CUF_HOST_WAIT) - waits), 0, "with nothing enqueued");
	cufi_lane_give_back(t.lane);
	ok(AWAIT(cuf_host_calls(CUF_HOST_WAIT) > waits, 5000),
	   "the owner serves it as it gives the lane back");
	ok(end_tail(&t, user), "and it runs behind what it depends on");
}

/* The owner gives back between the request and the second try. */
static void check_given_back_meanwhile(void)
{
	struct tail t = make_tail();
	cuf_future *user;

	cufi_testpoint_arm("submit:need-event", own, t.lane, 1);
	cufi_testpoint_arm("lane:request", (void (*)(void *))cufi_lane_give_back, t.lane, 1);
	user = use_elsewhere(&t);
	cufi_testpoint_disarm("submit:need-event");
	cufi_testpoint_disarm("lane:request");
	is_int(atomic_load(&t.lane->owner), 0, "given back while a request is left");
	is_int((long long)atomic_load(&t.lane->requests_n), 0, "which is served");
	ok(end_tail(&t, user), "and runs");
}

/* A request comes while the owner is on its way out, the lane still taken. */
struct visitor {
	struct tail *t;
	cuf_future *user;
};

static void *visit_thread(void *arg)
{
	struct visitor *v = arg;

	v->user = use_elsewhere(v->t);
	return NULL;
}

static void visit(void *arg)
{
	pthread_t t;

	if (pthread_create(&t, NULL, visit_thread, arg))
		abort();
	pthread_join(t, NULL);
}

static void check_late_request(void)
{
	struct tail t = make_tail();
	struct visitor v = { .t = &t };

	own(t.lane);
	cufi_testpoint_arm("lane:give-back", visit, &v, 1);
	cufi_lane_give_back(t.lane);
	cufi_testpoint_disarm("lane:give-back");
	is_int((long long)atomic_load(&t.lane->requests_n), 0,
	       "a request as the lane is given back");
	is_int(atomic_load(&t.lane->owner), 0, "leaves it free");
	ok(end_tail(&t, v.user), "and is served");
}

/* The lane of an operation itself: another one is chosen, or all are taken and it waits its turn. */
static void check_all_taken(void)
{
	struct cufi_device *d = &rt->machine->devices[0];
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *f[20];
	uint32_t n = atomic_load(&d->n_lanes);
	bool all = true;

	for (uint32_t i = 0; i < n; i++)
		own(d->lanes[i]);
	for (int i = 0; i < 20; i++)
		f[i] = empty_launch(s, i % 2 ? CUF_OPTIONS(.exclusive = true) : CUF_HERE);
	sleep_ms(10);
	for (int i = 0; i < 20; i += 2)
		all &= cuf_poll(f[i]) == CUF_PENDING;
	ok(all, "with every lane taken, submits return all the same");
	for (uint32_t i = 0; i < n; i++)
		cufi_lane_give_back(d->lanes[i]);
	all = true;
	for (int i = 0; i < 20; i++)
		all &= ends(f[i]) == CUF_OK;
	ok(all, "and what was submitted runs when they are given back");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
}

/* ---- the budget ---- */

/* What two lanes that fill up together were granted is never more than there is. */
static void *fill_lane(void *arg)
{
	cuf_scope *s = arg;
	cuf_future *f = empty_launch(s, CUF_HERE);

	for (int i = 0; i < 3000; i++)
		f = empty_launch(s, CUF_OPTIONS(.take = CUF_LIST(f)));
	return f;
}

/* What is in flight on the lanes of @d, and what they were granted. */
static uint64_t left_over(struct cufi_device *d, uint64_t *out_limits)
{
	uint64_t in_flight = 0;

	*out_limits = 0;
	for (uint32_t i = 0; i < atomic_load(&d->n_lanes); i++) {
		in_flight += atomic_load(&d->lanes[i]->in_flight);
		*out_limits += atomic_load(&d->lanes[i]->limit);
	}
	return in_flight;
}

static void check_budget(void)
{
	enum { THREADS = 4 };
	struct cufi_device *d = &rt->machine->devices[0];
	cuf_scope *s = cuf_scope_open(root);
	pthread_t t[THREADS];
	uint64_t in_flight, limits;

	cuf_host_gate(0, 1);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&t[i], NULL, fill_lane, s))
			abort();
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	sleep_ms(10);
	in_flight = left_over(d, &limits);
	ok(in_flight <= CUFI_BUDGET, "12,000 operations: %llu are in flight",
	   (unsigned long long)in_flight);
	is_int((long long)(limits + d->left), CUFI_BUDGET,
	       "grants and what is left make the budget");
	cuf_host_gate(0, 0);
	is_int(ends(cuf_scope_close(s)), CUF_OK, "all of them end");
	/* an operation settles just before its weight is taken off */
	ok(AWAIT(left_over(d, &limits) == 0, 3000), "nothing is in flight then");
	is_int((long long)(limits + d->left), CUFI_BUDGET, "and the budget adds up");
}

int main(void)
{
	start_without_tick(CUF_BALANCED);
	plan(5 + 3 + 3 + 3 + 5 + 1);
	check_left();
	check_given_back_meanwhile();
	check_late_request();
	check_all_taken();
	/* with more lanes busy than there are companion streams the tick has its part */
	RIG_START(.backend = "host", .devices = 1);
	check_budget();
	return rig_end();
}
#endif
