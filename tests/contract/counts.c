/* SPDX-License-Identifier: MIT */
/*
 * How often the device is called, counted by the runtime and by the host device: what is elided is
 * elided, what is armed is needed, work is spread evenly, a steady state allocates nothing, and
 * nothing at all runs while there is nothing to do. COUNT_OPERATIONS: how long the steady state is.
 */
#include "tap.h"
#include "contract/rig.h"

#include <dirent.h>

static cuf_stats since(const cuf_stats *a)
{
	cuf_stats b = stats();

#define TAKE(field) b.field -= a->field
	TAKE(operations), TAKE(events), TAKE(depth_marks), TAKE(waits), TAKE(waits_elided);
	TAKE(arms), TAKE(callbacks), TAKE(queries), TAKE(parks), TAKE(wakes);
	TAKE(continuations), TAKE(allocations), TAKE(succeeded), TAKE(failed), TAKE(cancelled);
#undef TAKE
	return b;
}

static void print(const char *what, const cuf_stats *s)
{
	diag("%s: operations %llu, events %llu, marks %llu, waits %llu, elided %llu, arms %llu, "
	     "queries %llu",
	     what, (unsigned long long)s->operations, (unsigned long long)s->events,
	     (unsigned long long)s->depth_marks, (unsigned long long)s->waits,
	     (unsigned long long)s->waits_elided, (unsigned long long)s->arms,
	     (unsigned long long)s->queries);
}

static cuf_future *launch(cuf_scope *s, const cuf_options *o)
{
	return cuf_launch_with(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS, o);
}

static void restart(int mode)
{
	const cuf_kernel *kernels[] = { &empty_kernel };

	RIG_START(.devices = 1, .mode = mode);
	cuf_kernel_prepare(rt, kernels, 1);
}

/* ---- chains ---- */

/* @gated: nothing ends before all is submitted. */
static void check_taken(int links, int mode, bool gated)
{
	cuf_scope *s;
	cuf_future *f;
	cuf_stats a, d;
	uint64_t records, waits, funcs;
	char name[80];

	restart(mode);
	s = cuf_scope_open(root);
	a = stats();
	records = cuf_host_calls(CUF_HOST_RECORD);
	waits = cuf_host_calls(CUF_HOST_WAIT);
	funcs = cuf_host_calls(CUF_HOST_FUNC);
	if (gated)
		cuf_host_gate(0, 1);
	f = launch(s, CUF_HERE);
	for (int i = 1; i < links; i++)
		f = launch(s, CUF_OPTIONS(.take = CUF_LIST(f)));
	cuf_host_gate(0, 0);
	snprintf(name, sizeof name, "a taken chain of %d%s, mode %d", links, gated ? ", gated" : "",
		 mode);
	is_int(ends(f), CUF_OK, "%s", name);
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
	d = since(&a);
	print(name, &d);
	is_int((long long)d.operations, links, "its operations");
	/* a companion stream that carries a host function waits too: those are no waits of lanes */
	is_int((long long)d.waits, 0, "no waits");
	ok(d.events <= 1, "an event at most");
	ok(d.arms <= 1 + d.depth_marks, "a host function at most, but for its depth marks");
	if (links <= 500)
		is_int((long long)d.depth_marks, 0, "no depth marks");
	else
		/* none where the device keeps up with the submitter */
		ok(d.depth_marks >= (gated ? 1 : 0) && d.depth_marks <= (uint64_t)links / 50,
		   "depth marks, and not many");
	is_int((long long)(cuf_host_calls(CUF_HOST_RECORD) - records),
	       (long long)(d.events + d.depth_marks), "as many records as the runtime says");
	ok(cuf_host_calls(CUF_HOST_WAIT) - waits <= d.arms,
	   "nobody waits but who carries a function");
	is_int((long long)(cuf_host_calls(CUF_HOST_FUNC) - funcs), (long long)d.arms,
	       "as many host functions");
}

