/* SPDX-License-Identifier: MIT */
/*
 * Continuations: then, catch, finally, watch, post, and cuf_call, which is a continuation of nothing
 * on the workers' loop. How a loop gets round to them: loop.c.
 *
 * Link 0 is `in`. A continuation whose turn has come is a task on its loop, in the loop's hand. There
 * it claims HELD -> RUNNING; having lost that (cancelled), or not matching the outcome, it runs its
 * drop alone. What its function returns is followed through link 1.
 */
#include "begin.h"
#include "error.h"
#include "future.h"
#include "loop.h"
#include "op.h"
#include "scope.h"

#include <string.h>

enum kind { THEN, CATCH, FINALLY, WATCH, POST, CALL };

struct continuation {
	union {
		cuf_then_fn *then;
		cuf_watch_fn *watch;
		uint64_t token;
		struct cufi_link *why; /* SKIP, of a call: the dependency that failed */
	} fn;
	void *arg;
	cuf_drop_fn *drop;
	cuf_loop *on;
	enum kind kind;
};

static bool succeeded(const cuf_future *f)
{
	return cufi_word_status(cufi_word(f)) == CUF_OK;
}

/* ---- settling ---- */

static void run_drop(struct continuation *c)
{
	if (c->drop) {
		cuf_drop_fn *drop = c->drop;

		c->drop = NULL;
		drop(c->arg);
	}
}

/* SETTLING, in hand: as link @i's future, and let that trail if it must. */
static void settle_as_link(struct cufi_op *op, size_t i)
{
	cuf_future *as = cufi_op_links(op)[i].on;

	if (!(cufi_word(as) & CUFI_FINISHED)) {
		cufi_settle_as(op->future, as, false);
		cufi_op_drop(op);
		return;
	}
	/* Claimed and in hand: nobody else looks at the links. The input must not live on behind a
	 * result that is kept, or a loop of continuations would keep its whole history. */
	cufi_hold(as, CUFI_HOLD);
	cufi_op_release_links(op);
	cufi_settle_as(op->future, as, true);
	cufi_let_go(as, CUFI_HOLD);
}

static void settle_failed(struct cufi_op *op, cuf_status st, const char *why)
{
	struct cufi_root *r = cufi_root_new(op->scope->rt, st, CUF_PHASE_EXECUTE, op, "%s", why);

	cufi_op_release_links(op);
	cufi_settle_error(op->future, &r->own, true);
}

/* @r has settled, and is what the function returned: which link is the outcome? */
static size_t outcome(struct cufi_op *op)
{
	struct continuation *c = cufi_op_params(op);
	struct cufi_link *l = cufi_op_links(op);

	if (c->kind == FINALLY && (!succeeded(l[0].on) || succeeded(l[1].on)))
		return 0;
	return 1;
}

static void note_recovery(struct cufi_op *op)
{
	struct continuation *c = cufi_op_params(op);
	cuf_future *in = cufi_op_links(op)[0].on;
	struct cufi_root *root;

	if (c->kind != CATCH || succeeded(in))
		return;
	root = cufi_root_of(in);
	cufi_scope_handled(op->scope, root);
	cufi_scope_forgive(in, root);
}

/* What the function returned has settled. */
static void followed(struct cufi_op *op, uint32_t from)
{
	size_t i = outcome(op);

	if (!cufi_claim(op->future, from, CUFI_SETTLING)) {
		cufi_op_drop(op);
		return;
	}
	if (succeeded(cufi_op_links(op)[1].on))
		note_recovery(op);
	settle_as_link(op, i);
}

/* The function ran; state RUNNING. */
static void resolve(struct cufi_op *op, cuf_future *r)
{
	struct cufi_link *l = cufi_op_links(op);
	cuf_future *in = l[0].on, *f = op->future;

	if (!r || r == in) {
		cufi_claim(op->future, CUFI_BIT(CUFI_RUNNING), CUFI_SETTLING);
		settle_as_link(op, 0);
		return;
	}
	if (r == op->future || !cufi_same_runtime(r, op->scope->rt)) {
		cufi_claim(op->future, CUFI_BIT(CUFI_RUNNING), CUFI_SETTLING);
		if (r == op->future)
			settle_failed(op, CUF_ERR_WOULD_DEADLOCK,
				      "the continuation returned its own result");
		else
			settle_failed(op, CUF_ERR_INVALID,
				      "the continuation returned a future of another runtime");
		cuf_release(r);
		return;
	}
	cufi_take(r, CUFI_HOLD);
	l[1].on = r;
	if (cufi_word_settled(cufi_word(r))) {
		followed(op, CUFI_BIT(CUFI_RUNNING));
		return;
	}
	/* From here on it can be cancelled; the link carries the hand. */
	cufi_hold(f, CUFI_HOLD);
	cufi_claim(f, CUFI_BIT(CUFI_RUNNING), CUFI_FOLLOWING);
	CUFI_TESTPOINT("continuation:following");
	cufi_op_wait_for(op, &l[1], CUFI_AT_SETTLED);
	/* Cancelled before that: nobody else takes the registration away. */
	cufi_op_cut_late(op);
	cufi_let_go(f, CUFI_HOLD);
}

