/* SPDX-License-Identifier: MIT */
/*
 * The common beginning of calls that make a future.
 */
#include "begin.h"

#include "error.h"
#include "future.h"
#include "scope.h"

static void release_taken(const cuf_options *o)
{
	for (size_t i = 0; o->take.at && i < o->take.n; i++)
		cuf_release(o->take.at[i]);
}

/* A failed future that has no operation behind it yet. */
static bool refuse(struct cufi_begin *b, int status)
{
	b->op = NULL;
	b->future = cufi_future_immortal(status);
	release_taken(b->o);
	return false;
}

static bool lists_valid(const cuf_options *o)
{
	return (o->after.at || !o->after.n) && (o->take.at || !o->take.n) &&
	       (o->after_settled.at || !o->after_settled.n);
}

/* Before the result is made, which may get the memory of what was freed. */
static void check_list(const cuf_list *list, const char *call)
{
	(void)call;
	for (size_t i = 0; i < list->n; i++) {
		if (list->at[i])
			cufi_check_future(list->at[i], call);
	}
}

/* Enters @list from link @at on. False: one of them belongs to another runtime. */
static bool depend(struct cufi_op *op, size_t at, const cuf_list *list, bool order, bool take)
{
	bool same = true;

	for (size_t i = 0; i < list->n; i++) {
		cuf_future *f = list->at[i];

		if (!f)
			continue;
		if (!cufi_same_runtime(f, op->scope->rt)) {
			same = false;
			if (take)
				cuf_release(f);
		} else if (take) {
			struct cufi_link *l = &cufi_op_links(op)[at + i];

			cufi_take(f, op->cls->device ? CUFI_NAME : CUFI_HOLD);
			cufi_link_enter(l, op, f, order);
		} else {
			cufi_op_depend(op, at + i, f, order);
		}
	}
	return same;
}

bool cufi_begin(struct cufi_begin *b, cuf_scope *s, const struct cufi_op_class *cls,
		const cuf_options *o, size_t extra_links, size_t bytes, unsigned how)
{
	static const cuf_options none = { .size = sizeof none };
	bool options_ok = cufi_options_read(&b->read, o);
	size_t n = extra_links;
	cuf_status st;
	bool order = how & CUFI_ORDER_ONLY, fits = true, lists, same = true;

	b->o = options_ok ? b->read.o : &none;
	if (!s)
		return refuse(b, CUF_ERR_INVALID);
	if (s->born != CUF_OK)
		return refuse(b, s->born);
	st = how & CUFI_INTERNAL ? CUF_OK : cufi_admit(s, how & CUFI_ALWAYS);
	if (st == CUF_ERR_FORKED || st == CUF_ERR_SHUTDOWN)
		return refuse(b, st);
	lists = how & CUFI_DEPS && options_ok && lists_valid(b->o);
	if (lists && (__builtin_add_overflow(n, b->o->after.n, &n) ||
		      __builtin_add_overflow(n, b->o->take.n, &n) ||
		      __builtin_add_overflow(n, b->o->after_settled.n, &n)))
		fits = false;
	b->op = fits ? cufi_op_new(s, cls, n, bytes, b->o) : NULL;
	if (!b->op) {
		/* A smaller one is to say which call that was. No class counts on more than 2 links. */
		fits = false;
		if (!(how & CUFI_NO_FUTURE))
			b->op = cufi_op_new(s, cls, extra_links <= 2 ? extra_links : 0, 0, b->o);
		if (!b->op)
			return refuse(b, CUF_ERR_NO_MEMORY);
	}
	if (how & CUFI_NO_FUTURE) {
		b->future = NULL;
		return true;
	}
	if (lists && fits) {
		check_list(&b->o->after, cls->name);
		check_list(&b->o->take, cls->name);
		check_list(&b->o->after_settled, cls->name);
	}
	b->future = cufi_future_new(s, b->op, how & CUFI_IS_PROMISE ? CUFI_PROMISE : 0);
	if (!b->future) {
		cufi_op_free(s->rt, b->op);
		return refuse(b, CUF_ERR_NO_MEMORY);
	}
	/* Before anything can fail: who is refused still orders behind what it was to depend on. */
	if (lists && fits) {
		size_t at = extra_links;

		same = depend(b->op, at, &b->o->after, order, false);
		at += b->o->after.n;
		same &= depend(b->op, at, &b->o->take, order, true);
		at += b->o->take.n;
		same &= depend(b->op, at, &b->o->after_settled, true, false);
	} else if (options_ok) {
		release_taken(b->o);
	}
	/* The cancel is looked at only now that the scope lists it: one that did not find it set this
	 * before. */
	if (st != CUF_OK)
		cufi_begin_fails(b, st,
				 "%zu operations are outstanding, the cap of the runtime: wait for "
				 "cuf_room(), or raise .cap",
				 s->rt->options.cap);
	else if (!(how & (CUFI_INTERNAL | CUFI_CLOSE)) && cufi_scope_has(s, CUFI_SCOPE_CANCELLED))
		cufi_begin_fails(b, CUF_ERR_CANCELLED, "%s: the scope was cancelled before",
				 cls->name);
	else if (!fits)
		cufi_begin_fails(b, CUF_ERR_NO_MEMORY,
				 "%s: no memory for its dependencies and the copy of its argument",
				 cls->name);
	else if (!options_ok)
		cufi_begin_failed(b,
				  "the options of %s are of an unknown size (%zu bytes), or set "
				  "a field that this library does not know",
				  cls->name, o->size);
	else if (b->o->priority < CUF_LOW || b->o->priority > CUF_HIGH)
		cufi_begin_failed(b, ".priority of %s is %d: it is CUF_LOW, CUF_NORMAL or CUF_HIGH",
				  cls->name, b->o->priority);
	else if (how & CUFI_DEPS && !lists)
		cufi_begin_failed(b, "a dependency list of %s has a count and no array", cls->name);
	else if (!same)
		cufi_begin_failed(b, "a dependency of %s belongs to another runtime", cls->name);
	else
		return true;
	return false;
}

