/* SPDX-License-Identifier: MIT */
/*
 * Parks end by a wake, by the deadline, or at once where the word has changed, and signals do not
 * lengthen them; the lock excludes and loses no waiter; threads are named, masked, uncancellable and
 * on all processors whoever starts them.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <unistd.h>

#include "tap.h"
#include "wait.h"

#define MS 1000000u /* ns */

static void check_clock(void)
{
	struct timespec t;
	uint64_t a = cufi_now_ns(), b, now;

	clock_gettime(CLOCK_MONOTONIC, &t);
	now = (uint64_t)t.tv_sec * 1000 * MS + (uint64_t)t.tv_nsec;
	b = cufi_now_ns();
	ok(a <= now && now <= b, "the clock is CLOCK_MONOTONIC in nanoseconds");
}

static void check_park_returns(void)
{
	_Atomic uint32_t word = 1;
	uint64_t start = cufi_now_ns(), end;
	bool timed_out = false;

	errno = EDOM;
	ok(cufi_park(&word, 0, CUFI_FOREVER), "a word that has changed is not waited for");
	ok(!cufi_park(&word, 1, 0), "a deadline long past is one");
	while (!timed_out)
		timed_out = !cufi_park(&word, 1, start + 20 * MS);
	end = cufi_now_ns();
	ok(end >= start + 20 * MS, "no park ends before its deadline");
	ok(end < start + 2000 * MS, "nor long after it");
	cufi_wake(&word, INT_MAX);
	is_int(errno, EDOM, "none of them touches errno");
}

struct sleeper {
	struct cufi_thread thread;
	_Atomic uint32_t *word;
	_Atomic int *awake;
};

static void sleep_until_changed(void *arg)
{
	struct sleeper *s = arg;

	while (atomic_load(s->word) == 0)
		cufi_park(s->word, 0, CUFI_FOREVER);
	atomic_fetch_add(s->awake, 1);
}

static void check_wake(void)
{
	struct sleeper s[3];
	_Atomic uint32_t word = 0;
	_Atomic int awake = 0;

	for (int i = 0; i < 3; i++) {
		s[i].word = &word;
		s[i].awake = &awake;
		if (cufi_thread_start(&s[i].thread, "sleeper", sleep_until_changed, &s[i], NULL))
			abort();
	}
	usleep(20000);
	is_int(atomic_load(&awake), 0, "sleepers sleep");
	atomic_store(&word, 1);
	cufi_wake(&word, INT_MAX);
	for (int i = 0; i < 3; i++)
		cufi_thread_join(&s[i].thread);
	is_int(atomic_load(&awake), 3, "a wake of all wakes them all");
}

static _Atomic int signals;

static void count_signal(int number)
{
	(void)number;
	atomic_fetch_add(&signals, 1);
}

static void *park_100_ms(void *arg)
{
	_Atomic uint32_t word = 0;
	uint64_t start = cufi_now_ns(), deadline = start + 100 * MS;

	while (cufi_park(&word, 0, deadline))
		;
	*(uint64_t *)arg = cufi_now_ns() - start;
	return NULL;
}

/* In a thread of the user's, which takes signals: ours do not. */
static void check_signals(void)
{
	struct sigaction act = { .sa_handler = count_signal };
	uint64_t took = 0;
	pthread_t id;

	sigaction(SIGUSR1, &act, NULL);
	if (pthread_create(&id, NULL, park_100_ms, &took))
		abort();
	for (int i = 0; i < 20; i++) {
		usleep(2000);
		pthread_kill(id, SIGUSR1);
	}
	pthread_join(id, NULL);
	ok(atomic_load(&signals) > 0, "signals came in the middle of parks");
	ok(took >= 100 * MS && took < 2000 * MS, "and the deadline held: %llu us",
	   (unsigned long long)took / 1000);
}

struct counter {
	cufi_lock lock;
	long value; /* under lock */
	_Atomic int start;
};

#define THREADS 4
#define TURNS	20000

static void count_up(void *arg)
{
	struct counter *c = arg;
	unsigned spins = 0;

	while (!atomic_load(&c->start))
		cufi_relax(&spins);
	for (int i = 0; i < TURNS; i++) {
		if (i % 16 != 0 || !cufi_lock_try(&c->lock))
			cufi_lock_take(&c->lock);
		c->value++;
		if (i % 4096 == 0)
			sched_yield(); /* so that others come to sleep */
		cufi_lock_give(&c->lock);
	}
}

static void check_lock(void)
{
	struct counter c = { .value = 0 };
	struct cufi_thread t[THREADS];

	ok(cufi_lock_try(&c.lock), "a free lock can be tried");
	ok(!cufi_lock_try(&c.lock), "a taken one not");
	cufi_lock_give(&c.lock);
	ok(cufi_lock_try(&c.lock), "and once given it can again");
	cufi_lock_give(&c.lock);
	for (int i = 0; i < THREADS; i++)
		if (cufi_thread_start(&t[i], "counter", count_up, &c, NULL))
			abort();
	atomic_store(&c.start, 1);
	for (int i = 0; i < THREADS; i++)
		cufi_thread_join(&t[i]);
	is_int(c.value, THREADS * TURNS, "the lock excludes");
	is_int(atomic_load(&c.lock.word), 0, "and is free in the end");
}

