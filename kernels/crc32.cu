/* SPDX-License-Identifier: MIT */
/*
 * CRC-32 (zlib's polynomial) of many blocks, a warp for each. The twin: crc32.c.
 *
 * The register of a CRC is a polynomial over GF(2), here as everywhere reflected: bit 31 is x^0. To
 * append a word w of 4 bytes is s = (s + w) x^32 mod P; to append n bytes of zeros is s = s x^8n.
 * Both are linear, so that a block's CRC is the sum (xor) of what each of its words contributes.
 *
 * A warp reads a block in rows of 512 bytes, 16 to a lane: coalesced, and all of a row at once.
 * Each lane keeps a register for each of its 4 words, and multiplies them by x^(8*512) from row to
 * row by four look-ups in a table of 4 KiB in shared memory: one look-up for each byte, like any
 * method by tables, but with four chains that do not wait for each other. After the last row the
 * lane appends its 4 words to each other, multiplies by what follows it in the row, and the lanes'
 * sums are the CRC.
 *
 * Look-ups at random addresses meet in the banks of shared memory, about 3.5 of 32 in one: some
 * 9 bytes a clock for each multiprocessor is the limit. Measured on an H200, 16 MiB that are not in
 * its cache: 14.7 us with blocks of 4 KiB, 15.7 with 8, 20 with 16, 32 with 32: fewer warps hide
 * less. A copy of the table for each bank would not have that limit, but filling it (128 KiB) would
 * take about as long as the work on 16 MiB, whose copy over PCIe takes 340 us anyway.
 */
#include <stddef.h>
#include <stdint.h>

/* Bytes: 32 lanes of 16. */
#define ROW 512

/* Rows read at once: 32 registers; 8 warps have 32 KiB in flight, where an H200 wants 25. */
#define AHEAD 8

#define POLYNOMIAL 0xedb88320u /* x^0 is bit 31, x^32 is implied */
#define X0	   0x80000000u
#define X8	   0x00800000u

/* Host code too, so that it can be checked there. */
#define BOTH static __host__ __device__ __forceinline__

static constexpr uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (int bit = 31; bit >= 0; bit--) {
		if (a >> bit & 1)
			product ^= b;
		b = b & 1 ? b >> 1 ^ POLYNOMIAL : b >> 1;
	}
	return product;
}

/* x^(8 bytes) */
static constexpr uint32_t power(unsigned int bytes)
{
	uint32_t result = X0, square = X8;

	for (; bytes; bytes >>= 1) {
		if (bytes & 1)
			result = multiply(result, square);
		square = multiply(square, square);
	}
	return result;
}

/* by[k][v] = (v << 8k) f: a product with f by four look-ups. */
struct product {
	uint32_t by[4][256];
};

/* by[k][lane] = (1 << k) f(lane): a product with a factor of each lane's own, by 32 choices; lanes
 * read neighbouring words. */
struct lane_product {
	uint32_t by[32][32];
};

struct tables {
	struct product row;	  /* x^(8*512): to the next row */
	struct product word;	  /* x^32: to the next word */
	struct lane_product lane; /* from the end of a lane's 16 bytes to the end of the row */
};

static constexpr struct product make_product(uint32_t factor)
{
	struct product p = {};

	for (int k = 0; k < 4; k++)
		for (uint32_t v = 1; v < 256; v++) {
			uint32_t rest = v & (v - 1); /* without its lowest bit: done before */

			p.by[k][v] = rest ? p.by[k][rest] ^ p.by[k][v ^ rest]
					  : multiply(factor, v << 8 * k);
		}
	return p;
}

static constexpr struct lane_product make_lane_product()
{
	struct lane_product p = {};

	for (int lane = 0; lane < 32; lane++) {
		uint32_t factor = power(16 * (31 - lane));

		for (int k = 0; k < 32; k++)
			p.by[k][lane] = multiply(factor, 1u << k);
	}
	return p;
}

static constexpr struct tables make_tables()
{
	return { make_product(power(ROW)), make_product(power(4)), make_lane_product() };
}

BOTH uint32_t look_up(const struct product &p, uint32_t s)
{
	return p.by[0][s & 255] ^ p.by[1][s >> 8 & 255] ^ p.by[2][s >> 16 & 255] ^ p.by[3][s >> 24];
}

/* Four words of a lane. */
struct quad {
	uint32_t w[4];
};

