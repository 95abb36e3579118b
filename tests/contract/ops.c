/* SPDX-License-Identifier: MIT */
/*
 * Each operation does what it says: copies in every direction and of every size, fills, launches,
 * memory and its address, chains over several lanes, times, labels, and what is refused.
 */
#include "tap.h"
#include "contract/rig.h"

#define LARGE (9 * 1024 * 1024 + 17) /* three chunks of staging, the last one odd */

static unsigned char byte_at(size_t i, unsigned seed)
{
	return (unsigned char)((i * 2654435761u >> 13) ^ (seed * 97u) ^ i);
}

static void paint(unsigned char *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = byte_at(i, seed);
}

static bool painted(const unsigned char *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] != byte_at(i, seed)) {
			diag("byte %zu of %zu is %02x, not %02x", i, n, p[i], byte_at(i, seed));
			return false;
		}
	}
	return true;
}

/* ---- copies ---- */

/* In and out through device memory, D2D between; @pinned: page-locked on the host side. */
static void check_round_trip(size_t n, bool pinned)
{
	cuf_scope *s = cuf_scope_open(root);
	unsigned char *in = pinned ? cuf_pinned_get(rt, n + 2) : malloc(n + 2);
	unsigned char *out = pinned ? cuf_pinned_get(rt, n + 2) : malloc(n + 2);
	cuf_future *a = cuf_alloc(s, n + 1), *b = cuf_alloc(s, n + 1), *f;
	unsigned seed = (unsigned)n + pinned;

	paint(in, n, seed);
	memset(out, 0xee, n + 2);
	f = cuf_copy(s, cuf_address(a), in, n, .after = CUF_AFTER(a));
	f = cuf_copy(s, cuf_address(b), cuf_address(a), n, .after = CUF_AFTER(b),
		     .take = CUF_LIST(f));
	f = cuf_copy(s, out + 1, cuf_address(b), n, .take = CUF_LIST(f));
	is_int(ends(f), CUF_OK, "%zu bytes, %s: in, across, out", n,
	       pinned ? "pinned" : "pageable");
	ok(painted(out + 1, n, seed) && out[0] == 0xee && out[n + 1] == 0xee,
	   "%zu bytes, %s: what came out, and nothing beside it", n,
	   pinned ? "pinned" : "pageable");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
	if (pinned) {
		cuf_pinned_put(rt, in);
		cuf_pinned_put(rt, out);
	} else {
		free(in);
		free(out);
	}
}

static void check_mixed_sides(void)
{
	cuf_scope *s = cuf_scope_open(root);
	size_t n = LARGE;
	unsigned char *pageable = malloc(n), *back = malloc(n), *pinned = cuf_pinned_get(rt, n);
	cuf_future *d = cuf_alloc(s, n), *f;

	paint(pageable, n, 7);
	memset(back, 0, n);
	f = cuf_copy(s, cuf_address(d), pageable, n, .after = CUF_AFTER(d));
	f = cuf_copy(s, pinned, cuf_address(d), n, .take = CUF_LIST(f));
	f = cuf_copy(s, back, pinned, n, .take = CUF_LIST(f));
	is_int(ends(f), CUF_OK, "pageable in, pinned out, host to host");
	ok(painted(pinned, n, 7) && painted(back, n, 7), "both arrived");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
	cuf_pinned_put(rt, pinned);
	free(pageable);
	free(back);
}

/* What a worker has just written is what is copied, not what was there at submit (C17 b). */
static cuf_future *paint_it(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in;
	paint(arg, LARGE, 21);
	return NULL;
}

static void check_reads_late(void)
{
	cuf_scope *s = cuf_scope_open(root);
	unsigned char *src = calloc(1, LARGE), *dst = calloc(1, LARGE);
	cuf_future *d = cuf_alloc(s, LARGE), *f;

	f = cuf_call(s, paint_it, src);
	f = cuf_copy(s, cuf_address(d), src, LARGE, .after = CUF_AFTER(d), .take = CUF_LIST(f));
	f = cuf_copy(s, dst, cuf_address(d), LARGE, .take = CUF_LIST(f));
	is_int(ends(f), CUF_OK, "copy behind the call that fills its source");
	ok(painted(dst, LARGE, 21), "the source is read after its producer ran");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
	free(src);
	free(dst);
}