static void check_held(void)
{
	enum { LINKS = 400 };
	cuf_scope *s;
	cuf_future *f;
	cuf_stats a, d;

	restart(CUF_BALANCED);
	s = cuf_scope_open(root);
	a = stats();
	cuf_host_gate(0, 1);
	f = launch(s, CUF_HERE);
	for (int i = 1; i < LINKS; i++)
		f = launch(s, CUF_OPTIONS(.after = CUF_AFTER(f)));
	cuf_host_gate(0, 0);
	is_int(ends(f), CUF_OK, "a chain of %d whose references are kept", LINKS);
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
	d = since(&a);
	print("held", &d);
	ok(d.events >= LINKS - 1 && d.events <= LINKS, "an event for each that is buried");
	is_int((long long)d.waits, 0, "but no waits");
	is_int((long long)d.waits_elided, LINKS - 1, "all are elided");
}

/* Behind a gate, so that every dependency is still running. */
static void check_diamond(void)
{
	cuf_scope *s;
	cuf_future *a, *b, *c, *d, *e;
	cuf_stats before, x;

	restart(CUF_BALANCED);
	s = cuf_scope_open(root);
	before = stats();
	cuf_host_gate(0, 1);
	a = launch(s, CUF_HERE);
	b = launch(s, CUF_OPTIONS(.after = CUF_AFTER(a)));  /* on a's stream; a gets its event */
	c = launch(s, CUF_OPTIONS(.take = CUF_LIST(a)));    /* on another, which waits for it */
	d = launch(s, CUF_OPTIONS(.take = CUF_LIST(b, c))); /* b's stream waits for c */
	x = since(&before);
	print("diamond", &x);
	is_int((long long)x.waits, 2, "a diamond: two waits");
	is_int((long long)x.events, 2, "for two events");
	/* d's stream is behind all of them: nothing to wait for */
	e = launch(s, CUF_OPTIONS(.take = CUF_LIST(d), .after = CUF_AFTER(cuf_ok())));
	x = since(&before);
	is_int((long long)x.waits, 2, "and none for what follows");
	cuf_host_gate(0, 0);
	is_int(ends(e), CUF_OK, "it ends");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
}

/* What one wait has ordered, a second dependency behind it need not wait for. */
static void check_dominated(void)
{
	cuf_scope *s;
	cuf_future *a, *b, *c, *d;
	cuf_stats before, x;

	restart(CUF_BALANCED);
	s = cuf_scope_open(root);
	before = stats();
	cuf_host_gate(0, 1);
	a = launch(s, CUF_HERE);
	b = launch(s, CUF_OPTIONS(.after = CUF_AFTER(a)));			 /* a's stream */
	c = launch(s, CUF_OPTIONS(.after = CUF_AFTER(b), .priority = CUF_HIGH)); /* waits for b */
	x = since(&before);
	is_int((long long)x.waits, 1, "another priority is another stream: one wait");
	d = launch(s, CUF_OPTIONS(.after = CUF_AFTER(a, b, c), .priority = CUF_HIGH));
	x = since(&before);
	print("dominated", &x);
	is_int((long long)x.waits, 1, "what that stream is behind already is not waited for again");
	cuf_host_gate(0, 0);
	is_int(ends(d), CUF_OK, "it ends");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
}

/* ---- one notification for a chain (C34 c) ---- */

static void check_notifications(void)
{
	enum { LINKS = 100 };
	cuf_scope *s;
	cuf_future *f;
	uint64_t funcs;

	restart(CUF_POWER);
	s = cuf_scope_open(root);
	cuf_host_slow(200000);
	funcs = cuf_host_calls(CUF_HOST_FUNC);
	f = launch(s, CUF_HERE);
	for (int i = 1; i < LINKS; i++)
		f = launch(s, CUF_OPTIONS(.take = CUF_LIST(f)));
	is_int(ends(f), CUF_OK, "a chain of %d that takes 20 ms, waited for asleep", LINKS);
	ok(cuf_host_calls(CUF_HOST_FUNC) - funcs <= 1, "takes one host function");
	cuf_host_slow(0);
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
}

