/* SPDX-License-Identifier: MIT */
/*
 * Bad arguments: each is a failed future or a status, never a crash; the message names what is wrong
 * and the call; nothing is lost, and the runtime goes on.
 */
#include <kernels.h>

#include "contract.h"

static cuf_scope *s;
static _Atomic int ran, dropped;

static cuf_future *nothing(cuf_scope *scope, cuf_future *in, void *arg)
{
	(void)scope, (void)in, (void)arg;
	atomic_fetch_add(&ran, 1);
	return NULL;
}

static void watch(cuf_future *f, void *arg)
{
	(void)f, (void)arg;
	atomic_fetch_add(&ran, 1);
}

static void drop(void *arg)
{
	(void)arg;
	atomic_fetch_add(&dropped, 1);
}

static int enqueue(struct CUstream_st *stream, void *arg)
{
	(void)stream, (void)arg;
	atomic_fetch_add(&ran, 1);
	return 0;
}

/* @f failed with @status, says so of @operation, and its message has @word in it. */
static void refused(cuf_future *f, cuf_status status, const char *operation, const char *word,
		    const char *what)
{
	cuf_status st = settled(f);
	cuf_error_info i = info_of(f);

	if (!ok(st == status && !strcmp(i.operation, operation) && strstr(i.message, word) != NULL,
		"%s", what))
		diag("%s of %s: \"%s\", want %s, \"%s\"", cuf_strerror(st), i.operation, i.message,
		     operation, word);
	cuf_release(f);
}

#define invalid(f, operation, word, what) refused(f, CUF_ERR_INVALID, operation, word, what)

/* ---- NULL ---- */