/* What the lane contributes to the register of a block of @n_rows, read by @rows(row, lane), BATCH
 * rows ahead. */
template <int BATCH, class Rows>
BOTH uint32_t contribution(const struct tables &t, const Rows &rows, size_t n_rows, int lane)
{
	struct quad s = rows(0, lane), ahead[BATCH];
	uint32_t sum = 0, product = 0;

	for (size_t row = 1; row < n_rows; row += BATCH) {
#pragma unroll
		for (int i = 0; i < BATCH; i++)
			if (row + i < n_rows)
				ahead[i] = rows(row + i, lane);
#pragma unroll
		for (int i = 0; i < BATCH; i++)
			if (row + i < n_rows)
#pragma unroll
				for (int j = 0; j < 4; j++)
					s.w[j] = look_up(t.row, s.w[j]) ^ ahead[i].w[j];
	}
#pragma unroll
	for (int j = 0; j < 4; j++)
		sum = look_up(t.word, sum ^ s.w[j]);
#pragma unroll
	for (int k = 0; k < 32; k++)
		product ^= t.lane.by[k][lane] & -(sum >> k & 1);
	return product;
}

/* A block of whole rows, aligned. The register starts as all ones: zlib's convention. */
struct aligned_rows {
	const uint4 *data;

	__host__ __device__ __forceinline__ struct quad operator()(size_t row, int lane) const
	{
		uint4 v = data[row * 32 + lane];

		return { { row || lane ? v.x : ~v.x, v.y, v.z, v.w } };
	}
};

/* Any block, as the end of as many rows: zeros before it do not change a register of zeros. */
struct padded_rows {
	const unsigned char *data;
	size_t bytes, padding;

	__host__ __device__ struct quad operator()(size_t row, int lane) const
	{
		struct quad q = {};

#pragma unroll 4
		for (int j = 0; j < 16; j++) {
			size_t at = row * ROW + lane * 16 + j;

			if (at >= padding)
				q.w[j / 4] |= (uint32_t)(data[at - padding] ^
							 (at - padding < 4 ? 255 : 0))
					      << j % 4 * 8;
		}
		return q;
	}
};

/* Of the whole block, @sum being the lanes' contributions. Of fewer than 4 bytes, ones remain. */
BOTH uint32_t finish(uint32_t sum, size_t bytes)
{
	return ~(bytes < 4 ? sum ^ ~0u >> bytes * 8 : sum);
}

BOTH uint32_t contribution_of_any(const struct tables &t, const unsigned char *data, size_t bytes,
				  int lane)
{
	size_t n_rows = (bytes + ROW - 1) / ROW;

	if (bytes % ROW == 0 && (uintptr_t)data % sizeof(uint4) == 0)
		return contribution<AHEAD>(t, aligned_rows{ (const uint4 *)data }, n_rows, lane);
	return contribution<1>(t, padded_rows{ data, bytes, n_rows * ROW - bytes }, n_rows, lane);
}

#ifdef __CUDACC__
static __device__ const struct tables in_memory = make_tables();

extern "C" __global__ void __launch_bounds__(256, 4)
	crc32_blocks(const unsigned char *data, size_t bytes, size_t block_bytes, uint32_t *out)
{
	__shared__ struct tables t;
	const unsigned int warps = blockDim.x / 32, lane = threadIdx.x % 32;

	for (unsigned int i = threadIdx.x; i < sizeof t / sizeof(uint4); i += blockDim.x)
		((uint4 *)&t)[i] = ((const uint4 *)&in_memory)[i];
	__syncthreads();
	if (threadIdx.x / 32 >= warps || !block_bytes)
		return;
	const size_t n = bytes / block_bytes + (bytes % block_bytes != 0);
	const size_t all_warps = gridDim.x * (size_t)warps;

	for (size_t i = blockIdx.x * (size_t)warps + threadIdx.x / 32; i < n; i += all_warps) {
		size_t at = i * block_bytes;
		size_t length = bytes - at < block_bytes ? bytes - at : block_bytes;
		uint32_t sum = contribution_of_any(t, data + at, length, lane);

		for (int mask = 16; mask; mask >>= 1)
			sum ^= __shfl_xor_sync(~0u, sum, mask);
		if (lane == 0)
			out[i] = finish(sum, length);
	}
}
#endif
