#!/bin/sh
# clang-format 14 would change nothing. (Other versions disagree in details, so only 14 counts.)
set -u
. "${srcdir-.}/tests/build/tap.sh"

for format in clang-format-14 clang-format none; do
	case $($format --version 2>/dev/null) in *"version 14."*) break ;; esac
done
[ $format != none ] || skip_all "no clang-format 14"

plan 1
is_empty "clang-format would change nothing" "$(cd "$srcdir" &&
	for f in $(srcdir=. && sources include lib kernels examples tests bench); do
		$format --style=file "$f" | diff -u "$f" -
	done)"
finish
