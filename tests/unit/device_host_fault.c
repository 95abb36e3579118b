/* SPDX-License-Identifier: MIT */
/*
 * Faults of the host device: sticky (F1), seen only when nothing runs any more; calls told to
 * fail.
 */
#include "tap.h"
#include "unit/device_host.h"

static void never(void *arg)
{
	(void)arg;
	abort();
}

static void fault_fn(void *arg)
{
	cuf_host_fault(*(int *)arg);
}

/* Every call of the table on a device that is lost with @code. */
static int count_other_codes(struct CUstream_st *s, struct CUevent_st *e, void *mem, void *pinned,
			     int code)
{
	struct cufi_device_info info;
	struct cufi_device_guard g;
	struct CUstream_st *s2;
	struct CUevent_st *e2;
	int wrong = 0, n;
	size_t bytes[1];
	uint64_t ns;
	void *p;

	wrong += ops->stream_create(0, &s2) != code;
	wrong += ops->stream_query(s) != code;
	wrong += ops->stream_wait(s, e) != code;
	wrong += ops->host_func(s, never, NULL) != code;
	wrong += ops->event_create(false, &e2) != code;
	wrong += ops->event_record(e, s) != code;
	wrong += ops->event_query(e) != code;
	wrong += ops->event_elapsed_ns(e, e, &ns) != code;
	wrong += ops->copy(mem, pinned, 16, s) != code;
	wrong += ops->fill(mem, 0, 16, s) != code;
	wrong += ops->kernel_load(NULL, &p, bytes, 1, &n) != code;
	wrong += ops->launch(NULL, NULL, NULL, s) != code;
	wrong += ops->malloc_async(16, s, &p) != code;
	wrong += ops->free_async(mem, s) != code;
	wrong += ops->pinned_alloc(16, &p) != code;
	wrong += ops->device_open(0, &info) != code;
	wrong += cuf_host_enqueue(s, never, NULL, 0) != code;
	wrong += ops->enter(0, &g) != 0; /* it is current already */
	wrong += ops->peek_error() != code;
	return wrong;
}

static void test_sticky(void)
{
	struct CUstream_st *s, *stalled, *waits, *other, *stalled1, *through, *behind;
	struct CUevent_st *e, *on_stalled, *on_stalled1, *on_through;
	void *mem, *pinned;
	atomic_int n = 0, after = 0;
	struct cufi_device_guard g;

	open_devices(2);
	s = new_stream(0);
	stalled = new_stream(0);
	waits = new_stream(1);
	other = new_stream(1);
	e = new_event(0, false);
	on_stalled = new_event(0, false);
	ops->malloc_async(4096, s, &mem);
	ops->pinned_alloc(4096, &pinned);
	ops->event_record(e, s);
	drain(s);
	cuf_host_stall(stalled, 1);
	cuf_host_enqueue(stalled, never, NULL, 0);
	ops->event_record(on_stalled, stalled);
	ops->stream_wait(waits, on_stalled);
	put_count(waits, &n);
	/* A stream of the device to be lost waits for another device, and that for it. */
	stalled1 = new_stream(1);
	through = new_stream(0);
	behind = new_stream(1);
	on_stalled1 = new_event(1, false);
	on_through = new_event(0, false);
	cuf_host_stall(stalled1, 1);
	ops->event_record(on_stalled1, stalled1);
	ops->stream_wait(through, on_stalled1);
	ops->event_record(on_through, through);
	ops->stream_wait(behind, on_through);
	cuf_host_fault_at(0, 3, CUFI_CODE_ILLEGAL_ADDRESS);
	put_count(s, &n);
	put_count(s, &n);
	cuf_host_enqueue(s, never, NULL, 0); /* the third: does not run */
	cuf_host_enqueue(s, never, NULL, 0);
	is_int(drain(s), CUFI_CODE_ILLEGAL_ADDRESS, "the stream says what happened");
	is_int(ops->stream_query(stalled), CUFI_CODE_ILLEGAL_ADDRESS, "so does a stalled one");
	is_int(ops->event_query(e), CUFI_CODE_ILLEGAL_ADDRESS,
	       "and an event that had completed long before");
	is_int(count_other_codes(s, e, mem, pinned, CUFI_CODE_ILLEGAL_ADDRESS), 0,
	       "every call returns the code");
	is_int(drain(waits), 0, "another device that waited for the lost one goes on");
	is_int(drain(behind), 0, "also if that waited for a third");
	is_int(atomic_load(&n), 3, "what came before the fault ran, what came after did not");
	put_count(other, &after);
	is_int(drain(other), 0, "other devices go on");
	is_int(atomic_load(&after), 1, "and work");
	is_int(ops->enter(1, &g), 0, "another device is entered");
	is_int(ops->pinned_alloc(16, &pinned), 0, "and allocates");
	ops->leave(&g);
	is_int(ops->event_destroy(e), CUFI_CODE_ILLEGAL_ADDRESS, "destroying an event says so");
	is_int(ops->stream_destroy(s), CUFI_CODE_ILLEGAL_ADDRESS, "a stream too");
	is_int(ops->stream_query(s), CUFI_CODE_INVALID_HANDLE, "but it is destroyed");
	is_int(ops->pinned_free(pinned), CUFI_CODE_ILLEGAL_ADDRESS, "and page-locked memory");
	is_int(ops->pinned_free(pinned), CUFI_CODE_INVALID_VALUE, "which is freed");
	close_devices(2);
	/* Opened again it is still lost; only a reset heals. */
	{
		int count;
		struct cufi_device_info info;

		is_int(ops->open(1, &count), 0, "opened again");
		is_int(ops->device_open(0, &info), CUFI_CODE_ILLEGAL_ADDRESS, "it is still lost");
		ops->close();
		open_devices(1);
		s = new_stream(0);
		is_int(ops->stream_query(s), 0, "a reset heals it");
		close_devices(1);
	}
}

