/* SPDX-License-Identifier: MIT */
/*
 * What the files of the CUDA device share: the calls of cudart and of the driver, as pointers found
 * at run time (device_cuda_load.c, with the reasons), and the kernels (device_cuda_kernel.c). The
 * table itself: device_cuda.c.
 */
#ifndef CUFI_DEVICE_CUDA_H
#define CUFI_DEVICE_CUDA_H

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "device.h"

/* What cudart 12.4 and every later one has. */
#define CUFI_CUDART_CALLS(X)                \
	X(cudaDeviceGetAttribute)           \
	X(cudaDeviceGetStreamPriorityRange) \
	X(cudaEventCreateWithFlags)         \
	X(cudaEventDestroy)                 \
	X(cudaEventElapsedTime)             \
	X(cudaEventQuery)                   \
	X(cudaEventRecord)                  \
	X(cudaFreeAsync)                    \
	X(cudaFreeHost)                     \
	X(cudaGetDeviceCount)               \
	X(cudaGetErrorName)                 \
	X(cudaGetErrorString)               \
	X(cudaGetKernel)                    \
	X(cudaGetLastError)                 \
	X(cudaHostAlloc)                    \
	X(cudaLaunchHostFunc)               \
	X(cudaLaunchKernelExC)              \
	X(cudaMallocFromPoolAsync)          \
	X(cudaMemPoolCreate)                \
	X(cudaMemPoolDestroy)               \
	X(cudaMemPoolSetAttribute)          \
	X(cudaMemcpyAsync)                  \
	X(cudaMemcpyPeerAsync)              \
	X(cudaMemsetAsync)                  \
	X(cudaPeekAtLastError)              \
	X(cudaStreamCreateWithPriority)     \
	X(cudaStreamDestroy)                \
	X(cudaStreamQuery)                  \
	X(cudaStreamWaitEvent)

/*
 * Where cudart has no call, has one since later than 12.4, would make a context on device 0 in a
 * thread without a current one, or would leave an expected error in the thread's slot. cuda.h
 * renames some of these (cuCtxPopCurrent_v2): so are the members, and whoever uses them does not
 * notice.
 */
#define CUFI_DRIVER_CALLS(X)         \
	X(cuCtxGetCurrent)           \
	X(cuCtxPopCurrent)           \
	X(cuCtxPushCurrent)          \
	X(cuDeviceGet)               \
	X(cuDeviceGetName)           \
	X(cuDevicePrimaryCtxRelease) \
	X(cuDevicePrimaryCtxRetain)  \
	X(cuDeviceTotalMem)          \
	X(cuKernelGetAttribute)      \
	X(cuKernelGetFunction)       \
	X(cuKernelSetAttribute)      \
	X(cuLibraryGetKernel)        \
	X(cuLibraryLoadData)         \
	X(cuLibraryUnload)           \
	X(cuPointerGetAttributes)    \
	X(cuThreadExchangeStreamCaptureMode)

/* NULL with a driver older than 12.4, which a cudart of 12.4 may well run on. */
#define CUFI_DRIVER_CALLS_12040(X) X(cuKernelGetParamInfo)

#define CUFI_MEMBER(call) __typeof__(call) *call;
/* Written by cufi_cuda_load() once, before it first returns 0; constant from then on. */
struct cufi_cuda_calls {
	CUFI_CUDART_CALLS(CUFI_MEMBER)
	CUFI_DRIVER_CALLS(CUFI_MEMBER)
	CUFI_DRIVER_CALLS_12040(CUFI_MEMBER)
};
#undef CUFI_MEMBER

extern struct cufi_cuda_calls cufi_cuda;

/* A call of this thread failed since it entered a device: its error may lie in the last-error slot. */
extern _Thread_local bool cufi_cuda_touched;

static inline int cufi_cuda_said(cudaError_t code)
{
	if (code != cudaSuccess)
		cufi_cuda_touched = true;
	return (int)code;
}

/*
 * Finds the library, a driver and a device. 0, or the code that says what is missing, then and at
 * every later call: a process that started without a GPU goes on without. Not from several threads
 * at once. Makes no context, and leaves the thread's last-error slot as it found it.
 */
int cufi_cuda_load(int *out_count);

/* Texts that need neither driver nor device; never NULL. */
const char *cufi_cuda_code_name(int code);
const char *cufi_cuda_code_text(int code);

/* The device whose context is current, of those that are open; -1: none. */
int cufi_cuda_current_device(void);

/* kernel_load and launch of the table. */
int cufi_cuda_kernel_load(const struct cuf_kernel *kernel, void **out_handle, size_t *out_bytes,
			  size_t max, int *out_n);
int cufi_cuda_launch(void *handle, const struct cuf_grid *grid, void **args,
		     struct CUstream_st *stream);
/* Frees every handle and unloads every image. Nobody launches any more. */
void cufi_cuda_kernels_forget(void);

#endif
