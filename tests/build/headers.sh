#!/bin/sh
# Each public header compiles alone and twice, in C11 and in C++17, without a warning.
set -u
. "${srcdir-.}/tests/build/tap.sh"

headers=$(cd "$srcdir/include" && echo *.h cufuture/*.h)
for cxx in "${CXX-g++}" clang++ none; do
	[ "$cxx" = none ] || ! command -v "$cxx" >/dev/null || break
done

compiles() # HEADER LANGUAGE COMPILER FLAGS…
{
	printf '#include <%s>\n#include <%s>\n' "$1" "$1" >"$tmp/alone.$2"
	shift
	language=$1
	shift
	"$@" -Wall -Wextra -Wpedantic -Wundef -Werror -I"$srcdir/include" ${CUDA_CPPFLAGS-} \
		-fsyntax-only "$tmp/alone.$language"
}

set -- $headers
plan $((2 * $# + 2))
for h; do
	succeeds "$h alone in C11" compiles "$h" c ${CC-cc} -std=c11
	if [ "$cxx" = none ]; then
		skip "$h alone in C++17" "no C++ compiler"
	else
		succeeds "$h alone in C++17" compiles "$h" cc "$cxx" -std=c++17
	fi
done

# tap.h keeps its promise: ok() refuses what would pass for ever.
for value in '"text"' '(void *)0'; do
	printf '#include "tap.h"\nint main(void) { plan(1); ok(%s, "x"); return done(); }\n' \
		"$value" >"$tmp/refused.c"
	if ${CC-cc} -std=gnu11 -fsyntax-only -I"$srcdir/tests" "$tmp/refused.c" 2>/dev/null; then
		fail "ok() refuses $value"
	else
		pass "ok() refuses $value"
	fi
done
finish
