#!/bin/sh
# Rooms stay pleasant: at most 700 lines a file. Each names its licence first,
# and the Makefile lists it, so that none is left out of the build or of a release.
set -u
. "${srcdir-.}/tests/build/tap.sh"
plan 3

files=$(sources include lib kernels examples tests bench)
cd "$srcdir" || exit 1
is_empty "no file is over 700 lines" "$(for f in $files; do
	awk -v f="$f" 'END { if (NR > 700) print f ": " NR " lines" }' "$f"
done)"
is_empty "the first line names the licence" "$(for f in $files; do
	[ "$(head -n 1 "$f")" = '/* SPDX-License-Identifier: MIT */' ] || echo "$f"
done)"
is_empty "Makefile.am lists every file" "$(for f in $files; do
	grep -qE "(^|[[:space:]])${f%.c}(\.c)?([[:space:]]|$)" Makefile.am || echo "$f"
done)"
finish
