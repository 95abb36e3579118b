/* SPDX-License-Identifier: MIT */
/*
 * Every status and phase has its own text, everything else has one too, and the version is the one
 * that the package was configured with.
 */
#include <limits.h>

#include "cufuture/base.h"
#include "status.h"
#include "tap.h"

/* The enum from end to end. A status added later moves LAST, and needs its text. */
#define FIRST CUF_PENDING
#define LAST  CUF_ERR_UNSUPPORTED

static bool is_text(const char *s)
{
	size_t n = s ? strlen(s) : 0;

	return n > 1 && s[n - 1] != '.' && s[n - 1] != '\n';
}

static void check_statuses(void)
{
	for (int st = FIRST; st >= LAST; st--) {
		const char *text = cuf_strerror((cuf_status)st);
		bool own = is_text(text) && strcmp(text, "unknown status") != 0;

		for (int other = FIRST; other > st; other--)
			own = own && strcmp(text, cuf_strerror((cuf_status)other)) != 0;
		ok(own, "%d has a text of its own: %s", st, text);
	}
	static const int others[] = { FIRST + 1, LAST - 1, 1000, -1000, INT_MAX, INT_MIN };

	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		is_str(cuf_strerror((cuf_status)others[i]), "unknown status", "%d has none",
		       others[i]);
}

static void check_phases(void)
{
	is_str(cufi_phase_name(CUF_PHASE_SUBMIT), "submit", "submit");
	is_str(cufi_phase_name(CUF_PHASE_ENQUEUE), "enqueue", "enqueue");
	is_str(cufi_phase_name(CUF_PHASE_EXECUTE), "execute", "execute");
	is_str(cufi_phase_name(-1), "unknown phase", "-1 is none");
	is_str(cufi_phase_name(INT_MAX), "unknown phase", "INT_MAX is none");
}

static void check_version(void)
{
	char want[40];

	snprintf(want, sizeof want, "%d.%d.%d", CUF_VERSION_MAJOR, CUF_VERSION_MINOR,
		 CUF_VERSION_PATCH);
	is_str(cuf_version(), want, "library and headers have one version");
#ifdef PACKAGE_VERSION
	is_str(cuf_version(), PACKAGE_VERSION, "the package too");
#else
	skip(1, "not configured");
#endif
}

int main(void)
{
	plan(FIRST - LAST + 1 + 6 + 5 + 2);
	check_statuses();
	check_phases();
	check_version();
	return done();
}
