/* SPDX-License-Identifier: MIT */
/*
 * The table of operations over cudart. Each function is one call of cudart, its return value the
 * call's; the file decides only what device.h promises beyond that: whose context is current, that
 * a thread's last error stays as it was. How kernels are found and launched: device_cuda_kernel.c.
 *
 * cudart is opened at run time, not linked: the reasons, and what that asks of programs that bring
 * kernels as nvcc symbols (link them with -cudart shared), are in device_cuda_load.c.
 */
#include "device.h"

#include <stdatomic.h>
#include <string.h>

#include "wait.h"

#ifndef CUFI_HAVE_CUDA

const struct cufi_device_ops *cufi_device_cuda(void)
{
	return NULL;
}

#else

#include "device_cuda.h"

/* Devices past this number are not seen (arbitrary). */
#define DEVICES 128

/*
 * Written under table_lock by the first device_open() and the last device_close() of the device.
 * Whoever uses the device comes between the two, so reads take no lock. The context is atomic
 * since the devices are also looked through for one that is current; relaxed, since only an own
 * device can be.
 */
struct device {
	int opened; /* under table_lock */
	_Atomic(CUcontext) context;
	cudaMemPool_t pool; /* NULL: the device has no pools */
};

static cufi_lock table_lock;
static int opened;    /* under table_lock */
static int n_devices; /* written by the first open(), before anybody else looks */
static struct device devices[DEVICES];
static _Atomic int devices_open; /* how many: with one, no copy is between two */

static CUcontext context_of(int device)
{
	if (device < 0 || device >= n_devices)
		return NULL;
	return atomic_load_explicit(&devices[device].context, memory_order_relaxed);
}

/* ---- the process ---- */

static int open_table(int want, int *out_count)
{
	int count, code;

	(void)want;
	cufi_lock_take(&table_lock);
	code = cufi_cuda_load(&count);
	if (!code && opened++ == 0)
		n_devices = count < DEVICES ? count : DEVICES;
	*out_count = code ? 0 : n_devices;
	cufi_lock_give(&table_lock);
	return code;
}

static void close_table(void)
{
	cufi_lock_take(&table_lock);
	if (opened && --opened == 0)
		cufi_cuda_kernels_forget();
	cufi_lock_give(&table_lock);
}

/* A pool of ours and not the device's default one, whose attributes are other people's business. */
static int create_pool(int device, cudaMemPool_t *out_pool)
{
	const struct cudaMemPoolProps props = {
		.allocType = cudaMemAllocationTypePinned,
		.location = { .type = cudaMemLocationTypeDevice, .id = device },
	};
	uint64_t all = UINT64_MAX;
	int no = 0, supported = 0, code;

	*out_pool = NULL;
	code = (int)cufi_cuda.cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported,
						     device);
	if (code || !supported)
		return code;
	code = (int)cufi_cuda.cudaMemPoolCreate(out_pool, &props);
	if (code)
		return code;
	/* Memory freed stays ours: by default every synchronisation gives it back to the system. */
	code = (int)cufi_cuda.cudaMemPoolSetAttribute(*out_pool, cudaMemPoolAttrReleaseThreshold,
						      &all);
	/* An allocation must not wait on the device for whoever freed that memory last, which may
	 * be an endless kernel of an unrelated lane: fresh memory then. */
	if (!code)
		code = (int)cufi_cuda.cudaMemPoolSetAttribute(
			*out_pool, cudaMemPoolReuseAllowInternalDependencies, &no);
	return code;
}

static int describe_device(int device, CUdevice handle, struct cufi_device_info *info)
{
	int map = 0, uva = 0, code;

	memset(info, 0, sizeof *info);
	code = (int)cufi_cuda.cuDeviceGetName(info->name, (int)sizeof info->name, handle);
	if (!code)
		code = (int)cufi_cuda.cuDeviceTotalMem(&info->memory_bytes, handle);
	if (!code)
		code = (int)cufi_cuda.cudaDeviceGetStreamPriorityRange(&info->priority_low,
								       &info->priority_high);
	if (!code)
		code = (int)cufi_cuda.cudaDeviceGetAttribute(
			&info->multiprocessors, cudaDevAttrMultiProcessorCount, device);
	if (!code)
		code = (int)cufi_cuda.cudaDeviceGetAttribute(&map, cudaDevAttrCanMapHostMemory,
							     device);
	if (!code)
		code = (int)cufi_cuda.cudaDeviceGetAttribute(&uva, cudaDevAttrUnifiedAddressing,
							     device);
	info->can_map_host = map && uva;
	return code;
}

