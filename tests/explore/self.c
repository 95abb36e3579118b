/* SPDX-License-Identifier: MIT */
/*
 * The virtual scheduler tested by itself: it finds planted bugs within 200 seeds, passes the same
 * programs without them 1000 times, and repeats itself. A failing run ends its process, so the
 * planted ones run in children: this program, with the name of the case.
 */
#include "tap.h"

#ifndef CUFI_TESTPOINTS
int main(void)
{
	plan_skip_all("built without testpoints");
}
#else

#include <limits.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "explore/sched.h"
#include "slab.h"
#include "testpoint.h"
#include "wait.h"

extern char **environ;

#define MS    1000000u /* ns */

static void start(struct cufi_thread *t, void (*fn)(void *arg), void *arg)
{
	if (cufi_thread_start(t, "self", fn, arg, NULL))
		abort();
}

/* ---- a wake lost between the look and the sleep ---- */

struct mailbox {
	bool bug;
	_Atomic uint32_t full, sleeping, doorbell;
};

static void receive(void *arg)
{
	struct mailbox *m = arg;

	while (!atomic_load(&m->full)) {
		uint32_t heard = atomic_load(&m->doorbell);

		if (m->bug)
			CUFI_TESTPOINT("self: looked");
		atomic_store(&m->sleeping, 1);
		CUFI_TESTPOINT("self: sleeping");
		if (m->bug || !atomic_load(&m->full))
			cufi_park(&m->doorbell, heard, CUFI_FOREVER);
		atomic_store(&m->sleeping, 0);
	}
}

static void send_one(void *arg)
{
	struct mailbox *m = arg;

	CUFI_TESTPOINT("self: sending");
	atomic_store(&m->full, 1);
	CUFI_TESTPOINT("self: full");
	if (atomic_load(&m->sleeping)) {
		atomic_fetch_add(&m->doorbell, 1);
		cufi_wake(&m->doorbell, 1);
	}
}

static void run_mailbox(void *arg)
{
	struct mailbox m = { .bug = *(bool *)arg };
	struct cufi_thread t[2];

	start(&t[0], receive, &m);
	start(&t[1], send_one, &m);
	cufi_thread_join(&t[0]);
	cufi_thread_join(&t[1]);
}

/* ---- a counter without its lock ---- */

struct counter {
	bool bug;
	cufi_lock lock;
	int value;
};

static void count(void *arg)
{
	struct counter *c = arg;

	for (int i = 0; i < 3; i++) {
		int value;

		if (!c->bug)
			cufi_lock_take(&c->lock);
		value = c->value;
		CUFI_TESTPOINT("self: counting");
		c->value = value + 1;
		if (!c->bug)
			cufi_lock_give(&c->lock);
	}
}

static void run_counter(void *arg)
{
	struct counter c = { .bug = *(bool *)arg };
	struct cufi_thread t[3];

	for (int i = 0; i < 3; i++)
		start(&t[i], count, &c);
	for (int i = 0; i < 3; i++)
		cufi_thread_join(&t[i]);
	sched_check(c.value == 9, "counted %d", c.value);
}

/* ---- two locks, in two orders ---- */

struct pair {
	bool bug;
	cufi_lock a, b;
};

static void take_ab(void *arg)
{
	struct pair *p = arg;

	cufi_lock_take(&p->a);
	cufi_lock_take(&p->b);
	cufi_lock_give(&p->b);
	cufi_lock_give(&p->a);
}

static void take_ba(void *arg)
{
	struct pair *p = arg;

	cufi_lock_take(p->bug ? &p->b : &p->a);
	cufi_lock_take(p->bug ? &p->a : &p->b);
	cufi_lock_give(&p->a);
	cufi_lock_give(&p->b);
}

static void run_pair(void *arg)
{
	struct pair p = { .bug = *(bool *)arg };
	struct cufi_thread t[2];

	start(&t[0], take_ab, &p);
	start(&t[1], take_ba, &p);
	cufi_thread_join(&t[0]);
	cufi_thread_join(&t[1]);
}

/* ---- a spinner that nobody lets go ---- */

struct flag {
	bool bug;
	_Atomic uint32_t up, parked_on;
};

static void spin(void *arg)
{
	struct flag *f = arg;
	unsigned spins = 0;

	while (!atomic_load(&f->up))
		cufi_relax(&spins);
}

static void raise_later(void *arg)
{
	struct flag *f = arg;
	uint64_t deadline = cufi_now_ns() + 50 * MS;

	/* With others spinning meanwhile: the clock goes on. */
	while (cufi_park(&f->parked_on, 0, deadline))
		;
	sched_check(cufi_now_ns() >= deadline, "a park ended early");
	if (!f->bug)
		atomic_store(&f->up, 1);
}

static void run_spinner(void *arg)
{
	struct flag f = { .bug = *(bool *)arg };
	struct cufi_thread t[2];

	start(&t[0], spin, &f);
	start(&t[1], raise_later, &f);
	cufi_thread_join(&t[1]);
	cufi_thread_join(&t[0]);
}

/* ---- a thread that nobody joins, and a crash ---- */

static void idle(void *arg)
{
	(void)arg;
	CUFI_TESTPOINT("self: idle");
}

static void run_unjoined(void *arg)
{
	static struct cufi_thread t;

	start(&t, idle, NULL);
	if (!*(bool *)arg)
		cufi_thread_join(&t);
}

static void run_crash(void *arg)
{
	CUFI_TESTPOINT("self: before");
	if (*(bool *)arg && sched_random(4) == 0)
		abort();
}