/* ---- run by a loop ---- */

static cuf_future *call_then(struct cufi_op *op, struct continuation *c, cuf_future *in)
{
	cuf_runtime *rt = op->scope->rt;
	char guard[64] __attribute__((aligned(16)));
	const struct cufi_op *from = in->op;
	bool entered = from && from->device >= 0 && rt->up.device_enter(rt, from->device, guard);
	cuf_future *r;

	/* relaxed: statistics */
	atomic_fetch_add_explicit(&rt->n_continuations, 1, memory_order_relaxed);
	cufi_callback_enter(rt);
	r = c->fn.then(op->scope, in, c->arg);
	run_drop(c);
	cufi_callback_leave();
	if (entered)
		rt->up.device_leave(rt, guard);
	return r;
}

/* SETTLING: a call one of whose dependencies failed. The others may not have ended yet: they trail. */
static void inherit_early(struct cufi_op *op)
{
	struct continuation *c = cufi_op_params(op);

	cufi_settle_as(op->future, c->fn.why->on, false);
	cufi_op_cut_promises(op);
	cufi_op_drop(op);
}

static void then_run(struct cufi_task *task, enum cufi_how how)
{
	struct cufi_op *op = (struct cufi_op *)task;
	struct continuation *c = cufi_op_params(op);
	bool skip = cufi_op_has(op, CUFI_OP_SKIP);

	if (how == CUFI_RUN && !skip) {
		cuf_future *in = cufi_op_links(op)[0].on;

		if (!succeeded(in) && c->kind != THEN)
			cufi_root_look(cufi_root_of(in));
		if (cufi_claim(op->future, CUFI_BIT(CUFI_HELD), CUFI_RUNNING)) {
			resolve(op, call_then(op, c, in));
			return;
		}
	} else if (cufi_claim(op->future, CUFI_BIT(CUFI_HELD), CUFI_SETTLING)) {
		cufi_callback_enter(op->scope->rt);
		run_drop(c);
		cufi_callback_leave();
		if (skip && c->kind == CALL)
			inherit_early(op);
		else if (skip)
			settle_as_link(op, 0);
		else
			settle_failed(op, CUF_ERR_SHUTDOWN, "the loop it was to run on is closed");
		return;
	}
	/* cancelled */
	cufi_callback_enter(op->scope->rt);
	run_drop(c);
	cufi_callback_leave();
	cufi_op_drop(op);
}

/* A watch is over: there is no future that would end it. */
static void quiet_end(struct cufi_op *op)
{
	cuf_runtime *rt = op->scope->rt;
	cuf_scope *s = op->scope;

	cufi_defer_drain(1);
	cufi_op_free(rt, op);
	cufi_scope_leave(s);
	cufi_defer_drain(-1);
	cufi_retire(rt, 1);
}

static void watch_run(struct cufi_task *task, enum cufi_how how)
{
	struct cufi_op *op = (struct cufi_op *)task;
	struct continuation *c = cufi_op_params(op);
	cuf_future *in = cufi_op_links(op)[0].on;
	cuf_runtime *rt = op->scope->rt;

	(void)how; /* always called, exactly once */
	if (!succeeded(in))
		cufi_root_look(cufi_root_of(in));
	/* relaxed: statistics */
	atomic_fetch_add_explicit(&rt->n_continuations, 1, memory_order_relaxed);
	cufi_callback_enter(rt);
	c->fn.watch(in, c->arg);
	run_drop(c);
	cufi_callback_leave();
	quiet_end(op);
}

/*
 * A post. Its event, in the loop, is the operation's memory, which may be taken and go while the scope
 * is still being told: one count in op->waiting for the event, one for that. The last one frees.
 */
