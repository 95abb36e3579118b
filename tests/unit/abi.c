/* SPDX-License-Identifier: MIT */
/*
 * What programs were compiled against and must not change: values of the public enums, sizes and
 * offsets of the public structures on LP64, and what the macros make of their arguments. Each
 * public macro is used here. The functions behind the option macros are replaced by spies of this
 * file, so that it can be seen what reaches them.
 */
#define cuf_scope_open_with	spy_scope_open
#define cuf_copy_with		spy_copy
#define cuf_fill_with		spy_fill
#define cuf_alloc_with		spy_alloc
#define cuf_free_with		spy_free
#define cuf_launch_with		spy_launch
#define cuf_enqueue_with	spy_enqueue
#define cuf_call_with		spy_call
#define cuf_then_with		spy_then
#define cuf_catch_with		spy_catch
#define cuf_finally_with	spy_finally
#define cuf_watch_with		spy_watch
#define cuf_all_with		spy_all
#define cuf_any_with		spy_any
#define cuf_timeout_with	spy_timeout
#define cuf_room_with		spy_room
#define cuf_promise_create_with spy_promise_create
#define cuf_failed_at		spy_failed
#define cuf_release		spy_release
#define cuf_release_n		spy_release_n

#include "cufuture.h"
#include "cufuture/host.h"
#include "tap.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- frozen numbers ---- */

struct row {
	const char *name;
	long long got, want;
};

/* clang-format off */
#define VALUE(name, want) { #name, name, want }
#define SIZE(type, want) { "sizeof " #type, sizeof(type), want }
#define FIELD(type, field, want) { #type "." #field, offsetof(type, field), want }

static const struct row values[] = {
	VALUE(CUF_PENDING, 1),
	VALUE(CUF_OK, 0),
	VALUE(CUF_ERR_INVALID, -1),
	VALUE(CUF_ERR_NO_MEMORY, -2),
	VALUE(CUF_ERR_DEVICE, -3),
	VALUE(CUF_ERR_DEVICE_LOST, -4),
	VALUE(CUF_ERR_CANCELLED, -5),
	VALUE(CUF_ERR_TIMED_OUT, -6),
	VALUE(CUF_ERR_BROKEN, -7),
	VALUE(CUF_ERR_WOULD_DEADLOCK, -8),
	VALUE(CUF_ERR_SHUTDOWN, -9),
	VALUE(CUF_ERR_FORKED, -10),
	VALUE(CUF_ERR_BUSY, -11),
	VALUE(CUF_ERR_USER, -12),
	VALUE(CUF_ERR_TOO_LATE, -13),
	VALUE(CUF_ERR_NOT_ENQUEUED, -14),
	VALUE(CUF_ERR_UNSUPPORTED, -15),
	VALUE(CUF_LOW, -1),
	VALUE(CUF_NORMAL, 0),
	VALUE(CUF_HIGH, 1),
	VALUE(CUF_PHASE_SUBMIT, 0),
	VALUE(CUF_PHASE_ENQUEUE, 1),
	VALUE(CUF_PHASE_EXECUTE, 2),
	VALUE(CUF_BALANCED, 0),
	VALUE(CUF_LATENCY, 1),
	VALUE(CUF_POWER, 2),
	VALUE(CUF_DRAIN, 0),
	VALUE(CUF_ABANDON, 1),
	VALUE(CUF_HOST_ANY, 0),
	VALUE(CUF_HOST_STREAM_CREATE, 1),
	VALUE(CUF_HOST_EVENT_CREATE, 2),
	VALUE(CUF_HOST_RECORD, 3),
	VALUE(CUF_HOST_WAIT, 4),
	VALUE(CUF_HOST_EVENT_QUERY, 5),
	VALUE(CUF_HOST_STREAM_QUERY, 6),
	VALUE(CUF_HOST_LAUNCH, 7),
	VALUE(CUF_HOST_COPY, 8),
	VALUE(CUF_HOST_FILL, 9),
	VALUE(CUF_HOST_MALLOC, 10),
	VALUE(CUF_HOST_FREE, 11),
	VALUE(CUF_HOST_FUNC, 12),
	VALUE(CUF_HOST_PINNED_ALLOC, 13),
	VALUE(CUF_HOST_PINNED_FREE, 14),
	VALUE(CUF_HOST_KERNEL_LOAD, 15),
	VALUE(CUF_HOST_FUNC_NORMAL, 0),
	VALUE(CUF_HOST_FUNC_DROP, 1),
	VALUE(CUF_HOST_FUNC_DELAY, 2),
	VALUE(CUF_HOST_FUNC_AFTER_FAULT, 3),
};

