/* SPDX-License-Identifier: MIT */
/*
 * The benchmark: ours and the raw version of the same work in turn, in one run, medians and ratios.
 */
#ifndef BENCH_H
#define BENCH_H

#include <cufuture.h>
#include <stdbool.h>

/* ---- the raw side: what a good CUDA programmer would write; raw.c ---- */

struct raw_stream;
struct raw_event;

/* False: no GPU, or built without CUDA. Uses the primary context of device 0, as the library does. */
bool raw_open(void);
struct raw_stream *raw_stream_create(void);
struct raw_event *raw_event_create(void);
void raw_launch_empty(struct raw_stream *s);
void raw_launch_spin(struct raw_stream *s, uint64_t ns);
void raw_record(struct raw_event *e, struct raw_stream *s);
void raw_wait(struct raw_stream *s, struct raw_event *e);
bool raw_done(struct raw_event *e);
void raw_sync(struct raw_stream *s);
/* Enqueues a host function that sets *flag. */
void raw_flag(struct raw_stream *s, volatile int *flag);

/* ---- measuring ---- */

#define BENCH_REPS 15 /* odd: the median is one of them */

struct series {
	double ns[BENCH_REPS]; /* for each operation */
	int n;
};

static inline void series_add(struct series *s, uint64_t from_ns, size_t operations)
{
	s->ns[s->n++] = (double)(cuf_now_ns() - from_ns) / (double)operations;
}

double series_median(const struct series *s);

/* A line of the table: @what took @ours; the ratio to @raw if that is not NULL; @bound 0 is none. */
void report(const char *what, const struct series *ours, const struct series *raw, double bound);
/* A figure of its own kind. */
void report_value(const char *what, double value, const char *unit, double bound);

/* The time of one uncontended compare-and-swap: the unit of host-side figures. */
double bench_cas_ns(void);

/* ---- the benchmarks ---- */

struct bench {
	cuf_runtime *rt;
	bool raw; /* the raw side is there */
};

void bench_chain(struct bench *b);
void bench_host(struct bench *b);
void bench_memory(struct bench *b);
void bench_latency(struct bench *b);

#endif
