/* SPDX-License-Identifier: MIT */
/*
 * Finding cudart and the driver at run time. What is done with them: device_cuda.c.
 *
 * cudart is opened with dlopen, not linked: one binary of this library then runs with CUDA and
 * without, "auto" decides when the program runs, and a distribution builds it once. Linked, it
 * would not even start where libcudart is missing; linked statically, it would add 1 MB to every
 * program and be a second cudart beside the program's own.
 *
 * The consequence: kernels that a program brings as symbols from nvcc (cuf_kernel.device_fn) are
 * known only to the cudart that the program was linked with, so that must be the shared one: nvcc
 * -cudart shared (its default is static). With the static one such a kernel is refused at its load;
 * kernels from a fatbin (cuf_kernel.image), streams, events and memory work with either, since the
 * driver below is one.
 *
 * Where: the libcudart.so.MAJOR that the process has already, since the program's symbols live
 * there; else the file that CUF_CUDART names; else where the loader finds that name; else in the
 * toolkit that configure found. MAJOR is that of the headers: another one has another ABI.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "device_cuda.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#if CUDART_VERSION < 13000
#define SONAME "libcudart.so.12"
#elif CUDART_VERSION < 14000
#define SONAME "libcudart.so.13"
#else
#error "a cudart this file was not tried with: its SONAME is one line above"
#endif

/* cudart has one of these two; both keep to these signatures, whatever the headers declare. */
typedef cudaError_t entry_by_version_fn(const char *symbol, void **out, unsigned int version,
					unsigned long long flags,
					enum cudaDriverEntryPointQueryResult *out_status);
typedef cudaError_t entry_fn(const char *symbol, void **out, unsigned long long flags,
			     enum cudaDriverEntryPointQueryResult *out_status);

struct cufi_cuda_calls cufi_cuda;

/* Never closed: cudart has exit handlers and thread-local storage. */
static void *library;
static bool tried;
static int outcome; /* of the one try: 0 or a code */
static int devices;

/* A function pointer from what dlsym and its likes give. */
#define SET(member, address) memcpy(&(member), &(void *){ (address) }, sizeof(void *))

static void *open_library(void)
{
	const char *named = secure_getenv("CUF_CUDART");
	void *found = dlopen(SONAME, RTLD_NOW | RTLD_NOLOAD);

	if (found)
		return found;
	/* Somebody's explicit wish is not overruled by what happens to be installed. */
	if (named && *named)
		return dlopen(named, RTLD_NOW | RTLD_LOCAL);
	found = dlopen(SONAME, RTLD_NOW | RTLD_LOCAL);
#ifdef CUFI_CUDART_DIR
	if (!found)
		found = dlopen(CUFI_CUDART_DIR "/" SONAME, RTLD_NOW | RTLD_LOCAL);
#endif
	return found;
}

static bool find_cudart_calls(void)
{
	bool all = true;

#define FIND(call)                                  \
	SET(cufi_cuda.call, dlsym(library, #call)); \
	all = all && cufi_cuda.call;
	CUFI_CUDART_CALLS(FIND)
#undef FIND
	return all;
}

/* Through cudart, so that the driver is the very one that cudart uses. NULL: it has no @symbol. */
static void *find_in_driver(const char *symbol, unsigned int version)
{
	enum cudaDriverEntryPointQueryResult status;
	entry_by_version_fn *by_version;
	entry_fn *plain;
	cudaError_t code = cudaErrorSymbolNotFound;
	void *address = NULL;

	SET(by_version, dlsym(library, "cudaGetDriverEntryPointByVersion"));
	SET(plain, dlsym(library, "cudaGetDriverEntryPoint"));
	if (by_version)
		code = by_version(symbol, &address, version, cudaEnableDefault, &status);
	else if (plain)
		code = plain(symbol, &address, cudaEnableDefault, &status);
	return code ? NULL : address;
}

static bool find_driver_calls(void)
{
	bool all = true;

#define FIND(call)                                         \
	SET(cufi_cuda.call, find_in_driver(#call, 12000)); \
	all = all && cufi_cuda.call;
#define FIND_LATER(call) SET(cufi_cuda.call, find_in_driver(#call, 12040));
	CUFI_DRIVER_CALLS(FIND)
	CUFI_DRIVER_CALLS_12040(FIND_LATER)
#undef FIND
#undef FIND_LATER
	return all;
}

static int load(int *out_count)
{
	cudaError_t before;
	int code;

	library = open_library();
	if (!library)
		return CUFI_CODE_NO_DRIVER;
	if (!find_cudart_calls()) {
		library = NULL;
		return CUFI_CODE_NO_DRIVER;
	}
	before = cufi_cuda.cudaPeekAtLastError();
	code = (int)cufi_cuda.cudaGetDeviceCount(out_count);
	if (!code && *out_count <= 0)
		code = CUFI_CODE_NO_DEVICE;
	if (!code && !find_driver_calls())
		code = CUFI_CODE_NO_DRIVER;
	if (before == cudaSuccess)
		cufi_cuda.cudaGetLastError();
	return code;
}

int cufi_cuda_load(int *out_count)
{
	if (!tried) {
		tried = true;
		outcome = load(&devices);
	}
	*out_count = outcome ? 0 : devices;
	return outcome;
}

const char *cufi_cuda_code_name(int code)
{
	if (library)
		return cufi_cuda.cudaGetErrorName((cudaError_t)code);
	return code == CUFI_CODE_NO_DRIVER ? "cudaErrorInsufficientDriver" : "unknown code";
}

const char *cufi_cuda_code_text(int code)
{
	if (library)
		return cufi_cuda.cudaGetErrorString((cudaError_t)code);
	return code == CUFI_CODE_NO_DRIVER ? SONAME
		       " was not found, or is older than 12.4 (CUF_CUDART)"
					   : "unknown code";
}