/* A pageable copy out behind a stalled stream returns at once (C17 a). */
static void check_pageable_returns(void)
{
	cuf_scope *s = cuf_scope_open(root);
	struct gate g = gate_make();
	unsigned char *dst = calloc(1, LARGE);
	cuf_future *d = cuf_alloc(s, LARGE), *stalled, *f;
	uint64_t start;

	f = cuf_fill(s, cuf_address(d), 0x5a, LARGE, .after = CUF_AFTER(d));
	stalled = GATE_LAUNCH(s, g, .take = CUF_LIST(f));
	start = cuf_now_ns();
	f = cuf_copy(s, dst, cuf_address(d), LARGE, .after = CUF_AFTER(stalled));
	ok(ms_since(start) < 50, "a pageable copy behind a stalled stream returns at once");
	sleep_ms(20);
	is_int(cuf_poll(f), CUF_PENDING, "and has not ended");
	ok(dst[0] == 0, "nor touched its destination");
	gate_open(g);
	is_int(ends(f), CUF_OK, "until the stream goes on");
	ok(dst[0] == 0x5a && dst[LARGE - 1] == 0x5a, "then it is there");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
	cuf_pinned_put(rt, g.flag);
	free(dst);
}

static void check_empty(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_promise *p;
	cuf_future *held, *f, *g;
	char here = 1;

	is_int(ends(cuf_copy(s, &here, &here, 0)), CUF_OK, "a copy of nothing");
	is_int(ends(cuf_copy(s, NULL, NULL, 0)), CUF_OK, "even between NULLs");
	is_int(ends(cuf_fill(s, NULL, 1, 0)), CUF_OK, "a fill of nothing");
	p = cuf_promise_create(s, &held);
	f = cuf_copy(s, NULL, NULL, 0, .after = CUF_AFTER(held));
	g = cuf_fill(s, NULL, 0, 0, .after = CUF_AFTER(held));
	sleep_ms(5);
	ok(cuf_poll(f) == CUF_PENDING && cuf_poll(g) == CUF_PENDING,
	   "both still wait for what they depend on");
	cuf_promise_fail(p, 3, "no");
	is_int(ends(f), CUF_ERR_USER, "and inherit");
	is_int(ends(g), CUF_ERR_USER, "the fill too");
	ends(cuf_scope_close(s));
}

/* ---- fill, launch ---- */

static void check_fill(void)
{
	cuf_scope *s = cuf_scope_open(root);
	unsigned char *back = cuf_pinned_get(rt, 1000);
	cuf_future *d = cuf_alloc(s, 1000), *f;
	unsigned char *at = cuf_address(d);
	bool right = true;

	f = cuf_fill(s, at, 0x11, 1000, .after = CUF_AFTER(d));
	f = cuf_fill(s, at + 333, 0x1ff, 1, .take = CUF_LIST(f));
	f = cuf_fill(s, at + 501, -1 & ~0x55, 99, .take = CUF_LIST(f));
	f = cuf_copy(s, back, at, 1000, .take = CUF_LIST(f));
	is_int(ends(f), CUF_OK, "fills");
	for (int i = 0; i < 1000; i++)
		right &= back[i] == (i == 333 ? 0xff : i >= 501 && i < 600 ? 0xaa : 0x11);
	ok(right, "each byte has the low 8 bits of the last fill over it");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
	cuf_pinned_put(rt, back);
}