static void relax_thread(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	cufi_cuda.cuThreadExchangeStreamCaptureMode(&mode);
}

/*
 * What leaves the process, the device or the context unusable, by the words of cudart's headers
 * ("any further CUDA work will return the same error"), and three that say so in other words: an
 * uncorrectable ECC or NVLink error, a context that was destroyed. Not among them: 701 and 720
 * (a launch that asked for too much), out of memory, 999 (unknown).
 */
static bool is_sticky(int code)
{
	switch (code) {
	case 214: /* cudaErrorECCUncorrectable */
	case 220: /* cudaErrorNvlinkUncorrectable */
	case 226: /* cudaErrorContained */
	case 700: /* cudaErrorIllegalAddress */
	case 702: /* cudaErrorLaunchTimeout */
	case 709: /* cudaErrorContextIsDestroyed */
	case 710: /* cudaErrorAssert */
	case 714: /* cudaErrorHardwareStackError */
	case 715: /* cudaErrorIllegalInstruction */
	case 716: /* cudaErrorMisalignedAddress */
	case 717: /* cudaErrorInvalidAddressSpace */
	case 718: /* cudaErrorInvalidPc */
	case 719: /* cudaErrorLaunchFailure */
	case 721: /* cudaErrorTensorMemoryLeak */
	case 810: /* cudaErrorMpsClientTerminated */
	case 911: /* cudaErrorExternalDevice */
		return true;
	default:
		return false;
	}
}

/* ---- the caller's thread ---- */

/*
 * Through the driver and not cudaSetDevice, which would have to put back a device whose context
 * nobody made yet, and would make it. Asking which context is current costs less than pushing.
 */
_Thread_local bool cufi_cuda_touched;

static int enter_device(int device, struct cufi_device_guard *out_guard)
{
	CUcontext wanted, current = NULL;
	int code;

	out_guard->device = device;
	out_guard->pushed = false;
	out_guard->slot_empty = cufi_cuda.cudaPeekAtLastError() == cudaSuccess;
	wanted = context_of(device);
	if (!wanted)
		return CUFI_CODE_INVALID_DEVICE;
	code = (int)cufi_cuda.cuCtxGetCurrent(&current);
	if (code || current == wanted)
		return code;
	code = (int)cufi_cuda.cuCtxPushCurrent(wanted);
	out_guard->pushed = !code;
	return code;
}

static void leave_device(struct cufi_device_guard *guard)
{
	CUcontext ours;

	if (guard->slot_empty && cufi_cuda_touched) {
		cufi_cuda.cudaGetLastError();
		cufi_cuda_touched = false;
	}
	if (guard->pushed)
		cufi_cuda.cuCtxPopCurrent(&ours);
	guard->pushed = false;
}

static int peek_error(void)
{
	return (int)cufi_cuda.cudaPeekAtLastError();
}

int cufi_cuda_current_device(void)
{
	CUcontext current = NULL;

	if (!cufi_cuda.cuCtxGetCurrent(&current) && current)
		for (int i = 0; i < n_devices; i++)
			if (context_of(i) == current)
				return i;
	return -1;
}

/* ---- opening and closing a device ---- */

/* With its context retained, and current. */
static int set_up_device(struct device *d, int device, CUdevice handle,
			 struct cufi_device_info *out_info)
{
	struct cufi_device_guard guard;
	int code = enter_device(device, &guard);

	cufi_cuda_touched = true; /* calls below may fail */
	if (!code && !d->opened)
		code = create_pool(device, &d->pool);
	if (!code)
		code = describe_device(device, handle, out_info);
	leave_device(&guard);
	return code;
}

/* Gives back our reference to the context; cudart keeps one of its own until the process ends (seen
 * with 13.0), so that nobody loses a context here. */
static void take_down_device(struct device *d, int device, CUdevice handle)
{
	struct cufi_device_guard guard;

	enter_device(device, &guard);
	if (d->pool)
		cufi_cuda.cudaMemPoolDestroy(d->pool);
	d->pool = NULL;
	leave_device(&guard);
	atomic_store_explicit(&d->context, NULL, memory_order_relaxed);
	cufi_cuda.cuDevicePrimaryCtxRelease(handle);
}

