/* SPDX-License-Identifier: MIT */
/*
 * Waiting on Linux: futexes, a three-state lock, CLOCK_MONOTONIC, threads. With CUFI_TESTPOINTS
 * everything that blocks or reads the time asks the installed hooks first (tests/explore/sched.c).
 * It does not decide who waits for what: future.c, completer.c.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "wait.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000u

/* Turns between two sched_yield: about 3 us of x86 pauses (arbitrary). */
#define RELAX_TURNS 64u

/* Turns a waiter spins for a lock before it sleeps: a section of ours is under 1 us (arbitrary). */
#define LOCK_TURNS 40u

/* Processors a mask can name; the kernel's own limit on x86-64 and arm64 is 8192. */
#define MASK_CPUS 8192

struct mask {
	cpu_set_t set[MASK_CPUS / CPU_SETSIZE];
};

/* What a new thread needs. Owner: the creator until pthread_create succeeds, then the thread; with
 * a scheduler underneath, the thread's joiner. */
struct start {
	void (*fn)(void *arg);
	void *arg;
	bool own_mask; /* affinity was given by attributes */
	char name[16]; /* the kernel's limit, with the 0 */
#ifdef CUFI_TESTPOINTS
	const struct cufi_wait_hooks *hooks; /* those of the moment of creation */
	void *token;
	pthread_t id;
	struct start *next;
#endif
};

#ifdef CUFI_TESTPOINTS
static _Atomic(const struct cufi_wait_hooks *) installed_hooks;

/* Threads with a token that were not joined yet. */
static pthread_mutex_t started_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct start *started;

void cufi_wait_yield(const char *label); /* called by testpoint.c */

void cufi_wait_hook(const struct cufi_wait_hooks *hooks)
{
	/* release: pairs with current_hooks(): the members of *hooks */
	atomic_store_explicit(&installed_hooks, hooks, memory_order_release);
}

static const struct cufi_wait_hooks *current_hooks(void)
{
	/* acquire: pairs with cufi_wait_hook(): the members of *hooks */
	return atomic_load_explicit(&installed_hooks, memory_order_acquire);
}

void cufi_wait_yield(const char *label)
{
	const struct cufi_wait_hooks *h = current_hooks();

	if (h != NULL && h->yield != NULL)
		h->yield(label);
}

/* True if a hook is installed for @member: the statement after it uses h->member. */
#define HOOKED(h, member) (((h) = current_hooks()) != NULL && (h)->member != NULL)
#endif

uint64_t cufi_now_ns(void)
{
	struct timespec t;
#ifdef CUFI_TESTPOINTS
	const struct cufi_wait_hooks *h;

	if (HOOKED(h, now_ns))
		return h->now_ns();
#endif
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

bool cufi_park(_Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns)
{
	struct timespec until, *limit = NULL;
	int saved = errno;
	bool timed_out;
#ifdef CUFI_TESTPOINTS
	const struct cufi_wait_hooks *h;

	if (HOOKED(h, park))
		return h->park(word, expected, deadline_ns);
#endif
	if (deadline_ns != CUFI_FOREVER) {
		until.tv_sec = (time_t)(deadline_ns / NS_PER_S);
		until.tv_nsec = (long)(deadline_ns % NS_PER_S);
		limit = &until;
	}
	/* The BITSET form alone takes an absolute CLOCK_MONOTONIC time, so that a retry after a
	 * signal does not begin the wait anew. EINTR and EAGAIN are returns for no reason. */
	timed_out = syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, expected, limit, NULL,
			    FUTEX_BITSET_MATCH_ANY) != 0 &&
		    errno == ETIMEDOUT;
	errno = saved;
	return !timed_out;
}

