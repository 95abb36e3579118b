/* SPDX-License-Identifier: MIT */
/*
 * C10: an error that nobody looked at is reported once; every way of looking silences it. What an
 * error says, and how it is printed.
 */
#include "contract.h"

static cuf_future *nothing(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	return NULL;
}

static void watch(cuf_future *f, void *arg)
{
	(void)f;
	atomic_fetch_add((_Atomic int *)arg, 1);
}

/* Ways of looking, or not, at @f, which has failed or will have by then. */
static cuf_loop *loop;
static _Atomic int seen;

static void look_not(cuf_scope *s, cuf_future *f)
{
	(void)s, (void)f;
}

static void look_poll(cuf_scope *s, cuf_future *f)
{
	(void)s;
	cuf_poll(f);
	cuf_value(f);
}

static void look_then(cuf_scope *s, cuf_future *f)
{
	cuf_future *t = cuf_then(s, f, nothing, NULL);

	settled(t);
	cuf_release(t);
}

static void look_all(cuf_scope *s, cuf_future *f)
{
	cuf_future *t = cuf_all(s, f, cuf_ok());

	settled(t);
	cuf_release(t);
}

static void look_any(cuf_scope *s, cuf_future *f)
{
	cuf_future *t = cuf_any(s, f, cuf_ok());

	settled(t);
	cuf_release(t);
}

static void look_wait(cuf_scope *s, cuf_future *f)
{
	(void)s;
	cuf_wait(f);
}

static void look_error(cuf_scope *s, cuf_future *f)
{
	(void)s;
	cuf_error_of(f);
}

static void look_ignore(cuf_scope *s, cuf_future *f)
{
	(void)s;
	cuf_ignore(f);
}

static void look_catch(cuf_scope *s, cuf_future *f)
{
	cuf_future *t = cuf_catch(s, f, nothing, NULL);

	settled(t);
	cuf_release(t);
}

static void look_finally(cuf_scope *s, cuf_future *f)
{
	cuf_future *t = cuf_finally(s, f, nothing, NULL);

	settled(t);
	cuf_release(t);
}

static void look_watch(cuf_scope *s, cuf_future *f)
{
	atomic_store(&seen, 0);
	cuf_watch(s, f, watch, &seen);
	comes_to(&seen, 1);
}

static void look_post(cuf_scope *s, cuf_future *f)
{
	cuf_event e;

	cuf_post(s, f, loop, 1);
	cuf_loop_take(loop, &e, 1);
}

static void look_inherited(cuf_scope *s, cuf_future *f)
{
	cuf_future *t = cuf_then(s, cuf_all(s, f), nothing, NULL);

	cuf_wait(t);
	cuf_release(t);
}

static void look_timeout(cuf_scope *s, cuf_future *f)
{
	cuf_future *t = cuf_timeout(s, f, CUF_FOREVER);

	cuf_wait(t);
	cuf_release(t);
}

static void look_run_until(cuf_scope *s, cuf_future *f)
{
	cuf_loop *other;

	(void)s;
	cuf_loop_create(rt, &other);
	cuf_loop_run_until(other, f, CUF_FOREVER);
	cuf_loop_close(other);
}

/* The reports of a failure after @look, in the root or in a scope of its own. */
static int reports(void (*look)(cuf_scope *s, cuf_future *f), bool in_root)
{
	int before = atomic_load(&unobserved);
	cuf_scope *s = in_root ? root : cuf_scope_open(root);
	cuf_future *f = cuf_failed(s, 1, "a failure");

	look(s, f);
	cuf_release(f);
	if (!in_root)
		cuf_scope_end(s);
	nap_ms(3);
	return atomic_load(&unobserved) - before;
}

static void check_looking(void)
{
	static const struct {
		const char *name;
		void (*look)(cuf_scope *s, cuf_future *f);
		int reported, in_scope;
	} ways[] = {
		{ "nobody", look_not, 1, 1 },
		{ "a poll", look_poll, 1, 1 },
		{ "a then that did not run", look_then, 1, 1 },
		{ "an all", look_all, 1, 1 },
		{ "an any that it lost", look_any, 1, 0 },
		{ "a wait", look_wait, 0, 0 },
		{ "cuf_error_of()", look_error, 0, 0 },
		{ "cuf_ignore()", look_ignore, 0, 0 },
		{ "a catch that ran", look_catch, 0, 0 },
		{ "a finally that ran", look_finally, 0, 0 },
		{ "a watch", look_watch, 0, 0 },
		{ "a post", look_post, 0, 0 },
		{ "a wait for what inherited it", look_inherited, 0, 0 },
		{ "a wait for a timeout of it", look_timeout, 0, 0 },
		{ "cuf_loop_run_until()", look_run_until, 0, 0 },
	};

	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		is_int(reports(ways[i].look, true), ways[i].reported,
		       "in the root, looked at by %s", ways[i].name);
		is_int(reports(ways[i].look, false), ways[i].in_scope,
		       "in a scope that ended, looked at by %s", ways[i].name);
	}
}