static void check_null(void)
{
	static char a[8], b[8];
	cuf_future *f;
	cuf_times t;
	cuf_stats st = { .size = sizeof st };

	invalid(cuf_then(s, NULL, nothing, NULL), "then", "future is NULL", "then of NULL");
	invalid(cuf_catch(s, NULL, nothing, NULL), "catch", "future is NULL", "catch of NULL");
	invalid(cuf_finally(s, NULL, nothing, NULL), "finally", "future is NULL",
		"finally of NULL");
	invalid(cuf_then(s, cuf_ok(), NULL, NULL), "then", "function is NULL", "then with NULL");
	invalid(cuf_catch(s, cuf_ok(), NULL, NULL), "catch", "function is NULL", "catch with NULL");
	invalid(cuf_finally(s, cuf_ok(), NULL, NULL), "finally", "function is NULL",
		"finally with NULL");
	invalid(cuf_call(s, NULL, NULL), "call", "function is NULL", "call of NULL");
	invalid(cuf_enqueue(s, NULL, NULL), "enqueue", "function is NULL", "enqueue of NULL");
	invalid(cuf_timeout(s, NULL, 0), "timeout", "NULL", "timeout of NULL");
	invalid(cuf_copy(s, NULL, b, 8), "copy", "destination", "copy to NULL");
	invalid(cuf_copy(s, a, NULL, 8), "copy", "source", "copy from NULL");
	invalid(cuf_fill(s, NULL, 0, 8), "fill", "destination", "fill of NULL");
	invalid(cuf_alloc(s, 0), "alloc", "0 bytes", "alloc of nothing");
	invalid(cuf_launch(s, NULL, cuf_grid_1d(1, 1), CUF_NO_ARGS), "launch", "kernel is NULL",
		"launch of NULL");
	is_int(outcome(cuf_copy(s, NULL, NULL, 0)), CUF_OK, "a copy of nothing needs no memory");
	is_int(outcome(cuf_free(s, NULL)), CUF_OK, "free of NULL does nothing");

	/* in no scope there is no place for a message, but for the status */
	is_int(cuf_poll(cuf_then(NULL, cuf_ok(), nothing, NULL)), CUF_ERR_INVALID, "then in NULL");
	is_int(cuf_poll(cuf_copy(NULL, a, b, 8)), CUF_ERR_INVALID, "copy in NULL");
	is_int(cuf_poll(cuf_fill(NULL, a, 0, 8)), CUF_ERR_INVALID, "fill in NULL");
	is_int(cuf_poll(cuf_alloc(NULL, 8)), CUF_ERR_INVALID, "alloc in NULL");
	is_int(cuf_poll(cuf_free(NULL, NULL)), CUF_ERR_INVALID, "free in NULL");
	is_int(cuf_poll(cuf_launch(NULL, &empty_kernel, cuf_grid_1d(1, 1), CUF_NO_ARGS)),
	       CUF_ERR_INVALID, "launch in NULL");
	is_int(cuf_poll(cuf_enqueue(NULL, enqueue, NULL)), CUF_ERR_INVALID, "enqueue in NULL");
	is_int(cuf_poll(cuf_call(NULL, nothing, NULL)), CUF_ERR_INVALID, "call in NULL");
	is_int(cuf_poll(cuf_all(NULL, cuf_ok())), CUF_ERR_INVALID, "all in NULL");
	is_int(cuf_poll(cuf_any(NULL, cuf_ok())), CUF_ERR_INVALID, "any in NULL");
	is_int(cuf_poll(cuf_timeout(NULL, cuf_ok(), 0)), CUF_ERR_INVALID, "timeout in NULL");
	is_int(cuf_poll(cuf_room(NULL, 1)), CUF_ERR_INVALID, "room in NULL");
	atomic_store(&dropped, 0);
	f = cuf_ready(NULL, a, drop);
	ok(cuf_poll(f) == CUF_ERR_INVALID && atomic_load(&dropped) == 1,
	   "ready in NULL, and its value is dropped");
	is_int(cuf_poll(cuf_failed(NULL, 1, "x")), CUF_ERR_INVALID, "failed in NULL");
	atomic_store(&ran, 0);
	cuf_watch(NULL, cuf_ok(), watch, NULL);
	cuf_watch(s, NULL, watch, NULL);
	ok(comes_to(&ran, 2), "a watch is called even so");
	cuf_watch(s, cuf_ok(), NULL, NULL);

	is_int(cuf_poll(NULL), CUF_ERR_INVALID, "poll");
	is_int(cuf_wait(NULL), CUF_ERR_INVALID, "wait");
	is_int(cuf_wait_until(NULL, 0), CUF_ERR_INVALID, "wait_until");
	is_int(cuf_cancel(NULL), CUF_ERR_INVALID, "cancel");
	is_int(cuf_times_of(NULL, &t), CUF_ERR_INVALID, "times_of");
	is_int(cuf_times_of(cuf_ok(), NULL), CUF_ERR_INVALID, "times_of to nowhere");
	ok(!cuf_value(NULL) && !cuf_address(NULL) && !cuf_retain(NULL), "value, address, retain");
	cuf_release(NULL);
	cuf_release_n(NULL, 0);
	cuf_ignore(NULL);
	is_int(cuf_runtime_create(NULL, NULL), CUF_ERR_INVALID, "runtime_create to nowhere");
	is_int(cuf_runtime_shutdown(NULL, CUF_DRAIN, 0), CUF_ERR_INVALID, "runtime_shutdown");
	is_int(cuf_runtime_shutdown(rt, 77, 0), CUF_ERR_INVALID, "runtime_shutdown somehow");
	cuf_runtime_destroy(NULL);
	ok(!cuf_runtime_scope(NULL) && !cuf_runtime_workers(NULL) && !cuf_runtime_devices(NULL),
	   "what a runtime has");
	is_int(cuf_runtime_device_status(NULL, 0), CUF_ERR_INVALID, "device_status");
	is_int(cuf_runtime_device_status(rt, -1), CUF_ERR_INVALID, "of a device below 0");
	is_int(cuf_runtime_device_status(rt, 1000), CUF_ERR_INVALID, "and of one too many");
	cuf_stats_of(NULL, &st);
	cuf_stats_of(rt, NULL);
	cuf_dump(NULL, stderr);
	cuf_dump(rt, NULL);
	ok(!cuf_pinned_get(NULL, 8) && !cuf_pinned_get(rt, 0), "pinned_get");
	ok(!cuf_pinned_get(rt, SIZE_MAX) && !cuf_pinned_get(rt, SIZE_MAX / 2 + 2),
	   "of more than there is");
	cuf_pinned_put(NULL, a);
	cuf_pinned_put(rt, NULL);
	is_int(cuf_kernel_prepare(NULL, NULL, 0), CUF_ERR_INVALID, "kernel_prepare");
	is_int(cuf_kernel_prepare(rt, NULL, 1), CUF_ERR_INVALID, "of no kernels");
	is_int(cuf_kernel_prepare(rt, (const cuf_kernel *const[]){ NULL }, 1), CUF_ERR_INVALID,
	       "and of a NULL one");
	is_int(cuf_kernel_prepare(rt, NULL, 0), CUF_OK, "of none is nothing to do");
}

