/* SPDX-License-Identifier: MIT */
/*
 * What the host device keeps for each thread (F6): current device and last-error slot; kernels and
 * their arguments; opening, and closing with everything left behind.
 */
#include "tap.h"
#include "unit/device_host.h"

/* ---- the thread's own ---- */

/* As cudaGetLastError(). */
static void empty_slot(void)
{
	struct cufi_device_guard g;

	ops->enter(cufi_host_current(), &g);
	g.slot_empty = true;
	ops->leave(&g);
}

static void *in_new_thread(void *arg)
{
	int *current = arg;

	*current = cufi_host_current();
	return NULL;
}

static void test_current(void)
{
	struct cufi_device_guard g, g2;
	struct CUstream_st *s1;
	pthread_t id;
	int current = -1;

	is_int(cufi_host_current(), 0, "a thread begins on device 0");
	is_int(ops->enter(1, &g), 0, "enters 1");
	is_int(cufi_host_current(), 1, "which is current");
	is_int(ops->enter(1, &g2), 0, "again");
	ok(!g2.pushed, "which changes nothing");
	ops->leave(&g2);
	is_int(cufi_host_current(), 1, "left once");
	pthread_create(&id, NULL, in_new_thread, &current);
	pthread_join(id, NULL);
	is_int(current, 0, "a new thread begins on 0 meanwhile");
	is_int(ops->stream_create(0, &s1), 0, "a stream");
	is_int(cufi_host_stream_device(s1), 1, "belongs to the current device");
	ops->leave(&g);
	is_int(cufi_host_current(), 0, "left twice");
	is_int(ops->enter(2, &g), CUFI_CODE_INVALID_DEVICE, "there is no device 2");
	is_int(ops->enter(-1, &g), CUFI_CODE_INVALID_DEVICE, "nor -1");
	is_int(cufi_host_current(), 0, "nothing was entered");
	is_int(ops->peek_error(), 0, "nor is there an error to be seen");
	ops->stream_destroy(s1);
}

static void test_slot(void)
{
	struct CUstream_st *s = new_stream(0);
	struct CUevent_st *e = new_event(0, false);
	struct cufi_device_guard g;

	is_int(ops->peek_error(), 0, "the slot is empty");
	cuf_host_stall(s, 1);
	ops->event_record(e, s);
	is_int(ops->event_query(e), CUFI_CODE_NOT_READY, "a query of what is pending");
	is_int(ops->peek_error(), CUFI_CODE_NOT_READY, "lands in the slot");
	is_int(ops->enter(0, &g), 0, "a success");
	is_int(ops->peek_error(), CUFI_CODE_NOT_READY, "does not empty it");
	ops->stream_query(NULL);
	is_int(ops->peek_error(), CUFI_CODE_INVALID_HANDLE, "the next error takes its place");
	ops->leave(&g);
	is_int(ops->peek_error(), CUFI_CODE_INVALID_HANDLE, "what was pending before stays");
	empty_slot();
	is_int(ops->peek_error(), 0, "get last error empties it");
	ops->enter(0, &g);
	is_int(ops->event_query(e), CUFI_CODE_NOT_READY, "inside");
	ops->leave(&g);
	is_int(ops->peek_error(), 0, "what was empty before is empty after");
	cuf_host_stall(s, 0);
	drain_event(e);
	empty_slot();
	ops->event_destroy(e);
	ops->stream_destroy(s);
}

/* ---- kernels ---- */

struct odd {
	char text[11];
};

static struct {
	int n;
	char a;
	double b;
	struct odd c;
	void *d;
	unsigned char e[200];
	uint32_t blocks;
	bool aligned;
} seen;

static void odd_kernel(const cuf_grid *grid, void *const *args)
{
	seen.n++;
	seen.a = *(const char *)args[0];
	seen.b = *(const double *)args[1];
	seen.c = *(const struct odd *)args[2];
	seen.d = *(void *const *)args[3];
	memcpy(seen.e, args[4], sizeof seen.e);
	seen.blocks = grid->blocks[0];
	seen.aligned = (uintptr_t)args[1] % 8 == 0 && (uintptr_t)args[3] % 8 == 0;
}

static const size_t odd_bytes[] = { 1, sizeof(double), sizeof(struct odd), sizeof(void *), 200 };
static const struct cuf_kernel odd = {
	.size = sizeof(struct cuf_kernel),
	.name = "odd",
	.host_fn = odd_kernel,
	.n_args = 5,
	.arg_bytes = odd_bytes,
};

