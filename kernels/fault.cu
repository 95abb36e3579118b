/* SPDX-License-Identifier: MIT */
/*
 * What kills a device, to test that its end is survived. A process has one such fault in its life.
 */
#undef NDEBUG
#include <assert.h>

__device__ int target[2];

/* The numbers are those of enum fault_kind in kernels.h. */
extern "C" __global__ void fault(int kind)
{
	switch (kind) {
	case 1: /* nobody's address */
		*(volatile int *)16 = 1;
		break;
	case 2: /* volatile: the compiler would make something legal of it */
		*(volatile int *)((char *)target + 1) = 1;
		break;
	case 3:
		__trap();
		break;
	case 4:
		assert(kind != 4);
		break;
	}
}
