/* SPDX-License-Identifier: MIT */
/*
 * Memory of the pretended devices, in stream order, and page-locked memory; and what an address
 * belongs to. Both come in blocks of some 150 sizes, cut from chunks of 2 MiB or, for the large
 * ones, a chunk each. A table of two levels finds the chunk of an address without a lock.
 *
 * A block freed on a stream is that stream's to give out again at once, since whoever gets it there
 * comes after the free; once the stream has reached the free, it is everybody's.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "host.h"

#if defined(__SANITIZE_ADDRESS__)
#define HOST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HOST_ASAN 1
#endif
#endif
#ifdef HOST_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n)   ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define POISON(p, n)   ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

#define CHUNK_SHIFT  21 /* 2 MiB: the step of the table */
#define CHUNK_BYTES  ((size_t)1 << CHUNK_SHIFT)
#define LEAF_SHIFT   13
#define LEAF_SIZE    ((size_t)1 << LEAF_SHIFT) /* chunks in a leaf: 64 KiB of pointers */
#define ADDRESS_BITS 48
#define TOP_SIZE     ((size_t)1 << (ADDRESS_BITS - CHUNK_SHIFT - LEAF_SHIFT))

#define FIRST_SHIFT  10 /* the smallest block is 1 KiB: all are multiples of 256 bytes */
#define LARGE_BYTES  (CHUNK_BYTES / 4)	/* larger blocks have a chunk each (arbitrary) */
#define CACHE_BYTES  ((size_t)64 << 20) /* of free large blocks that a heap keeps (arbitrary) */
#define PINNED	     CUFI_HOST_DEVICES	/* index of the heap of page-locked memory */
#define FREED_BYTE   0xdb /* what freed memory is overwritten with in debug builds (arbitrary) */
#define NEW_BYTE     0xcd /* what new memory holds there (arbitrary) */
#define BYTES_FILLED ((size_t)1 << 20) /* at most, so that memory nobody uses takes no room */

enum block_state { BLOCK_FREE, BLOCK_USED, BLOCK_FREED };

/* All but state and bytes, which memory_of() reads at any time, are guarded by the heap's lock. */
struct host_block {
	struct host_block *next, **at; /* of a list of free or freed ones */
	struct host_chunk *chunk;
	struct CUstream_st *stream; /* freed: where, and which operation of it */
	uint64_t seq;
	_Atomic size_t bytes; /* asked for */
	atomic_int state;
};

struct host_chunk {
	struct host_chunk *next, **at; /* heap lock */
	unsigned char *base;
	size_t mapped, block_bytes, n;
	int heap; /* a device, or PINNED */
	unsigned class;
	struct host_block blocks[];
};

static struct heap {
	cufi_lock lock; /* guards from here */
	struct host_block *free[CUFI_HOST_CLASSES];
	struct host_chunk *chunks;
	size_t used;   /* bytes of blocks not free */
	size_t cached; /* bytes of free large blocks */
} heaps[CUFI_HOST_DEVICES + 1];

typedef _Atomic(struct host_chunk *) leaf_entry;
static _Atomic(leaf_entry *) table[TOP_SIZE];

/* ---- sizes ---- */

/* Four for each power of two: at most a quarter is wasted. */
static unsigned class_of(size_t bytes, size_t *out_bytes)
{
	unsigned shift, step;
	size_t quarter;

	if (bytes <= (size_t)1 << FIRST_SHIFT) {
		*out_bytes = (size_t)1 << FIRST_SHIFT;
		return 0;
	}
	shift = 63 -
		(unsigned)__builtin_clzll(bytes - 1); /* bytes - 1 is in [2^shift, 2^shift+1) */
	quarter = (size_t)1 << (shift - 2);
	step = (unsigned)((bytes - ((size_t)1 << shift) + quarter - 1) / quarter);
	*out_bytes = ((size_t)1 << shift) + step * quarter;
	return (shift - FIRST_SHIFT) * 4 + step;
}

/* ---- the table ---- */

static struct host_chunk *find_chunk(const void *ptr)
{
	uintptr_t at = (uintptr_t)ptr >> CHUNK_SHIFT;
	leaf_entry *leaf;

	if (at >> LEAF_SHIFT >= TOP_SIZE)
		return NULL;
	/* acquire: pairs with enter_chunk(): the leaf's entries */
	leaf = atomic_load_explicit(&table[at >> LEAF_SHIFT], memory_order_acquire);
	if (leaf == NULL)
		return NULL;
	/* acquire: pairs with enter_chunk(): the chunk */
	return atomic_load_explicit(&leaf[at & (LEAF_SIZE - 1)], memory_order_acquire);
}

