/* SPDX-License-Identifier: MIT */
/*
 * Kernels as plain as they come. The twins, which compute the same bits: basic.c.
 */
#include <stddef.h>
#include <stdint.h>

/* for (size_t i = first(); i < n; i += stride()): every i below n, once, whatever the grid. */
static __device__ size_t first()
{
	return blockIdx.x * (size_t)blockDim.x + threadIdx.x;
}

static __device__ size_t stride()
{
	return gridDim.x * (size_t)blockDim.x;
}

extern "C" __global__ void vector_add(const float *a, const float *b, float *c, size_t n)
{
	for (size_t i = first(); i < n; i += stride())
		c[i] = a[i] + b[i];
}

extern "C" __global__ void scale(const float *in, float *out, float k, size_t n)
{
	for (size_t i = first(); i < n; i += stride())
		out[i] = k * in[i];
}

/* The intrinsics are never contracted to a fused multiply-add, which rounds once. */
extern "C" __global__ void mix(const float *x, const float *y, float *out, float a, float b,
			       size_t n)
{
	for (size_t i = first(); i < n; i += stride())
		out[i] = __fadd_rn(__fmul_rn(a, x[i]), __fmul_rn(b, y[i]));
}

extern "C" __global__ void add_one(int *p, size_t n)
{
	for (size_t i = first(); i < n; i += stride())
		p[i]++;
}

extern "C" __global__ void empty()
{
}

static __device__ bool is_first()
{
	return !(blockIdx.x | blockIdx.y | blockIdx.z | threadIdx.x | threadIdx.y | threadIdx.z);
}

static __device__ uint64_t now_ns()
{
	uint64_t ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

extern "C" __global__ void spin(uint64_t ns)
{
	uint64_t start = now_ns();

	while (is_first() && now_ns() - start < ns)
		;
}

extern "C" __global__ void spin_until(volatile int *flag)
{
	while (is_first() && !*flag)
		;
}
