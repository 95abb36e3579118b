#!/bin/sh
# The README's first C program is examples/quickstart.c, to the letter.
set -u
. "${srcdir-.}/tests/build/tap.sh"
plan 2

awk '/^```c$/ { inside = 1; next } /^```$/ && inside { exit } inside' "$srcdir/README.md" \
	>"$tmp/program.c"
succeeds "README.md shows examples/quickstart.c" \
	diff "$tmp/program.c" "$srcdir/examples/quickstart.c"
is_empty "README.md stays under 200 lines" \
	"$(awk 'END { if (NR >= 200) print NR " lines" }' "$srcdir/README.md")"
finish