/* Under any heap's lock: two may want the same leaf. @chunk NULL: takes the entries away. */
static bool enter_chunk(const unsigned char *base, size_t mapped, struct host_chunk *chunk)
{
	uintptr_t at = (uintptr_t)base >> CHUNK_SHIFT, end = at + (mapped >> CHUNK_SHIFT);
	leaf_entry *leaf, *none;

	for (; at < end; at++) {
		if (at >> LEAF_SHIFT >= TOP_SIZE)
			return false;
		/* acquire: pairs with the exchange below: the leaf's entries */
		leaf = atomic_load_explicit(&table[at >> LEAF_SHIFT], memory_order_acquire);
		if (leaf == NULL) {
			leaf = calloc(LEAF_SIZE, sizeof *leaf);
			if (leaf == NULL)
				return false;
			none = NULL;
			/* acq_rel: pairs with find_chunk(): the leaf's entries */
			if (!atomic_compare_exchange_strong_explicit(
				    &table[at >> LEAF_SHIFT], &none, leaf, memory_order_acq_rel,
				    memory_order_acquire)) {
				free(leaf);
				leaf = none;
			}
		}
		/* release: pairs with find_chunk(): the chunk */
		atomic_store_explicit(&leaf[at & (LEAF_SIZE - 1)], chunk, memory_order_release);
	}
	return true;
}

/* The block whose bytes, as asked for, hold @ptr and @bytes behind it; NULL: none. *out_chunk:
 * whether it is memory of ours at all. */
static struct host_block *find_block(const void *ptr, size_t bytes, struct host_chunk **out_chunk)
{
	struct host_chunk *c = find_chunk(ptr);
	struct host_block *b;
	size_t offset, has;

	*out_chunk = c;
	if (c == NULL)
		return NULL;
	offset = (size_t)((const unsigned char *)ptr - c->base);
	if (offset / c->block_bytes >= c->n)
		return NULL;
	b = &c->blocks[offset / c->block_bytes];
	offset %= c->block_bytes;
	/* relaxed: whoever may use the block got its address after they were written */
	has = atomic_load_explicit(&b->bytes, memory_order_relaxed);
	if (atomic_load_explicit(&b->state, memory_order_relaxed) != BLOCK_USED || offset > has ||
	    bytes > has - offset)
		return NULL;
	return b;
}

static unsigned char *address_of(const struct host_block *b)
{
	return b->chunk->base + (size_t)(b - b->chunk->blocks) * b->chunk->block_bytes;
}

/* ---- chunks and lists; all under the heap's lock ---- */

static void set_state(struct host_block *b, enum block_state state)
{
	/* relaxed: see find_block() */
	atomic_store_explicit(&b->state, (int)state, memory_order_relaxed);
}

static void put_block(struct host_block **list, struct host_block *b)
{
	b->next = *list;
	b->at = list;
	if (b->next != NULL)
		b->next->at = &b->next;
	*list = b;
}

static void cut_block(struct host_block *b)
{
	*b->at = b->next;
	if (b->next != NULL)
		b->next->at = b->at;
}

static unsigned char *map_aligned(size_t bytes)
{
	size_t all = bytes + CHUNK_BYTES;
	unsigned char *p, *base;

	p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	base = p + (CHUNK_BYTES - ((uintptr_t)p & (CHUNK_BYTES - 1)));
	(void)munmap(p, (size_t)(base - p));
	if (p + all != base + bytes)
		(void)munmap(base + bytes, (size_t)(p + all - (base + bytes)));
	return base;
}

static void free_chunk(struct host_chunk *c)
{
	*c->at = c->next;
	if (c->next != NULL)
		c->next->at = c->at;
	(void)enter_chunk(c->base, c->mapped, NULL);
	UNPOISON(c->base, c->mapped); /* the address may become somebody else's */
	(void)munmap(c->base, c->mapped);
	free(c);
}

