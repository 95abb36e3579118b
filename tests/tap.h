/* SPDX-License-Identifier: MIT */
/*
 * The Test Anything Protocol for our tests: a plan first, then one point for each ok(), is_…() and
 * skipped check, from any thread. done() is main's exit status. plan() starts a watchdog, since
 * asynchronous bugs hang: after TAP_TIMEOUT seconds (60; 0 for none) it names the last point and
 * aborts. Include in one file of a program: its state is static.
 */
#ifndef TAP_H
#define TAP_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* clang-format off */
#define TAP_BOOL_OR_INT_(x) _Generic((x), bool: (x), int: (x))
/* clang-format on */

/* ok(condition, name format, …): takes bool or int alone, so that no string can pass for ever. */
#define ok(condition, ...) \
	tap_ok_(TAP_BOOL_OR_INT_(condition), #condition, __FILE__, __LINE__, __VA_ARGS__)
#define is_int(got, want, ...) tap_is_int_((got), (want), __FILE__, __LINE__, __VA_ARGS__)
#define is_str(got, want, ...) tap_is_str_((got), (want), __FILE__, __LINE__, __VA_ARGS__)
#define is_ptr(got, want, ...) tap_is_ptr_((got), (want), __FILE__, __LINE__, __VA_ARGS__)

/* Written under the lock. */
static struct {
	pthread_mutex_t lock;
	int planned, run, failed;
	char last[160]; /* the name of the last point, for the watchdog */
	pthread_t watchdog;
	pthread_cond_t wake; /* done() to the watchdog */
	bool watched, over;
} tap_ = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void tap_comment_(const char *fmt, va_list ap)
{
	char text[2048], *line = text, *rest;

	vsnprintf(text, sizeof text, fmt, ap);
	while ((line = strtok_r(line, "\n", &rest))) {
		printf("# %s\n", line);
		line = NULL;
	}
	fflush(stdout);
}

__attribute__((format(printf, 1, 2))) static inline void diag(const char *fmt, ...)
{
	va_list ap;

	pthread_mutex_lock(&tap_.lock);
	va_start(ap, fmt);
	tap_comment_(fmt, ap);
	va_end(ap);
	pthread_mutex_unlock(&tap_.lock);
}

__attribute__((format(printf, 1, 2))) static inline void tap_comment_locked_(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	tap_comment_(fmt, ap);
	va_end(ap);
}

static void *tap_watch_(void *arg)
{
	long seconds = *(long *)arg;
	struct timespec deadline;

	free(arg);
	clock_gettime(CLOCK_MONOTONIC, &deadline);
	deadline.tv_sec += seconds;
	pthread_mutex_lock(&tap_.lock);
	while (!tap_.over) {
		if (pthread_cond_timedwait(&tap_.wake, &tap_.lock, &deadline) != ETIMEDOUT)
			continue;
		tap_comment_locked_("watchdog: %ld s are over; last was test %d%s%s", seconds,
				    tap_.run, *tap_.last ? " - " : "", tap_.last);
		abort();
	}
	pthread_mutex_unlock(&tap_.lock);
	return NULL;
}

static void tap_start_watchdog_(void)
{
	const char *env = getenv("TAP_TIMEOUT");
	long *seconds = malloc(sizeof *seconds);
	pthread_condattr_t clock;
	sigset_t all, before;

	if (!seconds)
		abort();
	*seconds = env ? atol(env) : 60;
	if (*seconds <= 0) {
		free(seconds);
		return;
	}
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&tap_.wake, &clock);
	pthread_condattr_destroy(&clock);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&tap_.watchdog, NULL, tap_watch_, seconds))
		abort();
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	tap_.watched = true;
}

static inline void plan(int points)
{
	printf("1..%d\n", points);
	fflush(stdout);
	tap_.planned = points;
	tap_start_watchdog_();
}

