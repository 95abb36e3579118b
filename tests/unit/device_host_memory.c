/* SPDX-License-Identifier: MIT */
/* Memory of the host device: stream order (F12), copies pageable and pinned (F8), whose it is. */
#include "tap.h"
#include "unit/device_host.h"

static void *get(struct CUstream_st *s, size_t bytes)
{
	void *p = NULL;

	if (ops->malloc_async(bytes, s, &p) != 0)
		abort();
	return p;
}

static int kind_of(const void *p, int *out_device)
{
	enum cufi_memory kind;

	*out_device = -7;
	return ops->memory_of(p, &kind, out_device) == 0 ? (int)kind : -1;
}

static void test_pool(void)
{
	struct CUstream_st *s = new_stream(0), *t = new_stream(0);
	char *a = get(s, 5000), *b;
	struct hold h;

	ok((uintptr_t)a % 256 == 0, "aligned");
	put_hold(s, &h);
	is_int(ops->free_async(a, s), 0, "freed, not reached yet");
	b = get(t, 5000);
	ok(b != a, "another stream does not get the address yet");
	is_ptr(get(s, 4999), a, "the same stream does at once");
	is_int(ops->free_async(a, s), 0, "freed again");
	is_int(ops->free_async(a, s), CUFI_CODE_INVALID_VALUE, "not twice");
	atomic_store(&h.let_go, true);
	drain(s);
	is_ptr(get(t, 5000), a, "another stream does once the free was reached");
	ops->free_async(a, t);
	ops->free_async(b, t);
	drain(t);
	is_int(ops->free_async((char *)b + 16, t), CUFI_CODE_INVALID_VALUE, "an interior address");
	is_int(ops->free_async(NULL, t), CUFI_CODE_INVALID_VALUE, "NULL");
	is_int(ops->free_async(&h, t), CUFI_CODE_INVALID_VALUE, "host memory");
	is_int(ops->malloc_async(0, t, (void **)&b), CUFI_CODE_INVALID_VALUE, "no bytes");
	is_int(ops->malloc_async(HOST_MEMORY_BYTES + 1, t, (void **)&b), CUFI_CODE_NO_MEMORY,
	       "more than there is");
	is_int(ops->malloc_async(SIZE_MAX, t, (void **)&b), CUFI_CODE_NO_MEMORY, "much more");
	is_int(ops->stream_query(t), 0, "which leaves nothing on the stream");
	ops->stream_destroy(s);
	ops->stream_destroy(t);
}

static void test_full(void)
{
	struct CUstream_st *s = new_stream(1);
	void *p[9];
	int i, code = 0;

	for (i = 0; i < 9 && code == 0; i++)
		code = ops->malloc_async((size_t)1 << 30, s, &p[i]);
	is_int(code, CUFI_CODE_NO_MEMORY, "a device runs out");
	is_int(i, 9, "after all it has");
	cuf_host_stall(s, 1);
	for (i = 0; i < 8; i++)
		ops->free_async(p[i], s);
	is_ptr(get(s, (size_t)1 << 30), p[7], "what was freed on the stream is there again");
	ops->free_async(p[7], s);
	cuf_host_stall(s, 0);
	drain(s);
	ok(get(s, (size_t)2 << 30) != NULL, "and for others when the free was reached");
	ops->stream_destroy(s);
}