static void post_ready(struct cufi_op *op)
{
	/* its scope may have ended, its loop lives as long as the runtime */
	cufi_op_free(((struct continuation *)cufi_op_params(op))->on->rt, op);
}

static void post_run(struct cufi_task *task, enum cufi_how how)
{
	(void)how; /* dispatched or closed: there is nobody to take it */
	cufi_op_drop((struct cufi_op *)task);
}

/* Into the loop; the caller goes on to post_told(). Needs no lock of a future. */
static void post_push(struct cufi_op *op, struct cufi_link *l)
{
	struct continuation *c = cufi_op_params(op);

	c->arg = (void *)(intptr_t)cufi_word_status(cufi_word(l->on));
	cufi_op_set(op, CUFI_OP_SKIP); /* it is there */
	/* relaxed: the count of the link is the caller's */
	atomic_fetch_add_explicit(&op->waiting, 1, memory_order_relaxed);
	cufi_loop_push(c->on, &op->task);
}

static void post_told(struct cufi_op *op, struct cufi_link *l)
{
	cuf_scope *s = op->scope;
	cuf_runtime *rt = s->rt;

	if (!cufi_op_has(op, CUFI_OP_SKIP))
		post_push(op, l);
	if (!succeeded(l->on))
		cufi_root_look(cufi_root_of(l->on));
	cufi_defer_drain(1);
	cufi_op_release_links(op);
	cufi_op_drop(op);
	cufi_scope_leave(s);
	cufi_defer_drain(-1);
	cufi_retire(rt, 1);
}

bool cufi_post_take(struct cufi_task *task, cuf_event *out_event)
{
	struct cufi_op *op = (struct cufi_op *)task;
	struct continuation *c;

	if (task->run != post_run)
		return false;
	c = cufi_op_params(op);
	out_event->token = c->fn.token;
	out_event->status = (cuf_status)(intptr_t)c->arg;
	cufi_op_drop(op);
	return true;
}

/* ---- told ---- */

static void told(struct cufi_op *op, struct cufi_link *l)
{
	struct continuation *c = cufi_op_params(op);
	bool ok = succeeded(l->on);
	bool match = c->kind == THEN ? ok : c->kind == CATCH ? !ok : true;

	if (op->future && l != cufi_op_links(op)) {
		followed(op, CUFI_BIT(CUFI_FOLLOWING));
		return;
	}
	if (!match) {
		if (!c->drop) {
			if (cufi_claim(op->future, CUFI_BIT(CUFI_HELD), CUFI_SETTLING))
				settle_as_link(op, 0);
			else
				cufi_op_drop(op);
			return;
		}
		cufi_op_set(op, CUFI_OP_SKIP);
	}
	cufi_loop_push(c->on, &op->task);
}

/* Settled with what the continuation waits for: to the loop, in the order of attachment. */
static bool push(struct cufi_op *op, struct cufi_link *l)
{
	struct continuation *c = cufi_op_params(op);
	bool ok = succeeded(l->on);
	bool match = c->kind == THEN ? ok : c->kind == CATCH ? !ok : true;

	if (c->kind == POST) {
		post_push(op, l);
		return false; /* its scope is told outside of LOCK */
	}
	if (l != cufi_op_links(op) || (!match && !c->drop) || cufi_op_settled(op))
		return false;
	if (!match)
		cufi_op_set(op, CUFI_OP_SKIP);
	cufi_loop_push(c->on, &op->task);
	return true;
}

/* Of an operation that is abandoned before its turn came: its drop still has to run, on its loop. */
static void drop_run(struct cufi_task *task, enum cufi_how how)
{
	struct cufi_op *op = (struct cufi_op *)task;

	(void)how;
	cufi_callback_enter(op->scope->rt);
	run_drop(cufi_op_params(op));
	cufi_callback_leave();
	cufi_op_drop(op);
}

static bool abandoned(struct cufi_op *op)
{
	struct continuation *c = cufi_op_params(op);

	if (!c->drop)
		return false;
	op->task.run = drop_run;
	cufi_loop_push(c->on, &op->task);
	return true;
}