static int open_device(int device, struct cufi_device_info *out_info)
{
	CUcontext context = NULL;
	struct device *d;
	CUdevice handle;
	int code;

	if (device < 0 || device >= n_devices)
		return CUFI_CODE_INVALID_DEVICE;
	d = &devices[device];
	cufi_lock_take(&table_lock);
	code = (int)cufi_cuda.cuDeviceGet(&handle, device);
	if (!code && !d->opened) {
		code = (int)cufi_cuda.cuDevicePrimaryCtxRetain(&context, handle);
		if (!code)
			atomic_store_explicit(&d->context, context, memory_order_relaxed);
	}
	if (!code) {
		code = set_up_device(d, device, handle, out_info);
		if (code && !d->opened)
			take_down_device(d, device, handle);
	}
	if (!code && d->opened++ == 0) /* relaxed: see copy_bytes() */
		atomic_fetch_add_explicit(&devices_open, 1, memory_order_relaxed);
	cufi_lock_give(&table_lock);
	return code;
}

static void close_device(int device)
{
	struct device *d;
	CUdevice handle;

	if (device < 0 || device >= n_devices)
		return;
	d = &devices[device];
	cufi_lock_take(&table_lock);
	if (d->opened && --d->opened == 0) {
		/* relaxed: see copy_bytes() */
		atomic_fetch_sub_explicit(&devices_open, 1, memory_order_relaxed);
		if (!cufi_cuda.cuDeviceGet(&handle, device))
			take_down_device(d, device, handle);
	}
	cufi_lock_give(&table_lock);
}

/* ---- streams and events ---- */

static int create_stream(int priority, struct CUstream_st **out_stream)
{
	return cufi_cuda_said(cufi_cuda.cudaStreamCreateWithPriority(
		out_stream, cudaStreamNonBlocking, priority));
}

static int destroy_stream(struct CUstream_st *stream)
{
	return cufi_cuda_said(cufi_cuda.cudaStreamDestroy(stream));
}

static int query_stream(struct CUstream_st *stream)
{
	return cufi_cuda_said(cufi_cuda.cudaStreamQuery(stream));
}

static int wait_in_stream(struct CUstream_st *stream, struct CUevent_st *event)
{
	return cufi_cuda_said(cufi_cuda.cudaStreamWaitEvent(stream, event, 0));
}

static int enqueue_host_func(struct CUstream_st *stream, void (*fn)(void *arg), void *arg)
{
	return cufi_cuda_said(cufi_cuda.cudaLaunchHostFunc(stream, fn, arg));
}

static int create_event(bool timing, struct CUevent_st **out_event)
{
	return cufi_cuda_said(cufi_cuda.cudaEventCreateWithFlags(
		out_event, timing ? cudaEventDefault : cudaEventDisableTiming));
}

static int destroy_event(struct CUevent_st *event)
{
	return cufi_cuda_said(cufi_cuda.cudaEventDestroy(event));
}

static int record_event(struct CUevent_st *event, struct CUstream_st *stream)
{
	return cufi_cuda_said(cufi_cuda.cudaEventRecord(event, stream));
}

static int query_event(struct CUevent_st *event)
{
	return cufi_cuda_said(cufi_cuda.cudaEventQuery(event));
}

static int measure_events(struct CUevent_st *start, struct CUevent_st *end, uint64_t *out_ns)
{
	float ms = 0;
	int code = (int)cufi_cuda.cudaEventElapsedTime(&ms, start, end);

	cufi_cuda_touched |= code != 0;

	*out_ns = code || ms < 0 ? 0 : (uint64_t)((double)ms * 1e6);
	return code;
}

/* ---- copy and fill ---- */

