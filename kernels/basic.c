/* SPDX-License-Identifier: MIT */
/*
 * The host twins of basic.cu, and the descriptions of both. The grid does not matter to them.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "kernels.h"

#include <time.h>

#ifdef CUFI_HAVE_NVCC
#include "kernels/basic.fatbin.h"
#define IMAGE basic_fatbin
#else
#define IMAGE NULL
#endif

/* Argument number i of a launch, of type T. */
#define ARG(T, i) (*(T *)args[i])

#define KERNEL(variable, entry, ...)                             \
	static const size_t entry##_bytes[] = { __VA_ARGS__ };   \
	const cuf_kernel variable = {                            \
		.size = sizeof(cuf_kernel),                      \
		.name = #entry,                                  \
		.image = IMAGE,                                  \
		.host_fn = entry##_twin,                         \
		.n_args = sizeof entry##_bytes / sizeof(size_t), \
		.arg_bytes = entry##_bytes,                      \
	}

static void vector_add_twin(const cuf_grid *grid, void *const *args)
{
	const float *a = ARG(const float *, 0), *b = ARG(const float *, 1);
	float *c = ARG(float *, 2);
	size_t n = ARG(size_t, 3);

	(void)grid;
	for (size_t i = 0; i < n; i++)
		c[i] = a[i] + b[i];
}

static void scale_twin(const cuf_grid *grid, void *const *args)
{
	const float *in = ARG(const float *, 0);
	float *out = ARG(float *, 1), k = ARG(float, 2);
	size_t n = ARG(size_t, 3);

	(void)grid;
	for (size_t i = 0; i < n; i++)
		out[i] = k * in[i];
}

static void mix_twin(const cuf_grid *grid, void *const *args)
{
	const float *x = ARG(const float *, 0), *y = ARG(const float *, 1);
	float *out = ARG(float *, 2), a = ARG(float, 3), b = ARG(float, 4);
	size_t n = ARG(size_t, 5);

	(void)grid;
	for (size_t i = 0; i < n; i++)
		out[i] = a * x[i] + b * y[i];
}

static void add_one_twin(const cuf_grid *grid, void *const *args)
{
	int *p = ARG(int *, 0);
	size_t n = ARG(size_t, 1);

	(void)grid;
	for (size_t i = 0; i < n; i++)
		p[i]++;
}

static void empty_twin(const cuf_grid *grid, void *const *args)
{
	(void)grid, (void)args;
}

static void sleep_ns(uint64_t ns)
{
	nanosleep(&(struct timespec){ (time_t)(ns / 1000000000), (long)(ns % 1000000000) }, NULL);
}

/* Sleeping passes for spinning: a test may have fewer cores than streams. */
static void spin_twin(const cuf_grid *grid, void *const *args)
{
	(void)grid;
	sleep_ns(ARG(uint64_t, 0));
}

static void spin_until_twin(const cuf_grid *grid, void *const *args)
{
	const int *flag = ARG(const int *, 0);

	(void)grid;
	/* acquire: pairs with whoever sets the flag in the test: what he wrote before */
	while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE))
		sleep_ns(20000);
}

KERNEL(vector_add, vector_add, sizeof(float *), sizeof(float *), sizeof(float *), sizeof(size_t));
KERNEL(scale, scale, sizeof(float *), sizeof(float *), sizeof(float), sizeof(size_t));
KERNEL(mix, mix, sizeof(float *), sizeof(float *), sizeof(float *), sizeof(float), sizeof(float),
       sizeof(size_t));
KERNEL(add_one, add_one, sizeof(int *), sizeof(size_t));
KERNEL(spin_kernel, spin, sizeof(uint64_t));
KERNEL(spin_until_kernel, spin_until, sizeof(int *));

const cuf_kernel empty_kernel = {
	.size = sizeof(cuf_kernel),
	.name = "empty",
	.image = IMAGE,
	.host_fn = empty_twin,
};