/*
 * A field added later goes behind the size given here, never into padding at the end: older callers
 * do not set that to zero.
 */
static const struct row layout[] = {
	SIZE(cuf_list, 16),
	FIELD(cuf_list, n, 0),
	FIELD(cuf_list, at, 8),
	SIZE(cuf_options, 128),
	FIELD(cuf_options, size, 0),
	FIELD(cuf_options, after, 8),
	FIELD(cuf_options, take, 24),
	FIELD(cuf_options, after_settled, 40),
	FIELD(cuf_options, on, 56),
	FIELD(cuf_options, device, 64),
	FIELD(cuf_options, priority, 68),
	FIELD(cuf_options, exclusive, 72),
	FIELD(cuf_options, timing, 73),
	FIELD(cuf_options, eager_peer, 74),
	FIELD(cuf_options, weight, 76),
	FIELD(cuf_options, label, 80),
	FIELD(cuf_options, arg_bytes, 88),
	FIELD(cuf_options, drop, 96),
	FIELD(cuf_options, key, 104),
	FIELD(cuf_options, file, 112),
	FIELD(cuf_options, line, 120),
	SIZE(cuf_error_info, 104),
	FIELD(cuf_error_info, size, 0),
	FIELD(cuf_error_info, status, 8),
	FIELD(cuf_error_info, cuda_code, 12),
	FIELD(cuf_error_info, user_code, 16),
	FIELD(cuf_error_info, phase, 20),
	FIELD(cuf_error_info, operation, 24),
	FIELD(cuf_error_info, label, 32),
	FIELD(cuf_error_info, file, 40),
	FIELD(cuf_error_info, message, 48),
	FIELD(cuf_error_info, line, 56),
	FIELD(cuf_error_info, device, 60),
	FIELD(cuf_error_info, lane, 64),
	FIELD(cuf_error_info, seq, 72),
	FIELD(cuf_error_info, inherited, 80),
	FIELD(cuf_error_info, outcome_unknown, 81),
	FIELD(cuf_error_info, root, 88),
	FIELD(cuf_error_info, n_suspects, 96),
	SIZE(cuf_runtime_options, 120),
	FIELD(cuf_runtime_options, size, 0),
	FIELD(cuf_runtime_options, backend, 8),
	FIELD(cuf_runtime_options, devices, 16),
	FIELD(cuf_runtime_options, mode, 20),
	FIELD(cuf_runtime_options, workers, 24),
	FIELD(cuf_runtime_options, lanes, 28),
	FIELD(cuf_runtime_options, cap, 32),
	FIELD(cuf_runtime_options, cap_bytes, 40),
	FIELD(cuf_runtime_options, reserve, 48),
	FIELD(cuf_runtime_options, pinned_bytes, 56),
	FIELD(cuf_runtime_options, stack_bytes, 64),
	FIELD(cuf_runtime_options, affinity_bytes, 72),
	FIELD(cuf_runtime_options, affinity, 80),
	FIELD(cuf_runtime_options, on_unobserved, 88),
	FIELD(cuf_runtime_options, on_device_lost, 96),
	FIELD(cuf_runtime_options, on_log, 104),
	FIELD(cuf_runtime_options, arg, 112),
	SIZE(cuf_stats, 128),
	FIELD(cuf_stats, size, 0),
	FIELD(cuf_stats, operations, 8),
	FIELD(cuf_stats, events, 16),
	FIELD(cuf_stats, depth_marks, 24),
	FIELD(cuf_stats, waits, 32),
	FIELD(cuf_stats, waits_elided, 40),
	FIELD(cuf_stats, arms, 48),
	FIELD(cuf_stats, callbacks, 56),
	FIELD(cuf_stats, queries, 64),
	FIELD(cuf_stats, parks, 72),
	FIELD(cuf_stats, wakes, 80),
	FIELD(cuf_stats, continuations, 88),
	FIELD(cuf_stats, allocations, 96),
	FIELD(cuf_stats, succeeded, 104),
	FIELD(cuf_stats, failed, 112),
	FIELD(cuf_stats, cancelled, 120),
	SIZE(cuf_scope_options, 56),
	FIELD(cuf_scope_options, size, 0),
	FIELD(cuf_scope_options, on, 8),
	FIELD(cuf_scope_options, device, 16),
	FIELD(cuf_scope_options, priority, 20),
	FIELD(cuf_scope_options, reserve, 24),
	FIELD(cuf_scope_options, label, 32),
	FIELD(cuf_scope_options, file, 40),
	FIELD(cuf_scope_options, line, 48),
	SIZE(cuf_times, 24),
	FIELD(cuf_times, submitted_ns, 0),
	FIELD(cuf_times, started_ns, 8),
	FIELD(cuf_times, ended_ns, 16),
	SIZE(cuf_grid, 56),
	FIELD(cuf_grid, blocks, 0),
	FIELD(cuf_grid, threads, 12),
	FIELD(cuf_grid, cluster, 24),
	FIELD(cuf_grid, shared_bytes, 40),
	FIELD(cuf_grid, cooperative, 48),
	SIZE(cuf_args, 24),
	FIELD(cuf_args, n, 0),
	FIELD(cuf_args, at, 8),
	FIELD(cuf_args, bytes, 16),
	SIZE(cuf_kernel, 56),
	FIELD(cuf_kernel, size, 0),
	FIELD(cuf_kernel, name, 8),
	FIELD(cuf_kernel, image, 16),
	FIELD(cuf_kernel, device_fn, 24),
	FIELD(cuf_kernel, host_fn, 32),
	FIELD(cuf_kernel, n_args, 40),
	FIELD(cuf_kernel, arg_bytes, 48),
	SIZE(cuf_event, 16),
	FIELD(cuf_event, token, 0),
	FIELD(cuf_event, status, 8),
};
/* clang-format on */

