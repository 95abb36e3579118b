/* SPDX-License-Identifier: MIT */
/*
 * After a fault every future settles, with the error that happened and where it came from; what
 * depends on a failure never runs; a lost device is said to be lost at once, and takes no more
 * calls; other devices go on. Also where host functions are dropped, delayed, or called after the
 * fault. The host device's script makes the faults.
 */
#include "tap.h"
#include "contract/rig.h"

#define ILLEGAL 700

static const char *const mode_names[] = { "not called after it", "dropped", "delayed",
					  "called after it" };

static atomic_int thens, watches, catches;

static cuf_future *count_then(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	atomic_fetch_add(&thens, 1);
	return NULL;
}

static cuf_future *count_catch(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)arg;
	if (cuf_poll(in) == CUF_ERR_DEVICE_LOST)
		atomic_fetch_add(&catches, 1);
	return NULL;
}

static void count_watch(cuf_future *f, void *arg)
{
	(void)arg;
	if (cuf_poll(f) == CUF_ERR_DEVICE_LOST)
		atomic_fetch_add(&watches, 1);
}

static cuf_future *launch_empty(cuf_scope *s, const cuf_options *o)
{
	return cuf_launch_with(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS, o);
}

/* ---- C01, C02: copy, faulting kernel, copy, continuation ---- */

static void check_chain(int mode, bool sleeping)
{
	cuf_scope *s;
	cuf_future *mem, *good, *bad, *behind, *then, *caught, *late, *closed;
	const cuf_kernel *kernels[] = { &empty_kernel };
	char *pinned;
	cuf_error_info i;
	uint64_t start;

	RIG_START(.mode = sleeping ? CUF_POWER : CUF_BALANCED);
	cuf_host_func_mode(mode, CUF_MS(30));
	atomic_store(&thens, 0);
	atomic_store(&watches, 0);
	atomic_store(&catches, 0);
	is_int(cuf_kernel_prepare(rt, kernels, 1), CUF_OK, "host functions %s", mode_names[mode]);
	s = cuf_scope_open(root);
	pinned = cuf_pinned_get(rt, 64);
	memset(pinned, 1, 64);
	mem = cuf_alloc(s, 64);
	good = cuf_copy(s, cuf_address(mem), pinned, 64, .after = CUF_AFTER(mem), .label = "good");
	is_int(ends(good), CUF_OK, "what ended before is good");
	cuf_host_gate(0, 1);
	bad = launch_empty(s, CUF_OPTIONS(.after = CUF_AFTER(good), .label = "bad"));
	behind = cuf_copy(s, pinned, cuf_address(mem), 64, .after = CUF_AFTER(bad),
			  .label = "behind");
	then = cuf_then(s, behind, count_then, NULL);
	caught = cuf_catch(s, then, count_catch, NULL);
	cuf_watch(s, behind, count_watch, NULL);
	if (sleeping)
		sleep_ms(20); /* the completer sleeps, behind an armed host function */
	start = cuf_now_ns();
	cuf_host_fault_at(0, 1, ILLEGAL);
	cuf_host_gate(0, 0);
	is_int(cuf_wait_until(caught, cuf_now_ns() + CUF_MS(5000)), CUF_ERR_DEVICE_LOST,
	       "the end of the chain settles with the fault");
	ok(ms_since(start) < 200, "soon");
	is_int(cuf_poll(bad), CUF_ERR_DEVICE_LOST, "so has what faulted");
	is_int(cuf_poll(behind), CUF_ERR_DEVICE_LOST, "and what is behind it");
	i = info_of(caught);
	is_int(i.cuda_code, ILLEGAL, "the device's code");
	is_str(i.label, "bad", "the label of the oldest that had not ended");
	is_str(i.operation, "launch", "its operation");
	is_int(i.device, 0, "its device");
	is_int(i.phase, CUF_PHASE_EXECUTE, "while it ran");
	ok(i.inherited, "inherited");
	ok(!info_of(bad).inherited && !info_of(bad).outcome_unknown, "but by the one that faulted");
	if (!ok(i.n_suspects == 2, "two operations had not ended"))
		diag("%zu: %s", i.n_suspects, i.message);
	if (!ok(strstr(i.message, "bad") && strstr(i.message, "cudaErrorIllegalAddress"),
		"the message has both names"))
		diag("%s", i.message);
	late = cuf_fill(s, cuf_address(mem), 0, 64, .after = CUF_AFTER(good));
	is_int(cuf_poll(late), CUF_ERR_DEVICE_LOST, "what comes after has failed when it returns");
	is_int(info_of(late).cuda_code, ILLEGAL, "with the same error");
	closed = cuf_scope_close(s);
	is_int(ends(closed), CUF_ERR_DEVICE_LOST, "the scope ends, and says so");
	ok(atomic_load(&thens) == 0 && atomic_load(&watches) == 1 && atomic_load(&catches) == 1,
	   "the then never ran, watch and catch once");
	ok(AWAIT(atomic_load(&lost_devices) == 1, 2000), "the hook was called");
	is_int(atomic_load(&unobserved), 0, "no error went unobserved");
	cuf_pinned_put(rt, pinned);
}

