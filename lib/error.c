/* SPDX-License-Identifier: MIT */
/*
 * Errors: made, shared, looked at, printed, and reported when nobody looked. Log lines.
 */
#include "error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "future.h"
#include "op.h"
#include "scope.h"
#include "status.h"

/* Unobserved errors written to stderr in a second before the rest is only counted. Arbitrary. */
#define REPORTS_A_SECOND 20

/* ---- log ---- */

void cufi_log(cuf_runtime *rt, int level, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	if (level > rt->log_level)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	if (rt->options.on_log)
		rt->options.on_log(level, line, rt->options.arg);
	else
		fprintf(stderr, "cufuture: %s\n", line);
}

static const char *label_of(const struct cufi_op *op)
{
	const char *label = cufi_op_label(op);

	return label ? label : "";
}

void cufi_trace_queued(const cuf_future *f)
{
	const struct cufi_op *op = f->op;

	cufi_log(f->rt, CUFI_LOG_TRACE, "%" PRIu64 " %s \"%s\" queued, device %d, seq %" PRIu64,
		 cufi_now_ns(), op->cls->name, label_of(op), op->device, f->seq);
}

void cufi_trace_settled(const cuf_future *f, int status)
{
	const struct cufi_op *op = f->op;

	cufi_log(f->rt, CUFI_LOG_TRACE, "%" PRIu64 " %s \"%s\" settled: %s", cufi_now_ns(),
		 op->cls->name, label_of(op), cuf_strerror(status));
}

/* ---- made ---- */

static void views(struct cufi_root *r)
{
	r->own = (struct cuf_error){ r, false, false };
	r->inherited = (struct cuf_error){ r, true, false };
	r->unknown = (struct cuf_error){ r, true, true };
}

#define IMMORTAL_ROOTS 16
static struct cufi_root immortal_roots[IMMORTAL_ROOTS];

/* Before main and before any thread: nothing can race with it. */
__attribute__((constructor)) static void make_immortal_roots(void)
{
	for (int i = 0; i < IMMORTAL_ROOTS; i++) {
		struct cufi_root *r = &immortal_roots[i];

		views(r);
		r->immortal = true;
		atomic_store_explicit(&r->looked, true, memory_order_relaxed);
		r->status = -i;
		r->device = -1;
		r->operation = "call";
		snprintf(r->message, sizeof r->message, "%s", cuf_strerror(-i));
	}
}

struct cufi_root *cufi_root_immortal(int status)
{
	return &immortal_roots[status <= 0 && status > -IMMORTAL_ROOTS ? -status : -CUF_ERR_INVALID];
}

struct cufi_root *cufi_root_newv(cuf_runtime *rt, cuf_status status, int phase,
				 const struct cufi_op *op, const char *fmt, va_list ap)
{
	struct cufi_root *r = cufi_small_get(rt, sizeof *r);

	if (!r)
		return cufi_root_immortal(CUF_ERR_NO_MEMORY);
	memset(r, 0, sizeof *r);
	views(r);
	/* relaxed: not shared yet */
	atomic_store_explicit(&r->refs, 1, memory_order_relaxed);
	/* Busy is an answer and cancelled was asked for: neither is a surprise to report. */
	atomic_store_explicit(&r->looked, status == CUF_ERR_BUSY || status == CUF_ERR_CANCELLED,
			      memory_order_relaxed);
	r->rt = rt;
	r->status = status;
	r->phase = phase;
	r->device = -1;
	r->operation = "call";
	if (op) {
		const char *label = cufi_op_label(op);

		r->operation = op->cls->name;
		r->file = op->file;
		r->line = op->line;
		r->device = cufi_op_device(op);
		if (label)
			snprintf(r->label, sizeof r->label, "%s", label);
	}
	vsnprintf(r->message, sizeof r->message, fmt, ap);
	return r;
}

struct cufi_root *cufi_root_new(cuf_runtime *rt, cuf_status status, int phase,
				const struct cufi_op *op, const char *fmt, ...)
{
	struct cufi_root *r;
	va_list ap;

	va_start(ap, fmt);
	r = cufi_root_newv(rt, status, phase, op, fmt, ap);
	va_end(ap);
	return r;
}

/* ---- shared ---- */

void cufi_root_hold(struct cufi_root *r)
{
	if (!r->immortal)
		/* relaxed: whoever adds one has one */
		atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
}

static void report(struct cufi_root *r)
{
	cuf_runtime *rt = r->rt;
	uint64_t now = cufi_now_ns();
	unsigned suppressed = 0;
	bool print;

	if (rt->options.on_unobserved) {
		rt->options.on_unobserved(&r->own, rt->options.arg);
		return;
	}
	cufi_lock_take(&rt->report_lock);
	if (now - rt->report_window_ns > 1000000000u) {
		rt->report_window_ns = now;
		suppressed = rt->report_suppressed;
		rt->report_count = rt->report_suppressed = 0;
	}
	print = rt->report_count < REPORTS_A_SECOND;
	if (print)
		rt->report_count++;
	else
		rt->report_suppressed++;
	cufi_lock_give(&rt->report_lock);
	if (suppressed)
		fprintf(stderr, "cufuture: %u more errors that nobody looked at were not printed\n",
			suppressed);
	if (print) {
		fputs("cufuture: an error that nobody looked at: ", stderr);
		cuf_error_print(stderr, &r->own);
	}
}