static void hold_lock(void *arg)
{
	struct counter *c = arg;

	cufi_lock_take(&c->lock);
	c->value = 1;
	cufi_lock_give(&c->lock);
}

static void check_lock_sleeper(void)
{
	struct counter c = { .value = 0 };
	struct cufi_thread t[THREADS];

	cufi_lock_take(&c.lock);
	for (int i = 0; i < THREADS; i++)
		if (cufi_thread_start(&t[i], "taker", hold_lock, &c, NULL))
			abort();
	usleep(20000);
	is_int(c.value, 0, "waiters for a lock wait");
	cufi_lock_give(&c.lock);
	for (int i = 0; i < THREADS; i++)
		cufi_thread_join(&t[i]);
	is_int(c.value, 1, "and are woken, one by another");
}

struct report {
	char name[32];
	sigset_t blocked;
	cpu_set_t cpus;
	size_t stack_bytes;
	bool finished;
	_Atomic int cancelled;
};

static void report_self(void *arg)
{
	struct report *r = arg;
	pthread_attr_t attr;

	pthread_getname_np(pthread_self(), r->name, sizeof r->name);
	pthread_sigmask(SIG_SETMASK, NULL, &r->blocked);
	sched_getaffinity(0, sizeof r->cpus, &r->cpus);
	pthread_getattr_np(pthread_self(), &attr);
	pthread_attr_getstacksize(&attr, &r->stack_bytes);
	pthread_attr_destroy(&attr);
	while (!atomic_load(&r->cancelled))
		usleep(100); /* a cancellation point */
	usleep(100);
	r->finished = true;
}

static struct report *run_report(const char *name, const struct cufi_thread_options *o)
{
	static struct report r;
	struct cufi_thread t;

	memset(&r, 0, sizeof r);
	if (cufi_thread_start(&t, name, report_self, &r, o))
		return NULL;
	pthread_cancel(t.id);
	atomic_store(&r.cancelled, 1);
	cufi_thread_join(&t);
	if (t.running)
		abort();
	return &r;
}

static void check_thread(void)
{
	struct cufi_thread_options o = { .stack_bytes = 300000 };
	struct report *r = run_report("0123456789abcdef", NULL);
	sigset_t mine, after;
	int changed = 0;
	struct cufi_thread idle = { .running = false };

	is_str(r->name, "cuf-0123456789a", "a name is cut to what the kernel takes");
	ok(sigismember(&r->blocked, SIGTERM) && sigismember(&r->blocked, SIGUSR1) &&
		   sigismember(&r->blocked, SIGPROF) && sigismember(&r->blocked, SIGRTMIN),
	   "signals are blocked");
	ok(!sigismember(&r->blocked, SIGSEGV) && !sigismember(&r->blocked, SIGBUS),
	   "but for faults of its own");
	ok(r->finished, "a cancel does nothing");

	sigemptyset(&mine);
	sigaddset(&mine, SIGUSR2);
	pthread_sigmask(SIG_SETMASK, &mine, NULL);
	r = run_report("x", &o);
	pthread_sigmask(SIG_UNBLOCK, &mine, &after);
	for (int i = 1; i < SIGRTMIN; i++)
		changed += sigismember(&after, i) != (i == SIGUSR2);
	is_str(r->name, "cuf-x", "a short name is whole");
	is_int(changed, 0, "the creator's mask is as before");
	ok(r->stack_bytes >= 300000 && r->stack_bytes < 1000000, "stack size: %zu", r->stack_bytes);
	o.stack_bytes = 1;
	ok(run_report("x", &o) != NULL, "one too small is made larger");
	o.stack_bytes = SIZE_MAX;
	ok(run_report("x", &o) == NULL, "one too large is an error");
	cufi_thread_join(&idle);
	ok(!idle.running, "joining what does not run is nothing");
}

static void check_affinity(void)
{
	struct cufi_thread_options o = { .stack_bytes = 0 };
	struct report *r;
	cpu_set_t all, one, none;
	int first = 0;

	sched_getaffinity(0, sizeof all, &all);
	is_int(cufi_cpus(), CPU_COUNT(&all), "cpus: what the process may use");
	while (!CPU_ISSET(first, &all))
		first++;
	CPU_ZERO(&one);
	CPU_SET(first, &one);
	sched_setaffinity(0, sizeof one, &one);
	r = run_report("x", NULL);
	ok(CPU_EQUAL(&r->cpus, &all), "a thread started by a bound one is not bound: %d of %d",
	   CPU_COUNT(&r->cpus), CPU_COUNT(&all));
	is_int(cufi_cpus(), CPU_COUNT(&all), "cpus: the same from there");
	sched_setaffinity(0, sizeof all, &all);

	o.affinity = &one;
	o.affinity_bytes = sizeof one;
	r = run_report("x", &o);
	ok(CPU_EQUAL(&r->cpus, &one), "an affinity asked for is given");
	CPU_ZERO(&none);
	o.affinity = &none;
	ok(run_report("x", &o) == NULL, "an impossible one is an error");
}

int main(void)
{
	plan(32);
	check_clock();
	check_park_returns();
	check_wake();
	check_signals();
	check_lock();
	check_lock_sleeper();
	check_thread();
	check_affinity();
	return done();
}