static void check_launch(void)
{
	enum { N = 100003 };
	cuf_scope *s = cuf_scope_open(root);
	float *x = malloc(N * sizeof *x), *out = malloc(N * sizeof *out);
	cuf_future *a = cuf_alloc(s, N * sizeof *x), *b = cuf_alloc(s, N * sizeof *x);
	float *da = cuf_address(a), *db = cuf_address(b);
	cuf_future *f, *g;
	bool right = true;

	for (int i = 0; i < N; i++)
		x[i] = (float)i;
	f = cuf_copy(s, da, x, N * sizeof *x, .after = CUF_AFTER(a));
	g = cuf_launch(s, &scale, cuf_grid_1d(N, 256),
		       CUF_ARGS((const float *)da, db, 2.0f, (size_t)N), .after = CUF_AFTER(b, f));
	f = cuf_launch(s, &mix, cuf_grid_1d(N, 128),
		       CUF_ARGS((const float *)da, (const float *)db, db, 3.0f, 0.5f, (size_t)N),
		       .take = CUF_LIST(g, f));
	f = cuf_launch(s, &vector_add, cuf_grid_1d(N, 1024),
		       CUF_ARGS((const float *)da, (const float *)db, db, (size_t)N),
		       .take = CUF_LIST(f));
	f = cuf_copy(s, out, db, N * sizeof *x, .take = CUF_LIST(f));
	is_int(ends(f), CUF_OK, "three kernels");
	for (int i = 0; i < N; i++)
		right &= out[i] == 5.0f * (float)i;
	ok(right, "5 x everywhere");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
	free(x);
	free(out);
}

/* Arguments are copied at submit: what the caller does with his afterwards is his business. */
static void check_args_copied(void)
{
	cuf_scope *s = cuf_scope_open(root);
	int *back = cuf_pinned_get(rt, 40 * sizeof *back);
	cuf_future *d = cuf_alloc(s, 40 * sizeof *back), *f, *held;
	cuf_promise *p = cuf_promise_create(s, &held);
	int *at = cuf_address(d);
	size_t n = 40;
	cuf_grid g = cuf_grid_1d(n, 32);
	const void *values[] = { &at, &n };
	size_t bytes[] = { sizeof at, sizeof n };

	f = cuf_fill(s, at, 0, n * sizeof *back, .after = CUF_AFTER(d));
	f = cuf_launch(s, &add_one, g, ((cuf_args){ 2, values, bytes }), .after = CUF_AFTER(held),
		       .take = CUF_LIST(f));
	at = NULL;
	n = 1u << 20;
	memset(&g, 0xff, sizeof g);
	memset(values, 0xff, sizeof values);
	memset(bytes, 0xff, sizeof bytes);
	f = cuf_copy(s, back, cuf_address(d), 40 * sizeof *back, .take = CUF_LIST(f));
	cuf_promise_fulfil(p, NULL, NULL);
	is_int(ends(f), CUF_OK, "a held launch whose arguments are gone");
	ok(back[0] == 1 && back[39] == 1, "ran with the values of its submit");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
	cuf_pinned_put(rt, back);
}

/* ---- dependency chains ---- */

/* Many chains at once, each over copies of both classes and kernels, so over several lanes. */
static void check_chains(void)
{
	enum { CHAINS = 24, LINKS = 30, N = 40000 }; /* 160,000 bytes: not a small copy */
	cuf_scope *s = cuf_scope_open(root);
	static int *host[CHAINS];
	cuf_future *last[CHAINS], *memory[CHAINS];
	bool right = true;

	/* all before the work: an alloc is refused where no lane has room */
	for (int c = 0; c < CHAINS; c++)
		memory[c] = cuf_alloc(s, N * sizeof(int));
	for (int c = 0; c < CHAINS; c++) {
		int *at = cuf_address(memory[c]);
		cuf_future *f;

		host[c] = cuf_pinned_get(rt, N * sizeof(int));
		for (int i = 0; i < N; i++)
			host[c][i] = i + c;
		f = cuf_copy(s, at, host[c], N * sizeof(int), .take = CUF_LIST(memory[c]));
		for (int k = 0; k < LINKS; k++) {
			f = cuf_launch(s, &add_one, cuf_grid_1d(N, 256), CUF_ARGS(at, (size_t)N),
				       .take = CUF_LIST(f));
			if (k % 10 == 9) {
				/* out and in again: other lanes */
				f = cuf_copy(s, host[c], at, N * sizeof(int), .take = CUF_LIST(f));
				f = cuf_copy(s, at, host[c], N * sizeof(int), .take = CUF_LIST(f));
			}
		}
		last[c] = cuf_copy(s, host[c], at, N * sizeof(int), .take = CUF_LIST(f));
	}
	for (int c = 0; c < CHAINS; c++) {
		if (ends(last[c]) != CUF_OK)
			diag("%s", info_of(last[c]).message);
		right &= cuf_poll(last[c]) == CUF_OK;
		/* right when it has settled, not some time later */
		for (int i = 0; i < N && right; i++)
			right &= host[c][i] == i + c + LINKS;
	}
	ok(right, "%d chains of copies and kernels: every value right as its chain settles",
	   CHAINS);
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
	for (int c = 0; c < CHAINS; c++)
		cuf_pinned_put(rt, host[c]);
}