void cufi_root_let_go(struct cufi_root *r)
{
	if (r->immortal)
		return;
	/* acq_rel: pairs with itself: every look happens before the report */
	if (atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) != 1)
		return;
	/* relaxed: ordered by the count */
	if (!atomic_load_explicit(&r->looked, memory_order_relaxed))
		report(r);
	cufi_small_put(r->rt, r, sizeof *r);
}

struct cufi_root *cufi_root_of(const cuf_future *f)
{
	uint32_t w = cufi_word(f);

	return w & CUFI_IMMORTAL ? cufi_root_immortal(cufi_word_status(w)) : f->u.error->root;
}

/* ---- looked at ---- */

const cuf_error *cuf_error_of(const cuf_future *f)
{
	uint32_t w;

	if (!f)
		return &cufi_root_immortal(CUF_ERR_INVALID)->own;
	cufi_check_future(f, "cuf_error_of");
	w = cufi_word(f);
	if (!cufi_word_settled(w) || cufi_word_status(w) == CUF_OK)
		return NULL;
	if (w & CUFI_IMMORTAL)
		return &cufi_root_immortal(cufi_word_status(w))->own;
	cufi_root_look(f->u.error->root);
	return f->u.error;
}

void cuf_ignore(cuf_future *f)
{
	uint32_t w;

	if (!f)
		return;
	cufi_check_future(f, "cuf_ignore");
	w = cufi_word(f);
	if (w & CUFI_IMMORTAL || cufi_forked(f->rt))
		return;
	if (!cufi_word_settled(w)) {
		/* The error is not there yet: the future remembers. */
		w = cufi_word_lock(&f->word);
		if (!cufi_word_settled(w)) {
			cufi_word_unlock(&f->word, w | CUFI_IGNORED);
			return;
		}
		cufi_word_unlock(&f->word, w);
	}
	if (cufi_word_status(w) == CUF_OK)
		return;
	cufi_root_look(f->u.error->root);
	cufi_scope_forgive(f, f->u.error->root);
}

cuf_status cuf_error_status(const cuf_error *e)
{
	return e ? e->root->status : CUF_OK;
}

const char *cuf_error_message(const cuf_error *e)
{
	return e ? e->root->message : cuf_strerror(CUF_OK);
}

void cuf_error_get(const cuf_error *e, cuf_error_info *out_info)
{
	const struct cufi_root *r;
	cuf_error_info info = { .size = sizeof info };
	size_t size = out_info ? out_info->size : 0;

	if (size < sizeof size)
		return;
	if (!e)
		e = &cufi_root_immortal(CUF_OK)->own;
	r = e->root;
	info.status = r->status;
	info.cuda_code = r->cuda_code;
	info.user_code = r->user_code;
	info.phase = r->phase;
	info.operation = r->operation;
	info.label = r->label;
	info.file = r->file;
	info.message = r->message;
	info.line = r->line;
	info.device = r->device;
	info.lane = r->lane;
	info.seq = r->seq;
	info.inherited = e->inherited;
	info.outcome_unknown = e->outcome_unknown;
	info.root = &r->own;
	info.n_suspects = r->n_suspects;
	memcpy(out_info, &info, size < sizeof info ? size : sizeof info);
	out_info->size = size;
}

void cuf_error_print(FILE *to, const cuf_error *e)
{
	const struct cufi_root *r;

	if (!e) {
		fputs("no error\n", to);
		return;
	}
	r = e->root;
	fprintf(to, "%s: %s", cuf_strerror(r->status), r->message);
	fprintf(to, " [%s", r->operation);
	if (r->label[0])
		fprintf(to, " \"%s\"", r->label);
	if (r->file)
		fprintf(to, ", submitted at %s:%d", r->file, r->line);
	fprintf(to, ", in %s", cufi_phase_name(r->phase));
	if (r->device >= 0)
		fprintf(to, ", device %d", r->device);
	if (r->seq)
		fprintf(to, ", lane %" PRIu64 " seq %" PRIu64, r->lane, r->seq);
	if (r->cuda_code)
		fprintf(to, ", CUDA code %d", r->cuda_code);
	if (r->user_code)
		fprintf(to, ", code %d", r->user_code);
	if (r->n_suspects > 1)
		fprintf(to, ", one of %zu suspects: CUF_DEBUG=sync names it", r->n_suspects);
	fputs("]", to);
	if (e->outcome_unknown)
		fputs("; inherited, whether this one ran is unknown", to);
	else if (e->inherited)
		fputs("; inherited", to);
	fputc('\n', to);
}
