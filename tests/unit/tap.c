/* SPDX-License-Identifier: MIT */
/*
 * tap.h tested by itself: each case is a program of its own in a forked child, whose output and exit
 * status are looked at. A case starts with a fresh state, since only this process has planned.
 */
#include "tap.h"

#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct outcome {
	int exited; /* exit status, or -1 */
	int signal; /* what killed it, or 0 */
	char text[65536];
};

static void forget_plan(void)
{
	memset(&tap_, 0, sizeof tap_);
	pthread_mutex_init(&tap_.lock, NULL);
}

static void run_child(int (*program)(void), int fd)
{
	struct rlimit no_core = { 0, 0 };

	setrlimit(RLIMIT_CORE, &no_core);
	dup2(fd, STDOUT_FILENO);
	forget_plan();
	exit(program());
}

static struct outcome *run(int (*program)(void))
{
	static struct outcome o;
	size_t used = 0;
	ssize_t n;
	int ends[2], status;
	pid_t child;

	if (pipe(ends))
		abort();
	child = fork();
	if (child < 0)
		abort();
	if (child == 0)
		run_child(program, ends[1]);
	close(ends[1]);
	while ((n = read(ends[0], o.text + used, sizeof o.text - 1 - used)) > 0)
		used += (size_t)n;
	o.text[used] = '\0';
	close(ends[0]);
	waitpid(child, &status, 0);
	o.exited = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	o.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	return &o;
}

static bool says(const struct outcome *o, const char *text)
{
	if (strstr(o->text, text))
		return true;
	diag("not in the output: %s", text);
	diag("%s", o->text);
	return false;
}

static int pass_all(void)
{
	bool yes = true;

	plan(6);
	ok(yes, "a bool");
	ok(1 < 2, "a #hash and\na line");
	is_int(UINT64_MAX, UINT64_MAX, "integers");
	is_str("a", "a", "strings");
	is_str(NULL, NULL, "no strings");
	is_ptr(&yes, &yes, "pointers");
	return done();
}

static int fail_ok(void)
{
	plan(1);
	ok(1 > 2, "order");
	return done();
}

static int fail_others(void)
{
	plan(4);
	is_int(3, 4, "integers");
	is_str("a", "b", "strings");
	is_str(NULL, "b", "no string");
	is_ptr(NULL, &errno, "pointers");
	return done();
}

static int run_too_few(void)
{
	plan(2);
	ok(true, "the only one");
	return done();
}

static int run_too_many(void)
{
	plan(1);
	ok(true, "one");
	ok(true, "two");
	return done();
}

static int skip_some(void)
{
	plan(3);
	ok(true, "one");
	skip(2, "no %s here", "moon");
	return done();
}

static int skip_all(void)
{
	plan_skip_all("no %s at all", "moon");
}

static int hang(void)
{
	setenv("TAP_TIMEOUT", "1", 1);
	plan(2);
	ok(true, "the last to pass");
	pause();
	return done();
}

static int hang_unwatched(void)
{
	setenv("TAP_TIMEOUT", "0", 1);
	plan(1);
	ok(!tap_.watched, "no watchdog");
	return done();
}

enum { THREADS = 4, POINTS = 200 };

static void *make_points(void *arg)
{
	(void)arg;
	for (int i = 0; i < POINTS; i++)
		ok(true, "point %d", i);
	return NULL;
}

static int run_threads(void)
{
	pthread_t t[THREADS];

	plan(THREADS * POINTS);
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&t[i], NULL, make_points, NULL))
			abort();
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	return done();
}

int main(void)
{
	struct outcome *o;

	/*
	 * The plan would start this process's watchdog before the forks, and ThreadSanitizer takes
	 * no new threads in the child of a process with threads: so the watchdog waits until the end.
	 */
	printf("1..%d\n", tap_.planned = 27);
	fflush(stdout);

	o = run(pass_all);
	is_int(o->exited, 0, "all passed: exit status 0");
	ok(says(o, "1..6\nok 1 - a bool\n"), "the plan comes first");
	ok(says(o, "ok 2 - a  hash and a line\n"), "a name cannot hold a directive or a point");
	ok(says(o, "ok 6 - pointers\n"), "points are counted");

	o = run(fail_ok);
	is_int(o->exited, 1, "one failed: exit status 1");
	ok(says(o, "not ok 1 - order\n# "), "it is named");
	ok(says(o, "tap.c:"), "with its file");
	ok(says(o, ": 1 > 2\n"), "and the condition");
	ok(says(o, "# failed 1 of 1\n"), "and they are counted");

	o = run(fail_others);
	is_int(o->exited, 1, "is_int, is_str and is_ptr fail: exit status 1");
	ok(says(o, "got 3, want 4"), "is_int shows both");
	ok(says(o, "got  a\n"), "is_str shows what it got");
	ok(says(o, "want b\n"), "and what it wanted");
	ok(says(o, "got  (null)\n"), "NULL too");
	ok(says(o, "not ok 4 - pointers\n"), "is_ptr fails");

	o = run(run_too_few);
	is_int(o->exited, 1, "fewer points than planned: exit status 1");
	ok(says(o, "# planned 2, ran 1\n"), "and it says so");
	o = run(run_too_many);
	is_int(o->exited, 1, "more points than planned: exit status 1");

	o = run(skip_some);
	is_int(o->exited, 0, "skipped points do not fail");
	ok(says(o, "ok 2 # SKIP no moon here\nok 3 # SKIP no moon here\n"), "and are marked");
	o = run(skip_all);
	is_int(o->exited, 0, "skipping all does not fail");
	is_str(o->text, "1..0 # SKIP no moon at all\n", "and plans nothing");

	o = run(hang);
	is_int(o->signal, SIGABRT, "the watchdog aborts what hangs");
	ok(says(o, "watchdog: 1 s are over; last was test 1 - the last to pass\n"),
	   "and names the last point");
	o = run(hang_unwatched);
	is_int(o->exited, 0, "TAP_TIMEOUT=0: no watchdog");

	o = run(run_threads);
	is_int(o->exited, 0, "several threads");
	ok(says(o, "\nok 800 - point 199\n"), "lose no point");
	return done();
}
