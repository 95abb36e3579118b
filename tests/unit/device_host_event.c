/* SPDX-License-Identifier: MIT */
/* The host device's events have CUDA's rules (F7): unrecorded, recorded again, destroyed, timed. */
#include "tap.h"
#include "unit/device_host.h"

static void test_unrecorded(void)
{
	struct CUevent_st *e = new_event(0, false);
	struct CUstream_st *s = new_stream(0);

	is_int(ops->event_query(e), 0, "an unrecorded event is complete");
	is_int(ops->stream_wait(s, e), 0, "waiting for it is legal");
	is_int(ops->stream_query(s), 0, "and does nothing");
	ops->event_destroy(e);
	ops->stream_destroy(s);
}

static void test_rerecord(void)
{
	struct CUevent_st *e = new_event(0, false);
	struct CUstream_st *a = new_stream(0), *b = new_stream(0), *c = new_stream(0),
			   *d = new_stream(0);
	atomic_int early = 0, late = 0;
	struct hold ha, hb;

	put_hold(a, &ha);
	put_hold(b, &hb);
	ops->event_record(e, a);
	ops->stream_wait(c, e); /* for a */
	put_count(c, &early);
	is_int(ops->event_record(e, b), 0, "an event is recorded again while pending");
	ops->stream_wait(d, e); /* for b */
	put_count(d, &late);
	atomic_store(&ha.let_go, true);
	is_int(drain(c), 0, "who waited before waits for the first record");
	is_int(ops->event_query(e), CUFI_CODE_NOT_READY, "the event is what was recorded last");
	is_int(atomic_load(&late), 0, "as is he who waited later");
	atomic_store(&hb.let_go, true);
	is_int(drain_event(e), 0, "it completes");
	is_int(drain(d), 0, "and lets the other go");
	is_int(atomic_load(&early) + atomic_load(&late), 2, "both ran");
	/* Recorded again after completion: pending again. */
	put_hold(a, &ha);
	ops->event_record(e, a);
	is_int(ops->event_query(e), CUFI_CODE_NOT_READY, "a complete event is pending again");
	atomic_store(&ha.let_go, true);
	is_int(drain_event(e), 0, "and completes again");
	ops->event_destroy(e);
	ops->stream_destroy(a);
	ops->stream_destroy(b);
	ops->stream_destroy(c);
	ops->stream_destroy(d);
}

static void test_devices(void)
{
	struct CUevent_st *e = new_event(1, false);
	struct CUstream_st *s0 = new_stream(0), *s1 = new_stream(1);

	is_int(ops->event_record(e, s0), CUFI_CODE_INVALID_HANDLE,
	       "no record on another device's stream");
	is_int(ops->event_record(e, s1), 0, "but on its own, whatever is current");
	is_int(ops->stream_wait(s0, e), 0, "and a wait of another device");
	is_int(drain(s0), 0, "which ends");
	is_int(ops->event_query(NULL), CUFI_CODE_INVALID_HANDLE, "NULL: query");
	is_int(ops->event_destroy(NULL), CUFI_CODE_INVALID_HANDLE, "NULL: destroy");
	is_int(ops->event_record(NULL, s0), CUFI_CODE_INVALID_HANDLE, "NULL: record");
	is_int(ops->stream_wait(s0, NULL), CUFI_CODE_INVALID_HANDLE, "NULL: wait");
	drain(s1);
	ops->event_destroy(e);
	ops->stream_destroy(s0);
	ops->stream_destroy(s1);
}

static void test_destroy(void)
{
	struct CUevent_st *e = new_event(0, false), *timing = new_event(0, true);
	struct CUstream_st *a = new_stream(0), *b = new_stream(0);
	atomic_int n = 0;
	struct hold h;

	put_hold(a, &h);
	put_count(a, &n);
	ops->event_record(e, a);
	ops->event_record(timing, a);
	ops->stream_wait(b, e);
	put_count(b, &n);
	is_int(ops->event_destroy(e), 0, "a pending event is destroyed");
	is_int(ops->event_destroy(timing), 0, "one with timing too");
	ops->stream_destroy(a); /* and the stream that it was recorded on */
	sleep_ms(5);
	is_int(atomic_load(&n), 0, "who waits for it still waits");
	atomic_store(&h.let_go, true);
	is_int(drain(b), 0, "and is let go in turn");
	is_int(atomic_load(&n), 2, "both ran");
	ops->stream_destroy(b);
}

static void test_timing(void)
{
	struct CUevent_st *start = new_event(0, true), *end = new_event(0, true),
			  *plain = new_event(0, false), *other = new_event(1, true);
	struct CUstream_st *s = new_stream(0), *s1 = new_stream(1);
	uint64_t ns = 0;
	struct hold h;

	is_int(ops->event_elapsed_ns(start, end, &ns), CUFI_CODE_INVALID_HANDLE, "not recorded");
	ops->event_record(start, s);
	put_hold(s, &h);
	ops->event_record(end, s);
	ops->event_record(plain, s);
	ops->event_record(other, s1);
	await_flag(&h.entered);
	is_int(ops->event_elapsed_ns(start, end, &ns), CUFI_CODE_NOT_READY, "not complete");
	sleep_ms(10);
	atomic_store(&h.let_go, true);
	drain(s);
	drain(s1);
	is_int(ops->event_elapsed_ns(start, end, &ns), 0, "complete");
	ok(ns >= 10000000, "and as long as it took");
	is_int(ops->event_query(start) | ops->event_query(end), 0, "queried meanwhile");
	is_int(ops->event_elapsed_ns(start, end, &ns), 0, "asked again");
	is_int(ops->event_elapsed_ns(plain, end, &ns), CUFI_CODE_INVALID_HANDLE, "without timing");
	is_int(ops->event_elapsed_ns(start, other, &ns), CUFI_CODE_INVALID_HANDLE,
	       "of two devices");
	ops->event_destroy(start);
	ops->event_destroy(end);
	ops->event_destroy(plain);
	ops->event_destroy(other);
	ops->stream_destroy(s);
	ops->stream_destroy(s1);
}

/* The time of an event is that of its last record, also if an earlier one is reached later. */
static void test_timing_rerecord(void)
{
	struct CUevent_st *start = new_event(0, true), *end = new_event(0, true);
	struct CUstream_st *a = new_stream(0), *b = new_stream(0);
	uint64_t ns = 0, later_ns = 0;

	ops->event_record(start, b);
	cuf_host_stall(a, 1);
	ops->event_record(end, a);
	ops->event_record(end, b);
	drain(b);
	is_int(ops->event_elapsed_ns(start, end, &ns), 0, "recorded again elsewhere: complete");
	sleep_ms(5);
	cuf_host_stall(a, 0);
	drain(a);
	ops->event_elapsed_ns(start, end, &later_ns);
	ok(later_ns == ns, "the first record does not change it");
	ops->event_destroy(start);
	ops->event_destroy(end);
	ops->stream_destroy(a);
	ops->stream_destroy(b);
}

int main(void)
{
	plan(35);
	open_devices(2);
	test_unrecorded();
	test_rerecord();
	test_devices();
	test_destroy();
	test_timing();
	test_timing_rerecord();
	close_devices(2);
	return done();
}