/* ---- memory ---- */

static void check_memory(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *a = cuf_alloc(s, 1), *b = cuf_alloc(s, 3 << 20), *held, *gated, *f;
	cuf_promise *p = cuf_promise_create(s, &held);

	ok(cuf_address(a) && ((uintptr_t)cuf_address(a) & 255) == 0, "an address at once, aligned");
	ok(cuf_address(b) && cuf_address(a) != cuf_address(b), "each its own");
	is_int(ends(a), CUF_OK, "the alloc ends");
	gated = cuf_alloc(s, 100, .after = CUF_AFTER(held));
	ok(cuf_address(gated) != NULL, "an alloc that waits has its address");
	is_int(cuf_poll(gated), CUF_PENDING, "but is not done");
	f = cuf_fill(s, cuf_address(gated), 0, 100, .after = CUF_AFTER(gated));
	sleep_ms(5);
	is_int(cuf_poll(f), CUF_PENDING, "so its user is held");
	cuf_promise_fulfil(p, NULL, NULL);
	is_int(ends(f), CUF_OK, "until its dependency is there");
	is_int(ends(cuf_free(s, cuf_address(a), .after = CUF_AFTER(a))), CUF_OK, "freed");
	is_int(ends(cuf_free(s, NULL)), CUF_OK, "NULL is nothing to free");
	is_ptr(cuf_address(f), NULL, "a fill has no address");
	is_ptr(cuf_address(NULL), NULL, "nor has NULL");
	f = cuf_alloc(s, 0);
	is_int(ends(f), CUF_ERR_INVALID, "0 bytes are refused");
	is_ptr(cuf_address(f), NULL, "without an address");
	cuf_ignore(f);
	f = cuf_alloc(s, (size_t)1 << 46);
	is_int(ends(f), CUF_ERR_NO_MEMORY, "64 TiB are refused as out of memory");
	is_ptr(cuf_address(f), NULL, "without an address");
	is_int(info_of(f).cuda_code, 2, "with CUDA's code");
	cuf_ignore(f);
	is_int(ends(cuf_scope_close(s)), CUF_OK, "the scope ends, and the device is as before");
}

/* What was built on an allocation that failed never runs (C58). */
static void check_refused_chain(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *a = cuf_alloc(s, (size_t)1 << 46, .label = "huge"), *f, *g;
	char *at = cuf_address(a);

	f = cuf_fill(s, at, 0, 100, .after = CUF_AFTER(a));
	is_int(ends(f), CUF_ERR_NO_MEMORY, "a fill of what was not allocated says why it was not");
	f = cuf_launch(s, &add_one, cuf_grid_1d(1, 32), CUF_ARGS((int *)at, (size_t)1),
		       .after = CUF_AFTER(a));
	g = cuf_free(s, at, .after = CUF_AFTER(f));
	is_int(ends(f), CUF_ERR_NO_MEMORY, "a kernel behind it inherits");
	is_str(info_of(f).label, "huge", "from that allocation");
	ok(info_of(f).inherited, "marked so");
	is_int(ends(g), CUF_OK, "freeing NULL behind all that is no failure");
	a = cuf_alloc(s, 64);
	is_int(ends(cuf_fill(s, cuf_address(a), 0, 64, .after = CUF_AFTER(a))), CUF_OK,
	       "the device is healthy");
	ends(cuf_scope_close(s));
}