static int memory_at(const void *ptr, enum cufi_memory *out_kind, int *out_device)
{
	CUpointer_attribute attributes[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					     CU_POINTER_ATTRIBUTE_IS_MANAGED,
					     CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL };
	unsigned int type = 0, managed = 0;
	int device = -1, code;
	void *values[] = { &type, &managed, &device };

	/* The driver's, since cudaPointerGetAttributes makes a context where none is current. An
	 * address that it does not know is no error: the type is 0 then. */
	code = (int)cufi_cuda.cuPointerGetAttributes(3, attributes, values,
						     (CUdeviceptr)(uintptr_t)ptr);
	if (managed)
		*out_kind = CUFI_MEMORY_MANAGED;
	else if (type == CU_MEMORYTYPE_DEVICE)
		*out_kind = CUFI_MEMORY_DEVICE;
	else if (type == CU_MEMORYTYPE_HOST)
		*out_kind = CUFI_MEMORY_PINNED;
	else
		*out_kind = CUFI_MEMORY_PAGEABLE;
	*out_device = managed || type == CU_MEMORYTYPE_DEVICE ? device : -1;
	return code;
}

/* From one device to another; both known, and different. */
static bool crosses_devices(const void *dst, const void *src, int *out_to, int *out_from)
{
	enum cufi_memory kind;

	return !memory_at(dst, &kind, out_to) && kind == CUFI_MEMORY_DEVICE &&
	       !memory_at(src, &kind, out_from) && kind == CUFI_MEMORY_DEVICE &&
	       *out_to != *out_from;
}

/*
 * Between devices that have no access to each other, memory from a pool is copied right only by the
 * call that is told the devices. Relaxed: an address on a second device comes from somebody who
 * knows of its device_open().
 */
static int copy_bytes(void *dst, const void *src, size_t bytes, struct CUstream_st *stream)
{
	int to, from;

	if (atomic_load_explicit(&devices_open, memory_order_relaxed) > 1 &&
	    crosses_devices(dst, src, &to, &from))
		return cufi_cuda_said(
			cufi_cuda.cudaMemcpyPeerAsync(dst, to, src, from, bytes, stream));
	return cufi_cuda_said(
		cufi_cuda.cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream));
}

static int fill_bytes(void *dst, int byte, size_t bytes, struct CUstream_st *stream)
{
	return cufi_cuda_said(cufi_cuda.cudaMemsetAsync(dst, byte, bytes, stream));
}

/* ---- memory ---- */

static int allocate_async(size_t bytes, struct CUstream_st *stream, void **out_ptr)
{
	int device = cufi_cuda_current_device();

	*out_ptr = NULL;
	if (device < 0)
		return CUFI_CODE_INVALID_DEVICE;
	if (!devices[device].pool)
		return CUFI_CODE_NOT_SUPPORTED;
	return cufi_cuda_said(
		cufi_cuda.cudaMallocFromPoolAsync(out_ptr, bytes, devices[device].pool, stream));
}

static int free_async(void *ptr, struct CUstream_st *stream)
{
	return cufi_cuda_said(cufi_cuda.cudaFreeAsync(ptr, stream));
}

static int allocate_pinned(size_t bytes, void **out_ptr)
{
	*out_ptr = NULL;
	return cufi_cuda_said(cufi_cuda.cudaHostAlloc(out_ptr, bytes, cudaHostAllocPortable));
}

static int free_pinned(void *ptr)
{
	return cufi_cuda_said(cufi_cuda.cudaFreeHost(ptr));
}

static const struct cufi_device_ops cuda_ops = {
	.name = "cuda",
	.open = open_table,
	.close = close_table,
	.device_open = open_device,
	.device_close = close_device,
	.thread_relaxed = relax_thread,
	.code_name = cufi_cuda_code_name,
	.code_text = cufi_cuda_code_text,
	.is_sticky = is_sticky,
	.enter = enter_device,
	.leave = leave_device,
	.peek_error = peek_error,
	.stream_create = create_stream,
	.stream_destroy = destroy_stream,
	.stream_query = query_stream,
	.stream_wait = wait_in_stream,
	.host_func = enqueue_host_func,
	.event_create = create_event,
	.event_destroy = destroy_event,
	.event_record = record_event,
	.event_query = query_event,
	.event_elapsed_ns = measure_events,
	.copy = copy_bytes,
	.fill = fill_bytes,
	.kernel_load = cufi_cuda_kernel_load,
	.launch = cufi_cuda_launch,
	.malloc_async = allocate_async,
	.free_async = free_async,
	.pinned_alloc = allocate_pinned,
	.pinned_free = free_pinned,
	.memory_of = memory_at,
};

const struct cufi_device_ops *cufi_device_cuda(void)
{
	return &cuda_ops;
}

#endif
