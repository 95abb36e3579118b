/* SPDX-License-Identifier: MIT */
/*
 * The host device's table: opening and closing, and what belongs to the calling thread: its current
 * device and its last-error slot. Each call that has one of CUDA's behind it writes a failure into
 * that slot, NOT_READY too; only leave() empties it.
 */
#include <stdio.h>
#include <string.h>

#include "host.h"

#define PRIORITY_HIGH (-5) /* as an H200 reports it */

struct host_device cufi_host_devices[CUFI_HOST_DEVICES];

static cufi_lock home_lock; /* guards from here */
static unsigned n_opens;
static int n_devices; /* the most that anybody asked for */
/* to here */
static atomic_int visible_devices; /* n_devices, for enter() */

static _Thread_local int current_device;
static _Thread_local int last_error;

int cufi_host_current(void)
{
	return current_device;
}

int cufi_host_return(int code)
{
	if (code != 0)
		last_error = code;
	return code;
}

int cufi_host_lost(int device)
{
	/* acquire: pairs with publish_fault() in session.c: what ran on the device has ended */
	return atomic_load_explicit(&cufi_host_devices[device].lost, memory_order_acquire);
}

/* ---- the process ---- */

static int open_host(int want, int *out_count)
{
	int code = cufi_host_begin(HOST_CALL_OTHER, HOST_ANY_DEVICE);

	if (want == 0)
		want = 1;
	if (code == 0 && (want < 0 || want > CUFI_HOST_DEVICES))
		code = CUFI_CODE_INVALID_VALUE;
	if (code != 0)
		return cufi_host_return(code);
	cufi_lock_take(&home_lock);
	if (n_opens == 0) {
		code = cufi_host_pool_open();
		if (code == 0) {
			code = cufi_host_func_open();
			if (code != 0)
				cufi_host_pool_close();
		}
	}
	if (code == 0) {
		n_opens++;
		if (want > n_devices)
			n_devices = want;
		/* relaxed: a count; the caller hands it on by his own means */
		atomic_store_explicit(&visible_devices, n_devices, memory_order_relaxed);
		*out_count = want;
	}
	cufi_lock_give(&home_lock);
	return cufi_host_return(code);
}

static void close_host(void)
{
	cufi_lock_take(&home_lock);
	if (n_opens != 0 && --n_opens == 0) {
		/* First the threads, so that what is left is nobody's. A session ends after the
		 * operation that runs; host functions not called yet are not. */
		cufi_host_pool_close();
		cufi_host_func_close();
		cufi_host_streams_drop();
		cufi_host_events_close();
		cufi_host_streams_close();
		cufi_host_kernels_close();
		cufi_host_memory_close();
		n_devices = 0;
		/* relaxed: as above */
		atomic_store_explicit(&visible_devices, 0, memory_order_relaxed);
	}
	cufi_lock_give(&home_lock);
}

static bool is_device(int device)
{
	/* relaxed: see open_host() */
	return device >= 0 && device < atomic_load_explicit(&visible_devices, memory_order_relaxed);
}

static int device_open(int device, struct cufi_device_info *out_info)
{
	int code = cufi_host_begin(HOST_CALL_OTHER, HOST_ANY_DEVICE);

	if (code == 0 && !is_device(device))
		code = CUFI_CODE_INVALID_DEVICE;
	if (code == 0)
		code = cufi_host_begin(HOST_CALL_OTHER, device);
	if (code != 0)
		return cufi_host_return(code);
	memset(out_info, 0, sizeof *out_info);
	(void)snprintf(out_info->name, sizeof out_info->name, "host device %d", device);
	out_info->priority_high = PRIORITY_HIGH;
	out_info->multiprocessors = (int)cufi_cpus();
	out_info->can_map_host = true;
	out_info->memory_bytes = HOST_MEMORY_BYTES;
	return 0;
}

static void device_close(int device)
{
	/* Nothing of the device's own to give back: what was not destroyed goes with the last
	 * close(), and what is pending may run until then. */
	(void)device;
}

static void thread_relaxed(void)
{
	(void)cufi_host_begin(HOST_CALL_OTHER, HOST_ANY_DEVICE);
}

/* ---- the caller's thread ---- */

static int enter_device(int device, struct cufi_device_guard *out_guard)
{
	int code = cufi_host_begin(HOST_CALL_OTHER, HOST_ANY_DEVICE);

	*out_guard = (struct cufi_device_guard){ .device = device,
						 .previous = current_device,
						 .slot_empty = last_error == 0 };
	if (code == 0 && !is_device(device))
		code = CUFI_CODE_INVALID_DEVICE;
	if (code == 0 && device != current_device) {
		/* A lost device cannot be made current; one that is, stays it. */
		code = cufi_host_begin(HOST_CALL_OTHER, device);
		if (code == 0) {
			out_guard->pushed = true;
			current_device = device;
		}
	}
	/* A failed enter() leaves nothing to put back: the slot stays as it was. */
	return code;
}

static void leave_device(struct cufi_device_guard *guard)
{
	(void)cufi_host_begin(HOST_CALL_OTHER, HOST_ANY_DEVICE);
	if (guard->pushed)
		current_device = guard->previous;
	if (guard->slot_empty)
		last_error = 0;
}

static int peek_error(void)
{
	int code = cufi_host_begin(HOST_CALL_OTHER, HOST_ANY_DEVICE);

	return code != 0 ? code : last_error;
}

const struct cufi_device_ops *cufi_device_host(void)
{
	static const struct cufi_device_ops ops = {
		.name = "host",
		.open = open_host,
		.close = close_host,
		.device_open = device_open,
		.device_close = device_close,
		.thread_relaxed = thread_relaxed,
		.code_name = cufi_host_code_name,
		.code_text = cufi_host_code_text,
		.is_sticky = cufi_host_is_sticky,
		.enter = enter_device,
		.leave = leave_device,
		.peek_error = peek_error,
		.stream_create = cufi_host_stream_create,
		.stream_destroy = cufi_host_stream_destroy,
		.stream_query = cufi_host_stream_query,
		.stream_wait = cufi_host_stream_wait,
		.host_func = cufi_host_func,
		.event_create = cufi_host_event_create,
		.event_destroy = cufi_host_event_destroy,
		.event_record = cufi_host_event_record,
		.event_query = cufi_host_event_query,
		.event_elapsed_ns = cufi_host_event_elapsed,
		.copy = cufi_host_copy,
		.fill = cufi_host_fill,
		.kernel_load = cufi_host_kernel_load,
		.launch = cufi_host_launch,
		.malloc_async = cufi_host_malloc,
		.free_async = cufi_host_free,
		.pinned_alloc = cufi_host_pinned_alloc,
		.pinned_free = cufi_host_pinned_free,
		.memory_of = cufi_host_memory_of,
	};

	return &ops;
}