/* ---- options ---- */

static void check_options(void)
{
	struct {
		cuf_options o;
		unsigned char tail[32];
	} larger = { .o = { .size = sizeof larger, .label = "larger" } };
	cuf_options o = { .size = offsetof(cuf_options, after_settled) };
	struct {
		cuf_runtime_options o;
		unsigned char tail[32];
	} ro = { .o = { .size = sizeof ro } };
	struct {
		cuf_scope_options o;
		unsigned char tail[32];
	} so = { .o = { .size = sizeof so } };
	cuf_runtime *none = rt;
	cuf_scope *t;
	cuf_future *f;
	static char a, b;

	o.label = (const char *)-1; /* beyond its size: not looked at */
	o.priority = 99;
	f = cuf_then_with(s, cuf_ok(), nothing, NULL, &o);
	is_int(outcome(f), CUF_OK, "options of an older program: what is missing is zero");
	f = cuf_then_with(s, cuf_ok(), nothing, NULL, NULL);
	is_int(outcome(f), CUF_OK, "no options");
	f = cuf_then_with(s, cuf_ok(), nothing, NULL, &larger.o);
	is_int(outcome(f), CUF_OK, "options of a newer program, which sets nothing new");
	larger.tail[31] = 1;
	invalid(cuf_then_with(s, cuf_ok(), nothing, NULL, &larger.o), "then", "options",
		"one that does");
	invalid(cuf_copy_with(s, &a, &b, 1, &larger.o), "copy", "options", "for a copy");
	invalid(cuf_all_with(s, CUF_LIST(cuf_ok()), &larger.o), "all", "options", "for an all");
	atomic_store(&ran, 0);
	cuf_watch_with(s, cuf_ok(), watch, NULL, &larger.o);
	ok(comes_to(&ran, 1), "a watch is called even so");
	o.size = 3;
	invalid(cuf_then_with(s, cuf_ok(), nothing, NULL, &o), "then", "options", "a size of 3");
	o.size = 0;
	invalid(cuf_fill_with(s, &a, 0, 1, &o), "fill", "options", "and of 0");
	invalid(cuf_then(s, cuf_ok(), nothing, NULL, .priority = 2), "then", "priority",
		"a priority that is none");
	invalid(cuf_fill(s, &a, 0, 1, .priority = -2), "fill", "priority", "nor below");
	invalid(cuf_then(s, cuf_ok(), nothing, NULL, .arg_bytes = 8), "then", "arg_bytes",
		"arg_bytes of a NULL argument");
	invalid(cuf_enqueue(s, enqueue, NULL, .arg_bytes = 8), "enqueue", "arg_bytes",
		"for enqueue");
	invalid(cuf_call(s, nothing, NULL, .arg_bytes = 8), "call", "arg_bytes", "for call");
	invalid(cuf_call(s, nothing, NULL, .after = { 3, NULL }), "call", "list",
		"a dependency list with a count alone");
	invalid(cuf_call(s, nothing, NULL, .take = { 3, NULL }), "call", "list", "taken");
	invalid(cuf_call(s, nothing, NULL, .after_settled = { 3, NULL }), "call", "list",
		"or ordered");
	invalid(cuf_all_n(s, CUF_AFTER_N(NULL, 3)), "all", "3 inputs", "the same for all");
	invalid(cuf_any_n(s, CUF_AFTER_N(NULL, 3)), "any", "3 inputs", "and any");

	ro.tail[0] = 1;
	is_int(cuf_runtime_create(&none, &ro.o), CUF_ERR_INVALID, "unknown options for a runtime");
	ok(!none, "NULL is stored");
	ro.tail[0] = 0;
	ro.o.backend = "abacus";
	is_int(cuf_runtime_create(&none, &ro.o), CUF_ERR_INVALID, "a backend that is none");
	ro.o.backend = NULL;
	ro.o.devices = -1;
	is_int(cuf_runtime_create(&none, &ro.o), CUF_ERR_INVALID, "a negative number of devices");
	ro.o.devices = 65;
	is_int(cuf_runtime_create(&none, &ro.o), CUF_ERR_INVALID, "too many devices");
	ro.o.devices = 0;
	ro.o.mode = 3;
	is_int(cuf_runtime_create(&none, &ro.o), CUF_ERR_INVALID, "a mode that is none");
	so.tail[3] = 1;
	t = cuf_scope_open_with(s, &so.o);
	is_int(cuf_scope_poll(t), CUF_ERR_INVALID, "unknown options for a scope");
	cuf_scope_end(t);
	so.tail[3] = 0;
	t = cuf_scope_open_with(s, &so.o);
	is_int(cuf_scope_poll(t), CUF_OK, "a larger structure is taken");
	cuf_scope_end(t);
	t = cuf_scope_open(s, .priority = 7);
	is_int(cuf_scope_poll(t), CUF_ERR_INVALID, "a priority of a scope that is none");
	cuf_scope_end(t);
	t = cuf_scope_open_with(s, NULL);
	is_int(cuf_scope_poll(t), CUF_OK, "no options for a scope");
	cuf_scope_end(t);
}

