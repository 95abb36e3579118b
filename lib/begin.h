/* SPDX-License-Identifier: MIT */
/*
 * The beginning that all calls share which make a future: scope and options checked, admitted, the
 * operation and its future made, dependencies entered. What each of them does then: op_*.c and others.
 */
#ifndef CUFI_BEGIN_H
#define CUFI_BEGIN_H

#include "core.h"
#include "op.h"

#define CUFI_ALWAYS	0x1u /* never busy: then, catch, all, any, free, ... */
#define CUFI_DEPS	0x2u /* .after, .take and .after_settled become links, behind the extra ones */
#define CUFI_NO_FUTURE	0x4u /* watch, post: an operation alone */
#define CUFI_IS_PROMISE 0x8u
#define CUFI_INTERNAL	0x20u /* the runtime's own: past a gate that is shut */
#define CUFI_ORDER_ONLY 0x10u /* every dependency only orders (free) */
#define CUFI_CLOSE	0x40u /* the end of a scope: in a cancelled parent too */

struct cufi_begin {
	const cuf_options *o; /* as this library declares them */
	struct cufi_op *op;
	cuf_future *future; /* on failure: what the call returns */
	struct cufi_options read;
};

/* False: the call returns b->future, which has failed. References in .take are consumed either way. */
bool cufi_begin(struct cufi_begin *b, cuf_scope *s, const struct cufi_op_class *cls,
		const cuf_options *o, size_t extra_links, size_t bytes, unsigned how);

/* A bad argument found after cufi_begin(), before the operation was started. Returns b->future. */
cuf_future *cufi_begin_failed(struct cufi_begin *b, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The same with another status. */
cuf_future *cufi_begin_fails(struct cufi_begin *b, cuf_status st, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The same with an error that there is already (borrowed). */
cuf_future *cufi_begin_fails_as(struct cufi_begin *b, struct cufi_root *root, bool inherited);

/* @f may be a dependency or an input in @rt. */
static inline bool cufi_same_runtime(const cuf_future *f, const cuf_runtime *rt)
{
	return !f->rt || f->rt == rt;
}

#endif
