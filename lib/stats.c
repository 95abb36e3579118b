/* SPDX-License-Identifier: MIT */
/*
 * Counters and the dump: what has been done, what is outstanding. Only reads.
 */
#include <inttypes.h>
#include <string.h>

#include "error.h"
#include "future.h"
#include "machine.h"
#include "op.h"
#include "scope.h"

static uint64_t get(const _Atomic uint64_t *n)
{
	/* relaxed: statistics */
	return atomic_load_explicit((_Atomic uint64_t *)n, memory_order_relaxed);
}

void cuf_stats_of(cuf_runtime *rt, cuf_stats *out_stats)
{
	cuf_stats s = { .size = sizeof s };
	struct cufi_machine *m;
	size_t size;

	if (!rt || !out_stats || cufi_forked(rt))
		return;
	m = rt->machine;
	size = out_stats->size;
	for (int i = 0; i < m->n_devices; i++) {
		struct cufi_device *d = &m->devices[i];
		/* acquire: pairs with cufi_lane_add */
		uint32_t n = atomic_load_explicit(&d->n_lanes, memory_order_acquire);

		for (uint32_t k = 0; k < n; k++) {
			struct cufi_lane *l = d->lanes[k];

			s.operations += get(&l->n_operations);
			s.events += get(&l->n_events);
			s.depth_marks += get(&l->n_marks);
			s.waits += get(&l->n_waits);
			s.waits_elided += get(&l->n_elided);
			s.succeeded += get(&l->n_done);
		}
		s.arms += get(&d->n_arms);
		s.queries += get(&d->n_queries);
		s.allocations += get(&d->n_allocations);
	}
	s.callbacks = get(&m->bell->rings);
	s.parks = get(&m->n_parks);
	s.wakes = get(&m->n_wakes);
	s.continuations = get(&rt->n_continuations);
	s.allocations += get(&rt->n_allocations) + cufi_slab_chunks(&rt->futures);
	for (unsigned i = 0; i < CUFI_SIZES; i++)
		s.allocations += cufi_slab_chunks(&rt->small[i]);
	s.succeeded += get(&rt->n_succeeded);
	s.failed = get(&rt->n_failed);
	s.cancelled = get(&rt->n_cancelled);
	if (size < sizeof size)
		return;
	memcpy(out_stats, &s, size < sizeof s ? size : sizeof s);
	out_stats->size = size;
}

static const char *state_name(enum cufi_state st)
{
	static const char *const names[] = {
		[CUFI_FREE] = "free",		[CUFI_HELD] = "held",
		[CUFI_BACKLOG] = "backlog",	[CUFI_ENQUEUING] = "enqueuing",
		[CUFI_QUEUED] = "queued",	[CUFI_RUNNING] = "running",
		[CUFI_FOLLOWING] = "following", [CUFI_SETTLING] = "settling",
		[CUFI_SETTLED] = "settled",
	};

	return (unsigned)st < sizeof names / sizeof *names ? names[st] : "?";
}

static void dump_future(void *object, void *arg)
{
	cuf_future *f = object;
	FILE *to = arg;
	uint32_t w = cufi_word(f);
	enum cufi_state st = cufi_state_of(w);
	struct cufi_op *op;
	const char *label;

	if (st == CUFI_FREE || (st == CUFI_SETTLED && w & CUFI_FINISHED) || !cufi_hold_if_alive(f))
		return;
	op = f->op;
	label = cufi_op_label(op);
	fprintf(to, "  %-8s %-9s", op->cls->name, state_name(st));
	if (label)
		fprintf(to, " \"%s\"", label);
	if (op->file)
		fprintf(to, " %s:%d", op->file, op->line);
	if (st == CUFI_QUEUED || st == CUFI_BACKLOG)
		fprintf(to, " device %d lane %u", op->device, f->lane->index);
	if (st == CUFI_QUEUED)
		fprintf(to, " seq %" PRIu64, f->seq);
	if (st == CUFI_HELD)
		/* relaxed: for a person */
		fprintf(to, ", waits for %u",
			atomic_load_explicit(&op->waiting, memory_order_relaxed));
	fputc('\n', to);
	cufi_let_go(f, CUFI_HOLD);
}

void cuf_dump(cuf_runtime *rt, FILE *to)
{
	struct cufi_machine *m;

	if (!rt || !to || cufi_forked(rt))
		return;
	m = rt->machine;
	fprintf(to, "cufuture: backend %s, %" PRIu64 " outstanding\n", m->ops->name,
		get(&rt->outstanding));
	for (int i = 0; i < m->n_devices; i++) {
		struct cufi_device *d = &m->devices[i];
		struct cufi_root *lost = cufi_device_lost_root(d);
		/* acquire: pairs with cufi_lane_add */
		uint32_t n = atomic_load_explicit(&d->n_lanes, memory_order_acquire);

		fprintf(to, "device %d: %s%s%s\n", i, d->info.name, lost ? ", lost: " : "",
			lost ? lost->message : "");
		for (uint32_t k = 0; k < n; k++) {
			struct cufi_lane *l = d->lanes[k];
			uint64_t published = cufi_lane_published(l), done = cufi_lane_completed(l);
			uint64_t backlog = get(&l->backlog_n);

			if (published != done || backlog)
				fprintf(to,
					"  lane %" PRIu32 ": %" PRIu64 " of %" PRIu64
					" ended, backlog %" PRIu64 "\n",
					k, done, published, backlog);
		}
	}
	cufi_slab_walk(&rt->futures, dump_future, to);
}