/* ---- sizes ---- */

static void check_sizes(void)
{
	cuf_future *mem = cuf_alloc(s, 1024);
	char *dev = cuf_address(mem);
	static char host[4096];

	invalid(cuf_copy(s, host, (char *)UINTPTR_MAX - 10, 100), "copy", "overflow",
		"a copy from a range that wraps");
	invalid(cuf_copy(s, host, host, SIZE_MAX), "copy", "overflow", "of a size that overflows");
	invalid(cuf_copy(s, dev, host, SIZE_MAX), "copy", "overflow", "to the device");
	invalid(cuf_fill(s, dev, 0, SIZE_MAX), "fill", "overflow", "a fill");
	invalid(cuf_copy(s, dev, host, 2048), "copy", "allocation",
		"a copy that leaves its allocation");
	invalid(cuf_copy(s, host, dev + 1000, 100), "copy", "allocation", "from within it");
	invalid(cuf_fill(s, dev, 1, 1025), "fill", "allocation", "a fill that leaves it");
	is_int(outcome(cuf_copy(s, dev, host, 1024, .after = CUF_AFTER(mem))), CUF_OK,
	       "all of it is right");
	refused(cuf_alloc(s, SIZE_MAX), CUF_ERR_NO_MEMORY, "alloc", "", "an alloc of all there is");
	refused(cuf_alloc(s, SIZE_MAX - 100), CUF_ERR_NO_MEMORY, "alloc", "", "or nearly");
	ok(!cuf_address(cuf_alloc(s, SIZE_MAX / 2)), "which has no address");
	invalid(cuf_free(s, host), "free", "not allocated", "a free of host memory");
	invalid(cuf_free(s, dev + 8), "free", "not allocated",
		"and of the middle of an allocation");
	is_int(outcome(cuf_free(s, dev)), CUF_OK, "a free");
	invalid(cuf_free(s, dev), "free", "already", "and once more");
	refused(cuf_call(s, nothing, host, .arg_bytes = SIZE_MAX), CUF_ERR_NO_MEMORY, "call",
		"call: no memory", "an argument of more bytes than there are");
	refused(cuf_call(s, nothing, NULL, .after = { SIZE_MAX, &mem }), CUF_ERR_NO_MEMORY, "call",
		"call: no memory", "a list longer than memory");
	refused(cuf_call(s, nothing, NULL, .after = { SIZE_MAX / 2 + 1, &mem },
			 .after_settled = { SIZE_MAX / 2 + 1, &mem }),
		CUF_ERR_NO_MEMORY, "call", "call: no memory", "two lists whose sum overflows");
	refused(cuf_all_n(s, CUF_AFTER_N(&mem, SIZE_MAX)), CUF_ERR_NO_MEMORY, "all",
		"all: no memory", "an all of too many");
}

/* ---- launches ---- */