static const struct {
	const char *name, *says;
	void (*program)(void *arg);
} cases[] = {
	{ "a lost wake", "deadlock", run_mailbox },
	{ "an unlocked counter", "counted", run_counter },
	{ "locks in two orders", "deadlock", run_pair },
	{ "an endless spin", "livelock", run_spinner },
	{ "a thread not joined", "before its threads", run_unjoined },
	{ "an abort", "aborted", run_crash },
};
#define CASES (int)(sizeof cases / sizeof *cases)

static int run_planted(int i)
{
	struct rlimit no_core = { 0, 0 };
	bool bug = true;

	setrlimit(RLIMIT_CORE, &no_core);
	sched_sweep(200, NULL, cases[i].program, &bug);
	return 0;
}

/* Runs a planted case in a child; its output goes to @text. Returns its wait status. */
static int spawn(int i, const char *env, char *text, size_t size)
{
	char number[16], *argv[] = { (char *)"self", number, NULL };
	char *environment[] = { (char *)"EXPLORE_STEPS=20000", (char *)"EXPLORE_SHOW=4000",
				(char *)(uintptr_t)env, NULL };
	posix_spawn_file_actions_t actions;
	size_t used = 0;
	ssize_t n;
	int ends[2], status;
	pid_t child;

	snprintf(number, sizeof number, "%d", i);
	if (pipe(ends))
		abort();
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	posix_spawn_file_actions_addclose(&actions, ends[0]);
	if (posix_spawn(&child, "/proc/self/exe", &actions, NULL, argv, environment))
		abort();
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	while ((n = read(ends[0], text + used, size - 1 - used)) > 0)
		used += (size_t)n;
	text[used] = '\0';
	close(ends[0]);
	waitpid(child, &status, 0);
	return status;
}

static void check_planted(int i)
{
	static char first[65536], again[65536];
	char env[64];
	const char *seed;
	int status = spawn(i, NULL, first, sizeof first);

	ok(status != 0 && strstr(first, cases[i].says) != NULL, "%s is found", cases[i].name);
	seed = strstr(first, "EXPLORE_SEED=");
	if (status == 0 || seed == NULL) {
		diag("%s", first);
		skip(1, "no seed to replay");
		return;
	}
	snprintf(env, sizeof env, "EXPLORE_SEED=%.*s", (int)strspn(seed + 13, "0123456789"),
		 seed + 13);
	spawn(i, env, again, sizeof again);
	diag("%s: %s", cases[i].name, env);
	ok(strcmp(first, again) == 0, "and its seed replays, step by step");
}

static void check_sound(int i)
{
	bool bug = false;

	is_int(sched_sweep(1000, NULL, cases[i].program, &bug), 1000,
	       "without it, 1000 seeds pass");
}

/* ---- repeats itself ---- */

static struct cufi_slab slab;
static uint64_t order; /* of addresses */

static void recycle(void *arg)
{
	void *o[4];

	(void)arg;
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 4; i++) {
			o[i] = cufi_slab_get(&slab);
			/* Within a chunk: where that lies is the system's business. */
			order = order * 31 + (uintptr_t)o[i] % (256 * 1024);
		}
		for (int i = 0; i < 4; i++)
			cufi_slab_put(&slab, o[i]);
	}
}

static void run_recycling(void *arg)
{
	struct cufi_thread t[3];

	(void)arg;
	order = 0;
	if (cufi_slab_init(&slab, 128, 0))
		abort();
	for (int i = 0; i < 3; i++)
		start(&t[i], recycle, NULL);
	for (int i = 0; i < 3; i++)
		cufi_thread_join(&t[i]);
	sched_check(cufi_slab_in_use(&slab) == 0, "in use: %zu", cufi_slab_in_use(&slab));
	cufi_slab_destroy(&slab);
}

static void check_repeats(void)
{
	uint64_t last = 0;
	int differ = 0, same = 0;

	for (uint64_t seed = 1; seed <= 50; seed++) {
		uint64_t steps = sched_run(seed, run_recycling, NULL), print = sched_fingerprint();
		uint64_t addresses = order;

		differ += print != last;
		last = print;
		same += sched_run(seed, run_recycling, NULL) == steps &&
			sched_fingerprint() == print && order == addresses;
	}
	is_int(same, 50, "the same seed gives the same schedule, and the same objects");
	is_int(differ, 50, "another seed another one");
}

/* ---- time ---- */

static _Atomic uint32_t never;

static void nap(void *arg)
{
	uint64_t until = cufi_now_ns() + *(uint64_t *)arg * MS;

	while (cufi_park(&never, 0, until))
		;
	sched_check(cufi_now_ns() >= until && cufi_now_ns() < until + MS, "%d us late",
		    (int)((cufi_now_ns() - until) / 1000));
}

static void run_naps(void *arg)
{
	static uint64_t ms[3] = { 1000, 2000, 3600000 };
	struct cufi_thread t[3];
	uint64_t begin = cufi_now_ns();

	(void)arg;
	for (int i = 0; i < 3; i++)
		start(&t[i], nap, &ms[i]);
	for (int i = 0; i < 3; i++)
		cufi_thread_join(&t[i]);
	sched_check(cufi_now_ns() - begin >= (uint64_t)3600000 * MS, "an hour is too short");
}

static void check_time(void)
{
	uint64_t begin = cufi_now_ns();

	is_int(sched_sweep(100, NULL, run_naps, NULL), 100, "100 virtual hours");
	ok(cufi_now_ns() - begin < (uint64_t)20000 * MS,
	   "take no time, and the clock is real again");
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return run_planted(atoi(argv[1]));
	plan(CASES * 3 + 4);
	for (int i = 0; i < CASES; i++) {
		check_planted(i);
		check_sound(i);
	}
	check_repeats();
	check_time();
	return done();
}
#endif