static void check_rows(const struct row *r, int n)
{
	for (int i = 0; i < n; i++)
		is_int(r[i].got, r[i].want, "%s is %lld", r[i].name, r[i].want);
}

/* ---- spies: what the last call was given ---- */

static struct seen {
	const char *call;
	cuf_scope *s;
	cuf_future *f;
	const void *fn, *arg, *dst;
	size_t bytes;
	cuf_list list;
	cuf_args args;
	cuf_grid grid;
	cuf_options o;
	cuf_scope_options so;
	char text[64];
	int code;
} seen;

static char handles[8];
#define SCOPE	  ((cuf_scope *)&handles[0])
#define RESULT	  ((cuf_future *)&handles[1])
#define FUTURE(i) ((cuf_future *)&handles[2 + (i)])

static cuf_future *note(const char *call, cuf_scope *s, const cuf_options *o)
{
	memset(&seen, 0, sizeof seen);
	seen.call = call;
	seen.s = s;
	seen.o = *o;
	return RESULT;
}

cuf_scope *spy_scope_open(cuf_scope *parent, const cuf_scope_options *o)
{
	memset(&seen, 0, sizeof seen);
	seen.call = "scope_open";
	seen.so = *o;
	return parent;
}

cuf_future *spy_copy(cuf_scope *s, void *dst, const void *src, size_t bytes, const cuf_options *o)
{
	note("copy", s, o);
	seen.dst = dst;
	seen.arg = src;
	seen.bytes = bytes;
	return RESULT;
}

cuf_future *spy_fill(cuf_scope *s, void *dst, int byte, size_t bytes, const cuf_options *o)
{
	note("fill", s, o);
	seen.dst = dst;
	seen.code = byte;
	seen.bytes = bytes;
	return RESULT;
}

cuf_future *spy_alloc(cuf_scope *s, size_t bytes, const cuf_options *o)
{
	note("alloc", s, o);
	seen.bytes = bytes;
	return RESULT;
}

cuf_future *spy_free(cuf_scope *s, void *ptr, const cuf_options *o)
{
	note("free", s, o);
	seen.dst = ptr;
	return RESULT;
}

cuf_future *spy_launch(cuf_scope *s, const cuf_kernel *k, cuf_grid g, cuf_args a,
		       const cuf_options *o)
{
	note("launch", s, o);
	seen.arg = k;
	seen.grid = g;
	seen.args = a;
	return RESULT;
}

cuf_future *spy_enqueue(cuf_scope *s, cuf_enqueue_fn *fn, void *arg, const cuf_options *o)
{
	note("enqueue", s, o);
	seen.bytes = (size_t)fn(NULL, arg);
	seen.arg = arg;
	return RESULT;
}

