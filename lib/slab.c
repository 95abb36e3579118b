/* SPDX-License-Identifier: MIT */
/*
 * The threads' pockets, the list that they exchange batches with, and how it grows.
 *
 * get and put work on the thread's pocket, an array, without an atomic operation. One that is empty
 * takes a batch of up to 16 from the list, one that is full gives 16 to it: so where one thread gets
 * and another puts, they meet once in 16 times, for two stores under the lock. New objects are made
 * only where the list is empty: what threads hold back is at most a pocket each. A thread that ends
 * leaves its pockets to one that begins. (One list for each of a few groups of threads, and no
 * pockets, was tried: 30 ns for a get and a put instead of 12, all of it in the two atomics, and much
 * ado about an object that is missed while it moves from one list to another.)
 *
 * Nobody looks into another thread's pocket, so a slab with a limit has none: it could say "no more"
 * while some are free.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "slab.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "testpoint.h"

#if defined(__SANITIZE_ADDRESS__)
#define SLAB_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLAB_ASAN 1
#endif
#endif
#ifdef SLAB_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#endif

#define LINE	    64u			 /* bytes of a cache line */
#define UNIT	    16u			 /* bytes: sizes are multiples of it */
#define CHUNK_BYTES ((size_t)256 * 1024) /* 2047 futures (arbitrary) */
#define MAX_OBJECT  ((size_t)32 * 1024)

#define BATCH 16u /* objects: so many that n - 1 fits below the address of a UNIT */
#define POCKET \
	(2 * BATCH) /* so that neither gets nor puts alone, nor both in turn, meet the lock */
#define SLOTS 16u   /* slabs at one time with pockets: seven a runtime, two runtimes (arbitrary) */

/* The last bytes of a free object in the list. The first ones belong to stale readers. */
struct link {
	uintptr_t next_batch; /* of a batch's first: the next batch's first, and n - 1 in the low bits */
	void *next;	      /* in the same batch */
};

/* Aligned to its size, so that an object finds it. Objects follow. */
struct cufi_slab_chunk {
	_Alignas(LINE) struct cufi_slab_chunk *older; /* constant once published */
	struct cufi_slab *slab;			      /* constant once published */
	size_t room;				      /* objects; constant once published */
	_Atomic size_t carved; /* written under lock: the first so many exist */
#ifdef CUFI_DEBUG
	_Atomic uint64_t live[CHUNK_BYTES / UNIT / 64]; /* a bit an object: got and not put */
#endif
};

/* Free objects of one slab. Written by the thread that has the seat; number and serial are read by
 * all. Objects of a slab with another serial died with it. */
struct pocket {
	_Atomic uint64_t serial;
	_Atomic unsigned n;
	void *objects[POCKET];
};

/* What a thread has. Never freed: one that ends leaves it to the next. */
struct seat {
	struct seat *next; /* constant once published */
	atomic_bool taken;
	struct pocket pockets[SLOTS];
};

static _Atomic(struct seat *) seats;  /* all there are */
static _Atomic uint64_t last_serial;  /* of slabs */
static _Atomic uint64_t slots[SLOTS]; /* serials of the slabs that have them, or 0 */
static pthread_once_t seat_once = PTHREAD_ONCE_INIT;
static pthread_key_t seat_key; /* its destructor is what it is for */
static bool has_key;	       /* written once */

/* initial-exec: without, each look is a call. */
#define THREAD_OWN static _Thread_local __attribute__((tls_model("initial-exec")))
THREAD_OWN struct seat *my_seat;
#ifdef CUFI_TESTPOINTS
THREAD_OWN bool without_pockets;

void cufi_slab_without_pockets(void)
{
	without_pockets = true;
}
#endif

static void leave_seat(void *seat)
{
	my_seat = NULL; /* who gets or puts in a later destructor takes one again */
	/* release: pairs with take_seat(): the pockets */
	atomic_store_explicit(&((struct seat *)seat)->taken, false, memory_order_release);
}

static void make_key(void)
{
	has_key = pthread_key_create(&seat_key, leave_seat) == 0;
}

/* A seat that somebody left, or a new one; NULL: no memory. */
static struct seat *take_seat(void)
{
	struct seat *st;
	bool taken = true;

	pthread_once(&seat_once, make_key);
	if (!has_key)
		return NULL;
	/* acquire: pairs with the exchange below: the seat as made */
	for (st = atomic_load_explicit(&seats, memory_order_acquire); st != NULL; st = st->next) {
		/* acquire: pairs with leave_seat(): the pockets */
		taken = atomic_exchange_explicit(&st->taken, true, memory_order_acquire);
		if (!taken)
			break;
	}
	if (st == NULL) {
		st = calloc(1, sizeof(*st));
		if (st == NULL)
			return NULL;
		atomic_init(&st->taken, true);
		/* relaxed: only the address is used */
		st->next = atomic_load_explicit(&seats, memory_order_relaxed);
		/* release: pairs with the loads of seats: the seat as made; relaxed: as above */
		while (!atomic_compare_exchange_weak_explicit(
			&seats, &st->next, st, memory_order_release, memory_order_relaxed))
			;
	}
	if (pthread_setspecific(seat_key, st) != 0) {
		leave_seat(st);
		return NULL;
	}
	my_seat = st;
	return st;
}