static void check_launch(void)
{
	static const size_t sizes[] = { sizeof(int *), sizeof(size_t) };
	cuf_kernel no_twin = { .size = sizeof no_twin, .name = "no_twin" };
	cuf_kernel bad = no_twin;
	int *p = NULL;
	size_t n = 1;
	cuf_grid g;
	cuf_args a;
	cuf_future *f;

	invalid(cuf_launch(s, &add_one, cuf_grid_1d(1, 1), CUF_NO_ARGS), "launch",
		"2 arguments, given 0", "too few arguments");
	invalid(cuf_launch(s, &add_one, cuf_grid_1d(1, 1), CUF_ARGS(p, n, n)), "launch",
		"add_one takes 2 arguments, given 3", "too many");
	invalid(cuf_launch(s, &add_one, cuf_grid_1d(1, 1), CUF_ARGS(p, 1)), "launch",
		"argument 2 of add_one is 8 bytes, given 4", "one of another size");
	a = CUF_ARGS(p, n);
	a.at = NULL;
	invalid(cuf_launch(s, &add_one, cuf_grid_1d(1, 1), a), "launch", "add_one", "no values");
	a = (cuf_args){ 2, (const void *const[]){ &p, NULL }, sizes };
	invalid(cuf_launch(s, &add_one, cuf_grid_1d(1, 1), a), "launch", "argument 2 of add_one",
		"one without an address");
	invalid(cuf_launch(s, &empty_kernel, cuf_grid_1d(0, 256), CUF_NO_ARGS), "launch",
		"0 blocks", "a grid of nothing");
	invalid(cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 0), CUF_NO_ARGS), "launch", "empty",
		"of no threads");
	invalid(cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 2048), CUF_NO_ARGS), "launch",
		"threads", "of too many threads");
	invalid(cuf_launch(s, &empty_kernel, cuf_grid_1d(SIZE_MAX, 1), CUF_NO_ARGS), "launch",
		"blocks", "of too many blocks");
	g = cuf_grid_1d(1, 1);
	g.blocks[1] = 65536;
	invalid(cuf_launch(s, &empty_kernel, g, CUF_NO_ARGS), "launch", "too large", "in y");
	g = cuf_grid_1d(1, 1);
	g.threads[2] = 65;
	invalid(cuf_launch(s, &empty_kernel, g, CUF_NO_ARGS), "launch", "threads", "in z");
	f = cuf_launch(s, &no_twin, cuf_grid_1d(1, 1), CUF_NO_ARGS);
	refused(f, CUF_ERR_UNSUPPORTED, "launch", "no_twin", "a kernel with code for no device");
	bad.name = NULL;
	invalid(cuf_launch(s, &bad, cuf_grid_1d(1, 1), CUF_NO_ARGS), "launch", "name",
		"a kernel without a name");
	bad.name = "bad", bad.size = 8;
	invalid(cuf_launch(s, &bad, cuf_grid_1d(1, 1), CUF_NO_ARGS), "launch", "size",
		"a kernel of the wrong size");
	bad.size = sizeof bad, bad.n_args = 3;
	invalid(cuf_launch(s, &bad, cuf_grid_1d(1, 1), CUF_ARGS(1, 2, 3)), "launch", "arg_bytes",
		"a kernel without sizes");
	bad.n_args = SIZE_MAX, bad.arg_bytes = sizes;
	invalid(cuf_launch(s, &bad, cuf_grid_1d(1, 1), CUF_ARGS(1, 2, 3)), "launch", "arguments",
		"a kernel of too many arguments");
	is_int(cuf_kernel_prepare(rt, (const cuf_kernel *const[]){ &bad }, 1), CUF_ERR_INVALID,
	       "which cannot be prepared either");
	is_int(cuf_kernel_prepare(rt, (const cuf_kernel *const[]){ &no_twin }, 1),
	       CUF_ERR_UNSUPPORTED, "nor one with code for no device");
}

/* ---- devices, loops and futures of others ---- */