cuf_future *spy_call(cuf_scope *s, cuf_then_fn *fn, void *arg, const cuf_options *o)
{
	note("call", s, o);
	seen.f = fn(s, NULL, arg);
	seen.arg = arg;
	return RESULT;
}

static cuf_future *continuation(const char *call, cuf_scope *s, cuf_future *f, cuf_then_fn *fn,
				void *arg, const cuf_options *o)
{
	note(call, s, o);
	seen.f = fn(s, f, arg);
	seen.arg = arg;
	return RESULT;
}

cuf_future *spy_then(cuf_scope *s, cuf_future *f, cuf_then_fn *fn, void *arg, const cuf_options *o)
{
	return continuation("then", s, f, fn, arg, o);
}

cuf_future *spy_catch(cuf_scope *s, cuf_future *f, cuf_then_fn *fn, void *arg, const cuf_options *o)
{
	return continuation("catch", s, f, fn, arg, o);
}

cuf_future *spy_finally(cuf_scope *s, cuf_future *f, cuf_then_fn *fn, void *arg,
			const cuf_options *o)
{
	return continuation("finally", s, f, fn, arg, o);
}

void spy_watch(cuf_scope *s, cuf_future *f, cuf_watch_fn *fn, void *arg, const cuf_options *o)
{
	note("watch", s, o);
	fn(f, arg);
	seen.arg = arg;
}

cuf_future *spy_all(cuf_scope *s, cuf_list l, const cuf_options *o)
{
	note("all", s, o);
	seen.list = l;
	return RESULT;
}

cuf_future *spy_any(cuf_scope *s, cuf_list l, const cuf_options *o)
{
	note("any", s, o);
	seen.list = l;
	return RESULT;
}

cuf_future *spy_timeout(cuf_scope *s, cuf_future *f, uint64_t deadline_ns, const cuf_options *o)
{
	note("timeout", s, o);
	seen.f = f;
	seen.bytes = deadline_ns;
	return RESULT;
}

cuf_future *spy_room(cuf_scope *s, size_t operations, const cuf_options *o)
{
	note("room", s, o);
	seen.bytes = operations;
	return RESULT;
}

cuf_promise *spy_promise_create(cuf_scope *s, cuf_future **out_future, const cuf_options *o)
{
	*out_future = note("promise", s, o);
	return NULL;
}

cuf_future *spy_failed(cuf_scope *s, const char *file, int line, int code, const char *fmt, ...)
{
	const cuf_options o = { .file = file, .line = line };
	va_list ap;

	note("failed", s, &o);
	seen.code = code;
	va_start(ap, fmt);
	vsnprintf(seen.text, sizeof seen.text, fmt, ap);
	va_end(ap);
	return RESULT;
}

static int released;
static cuf_future *last_released;

void spy_release(cuf_future *f)
{
	released++;
	last_released = f;
}

void spy_release_n(cuf_future *const *f, size_t n)
{
	for (size_t i = 0; i < n; i++)
		spy_release(f[i]);
}

/* ---- the option macros ---- */

static cuf_future *pass(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)arg;
	return in;
}

static int number(struct CUstream_st *stream, void *arg)
{
	(void)stream;
	return *(int *)arg;
}

static void watcher(cuf_future *f, void *arg)
{
	(void)arg;
	seen.f = f;
}

/* The call, its owner, and the fields that the macros fill in themselves. */
static bool came(const char *call, int line)
{
	return !strcmp(seen.call, call) && seen.s == SCOPE && seen.o.size == sizeof(cuf_options) &&
	       seen.o.file && !strcmp(seen.o.file, __FILE__) && seen.o.line == line;
}

/* Everything that was not named is zero. */
static bool bare(void)
{
	return !seen.o.after.n && !seen.o.take.n && !seen.o.after_settled.n && !seen.o.on &&
	       !seen.o.device && !seen.o.priority && !seen.o.exclusive && !seen.o.timing &&
	       !seen.o.eager_peer && !seen.o.weight && !seen.o.label && !seen.o.arg_bytes &&
	       !seen.o.drop && !seen.o.key;
}