bool cufi_park_sharp(_Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns)
{
	int slack = prctl(PR_GET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL);
	bool woken;

	if (slack > 1)
		(void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
	woken = cufi_park(word, expected, deadline_ns);
	if (slack > 1)
		(void)prctl(PR_SET_TIMERSLACK, (unsigned long)slack, 0UL, 0UL, 0UL);
	return woken;
}

void cufi_wake(_Atomic uint32_t *word, int n)
{
	int saved = errno;
#ifdef CUFI_TESTPOINTS
	const struct cufi_wait_hooks *h;

	if (HOOKED(h, wake)) {
		h->wake(word, n);
		return;
	}
#endif
	/* EFAULT, where the memory is gone, is as good as nobody there. */
	(void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
	errno = saved;
}

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

void cufi_relax(unsigned *spins)
{
#ifdef CUFI_TESTPOINTS
	const struct cufi_wait_hooks *h;

	if (HOOKED(h, yield)) {
		h->yield("relax");
		return;
	}
#endif
	if (++*spins % RELAX_TURNS == 0 || cufi_cpus() == 1)
		sched_yield();
	else
		pause_cpu();
}

/*
 * The processors that the process may use. A thread that binds itself, as OpenMP binds the main one,
 * says nothing about ours: so, what the main thread had when this library was loaded, what it has
 * now, and what the calling thread has. (The kernel's own set of allowed processors would be too
 * much: it forgets taskset.)
 */
static struct mask mask_at_load; /* writer: note_mask(), before main or within dlopen */

static void add_mask_of(pid_t tid, struct mask *m)
{
	struct mask one;

	memset(&one, 0, sizeof(one));
	if (sched_getaffinity(tid, sizeof(one), one.set) == 0)
		CPU_OR_S(sizeof(one), m->set, m->set, one.set);
}

__attribute__((constructor)) static void note_mask(void)
{
	int saved = errno;

	add_mask_of(getpid(), &mask_at_load);
	errno = saved;
}

static void get_process_mask(struct mask *m)
{
	*m = mask_at_load;
	add_mask_of(getpid(), m); /* a pid as a tid: the main thread */
	add_mask_of(0, m);
}

unsigned cufi_cpus(void)
{
	static atomic_uint cached;
	unsigned n;
#ifdef CUFI_TESTPOINTS
	if (current_hooks() != NULL)
		return 2; /* a seed replays on any machine */
#endif
	/* relaxed: every thread that finds 0 computes it for itself */
	n = atomic_load_explicit(&cached, memory_order_relaxed);
	if (n == 0) {
		struct mask m;
		int count, saved = errno;

		get_process_mask(&m);
		count = CPU_COUNT_S(sizeof(m), m.set);
		n = count > 0 ? (unsigned)count : 1;
		/* relaxed: the number is all there is */
		atomic_store_explicit(&cached, n, memory_order_relaxed);
		errno = saved;
	}
	return n;
}

void cufi_lock_wait(cufi_lock *l)
{
	unsigned turn, turns = LOCK_TURNS;

#ifdef CUFI_TESTPOINTS
	if (current_hooks() != NULL)
		turns = 0;
#endif
	if (cufi_cpus() == 1)
		turns = 0;
	for (turn = 0; turn < turns; turn++) {
		pause_cpu();
		/* relaxed: a hint, the try decides */
		if (atomic_load_explicit(&l->word, memory_order_relaxed) == 0 &&
		    cufi_lock_try_now(l))
			return;
	}
	/* Who ever slept takes it as 2: others may sleep still, and its own give must look.
	 * acquire: pairs with cufi_lock_give(): what the last owner wrote */
	while (atomic_exchange_explicit(&l->word, 2, memory_order_acquire) != 0)
		(void)cufi_park(&l->word, 2, CUFI_FOREVER);
}

#ifdef CUFI_TESTPOINTS
void cufi_lock_take(cufi_lock *l)
{
	cufi_wait_yield("lock");
	if (!cufi_lock_try_now(l))
		cufi_lock_wait(l);
}

bool cufi_lock_try(cufi_lock *l)
{
	cufi_wait_yield("trylock");
	return cufi_lock_try_now(l);
}

void cufi_lock_give(cufi_lock *l)
{
	/* release: pairs with cufi_lock_try_now and cufi_lock_wait: what the section wrote */
	if (atomic_exchange_explicit(&l->word, 0, memory_order_release) == 2)
		cufi_wake(&l->word, 1);
	cufi_wait_yield("unlock");
}
#endif

static void *run_thread(void *start)
{
	struct start *s = start;
	void (*fn)(void *arg) = s->fn;
	void *arg = s->arg;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_setname_np(pthread_self(), s->name);
	/* Measured, 200 us parks: 7 us late in the median, against 66 with the default slack. */
	(void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
	if (!s->own_mask) {
		struct mask m;

		/* Here and not by attributes: if the allowed set just changed and this fails, the
		 * thread runs all the same, with its creator's mask. */
		get_process_mask(&m);
		(void)sched_setaffinity(0, sizeof(m), m.set);
	}
#ifdef CUFI_TESTPOINTS
	if (s->token != NULL) {
		const struct cufi_wait_hooks *h = s->hooks;
		void *token = s->token;

		if (h->thread_start != NULL)
			h->thread_start(token);
		fn(arg);
		if (h->thread_end != NULL)
			h->thread_end(token);
		return NULL; /* *s is its joiner's */
	}
#endif
	free(s);
	fn(arg);
	return NULL;
}

/* Everything but what a fault of the thread's own raises: a handler for those must still run. */
static void fill_blocked(sigset_t *set)
{
	static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT };
	size_t i;

	sigfillset(set);
	for (i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigdelset(set, faults[i]);
}

static int set_attributes(pthread_attr_t *attr, const struct cufi_thread_options *o)
{
	int rc = 0;

	if (o->stack_bytes != 0) {
		size_t page = (size_t)sysconf(_SC_PAGESIZE);
		size_t least = (size_t)sysconf(_SC_THREAD_STACK_MIN);
		size_t bytes = o->stack_bytes > least ? o->stack_bytes : least;

		if (bytes > SIZE_MAX - page)
			return EINVAL;
		rc = pthread_attr_setstacksize(attr, (bytes + page - 1) / page * page);
	}
	if (rc == 0 && o->affinity != NULL)
		rc = pthread_attr_setaffinity_np(attr, o->affinity_bytes, o->affinity);
	return rc;
}

#ifdef CUFI_TESTPOINTS
static void note_started(struct start *s, pthread_t id)
{
	s->id = id;
	pthread_mutex_lock(&started_mutex);
	s->next = started;
	started = s;
	pthread_mutex_unlock(&started_mutex);
}

static struct start *take_started(pthread_t id)
{
	struct start **at, *s = NULL;

	pthread_mutex_lock(&started_mutex);
	for (at = &started; *at != NULL; at = &(*at)->next) {
		if (pthread_equal((*at)->id, id)) {
			s = *at;
			*at = s->next;
			break;
		}
	}
	pthread_mutex_unlock(&started_mutex);
	return s;
}
#endif

int cufi_thread_start(struct cufi_thread *t, const char *name, void (*fn)(void *arg), void *arg,
		      const struct cufi_thread_options *o)
{
	static const struct cufi_thread_options defaults;
	struct start *s = calloc(1, sizeof(*s));
	pthread_attr_t attr;
	sigset_t blocked, before;
	int rc;

	t->running = false;
	if (s == NULL)
		return ENOMEM;
	if (o == NULL)
		o = &defaults;
	s->fn = fn;
	s->arg = arg;
	s->own_mask = o->affinity != NULL;
	(void)snprintf(s->name, sizeof(s->name), "cuf-%.11s", name);
	rc = pthread_attr_init(&attr);
	if (rc != 0) {
		free(s);
		return rc;
	}
	rc = set_attributes(&attr, o);
	if (rc == 0) {
#ifdef CUFI_TESTPOINTS
		const struct cufi_wait_hooks *h = s->hooks = current_hooks();
		void *token = NULL;

		if (h != NULL && h->thread_create != NULL)
			token = s->token = h->thread_create();
#endif
		/* Blocked before it exists: between its birth and a mask set by itself a signal
		 * could choose it. */
		fill_blocked(&blocked);
		pthread_sigmask(SIG_SETMASK, &blocked, &before);
		rc = pthread_create(&t->id, &attr, run_thread, s);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
#ifdef CUFI_TESTPOINTS
		if (token != NULL && rc == 0)
			note_started(s, t->id);
		else if (token != NULL && h->thread_end != NULL)
			h->thread_end(token); /* never born */
#endif
	}
	pthread_attr_destroy(&attr);
	if (rc != 0)
		free(s);
	else
		t->running = true;
	return rc;
}

void cufi_thread_join(struct cufi_thread *t)
{
#ifdef CUFI_TESTPOINTS
	struct start *s;
#endif

	if (!t->running)
		return;
#ifdef CUFI_TESTPOINTS
	s = take_started(t->id);
	if (s != NULL && s->hooks->thread_join != NULL)
		s->hooks->thread_join(s->token);
#endif
	pthread_join(t->id, NULL);
	t->running = false;
#ifdef CUFI_TESTPOINTS
	free(s);
#endif
}
