/* SPDX-License-Identifier: MIT */
/*
 * A submit is several device calls, and each of them can fail. One graph is run once for each call
 * that it makes, with that call failing, once with an error that the device survives and once with
 * one that it does not. Every time everything settles soon, nothing runs twice, the root of all
 * failures is the error that was made, and the runtime ends without a leak (AddressSanitizer).
 */
#include "tap.h"
#include "contract/rig.h"

static atomic_int kernel_runs, enqueue_runs, enqueue_drops, then_runs, then_drops, watch_runs;

static void counting_twin(const cuf_grid *grid, void *const *args)
{
	(void)grid, (void)args;
	atomic_fetch_add(&kernel_runs, 1);
}

static const cuf_kernel counting = { .size = sizeof(cuf_kernel),
				     .name = "counting",
				     .host_fn = counting_twin };

static void count_drop(void *arg)
{
	atomic_fetch_add((atomic_int *)arg, 1);
}

static cuf_future *count_then(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	atomic_fetch_add(&then_runs, 1);
	return NULL;
}

static void count_watch(cuf_future *f, void *arg)
{
	(void)f, (void)arg;
	atomic_fetch_add(&watch_runs, 1);
}

static void nothing(void *arg)
{
	(void)arg;
}

static int count_enqueue(struct CUstream_st *stream, void *arg)
{
	(void)arg;
	atomic_fetch_add(&enqueue_runs, 1);
	return put_function(stream, nothing, NULL);
}

enum { MEMBERS = 12 };

static const char *const names[MEMBERS] = { "alloc",	     "second alloc", "copy in",
					    "pageable copy", "launch",	     "other launch",
					    "joined launch", "enqueue",	     "timed",
					    "all",	     "copy out",     "free" };

/* Alloc, copies, launches over several lanes, a join, an enqueue, a then, a watch, a free. */
static void run_graph(cuf_scope *s, char *pinned, char *pageable, cuf_future **f)
{
	cuf_future *then;
	char *a, *b;

	f[0] = cuf_alloc(s, 1 << 20, .label = "a");
	f[1] = cuf_alloc(s, 1 << 20, .label = "b");
	a = cuf_address(f[0]);
	b = cuf_address(f[1]);
	/* where an alloc failed, what uses it fails by itself: not the error that was made */
	f[2] = cuf_copy(s, a ? a : pinned + 128, pinned, a ? 128 : 0, .after = CUF_AFTER(f[0]));
	f[3] = cuf_copy(s, b ? b : pinned + 128, pageable, b ? 200000 : 0,
			.after = CUF_AFTER(f[1]));
	f[4] = cuf_launch(s, &counting, cuf_grid_1d(1, 1), CUF_NO_ARGS, .after = CUF_AFTER(f[2]));
	f[5] = cuf_launch(s, &counting, cuf_grid_1d(1, 1), CUF_NO_ARGS, .after = CUF_AFTER(f[2]),
			  .priority = CUF_HIGH);
	f[6] = cuf_launch(s, &counting, cuf_grid_1d(1, 1), CUF_NO_ARGS,
			  .after = CUF_AFTER(f[3], f[4], f[5]));
	f[7] = cuf_enqueue(s, count_enqueue, &enqueue_drops, .after = CUF_AFTER(f[6]),
			   .drop = count_drop, .key = &enqueue_runs);
	f[8] = cuf_launch(s, &counting, cuf_grid_1d(1, 1), CUF_NO_ARGS, .after = CUF_AFTER(f[5]),
			  .timing = true, .exclusive = true);
	f[9] = cuf_all(s, f[7], f[8], f[4]);
	f[10] = cuf_copy(s, pinned, a ? a : pinned + 128, a ? 128 : 0, .after = CUF_AFTER(f[9]));
	then = cuf_then(s, f[10], count_then, &then_drops, .drop = count_drop);
	cuf_watch(s, then, count_watch, NULL);
	f[11] = cuf_free(s, a, .after = CUF_AFTER(f[4], f[5], f[10]));
}

struct outcome {
	bool used;    /* the call was made, and failed */
	bool settled; /* all of it, in a second */
	bool once, right;
	int failed;
};

static struct outcome run(int kind, uint64_t kth, int code, bool sticky)
{
	struct outcome o = { .settled = true, .once = true, .right = true };
	cuf_future *f[MEMBERS], *closed;
	char *pinned, *pageable;
	uint64_t before, start;
	cuf_scope *s;