/* ---- picks are even (C38) ---- */

enum { PICKERS = 8, PICKS = 125, STREAMS_MAX = 64 };

static struct {
	pthread_mutex_t lock;
	int n;
	struct CUstream_st *stream[STREAMS_MAX];
	int picks[STREAMS_MAX];
} picked = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int note_stream(struct CUstream_st *stream, void *arg)
{
	int i;

	(void)arg;
	pthread_mutex_lock(&picked.lock);
	for (i = 0; i < picked.n && picked.stream[i] != stream; i++)
		;
	if (i == picked.n && picked.n < STREAMS_MAX)
		picked.stream[picked.n++] = stream;
	picked.picks[i]++;
	pthread_mutex_unlock(&picked.lock);
	return 0;
}

static void *pick(void *arg)
{
	for (int i = 0; i < PICKS; i++)
		cuf_release(cuf_enqueue(arg, note_stream, NULL, .weight = 1));
	return NULL;
}

static void check_even(bool gated)
{
	cuf_scope *s;
	pthread_t t[PICKERS];
	int most = 0, least = PICKERS * PICKS, all = 0;

	restart(CUF_BALANCED);
	memset(picked.picks, 0, sizeof picked.picks);
	picked.n = 0;
	s = cuf_scope_open(root);
	if (gated)
		cuf_host_gate(0, 1);
	for (int i = 0; i < PICKERS; i++)
		if (pthread_create(&t[i], NULL, pick, s))
			abort();
	for (int i = 0; i < PICKERS; i++)
		pthread_join(t[i], NULL);
	cuf_host_gate(0, 0);
	is_int(ends(cuf_scope_close(s)), CUF_OK, "%d threads pick streams%s", PICKERS,
	       gated ? " that stand still" : "");
	for (int i = 0; i < picked.n; i++) {
		all += picked.picks[i];
		most = picked.picks[i] > most ? picked.picks[i] : most;
		least = picked.picks[i] < least ? picked.picks[i] : least;
	}
	diag("%d streams, %d to %d picks each", picked.n, least, most);
	is_int(all, PICKERS * PICKS, "each operation is enqueued once");
	ok(picked.n >= 8, "on all the streams for such work");
	if (gated)
		/* who looks while others enqueue knows the load only roughly */
		ok(most <= 3 * all / picked.n && least >= all / picked.n / 4, "and evenly");
	else
		ok(most <= PICKERS * PICKS / 2, "and none has most of it");
}

/* ---- a steady state allocates nothing ---- */

static cuf_future *pass(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	return NULL;
}

static void batch(char *pinned, int n)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *mem = cuf_alloc(s, 4096), *f, *g, *h;
	char *at = cuf_address(mem);

	f = cuf_copy(s, at, pinned, 4096, .after = CUF_AFTER(mem));
	for (int i = 0; i + 8 <= n; i += 8) {
		g = launch(s, CUF_OPTIONS(.after = CUF_AFTER(f)));
		h = launch(s, CUF_OPTIONS(.after = CUF_AFTER(f), .priority = CUF_HIGH));
		cuf_release(f);
		f = cuf_fill(s, at, i, 64, .take = CUF_LIST(g, h));
		f = launch(s, CUF_OPTIONS(.take = CUF_LIST(f), .label = "labelled"));
		f = cuf_copy(s, pinned, at, 64, .take = CUF_LIST(f));
		g = cuf_then(s, f, pass, NULL);
		cuf_release(f);
		f = launch(s, CUF_OPTIONS(.take = CUF_LIST(g)));
		g = cuf_all(s, f, mem);
		cuf_release(f);
		f = launch(s, CUF_OPTIONS(.take = CUF_LIST(g), .timing = true));
	}
	cuf_free(s, at, .take = CUF_LIST(f, mem));
	if (ends(cuf_scope_close(s)) != CUF_OK)
		diag("a batch fails");
}

