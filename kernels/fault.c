/* SPDX-License-Identifier: MIT */
/*
 * The description of fault.cu. Its twin does nothing: the host device faults by its script.
 */
#include "kernels.h"

#ifdef CUFI_HAVE_NVCC
#include "kernels/fault.fatbin.h"
#define IMAGE fault_fatbin
#else
#define IMAGE NULL
#endif

static void fault_twin(const cuf_grid *grid, void *const *args)
{
	(void)grid, (void)args;
}

static const size_t fault_bytes[] = { sizeof(int) };

const cuf_kernel fault_kernel = {
	.size = sizeof(cuf_kernel),
	.name = "fault",
	.image = IMAGE,
	.host_fn = fault_twin,
	.n_args = 1,
	.arg_bytes = fault_bytes,
};
