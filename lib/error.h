/* SPDX-License-Identifier: MIT */
/*
 * Errors: one root for each thing that went wrong, shared by every future that carries it, and three
 * views of it (own, inherited, inherited with the outcome unknown). When the last carrier goes and
 * nobody ever looked, the root is reported, once.
 */
#ifndef CUFI_ERROR_H
#define CUFI_ERROR_H

#include <stdarg.h>

#include "core.h"

struct cufi_root {
	struct cuf_error own, inherited, unknown;
	_Atomic uint32_t refs;
	_Atomic bool looked; /* observed through any carrier: not reported */
	bool immortal;
	cuf_runtime *rt;
	cuf_status status;
	int cuda_code, user_code, phase, line, device;
	uint64_t lane, seq;
	size_t n_suspects;
	const void *culprit;	      /* the future of the operation named; only compared */
	const char *operation, *file; /* static text */
	char label[CUFI_LABEL_BYTES];
	char message[232];
};

/* A new root with one reference; the immortal out-of-memory root if there is no memory. */
struct cufi_root *cufi_root_new(cuf_runtime *rt, cuf_status status, int phase,
				const struct cufi_op *op, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
struct cufi_root *cufi_root_newv(cuf_runtime *rt, cuf_status status, int phase,
				 const struct cufi_op *op, const char *fmt, va_list ap);
/* An immortal root for @status. */
struct cufi_root *cufi_root_immortal(int status);
void cufi_root_hold(struct cufi_root *r);
void cufi_root_let_go(struct cufi_root *r);
static inline void cufi_root_look(struct cufi_root *r)
{
	/* relaxed: a flag that only silences */
	if (!atomic_load_explicit(&r->looked, memory_order_relaxed))
		atomic_store_explicit(&r->looked, true, memory_order_relaxed);
}

/* The root that settled, failed @f carries. */
struct cufi_root *cufi_root_of(const cuf_future *f);

const char *cufi_phase_name(int phase);

/* Log: level 1 error, 2 info, 3 trace. */
enum { CUFI_LOG_OFF, CUFI_LOG_ERROR, CUFI_LOG_INFO, CUFI_LOG_TRACE };
/* The hooks at enqueue and settle: trace lines now, whoever draws pictures later. */
void cufi_trace_queued(const cuf_future *f);
void cufi_trace_settled(const cuf_future *f, int status);
static inline bool cufi_traced(const cuf_runtime *rt)
{
	return rt->log_level >= CUFI_LOG_TRACE;
}

void cufi_log(cuf_runtime *rt, int level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