/* ---- C09: one branch of a diamond fails ---- */

enum way { AT_LAUNCH, AT_RUN, BY_USER, WAYS };

static int return_77(struct CUstream_st *stream, void *arg)
{
	(void)stream, (void)arg;
	return 77;
}

static void check_diamond(enum way way)
{
	static const char *const names[] = { "at launch", "while it runs", "by user code" };
	cuf_scope *s;
	struct gate g;
	cuf_future *a, *b, *c, *d, *all, *e;
	cuf_status failed;
	uint64_t launches;
	cuf_error_info i;
	const cuf_kernel *kernels[] = { &empty_kernel, &spin_until_kernel };

	RIG_START(.devices = 1);
	is_int(cuf_kernel_prepare(rt, kernels, 2), CUF_OK, "%s: prepared", names[way]);
	s = cuf_scope_open(root);
	g = gate_make();
	a = launch_empty(s, CUF_OPTIONS(.label = "A"));
	c = GATE_LAUNCH(s, g, .after = CUF_AFTER(a), .label = "C");
	is_int(ends(a), CUF_OK, "A succeeds");
	if (way == AT_LAUNCH)
		cuf_host_fail_call(CUF_HOST_LAUNCH, 1, 701);
	if (way == AT_RUN) {
		/* C must be running, or it would be the one to fault */
		sleep_ms(20);
		cuf_host_fault_at(0, 1, ILLEGAL);
	}
	if (way == BY_USER)
		b = cuf_enqueue(s, return_77, NULL, .after = CUF_AFTER(a), .label = "B");
	else
		b = launch_empty(s, CUF_OPTIONS(.after = CUF_AFTER(a), .label = "B"));
	if (way == AT_RUN) {
		/* the error shows when nothing runs any more */
		sleep_ms(20);
		gate_open(g);
		is_int(ends(b), CUF_ERR_DEVICE_LOST, "B fails");
	} else {
		is_int(ends(b), way == BY_USER ? CUF_ERR_USER : CUF_ERR_DEVICE, "B fails");
	}
	launches = cuf_host_calls(CUF_HOST_LAUNCH);
	d = launch_empty(s, CUF_OPTIONS(.after = CUF_AFTER(b, c), .label = "D"));
	all = cuf_all(s, a, b, c);
	e = launch_empty(s, CUF_OPTIONS(.after = CUF_AFTER(all), .label = "E"));
	if (way != AT_RUN) {
		sleep_ms(20);
		is_int(cuf_poll(all), CUF_PENDING, "all waits for C");
		gate_open(g);
		is_int(ends(c), CUF_OK, "C ends well");
	} else {
		skip(2, "nothing is left running on a lost device");
	}
	is_int(ends(d), cuf_poll(b), "D fails as B");
	is_int(ends(all), cuf_poll(b), "so does all");
	is_int(ends(e), cuf_poll(b), "and what depends on that");
	i = info_of(e);
	if (way == AT_RUN)
		ok(i.n_suspects == 2 && strstr(i.message, "\"B\"") && strstr(i.message, "\"C\""),
		   "B is a suspect: what ran beside it had not been asked either");
	else
		is_str(i.label, "B", "B is the root of it");
	is_ptr(i.root, info_of(b).root, "with one error for all");
	is_int(way == BY_USER ? i.user_code : i.cuda_code,
	       way == BY_USER	  ? 77
	       : way == AT_LAUNCH ? 701
				  : ILLEGAL,
	       "and B's code");
	is_int(i.phase, way == AT_RUN ? CUF_PHASE_EXECUTE : CUF_PHASE_ENQUEUE, "and phase");
	ok(i.inherited && info_of(d).inherited && (way == AT_RUN || !info_of(b).inherited),
	   "inherited, but by B");
	is_int((long long)cuf_host_calls(CUF_HOST_LAUNCH), (long long)launches,
	       "nothing was launched behind B");
	is_int(cuf_runtime_device_status(rt, 0), way == AT_RUN ? CUF_ERR_DEVICE_LOST : CUF_OK,
	       "the device is what it should be");
	failed = cuf_poll(b);
	is_int(ends(cuf_scope_close(s)), failed, "the scope ends, and says so");
	cuf_pinned_put(rt, g.flag);
}