static void check_operation_macros(void)
{
	static const cuf_kernel kernel = { .size = sizeof kernel, .name = "none" };
	int x = 7, y = 0;

	ok(cuf_copy(SCOPE, &x, &y, sizeof x) == RESULT && came("copy", __LINE__), "cuf_copy");
	ok(bare() && seen.dst == &x && seen.arg == &y && seen.bytes == 4, "its arguments, bare");
	cuf_copy(SCOPE, &x, &y, 1, .after = CUF_AFTER(FUTURE(0), FUTURE(1)), .label = "in");
	ok(seen.o.after.n == 2 && seen.o.after.at[1] == FUTURE(1) && !strcmp(seen.o.label, "in"),
	   "its options");
	cuf_fill(SCOPE, &x, 255, sizeof x, .priority = CUF_HIGH), y = __LINE__;
	ok(came("fill", y) && seen.code == 255 && seen.bytes == 4 && seen.o.priority == 1,
	   "cuf_fill");
	cuf_alloc(SCOPE, 3 * sizeof x), y = __LINE__;
	ok(came("alloc", y) && seen.bytes == 12 && bare(), "cuf_alloc");
	cuf_alloc(SCOPE, 8, .device = CUF_DEVICE(0), .exclusive = true);
	ok(seen.bytes == 8 && seen.o.device == 1 && seen.o.exclusive, "its options");
	cuf_free(SCOPE, &x, .take = CUF_AFTER(FUTURE(2))), y = __LINE__;
	ok(came("free", y) && seen.dst == &x && seen.o.take.n == 1, "cuf_free");
	cuf_launch(SCOPE, &kernel, cuf_grid_1d(100, 32), CUF_ARGS(x, y)), y = __LINE__;
	ok(came("launch", y) && bare() && seen.arg == &kernel, "cuf_launch");
	ok(seen.grid.blocks[0] == 4 && seen.args.n == 2 && seen.args.bytes[0] == 4,
	   "its grid and arguments");
	cuf_launch(SCOPE, &kernel, cuf_grid_1d(1, 1), CUF_NO_ARGS, .timing = true, .eager_peer = 1);
	ok(!seen.args.n && seen.o.timing && seen.o.eager_peer, "its options");
	cuf_enqueue(SCOPE, number, &x, .weight = 9, .key = &x), y = __LINE__;
	ok(came("enqueue", y) && seen.bytes == 7 && seen.arg == &x && seen.o.weight == 9 &&
		   seen.o.key == &x,
	   "cuf_enqueue");
	cuf_call(SCOPE, pass, &x, .arg_bytes = sizeof x), y = __LINE__;
	ok(came("call", y) && seen.arg == &x && seen.o.arg_bytes == 4, "cuf_call");
}

static void check_future_macros(void)
{
	cuf_future *f = FUTURE(0), *out = NULL, *list[] = { FUTURE(0), NULL, FUTURE(1) };
	int x = 0, line;

	cuf_then(SCOPE, f, pass, &x), line = __LINE__;
	ok(came("then", line) && bare() && seen.f == f && seen.arg == &x, "cuf_then");
	cuf_catch(SCOPE, f, pass, &x, .drop = free), line = __LINE__;
	ok(came("catch", line) && seen.f == f && seen.o.drop == free, "cuf_catch");
	cuf_finally(SCOPE, f, pass, NULL, .on = NULL), line = __LINE__;
	ok(came("finally", line) && seen.f == f && !seen.arg, "cuf_finally");
	cuf_watch(SCOPE, f, watcher, &x, .label = "w"), line = __LINE__;
	ok(came("watch", line) && seen.f == f && seen.arg == &x, "cuf_watch");

	cuf_all(SCOPE, FUTURE(0), NULL, FUTURE(1)), line = __LINE__;
	ok(came("all", line) && seen.list.n == 3 && !seen.list.at[1],
	   "cuf_all counts NULL entries");
	cuf_any(SCOPE, FUTURE(3)), line = __LINE__;
	ok(came("any", line) && seen.list.n == 1 && seen.list.at[0] == FUTURE(3), "cuf_any");
	cuf_all_n(SCOPE, CUF_AFTER_N(list, 3)), line = __LINE__;
	ok(came("all", line) && seen.list.n == 3 && seen.list.at == list, "cuf_all_n");
	cuf_any_n(SCOPE, CUF_AFTER_N(list, 2)), line = __LINE__;
	ok(came("any", line) && seen.list.n == 2 && seen.list.at == list, "cuf_any_n");
	cuf_timeout(SCOPE, f, CUF_MS(3)), line = __LINE__;
	ok(came("timeout", line) && seen.f == f && seen.bytes == 3000000, "cuf_timeout");
	cuf_room(SCOPE, 5), line = __LINE__;
	ok(came("room", line) && seen.bytes == 5, "cuf_room");
	cuf_promise_create(SCOPE, &out), line = __LINE__;
	ok(came("promise", line) && out == RESULT, "cuf_promise_create");
	cuf_failed(SCOPE, 42, "%s %d", "code", 42), line = __LINE__;
	ok(!strcmp(seen.call, "failed") && seen.o.line == line && !strcmp(seen.o.file, __FILE__),
	   "cuf_failed says where");
	ok(seen.code == 42 && !strcmp(seen.text, "code 42"), "cuf_failed says what");

	released = 0;
	cuf_release_all(FUTURE(0), NULL, FUTURE(2));
	ok(released == 3 && last_released == FUTURE(2), "cuf_release_all");
	{
		cuf_auto mine = FUTURE(1);

		ok(mine == FUTURE(1) && released == 3, "cuf_auto holds it in its block");
	}
	ok(released == 4 && last_released == FUTURE(1), "cuf_auto releases it behind");
}