static cuf_future *fail_late(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)in, (void)arg;
	return cuf_failed(s, 1, "failed late");
}

/* The future was released before it failed. */
static void check_released(void)
{
	int before = atomic_load(&unobserved);
	cuf_future *f, *g;
	cuf_promise *p;

	cuf_release(cuf_call(root, fail_late, NULL));
	ok(comes_to(&unobserved, before + 1), "an operation that was dropped fails: reported");
	p = cuf_promise_create(root, &f);
	g = cuf_all(root, f, f);
	cuf_release_all(cuf_then(root, g, nothing, NULL), cuf_then(root, f, nothing, NULL), f, g);
	cuf_promise_fail(p, 2, "once");
	ok(comes_to(&unobserved, before + 2), "one failure, many carriers: reported");
	nap_ms(5);
	is_int(atomic_load(&unobserved), before + 2, "once");
	is_str(unobserved_message, "once", "with the root's message");
	p = cuf_promise_create(root, &f);
	cuf_cancel(f);
	cuf_release(f);
	cuf_promise_fulfil(p, NULL, NULL);
	nap_ms(5);
	is_int(atomic_load(&unobserved), before + 2, "a cancel was asked for: not reported");
}

/* ---- what it says ---- */

static void check_fields(void)
{
	cuf_scope *s = cuf_scope_open(root);
	cuf_error_info i = { .size = sizeof i };
	cuf_future *f, *g;
	int line;

	f = cuf_failed(s, 42, "the %s of %d", "message", 7), line = __LINE__;
	i = info_of(f);
	is_int(i.status, CUF_ERR_USER, "status");
	is_int(i.user_code, 42, "user code");
	is_int(i.cuda_code, 0, "no CUDA code");
	is_int(i.phase, CUF_PHASE_SUBMIT, "phase");
	is_str(i.message, "the message of 7", "message");
	is_str(i.message, cuf_error_message(cuf_error_of(f)), "the same by its own call");
	is_str(i.operation, "failed", "operation");
	is_str(i.label, "", "no label is an empty one");
	ok(i.file && strstr(i.file, "errors.c"), "file");
	is_int(i.line, line, "line");
	is_int(i.device, -1, "no device was concerned");
	ok(!i.lane && !i.seq && !i.n_suspects, "no lane, number, suspects");
	ok(!i.inherited && !i.outcome_unknown, "its own, and known");
	is_ptr(i.root, cuf_error_of(f), "and its own root");
	g = cuf_then(s, f, nothing, NULL, .label = "behind it");
	outcome(g);
	i = info_of(g);
	ok(i.inherited && i.root == cuf_error_of(f), "inherited: the root is the first");
	is_int(i.user_code, 42, "the rest is the root's");
	is_int(cuf_error_status(cuf_error_of(g)), CUF_ERR_USER, "its status by its own call");

	f = cuf_all(s, NULL);
	outcome(f);
	f = cuf_then(s, cuf_ok(), NULL, NULL, .label = "a label that is longer than 23 bytes");
	line = __LINE__ - 1;
	i = info_of(f);
	is_int(i.status, CUF_ERR_INVALID, "a bad argument");
	is_str(i.operation, "then", "its operation");
	is_str(i.label, "a label that is longer ", "its label, 23 bytes of it");
	is_int(i.line, line, "its line");
	ok(i.file && strstr(i.file, "errors.c"), "its file");

	f = cuf_timeout(s, NULL, 0);
	is_str(info_of(f).operation, "timeout", "a combinator's operation");
	f = cuf_call(s, fail_late, NULL, .label = "caller");
	outcome(f);
	is_str(info_of(f).operation, "failed", "of what a call returned: that operation");
	f = cuf_scope_close(s);
	outcome(f);
	cuf_release(f);
}