static void test_kernel(void)
{
	struct CUstream_st *s = new_stream(0), *s1 = new_stream(1);
	struct cuf_kernel none = odd, many = odd;
	cuf_grid g = cuf_grid_1d(1000, 32), bad;
	size_t bytes[3] = { 0 };
	void *handle = NULL;
	struct hold h;
	int n = 0;
	char a = 'x';
	double b = 1.5;
	struct odd c = { "0123456789" };
	void *d = &n;
	unsigned char e[200];
	void *args[5] = { &a, &b, &c, &d, e };

	memset(e, 9, sizeof e);
	is_int(ops->kernel_load(&odd, &handle, bytes, 3, &n), 0, "a kernel loads");
	ok(n == 5 && bytes[0] == 1 && bytes[2] == 11,
	   "its sizes are told, as far as there is room");
	none.host_fn = NULL;
	is_int(ops->kernel_load(&none, &handle, bytes, 3, &n), CUFI_CODE_INVALID_FUNCTION,
	       "one with no twin does not");
	many.n_args = CUFI_HOST_ARGS + 1;
	is_int(ops->kernel_load(&many, &handle, bytes, 3, &n), CUFI_CODE_INVALID_VALUE,
	       "nor one with too many arguments");
	put_hold(s, &h);
	is_int(ops->launch(handle, &g, args, s), 0, "launched");
	a = 'y';
	b = 0;
	memset(&c, 0, sizeof c);
	memset(e, 0, sizeof e);
	d = NULL;
	memset(args, 0, sizeof args);
	atomic_store(&h.let_go, true);
	drain(s);
	is_int(seen.n, 1, "called once for all blocks");
	is_int((int)seen.blocks, 32, "with its grid");
	ok(seen.a == 'x' && seen.b == 1.5 && strcmp(seen.c.text, "0123456789") == 0 &&
		   seen.d == &n && seen.e[0] == 9 && seen.e[199] == 9,
	   "with the arguments of the call");
	ok(seen.aligned, "aligned");
	is_int(ops->launch(handle, &g, args, s1), CUFI_CODE_INVALID_HANDLE,
	       "not on a stream of a device that is not current");
	is_int(ops->launch(NULL, &g, args, s), CUFI_CODE_INVALID_FUNCTION, "no kernel");
	bad = g;
	bad.blocks[2] = 0;
	is_int(ops->launch(handle, &bad, args, s), 9, "no blocks");
	bad = g;
	bad.threads[1] = 33;
	is_int(ops->launch(handle, &bad, args, s), 9, "too many threads");
	is_int(ops->stream_query(s), 0, "nothing of that is on the stream");
	ops->stream_destroy(s);
	ops->stream_destroy(s1);
}

static void sum_fn(void *arg)
{
	unsigned char *bytes = arg;
	int i, sum = 0;

	for (i = 0; i < 1000; i++)
		sum += bytes[i];
	seen.n = sum;
}

static void test_enqueue(void)
{
	struct CUstream_st *s = new_stream(0);
	unsigned char bytes[1000];
	atomic_int n = 0;
	struct hold h;

	memset(bytes, 1, sizeof bytes);
	put_hold(s, &h);
	is_int(cuf_host_enqueue(s, sum_fn, bytes, sizeof bytes), 0, "a function, 1000 bytes");
	memset(bytes, 2, sizeof bytes);
	is_int(cuf_host_enqueue(s, bump_fn, &n, 0), 0, "a function, the pointer itself");
	is_int(cuf_host_enqueue(s, NULL, &n, 0), CUFI_CODE_INVALID_VALUE, "no function");
	is_int(cuf_host_enqueue(s, bump_fn, NULL, 8), CUFI_CODE_INVALID_VALUE, "no bytes to copy");
	atomic_store(&h.let_go, true);
	drain(s);
	is_int(seen.n, 1000, "the bytes were copied");
	is_int(atomic_load(&n), 1, "the pointer was handed on");
	ops->stream_destroy(s);
}

/* ---- opening and closing ---- */