	atomic_store(&kernel_runs, 0);
	atomic_store(&enqueue_runs, 0);
	atomic_store(&enqueue_drops, 0);
	atomic_store(&then_runs, 0);
	atomic_store(&then_drops, 0);
	atomic_store(&watch_runs, 0);
	RIG_START(.lanes = 8, .workers = 1);
	pinned = cuf_pinned_get(rt, 4096);
	pageable = calloc(1, 200000);
	s = cuf_scope_open(root);
	before = cuf_host_calls(kind);
	cuf_host_fail_call(kind, kth, code);
	start = cuf_now_ns();
	run_graph(s, pinned, pageable, f);
	for (int i = 0; i < MEMBERS; i++) {
		cuf_status st = cuf_wait_until(f[i], start + CUF_MS(1000));
		cuf_error_info e;

		if (st == CUF_PENDING) {
			diag("%s has not settled", names[i]);
			o.settled = false;
			continue;
		}
		if (st == CUF_OK)
			continue;
		o.failed++;
		e = info_of(f[i]);
		/* an enqueue callback passes the code on as its own; staging says what it lacks */
		if (e.cuda_code != code && e.user_code != code &&
		    !(st == CUF_ERR_NO_MEMORY && strstr(e.message, "no pinned memory"))) {
			diag("%s: %s", names[i], e.message);
			o.right = false;
		}
		if (!sticky && st == CUF_ERR_DEVICE_LOST) {
			diag("%s: the device is lost by code %d", names[i], code);
			o.right = false;
		}
	}
	closed = cuf_scope_close(s);
	if (cuf_wait_until(closed, start + CUF_MS(2000)) == CUF_PENDING) {
		diag("the scope has not ended");
		cuf_dump(rt, stdout);
		o.settled = false;
	}
	o.used = cuf_host_calls(kind) - before >= kth;
	o.right &= (cuf_runtime_device_status(rt, 0) == CUF_ERR_DEVICE_LOST) <= sticky;
	if (o.settled) {
		o.once = atomic_load(&kernel_runs) <= 4 && atomic_load(&enqueue_runs) <= 1 &&
			 atomic_load(&enqueue_drops) == 1 && atomic_load(&then_drops) == 1 &&
			 atomic_load(&then_runs) <= 1 && atomic_load(&watch_runs) == 1;
		if (!o.once)
			diag("runs: kernels %d, enqueue %d, its drop %d, then %d, its drop %d, watch %d",
			     atomic_load(&kernel_runs), atomic_load(&enqueue_runs),
			     atomic_load(&enqueue_drops), atomic_load(&then_runs),
			     atomic_load(&then_drops), atomic_load(&watch_runs));
		cuf_pinned_put(rt, pinned);
		free(pageable);
	}
	o.right &= atomic_load(&unobserved) == 0;
	if (atomic_load(&unobserved))
		diag("%d errors went unobserved", atomic_load(&unobserved));
	rig_stop();
	return o;
}

static void check(int kind, const char *name, int code, bool sticky, unsigned most)
{
	struct outcome all = { .settled = true, .once = true, .right = true };
	unsigned k = 0, failures = 0;

	for (k = 1; k <= most; k++) {
		struct outcome o = run(kind, k, code, sticky);

		if (!o.settled || !o.once || !o.right)
			diag("that was call %u of %s, with code %d", k, name, code);
		all.settled &= o.settled;
		all.once &= o.once;
		all.right &= o.right;
		failures += o.failed > 0;
		if (!o.used)
			break;
	}
	diag("%s, code %d: %u runs, %u with failures", name, code, k - 1, failures);
	ok(all.settled, "%s fails with %d: everything settles within a second", name, code);
	ok(all.once, "%s fails with %d: nothing runs twice, every drop once", name, code);
	ok(all.right, "%s fails with %d: that is the root of what fails", name, code);
}

int main(void)
{
	static const struct {
		int kind;
		const char *name;
	} kinds[] = {
		{ CUF_HOST_STREAM_CREATE, "stream create" },
		{ CUF_HOST_EVENT_CREATE, "event create" },
		{ CUF_HOST_RECORD, "record" },
		{ CUF_HOST_WAIT, "wait" },
		{ CUF_HOST_EVENT_QUERY, "event query" },
		{ CUF_HOST_STREAM_QUERY, "stream query" },
		{ CUF_HOST_LAUNCH, "launch" },
		{ CUF_HOST_COPY, "copy" },
		{ CUF_HOST_MALLOC, "malloc" },
		{ CUF_HOST_FREE, "free" },
		{ CUF_HOST_FUNC, "host function" },
		{ CUF_HOST_PINNED_ALLOC, "pinned alloc" },
		{ CUF_HOST_KERNEL_LOAD, "kernel load" },
	};
	/* not sticky: invalid handle, unknown; sticky: illegal address */
	static const int codes[] = { 400, 999, 700 };
	int n = sizeof kinds / sizeof *kinds;
	bool few = under_valgrind();

	RIG_START(.devices = 1);
	if (!on_host)
		plan_skip_all("only the host device fails calls on demand");
	plan(3 * 3 * (n + 1) + 1);
	for (int c = 0; c < 3; c++) {
		bool sticky = codes[c] == 700;

		for (int i = 0; i < n; i++)
			check(kinds[i].kind, kinds[i].name, codes[c], sticky, few ? 3 : 12);
		check(CUF_HOST_ANY, "any call", codes[c], sticky, few ? 10 : 60);
	}
	return rig_end();
}