static const struct cufi_op_class classes[] = {
	[THEN] = { .name = "then",
		   .params_bytes = sizeof(struct continuation),
		   .told = told,
		   .push = push,
		   .abandoned = abandoned },
	[CATCH] = { .name = "catch",
		    .params_bytes = sizeof(struct continuation),
		    .told = told,
		    .push = push,
		    .abandoned = abandoned },
	[FINALLY] = { .name = "finally",
		      .params_bytes = sizeof(struct continuation),
		      .told = told,
		      .push = push,
		      .abandoned = abandoned },
	[WATCH] = { .name = "watch",
		    .params_bytes = sizeof(struct continuation),
		    .told = told,
		    .push = push },
	[POST] = { .name = "post",
		   .params_bytes = sizeof(struct continuation),
		   .ready = post_ready,
		   .told = post_told,
		   .push = push },
};

/* ---- attached ---- */

/* The argument: the caller's pointer, or a copy that lives with the operation. */
static void set_arg(struct cufi_op *op, struct continuation *c, void *arg, const cuf_options *o)
{
	c->arg = arg;
	c->drop = o->drop;
	if (o->arg_bytes && arg) {
		c->arg = cufi_op_bytes(op);
		memcpy(c->arg, arg, o->arg_bytes);
	}
}

/* The argument of a call that is refused: nobody will run, but its drop does, exactly once. */
static void refuse_arg(cuf_scope *s, void *arg, const cuf_options *o)
{
	(void)s;
	if (o->drop)
		o->drop(arg);
}

static cuf_future *attach(cuf_scope *s, cuf_future *f, enum kind kind, cuf_then_fn *fn, void *arg,
			  const cuf_options *o)
{
	struct cufi_begin b;
	struct continuation *c;
	size_t bytes = o && o->size > offsetof(cuf_options, arg_bytes) ? o->arg_bytes : 0;

	/* before the result is made, which may get the memory of what was freed */
	if (f)
		cufi_check_future(f, classes[kind].name);
	if (!cufi_begin(&b, s, &classes[kind], o, 2, bytes, CUFI_ALWAYS)) {
		refuse_arg(s, arg, b.o);
		return b.future;
	}
	if (!f || !fn || !cufi_same_runtime(f, s->rt) || (b.o->on && b.o->on->rt != s->rt) ||
	    (bytes && !arg)) {
		refuse_arg(s, arg, b.o);
		return cufi_begin_failed(&b, "%s: %s", b.op->cls->name,
					 !f		 ? "the future is NULL"
					 : !fn		 ? "the function is NULL"
					 : bytes && !arg ? ".arg_bytes without an argument"
							 : "the future or .on belongs to "
							   "another runtime");
	}
	c = cufi_op_params(b.op);
	c->kind = kind;
	c->fn.then = fn;
	c->on = b.o->on ? b.o->on : s->on;
	set_arg(b.op, c, arg, b.o);
	b.op->task.run = then_run;
	cufi_op_depend(b.op, 0, f, false);
	cufi_op_wait_for(b.op, cufi_op_links(b.op), CUFI_AT_SETTLED);
	/* Its scope may have been cancelled before that: nobody else takes the registration away. */
	cufi_op_cut_late(b.op);
	return b.future;
}

cuf_future *cuf_then_with(cuf_scope *s, cuf_future *f, cuf_then_fn *fn, void *arg,
			  const cuf_options *o)
{
	return attach(s, f, THEN, fn, arg, o);
}

cuf_future *cuf_catch_with(cuf_scope *s, cuf_future *f, cuf_then_fn *fn, void *arg,
			   const cuf_options *o)
{
	return attach(s, f, CATCH, fn, arg, o);
}

cuf_future *cuf_finally_with(cuf_scope *s, cuf_future *f, cuf_then_fn *fn, void *arg,
			     const cuf_options *o)
{
	return attach(s, f, FINALLY, fn, arg, o);
}

static struct continuation *quiet_begin(struct cufi_begin *b, cuf_scope *s, enum kind kind,
					const cuf_options *o, size_t bytes)
{
	struct continuation *c;

	if (!cufi_begin(b, s, &classes[kind], o, 1, bytes, CUFI_ALWAYS | CUFI_NO_FUTURE))
		return NULL;
	/* relaxed: a count */
	atomic_fetch_add_explicit(&s->rt->outstanding, 1, memory_order_relaxed);
	cufi_scope_enter(s);
	c = cufi_op_params(b->op);
	c->kind = kind;
	b->op->task.run = kind == WATCH ? watch_run : post_run;
	return c;
}

