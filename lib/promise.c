/* SPDX-License-Identifier: MIT */
/*
 * Promises: futures that the user settles; and futures that are settled from the start.
 *
 * The handle is the operation, which has its future in hand and holds it until the handle is used up.
 */
#include <string.h>

#include "begin.h"
#include "error.h"
#include "future.h"
#include "op.h"
#include "scope.h"

static cuf_future *future_of(cuf_promise *p)
{
	return ((struct cufi_op *)p)->future;
}

/* What the promise follows has settled. Link 0, in hand. */
static void told(struct cufi_op *op, struct cufi_link *l)
{
	cuf_future *f = op->future, *as = l->on;

	if (cufi_claim(f, CUFI_BIT(CUFI_FOLLOWING), CUFI_SETTLING)) {
		cufi_hold(as, CUFI_HOLD);
		cufi_op_release_links(op);
		cufi_settle_as(f, as, true);
		cufi_let_go(as, CUFI_HOLD);
		cufi_let_go(f, CUFI_HOLD); /* the handle's */
	} else {
		cufi_op_drop(op);
	}
}

/* Cancelled while it followed, and that has ended now. The result was finished when it settled. */
static bool abandoned(struct cufi_op *op)
{
	cuf_future *f = op->future;

	cufi_link_let_go(op, cufi_op_links(op));
	cufi_let_go(f, CUFI_HOLD); /* the handle's */
	return true;
}

static const struct cufi_op_class promise_class = {
	.name = "promise",
	.told = told,
	.abandoned = abandoned,
};

cuf_promise *cuf_promise_create_with(cuf_scope *s, cuf_future **out_future, const cuf_options *o)
{
	struct cufi_begin b;

	if (!out_future)
		return NULL;
	if (!cufi_begin(&b, s, &promise_class, o, 1, 0, CUFI_IS_PROMISE)) {
		*out_future = b.future;
		return NULL;
	}
	*out_future = b.future;
	cufi_hold(b.future, CUFI_HOLD);
	return (cuf_promise *)b.op;
}

/*
 * Uses the handle up, which begin_spend() was called for: what settles may be all that was outstanding,
 * and the runtime be destroyed as soon as that is told. So it is told last.
 */
static void begin_spend(void)
{
	cufi_defer_drain(1);
}

static void spend(cuf_future *f)
{
	cufi_let_go(f, CUFI_HOLD);
	cufi_defer_drain(-1);
}

bool cuf_promise_fulfil(cuf_promise *p, void *value, cuf_drop_fn *drop)
{
	cuf_future *f;
	bool won;

	if (!p) {
		if (drop)
			drop(value);
		return false;
	}
	f = future_of(p);
	cufi_check_future(f, "cuf_promise_fulfil");
	if (cufi_forked(f->rt))
		return false;
	begin_spend();
	won = cufi_claim(f, CUFI_BIT(CUFI_HELD), CUFI_SETTLING);
	if (won)
		cufi_settle_value(f, value, drop, true);
	else
		cufi_drop_value(f->rt, drop, value);
	spend(f);
	return won;
}

static bool fail(cuf_promise *p, cuf_status st, int code, const char *fmt, va_list ap)
{
	cuf_future *f = future_of(p);
	bool won;

	cufi_check_future(f, "cuf_promise_fail");
	if (cufi_forked(f->rt))
		return false;
	begin_spend();
	won = cufi_claim(f, CUFI_BIT(CUFI_HELD), CUFI_SETTLING);
	if (won) {
		struct cufi_root *r = cufi_root_newv(f->rt, st, CUF_PHASE_EXECUTE, f->op, fmt, ap);

		if (!r->immortal)
			r->user_code = code;
		cufi_settle_error(f, &r->own, true);
	}
	spend(f);
	return won;
}

