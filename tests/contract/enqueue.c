/* SPDX-License-Identifier: MIT */
/*
 * Enqueue callbacks: called once or never, in the place of their operation; their codes, arguments
 * and drops; keys give them an order, on the device too; they may submit, and take their time
 * without holding up others.
 */
#include "tap.h"
#include "contract/rig.h"

struct note {
	atomic_int calls, drops, ran;
	int code;
	struct CUstream_st *stream;
};

static void mark_ran(void *arg)
{
	atomic_fetch_add(&((struct note *)arg)->ran, 1);
}

static int put_note(struct CUstream_st *stream, void *arg)
{
	struct note *n = arg;

	atomic_fetch_add(&n->calls, 1);
	n->stream = stream;
	return n->code ? n->code : put_function(stream, mark_ran, n);
}

static void drop_note(void *arg)
{
	atomic_fetch_add(&((struct note *)arg)->drops, 1);
}

/* ---- what one does ---- */

static void check_once(void)
{
	cuf_scope *s = cuf_scope_open(root);
	struct note n = { .code = 0 }, behind = { .code = 0 };
	cuf_future *f, *g;

	f = cuf_enqueue(s, put_note, &n, .drop = drop_note, .label = "one");
	g = cuf_enqueue(s, put_note, &behind, .after = CUF_AFTER(f));
	is_int(ends(g), CUF_OK, "two callbacks");
	is_int(atomic_load(&n.ran), 1, "what the first put on the stream has run");
	is_int(atomic_load(&behind.ran), 1, "and of the second");
	is_int(atomic_load(&n.calls), 1, "called once");
	is_int(atomic_load(&n.drops), 1, "dropped once");
	ok(n.stream != NULL, "with a stream");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
}

static void check_code(void)
{
	cuf_scope *s = cuf_scope_open(root);
	struct note n = { .code = -12345 }, never = { .code = 0 };
	cuf_future *f = cuf_enqueue(s, put_note, &n, .drop = drop_note, .label = "bad"), *g;
	cuf_error_info i;

	g = cuf_enqueue(s, put_note, &never, .after = CUF_AFTER(f), .drop = drop_note);
	is_int(ends(g), CUF_ERR_USER, "behind one that says no");
	i = info_of(g);
	is_int(i.user_code, -12345, "its code");
	is_str(i.label, "bad", "its label");
	is_str(i.operation, "enqueue", "its operation");
	is_int(i.phase, CUF_PHASE_ENQUEUE, "its phase");
	is_int(atomic_load(&n.drops), 1, "dropped all the same");
	is_int(atomic_load(&never.calls), 0, "the other is never called");
	is_int(atomic_load(&never.drops), 1, "but dropped, before it settled");
	is_int(ends(cuf_scope_close(s)), CUF_ERR_USER, "their scope says so");
}

/* It failed after it had put something on the stream: that runs, and is waited for. */
static int put_and_fail(struct CUstream_st *stream, void *arg)
{
	struct note *n = arg;

	put_function(stream, mark_ran, n);
	return 9;
}

static void check_late_work(void)
{
	cuf_scope *s = cuf_scope_open(root);
	struct gate g = gate_make();
	struct note n = { .code = 0 };
	cuf_future *gate = GATE_LAUNCH(s, g, .label = "gate"), *f, *freed, *mem = cuf_alloc(s, 100);
	cuf_future *closed;

	f = cuf_enqueue(s, put_and_fail, &n, .take = CUF_LIST(gate));
	is_int(ends(f), CUF_ERR_USER, "it fails");
	freed = cuf_free(s, cuf_address(mem), .after = CUF_AFTER(f));
	closed = cuf_scope_close(s);
	sleep_ms(20);
	is_int(cuf_poll(freed), CUF_PENDING, "a free behind it waits for what it had put there");
	is_int(cuf_poll(closed), CUF_PENDING, "so does the scope");
	is_int(atomic_load(&n.ran), 0, "which has not run");
	gate_open(g);
	is_int(ends(closed), CUF_ERR_USER, "the scope ends");
	is_int(atomic_load(&n.ran), 1, "after it has");
	cuf_pinned_put(rt, g.flag);
}

static int check_copy(struct CUstream_st *stream, void *arg)
{
	const char *bytes = arg;

	(void)stream;
	for (int i = 0; i < 300; i++)
		if (bytes[i] != (char)(i * 7))
			return 1;
	return 0;
}

static atomic_int copy_drops;

static void drop_copy(void *arg)
{
	if (((char *)arg)[1] == 7)
		atomic_fetch_add(&copy_drops, 1);
}