/* The thread's pocket for @s, or NULL. */
static inline struct pocket *own_pocket(const struct cufi_slab *s)
{
	struct pocket *p;

#ifdef CUFI_TESTPOINTS
	if (without_pockets)
		return NULL;
#endif
	if (s->slot < 0 || (my_seat == NULL && take_seat() == NULL))
		return NULL;
	p = &my_seat->pockets[s->slot];
	/* relaxed, all three: only this thread writes them */
	if (atomic_load_explicit(&p->serial, memory_order_relaxed) != s->serial) {
		atomic_store_explicit(&p->n, 0, memory_order_relaxed);
		atomic_store_explicit(&p->serial, s->serial, memory_order_relaxed);
	}
	return p;
}

static inline unsigned pocket_count(struct pocket *p)
{
	/* relaxed: only its owner writes it; for others it is a number */
	return atomic_load_explicit(&p->n, memory_order_relaxed);
}

static inline void set_pocket_count(struct pocket *p, unsigned n)
{
	/* relaxed: as above */
	atomic_store_explicit(&p->n, n, memory_order_relaxed);
}

static inline struct link *link_of(const struct cufi_slab *s, void *object)
{
	return (struct link *)(void *)((char *)object + s->object_bytes - sizeof(struct link));
}

static inline char *first_object(struct cufi_slab_chunk *c)
{
	return (char *)c + sizeof(*c);
}

/* Counts of which the holder of the lock is the one writer. */
static inline void add_size(_Atomic size_t *count, size_t n)
{
	/* relaxed, both: the lock orders writers; for readers it is a number */
	size_t was = atomic_load_explicit(count, memory_order_relaxed);

	atomic_store_explicit(count, was + n, memory_order_relaxed);
}

static inline void mark_free(const struct cufi_slab *s, void *object)
{
#ifdef SLAB_ASAN
	__asan_poison_memory_region((char *)object + CUFI_SLAB_KEPT_BYTES,
				    s->object_bytes - CUFI_SLAB_KEPT_BYTES - sizeof(struct link));
#else
	(void)s;
	(void)object;
#endif
}

static inline void mark_live(const struct cufi_slab *s, void *object)
{
#ifdef SLAB_ASAN
	__asan_unpoison_memory_region(object, s->object_bytes);
#else
	(void)s;
	(void)object;
#endif
}

/* Debug builds: an object that is put twice, or to where it never came from, ends the program. */
static inline void check_owner(struct cufi_slab *s, void *object, bool live)
{
#ifdef CUFI_DEBUG
	uintptr_t at = (uintptr_t)object;
	struct cufi_slab_chunk *c = (struct cufi_slab_chunk *)(at & ~(uintptr_t)(CHUNK_BYTES - 1));
	size_t offset = (size_t)(at - (uintptr_t)first_object(c));
	size_t i = offset / s->object_bytes;
	uint64_t bit = (uint64_t)1 << i % 64, was;

	if (c->slab != s || offset % s->object_bytes != 0) {
		(void)fprintf(stderr, "cufuture: slab: %p is not an object of this slab\n", object);
		abort();
	}
	/* relaxed: who breaks the order that this relies on is who is to be caught */
	was = live ? atomic_fetch_or_explicit(&c->live[i / 64], bit, memory_order_relaxed)
		   : atomic_fetch_and_explicit(&c->live[i / 64], ~bit, memory_order_relaxed);
	if (((was & bit) != 0) == live) {
		(void)fprintf(stderr, "cufuture: slab: %p was %s twice\n", object,
			      live ? "handed out" : "put");
		abort();
	}
#else
	(void)s;
	(void)object;
	(void)live;
#endif
}

static int claim_slot(uint64_t serial)
{
	unsigned i;

	for (i = 0; i < SLOTS; i++) {
		uint64_t nobody = 0;

		/* relaxed: it says only that it is taken; pockets compare the serial */
		if (atomic_compare_exchange_strong_explicit(
			    &slots[i], &nobody, serial, memory_order_relaxed, memory_order_relaxed))
			return (int)i;
	}
	return -1;
}

