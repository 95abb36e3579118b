/* SPDX-License-Identifier: MIT */
/*
 * Objects are aligned, apart, zero when fresh, and keep their first bytes when put; memory grows
 * only where nothing is free, whichever threads get and put; the limit is exact; a walk sees all.
 */
#include <limits.h>
#include <stdint.h>
#include <unistd.h>

#include "slab.h"
#include "tap.h"
#include "wait.h"

#define OBJECT 128

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
static const bool sanitized = true;
#elif defined(__has_feature)
static const bool sanitized = __has_feature(thread_sanitizer) || __has_feature(address_sanitizer);
#else
static const bool sanitized = false;
#endif

static void *got[4096];

static void check_sizes(void)
{
	static const size_t bad[] = { 0, 32 * 1024 + 1, SIZE_MAX };
	static const struct {
		size_t bytes, alignment;
	} sizes[] = { { 16, 16 },  { 24, 16 },	{ 64, 64 },	   { 100, 16 },	     { 128, 64 },
		      { 192, 64 }, { 208, 16 }, { 32 * 1024, 64 }, { 4096 + 64, 64 } };
	struct cufi_slab s;
	int refused = 0;

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		refused += cufi_slab_init(&s, bad[i], 0) == EINVAL;
	is_int(refused, 3, "sizes that cannot be are refused");
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		bool aligned = true, zero = true, apart = true;

		if (cufi_slab_init(&s, sizes[i].bytes, 0))
			abort();
		for (int k = 0; k < 100; k++) {
			unsigned char *o = cufi_slab_get(&s);

			got[k] = o;
			aligned = aligned && (uintptr_t)o % sizes[i].alignment == 0;
			/* fresh, or its links: the last 16 bytes */
			for (size_t b = 0; b + 16 < sizes[i].bytes; b++)
				zero = zero && o[b] == 0;
			memset(o, k + 1, sizes[i].bytes);
		}
		for (int k = 0; k < 100; k++) {
			unsigned char *o = got[k];

			for (size_t b = 0; b < sizes[i].bytes; b++)
				apart = apart && o[b] == k + 1;
			cufi_slab_put(&s, o);
		}
		ok(aligned && zero && apart, "%zu bytes: aligned to %zu, zero, apart",
		   sizes[i].bytes, sizes[i].alignment);
		cufi_slab_destroy(&s);
	}
}

static void count_marked(void *object, void *arg)
{
	/* relaxed: the marks were made by this thread */
	if (atomic_load_explicit((_Atomic uint64_t *)object, memory_order_relaxed) >> 32 == 77)
		++*(size_t *)arg;
}

static void check_reuse(void)
{
	struct cufi_slab s;
	size_t marked = 0, kept = 0;
	uint64_t chunks;

	if (cufi_slab_init(&s, OBJECT, 0))
		abort();
	is_int(cufi_slab_chunks(&s), 0, "an unused slab has no memory");
	for (size_t i = 0; i < 4096; i++) {
		got[i] = cufi_slab_get(&s);
		atomic_store((_Atomic uint64_t *)got[i], (uint64_t)77 << 32 | i);
		((_Atomic uint64_t *)got[i])[1] = i;
	}
	is_int(cufi_slab_in_use(&s), 4096, "in use: those got");
	chunks = cufi_slab_chunks(&s);
	is_int(chunks, 3, "4096 objects of 128 bytes: two chunks and a bit");
	for (size_t i = 0; i < 4096; i++)
		cufi_slab_put(&s, got[i]);
	is_int(cufi_slab_in_use(&s), 0, "in use: none");
	for (size_t i = 0; i < 4096; i++)
		kept += atomic_load((_Atomic uint64_t *)got[i]) == ((uint64_t)77 << 32 | i) &&
			((_Atomic uint64_t *)got[i])[1] == i;
	is_int(kept, 4096, "a free object's first 16 bytes are as its user left them");
	cufi_slab_walk(&s, count_marked, &marked);
	is_int(marked, 4096, "a walk sees free objects");
	for (int round = 0; round < 10; round++) {
		for (size_t i = 0; i < 4096; i++)
			got[i] = cufi_slab_get(&s);
		for (size_t i = 0; i < 4096; i++)
			cufi_slab_put(&s, got[i]);
	}
	is_int(cufi_slab_chunks(&s), chunks, "what was put is got again: no growth");
	got[0] = cufi_slab_get(&s);
	cufi_slab_put(&s, got[0]);
	ok(cufi_slab_get(&s) == got[0], "last put is first got, warm");
	cufi_slab_destroy(&s);
}

