/* SPDX-License-Identifier: MIT */
/*
 * The raw side of the benchmark: cudart called directly, through the same shared library that ours
 * opens. Any error ends the program: a benchmark that goes on after one measures something else.
 */
#include "bench.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "config.h"
#include "kernels.h"

#if defined CUFI_HAVE_CUDA && defined CUFI_HAVE_NVCC
#include <cuda_runtime_api.h>
#endif

#if defined CUFI_HAVE_CUDA && defined CUFI_HAVE_NVCC && CUDART_VERSION >= 12080

#define CALLS(X)                     \
	X(cudaGetDeviceCount)        \
	X(cudaSetDevice)             \
	X(cudaFree)                  \
	X(cudaStreamCreateWithFlags) \
	X(cudaEventCreateWithFlags)  \
	X(cudaEventRecord)           \
	X(cudaEventQuery)            \
	X(cudaStreamWaitEvent)       \
	X(cudaStreamSynchronize)     \
	X(cudaLaunchHostFunc)        \
	X(cudaLaunchKernelExC)       \
	X(cudaLibraryLoadData)       \
	X(cudaLibraryGetKernel)      \
	X(cudaGetErrorString)

#define DECLARE(name) static __typeof__(name) *name##_;
CALLS(DECLARE)

static const void *empty_entry, *spin_entry;

static void check(cudaError_t e, const char *what)
{
	if (e) {
		fprintf(stderr, "raw: %s: %s\n", what, cudaGetErrorString_(e));
		exit(1);
	}
}

static const void *load(const cuf_kernel *k)
{
	cudaLibrary_t library;
	cudaKernel_t kernel;

	check(cudaLibraryLoadData_(&library, k->image, NULL, NULL, 0, NULL, NULL, 0), "load");
	check(cudaLibraryGetKernel_(&kernel, library, k->name), "kernel");
	return (const void *)kernel;
}

bool raw_open(void)
{
	const char *path = getenv("CUF_CUDART");
	char name[32];
	void *so;
	int n = 0;

	snprintf(name, sizeof name, "libcudart.so.%d", CUDART_VERSION / 1000);
	so = dlopen(path ? path : name, RTLD_NOW);
	if (!so)
		return false;
#define RESOLVE(name)                                   \
	name##_ = (__typeof__(name) *)dlsym(so, #name); \
	if (!name##_)                                   \
		return false;
	CALLS(RESOLVE)
	if (cudaGetDeviceCount_(&n) || !n)
		return false;
	check(cudaSetDevice_(0), "device");
	check(cudaFree_(NULL), "context");
	empty_entry = load(&empty_kernel);
	spin_entry = load(&spin_kernel);
	return true;
}

struct raw_stream *raw_stream_create(void)
{
	cudaStream_t s;

	check(cudaStreamCreateWithFlags_(&s, cudaStreamNonBlocking), "stream");
	return (struct raw_stream *)s;
}

struct raw_event *raw_event_create(void)
{
	cudaEvent_t e;

	check(cudaEventCreateWithFlags_(&e, cudaEventDisableTiming), "event");
	return (struct raw_event *)e;
}

static void launch(struct raw_stream *s, const void *entry, void **args)
{
	cudaLaunchConfig_t c = { 0 };

	c.gridDim.x = c.gridDim.y = c.gridDim.z = 1;
	c.blockDim.x = c.blockDim.y = c.blockDim.z = 1;
	c.stream = (cudaStream_t)s;
	check(cudaLaunchKernelExC_(&c, entry, args), "launch");
}

void raw_launch_empty(struct raw_stream *s)
{
	launch(s, empty_entry, NULL);
}

void raw_launch_spin(struct raw_stream *s, uint64_t ns)
{
	void *args[] = { &ns };

	launch(s, spin_entry, args);
}

void raw_record(struct raw_event *e, struct raw_stream *s)
{
	check(cudaEventRecord_((cudaEvent_t)e, (cudaStream_t)s), "record");
}

void raw_wait(struct raw_stream *s, struct raw_event *e)
{
	check(cudaStreamWaitEvent_((cudaStream_t)s, (cudaEvent_t)e, 0), "wait");
}

bool raw_done(struct raw_event *e)
{
	cudaError_t code = cudaEventQuery_((cudaEvent_t)e);

	if (code != cudaErrorNotReady)
		check(code, "query");
	return code == cudaSuccess;
}

void raw_sync(struct raw_stream *s)
{
	check(cudaStreamSynchronize_((cudaStream_t)s), "synchronize");
}

static void set_flag(void *arg)
{
	*(volatile int *)arg = 1;
}

void raw_flag(struct raw_stream *s, volatile int *flag)
{
	check(cudaLaunchHostFunc_((cudaStream_t)s, set_flag, (void *)flag), "host function");
}

#else

bool raw_open(void)
{
	return false;
}

struct raw_stream *raw_stream_create(void)
{
	return NULL;
}

struct raw_event *raw_event_create(void)
{
	return NULL;
}

void raw_launch_empty(struct raw_stream *s)
{
	(void)s;
}

void raw_launch_spin(struct raw_stream *s, uint64_t ns)
{
	(void)s, (void)ns;
}

void raw_record(struct raw_event *e, struct raw_stream *s)
{
	(void)e, (void)s;
}

void raw_wait(struct raw_stream *s, struct raw_event *e)
{
	(void)s, (void)e;
}

bool raw_done(struct raw_event *e)
{
	(void)e;
	return true;
}

void raw_sync(struct raw_stream *s)
{
	(void)s;
}

void raw_flag(struct raw_stream *s, volatile int *flag)
{
	(void)s;
	*flag = 1;
}

#endif