bool cuf_promise_fail(cuf_promise *p, int code, const char *fmt, ...)
{
	va_list ap;
	bool won;

	if (!p)
		return false;
	va_start(ap, fmt);
	won = fail(p, CUF_ERR_USER, code, fmt ? fmt : "", ap);
	va_end(ap);
	return won;
}

static bool fail_with(cuf_promise *p, cuf_status st, int code, const char *fmt, ...)
{
	va_list ap;
	bool won;

	va_start(ap, fmt);
	won = fail(p, st, code, fmt, ap);
	va_end(ap);
	return won;
}

bool cuf_promise_reject(cuf_promise *p, int code, const char *text)
{
	return p && fail_with(p, CUF_ERR_USER, code, "%s", text ? text : "");
}

bool cuf_promise_follow(cuf_promise *p, cuf_future *in)
{
	struct cufi_op *op = (struct cufi_op *)p;
	cuf_future *f;

	if (!p)
		return false;
	if (!in)
		return fail_with(p, CUF_ERR_BROKEN, 0,
				 "the promise was dropped before it was fulfilled");
	f = future_of(p);
	cufi_check_future(f, "cuf_promise_follow");
	cufi_check_future(in, "cuf_promise_follow");
	if (cufi_forked(f->rt))
		return false;
	if (in == f)
		return fail_with(p, CUF_ERR_WOULD_DEADLOCK, 0,
				 "the promise was to follow its own future");
	if (!cufi_same_runtime(in, f->rt))
		return fail_with(p, CUF_ERR_INVALID, 0,
				 "the promise was to follow a future of another runtime");
	cufi_op_depend(op, 0, in, false);
	if (!cufi_claim(f, CUFI_BIT(CUFI_HELD), CUFI_FOLLOWING)) {
		/* not cufi_op_release_links(): the cancel may be looking at it */
		begin_spend();
		cufi_link_let_go(op, cufi_op_links(op));
		spend(f);
		return false;
	}
	cufi_hold(f, CUFI_HOLD);
	begin_spend();
	cufi_op_wait_for(op, cufi_op_links(op), CUFI_AT_SETTLED);
	/* Cancelled before that: nobody else takes the registration away. */
	cufi_op_cut_late(op);
	spend(f);
	return true;
}

/* ---- settled from the start ---- */

static const struct cufi_op_class ready_class = { .name = "ready" };

cuf_future *cuf_ready(cuf_scope *s, void *value, cuf_drop_fn *drop)
{
	struct cufi_begin b;

	if (!cufi_begin(&b, s, &ready_class, NULL, 0, 0, CUFI_ALWAYS)) {
		if (drop)
			drop(value);
		return b.future;
	}
	if (cufi_claim(b.future, CUFI_BIT(CUFI_HELD), CUFI_SETTLING)) {
		cufi_settle_value(b.future, value, drop, true);
	} else {
		cufi_drop_value(s->rt, drop, value);
		cufi_op_drop(b.op);
	}
	return b.future;
}

cuf_future *cuf_failed_at(cuf_scope *s, const char *file, int line, int code, const char *fmt, ...)
{
	const cuf_options o = { .size = sizeof o, .file = file, .line = line };
	struct cufi_begin b;
	struct cufi_root *r;
	va_list ap;

	if (!cufi_begin(&b, s, &ready_class, &o, 0, 0, CUFI_ALWAYS))
		return b.future;
	va_start(ap, fmt);
	r = cufi_root_newv(s->rt, CUF_ERR_USER, CUF_PHASE_SUBMIT, b.op, fmt, ap);
	va_end(ap);
	if (!r->immortal)
		r->user_code = code;
	r->operation = "failed";
	if (cufi_claim(b.future, CUFI_BIT(CUFI_HELD), CUFI_SETTLING)) {
		cufi_settle_error(b.future, &r->own, true);
	} else {
		cufi_root_look(r); /* nobody ever carried it */
		cufi_root_let_go(r);
		cufi_op_drop(b.op);
	}
	return b.future;
}