/* Exported and checked, as a function of the headers would be. */
CUF_API CUF_MUST_USE int abi_declared(void);
int abi_declared(void)
{
	return 1;
}

static void check_other_macros(void)
{
	int line;

	ok(cuf_scope_open(SCOPE) == SCOPE && !strcmp(seen.call, "scope_open"), "cuf_scope_open");
	ok(seen.so.size == sizeof(cuf_scope_options) && !seen.so.on && !seen.so.device &&
		   !seen.so.priority && !seen.so.reserve && !seen.so.label,
	   "bare");
	cuf_scope *s = cuf_scope_open(SCOPE, .reserve = 6, .label = "request", .priority = CUF_LOW);

	line = __LINE__ - 2;
	ok(s == SCOPE && seen.so.reserve == 6 && !strcmp(seen.so.label, "request") &&
		   seen.so.priority == -1 && seen.so.line == line &&
		   !strcmp(seen.so.file, __FILE__),
	   "its options");

	const cuf_options *o = CUF_OPTIONS(.weight = 3, .label = "x");
	const cuf_options *here = CUF_HERE;

	ok(o->size == sizeof *o && o->weight == 3 && o->line == __LINE__ - 3, "CUF_OPTIONS");
	ok(here->size == sizeof *here && !here->weight && here->line == __LINE__ - 3, "CUF_HERE");
	is_int((long long)CUF_LIST(FUTURE(0)).n, 1, "CUF_LIST of one");
	ok(CUF_LIST(FUTURE(0), NULL).at[0] == FUTURE(0), "CUF_LIST keeps the order");
	is_int((long long)CUF_AFTER(FUTURE(0), NULL, FUTURE(1), FUTURE(2)).n, 4,
	       "CUF_AFTER of four");
	is_int((long long)CUF_AFTER_N(NULL, 0).n, 0, "CUF_AFTER_N of none");

	is_int(CUF_DEVICE(0), 1, "CUF_DEVICE(0) is not 0");
	is_int((long long)CUF_MS(1), 1000000, "CUF_MS(1)");
	ok(CUF_MS(10000000) == (uint64_t)10000000 * 1000000, "CUF_MS does not wrap at 32 bits");
	ok(CUF_FOREVER == UINT64_MAX, "CUF_FOREVER");
	ok(CUF_VERSION_MAJOR == 0 && CUF_VERSION_MINOR == 1 && CUF_VERSION_PATCH == 0,
	   "the version");
	is_int(abi_declared(), 1, "CUF_API and CUF_MUST_USE");
	is_int(CUF_HOST_CALLS, 16, "so many kinds of host device call");
}

/* ---- CUF_ARGS ---- */

struct five {
	char c[5];
};