static void test_owner(void)
{
	struct CUstream_st *s0 = new_stream(0), *s1 = new_stream(1);
	char *d0 = get(s0, 100000), *d1 = get(s1, 3 << 20), *pinned, *pageable = malloc(1 << 20);
	int device, wrong = 0;
	size_t i;

	is_int(ops->pinned_alloc(5 << 20, (void **)&pinned), 0, "page-locked memory");
	for (i = 0; i < 100000; i += 997)
		wrong += kind_of(d0 + i, &device) != CUFI_MEMORY_DEVICE || device != 0;
	for (i = 0; i < (size_t)3 << 20; i += 9999)
		wrong += kind_of(d1 + i, &device) != CUFI_MEMORY_DEVICE || device != 1;
	for (i = 0; i < (size_t)5 << 20; i += 9999)
		wrong += kind_of(pinned + i, &device) != CUFI_MEMORY_PINNED || device != -1;
	for (i = 0; i < (size_t)1 << 20; i += 9999)
		wrong += kind_of(pageable + i, &device) != CUFI_MEMORY_PAGEABLE || device != -1;
	is_int(wrong, 0, "every byte has its kind and device");
	is_int(kind_of(d0 + 100000, &device), CUFI_MEMORY_PAGEABLE, "the one behind has not");
	is_int(kind_of(NULL, &device), CUFI_MEMORY_PAGEABLE, "NULL");
	is_int(kind_of((void *)UINTPTR_MAX, &device), CUFI_MEMORY_PAGEABLE, "the last address");
	ops->free_async(d0, s0);
	ops->free_async(d1, s1);
	is_int(kind_of(d0, &device), CUFI_MEMORY_PAGEABLE, "freed memory is nobody's");
	is_int(ops->pinned_free(pinned + 1), CUFI_CODE_INVALID_VALUE, "pinned: interior");
	is_int(ops->pinned_free(d1), CUFI_CODE_INVALID_VALUE, "pinned: of a device");
	is_int(ops->pinned_free(pinned), 0, "pinned: freed");
	is_int(ops->pinned_free(pinned), CUFI_CODE_INVALID_VALUE, "pinned: not twice");
	is_int(kind_of(pinned, &device), CUFI_MEMORY_PAGEABLE, "nobody's");
	drain(s0);
	drain(s1);
	free(pageable);
	ops->stream_destroy(s0);
	ops->stream_destroy(s1);
}

static void test_pinned_copy(void)
{
	struct CUstream_st *s = new_stream(0);
	char *d = get(s, 4096), *in, *out;
	struct hold h;
	bool same = true;
	int i;

	ops->pinned_alloc(4096, (void **)&in);
	ops->pinned_alloc(4096, (void **)&out);
	memset(in, 1, 4096);
	memset(out, 0, 4096);
	put_hold(s, &h);
	is_int(ops->copy(d, in, 4096, s), 0, "pinned copies do not block");
	is_int(ops->copy(out, d, 4096, s), 0, "in neither direction");
	memset(in, 2, 4096);
	ok(out[0] == 0, "nothing is written yet");
	atomic_store(&h.let_go, true);
	drain(s);
	for (i = 0; i < 4096; i++)
		same = same && out[i] == 2;
	ok(same, "the source was read when the stream reached it");
	is_int(ops->fill(d, 0x107, 100, s), 0, "a fill");
	ops->copy(out, d, 4096, s);
	drain(s);
	ok(out[0] == 7 && out[99] == 7 && out[100] == 2,
	   "sets the low byte, as many times as said");
	is_int(ops->copy(d, in, 4097, s), CUFI_CODE_INVALID_VALUE, "past the end: destination");
	is_int(ops->copy(in, d + 1, 4096, s), CUFI_CODE_INVALID_VALUE, "past the end: source");
	is_int(ops->copy(d, NULL, 1, s), CUFI_CODE_INVALID_VALUE, "NULL");
	is_int(ops->copy(d, in, SIZE_MAX, s), CUFI_CODE_INVALID_VALUE, "a range that wraps");
	is_int(ops->copy(NULL, NULL, 0, s), 0, "no bytes");
	is_int(ops->fill(d + 4000, 0, 97, s), CUFI_CODE_INVALID_VALUE, "fill past the end");
	is_int(ops->fill(&same, 0, 1, s), CUFI_CODE_INVALID_VALUE, "fill of host memory");
	ops->free_async(d, s);
	is_int(ops->copy(in, d, 16, s), CUFI_CODE_INVALID_VALUE, "of freed memory");
	drain(s);
	ops->pinned_free(in);
	ops->pinned_free(out);
	ops->stream_destroy(s);
}

struct copier {
	struct CUstream_st *s;
	char *to;
	const char *from;
	int code;
	atomic_bool done;
	pthread_t id;
};

