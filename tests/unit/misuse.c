/* SPDX-License-Identifier: MIT */
/*
 * A debug build names misuse of handles, and aborts: use after the last release, a release too many, a
 * scope closed twice. In processes of their own, since each dies of it.
 */
#include <cufuture.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tap.h"

#ifdef CUFI_DEBUG
static cuf_runtime *rt;
static cuf_scope *root;

static cuf_future *nothing(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	return NULL;
}

static cuf_future *dead(void)
{
	cuf_future *f = cuf_ready(root, NULL, NULL);

	cuf_release(f);
	return f;
}

static void use_poll(void)
{
	cuf_poll(dead());
}

static void use_wait(void)
{
	cuf_wait(dead());
}

static void use_value(void)
{
	cuf_value(dead());
}

static void use_error(void)
{
	cuf_error_of(dead());
}

static void use_ignore(void)
{
	cuf_ignore(dead());
}

static void use_cancel(void)
{
	cuf_cancel(dead());
}

static void use_retain(void)
{
	cuf_retain(dead());
}

static void use_then(void)
{
	cuf_then(root, dead(), nothing, NULL);
}

static void use_all(void)
{
	cuf_all(root, dead());
}

static void use_timeout(void)
{
	cuf_timeout(root, dead(), 0);
}

static void use_dependency(void)
{
	cuf_call(root, nothing, NULL, .after = CUF_AFTER(dead()));
}

static void release_twice(void)
{
	cuf_future *f = cuf_ready(root, NULL, NULL);

	cuf_release(f);
	cuf_release(f);
}

/* It lives on, in the hands of the runtime: the release is one too many all the same. */
static void release_twice_pending(void)
{
	cuf_future *f;

	cuf_promise_create(root, &f);
	cuf_release(f);
	cuf_release(f);
}

static void take_released(void)
{
	cuf_future *f;

	cuf_promise_create(root, &f);
	cuf_release(f);
	cuf_call(root, nothing, NULL, .take = CUF_AFTER(f));
}

static void close_twice(void)
{
	cuf_scope *s = cuf_scope_open(root, .label = "twice"), *inside = cuf_scope_open(s);

	(void)inside; /* so that it is there still */
	cuf_scope_close(s);
	cuf_scope_close(s);
}

static void end_twice(void)
{
	cuf_scope *s = cuf_scope_open(root), *inside = cuf_scope_open(s);

	(void)inside;
	cuf_scope_end(s);
	cuf_scope_end(s);
}

static const struct {
	void (*misuse)(void);
	const char *call, *what;
} kinds[] = {
	{ use_poll, "cuf_poll", "poll after the last release" },
	{ use_wait, "cuf_wait", "wait" },
	{ use_value, "cuf_value", "value" },
	{ use_error, "cuf_error_of", "error_of" },
	{ use_ignore, "cuf_ignore", "ignore" },
	{ use_cancel, "cuf_cancel", "cancel" },
	{ use_retain, "cuf_retain", "retain" },
	{ use_then, "then", "then" },
	{ use_all, "all", "all" },
	{ use_timeout, "timeout", "timeout" },
	{ use_dependency, "call", "a dependency" },
	{ release_twice, "cuf_release", "a release too many" },
	{ release_twice_pending, "cuf_release", "one of what is pending" },
	{ take_released, "take", "a future taken that was released" },
	{ close_twice, "cuf_scope_close", "a scope closed twice" },
	{ end_twice, "cuf_scope_end", "a scope ended twice" },
};
#define KINDS ((int)(sizeof kinds / sizeof *kinds))

static int commit(int kind)
{
	cuf_runtime_options o = { .size = sizeof o, .backend = "host" };

	alarm(20);
	if (cuf_runtime_create(&rt, &o))
		return 2;
	root = cuf_runtime_scope(rt);
	kinds[kind].misuse();
	return 3;
}

/* It dies of abort(), and stderr names the call. In a process of its own, by its number. */
static void dies(int kind)
{
	char text[2048] = "", number[16], path[4096] = "";
	int out[2], status;
	size_t have = 0;
	ssize_t n;
	pid_t pid;

	snprintf(number, sizeof number, "%d", kind);
	fflush(stdout);
	/* not the link itself: under valgrind it is valgrind */
	if (pipe(out) || readlink("/proc/self/exe", path, sizeof path - 1) < 0)
		abort();
	pid = fork();
	if (!pid) {
		dup2(out[1], 2);
		execl(path, path, number, (char *)NULL);
		_exit(127);
	}
	close(out[1]);
	while (have < sizeof text - 1 &&
	       (n = read(out[0], text + have, sizeof text - 1 - have)) > 0)
		have += (size_t)n;
	close(out[0]);
	waitpid(pid, &status, 0);
	if (!ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT &&
			strstr(text, kinds[kind].call) != NULL,
		"%s", kinds[kind].what))
		diag("status %d, stderr: %s", status, text);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return commit(atoi(argv[1]));
	plan(KINDS);
	for (int i = 0; i < KINDS; i++)
		dies(i);
	return done();
}
#else
int main(void)
{
	plan_skip_all("not a debug build (--enable-debug)");
}
#endif
