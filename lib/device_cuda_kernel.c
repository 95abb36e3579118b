/* SPDX-License-Identifier: MIT */
/*
 * Kernels of the CUDA device: from a fatbin or an nvcc symbol to a handle, what a launch has to
 * know of it, and the launch. What the arguments should be is checked above, in submit.
 */
#include "device_cuda.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "wait.h"

/* Blocks in a cluster that every device with clusters takes; more is opt-in (CUDA's number). */
#define PORTABLE_CLUSTER 8

/* No kernel has more parameters: CUDA's limit on their bytes. Ends a loop that the driver ends. */
#define PARAMETERS 32764

/* An image that was loaded; it belongs to no context. */
struct library {
	struct library *next;
	const void *image;
	CUlibrary handle;
};

/* What launch() takes; one for each load. Constant but for the two flags. */
struct kernel {
	struct kernel *next;
	CUkernel function; /* and a cudaKernel_t: the two are one type, by cudart's documentation */
	CUdevice device;
	size_t shared_plain; /* dynamic shared memory that needs no opt-in */
	size_t shared_most;  /* what the opt-in gives */
	/* The opt-ins that were made. */
	_Atomic bool shared_opted, cluster_opted;
};

static cufi_lock lists_lock;
static struct library *libraries; /* both under lists_lock */
static struct kernel *kernels;

/* Under lists_lock. By the driver: cudart has the same calls only since 12.8. */
static int load_library(const void *image, CUlibrary *out_handle)
{
	struct library *l;
	int code;

	for (l = libraries; l; l = l->next)
		if (l->image == image) {
			*out_handle = l->handle;
			return 0;
		}
	l = malloc(sizeof *l);
	if (!l)
		return CUFI_CODE_NO_MEMORY;
	l->image = image;
	code = (int)cufi_cuda.cuLibraryLoadData(&l->handle, image, NULL, NULL, 0, NULL, NULL, 0);
	if (code) {
		free(l);
		return code;
	}
	l->next = libraries;
	libraries = l;
	*out_handle = l->handle;
	return 0;
}

static int find_function(const struct cuf_kernel *kernel, CUkernel *out_function)
{
	cudaKernel_t function = NULL;
	CUlibrary handle;
	int code;

	if (kernel->image) {
		code = load_library(kernel->image, &handle);
		if (!code)
			code = (int)cufi_cuda.cuLibraryGetKernel(out_function, handle,
								 kernel->name);
		return code;
	}
	if (!kernel->device_fn)
		return CUFI_CODE_INVALID_FUNCTION;
	/* The one call that refuses a symbol cudart does not know; others take it for a handle. */
	code = cufi_cuda_said(cufi_cuda.cudaGetKernel(&function, kernel->device_fn));
	*out_function = (CUkernel)function;
	return code || function ? code : CUFI_CODE_INVALID_FUNCTION;
}

static int measure_shared(struct kernel *k)
{
	int plain = 0, fixed = 0, most = 0, code;

	code = (int)cufi_cuda.cuKernelGetAttribute(
		&plain, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, k->function, k->device);
	if (!code)
		code = (int)cufi_cuda.cuKernelGetAttribute(
			&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, k->function, k->device);
	if (!code)
		code = cufi_cuda_said(cufi_cuda.cudaDeviceGetAttribute(
			&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, k->device));
	k->shared_plain = plain > 0 ? (size_t)plain : 0;
	k->shared_most = most > fixed ? (size_t)(most - fixed) : 0;
	return code;
}

/* How many parameters; -1: a driver that does not tell. */
static int measure_parameters(const struct kernel *k, size_t *out_bytes, size_t max)
{
	size_t n, offset, bytes;

	if (!cufi_cuda.cuKernelGetParamInfo)
		return -1;
	for (n = 0; n < PARAMETERS; n++) {
		if (cufi_cuda.cuKernelGetParamInfo(k->function, n, &offset, &bytes))
			break;
		if (n < max)
			out_bytes[n] = bytes;
	}
	return (int)n;
}

