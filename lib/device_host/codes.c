/* SPDX-License-Identifier: MIT */
/*
 * Names and texts of the CUDA error codes that the host device can return, by itself or as told by
 * a script. The numbers are cudaError_t's.
 */
#include "host.h"

static const struct code {
	int code;
	bool sticky;
	const char *name, *text;
} codes[] = {
	{ 0, false, "cudaSuccess", "no error" },
	{ 1, false, "cudaErrorInvalidValue", "invalid argument" },
	{ 2, false, "cudaErrorMemoryAllocation", "out of memory" },
	{ 3, false, "cudaErrorInitializationError", "initialization error" },
	{ 4, false, "cudaErrorCudartUnloading", "driver shutting down" },
	{ 9, false, "cudaErrorInvalidConfiguration", "invalid configuration argument" },
	{ 35, false, "cudaErrorInsufficientDriver",
	  "CUDA driver version is insufficient for CUDA runtime version" },
	{ 46, false, "cudaErrorDevicesUnavailable",
	  "CUDA-capable device(s) is/are busy or unavailable" },
	{ 98, false, "cudaErrorInvalidDeviceFunction", "invalid device function" },
	{ 100, false, "cudaErrorNoDevice", "no CUDA-capable device is detected" },
	{ 101, false, "cudaErrorInvalidDevice", "invalid device ordinal" },
	{ 209, false, "cudaErrorNoKernelImageForDevice",
	  "no kernel image is available for execution on the device" },
	{ 214, true, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered" },
	{ 400, false, "cudaErrorInvalidResourceHandle", "invalid resource handle" },
	{ 600, false, "cudaErrorNotReady", "device not ready" },
	{ 700, true, "cudaErrorIllegalAddress", "an illegal memory access was encountered" },
	{ 701, false, "cudaErrorLaunchOutOfResources", "too many resources requested for launch" },
	{ 702, true, "cudaErrorLaunchTimeout", "the launch timed out and was terminated" },
	{ 710, true, "cudaErrorAssert", "device-side assert triggered" },
	{ 714, true, "cudaErrorHardwareStackError", "hardware stack error" },
	{ 715, true, "cudaErrorIllegalInstruction", "an illegal instruction was encountered" },
	{ 716, true, "cudaErrorMisalignedAddress", "misaligned address" },
	{ 717, true, "cudaErrorInvalidAddressSpace",
	  "operation not supported on global/shared address space" },
	{ 718, true, "cudaErrorInvalidPc", "invalid program counter" },
	{ 719, true, "cudaErrorLaunchFailure", "unspecified launch failure" },
	{ 800, false, "cudaErrorNotPermitted", "operation not permitted" },
	{ 801, false, "cudaErrorNotSupported", "operation not supported" },
	{ 999, false, "cudaErrorUnknown", "unknown error" },
};

static const struct code *find_code(int code)
{
	size_t i;

	for (i = 0; i < sizeof codes / sizeof codes[0]; i++)
		if (codes[i].code == code)
			return &codes[i];
	return NULL;
}

const char *cufi_host_code_name(int code)
{
	const struct code *c = find_code(code);

	return c != NULL ? c->name : "cudaErrorUnrecognized";
}

const char *cufi_host_code_text(int code)
{
	const struct code *c = find_code(code);

	return c != NULL ? c->text : "unrecognized error code";
}

bool cufi_host_is_sticky(int code)
{
	const struct code *c = find_code(code);

	return c != NULL && c->sticky;
}