void cuf_watch_with(cuf_scope *s, cuf_future *f, cuf_watch_fn *fn, void *arg, const cuf_options *o)
{
	struct cufi_begin b;
	struct continuation *c;
	size_t bytes = o && o->size > offsetof(cuf_options, arg_bytes) ? o->arg_bytes : 0;

	if (!fn)
		return;
	if (!f || (s && s->born == CUF_OK && !cufi_same_runtime(f, s->rt)))
		f = cufi_future_immortal(CUF_ERR_INVALID);
	c = quiet_begin(&b, s, WATCH, o, bytes);
	if (!c) {
		/* No scope, no memory, or the gate is shut: exactly once all the same, here. */
		fn(b.future, arg);
		refuse_arg(s, arg, b.o);
		return;
	}
	c->fn.watch = fn;
	c->on = b.o->on && b.o->on->rt == s->rt ? b.o->on : s->on;
	set_arg(b.op, c, arg, b.o);
	cufi_op_depend(b.op, 0, f, false);
	cufi_op_wait_for(b.op, cufi_op_links(b.op), CUFI_AT_SETTLED);
}

void cuf_post(cuf_scope *s, cuf_future *f, cuf_loop *loop, uint64_t token)
{
	struct cufi_begin b;
	struct continuation *c;

	if (!s || s->born != CUF_OK || !loop || loop->rt != s->rt)
		return;
	if (!f || !cufi_same_runtime(f, s->rt))
		f = cufi_future_immortal(CUF_ERR_INVALID);
	c = quiet_begin(&b, s, POST, NULL, 0);
	if (!c)
		return;
	c->fn.token = token;
	c->on = loop;
	cufi_op_depend(b.op, 0, f, false);
	cufi_op_wait_for(b.op, cufi_op_links(b.op), CUFI_AT_SETTLED);
}

/* ---- cuf_call: on a worker, once its dependencies have settled ---- */

static void call_ready(struct cufi_op *op)
{
	struct continuation *c = cufi_op_params(op);

	op->task.run = then_run;
	cufi_loop_push(c->on, &op->task);
}

/* A dependency failed. With a drop, that comes first: the loop settles it. @l's count goes along. */
static bool call_failed(struct cufi_op *op, struct cufi_link *l)
{
	struct continuation *c = cufi_op_params(op);

	/* not c->drop: the loop may be running it for another dependency */
	if (!cufi_op_has(op, CUFI_OP_DROPS))
		return false;
	/* relaxed: the flag decides only who goes to the loop */
	if (atomic_fetch_or_explicit(&op->flags, CUFI_OP_SKIP, memory_order_relaxed) &
	    CUFI_OP_SKIP) {
		cufi_op_drop(op);
		return true;
	}
	c->fn.why = l;
	call_ready(op);
	return true;
}

static void call_told(struct cufi_op *op, struct cufi_link *l)
{
	if (l == &cufi_op_links(op)[1])
		followed(op, CUFI_BIT(CUFI_FOLLOWING));
	else
		cufi_op_told(op, l);
}

static const struct cufi_op_class call_class = {
	.name = "call",
	.params_bytes = sizeof(struct continuation),
	.ready = call_ready,
	.told = call_told,
	.failed = call_failed,
	.abandoned = abandoned,
};

/* Links 0 and 1 are as for a continuation; the one that was followed comes back as told. */
cuf_future *cuf_call_with(cuf_scope *s, cuf_then_fn *fn, void *arg, const cuf_options *o)
{
	struct cufi_begin b;
	struct continuation *c;
	size_t bytes = o && o->size > offsetof(cuf_options, arg_bytes) ? o->arg_bytes : 0;

	if (!cufi_begin(&b, s, &call_class, o, 2, bytes, CUFI_DEPS)) {
		refuse_arg(s, arg, b.o);
		return b.future;
	}
	if (!fn || (b.o->on && b.o->on->rt != s->rt) || (bytes && !arg)) {
		refuse_arg(s, arg, b.o);
		return cufi_begin_failed(&b, "call: %s",
					 !fn		 ? "the function is NULL"
					 : bytes && !arg ? ".arg_bytes without an argument"
							 : ".on belongs to another runtime");
	}
	c = cufi_op_params(b.op);
	c->kind = CALL;
	c->fn.then = fn;
	c->on = b.o->on ? b.o->on : &s->rt->workers;
	set_arg(b.op, c, arg, b.o);
	if (c->drop)
		cufi_op_set(b.op, CUFI_OP_DROPS);
	cufi_op_depend(b.op, 0, cufi_future_ok(), false);
	cufi_op_start(b.op);
	return b.future;
}