int cufi_cuda_kernel_load(const struct cuf_kernel *kernel, void **out_handle, size_t *out_bytes,
			  size_t max, int *out_n)
{
	struct kernel *k = calloc(1, sizeof *k);
	CUfunction loaded;
	int code;

	*out_handle = NULL;
	*out_n = -1;
	if (!k)
		return CUFI_CODE_NO_MEMORY;
	/* The ordinals of driver and cudart are the same. */
	k->device = cufi_cuda_current_device();
	cufi_lock_take(&lists_lock);
	code = k->device < 0 ? CUFI_CODE_INVALID_DEVICE : find_function(kernel, &k->function);
	/* Brings the code onto the device, which the first launch would do else, at a bad time. */
	if (!code)
		code = (int)cufi_cuda.cuKernelGetFunction(&loaded, k->function);
	if (!code)
		code = measure_shared(k);
	if (code) {
		free(k);
	} else {
		*out_n = measure_parameters(k, out_bytes, max);
		*out_handle = k;
		k->next = kernels;
		kernels = k;
	}
	cufi_lock_give(&lists_lock);
	return code;
}

void cufi_cuda_kernels_forget(void)
{
	cufi_lock_take(&lists_lock);
	while (kernels) {
		struct kernel *k = kernels;

		kernels = k->next;
		free(k);
	}
	while (libraries) {
		struct library *l = libraries;

		libraries = l->next;
		/* Fails where the device is lost: no matter. */
		cufi_cuda.cuLibraryUnload(l->handle);
		free(l);
	}
	cufi_lock_give(&lists_lock);
}

/*
 * An opt-in is made at the first launch that needs it, and for all there is: made for what each
 * launch asks, a smaller launch could take it back from a larger one in between. Two threads may
 * both make it; the flag only saves the call.
 */
static int opt_in(struct kernel *k, _Atomic bool *flag, CUfunction_attribute attribute, int value)
{
	int code;

	/* acquire: pairs with the store below: the attribute is set */
	if (atomic_load_explicit(flag, memory_order_acquire))
		return 0;
	code = (int)cufi_cuda.cuKernelSetAttribute(attribute, value, k->function, k->device);
	if (!code) /* release: pairs with the load above: the attribute is set */
		atomic_store_explicit(flag, true, memory_order_release);
	return code;
}

/* Adds clusters to a launch; 0 or a code. */
static int add_cluster(struct kernel *k, const uint32_t cluster[3], cudaLaunchConfig_t *config)
{
	cudaLaunchAttribute *a = &config->attrs[config->numAttrs++];

	memset(a, 0, sizeof *a);
	a->id = cudaLaunchAttributeClusterDimension;
	a->val.clusterDim.x = cluster[0];
	a->val.clusterDim.y = cluster[1];
	a->val.clusterDim.z = cluster[2];
	if ((uint64_t)cluster[0] * cluster[1] * cluster[2] <= PORTABLE_CLUSTER)
		return 0;
	return opt_in(k, &k->cluster_opted, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
}

int cufi_cuda_launch(void *handle, const struct cuf_grid *grid, void **args,
		     struct CUstream_st *stream)
{
	struct kernel *k = handle;
	cudaLaunchAttribute attributes[2];
	cudaLaunchConfig_t config = {
		.gridDim = { grid->blocks[0], grid->blocks[1], grid->blocks[2] },
		.blockDim = { grid->threads[0], grid->threads[1], grid->threads[2] },
		.dynamicSmemBytes = grid->shared_bytes,
		.stream = stream,
		.attrs = attributes,
	};
	int code = 0;

	if (grid->shared_bytes > k->shared_plain)
		code = opt_in(k, &k->shared_opted, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
			      (int)k->shared_most);
	if (!code && (grid->cluster[0] | grid->cluster[1] | grid->cluster[2]))
		code = add_cluster(k, grid->cluster, &config);
	if (grid->cooperative) {
		cudaLaunchAttribute *a = &attributes[config.numAttrs++];

		memset(a, 0, sizeof *a);
		a->id = cudaLaunchAttributeCooperative;
		a->val.cooperative = 1;
	}
	return code ? code
		    : cufi_cuda_said(cufi_cuda.cudaLaunchKernelExC(
			      &config, (const void *)k->function, args));
}