/* A fault is not seen while a kernel of the device may still write. */
static void test_quiet(void)
{
	struct CUstream_st *a, *b;
	int code = CUFI_CODE_ASSERT;
	struct hold h;

	open_devices(1);
	a = new_stream(0);
	b = new_stream(0);
	put_hold(a, &h);
	await_flag(&h.entered);
	is_int(cuf_host_enqueue(b, fault_fn, &code, sizeof code), 0, "a kernel that faults");
	sleep_ms(10);
	is_int(ops->stream_query(b), CUFI_CODE_NOT_READY, "not seen while another runs");
	is_int(cuf_host_enqueue(b, never, NULL, 0), 0, "what comes before it is seen goes in");
	is_int(cuf_host_enqueue(a, never, NULL, 0), 0, "on any stream");
	atomic_store(&h.let_go, true);
	is_int(drain(a), CUFI_CODE_ASSERT, "then it is");
	is_int(drain(b), CUFI_CODE_ASSERT, "everywhere");
	close_devices(1);
}

struct enqueuer {
	struct CUstream_st *s;
	int code, put;
	pthread_t id;
};

static void *enqueue_all(void *arg)
{
	struct enqueuer *q = arg;

	while (q->put < 2 * CUFI_HOST_DEPTH &&
	       (q->code = cuf_host_enqueue(q->s, never, NULL, 0)) == 0)
		q->put++;
	return NULL;
}

/* An enqueuer blocked by a full queue is let go by the fault. */
static void test_full_queue(void)
{
	struct CUstream_st *s, *faulty;
	struct enqueuer q = { .put = 0 };
	int code = CUFI_CODE_LAUNCH_FAILURE;

	open_devices(1);
	s = new_stream(0);
	faulty = new_stream(0);
	cuf_host_stall(s, 1);
	q.s = s;
	pthread_create(&q.id, NULL, enqueue_all, &q);
	sleep_ms(20);
	cuf_host_enqueue(faulty, fault_fn, &code, sizeof code);
	pthread_join(q.id, NULL);
	is_int(q.code, CUFI_CODE_LAUNCH_FAILURE, "a blocked launch returns the device's error");
	is_int(q.put, CUFI_HOST_DEPTH, "behind a full queue");
	close_devices(1);
}