static void check_arguments(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *held, *f;
	cuf_promise *p = cuf_promise_create(s, &held);
	char bytes[300];

	for (int i = 0; i < 300; i++)
		bytes[i] = (char)(i * 7);
	f = cuf_enqueue(s, check_copy, bytes, .arg_bytes = sizeof bytes, .after = CUF_AFTER(held),
			.drop = drop_copy);
	memset(bytes, 0, sizeof bytes);
	cuf_promise_fulfil(p, NULL, NULL);
	is_int(ends(f), CUF_OK, "the argument is a copy");
	is_int(atomic_load(&copy_drops), 1, "which is what is dropped");
	f = cuf_enqueue(s, check_copy, NULL, .arg_bytes = 5);
	is_int(ends(f), CUF_ERR_INVALID, "bytes of nothing are refused");
	cuf_ignore(f);
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
}

static void check_cancel(void)
{
	cuf_scope *s = cuf_scope_open(root);
	struct note n = { .code = 0 };
	cuf_future *held, *f;
	cuf_promise *p = cuf_promise_create(s, &held);

	f = cuf_enqueue(s, put_note, &n, .after = CUF_AFTER(held), .drop = drop_note);
	is_int(cuf_cancel(f), CUF_OK, "cancelled while it is held");
	is_int(cuf_poll(f), CUF_ERR_CANCELLED, "settled");
	ok(AWAIT(atomic_load(&n.drops) == 1, 2000), "dropped once, soon after");
	cuf_promise_fulfil(p, NULL, NULL);
	is_int(ends(cuf_scope_close(s)), CUF_ERR_CANCELLED, "its scope ends");
	is_int(atomic_load(&n.calls), 0, "and it was never called");
	is_int(atomic_load(&n.drops), 1, "nor dropped again");
}

/* ---- it submits, and may not wait ---- */

struct nested {
	cuf_scope *s;
	cuf_future *made[3], *before;
	cuf_status waited, waited_settled;
	atomic_int ran;
};

static void mark_nested(void *arg)
{
	atomic_fetch_add(&((struct nested *)arg)->ran, 1);
}

static int put_nested(struct CUstream_st *stream, void *arg)
{
	(void)arg;
	return put_function(stream, mark_nested, arg);
}

static int submit_inside(struct CUstream_st *stream, void *arg)
{
	struct nested *n = arg;

	n->made[0] = cuf_enqueue(n->s, put_nested, n);
	n->made[1] = cuf_enqueue(n->s, put_nested, n, .after = CUF_AFTER(n->made[0], n->before));
	n->made[2] = cuf_launch(n->s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS,
				.after = CUF_AFTER(n->before));
	n->waited = cuf_wait(n->made[1]);
	n->waited_settled = cuf_wait(cuf_ok());
	return put_function(stream, mark_nested, n);
}

static void check_nested(void)
{
	cuf_scope *s = cuf_scope_open(root);
	struct gate g = gate_make();
	struct nested n = { .s = s };
	cuf_future *f;

	/* a tail that is buried by the callback, and named inside it */
	n.before = GATE_LAUNCH(s, g, .label = "gate");
	f = cuf_enqueue(s, submit_inside, &n, .after = CUF_AFTER(n.before));
	sleep_ms(10);
	gate_open(g);
	is_int(ends(f), CUF_OK, "a callback that submits");
	ok(n.waited == CUF_ERR_WOULD_DEADLOCK || n.waited == CUF_OK,
	   "and may not wait for what has not settled");
	is_int(n.waited, CUF_ERR_WOULD_DEADLOCK, "which behind a gate has not");
	is_int(n.waited_settled, CUF_OK, "but for what has");
	for (int i = 0; i < 3; i++)
		is_int(ends(n.made[i]), CUF_OK, "what it submitted ends");
	is_int(atomic_load(&n.ran), 3, "and has run");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
	cuf_pinned_put(rt, g.flag);
}

/* ---- keys: order of submit, no overlap, order on the device (C55) ---- */

enum { KEYED = 400, KEY_THREADS = 4 };

static struct keyed {
	atomic_int inside, overlaps, called, ran, wrong_call, wrong_run;
} keyed[2];

struct turn {
	struct keyed *k;
	int number;
};

static void run_turn(void *arg)
{
	struct turn *t = arg;

	if (atomic_fetch_add(&t->k->ran, 1) != t->number)
		atomic_fetch_add(&t->k->wrong_run, 1);
}