static void check_sizes(void)
{
	struct {
		cuf_error_info info;
		unsigned char guard[64];
	} i;
	unsigned char *bytes = (unsigned char *)&i;
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *f = cuf_failed(s, 42, "message");
	size_t small = offsetof(cuf_error_info, phase);
	bool untouched = true;

	memset(&i, 0xa5, sizeof i);
	i.info.size = small;
	cuf_error_get(cuf_error_of(f), &i.info);
	is_int(i.info.user_code, 42, "a smaller structure is filled");
	is_int((long long)i.info.size, (long long)small, "its size is the caller's still");
	for (size_t k = small; k < sizeof i; k++)
		untouched = untouched && bytes[k] == 0xa5;
	ok(untouched, "no byte beyond its size is written");
	memset(&i, 0xa5, sizeof i);
	i.info.size = sizeof i;
	cuf_error_get(cuf_error_of(f), &i.info);
	ok(i.info.user_code == 42 && i.info.n_suspects == 0, "so is a larger one");
	memset(&i, 0xa5, sizeof i);
	i.info.size = sizeof(size_t);
	cuf_error_get(cuf_error_of(f), &i.info);
	untouched = true;
	for (size_t k = sizeof(size_t); k < sizeof i; k++)
		untouched = untouched && bytes[k] == 0xa5;
	ok(untouched, "one that holds its size alone is left alone");
	memset(&i, 0xa5, sizeof i);
	i.info.size = 0;
	cuf_error_get(cuf_error_of(f), &i.info);
	untouched = true;
	for (size_t k = sizeof(size_t); k < sizeof i; k++)
		untouched = untouched && bytes[k] == 0xa5;
	ok(untouched, "and so is one of no bytes");
	cuf_error_get(cuf_error_of(f), NULL);
	i.info.size = sizeof i.info;
	cuf_error_get(NULL, &i.info);
	is_int(i.info.status, CUF_OK, "no error is CUF_OK");
	ok(i.info.message && i.info.operation && i.info.label && !*i.info.label,
	   "with empty fields");
	is_int(cuf_error_status(NULL), CUF_OK, "its status too");
	is_str(cuf_error_message(NULL), cuf_strerror(CUF_OK), "its message is that of success");
	ok(!cuf_error_of(cuf_ok()), "a success has no error");
	is_int(cuf_error_status(cuf_error_of(NULL)), CUF_ERR_INVALID, "NULL is an invalid future");
	f = cuf_scope_close(s);
	outcome(f);
	cuf_release(f);
}

static void check_print(void)
{
	char text[1024] = "";
	FILE *to = fmemopen(text, sizeof text, "w");
	cuf_scope *s = cuf_scope_open(root);
	cuf_future *f = cuf_failed(s, 42, "what went wrong"), *g;
	char *newline;

	g = cuf_then(s, f, nothing, NULL);
	outcome(g);
	cuf_error_print(to, cuf_error_of(g));
	fclose(to);
	diag("%s", text);
	ok(strstr(text, "what went wrong") && strstr(text, "errors.c:") && strstr(text, "42"),
	   "an error is printed with message, place and code");
	ok(strstr(text, "inherited") != NULL, "and that it is inherited");
	newline = strrchr(text, '\n');
	ok(newline && !newline[1], "in whole lines");
	to = fmemopen(text, sizeof text, "w");
	cuf_error_print(to, NULL);
	fclose(to);
	ok(strchr(text, '\n') != NULL, "no error is printed too");
	f = cuf_scope_close(s);
	outcome(f);
	cuf_release(f);
}

/* A message of any length. */
static void check_long_message(void)
{
	static char text[5000];
	cuf_future *f;

	memset(text, 'x', sizeof text - 1);
	f = cuf_failed(root, 1, "%s", text);
	ok(strlen(info_of(f).message) > 100 && !strchr(info_of(f).message, '\n'),
	   "a long message is cut, not lost");
	cuf_release(f);
}

/* ---- the default: a line on stderr, rate-limited ---- */

static void no_hook(const cuf_error *e, void *arg)
{
	(void)e, (void)arg;
}

static void check_rate_limit(void)
{
	cuf_runtime *first = rt;
	cuf_scope *first_root = root;
	cuf_runtime_options o = { .size = sizeof o };
	int out[2], saved = dup(2), lines = 0, first_lines = 0;
	FILE *in;
	char *line = NULL;
	size_t room = 0;

	(void)no_hook;
	fflush(stderr);
	if (pipe(out) || cuf_runtime_create(&rt, &o))
		abort();
	root = cuf_runtime_scope(rt);
	dup2(out[1], 2);
	for (int i = 0; i < 1000; i++)
		cuf_release(cuf_failed(root, i, "flood"));
	nap_ms(1100);
	cuf_release(cuf_failed(root, 7, "the last one"));
	cuf_runtime_destroy(rt);
	fflush(stderr);
	dup2(saved, 2);
	close(saved);
	close(out[1]);
	in = fdopen(out[0], "r");
	while (getline(&line, &room, in) > 0) {
		lines++;
		first_lines += strstr(line, "the last one") != NULL;
	}
	free(line);
	fclose(in);
	diag("%d lines", lines);
	ok(lines >= 2 && lines < 200,
	   "a flood of errors that nobody looked at is not printed whole");
	is_int(first_lines, 1, "and a later one is");
	rt = first;
	root = first_root;
}

int main(void)
{
	plan(79);
	open_runtime((cuf_runtime_options){ .workers = 2 });
	cuf_loop_create(rt, &loop);
	check_looking();
	check_released();
	check_fields();
	check_sizes();
	check_print();
	check_long_message();
	check_rate_limit();
	cuf_loop_close(loop);
	close_runtime("errors");
	return done();
}