static void test_open(void)
{
	struct cufi_device_info info;
	int n = 0;

	cuf_host_reset();
	ops = cufi_device_host();
	is_str(ops->name, "host", "name");
	is_int(ops->open(-1, &n), CUFI_CODE_INVALID_VALUE, "fewer than no devices");
	is_int(ops->open(CUFI_HOST_DEVICES + 1, &n), CUFI_CODE_INVALID_VALUE, "too many");
	is_int(ops->open(0, &n), 0, "opened");
	is_int(n, 1, "with one device unless told");
	is_int(ops->open(3, &n), 0, "opened again");
	is_int(n, 3, "with more");
	is_int(ops->device_open(3, &info), CUFI_CODE_INVALID_DEVICE, "there is no fourth");
	ok(!cufi_host_touched(0) && !cufi_host_touched(2), "none was touched so far");
	is_int(ops->device_open(2, &info), 0, "the third is there");
	ok(info.priority_low == 0 && info.priority_high == -5 && info.memory_bytes > 0 &&
		   info.multiprocessors > 0 && strcmp(info.name, "host device 2") == 0,
	   "and says what it is");
	ok(!cufi_host_touched(0) && cufi_host_touched(2), "it alone was touched");
	ops->device_close(2);
	ops->close();
	is_int(ops->device_open(1, &info), 0, "closed once of twice");
	ops->close();
	is_int(ops->device_open(0, &info), CUFI_CODE_INVALID_DEVICE, "closed for good");
	ops->close();
	is_str(ops->code_name(700), "cudaErrorIllegalAddress", "a code's name");
	is_str(ops->code_text(2), "out of memory", "a code's text");
	is_str(ops->code_name(123456), "cudaErrorUnrecognized", "a name for what is none");
	ok(ops->is_sticky(700) && ops->is_sticky(719) && !ops->is_sticky(2) && !ops->is_sticky(600),
	   "sticky codes");
}

static void never(void *arg)
{
	(void)arg;
	abort();
}

static void sleep_fn(void *arg)
{
	(void)arg;
	sleep_ms(20);
}

/*
 * Closed with streams stalled, waiting, in a kernel, in a host function; events, memory,
 * kernels.
 */
static void test_close(void)
{
	uint64_t start_ns = cufi_now_ns();
	int round, i, n, failed = 0;
	atomic_int n_run = 0;

	for (round = 0; round < 5; round++) {
		struct CUstream_st *s[6];
		struct CUevent_st *e;
		struct cufi_device_guard g;
		void *p, *handle;
		size_t bytes[5];
		char text[500] = { 0 };

		open_devices(2);
		ops->enter(0, &g);
		for (i = 0; i < 6; i++)
			s[i] = new_stream(0);
		e = new_event(0, true);
		cuf_host_stall(s[0], 1);
		failed += cuf_host_enqueue(s[0], never, text, sizeof text) != 0;
		failed += ops->event_record(e, s[0]) != 0;
		failed += ops->stream_wait(s[1], e) != 0;
		failed += cuf_host_enqueue(s[1], never, NULL, 0) != 0;
		failed += cuf_host_enqueue(s[2], sleep_fn, NULL, 0) != 0;
		failed += ops->host_func(s[3], sleep_fn, NULL) != 0;
		failed += ops->host_func(s[4], sleep_fn, NULL) != 0;
		failed += ops->malloc_async(100000, s[5], &p) != 0;
		failed += ops->fill(p, 1, 100000, s[5]) != 0;
		failed += ops->copy(p, text, sizeof text, s[0]) != 0;
		failed += ops->free_async(p, s[0]) != 0;
		failed += ops->malloc_async(100000, s[0], &p) != 0;
		failed += ops->pinned_alloc(100000, &p) != 0;
		failed += ops->kernel_load(&odd, &handle, bytes, 5, &n) != 0;
		failed += ops->event_destroy(e) != 0;
		failed += ops->stream_destroy(s[0]) != 0;
		failed += ops->stream_destroy(s[1]) != 0;
		if (round == 1)
			cuf_host_slow(UINT64_C(30000000000));
		if (round == 2)
			cuf_host_func_mode(CUF_HOST_FUNC_DELAY, UINT64_C(30000000000));
		if (round >= 1)
			failed += put_count(s[5], &n_run) != 0;
		ops->host_func(s[5], sleep_fn, NULL);
		if (round == 3)
			sleep_ms(10);
		ops->leave(&g);
		close_devices(2);
	}
	is_int(failed, 0, "everything was left behind");
	ok(cufi_now_ns() - start_ns < UINT64_C(20000000000), "and closing waited for none of it");
	open_devices(1);
	is_int(drain(new_stream(0)), 0, "opened anew");
	close_devices(1);
}

int main(void)
{
	plan(65);
	test_open();
	open_devices(2);
	empty_slot();
	test_current();
	test_slot();
	test_kernel();
	test_enqueue();
	close_devices(2);
	test_close();
	return done();
}