static void *copy_out(void *arg)
{
	struct copier *c = arg;

	c->code = ops->copy(c->to, c->from, 4096, c->s);
	atomic_store(&c->done, true);
	return NULL;
}

static void test_pageable_copy(void)
{
	struct CUstream_st *s = new_stream(0);
	char *d = get(s, 4096), *d1, in[4096], out[4096] = { 0 };
	struct copier c = { .s = s, .to = out, .from = d };
	struct CUstream_st *s1 = new_stream(1);
	struct hold h;

	memset(in, 1, sizeof in);
	put_hold(s, &h);
	is_int(ops->copy(d, in, sizeof in, s), 0, "a pageable source does not block");
	memset(in, 2, sizeof in);
	pthread_create(&c.id, NULL, copy_out, &c);
	sleep_ms(20);
	ok(!atomic_load(&c.done), "a pageable destination does");
	atomic_store(&h.let_go, true);
	pthread_join(c.id, NULL);
	is_int(c.code, 0, "until it is written");
	ok(out[0] == 1 && out[4095] == 1, "and the source was read when the call was made");
	/* Between devices. */
	d1 = get(s1, 4096);
	drain(s1);
	is_int(ops->copy(d1, d, 4096, s), 0, "from one device to another");
	drain(s);
	memset(out, 0, sizeof out);
	is_int(ops->copy(out, d1, 4096, s1), 0, "and out");
	ok(out[17] == 1, "the bytes are there");
	/* A fault lets a blocked one go. */
	put_hold(s, &h);
	cuf_host_fault_at(0, 1, CUFI_CODE_ILLEGAL_ADDRESS);
	atomic_store(&c.done, false);
	pthread_create(&c.id, NULL, copy_out, &c);
	sleep_ms(5);
	atomic_store(&h.let_go, true);
	pthread_join(c.id, NULL);
	is_int(c.code, CUFI_CODE_ILLEGAL_ADDRESS, "a blocked copy returns the device's error");
	ops->stream_destroy(s);
	ops->stream_destroy(s1);
}

/* Blocks of all sizes on several streams, each with its own pattern, recycled in stream order. */
static void test_many(void)
{
	enum { N = 64, ROUNDS = 400, MAX = 3000000 };
	struct CUstream_st *s[4], *on[N];
	unsigned char *p[N] = { NULL }, *out;
	size_t bytes[N] = { 0 };
	int r, i, wrong = 0;

	ops->pinned_alloc(MAX, (void **)&out);
	for (i = 0; i < 4; i++)
		s[i] = new_stream(i % 2);
	for (r = 0; r < ROUNDS; r++) {
		i = (int)(cufi_host_random(HOST_CHOOSE_STREAM) % N);
		if (p[i] != NULL) {
			ops->copy(out, p[i], bytes[i], on[i]);
			wrong += ops->free_async(p[i], on[i]) != 0;
			drain(on[i]);
			wrong += out[0] != i || out[bytes[i] - 1] != i || out[bytes[i] / 2] != i;
		}
		bytes[i] = (size_t)1 << cufi_host_random(HOST_CHOOSE_STREAM) % 22;
		bytes[i] += cufi_host_random(HOST_CHOOSE_STREAM) % bytes[i];
		bytes[i] = bytes[i] > MAX ? MAX : bytes[i];
		on[i] = s[cufi_host_random(HOST_CHOOSE_STREAM) % 4];
		p[i] = get(on[i], bytes[i]);
		wrong += ops->fill(p[i], i, bytes[i], on[i]) != 0;
	}
	is_int(wrong, 0, "blocks of all sizes keep what is theirs");
	for (i = 0; i < 4; i++) {
		drain(s[i]);
		ops->stream_destroy(s[i]);
	}
	ops->pinned_free(out);
}

int main(void)
{
	plan(52);
	open_devices(2);
	test_pool();
	test_full();
	test_owner();
	test_pinned_copy();
	test_many();
	test_pageable_copy();
	close_devices(2);
	return done();
}