/* The same by a worker's function that returns a failed future. */
static cuf_future *return_failed(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)in, (void)arg;
	return cuf_failed(s, 5, "no luck");
}

static void check_call_fails(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *b = cuf_call(s, return_failed, NULL, .label = "B");
	cuf_future *d = launch_empty(s, CUF_OPTIONS(.after = CUF_AFTER(b)));

	is_int(ends(d), CUF_ERR_USER, "a kernel behind a call that failed");
	is_int(info_of(d).user_code, 5, "has its code");
	is_int(ends(cuf_scope_close(s)), CUF_ERR_USER, "the scope says so");
}

/* ---- C48, C49: a lost device; another goes on ---- */

static int never_called(struct CUstream_st *stream, void *arg)
{
	(void)stream;
	atomic_fetch_add((atomic_int *)arg, 1);
	return 0;
}

static void check_lost(int lost)
{
	static atomic_int called;
	cuf_scope *s;
	int other = !lost;
	cuf_future *mem[2], *bad, *f;
	uint64_t calls;
	bool fast = true, same = true;
	const cuf_error *root_error;
	char *pinned, *big;

	RIG_START(.devices = 2);
	atomic_store(&called, 0);
	s = cuf_scope_open(root);
	pinned = cuf_pinned_get(rt, 64);
	for (int i = 0; i < 2; i++) {
		mem[i] = cuf_alloc(s, 64, .device = CUF_DEVICE(i));
		f = cuf_fill(s, cuf_address(mem[i]), 1, 64, .after = CUF_AFTER(mem[i]));
		is_int(ends(f), CUF_OK, "device %d works", i);
	}
	f = cuf_copy(s, pinned, cuf_address(mem[lost]), 64);
	is_int(ends(f), CUF_OK, "and copies out");
	cuf_host_fault_at(lost, 1, 719);
	bad = launch_empty(s, CUF_OPTIONS(.device = CUF_DEVICE(lost), .label = "bad"));
	is_int(cuf_wait_until(bad, cuf_now_ns() + CUF_MS(3000)), CUF_ERR_DEVICE_LOST,
	       "device %d of two is lost", lost);
	is_int(cuf_runtime_device_status(rt, lost), CUF_ERR_DEVICE_LOST,
	       "its status says so at once");
	is_int(cuf_runtime_device_status(rt, other), CUF_OK, "the other's does not");
	ok(AWAIT(atomic_load(&lost_devices) == 1, 2000), "the hook is called");
	root_error = info_of(bad).root;
	ok(root_error != NULL, "there is a root error");
	sleep_ms(30); /* the tick comes to rest */
	calls = cuf_host_calls(CUF_HOST_ANY);
	for (int i = 0; i < 20; i++) {
		cuf_future *tried[] = {
			cuf_fill(s, cuf_address(mem[lost]), 0, 64),
			cuf_copy(s, pinned, cuf_address(mem[lost]), 64),
			cuf_copy(s, cuf_address(mem[lost]), pinned, 64),
			launch_empty(s, CUF_OPTIONS(.device = CUF_DEVICE(lost))),
			launch_empty(s, CUF_OPTIONS(.device = CUF_DEVICE(lost), .exclusive = true)),
			cuf_alloc(s, 64, .device = CUF_DEVICE(lost)),
			cuf_enqueue(s, never_called, &called, .device = CUF_DEVICE(lost)),
		};

		for (size_t k = 0; k < sizeof tried / sizeof *tried; k++) {
			if (cuf_poll(tried[k]) != CUF_ERR_DEVICE_LOST) {
				diag("call %zu: %s", k, cuf_strerror(cuf_poll(tried[k])));
				fast = false;
				ends(tried[k]);
			}
			same &= info_of(tried[k]).root == root_error;
			same &= info_of(tried[k]).cuda_code == 719;
			same &= info_of(tried[k]).inherited;
		}
	}
	ok(fast, "what is submitted to it has failed when the call returns");
	ok(same, "with the error that lost it, inherited");
	is_int((long long)(cuf_host_calls(CUF_HOST_ANY) - calls), 0, "without a device call");
	is_int(atomic_load(&called), 0, "and no enqueue callback is called");
	f = cuf_free(s, cuf_address(mem[lost]), .after = CUF_AFTER(bad));
	is_int(ends(f), CUF_ERR_DEVICE_LOST, "nor is anything freed there");
	f = cuf_fill(s, cuf_address(mem[other]), 7, 64, .after = CUF_AFTER(mem[other]));
	f = cuf_copy(s, pinned, cuf_address(mem[other]), 64, .take = CUF_LIST(f));
	is_int(ends(f), CUF_OK, "the other device goes on");
	is_int(pinned[63], 7, "and computes");
	big = calloc(1, 20 << 20);
	f = cuf_alloc(s, 20 << 20, .device = CUF_DEVICE(other));
	f = cuf_copy(s, cuf_address(f), big, 20 << 20, .after = CUF_AFTER(f));
	is_int(ends(f), CUF_OK, "and takes pageable copies, for which pinned memory is got");
	free(big);
	is_int(atomic_load(&lost_devices), 1, "one device was lost, once");
	is_int(ends(cuf_scope_close(s)), CUF_ERR_DEVICE_LOST, "the scope ends");
	cuf_pinned_put(rt, pinned);
}