int cufi_slab_init(struct cufi_slab *s, size_t object_bytes, size_t limit_objects)
{
	const size_t least = CUFI_SLAB_KEPT_BYTES + sizeof(struct link);

	memset(s, 0, sizeof(*s));
	s->slot = -1;
	if (object_bytes == 0 || object_bytes > MAX_OBJECT)
		return EINVAL;
	s->object_bytes = (object_bytes + UNIT - 1) / UNIT * UNIT;
	if (s->object_bytes < least)
		s->object_bytes = least;
	s->limit = limit_objects;
	/* relaxed: unique is enough */
	s->serial = atomic_fetch_add_explicit(&last_serial, 1, memory_order_relaxed) + 1;
	if (limit_objects == 0)
		s->slot = claim_slot(s->serial);
	return 0;
}

void cufi_slab_destroy(struct cufi_slab *s)
{
	/* relaxed: nobody else is there */
	struct cufi_slab_chunk *c = atomic_load_explicit(&s->newest, memory_order_relaxed);

	while (c != NULL) {
		struct cufi_slab_chunk *older = c->older;

#ifdef SLAB_ASAN
		__asan_unpoison_memory_region(c, CHUNK_BYTES);
		__lsan_unregister_root_region(c, CHUNK_BYTES);
#endif
		munmap(c, CHUNK_BYTES);
		c = older;
	}
	if (s->slot >= 0)
		/* relaxed: as in claim_slot() */
		atomic_store_explicit(&slots[s->slot], 0, memory_order_relaxed);
	memset(s, 0, sizeof(*s));
	s->slot = -1;
}

/* Zero pages, aligned to their size: more is mapped than needed, and the ends cut off. */
static struct cufi_slab_chunk *map_chunk(void)
{
	char *p = mmap(NULL, 2 * CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		       -1, 0);
	size_t before;

	if (p == MAP_FAILED)
		return NULL;
	before = (CHUNK_BYTES - (uintptr_t)p % CHUNK_BYTES) % CHUNK_BYTES;
	if (before != 0)
		munmap(p, before);
	munmap(p + before + CHUNK_BYTES, CHUNK_BYTES - before);
#ifdef SLAB_ASAN
	/* Else what only objects point to counts as leaked. */
	__lsan_register_root_region(p + before, CHUNK_BYTES);
#endif
	return (struct cufi_slab_chunk *)(void *)(p + before);
}

/* Under lock. */
static struct cufi_slab_chunk *add_chunk(struct cufi_slab *s)
{
	struct cufi_slab_chunk *c = map_chunk();

	if (c == NULL)
		return NULL;
	/* relaxed: written under lock, which we hold */
	c->older = atomic_load_explicit(&s->newest, memory_order_relaxed);
	c->slab = s;
	c->room = (CHUNK_BYTES - sizeof(*c)) / s->object_bytes;
	/* release: pairs with cufi_slab_walk(): the header */
	atomic_store_explicit(&s->newest, c, memory_order_release);
	/* relaxed: a number for readers */
	atomic_fetch_add_explicit(&s->chunks, 1, memory_order_relaxed);
	return c;
}

/* Under lock. Up to @n new objects, which lie at *out_first and behind; touches none of them. */
static size_t carve(struct cufi_slab *s, size_t n, char **out_first)
{
	/* relaxed, all: written under lock, which we hold */
	struct cufi_slab_chunk *c = atomic_load_explicit(&s->newest, memory_order_relaxed);
	size_t total = atomic_load_explicit(&s->carved, memory_order_relaxed), used;

	if (s->limit != 0 && n > s->limit - total)
		n = s->limit - total;
	if (n == 0)
		return 0;
	if (c == NULL || atomic_load_explicit(&c->carved, memory_order_relaxed) == c->room)
		c = add_chunk(s);
	if (c == NULL)
		return 0;
	used = atomic_load_explicit(&c->carved, memory_order_relaxed);
	n = n < c->room - used ? n : c->room - used;
	*out_first = first_object(c) + used * s->object_bytes;
	/* release: pairs with cufi_slab_walk(): so many are mapped, and zero */
	atomic_store_explicit(&c->carved, used + n, memory_order_release);
	add_size(&s->carved, n);
	return n;
}

/* Under lock. @first: of a chain of @n. */
static void list_batch(struct cufi_slab *s, void *first, unsigned n)
{
	link_of(s, first)->next_batch = (uintptr_t)s->batches | (n - 1);
	s->batches = first;
	add_size(&s->listed, n);
}

/* Under lock. A chain of *out_n; NULL: none. */
static void *unlist_batch(struct cufi_slab *s, unsigned *out_n)
{
	void *first = s->batches;
	uintptr_t word;

	if (first == NULL)
		return NULL;
	word = link_of(s, first)->next_batch;
	s->batches = (void *)(word & ~(uintptr_t)(BATCH - 1));
	*out_n = (unsigned)(word & (BATCH - 1)) + 1;
	add_size(&s->listed, -(size_t)*out_n);
	return first;
}

