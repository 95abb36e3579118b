/* SPDX-License-Identifier: MIT */
/*
 * One thread holds the turn; only it touches what is below, and it passes the turn on by posting the
 * next one's semaphore, which orders everything. Who is next depends on the seed in one of three ways,
 * by the seed's remainder: any runnable thread; mostly the same one, for long runs in between; or
 * the one of highest priority, which it loses now and then (Burckhardt et al., "A randomized
 * scheduler with probabilistic guarantees of finding bugs", ASPLOS 2010).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "explore/sched.h"

#ifdef CUFI_TESTPOINTS

#include <errno.h>
#include <limits.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "slab.h"
#include "wait.h"

#define MAX_THREADS 256		/* in one run, ended ones included (arbitrary) */
#define KEPT_STEPS  4096	/* the end of the schedule (arbitrary) */
#define START_NS    1000000000u /* the clock of each run begins here: deadlines in the past exist */
#define STEP_NS	    50		/* what a step takes (arbitrary) */
#define SPIN_NS	    1000 /* a turn of a spinning loop, so that those end that look at the clock */
#define LATE_NS	    1000 /* a deadline is met so late, at most */
#define SPINS	    200	 /* turns in which nobody did anything else: as if all were parked */

enum state {
	UNUSED,
	RUNNABLE,
	PARKED,
	JOINING, /* until another has ended */
	ENDED,
	JOINED,
};

struct thread {
	enum state state;
	bool timed_out;
	_Atomic uint32_t *word; /* PARKED */
	uint64_t deadline_ns;	/* PARKED */
	struct thread *joined;	/* JOINING */
	uint32_t priority;	/* the highest runs */
	const char *label;	/* where it is, or was last */
	sem_t turn;
};

enum strategy {
	ANY,
	STICKY,
	PRIORITY,
	STRATEGIES,
};

struct step {
	unsigned thread;
	const char *label;
};

static struct thread threads[MAX_THREADS];
static unsigned thread_count;
static struct thread *running; /* who has the turn; NULL: no run */
static _Thread_local struct thread *self;

static uint64_t seed, random_state, steps, step_limit, fingerprint;
static unsigned spins; /* the last so many steps were turns of spinning loops */
static enum strategy strategy;
static uint32_t lowest; /* priority given last to who lost his */
static struct step kept[KEPT_STEPS];
static _Atomic uint64_t clock_ns;
static char message[1024]; /* of sched_fail() */

static uint64_t number_from(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text != NULL && *text != '\0' ? strtoull(text, NULL, 0) : otherwise;
}

/* splitmix64 */
static uint64_t next_random(void)
{
	uint64_t z = random_state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

uint32_t sched_random(uint32_t n)
{
	return n > 0 ? (uint32_t)(next_random() % n) : 0;
}

uint64_t sched_fingerprint(void)
{
	return fingerprint;
}

static unsigned index_of(const struct thread *t)
{
	return (unsigned)(t - threads);
}

/* ---- the report ---- */

/* No stdio: it may come from a signal handler. */
static void say(const char *fmt, ...)
{
	char line[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	if (n >= (int)sizeof line)
		n = (int)sizeof line - 1;
	if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0)
		return;
}

static void report(const char *what)
{
	static const char *const names[] = {
		[UNUSED] = "unused",   [RUNNABLE] = "runnable", [PARKED] = "parked",
		[JOINING] = "joining", [ENDED] = "ended",	[JOINED] = "joined",
	};
	/* relaxed: we have the turn */
	uint64_t now = atomic_load_explicit(&clock_ns, memory_order_relaxed);
	uint64_t show = number_from("EXPLORE_SHOW", 60), i;

	show = show < steps ? show : steps;
	show = show < KEPT_STEPS ? show : KEPT_STEPS;
	say("# %s\n# seed %llu: replay with EXPLORE_SEED=%llu\n", what, (unsigned long long)seed,
	    (unsigned long long)seed);
	say("# after %llu steps, at %.6f s; threads:\n", (unsigned long long)steps,
	    (double)(now - START_NS) / 1e9);
	for (i = 0; i < thread_count; i++) {
		struct thread *t = &threads[i];

		say("#   %c%llu %-8s at %s", t == running ? '*' : ' ', (unsigned long long)i,
		    names[t->state], t->label);
		if (t->state == PARKED && t->deadline_ns != CUFI_FOREVER)
			say(" until %.6f s", (double)(int64_t)(t->deadline_ns - START_NS) / 1e9);
		say("\n");
	}
	say("# the last %llu steps, thread:label\n", (unsigned long long)show);
	for (i = steps - show; i < steps; i++)
		say("#   %u:%s\n", kept[i % KEPT_STEPS].thread, kept[i % KEPT_STEPS].label);
}

static void fail(const char *what) __attribute__((noreturn));
static void fail(const char *what)
{
	signal(SIGABRT, SIG_DFL);
	report(what);
	abort();
}

void sched_fail(const char *file, int line, const char *condition, const char *fmt, ...)
{
	int n = snprintf(message, sizeof message, "%s:%d: not %s: ", file, line, condition);
	va_list ap;

	va_start(ap, fmt);
	if (n > 0 && n < (int)sizeof message)
		vsnprintf(message + n, sizeof message - (size_t)n, fmt, ap);
	va_end(ap);
	fail(message);
}

/* A crash, or the watchdog, in the middle of a run: the seed all the same. */
static void on_signal(int number)
{
	signal(number, SIG_DFL);
	if (running != NULL)
		report(number == SIGABRT ? "aborted" : "crashed");
	raise(number);
}

static void on_sanitizer_death(void)
{
	if (running != NULL)
		report("a sanitizer ended the program");
}

void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void catch_signals(void)
{
	static const int numbers[] = { SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTERM };
	static bool caught;

	if (caught)
		return;
	caught = true;
	if (__sanitizer_set_death_callback != NULL)
		__sanitizer_set_death_callback(on_sanitizer_death);
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		struct sigaction old;

		/* A sanitizer's own handler says more. */
		if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
			signal(numbers[i], on_signal);
	}
}

