/* SPDX-License-Identifier: MIT */
/*
 * How threads of this library wait: parking on a word, locks, the clock, threads. Everything that
 * can block, spin or read the time goes through here and nowhere else, so that a test build can put
 * a virtual scheduler underneath (struct cufi_wait_hooks) under which one thread runs at a time and a
 * seed replays. It decides nothing about who waits for what: future.c, completer.c.
 */
#ifndef CUFI_WAIT_H
#define CUFI_WAIT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CUFI_FOREVER UINT64_MAX

/* CLOCK_MONOTONIC in nanoseconds; virtual under the explorer. */
uint64_t cufi_now_ns(void);

/*
 * Sleeps while *@word == @expected, until woken or @deadline_ns. May return for no reason (signals,
 * a wake meant for an earlier owner of the word): callers loop. False only at the deadline.
 */
bool cufi_park(_Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns);

/*
 * The same on a thread of the program's, for a sleep of microseconds: the kernel may let its timers run
 * 50 us late (timer slack), which is set for this sleep and put back.
 */
bool cufi_park_sharp(_Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns);

/*
 * Wakes up to @n threads parked on @word. Only the address is used: it may be called after the
 * memory went to somebody else, who then sees a wake for no reason.
 */
void cufi_wake(_Atomic uint32_t *word, int n);

/* One turn of a spinning loop; gives the processor away every now and then. Start *spins at 0. */
void cufi_relax(unsigned *spins);

/* How many processors this process may run on; with one, nothing spins. */
unsigned cufi_cpus(void);

/* A lock of one word, for short sections. Not recursive. A waiter sleeps. */
typedef struct cufi_lock {
	_Atomic uint32_t word; /* 0 free, 1 taken, 2 taken and somebody may sleep */
} cufi_lock;

/* The lock is taken: spins a little, then sleeps. */
void cufi_lock_wait(cufi_lock *l);

static inline bool cufi_lock_try_now(cufi_lock *l)
{
	uint32_t is_free = 0;

	/* acquire: pairs with cufi_lock_give(): what the last owner wrote; relaxed: a failure says
	 * only that it is taken */
	return atomic_compare_exchange_strong_explicit(&l->word, &is_free, 1, memory_order_acquire,
						       memory_order_relaxed);
}

#ifdef CUFI_TESTPOINTS
void cufi_lock_take(cufi_lock *l);
bool cufi_lock_try(cufi_lock *l);
void cufi_lock_give(cufi_lock *l);
#else
static inline void cufi_lock_take(cufi_lock *l)
{
	if (!cufi_lock_try_now(l))
		cufi_lock_wait(l);
}

static inline bool cufi_lock_try(cufi_lock *l)
{
	return cufi_lock_try_now(l);
}

static inline void cufi_lock_give(cufi_lock *l)
{
	/* release: pairs with cufi_lock_try_now and cufi_lock_wait: what the section wrote. From
	 * here on *l may be gone; the wake uses its address only. */
	if (atomic_exchange_explicit(&l->word, 0, memory_order_release) == 2)
		cufi_wake(&l->word, 1);
}
#endif

/* A thread of ours: named "cuf-NAME", all signals blocked, no cancellation. */
struct cufi_thread {
	pthread_t id;
	bool running;
};
struct cufi_thread_options {
	size_t stack_bytes;    /* 0: the system's */
	const void *affinity;  /* a cpu_set_t, or NULL: every processor the process may use */
	size_t affinity_bytes; /* of *affinity */
};
int cufi_thread_start(struct cufi_thread *t, const char *name, void (*fn)(void *arg), void *arg,
		      const struct cufi_thread_options *o);
void cufi_thread_join(struct cufi_thread *t);

/*
 * What a virtual scheduler replaces. Installed before the first thread of ours starts; NULL members
 * mean the real thing. Only in builds with testpoints.
 */
struct cufi_wait_hooks {
	uint64_t (*now_ns)(void);
	bool (*park)(_Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns);
	void (*wake)(_Atomic uint32_t *word, int n);
	void (*yield)(
		const char *label); /* at every testpoint, and at every turn of a spinning loop */
	void (*thread_start)(void *token); /* in the new thread, before it runs fn */
	void (*thread_end)(void *token);
	void *(*thread_create)(void); /* in the creating thread, before pthread_create: the token */
	void (*thread_join)(void *token); /* before the real join */
};
#ifdef CUFI_TESTPOINTS
void cufi_wait_hook(const struct cufi_wait_hooks *hooks);
#endif

#endif