/* ---- a fault while there are backlogs, held operations, workers' copies ---- */

static void check_everything_settles(int device)
{
	enum { CHAIN = 3000, HELD = 500, STAGED = 4 };
	cuf_scope *s, *t;
	cuf_future *mem, *f, *held, **h = malloc(HELD * sizeof *h), *all, *staged[STAGED], *closed;
	cuf_promise *p;
	char *out = malloc(9 << 20);
	uint64_t start;
	int lost = 0;

	RIG_START(.devices = device + 1);
	s = cuf_scope_open(root, .device = CUF_DEVICE(device));
	t = cuf_scope_open(s);
	mem = cuf_alloc(s, 9 << 20);
	is_int(ends(mem), CUF_OK, "device %d: memory", device);
	cuf_host_gate(device, 1);
	p = cuf_promise_create(s, &held);
	f = cuf_fill(t, cuf_address(mem), 0, 64);
	for (int i = 0; i < CHAIN; i++)
		f = cuf_fill(t, cuf_address(mem), i, 64, .take = CUF_LIST(f));
	for (int i = 0; i < HELD; i++)
		h[i] = cuf_fill(t, cuf_address(mem), i, 64, .after = CUF_AFTER(held));
	all = cuf_all_n(t, CUF_AFTER_N(h, HELD));
	for (int i = 0; i < STAGED; i++)
		staged[i] = cuf_copy(t, out + i, cuf_address(mem), 8 << 20);
	sleep_ms(20);
	start = cuf_now_ns();
	cuf_host_fault_at(device, 100, ILLEGAL);
	cuf_host_gate(device, 0);
	is_int(ends(f), CUF_ERR_DEVICE_LOST, "the end of a chain of %d fails", CHAIN);
	for (int i = 0; i < STAGED; i++)
		lost += ends(staged[i]) == CUF_ERR_DEVICE_LOST;
	is_int(lost, STAGED, "so do pageable copies");
	is_int(cuf_poll(all), CUF_PENDING, "what is held is held");
	cuf_promise_fulfil(p, NULL, NULL);
	is_int(ends(all), CUF_ERR_DEVICE_LOST, "until it is let go, and fails");
	lost = 0;
	for (int i = 0; i < HELD; i++)
		lost += cuf_poll(h[i]) == CUF_ERR_DEVICE_LOST;
	is_int(lost, HELD, "all of it");
	closed = cuf_scope_close(t);
	is_int(ends(closed), CUF_ERR_DEVICE_LOST, "its scope ends");
	ok(ms_since(start) < 5000, "all in good time");
	is_int(ends(cuf_scope_close(s)), CUF_ERR_DEVICE_LOST, "the outer scope too");
	diag("%llu ms", (unsigned long long)ms_since(start));
	free(out);
	free(h);
}