/* ---- times, labels ---- */

static void check_times(void)
{
	cuf_scope *s = cuf_scope_open(root);
	uint64_t ns = 20000000, before = cuf_now_ns(), after;
	cuf_times t;
	cuf_future *f =
		cuf_launch(s, &spin_kernel, cuf_grid_1d(1, 32), CUF_ARGS(ns), .timing = true);
	cuf_future *g = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS,
				   .after = CUF_AFTER(f));
	cuf_future *h = cuf_launch(s, &spin_kernel, cuf_grid_1d(1, 32), CUF_ARGS(ns),
				   .timing = true, .take = CUF_LIST(g));
	cuf_times u;

	is_int(ends(h), CUF_OK, "timed kernels");
	after = cuf_now_ns();
	is_int(cuf_times_of(f, &t), CUF_OK, "have times");
	ok(t.ended_ns - t.started_ns >= ns * 9 / 10 && t.ended_ns - t.started_ns < 20 * ns,
	   "the duration is the kernel's");
	diag("20 ms measured as %llu us", (unsigned long long)(t.ended_ns - t.started_ns) / 1000);
	ok(t.submitted_ns >= before && t.submitted_ns <= after, "submitted when it was");
	ok(t.started_ns + 50000000 > t.submitted_ns && t.ended_ns < after + 50000000,
	   "in its place on the host's clock");
	is_int(cuf_times_of(h, &u), CUF_OK, "the second one too");
	ok(u.started_ns >= t.ended_ns, "and it came after the first");
	f = cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 32), CUF_NO_ARGS);
	is_int(ends(f), CUF_OK, "an untimed kernel");
	is_int(cuf_times_of(f, &t), CUF_ERR_UNSUPPORTED, "has none");
	ok(!t.submitted_ns && !t.started_ns && !t.ended_ns, "and says 0");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "its scope ends");
}

static void check_labels(void)
{
	cuf_scope *s = cuf_scope_open(root);
	char name[] = "a label that is longer than what is kept of it";
	cuf_future *f = cuf_copy(s, NULL, name, 5, .label = name), *g;
	int line = __LINE__ - 1;
	cuf_error_info i;

	memset(name, 'x', sizeof name - 1);
	g = cuf_fill(s, NULL, 0, 0, .after = CUF_AFTER(f), .label = "behind");
	is_int(ends(g), CUF_ERR_INVALID, "behind a bad copy");
	i = info_of(g);
	is_str(i.label, "a label that is longer ", "23 bytes of the label, copied");
	is_str(i.operation, "copy", "the operation");
	is_int(i.line, line, "the line");
	ok(i.file && strstr(i.file, "ops.c") != NULL, "the file");
	is_int(i.phase, CUF_PHASE_SUBMIT, "the phase");
	ok(i.inherited, "inherited");
	ok(!info_of(f).inherited, "which the copy itself is not");
	is_ptr(i.root, info_of(f).root, "one root");
	ends(cuf_scope_close(s));
}

/* ---- what is refused ---- */

static void refused(cuf_future *f, cuf_status st, const char *part, const char *what)
{
	cuf_error_info i;

	is_int(ends(f), st, "%s is refused", what);
	i = info_of(f);
	if (!ok(i.message && strstr(i.message, part) != NULL, "%s: the message says why", what))
		diag("%s", i.message ? i.message : "(none)");
	cuf_ignore(f);
}