static bool add_chunk(struct heap *h, unsigned class, size_t block_bytes)
{
	size_t n = block_bytes > LARGE_BYTES ? 1 : CHUNK_BYTES / block_bytes, i;
	size_t mapped = (n * block_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES;
	struct host_chunk *c = calloc(1, sizeof *c + n * sizeof c->blocks[0]);

	if (c == NULL)
		return false;
	c->base = map_aligned(mapped);
	if (c->base == NULL) {
		free(c);
		return false;
	}
	c->mapped = mapped;
	c->block_bytes = block_bytes;
	c->n = n;
	c->heap = (int)(h - heaps);
	c->class = class;
	c->next = h->chunks;
	c->at = &h->chunks;
	if (c->next != NULL)
		c->next->at = &c->next;
	h->chunks = c;
	if (!enter_chunk(c->base, mapped, c)) {
		free_chunk(c);
		return false;
	}
	POISON(c->base, mapped);
	for (i = n; i-- > 0;) {
		c->blocks[i].chunk = c;
		put_block(&h->free[class], &c->blocks[i]);
	}
	if (n == 1)
		h->cached += block_bytes;
	return true;
}

/* @s: whose freed blocks may be taken, or NULL. */
static struct host_block *take_block(struct heap *h, size_t bytes, struct CUstream_st *s)
{
	struct host_block *b;
	size_t block_bytes;
	unsigned class;

	if (bytes > (size_t)1 << (ADDRESS_BITS - 2))
		return NULL;
	class = class_of(bytes, &block_bytes);
	if (s != NULL && s->freed[class] != NULL) {
		b = s->freed[class];
	} else {
		if (h != &heaps[PINNED] && block_bytes > HOST_MEMORY_BYTES - h->used)
			return NULL;
		if (h->free[class] == NULL && !add_chunk(h, class, block_bytes))
			return NULL;
		b = h->free[class];
		h->used += block_bytes;
		if (b->chunk->n == 1)
			h->cached -= block_bytes;
	}
	cut_block(b);
	/* relaxed: see find_block() */
	atomic_store_explicit(&b->bytes, bytes, memory_order_relaxed);
	set_state(b, BLOCK_USED);
	return b;
}

static void give_block(struct heap *h, struct host_block *b)
{
	struct host_chunk *c = b->chunk;

	set_state(b, BLOCK_FREE);
	h->used -= c->block_bytes;
	if (c->n == 1 && h->cached + c->block_bytes > CACHE_BYTES) {
		free_chunk(c);
		return;
	}
	if (c->n == 1)
		h->cached += c->block_bytes;
	put_block(&h->free[c->class], b);
}

/* ---- what is in them ---- */

static void begin_use(unsigned char *p, size_t bytes)
{
	UNPOISON(p, bytes);
#if defined(CUFI_DEBUG) || defined(CUFI_TESTPOINTS)
	memset(p, NEW_BYTE, bytes < BYTES_FILLED ? bytes : BYTES_FILLED);
#endif
}

static void end_use(unsigned char *p, size_t bytes)
{
#if defined(CUFI_DEBUG) || defined(CUFI_TESTPOINTS)
	memset(p, FREED_BYTE, bytes < BYTES_FILLED ? bytes : BYTES_FILLED);
#endif
	POISON(p, bytes);
}

/* ---- in stream order ---- */

int cufi_host_malloc(size_t bytes, struct CUstream_st *s, void **out_ptr)
{
	int code = cufi_host_begin(CUF_HOST_MALLOC, cufi_host_stream_device(s));
	struct host_block *b;
	struct host_op *op;
	struct heap *h;

	if (code == 0 && bytes == 0)
		code = CUFI_CODE_INVALID_VALUE;
	if (code != 0)
		return cufi_host_return(code);
	op = cufi_host_op_new(s, HOST_MALLOC, &code);
	if (op == NULL)
		return cufi_host_return(code);
	h = &heaps[s->device];
	cufi_lock_take(&h->lock);
	b = take_block(h, bytes, s);
	cufi_lock_give(&h->lock);
	if (b == NULL) {
		cufi_host_op_cancel(s, op);
		return cufi_host_return(CUFI_CODE_NO_MEMORY);
	}
	op->u.memory.block = b;
	op->u.memory.bytes = bytes;
	cufi_host_op_push(s, op);
	*out_ptr = address_of(b);
	return 0;
}

void cufi_host_malloc_run(const struct host_op *op)
{
	begin_use(address_of(op->u.memory.block), op->u.memory.bytes);
}

int cufi_host_free(void *ptr, struct CUstream_st *s)
{
	int code = cufi_host_begin(CUF_HOST_FREE, cufi_host_stream_device(s));
	struct host_chunk *c;
	struct host_block *b;
	struct host_op *op;
	struct heap *h;

	if (code != 0)
		return cufi_host_return(code);
	b = find_block(ptr, 0, &c);
	if (b == NULL || address_of(b) != ptr || c->heap != s->device)
		return cufi_host_return(CUFI_CODE_INVALID_VALUE);
	op = cufi_host_op_new(s, HOST_FREE, &code);
	if (op == NULL)
		return cufi_host_return(code);
	h = &heaps[s->device];
	cufi_lock_take(&h->lock);
	/* relaxed: see find_block(); two may free it at once */
	if (atomic_load_explicit(&b->state, memory_order_relaxed) != BLOCK_USED) {
		cufi_lock_give(&h->lock);
		cufi_host_op_cancel(s, op);
		return cufi_host_return(CUFI_CODE_INVALID_VALUE);
	}
	op->u.memory.block = b;
	op->u.memory.bytes = atomic_load_explicit(&b->bytes, memory_order_relaxed);
	set_state(b, BLOCK_FREED);
	put_block(&s->freed[c->class], b);
	b->stream = s;
	/* Under the lock: who takes the block on this stream must come after this operation. */
	b->seq = cufi_host_op_push(s, op);
	cufi_lock_give(&h->lock);
	return 0;
}

void cufi_host_free_run(struct CUstream_st *s, const struct host_op *op)
{
	struct host_block *b = op->u.memory.block;
	struct heap *h = &heaps[s->device];

	/* If the stream gave it out again already: that one's turn comes later on this stream. */
	end_use(address_of(b), op->u.memory.bytes);
	cufi_lock_take(&h->lock);
	/* relaxed: written under the lock */
	if (atomic_load_explicit(&b->state, memory_order_relaxed) == BLOCK_FREED &&
	    b->stream == s && b->seq == op->seq) {
		cut_block(b);
		give_block(h, b);
	}
	cufi_lock_give(&h->lock);
}

/* ---- page-locked ---- */

int cufi_host_pinned_alloc(size_t bytes, void **out_ptr)
{
	int code = cufi_host_begin(CUF_HOST_PINNED_ALLOC, cufi_host_current());
	struct heap *h = &heaps[PINNED];
	struct host_block *b;

	if (code == 0 && bytes == 0)
		code = CUFI_CODE_INVALID_VALUE;
	if (code != 0)
		return cufi_host_return(code);
	cufi_lock_take(&h->lock);
	b = take_block(h, bytes, NULL);
	cufi_lock_give(&h->lock);
	if (b == NULL)
		return cufi_host_return(CUFI_CODE_NO_MEMORY);
	begin_use(address_of(b), bytes);
	*out_ptr = address_of(b);
	return 0;
}

int cufi_host_pinned_free(void *ptr)
{
	int code = cufi_host_begin(CUF_HOST_PINNED_FREE, cufi_host_current());
	struct heap *h = &heaps[PINNED];
	struct host_chunk *c;
	struct host_block *b;

	if (code != 0 && code != cufi_host_lost(cufi_host_current()))
		return cufi_host_return(code);
	/* Also while the device is lost, which is said. */
	b = find_block(ptr, 0, &c);
	if (b == NULL || address_of(b) != ptr || c->heap != PINNED)
		return cufi_host_return(CUFI_CODE_INVALID_VALUE);
	/* relaxed: see find_block() */
	end_use(ptr, atomic_load_explicit(&b->bytes, memory_order_relaxed));
	cufi_lock_take(&h->lock);
	give_block(h, b);
	cufi_lock_give(&h->lock);
	return cufi_host_return(code);
}

/* ---- what an address belongs to ---- */

int cufi_host_range(const void *ptr, size_t bytes, enum cufi_memory *out_kind)
{
	struct host_chunk *c;

	if (ptr == NULL || bytes > UINTPTR_MAX - (uintptr_t)ptr)
		return CUFI_CODE_INVALID_VALUE;
	if (find_block(ptr, bytes, &c) == NULL) {
		*out_kind = CUFI_MEMORY_PAGEABLE;
		return c != NULL ? CUFI_CODE_INVALID_VALUE : 0;
	}
	*out_kind = c->heap == PINNED ? CUFI_MEMORY_PINNED : CUFI_MEMORY_DEVICE;
	return 0;
}

int cufi_host_memory_of(const void *ptr, enum cufi_memory *out_kind, int *out_device)
{
	int code = cufi_host_begin(HOST_CALL_OTHER, HOST_ANY_DEVICE);
	struct host_chunk *c;

	if (code != 0)
		return cufi_host_return(code);
	*out_kind = CUFI_MEMORY_PAGEABLE;
	*out_device = -1;
	if (find_block(ptr, 1, &c) != NULL) {
		*out_kind = c->heap == PINNED ? CUFI_MEMORY_PINNED : CUFI_MEMORY_DEVICE;
		if (c->heap != PINNED)
			*out_device = c->heap;
	}
	return 0;
}

void cufi_host_memory_close(void)
{
	size_t i;

	for (i = 0; i <= PINNED; i++) {
		while (heaps[i].chunks != NULL)
			free_chunk(heaps[i].chunks);
		memset(heaps[i].free, 0, sizeof heaps[i].free);
		heaps[i].used = heaps[i].cached = 0;
	}
	for (i = 0; i < TOP_SIZE; i++) {
		/* relaxed: nobody asks any more */
		free(atomic_load_explicit(&table[i], memory_order_relaxed));
		atomic_store_explicit(&table[i], NULL, memory_order_relaxed);
	}
}