static void check_others(void)
{
	cuf_runtime_options o = {
		.size = sizeof o, .backend = "host", .devices = 1, .on_unobserved = count_unobserved
	};
	static char a, b;
	cuf_runtime *other;
	cuf_future *theirs, *taken, *pending;
	cuf_loop *their_loop;
	cuf_promise *p, *q;
	cuf_scope *t;
	char word[32];

	snprintf(word, sizeof word, "no device %d", cuf_runtime_devices(rt));
	invalid(cuf_alloc(s, 8, .device = CUF_DEVICE(cuf_runtime_devices(rt))), "alloc", word,
		"a device that does not exist");
	invalid(cuf_alloc(s, 8, .device = -1), "alloc", "no device", "or a negative one");
	invalid(cuf_launch(s, &empty_kernel, cuf_grid_1d(1, 1), CUF_NO_ARGS, .device = 1000),
		"launch", "no device 999", "for a launch");
	invalid(cuf_enqueue(s, enqueue, NULL, .device = 1000), "enqueue", "no device",
		"an enqueue");

	if (cuf_runtime_create(&other, &o) || cuf_loop_create(other, &their_loop))
		abort();
	theirs = cuf_ready(cuf_runtime_scope(other), NULL, NULL);
	q = cuf_promise_create(cuf_runtime_scope(other), &pending);
	invalid(cuf_then(s, theirs, nothing, NULL), "then", "another runtime",
		"then of a foreign future");
	invalid(cuf_all(s, cuf_ok(), theirs), "all", "another runtime", "all");
	invalid(cuf_any(s, cuf_ok(), pending), "any", "another runtime", "any");
	invalid(cuf_timeout(s, theirs, 0), "timeout", "another runtime", "timeout");
	invalid(cuf_copy(s, &a, &b, 1, .after = CUF_AFTER(theirs)), "copy", "another runtime",
		"a dependency");
	taken = cuf_retain(theirs);
	invalid(cuf_copy(s, &a, &b, 1, .take = CUF_AFTER(taken)), "copy", "another runtime",
		"one that is taken");
	invalid(cuf_free(s, NULL, .after_settled = CUF_AFTER(pending)), "free", "another runtime",
		"or ordered after");
	invalid(cuf_then(s, cuf_ok(), nothing, NULL, .on = their_loop), "then", "another runtime",
		"a foreign loop");
	invalid(cuf_call(s, nothing, NULL, .on = their_loop), "call", "another runtime",
		"for a call");
	t = cuf_scope_open(s, .on = their_loop);
	is_int(cuf_scope_poll(t), CUF_ERR_INVALID, "for a scope");
	cuf_scope_end(t);
	p = cuf_promise_create(s, &taken);
	cuf_promise_follow(p, theirs);
	invalid(taken, "promise", "another runtime", "a promise that follows one");
	atomic_store(&ran, 0);
	cuf_watch(s, pending, watch, NULL);
	ok(comes_to(&ran, 1), "a watch of one is called at once");
	cuf_promise_fulfil(q, NULL, NULL);
	is_int(cuf_poll(theirs), CUF_OK, "the foreign future is unharmed");
	cuf_release_all(theirs, pending);
	cuf_loop_close(their_loop);
	is_int(cuf_runtime_shutdown(other, CUF_DRAIN, cuf_now_ns() + CUF_MS(LONG_MS)), CUF_OK,
	       "and nothing is lost in its runtime");
	cuf_runtime_destroy(other);
}

static void forget(cuf_future *f)
{
	cuf_ignore(f);
	cuf_release(f);
}

/* What is refused consumes what it was to take, and drops what it was to drop. */
static void check_nothing_lost(void)
{
	static int arg;
	cuf_options bad = { .size = sizeof bad, .drop = drop, .priority = 9 };
	cuf_future *f = cuf_ready(s, &arg, drop);

	atomic_store(&dropped, 0);
	invalid(cuf_launch(s, NULL, cuf_grid_1d(1, 1), CUF_NO_ARGS, .take = CUF_AFTER(f)), "launch",
		"NULL", "refused, with a future to take");
	is_int(atomic_load(&dropped), 1, "which is released");
	atomic_store(&dropped, 0);
	forget(cuf_then(s, NULL, nothing, &arg, .drop = drop));
	forget(cuf_then_with(s, cuf_ok(), nothing, &arg, &bad));
	forget(cuf_then_with(NULL, cuf_ok(), nothing, &arg, CUF_OPTIONS(.drop = drop)));
	forget(cuf_call(s, nothing, &arg, .drop = drop, .after = { 2, NULL }));
	forget(cuf_enqueue(s, NULL, &arg, .drop = drop));
	forget(cuf_enqueue(s, enqueue, &arg, .drop = drop, .device = 1000));
	cuf_watch(NULL, cuf_ok(), watch, &arg, .drop = drop);
	ok(comes_to(&dropped, 7), "what was refused has dropped its argument");
	nap_ms(2);
	is_int(atomic_load(&dropped), 7, "once");
}

int main(void)
{
	cuf_future *f;

	plan(142);
	open_runtime((cuf_runtime_options){ .workers = 2 });
	s = cuf_scope_open(root);
	check_null();
	check_options();
	check_sizes();
	check_launch();
	check_others();
	check_nothing_lost();
	is_int(outcome(cuf_call(s, nothing, NULL)), CUF_OK, "after all that the runtime goes on");
	f = cuf_scope_close(s);
	outcome(f);
	cuf_release(f);
	is_int(atomic_load(&unobserved), 0, "and every error was looked at");
	close_runtime("bad input");
	return done();
}
