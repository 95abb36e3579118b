/* SPDX-License-Identifier: MIT */
/*
 * Events. A record is a place in a stream, {stream, seq}; whoever waits takes a copy of it, so
 * that a later record of the same event changes nothing for him.
 */
#include <stdlib.h>

#include "host.h"

#define EVENT_ALIVE 0xe7e47a11u /* arbitrary */

static int device_of(const struct CUevent_st *e)
{
	return e != NULL && e->alive == EVENT_ALIVE ? e->device : HOST_NO_HANDLE;
}

int cufi_host_event_create(bool timing, struct CUevent_st **out_event)
{
	int device = cufi_host_current();
	struct host_device *d = &cufi_host_devices[device];
	int code = cufi_host_begin(CUF_HOST_EVENT_CREATE, device);
	struct CUevent_st *e;

	if (code != 0)
		return cufi_host_return(code);
	e = calloc(1, sizeof *e);
	if (e == NULL)
		return cufi_host_return(CUFI_CODE_NO_MEMORY);
	e->alive = EVENT_ALIVE;
	e->device = device;
	e->timing = timing;
	/* relaxed: nobody has the handle yet */
	atomic_store_explicit(&e->refs, 1, memory_order_relaxed);
	cufi_lock_take(&d->lock);
	e->next = d->events;
	e->at = &d->events;
	if (e->next != NULL)
		e->next->at = &e->next;
	d->events = e;
	cufi_lock_give(&d->lock);
	*out_event = e;
	return 0;
}

void cufi_host_event_unref(struct CUevent_st *e)
{
	struct host_device *d = &cufi_host_devices[e->device];

	/* acq_rel: pairs with itself: who frees sees what others did with theirs */
	if (atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) != 1)
		return;
	cufi_lock_take(&d->lock);
	*e->at = e->next;
	if (e->next != NULL)
		e->next->at = e->at;
	cufi_lock_give(&d->lock);
	if (e->on != NULL)
		cufi_host_stream_unref(e->on);
	free(e);
}

int cufi_host_event_destroy(struct CUevent_st *e)
{
	int code = cufi_host_begin(HOST_CALL_OTHER, device_of(e));

	if (code == CUFI_CODE_NOT_PERMITTED || code == CUFI_CODE_UNLOADING ||
	    code == CUFI_CODE_INVALID_HANDLE)
		return cufi_host_return(code);
	/* Also on a lost device, which says so. What waits for it has its own copy. */
	e->alive = 0;
	cufi_host_event_unref(e);
	return cufi_host_return(code);
}

int cufi_host_event_record(struct CUevent_st *e, struct CUstream_st *s)
{
	int code = cufi_host_begin(CUF_HOST_RECORD, cufi_host_stream_device(s));
	struct CUstream_st *before;
	struct host_op *op;

	if (code == 0 && device_of(e) != s->device)
		code = CUFI_CODE_INVALID_HANDLE; /* no event, or of another device */
	if (code != 0)
		return cufi_host_return(code);
	op = cufi_host_op_new(s, HOST_RECORD, &code);
	if (op == NULL)
		return cufi_host_return(code);
	op->u.record = NULL;
	if (e->timing) {
		/* relaxed: the caller has the handle */
		atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
		op->u.record = e;
	}
	cufi_lock_take(&e->lock);
	before = e->on;
	if (before != s)
		cufi_host_stream_ref(s);
	e->on = s;
	e->recorded = true;
	e->stamped = false;
	/* Under the event's lock, so that the stamp finds seq; and two records have one order. */
	e->seq = cufi_host_op_push(s, op);
	cufi_lock_give(&e->lock);
	if (before != NULL && before != s)
		cufi_host_stream_unref(before);
	return 0;
}

void cufi_host_event_stamp(struct CUevent_st *e, struct CUstream_st *s, uint64_t seq)
{
	uint64_t now_ns = cufi_now_ns();

	cufi_lock_take(&e->lock);
	if (e->on == s && e->seq == seq) {
		e->stamped = true;
		e->stamp_ns = now_ns;
	}
	cufi_lock_give(&e->lock);
}

/* Under the event's lock. A stream that the caller lets go of after it, or NULL. */
static struct CUstream_st *forget_if_done(struct CUevent_st *e)
{
	struct CUstream_st *s = e->on;

	if (s == NULL || !cufi_host_reached(s, e->seq))
		return NULL;
	e->on = NULL;
	return s;
}

int cufi_host_event_query(struct CUevent_st *e)
{
	int code = cufi_host_begin(CUF_HOST_EVENT_QUERY, device_of(e));
	struct CUstream_st *done;

	if (code != 0)
		return cufi_host_return(code);
	cufi_lock_take(&e->lock);
	done = forget_if_done(e);
	if (e->on != NULL)
		code = CUFI_CODE_NOT_READY;
	cufi_lock_give(&e->lock);
	if (done != NULL)
		cufi_host_stream_unref(done);
	return cufi_host_return(code);
}

int cufi_host_event_elapsed(struct CUevent_st *start, struct CUevent_st *end, uint64_t *out_ns)
{
	int code = cufi_host_begin(HOST_CALL_OTHER, device_of(start));
	struct CUevent_st *events[2] = { start, end };
	uint64_t stamp_ns[2] = { 0, 0 };
	int i;

	if (code == 0 && device_of(end) != start->device)
		code = CUFI_CODE_INVALID_HANDLE;
	for (i = 0; i < 2 && code == 0; i++) {
		struct CUevent_st *e = events[i];

		cufi_lock_take(&e->lock);
		if (!e->timing || !e->recorded)
			code = CUFI_CODE_INVALID_HANDLE;
		else if (e->on != NULL && !cufi_host_reached(e->on, e->seq))
			code = CUFI_CODE_NOT_READY;
		stamp_ns[i] = e->stamp_ns;
		cufi_lock_give(&e->lock);
	}
	if (code == 0)
		*out_ns = stamp_ns[1] > stamp_ns[0] ? stamp_ns[1] - stamp_ns[0] : 0;
	return cufi_host_return(code);
}

int cufi_host_stream_wait(struct CUstream_st *s, struct CUevent_st *e)
{
	int code = cufi_host_begin(CUF_HOST_WAIT, cufi_host_stream_device(s));
	struct CUstream_st *on, *done;
	struct host_op *op;
	uint64_t seq;

	if (code == 0 && device_of(e) < 0)
		code = CUFI_CODE_INVALID_HANDLE;
	if (code != 0)
		return cufi_host_return(code);
	cufi_lock_take(&e->lock);
	done = forget_if_done(e);
	on = e->on;
	seq = e->seq;
	if (on != NULL && on != s)
		cufi_host_stream_ref(on);
	cufi_lock_give(&e->lock);
	if (done != NULL)
		cufi_host_stream_unref(done);
	if (on == NULL || on == s)
		return 0; /* over, or in order anyway */
	op = cufi_host_op_new(s, HOST_WAIT, &code);
	if (op == NULL) {
		cufi_host_stream_unref(on);
		return cufi_host_return(code);
	}
	op->u.wait.on = on;
	op->u.wait.seq = seq;
	op->u.wait.asked = false;
	cufi_host_op_push(s, op);
	return 0;
}

void cufi_host_events_close(void)
{
	struct CUevent_st *e, *next;
	int i;

	for (i = 0; i < CUFI_HOST_DEVICES; i++) {
		for (e = cufi_host_devices[i].events; e != NULL; e = next) {
			next = e->next;
			free(e); /* the streams go too: their references need no care */
		}
		cufi_host_devices[i].events = NULL;
	}
}
