#!/bin/sh
# Each example prints what its examples/NAME.expected says, and exits with 0. (crc32sum, which needs
# files, has a script of its own.)
set -u
. "${srcdir-.}/tests/build/tap.sh"

run() # NAME
{
	"./examples/$1" >"$tmp/$1" && diff -u "$srcdir/examples/$1.expected" "$tmp/$1"
}

set -- $(echo $EXAMPLES | tr ' ' '\n' | sed 's,.*/,,' | grep -v '^crc32sum$')
plan $#
for name; do
	succeeds "$name" run "$name"
done
finish