__attribute__((format(printf, 1, 2), noreturn)) static inline void plan_skip_all(const char *fmt,
										 ...)
{
	va_list ap;

	printf("1..0 # SKIP ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	exit(0);
}

/* Called locked. A '#' in a name would begin a directive, a new line the next point. */
static void tap_point_(bool passed, const char *directive, const char *fmt, va_list ap)
{
	vsnprintf(tap_.last, sizeof tap_.last, fmt, ap);
	for (char *c = tap_.last; *c; c++)
		if (*c == '#' || *c == '\n')
			*c = ' ';
	printf("%s %d - %s%s\n", passed ? "ok" : "not ok", ++tap_.run, tap_.last, directive);
	fflush(stdout);
	if (!passed)
		tap_.failed++;
}

__attribute__((format(printf, 5, 6))) static inline bool
tap_ok_(int passed, const char *condition, const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	pthread_mutex_lock(&tap_.lock);
	va_start(ap, fmt);
	tap_point_(passed, "", fmt, ap);
	va_end(ap);
	if (!passed)
		tap_comment_locked_("%s:%d: %s", file, line, condition);
	pthread_mutex_unlock(&tap_.lock);
	return passed;
}

__attribute__((format(printf, 5, 6))) static inline bool
tap_is_int_(long long got, long long want, const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	pthread_mutex_lock(&tap_.lock);
	va_start(ap, fmt);
	tap_point_(got == want, "", fmt, ap);
	va_end(ap);
	if (got != want)
		tap_comment_locked_("%s:%d: got %lld, want %lld", file, line, got, want);
	pthread_mutex_unlock(&tap_.lock);
	return got == want;
}

__attribute__((format(printf, 5, 6))) static inline bool
tap_is_str_(const char *got, const char *want, const char *file, int line, const char *fmt, ...)
{
	bool same = got && want ? strcmp(got, want) == 0 : got == want;
	va_list ap;

	pthread_mutex_lock(&tap_.lock);
	va_start(ap, fmt);
	tap_point_(same, "", fmt, ap);
	va_end(ap);
	if (!same) {
		tap_comment_locked_("%s:%d: got  %s", file, line, got ? got : "(null)");
		tap_comment_locked_("%s:%d: want %s", file, line, want ? want : "(null)");
	}
	pthread_mutex_unlock(&tap_.lock);
	return same;
}

__attribute__((format(printf, 5, 6))) static inline bool
tap_is_ptr_(const void *got, const void *want, const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	pthread_mutex_lock(&tap_.lock);
	va_start(ap, fmt);
	tap_point_(got == want, "", fmt, ap);
	va_end(ap);
	if (got != want)
		tap_comment_locked_("%s:%d: got %p, want %p", file, line, got, want);
	pthread_mutex_unlock(&tap_.lock);
	return got == want;
}

/* Counts @points as skipped. */
__attribute__((format(printf, 2, 3))) static inline void skip(int points, const char *fmt, ...)
{
	char reason[120], directive[140];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(reason, sizeof reason, fmt, ap);
	va_end(ap);
	snprintf(directive, sizeof directive, " # SKIP %s", reason);
	pthread_mutex_lock(&tap_.lock);
	while (points-- > 0) {
		printf("ok %d%s\n", ++tap_.run, directive);
		fflush(stdout);
	}
	pthread_mutex_unlock(&tap_.lock);
}

/* Stops the watchdog. The exit status: 0 if as many points as planned ran and none failed. */
static inline int done(void)
{
	int status;

	pthread_mutex_lock(&tap_.lock);
	tap_.over = true;
	if (tap_.run != tap_.planned)
		tap_comment_locked_("planned %d, ran %d", tap_.planned, tap_.run);
	if (tap_.failed)
		tap_comment_locked_("failed %d of %d", tap_.failed, tap_.run);
	status = tap_.failed || tap_.run != tap_.planned;
	if (tap_.watched)
		pthread_cond_signal(&tap_.wake);
	pthread_mutex_unlock(&tap_.lock);
	if (tap_.watched)
		pthread_join(tap_.watchdog, NULL);
	return status;
}

#endif