static void check_limit(void)
{
	struct cufi_slab s;
	int n = 0;

	if (cufi_slab_init(&s, OBJECT, 100))
		abort();
	while (n < 200 && (got[n] = cufi_slab_get(&s)) != NULL)
		n++;
	is_int(n, 100, "at the limit: no more");
	cufi_slab_put(&s, got[50]);
	ok(cufi_slab_get(&s) == got[50], "one put, one got");
	ok(cufi_slab_get(&s) == NULL, "and again no more");
	is_int(cufi_slab_in_use(&s), 100, "in use: the limit");
	cufi_slab_destroy(&s);
}

/* Threads of which each holds up to its share: together never more than the limit. */
#define SHARE	12
#define SHARERS 4
#define TURNS	20000

struct shared {
	struct cufi_slab slab;
	_Atomic int refused, torn;
};

static void use_share(void *arg)
{
	struct shared *sh = arg;
	uint64_t *held[SHARE];
	int n = 0;
	unsigned random = (unsigned)(uintptr_t)&n;

	for (int i = 0; i < TURNS; i++) {
		random = random * 1664525 + 1013904223;
		if (n == 0 || (n < SHARE && random >> 31)) {
			held[n] = cufi_slab_get(&sh->slab);
			if (held[n] == NULL) {
				atomic_fetch_add(&sh->refused, 1);
				continue;
			}
			for (size_t w = 2; w < OBJECT / 8; w++)
				held[n][w] = (uintptr_t)&held[n];
			n++;
		} else {
			for (size_t w = 2; w < OBJECT / 8; w++)
				if (held[n - 1][w] != (uintptr_t)&held[n - 1])
					atomic_fetch_add(&sh->torn, 1);
			cufi_slab_put(&sh->slab, held[--n]);
		}
	}
	while (n > 0)
		cufi_slab_put(&sh->slab, held[--n]);
}

static void check_shares(void)
{
	struct shared sh;
	struct cufi_thread t[SHARERS];

	memset(&sh, 0, sizeof sh);
	if (cufi_slab_init(&sh.slab, OBJECT, SHARE * SHARERS))
		abort();
	for (int i = 0; i < SHARERS; i++)
		if (cufi_thread_start(&t[i], "sharer", use_share, &sh, NULL))
			abort();
	for (int i = 0; i < SHARERS; i++)
		cufi_thread_join(&t[i]);
	is_int(atomic_load(&sh.torn), 0, "no object had two owners");
	is_int(atomic_load(&sh.refused), 0, "nobody within his share of the limit was refused");
	is_int(cufi_slab_in_use(&sh.slab), 0, "all came back");
	cufi_slab_destroy(&sh.slab);
}

/* One thread gets, another puts, at most WINDOW under way; a third walks. */
#define WINDOW 256
#define PASSED 100000

struct passing {
	struct cufi_slab slab;
	_Atomic(void *) window[WINDOW];
	_Atomic int over;
};

static void put_all(void *arg)
{
	struct passing *p = arg;
	unsigned spins = 0;

	for (int i = 0; i < PASSED; i++) {
		void *o;

		while ((o = atomic_exchange(&p->window[i % WINDOW], NULL)) == NULL)
			cufi_relax(&spins);
		cufi_slab_put(&p->slab, o);
	}
}

static void touch(void *object, void *arg)
{
	/* relaxed: any value will do */
	*(uint64_t *)arg += atomic_load_explicit((_Atomic uint64_t *)object, memory_order_relaxed);
}

static void walk_on(void *arg)
{
	struct passing *p = arg;
	uint64_t sum = 0;
	unsigned spins = 0;

	while (!atomic_load(&p->over)) {
		cufi_slab_walk(&p->slab, touch, &sum);
		cufi_relax(&spins);
	}
}

static void check_passing(void)
{
	static struct passing p;
	struct cufi_thread putter, walker;
	unsigned spins = 0;

	if (cufi_slab_init(&p.slab, OBJECT, 0) ||
	    cufi_thread_start(&putter, "putter", put_all, &p, NULL) ||
	    cufi_thread_start(&walker, "walker", walk_on, &p, NULL))
		abort();
	for (int i = 0; i < PASSED; i++) {
		void *o = cufi_slab_get(&p.slab);

		/* relaxed: the window carries it over; only the walker reads it */
		atomic_store_explicit((_Atomic uint64_t *)o, 1, memory_order_relaxed);
		memset((char *)o + 16, 1, OBJECT - 16);
		while (atomic_load(&p.window[i % WINDOW]) != NULL)
			cufi_relax(&spins);
		atomic_store(&p.window[i % WINDOW], o);
	}
	cufi_thread_join(&putter);
	atomic_store(&p.over, 1);
	cufi_thread_join(&walker);
	is_int(cufi_slab_in_use(&p.slab), 0, "got in one thread, put in another: all are back");
	is_int(cufi_slab_chunks(&p.slab), 1, "and 100,000 took the memory of a few hundred");
	cufi_slab_destroy(&p.slab);
}

