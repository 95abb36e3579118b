/* SPDX-License-Identifier: MIT */
/*
 * Futures that were refused (the immortal failed ones: no scope, no runtime, no memory) are inputs like
 * any other: what depends on one inherits its status, and nothing runs.
 */
#include "contract.h"

static _Atomic int ran;

static cuf_future *count(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	atomic_fetch_add(&ran, 1);
	return NULL;
}

static cuf_future *recover(cuf_scope *s, cuf_future *in, void *arg)
{
	(void)s, (void)in, (void)arg;
	return cuf_ok();
}

static cuf_future *hand_on(cuf_scope *s, cuf_future *in, void *refused)
{
	(void)s, (void)in;
	return refused;
}

int main(void)
{
	cuf_future *refused, *f, *in;
	cuf_promise *p;
	cuf_scope *s;

	open_runtime((cuf_runtime_options){ 0 });
	plan(14);
	refused = cuf_ready(NULL, NULL, NULL);
	is_int(cuf_poll(refused), CUF_ERR_INVALID, "a future in no scope is refused");
	s = cuf_scope_open(root);
	is_int(outcome(cuf_then(s, refused, count, NULL)), CUF_ERR_INVALID, "then");
	is_int(outcome(cuf_finally(s, refused, recover, NULL)), CUF_ERR_INVALID, "finally");
	is_int(outcome(cuf_catch(s, refused, recover, NULL)), CUF_OK, "catch");
	is_int(outcome(cuf_all(s, cuf_ok(), refused)), CUF_ERR_INVALID, "all");
	is_int(outcome(cuf_any(s, refused)), CUF_ERR_INVALID, "any of it alone");
	is_int(outcome(cuf_any(s, refused, cuf_ok())), CUF_OK, "any with a success");
	is_int(outcome(cuf_timeout(s, refused, CUF_FOREVER)), CUF_ERR_INVALID, "timeout");
	p = cuf_promise_create(s, &f);
	ok(cuf_promise_follow(p, refused), "a promise follows it");
	is_int(outcome(f), CUF_ERR_INVALID, "and fails as it did");
	is_int(outcome(cuf_call(s, count, NULL, .after = CUF_AFTER(refused))), CUF_ERR_INVALID,
	       "a dependency, borrowed");
	is_int(outcome(cuf_call(s, count, NULL, .take = CUF_AFTER(refused))), CUF_ERR_INVALID,
	       "a dependency, taken");
	in = cuf_then(s, cuf_ok(), hand_on, refused);
	is_int(outcome(in), CUF_ERR_INVALID, "returned by a continuation");
	is_int(atomic_load(&ran), 0, "nothing ran");
	cuf_ignore(f);
	cuf_wait(cuf_scope_close(s));
	cuf_runtime_destroy(rt);
	return done();
}