/* SETTLING, in hand, refused: what it was to depend on trails. Consumes a reference on @e's root. */
static void settle(struct cufi_op *op, const cuf_error *e)
{
	struct cufi_link *l = cufi_op_links(op);
	bool trails = false;

	for (size_t i = 0; i < op->n_links; i++)
		trails |= l[i].on != NULL;
	cufi_settle_error(op->future, e, !trails);
	if (trails)
		cufi_op_drop(op);
}

static void fail(struct cufi_begin *b, cuf_status st, const char *fmt, va_list ap)
{
	struct cufi_link *dep = st == CUF_ERR_INVALID ? cufi_op_failed_dep(b->op) : NULL;
	struct cufi_root *r;

	/* A bad argument often comes from what failed: the address of a refused alloc. */
	if (dep) {
		cufi_begin_fails_as(b, cufi_root_of(dep->on), true);
		return;
	}
	r = cufi_root_newv(b->op->scope->rt, st, CUF_PHASE_SUBMIT, b->op, fmt, ap);

	/* Somebody may have cancelled the scope meanwhile. */
	if (cufi_claim(b->future, CUFI_BIT(CUFI_HELD), CUFI_SETTLING)) {
		settle(b->op, &r->own);
	} else {
		cufi_root_look(r);
		cufi_root_let_go(r);
		cufi_op_drop(b->op);
	}
}

cuf_future *cufi_begin_fails_as(struct cufi_begin *b, struct cufi_root *root, bool inherited)
{
	if (cufi_claim(b->future, CUFI_BIT(CUFI_HELD), CUFI_SETTLING)) {
		cufi_root_hold(root); /* before a link lets go of who carries it */
		settle(b->op, inherited ? &root->inherited : &root->own);
	} else {
		cufi_op_drop(b->op);
	}
	return b->future;
}

cuf_future *cufi_begin_failed(struct cufi_begin *b, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fail(b, CUF_ERR_INVALID, fmt, ap);
	va_end(ap);
	return b->future;
}

cuf_future *cufi_begin_fails(struct cufi_begin *b, cuf_status st, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fail(b, st, fmt, ap);
	va_end(ap);
	return b->future;
}
