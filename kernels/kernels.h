/* SPDX-License-Identifier: MIT */
/*
 * The kernels of the examples, the tests and the benchmarks. Each is a CUDA function in NAME.cu and
 * its host twin in NAME.c; where the library was built without nvcc only the twin is there, and a
 * launch on a GPU fails as unsupported.
 *
 * All loop over what they are given, so that any grid that is not empty does the whole work.
 */
#ifndef KERNELS_H
#define KERNELS_H

#include <cufuture.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- basic.cu ---- */

extern const cuf_kernel vector_add; /* const float *a, const float *b, float *c, size_t n */
extern const cuf_kernel scale;	    /* const float *in, float *out, float k, size_t n */
/* out = a x + b y, rounded after each step on every device:
 * const float *x, const float *y, float *out, float a, float b, size_t n */
extern const cuf_kernel mix;
extern const cuf_kernel add_one; /* int *p, size_t n */

/* What measures, and what blocks. One thread does the work, whatever the grid. */
extern const cuf_kernel empty_kernel; /* no arguments */
extern const cuf_kernel spin_kernel;  /* uint64_t ns: runs that long */
/* volatile int *flag, in pinned memory: runs until it is not 0 */
extern const cuf_kernel spin_until_kernel;

/* ---- crc32.cu ---- */

/*
 * out[i] = zlib's crc32() of the i-th block of @block_bytes; the last may be shorter, and is never
 * empty. @threads of the grid must be a multiple of 32, at most CRC32_THREADS. Fast where @data is
 * aligned to 16 bytes and @block_bytes is a multiple of 512, right for any.
 *
 * const void *data, size_t bytes, size_t block_bytes, uint32_t *out
 */
extern const cuf_kernel crc32_blocks;

#define CRC32_BLOCK   16384 /* bytes: 1024 results in 16 MiB, at 840 GB/s (H200; crc32.cu) */
#define CRC32_THREADS 256

/* A grid with a warp for each block of @block_bytes. */
static inline cuf_grid crc32_grid(size_t bytes, size_t block_bytes)
{
	size_t blocks = bytes / block_bytes + (bytes % block_bytes != 0);

	return cuf_grid_1d(blocks * 32, CRC32_THREADS);
}

/* ---- fault.cu ---- */

/* int kind: what kills the device. The twin does nothing: the host device's script faults. */
extern const cuf_kernel fault_kernel;

enum fault_kind {
	FAULT_NONE,
	FAULT_ADDRESS,	  /* a store to an address that nobody allocated */
	FAULT_MISALIGNED, /* a store of 4 bytes to an odd address */
	FAULT_TRAP,
	FAULT_ASSERT
};

#ifdef __cplusplus
}
#endif

#endif