/* ---- the choice ---- */

static uint64_t now_ns(void)
{
	/* relaxed: moves only in the thread that has the turn */
	return atomic_load_explicit(&clock_ns, memory_order_relaxed);
}

static void set_clock(uint64_t ns)
{
	/* relaxed: as above */
	atomic_store_explicit(&clock_ns, ns, memory_order_relaxed);
}

/* Parked threads whose time has come become runnable; the earliest deadline of the others. */
static uint64_t expire(void)
{
	uint64_t now = now_ns(), earliest = CUFI_FOREVER;

	for (unsigned i = 0; i < thread_count; i++) {
		struct thread *t = &threads[i];

		if (t->state != PARKED || t->deadline_ns == CUFI_FOREVER)
			continue;
		if (t->deadline_ns <= now) {
			t->state = RUNNABLE;
			t->timed_out = true;
		} else if (t->deadline_ns < earliest) {
			earliest = t->deadline_ns;
		}
	}
	return earliest;
}

static unsigned find_runnable(struct thread *found[MAX_THREADS])
{
	unsigned n = 0;

	for (unsigned i = 0; i < thread_count; i++)
		if (threads[i].state == RUNNABLE)
			found[n++] = &threads[i];
	return n;
}

static struct thread *choose(bool spinning)
{
	struct thread *found[MAX_THREADS], *best;
	uint64_t earliest = expire();
	unsigned n = find_runnable(found);

	if ((n == 0 || spins > SPINS) && earliest != CUFI_FOREVER) {
		set_clock(earliest + sched_random(LATE_NS));
		spins = 0;
		expire();
		n = find_runnable(found);
	}
	if (n == 0)
		fail("deadlock: all threads are parked, and none has a deadline");
	if (strategy == STICKY && !spinning && running->state == RUNNABLE && sched_random(8) != 0)
		return running;
	if (strategy != PRIORITY)
		return found[sched_random(n)];
	if (spinning || sched_random(32) == 0)
		running->priority = --lowest;
	best = found[0];
	for (unsigned i = 1; i < n; i++)
		if (found[i]->priority > best->priority)
			best = found[i];
	return best;
}

static void wait_turn(struct thread *t)
{
	while (sem_wait(&t->turn) != 0)
		if (errno != EINTR)
			abort();
}

/* One step of the thread that has the turn: takes note, passes the turn on, has it again. */
static void step(const char *label, bool spinning)
{
	struct thread *me = running, *next;

	me->label = label;
	kept[steps % KEPT_STEPS] = (struct step){ index_of(me), label };
	fingerprint = (fingerprint ^ index_of(me)) * 0x100000001b3u;
	for (const char *c = label; *c != '\0'; c++)
		fingerprint = (fingerprint ^ (unsigned char)*c) * 0x100000001b3u;
	if (++steps > step_limit)
		fail("livelock: too many steps (EXPLORE_STEPS)");
	spins = spinning ? spins + 1 : 0;
	set_clock(now_ns() + (spinning ? SPIN_NS : STEP_NS));
	next = choose(spinning);
	if (next == me)
		return;
	running = next;
	if (me->state == ENDED) {
		sem_post(&next->turn);
		return; /* not a look at *me any more */
	}
	sem_post(&next->turn);
	wait_turn(me);
}