/* @p is empty: fills half of it; false: no memory. */
static bool fill_pocket(struct cufi_slab *s, struct pocket *p)
{
	char *fresh = NULL;
	unsigned n = 0, i;
	void *o;

	cufi_lock_take(&s->lock);
	o = unlist_batch(s, &n);
	if (o == NULL)
		n = (unsigned)carve(s, BATCH, &fresh);
	cufi_lock_give(&s->lock);
	for (i = 0; i < n; i++) {
		/* Of the new ones the first is handed out first: pages in order. */
		p->objects[i] = o != NULL ? o : fresh + (n - 1 - i) * s->object_bytes;
		if (o != NULL)
			o = i + 1 < n ? link_of(s, o)->next : NULL;
	}
	set_pocket_count(p, n);
	return n > 0;
}

/* @p is full: the half that has been there longest goes to the list. */
static void empty_pocket(struct cufi_slab *s, struct pocket *p)
{
	unsigned i;

	for (i = 0; i + 1 < BATCH; i++)
		link_of(s, p->objects[i])->next = p->objects[i + 1];
	cufi_lock_take(&s->lock);
	list_batch(s, p->objects[0], BATCH);
	cufi_lock_give(&s->lock);
	memcpy(p->objects, p->objects + BATCH, BATCH * sizeof(p->objects[0]));
	set_pocket_count(p, BATCH);
}

/* One object, without a pocket. */
static void *get_listed(struct cufi_slab *s)
{
	char *fresh = NULL;
	unsigned n;
	void *o;

	cufi_lock_take(&s->lock);
	o = unlist_batch(s, &n);
	if (o != NULL && n > 1)
		list_batch(s, link_of(s, o)->next, n - 1);
	else if (o == NULL && carve(s, 1, &fresh) == 1)
		o = fresh;
	cufi_lock_give(&s->lock);
	return o;
}

void *cufi_slab_get(struct cufi_slab *s)
{
	struct pocket *p = own_pocket(s);
	void *object;

	if (p == NULL) {
		object = get_listed(s);
		if (object == NULL)
			return NULL;
	} else {
		unsigned n;

		if (pocket_count(p) == 0 && !fill_pocket(s, p))
			return NULL;
		n = pocket_count(p) - 1;
		object = p->objects[n];
		set_pocket_count(p, n);
	}
	check_owner(s, object, true);
	mark_live(s, object);
	CUFI_TESTPOINT("slab: got");
	return object;
}

void cufi_slab_put(struct cufi_slab *s, void *object)
{
	struct pocket *p = own_pocket(s);

	CUFI_TESTPOINT("slab: put");
	check_owner(s, object, false);
	mark_free(s, object);
	if (p == NULL) {
		cufi_lock_take(&s->lock);
		list_batch(s, object, 1);
		cufi_lock_give(&s->lock);
	} else {
		unsigned n;

		if (pocket_count(p) == POCKET)
			empty_pocket(s, p);
		n = pocket_count(p);
		p->objects[n] = object;
		set_pocket_count(p, n + 1);
	}
}

void cufi_slab_walk(struct cufi_slab *s, void (*fn)(void *object, void *arg), void *arg)
{
	/* acquire: pairs with add_chunk(): the header */
	struct cufi_slab_chunk *c = atomic_load_explicit(&s->newest, memory_order_acquire);

	for (; c != NULL; c = c->older) {
		/* acquire: pairs with carve(): so many are mapped, and zero */
		size_t n = atomic_load_explicit(&c->carved, memory_order_acquire), i;

		for (i = 0; i < n; i++)
			fn(first_object(c) + i * s->object_bytes, arg);
	}
}

/* Objects in threads' pockets. */
static size_t count_pockets(const struct cufi_slab *s)
{
	struct seat *st;
	size_t n = 0;

	if (s->slot < 0)
		return 0;
	/* acquire: pairs with take_seat(): the seat as made */
	for (st = atomic_load_explicit(&seats, memory_order_acquire); st != NULL; st = st->next) {
		struct pocket *p = &st->pockets[s->slot];

		/* relaxed: exact only while nobody is at it */
		if (atomic_load_explicit(&p->serial, memory_order_relaxed) == s->serial)
			n += pocket_count(p);
	}
	return n;
}

size_t cufi_slab_in_use(struct cufi_slab *s)
{
	/* relaxed, both: exact only while nobody is at it, which the caller knows otherwise */
	size_t unused = count_pockets(s) + atomic_load_explicit(&s->listed, memory_order_relaxed);
	size_t made = atomic_load_explicit(&s->carved, memory_order_relaxed);

	return made > unused ? made - unused : 0;
}

uint64_t cufi_slab_chunks(const struct cufi_slab *s)
{
	/* relaxed: a number */
	return atomic_load_explicit(&s->chunks, memory_order_relaxed);
}