static void check_args(void)
{
	float array[4] = { 0 };
	const double constant = 1.5;
	struct five five = { "abcd" };
	unsigned char byte = 200;
	size_t n = 9;
	int i = 0;

	cuf_args a = CUF_ARGS(i++);

	ok(a.n == 1 && a.bytes[0] == sizeof(int) && i == 1, "an argument is evaluated once");
	is_int(*(const int *)a.at[0], 0, "its value is copied");
	a = CUF_ARGS(array, array + 1, 2.0f, n);
	ok(a.n == 4 && a.bytes[0] == sizeof(float *) && a.bytes[1] == sizeof(float *) &&
		   a.bytes[2] == sizeof(float) && a.bytes[3] == sizeof(size_t),
	   "an array is a pointer, 2.0f a float");
	ok(*(float *const *)a.at[0] == array && *(float *const *)a.at[1] == array + 1 &&
		   *(const size_t *)a.at[3] == 9,
	   "values");
	a = CUF_ARGS(constant, five, byte, "text", (char)1, 2.0, true);
	ok(a.n == 7 && a.bytes[0] == 8 && a.bytes[1] == 5 && a.bytes[2] == 1 &&
		   a.bytes[3] == sizeof(char *) && a.bytes[4] == 1 && a.bytes[5] == 8,
	   "constants, structures, small types");
	ok(*(const double *)a.at[0] == 1.5 && ((const struct five *)a.at[1])->c[3] == 'd' &&
		   *(const unsigned char *)a.at[2] == 200 &&
		   !strcmp(*(char *const *)a.at[3], "text"),
	   "values");
#define IS_N(count, ...)                                     \
	a = CUF_ARGS(__VA_ARGS__);                           \
	ok(a.n == (count) && *(const int *)a.at[0] == 1 &&   \
		   *(const int *)a.at[(count)-1] == (count), \
	   "%d arguments", count)
	IS_N(1, 1);
	IS_N(2, 1, 2);
	IS_N(3, 1, 2, 3);
	IS_N(4, 1, 2, 3, 4);
	IS_N(5, 1, 2, 3, 4, 5);
	IS_N(6, 1, 2, 3, 4, 5, 6);
	IS_N(7, 1, 2, 3, 4, 5, 6, 7);
	IS_N(8, 1, 2, 3, 4, 5, 6, 7, 8);
	IS_N(9, 1, 2, 3, 4, 5, 6, 7, 8, 9);
	IS_N(10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
	IS_N(11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
	IS_N(12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
	a = CUF_NO_ARGS;
	ok(!a.n && !a.at && !a.bytes, "CUF_NO_ARGS");
}

/* ---- cuf_grid_1d ---- */

static void check_grid(void)
{
	static const struct {
		size_t n;
		uint32_t threads, blocks;
	} cases[] = {
		{ 0, 256, 0 },
		{ 1, 256, 1 },
		{ 255, 256, 1 },
		{ 256, 256, 1 },
		{ 257, 256, 2 },
		{ 1000, 1, 1000 },
		{ 10, 0, 0 },
		{ 0, 0, 0 },
		{ INT32_MAX, 1, INT32_MAX },
		{ (size_t)INT32_MAX + 1, 1, 0 },
		{ (size_t)INT32_MAX * 256, 256, INT32_MAX },
		{ (size_t)INT32_MAX * 256 + 1, 256, 0 },
		{ SIZE_MAX, 1, 0 },
		{ SIZE_MAX, 1024, 0 },
		{ SIZE_MAX, UINT32_MAX, 0 },
	};

	for (int i = 0; i < COUNT(cases); i++) {
		cuf_grid g = cuf_grid_1d(cases[i].n, cases[i].threads);

		is_int(g.blocks[0], cases[i].blocks, "%zu elements, %u threads: %u blocks",
		       cases[i].n, cases[i].threads, cases[i].blocks);
	}
	cuf_grid g = cuf_grid_1d(1000, 128);

	ok(g.blocks[1] == 1 && g.blocks[2] == 1 && g.threads[0] == 128 && g.threads[1] == 1 &&
		   g.threads[2] == 1,
	   "one in y and z");
	ok(!g.cluster[0] && !g.cluster[1] && !g.cluster[2] && !g.shared_bytes && !g.cooperative,
	   "no cluster, no shared memory, not cooperative");
}

int main(void)
{
	plan(COUNT(values) + COUNT(layout) + 12 + 16 + 16 + 19 + 17);
	check_rows(values, COUNT(values));
	if (sizeof(void *) == 8 && sizeof(long) == 8)
		check_rows(layout, COUNT(layout));
	else
		skip(COUNT(layout), "the layout is frozen on LP64");
	check_operation_macros();
	check_future_macros();
	check_other_macros();
	check_args();
	check_grid();
	return done();
}