/* ---- the hooks ---- */

static void check_known(const char *what)
{
	if (self == NULL) {
		say("# %s in a thread that cufi_thread_start() did not start\n", what);
		abort();
	}
}

static void hook_yield(const char *label)
{
	if (self != NULL)
		step(label, strcmp(label, "relax") == 0);
}

static bool hook_park(_Atomic uint32_t *word, uint32_t expected, uint64_t deadline_ns)
{
	struct thread *me = self;

	check_known("park");
	step("park", false);
	if (atomic_load(word) != expected)
		return true;
	if (deadline_ns <= now_ns())
		return false;
	if (sched_random(16) == 0)
		return true; /* for no reason */
	me->state = PARKED;
	me->word = word;
	me->deadline_ns = deadline_ns;
	me->timed_out = false;
	step("parked", false);
	return !me->timed_out;
}

static void hook_wake(_Atomic uint32_t *word, int n)
{
	check_known("wake");
	step("wake", false);
	while (n-- > 0) {
		struct thread *found[MAX_THREADS];
		unsigned waiting = 0;

		for (unsigned i = 0; i < thread_count; i++)
			if (threads[i].state == PARKED && threads[i].word == word)
				found[waiting++] = &threads[i];
		if (waiting == 0)
			break;
		found[sched_random(waiting)]->state = RUNNABLE;
	}
	step("woke", false);
}

static struct thread *add_thread(void)
{
	struct thread *t = &threads[thread_count];

	if (thread_count == MAX_THREADS)
		fail("too many threads for one run");
	thread_count++;
	t->state = RUNNABLE;
	t->timed_out = false;
	/* Above those that lost theirs. */
	t->priority = 0x80000000u + sched_random(0x7fffffff);
	t->label = "start";
	return t;
}

static void *hook_thread_create(void)
{
	check_known("thread_start");
	return add_thread();
}

static void hook_thread_start(void *token)
{
	self = token;
	cufi_slab_without_pockets();
	wait_turn(self);
}

static void hook_thread_end(void *token)
{
	struct thread *t = token;

	if (self != t) {
		t->state = JOINED; /* it was never born */
		return;
	}
	t->state = ENDED;
	for (unsigned i = 0; i < thread_count; i++)
		if (threads[i].state == JOINING && threads[i].joined == t)
			threads[i].state = RUNNABLE;
	self = NULL;
	step("end", false);
}

static void hook_thread_join(void *token)
{
	struct thread *me = self, *t = token;

	check_known("thread_join");
	step("join", false);
	if (t->state != ENDED) {
		me->state = JOINING;
		me->joined = t;
		step("joining", false);
	}
	t->state = JOINED;
}

static const struct cufi_wait_hooks hooks = {
	.now_ns = now_ns,
	.park = hook_park,
	.wake = hook_wake,
	.yield = hook_yield,
	.thread_start = hook_thread_start,
	.thread_end = hook_thread_end,
	.thread_create = hook_thread_create,
	.thread_join = hook_thread_join,
};

uint64_t sched_run(uint64_t with_seed, void (*program)(void *arg), void *arg)
{
	static bool initialised;

	if (running != NULL)
		fail("sched_run() in a run");
	for (unsigned i = 0; i < MAX_THREADS && !initialised; i++)
		sem_init(&threads[i].turn, 0, 0);
	initialised = true;
	catch_signals();
	seed = random_state = with_seed;
	strategy = (enum strategy)(seed % STRATEGIES);
	step_limit = number_from("EXPLORE_STEPS", 1000000);
	steps = 0;
	spins = 0;
	lowest = 0x80000000u;
	fingerprint = 0xcbf29ce484222325u;
	thread_count = 0;
	set_clock(START_NS);

	self = running = add_thread();
	cufi_slab_without_pockets();
	cufi_wait_hook(&hooks);
	program(arg);
	cufi_wait_hook(NULL);
	for (unsigned i = 1; i < thread_count; i++)
		if (threads[i].state != JOINED)
			fail("the program ended before its threads were joined");
	self = running = NULL;
	return steps;
}

uint64_t sched_sweep(uint64_t count, void (*prepare)(void *arg), void (*program)(void *arg),
		     void *arg)
{
	uint64_t first = number_from("EXPLORE_SEED", 0), n;

	count = number_from("EXPLORE_SEEDS", count);
	if (first != 0)
		count = 1;
	else
		first = 1;
	for (n = 0; n < count; n++) {
		if (prepare != NULL)
			prepare(arg);
		sched_run(first + n, program, arg);
	}
	return n;
}
#else
typedef int sched_unused; /* ISO C wants a declaration in each file */
#endif