static void use_and_end(void *slab)
{
	void *o[40];

	for (int i = 0; i < 40; i++)
		o[i] = cufi_slab_get(slab);
	for (int i = 0; i < 40; i++)
		cufi_slab_put(slab, o[i]);
}

static void check_ended(void)
{
	struct cufi_slab s[2];
	struct cufi_thread t;

	for (int round = 0; round < 2; round++) {
		/* The second takes the first one's place in the pockets. */
		if (cufi_slab_init(&s[0], OBJECT, 0) || cufi_slab_init(&s[1], OBJECT, 0))
			abort();
		for (int i = 0; i < 200; i++) {
			if (cufi_thread_start(&t, "short", use_and_end, &s[i % 2], NULL))
				abort();
			cufi_thread_join(&t);
		}
		is_int(cufi_slab_in_use(&s[0]) + cufi_slab_in_use(&s[1]), 0,
		       "threads that ended hold nothing");
		is_int(cufi_slab_chunks(&s[0]), 1, "and left what they had to others");
		cufi_slab_destroy(&s[0]);
		cufi_slab_destroy(&s[1]);
	}
}

static void check_many_slabs(void)
{
	struct cufi_slab s[20];
	size_t in_use = 0;

	for (int i = 0; i < 20; i++) {
		if (cufi_slab_init(&s[i], OBJECT, 0))
			abort();
		for (int k = 0; k < 100; k++)
			got[i * 100 + k] = cufi_slab_get(&s[i]);
	}
	for (int i = 0; i < 20; i++) {
		in_use += cufi_slab_in_use(&s[i]);
		for (int k = 0; k < 100; k++)
			cufi_slab_put(&s[i], got[i * 100 + k]);
	}
	is_int(in_use, 2000, "twenty slabs at once");
	in_use = 0;
	for (int i = 0; i < 20; i++) {
		in_use += cufi_slab_in_use(&s[i]);
		cufi_slab_destroy(&s[i]);
	}
	is_int(in_use, 0, "none mixes up its objects");
}

static long resident_kb(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long size, resident = 0;

	if (f == NULL || fscanf(f, "%ld %ld", &size, &resident) != 2)
		abort();
	fclose(f);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

#define MILLION 1000000

static void check_memory(void)
{
	struct cufi_slab s;
	void *chain = NULL, *o;
	long before, grown;
	int n;

	if (cufi_slab_init(&s, OBJECT, 0))
		abort();
	before = resident_kb();
	for (n = 0; n < MILLION && (o = cufi_slab_get(&s)) != NULL; n++) {
		memset(o, 0, OBJECT);
		*(void **)o = chain;
		chain = o;
	}
	grown = resident_kb() - before;
	is_int(n, MILLION, "a million objects");
	if (sanitized)
		skip(1, "a sanitizer's shadow counts as resident");
	else
		ok(grown < 130000000 / 1024, "cost %ld kB, under 130 MB", grown);
	while ((o = chain) != NULL) {
		chain = *(void **)o;
		cufi_slab_put(&s, o);
	}
	is_int(cufi_slab_in_use(&s), 0, "all came back");
	cufi_slab_destroy(&s);
	if (sanitized)
		skip(1, "a sanitizer's shadow counts as resident");
	else
		ok(resident_kb() - before < 20000, "destroy gives the memory back");
}

static void show_speed(void)
{
	struct cufi_slab s;
	const int turns = 1000000;
	uint64_t start;

	if (cufi_slab_init(&s, OBJECT, 0))
		abort();
	cufi_slab_put(&s, cufi_slab_get(&s));
	start = cufi_now_ns();
	for (int i = 0; i < turns; i++)
		cufi_slab_put(&s, cufi_slab_get(&s));
	diag("get + put: %.1f ns", (double)(cufi_now_ns() - start) / turns);
	cufi_slab_destroy(&s);
}

int main(void)
{
	plan(37);
	check_sizes();
	check_reuse();
	check_limit();
	check_shares();
	check_passing();
	check_ended();
	check_many_slabs();
	check_memory();
	show_speed();
	return done();
}