/* ---- what had finished but was not harvested ---- */

static void check_outcome_unknown(void)
{
	cuf_scope *s;
	cuf_future *known, *finished, *bad;

	RIG_START(.devices = 1);
	s = cuf_scope_open(root);
	known = launch_empty(s, CUF_OPTIONS(.label = "known"));
	is_int(ends(known), CUF_OK, "one that was asked");
	cuf_host_gate(0, 1);
	/* on two lanes, with nobody who asks */
	finished = launch_empty(s, CUF_OPTIONS(.label = "finished"));
	bad = launch_empty(s, CUF_OPTIONS(.take = CUF_LIST(cuf_retain(finished)), .label = "bad"));
	cuf_host_fault_at(0, 2, ILLEGAL);
	cuf_host_gate(0, 0);
	sleep_ms(5);
	is_int(ends(bad), CUF_ERR_DEVICE_LOST, "the second of two faults");
	is_int(ends(finished), CUF_ERR_DEVICE_LOST, "the first cannot be told to have ended");
	ok(info_of(finished).n_suspects >= 1, "suspects are counted");
	ok(info_of(finished).outcome_unknown || info_of(bad).outcome_unknown,
	   "one of them is marked as unknown");
	ok(info_of(finished).root == info_of(bad).root, "one error for both");
	is_int(cuf_poll(known), CUF_OK, "what had succeeded stays so");
	is_int(ends(cuf_scope_close(s)), CUF_ERR_DEVICE_LOST, "the scope ends");
}

/* ---- host functions that come late or never: the tick ---- */

static void check_tick(int mode)
{
	/* A late one holds the lane that it was put on: there are lanes for so many turns. */
	enum { TURNS = 6 };
	cuf_scope *s;
	uint64_t worst = 0, ns = 3000000;

	RIG_START(.mode = CUF_POWER);
	cuf_host_func_mode(mode, CUF_MS(300));
	s = cuf_scope_open(root);
	for (int i = 0; i < TURNS; i++) {
		uint64_t start = cuf_now_ns(), took;
		cuf_future *f = cuf_launch(s, &spin_kernel, cuf_grid_1d(1, 32), CUF_ARGS(ns));
		cuf_future *then = cuf_then(s, f, count_then, NULL);

		if (ends(then) != CUF_OK)
			worst = UINT64_MAX / 2;
		took = ms_since(start);
		worst = took > worst ? took : worst;
		cuf_release_all(f, then);
	}
	ok(worst < (under_valgrind() ? 2000 : 60),
	   "host functions %s: a 3 ms kernel settles within 60 ms", mode_names[mode]);
	diag("at worst %llu ms", (unsigned long long)worst);
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
}

int main(void)
{
	static const int modes[] = { CUF_HOST_FUNC_NORMAL, CUF_HOST_FUNC_DROP, CUF_HOST_FUNC_DELAY,
				     CUF_HOST_FUNC_AFTER_FAULT };

	RIG_START(.devices = 1);
	if (!on_host)
		plan_skip_all("only the host device faults on demand");
	plan(8 * 21 + WAYS * 16 + 3 + 2 * 18 + 2 * 9 + 8 + 2 * 2 + 1);
	for (int i = 0; i < 8; i++)
		check_chain(modes[i / 2], i % 2);
	for (int i = 0; i < WAYS; i++)
		check_diamond((enum way)i);
	RIG_START(.devices = 1);
	check_call_fails();
	check_lost(0);
	check_lost(1);
	check_everything_settles(0);
	check_everything_settles(1);
	check_outcome_unknown();
	check_tick(CUF_HOST_FUNC_DROP);
	check_tick(CUF_HOST_FUNC_DELAY);
	return rig_end();
}
