/* SPDX-License-Identifier: MIT */
/*
 * cufbench [NAME...]: runs the benchmarks named, or all. Prints a table: nanoseconds for each
 * operation (median of 15 repetitions, our turn and the raw one in alternation), the spread from the
 * first to the last decile, and the ratio to the raw version of the same work in the same run.
 */
#include "bench.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double quantile(const struct series *s, double q)
{
	double sorted[BENCH_REPS];

	memcpy(sorted, s->ns, sizeof sorted);
	qsort(sorted, (size_t)s->n, sizeof *sorted, by_value);
	return sorted[(size_t)(q * (s->n - 1) + 0.5)];
}

double series_median(const struct series *s)
{
	return quantile(s, 0.5);
}

void report(const char *what, const struct series *ours, const struct series *raw, double bound)
{
	printf("%-46s %9.0f ns  (%.0f to %.0f)", what, quantile(ours, 0.5), quantile(ours, 0.1),
	       quantile(ours, 0.9));
	if (raw && raw->n) {
		double ratio = quantile(ours, 0.5) / quantile(raw, 0.5);

		printf("  raw %9.0f ns  ratio %5.2f", quantile(raw, 0.5), ratio);
		if (bound > 0)
			printf("  bound %.2f %s", bound, ratio <= bound ? "met" : "MISSED");
	}
	putchar('\n');
	fflush(stdout);
}

void report_value(const char *what, double value, const char *unit, double bound)
{
	printf("%-46s %9.1f %s", what, value, unit);
	if (bound > 0)
		printf("  bound %.0f %s", bound, value <= bound ? "met" : "MISSED");
	putchar('\n');
	fflush(stdout);
}

double bench_cas_ns(void)
{
	_Atomic uint64_t word = 0;
	uint64_t from = cuf_now_ns(), seen = 0;
	enum { N = 1000000 };

	for (int i = 0; i < N; i++) {
		atomic_compare_exchange_strong(&word, &seen, seen + 1);
		seen = (uint64_t)i + 1;
	}
	return (double)(cuf_now_ns() - from) / N;
}

static const struct {
	const char *name;
	void (*run)(struct bench *b);
} benches[] = {
	{ "chain", bench_chain },
	{ "latency", bench_latency },
	{ "host", bench_host },
	{ "memory", bench_memory },
};

int main(int argc, char **argv)
{
	struct bench b = { 0 };
	cuf_status st = cuf_runtime_create(&b.rt, NULL);

	if (st) {
		fprintf(stderr, "cufbench: %s\n", cuf_strerror(st));
		return 1;
	}
	b.raw = raw_open();
	printf("compare-and-swap %.1f ns; %s\n", bench_cas_ns(),
	       b.raw ? "raw side: cudart" : "no raw side here (no GPU): no ratios");
	for (size_t i = 0; i < sizeof benches / sizeof *benches; i++) {
		bool wanted = argc < 2;

		for (int k = 1; k < argc; k++)
			wanted |= !strcmp(argv[k], benches[i].name);
		if (wanted)
			benches[i].run(&b);
	}
	cuf_runtime_destroy(b.rt);
	return 0;
}