static int put_turn(struct CUstream_st *stream, void *arg)
{
	struct turn *t = arg;
	int code;

	if (atomic_fetch_add(&t->k->inside, 1))
		atomic_fetch_add(&t->k->overlaps, 1);
	if (atomic_fetch_add(&t->k->called, 1) != t->number)
		atomic_fetch_add(&t->k->wrong_call, 1);
	code = put_function(stream, run_turn, t);
	atomic_fetch_sub(&t->k->inside, 1);
	return code;
}

static void check_keys(void)
{
	static struct turn turns[2][KEYED];
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *held, *last[2];
	cuf_promise *p = cuf_promise_create(s, &held);

	for (int i = 0; i < KEYED; i++) {
		for (int k = 0; k < 2; k++) {
			turns[k][i] = (struct turn){ &keyed[k], i };
			/* every fifth is held for a while, and so is what comes behind it */
			last[k] = cuf_enqueue(s, put_turn, &turns[k][i], .key = &keyed[k],
					      .after = CUF_AFTER(i % 5 == 0 ? held : NULL),
					      .priority = i % 3 - 1);
		}
		if (i == KEYED / 2) {
			cuf_promise_fulfil(p, NULL, NULL);
			held = NULL;
		}
	}
	for (int k = 0; k < 2; k++) {
		is_int(ends(last[k]), CUF_OK, "%d callbacks with key %d", KEYED, k);
		is_int(atomic_load(&keyed[k].called), KEYED, "each called");
		is_int(atomic_load(&keyed[k].overlaps), 0, "never two at once");
		is_int(atomic_load(&keyed[k].wrong_call), 0, "in the order of submit");
		is_int(atomic_load(&keyed[k].ran), KEYED, "what they put on streams has run");
		is_int(atomic_load(&keyed[k].wrong_run), 0, "in that order too");
	}
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
}

/* From several threads: one thread's callbacks keep their order, and none overlap. */
static struct shared_key {
	atomic_int inside, overlaps, wrong, running, run_overlaps;
	atomic_int next[KEY_THREADS];
} shared;

struct visit {
	int thread, number;
};

static void run_visit(void *arg)
{
	(void)arg;
	if (atomic_fetch_add(&shared.running, 1))
		atomic_fetch_add(&shared.run_overlaps, 1);
	sched_yield();
	atomic_fetch_sub(&shared.running, 1);
}

static int put_visit(struct CUstream_st *stream, void *arg)
{
	struct visit *v = arg;
	int code;

	if (atomic_fetch_add(&shared.inside, 1))
		atomic_fetch_add(&shared.overlaps, 1);
	if (atomic_exchange(&shared.next[v->thread], v->number + 1) != v->number)
		atomic_fetch_add(&shared.wrong, 1);
	code = put_function(stream, run_visit, NULL);
	atomic_fetch_sub(&shared.inside, 1);
	return code;
}

static void *visit_many(void *arg)
{
	int thread = (int)(intptr_t)arg;

	for (int i = 0; i < KEYED; i++) {
		struct visit v = { thread, i };

		cuf_release(
			cuf_enqueue(root, put_visit, &v, .arg_bytes = sizeof v, .key = &shared));
	}
	return NULL;
}

static void check_key_threads(void)
{
	pthread_t t[KEY_THREADS];
	bool all = true;
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *f;

	for (int i = 0; i < KEY_THREADS; i++)
		if (pthread_create(&t[i], NULL, visit_many, (void *)(intptr_t)i))
			abort();
	for (int i = 0; i < KEY_THREADS; i++)
		pthread_join(t[i], NULL);
	f = cuf_enqueue(s, put_visit, (&(struct visit){ 0, KEYED }),
			.arg_bytes = sizeof(struct visit), .key = &shared);
	is_int(ends(f), CUF_OK, "one key from %d threads", KEY_THREADS);
	for (int i = 0; i < KEY_THREADS; i++)
		all &= atomic_load(&shared.next[i]) == KEYED + (i == 0);
	ok(all, "all were called");
	is_int(atomic_load(&shared.overlaps), 0, "never two at once");
	is_int(atomic_load(&shared.wrong), 0, "each thread's in its order");
	is_int(atomic_load(&shared.run_overlaps), 0, "nor did their work overlap");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
}

/* ---- one that takes its time ---- */

static atomic_int slow_inside, slow_done;

static int take_50_ms(struct CUstream_st *stream, void *arg)
{
	(void)stream, (void)arg;
	atomic_store(&slow_inside, 1);
	sleep_ms(50);
	atomic_store(&slow_done, 1);
	return 0;
}

