/* SPDX-License-Identifier: MIT */
/*
 * An operation and its links: what it waits for, who has it in hand, and what stays behind when it
 * ends without having run. The protocol is told in op.c.
 */
#ifndef CUFI_OPERATION_H
#define CUFI_OPERATION_H

#include "core.h"

/* Options as the current header has them, whatever the caller was compiled with. */
struct cufi_options {
	cuf_options copy;
	const cuf_options *o;
};
/* False: a larger struct with an unknown tail that is not zero. */
bool cufi_options_read(struct cufi_options *out, const cuf_options *o);

/* Memory for an operation with @n_links links and @bytes behind them. NULL: out of memory. */
struct cufi_op *cufi_op_new(cuf_scope *s, const struct cufi_op_class *cls, size_t n_links,
			    size_t bytes, const cuf_options *o);
void cufi_op_free(cuf_runtime *rt, struct cufi_op *op);

/* Set by the submitter, while a cancel of the scope may look what it cancels. */
static inline void cufi_op_set_device(struct cufi_op *op, int device)
{
	/* relaxed: for a message */
	__atomic_store_n(&op->device, (int8_t)device, __ATOMIC_RELAXED);
}

static inline int cufi_op_device(const struct cufi_op *op)
{
	/* relaxed: as above */
	return __atomic_load_n(&op->device, __ATOMIC_RELAXED);
}

static inline size_t cufi_op_header(const struct cufi_op *op)
{
	/* relaxed: the bits for the layout never change */
	unsigned flags = atomic_load_explicit(&op->flags, memory_order_relaxed);

	return sizeof *op + (flags & CUFI_OP_LABEL ? CUFI_LABEL_BYTES : 0) +
	       (flags & CUFI_OP_TIMING ? sizeof(struct cufi_timing) : 0);
}

static inline const char *cufi_op_label(const struct cufi_op *op)
{
	/* relaxed: as above */
	if (!(atomic_load_explicit(&op->flags, memory_order_relaxed) & CUFI_OP_LABEL))
		return NULL;
	return (const char *)(op + 1);
}

static inline struct cufi_timing *cufi_op_timing(struct cufi_op *op)
{
	/* relaxed: as above */
	if (!(atomic_load_explicit(&op->flags, memory_order_relaxed) & CUFI_OP_TIMING))
		return NULL;
	return (struct cufi_timing *)((char *)op + cufi_op_header(op) - sizeof(struct cufi_timing));
}

static inline void *cufi_op_params(struct cufi_op *op)
{
	return (char *)op + cufi_op_header(op);
}

static inline struct cufi_link *cufi_op_links(struct cufi_op *op)
{
	return (struct cufi_link *)((char *)op + cufi_op_header(op) +
				    ((op->cls->params_bytes + 7) & ~(size_t)7));
}

static inline void *cufi_op_bytes(struct cufi_op *op)
{
	return cufi_op_links(op) + op->n_links;
}

static inline bool cufi_op_has(const struct cufi_op *op, unsigned flag)
{
	/* relaxed: bits that change are looked at by who has the operation in hand */
	return atomic_load_explicit(&op->flags, memory_order_relaxed) & flag;
}

static inline void cufi_op_set(struct cufi_op *op, unsigned flag)
{
	/* relaxed: as above */
	atomic_fetch_or_explicit(&op->flags, (uint16_t)flag, memory_order_relaxed);
}

/*
 * The scope's cancel may find the future, and look for promises among its links, while its submitter
 * enters them. (What it finds and is not attached yet, the submitter cuts: cufi_op_attach_all.)
 */
static inline void cufi_link_enter(struct cufi_link *l, struct cufi_op *op, cuf_future *f,
				   bool order)
{
	l->op_bits = (uintptr_t)op | (order ? CUFI_LINK_ORDER : 0);
	/* release: pairs with cufi_op_cut_promises: the bits */
	__atomic_store_n(&l->on, f, __ATOMIC_RELEASE);
}

/* Makes link @i depend on @f (borrowed; NULL is none). @order: a failure is not inherited. */
void cufi_op_depend(struct cufi_op *op, size_t i, cuf_future *f, bool order);

/*
 * Attaches all links and gives the caller's hand away. After this call the operation may be running,
 * settled or (without a future) gone.
 */
void cufi_op_start(struct cufi_op *op);
/* The same in two steps: true if all links are told and the hand is still the caller's. */
bool cufi_op_attach_all(struct cufi_op *op);

/* Attaches link @i at @level in place of the caller's hand; tells it here if it is late. */
void cufi_op_wait_for(struct cufi_op *op, struct cufi_link *l, enum cufi_level level);

/* Gives the hand back: for an operation found settled, or in place of a link that was told. */
void cufi_op_drop(struct cufi_op *op);

/* What a class without its own told() does: inherits a failure, or drops the link's count. */
void cufi_op_told(struct cufi_op *op, struct cufi_link *l);

/* Its result is settled, or about to be: it will not run. */
bool cufi_op_settled(const struct cufi_op *op);

/* Told: called by the drain of l->on. */
void cufi_link_tell(struct cufi_link *l);

/* A success edge of @op that has failed, or NULL. For who has it in hand with every link told. */
struct cufi_link *cufi_op_failed_dep(struct cufi_op *op);

/* One link that is not attached, of an operation whose result is settled. */
void cufi_link_let_go(struct cufi_op *op, struct cufi_link *l);

/* Lets go of what all links hold; the operation has run. */
void cufi_op_release_links(struct cufi_op *op);

/* Settles @op's future with the failure of @dep, claimed from @from; false: another was first. */
bool cufi_op_inherit(struct cufi_op *op, cuf_future *dep, uint32_t from);

/* Settled without having run: take registrations on promises away at once. */
void cufi_op_cut_promises(struct cufi_op *op);
/* The same for a link that was attached after that. For who attached it, and keeps the result. */
void cufi_op_cut_late(struct cufi_op *op);

#endif