static void check_refused(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *d = cuf_alloc(s, 1000);
	char *at = cuf_address(d), here[8] = "";
	float *x = (float *)at;
	size_t n = 1;
	cuf_grid many = { { 1, 1, 1 }, { 1024, 2, 1 }, { 0, 0, 0 }, 0, false };
	static const size_t bytes[] = { 8 };
	static const cuf_kernel no_twin = {
		.size = sizeof(cuf_kernel), .name = "untwinned", .n_args = 1, .arg_bytes = bytes
	};

	refused(cuf_copy(s, NULL, here, 4), CUF_ERR_INVALID, "destination", "a copy to NULL");
	refused(cuf_copy(s, here, NULL, 4), CUF_ERR_INVALID, "source", "a copy from NULL");
	refused(cuf_copy(s, at, here, SIZE_MAX), CUF_ERR_INVALID, "overflow", "a size that wraps");
	refused(cuf_fill(s, NULL, 0, 4), CUF_ERR_INVALID, "NULL", "a fill of NULL");
	refused(cuf_fill(s, at, 0, SIZE_MAX), CUF_ERR_INVALID, "overflow", "a fill that wraps");
	refused(cuf_launch(s, NULL, cuf_grid_1d(1, 1), CUF_NO_ARGS), CUF_ERR_INVALID, "kernel",
		"a NULL kernel");
	refused(cuf_launch(s, &add_one, cuf_grid_1d(0, 32), CUF_ARGS((int *)at, n)),
		CUF_ERR_INVALID, "0 blocks", "a grid of none");
	refused(cuf_launch(s, &add_one, cuf_grid_1d(1, 0), CUF_ARGS((int *)at, n)), CUF_ERR_INVALID,
		"0 blocks", "a block of none");
	refused(cuf_launch(s, &add_one, many, CUF_ARGS((int *)at, n)), CUF_ERR_INVALID, "threads",
		"a block too large");
	refused(cuf_launch(s, &add_one, cuf_grid_1d(1, 32), CUF_ARGS((int *)at)), CUF_ERR_INVALID,
		"2 arguments, given 1", "an argument too few");
	refused(cuf_launch(s, &scale, cuf_grid_1d(1, 32), CUF_ARGS(x, x, 2.0, n)), CUF_ERR_INVALID,
		"argument 3 of scale is 4 bytes, given 8", "an argument of the wrong size");
	if (on_host)
		refused(cuf_launch(s, &no_twin, cuf_grid_1d(1, 32), CUF_ARGS(at)),
			CUF_ERR_UNSUPPORTED, "untwinned", "a kernel without a twin");
	else
		skip(2, "a GPU needs no twin");
	refused(cuf_fill(s, at, 0, 4, .device = CUF_DEVICE(63)), CUF_ERR_INVALID, "63",
		"a device that is not there");
	refused(cuf_fill(s, at, 0, 4, .priority = 5), CUF_ERR_INVALID, "priority",
		"a priority that is none");
	refused(cuf_fill(s, at, 0, 4, .after = { 2, NULL }), CUF_ERR_INVALID, "list",
		"a count without a list");
	refused(cuf_enqueue(s, NULL, NULL), CUF_ERR_INVALID, "function", "an enqueue of NULL");
	if (on_host) {
		refused(cuf_fill(s, at, 0, 1001), CUF_ERR_INVALID, "allocation",
			"a fill past the end");
		refused(cuf_copy(s, at + 996, here, 8), CUF_ERR_INVALID, "allocation",
			"a copy past the end");
	} else {
		skip(4, "a GPU's pool rounds allocations up");
	}
	is_int(ends(cuf_fill(s, at + 996, 0, 4, .after = CUF_AFTER(d, NULL))), CUF_OK,
	       "and the device is healthy after all that");
	is_int(ends(cuf_scope_close(s)), CUF_OK, "their scope ends");
}

int main(void)
{
	static const size_t sizes[] = { 1, 7, 4096, 65536, 65537, (4 << 20) + 1, LARGE };
	int n = sizeof sizes / sizeof *sizes;

	RIG_START(.devices = 1);
	plan(n * 6 + 3 + 3 + 6 + 6 + 3 + 3 + 3 + 2 + 17 + 6 + 11 + 9 + 18 * 2 + 2 + 1 + 1);
	for (int i = 0; i < n; i++) {
		check_round_trip(sizes[i], false);
		check_round_trip(sizes[i], true);
	}
	check_mixed_sides();
	check_reads_late();
	check_pageable_returns();
	check_empty();
	check_fill();
	check_launch();
	check_args_copied();
	check_chains();
	check_memory();
	check_refused_chain();
	check_times();
	check_labels();
	check_refused();
	is_int(atomic_load(&unobserved), 0, "no error went unobserved");
	return rig_end();
}