/* More at once than a batch ever has: events, timed ones, and what waits between streams needs. */
static void warm_up(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *f, *g;

	cuf_host_gate(0, 1);
	f = launch(s, CUF_HERE);
	for (int i = 0; i < 450; i++) {
		g = launch(s, CUF_OPTIONS(.after = CUF_AFTER(f), .timing = true,
					  .priority = i % 2 ? CUF_HIGH : CUF_NORMAL));
		f = g;
	}
	cuf_host_gate(0, 0);
	if (ends(cuf_scope_close(s)) != CUF_OK)
		diag("warming up fails");
}

static void check_steady(void)
{
	char *env = getenv("COUNT_OPERATIONS");
	int n = env ? atoi(env) : under_valgrind() ? 8000 : 100000, each = 400;
	char *pinned;
	cuf_stats a, d;

	restart(CUF_BALANCED);
	pinned = memset(cuf_pinned_get(rt, 4096), 0, 4096);
	warm_up();
	for (int i = 0; i < 20000; i += each)
		batch(pinned, each);
	a = stats();
	for (int i = 0; i < n; i += each)
		batch(pinned, each);
	d = since(&a);
	print("steady", &d);
	is_int((long long)d.failed, 0, "%d operations of all kinds", n);
	is_int((long long)d.allocations, 0, "allocate nothing once warm");
	cuf_pinned_put(rt, pinned);
}

/* ---- idle ---- */

/* How often the kernel has run threads of ours; -1: it does not say. */
static long long slices(int *out_threads)
{
	DIR *tasks = opendir("/proc/self/task");
	long long all = 0;
	struct dirent *e;

	*out_threads = 0;
	while (tasks && (e = readdir(tasks)) != NULL) {
		char path[300], name[32] = "";
		unsigned long long ran, waited, n = 0;
		FILE *f;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
		f = fopen(path, "r");
		if (!f || !fgets(name, sizeof name, f))
			name[0] = 0;
		if (f)
			fclose(f);
		if (strncmp(name, "cuf-", 4) != 0)
			continue;
		snprintf(path, sizeof path, "/proc/self/task/%s/schedstat", e->d_name);
		f = fopen(path, "r");
		if (!f || fscanf(f, "%llu %llu %llu", &ran, &waited, &n) != 3)
			all = -1;
		if (f)
			fclose(f);
		if (all >= 0)
			all += (long long)n;
		++*out_threads;
	}
	if (tasks)
		closedir(tasks);
	return all;
}

static void check_idle(int mode)
{
	cuf_stats a, d;
	char *pinned;
	int threads, later;
	long long before, after;

	restart(mode);
	pinned = memset(cuf_pinned_get(rt, 4096), 0, 4096);
	batch(pinned, 400);
	sleep_ms(100);
	a = stats();
	before = slices(&threads);
	sleep_ms(300);
	after = slices(&later);
	d = since(&a);
	is_int((long long)d.parks, 0, "mode %d, idle: nothing parks", mode);
	is_int((long long)d.wakes, 0, "nothing is woken");
	is_int((long long)d.queries, 0, "nothing is asked");
	diag("%d threads of ours", threads);
	if (before < 0 || threads == 0)
		skip(1, "the kernel does not count what threads run");
	else
		is_int(after - before, 0, "no thread of ours runs");
	cuf_pinned_put(rt, pinned);
}

int main(void)
{
	RIG_START(.devices = 1);
	if (!on_host)
		plan_skip_all("counts are exact on the host device alone");
	plan(5 * 10 + 5 + 5 + 4 + 3 + 2 * 4 + 2 + 2 * 4 + 1);
	check_taken(500, CUF_BALANCED, true);
	check_taken(500, CUF_BALANCED, false);
	check_taken(500, CUF_POWER, true);
	check_taken(10000, CUF_BALANCED, true);
	check_taken(10000, CUF_POWER, false);
	check_held();
	check_diamond();
	check_dominated();
	check_notifications();
	check_even(true);
	check_even(false);
	check_steady();
	check_idle(CUF_BALANCED);
	check_idle(CUF_POWER);
	return rig_end();
}