/* Where: held, so that a thread of the runtime calls it; or in the backlog of a full lane. */
static void check_slow(bool backlog)
{
	enum { MANY = 1500 };
	cuf_scope *s = cuf_scope_open(root);
	struct gate g = gate_make();
	cuf_future *held, *slow, *before = NULL, *f, *tail, *held_too;
	cuf_promise *p = cuf_promise_create(s, &held), *q = cuf_promise_create(s, &held_too);
	uint64_t start, took;
	int n = 0;
	bool well = true;

	atomic_store(&slow_inside, 0);
	atomic_store(&slow_done, 0);
	if (backlog) {
		f = GATE_LAUNCH(s, g, .label = "gate");
		for (int i = 0; i < MANY; i++)
			f = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS,
				       .take = CUF_LIST(f));
		before = f;
	}
	slow = cuf_enqueue(s, take_50_ms, NULL, .after = CUF_AFTER(backlog ? before : held));
	tail = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS,
			  .after = CUF_AFTER(slow));
	if (backlog)
		gate_open(g);
	else
		cuf_promise_fulfil(p, NULL, NULL);
	if (!AWAIT(atomic_load(&slow_inside), 10000))
		diag("the slow callback is not called");
	/* others are submitted, held ones let go of, and all end meanwhile */
	f = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS,
		       .after = CUF_AFTER(held_too));
	start = cuf_now_ns();
	cuf_promise_fulfil(q, NULL, NULL);
	well &= cuf_wait_until(f, start + CUF_MS(1000)) == CUF_OK;
	took = ms_since(start);
	ok(well && !atomic_load(&slow_done),
	   "%s: a held launch is let go of while a callback takes 50 ms",
	   backlog ? "from a backlog" : "held");
	diag("that took %llu ms", (unsigned long long)took);
	for (start = cuf_now_ns(); !atomic_load(&slow_done); n++) {
		f = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS);
		well &= ends(f) == CUF_OK;
		cuf_release(f);
	}
	ok(well && n >= 5, "others end, one after the other");
	diag("%d of them", n);
	is_int(ends(tail), CUF_OK, "what is behind it ends");
	if (backlog)
		cuf_promise_fulfil(p, NULL, NULL);
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
	cuf_pinned_put(rt, g.flag);
}

/* A library that puts nothing on the stream before its group ends (C18): the end is in time. */
static int put_three(struct CUstream_st *stream, void *arg)
{
	int code = 0;

	for (int i = 0; i < 3 && !code; i++)
		code = put_function(stream, mark_ran, arg);
	return code;
}

static void check_group(void)
{
	cuf_scope *s = cuf_scope_open(root);
	struct note n = { .code = 0 };
	bool right = true;

	for (int i = 1; i <= 200; i++) {
		cuf_future *f = cuf_enqueue(s, put_three, &n, .weight = 3);

		right &= ends(f) == CUF_OK && atomic_load(&n.ran) == 3 * i;
		cuf_release(f);
	}
	ok(right, "a group has run when its future settles");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
}

static void check_exclusive(void)
{
	enum { SPINS = 12 };
	cuf_scope *s = cuf_scope_open(root);
	struct gate g = gate_make();
	cuf_future *f[SPINS], *quick;
	bool all = true;

	/* kernels that wait for a later one: each on a stream of its own, and none in its way */
	for (int i = 0; i < SPINS; i++)
		f[i] = GATE_LAUNCH(s, g, .exclusive = true);
	for (int i = 0; i < 100; i++) {
		quick = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS,
				   .exclusive = i % 2);
		if (cuf_wait_until(quick, cuf_now_ns() + CUF_MS(3000)) != CUF_OK) {
			diag("number %d does not end", i);
			cuf_dump(rt, stdout);
			all = false;
			break;
		}
		cuf_release(quick);
	}
	ok(all, "kernels beside %d exclusive ones that spin", SPINS);
	gate_open(g);
	for (int i = 0; i < SPINS; i++)
		all &= ends(f[i]) == CUF_OK;
	ok(all, "which end when they are let go");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
	cuf_pinned_put(rt, g.flag);
}

int main(void)
{
	const cuf_kernel *kernels[] = { &empty_kernel, &spin_until_kernel };

	RIG_START(.devices = 1);
	plan(7 + 9 + 6 + 4 + 6 + 9 + 13 + 6 + 2 * 4 + 2 + 3 + 1 + 1);
	cuf_kernel_prepare(rt, kernels, 2);
	check_once();
	check_code();
	check_late_work();
	check_arguments();
	check_cancel();
	check_nested();
	check_keys();
	check_key_threads();
	check_slow(false);
	check_slow(true);
	check_group();
	check_exclusive();
	is_int(atomic_load(&unobserved), 0, "no error went unobserved");
	return rig_end();
}