static void test_fail_call(void)
{
	struct CUstream_st *s;
	struct CUevent_st *e;
	atomic_int n = 0;
	int i, failed = 0;

	open_devices(1);
	s = new_stream(0);
	e = new_event(0, false);
	cuf_host_fail_call(CUF_HOST_RECORD, 2, CUFI_CODE_INVALID_HANDLE);
	cuf_host_fail_call(CUF_HOST_RECORD, 4, CUFI_CODE_NO_MEMORY);
	is_int(ops->event_record(e, s), 0, "the first record");
	is_int(ops->event_record(e, s), CUFI_CODE_INVALID_HANDLE, "the second fails as told");
	is_int(ops->event_record(e, s), 0, "the third");
	is_int(ops->event_record(e, s), CUFI_CODE_NO_MEMORY, "the fourth as told of it");
	is_int(ops->event_record(e, s), 0, "each is used once");
	cuf_host_fail_call(CUF_HOST_ANY, 3, CUFI_CODE_LAUNCH_FAILURE);
	is_int(put_count(s, &n), 0, "any: first");
	is_int(ops->event_record(e, s), 0, "any: second");
	is_int(put_count(s, &n), CUFI_CODE_LAUNCH_FAILURE, "any: third fails");
	is_int(put_count(s, &n), 0, "even a sticky code does not stick");
	is_int(drain(s), 0, "the stream goes on");
	is_int(atomic_load(&n), 2, "without what failed");
	cuf_host_fail_call(CUF_HOST_MALLOC, 0, 2);
	cuf_host_fail_call(-1, 1, 2);
	cuf_host_fail_call(CUF_HOST_CALLS, 1, 2);
	cuf_host_fault_at(-1, 1, 700);
	cuf_host_fault_at(CUFI_HOST_DEVICES, 1, 700);
	cuf_host_gate(CUFI_HOST_DEVICES, 1);
	cuf_host_fail_call(CUF_HOST_LAUNCH, 1, 1);
	cuf_host_reset();
	is_int(put_count(s, &n), 0, "a reset forgets, nonsense is ignored");
	is_int((int)cuf_host_calls(CUF_HOST_LAUNCH), 1, "counted since the reset");
	is_int((int)cuf_host_calls(CUF_HOST_ANY), 1, "of every kind");
	is_int((int)cuf_host_calls(-1) + (int)cuf_host_calls(CUF_HOST_CALLS), 0, "no kind: 0");
	for (i = 0; i < 1000; i++)
		cuf_host_fail_call(CUF_HOST_FILL, (uint64_t)i + 1, 1);
	for (i = 0; i < 10; i++)
		failed += put_count(s, &n) != 0;
	is_int(failed, 0, "too many rules do no harm");
	cufi_host_unload(true);
	is_int(ops->stream_query(s), CUFI_CODE_UNLOADING, "while unloading every call says so");
	cufi_host_unload(false);
	is_int(drain(s), 0, "drained");
	close_devices(1);
}

/* A stream may be done with its own before the fault comes. */
static int drain_lost(struct CUstream_st *s)
{
	unsigned spins = 0;
	int code;

	while ((code = drain(s)) == 0)
		cufi_relax(&spins);
	return code;
}

/* One of several streams' operations faults; nothing hangs, wherever it is. */
static void test_everywhere(void)
{
	enum { N = 6, ROUNDS = 60 };
	int r, i, hung = 0;

	for (r = 0; r < ROUNDS; r++) {
		struct CUstream_st *s[N];
		struct CUevent_st *e[N];
		atomic_int n = 0;
		void *p;

		open_devices(2);
		cuf_host_seed((uint64_t)r);
		for (i = 0; i < N; i++) {
			s[i] = new_stream(i % 2);
			e[i] = new_event(i % 2, i % 3 == 0);
		}
		cuf_host_fault_at(0, (uint64_t)r % 20 + 1, CUFI_CODE_MISALIGNED);
		for (i = 0; i < 8 * N; i++) {
			struct CUstream_st *on = s[i % N];

			if (ops->malloc_async(3000, on, &p) == 0) {
				ops->fill(p, i, 3000, on);
				ops->free_async(p, on);
			}
			put_count(on, &n);
			ops->event_record(e[i % N], on);
			ops->stream_wait(s[(i * 5 + 1) % N], e[i % N]);
			ops->host_func(on, bump_fn, &n);
		}
		for (i = 0; i < N; i++)
			if (i % 2)
				hung += drain(s[i]) != 0;
			else
				hung += drain_lost(s[i]) != CUFI_CODE_MISALIGNED;
		close_devices(2);
	}
	is_int(hung, 0, "a fault at any operation is seen on its device, and on no other");
}

int main(void)
{
	plan(46);
	test_sticky();
	test_quiet();
	test_full_queue();
	test_fail_call();
	test_everywhere();
	return done();
}
