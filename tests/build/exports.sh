#!/bin/sh
# What libcufuture.so exports, what the public headers declare and what the export map lists are
# the same names, each in the map's node.
set -u
. "${srcdir-.}/tests/build/tap.sh"

so=.libs/libcufuture.so
[ -f $so ] || skip_all "no shared library was built"
plan 5

for h in "$srcdir"/include/*.h "$srcdir"/include/cufuture/*.h; do
	uncomment <"$h" | grep -v '^[[:space:]]*#' | tr '\n' ' ' | tr ';{}' '\n\n\n' | grep 'CUF_API'
done >"$tmp/declarations"
sed -n 's/.*CUF_API[^(]*[^A-Za-z0-9_]\(cuf_[a-z0-9_]*\)[[:space:]]*(.*/\1/p' \
	"$tmp/declarations" | LC_ALL=C sort >"$tmp/declared"
sed -n 's/^[[:space:]]*\(cuf_[a-z0-9_]*\);.*/\1/p' "$srcdir/lib/libcufuture.map" |
	LC_ALL=C sort >"$tmp/mapped"
${NM-nm} -D --defined-only $so | awk '$2 != "A" { print $3 }' | sed 's/@.*//' |
	LC_ALL=C sort >"$tmp/exported"

is_empty "every CUF_API declaration is a function, declared once" \
	"$([ "$(wc -l <"$tmp/declarations")" -eq "$(LC_ALL=C sort -u "$tmp/declared" | wc -l)" ] ||
		cat "$tmp/declarations")"
is_empty "the export map is in alphabetical order, without wildcards" \
	"$(grep '\*' "$srcdir/lib/libcufuture.map" | grep -v '^	\*;$'
	sed -n 's/^[[:space:]]*\(cuf_[a-z0-9_]*\);.*/\1/p' "$srcdir/lib/libcufuture.map" |
		LC_ALL=C sort -c 2>&1)"
is_empty "the headers declare what the map lists" \
	"$(LC_ALL=C diff "$tmp/declared" "$tmp/mapped" | sed -n 's/^</header:/p; s/^>/map:/p')"
is_empty "the library exports what the map lists" \
	"$(LC_ALL=C diff "$tmp/exported" "$tmp/mapped" | sed -n 's/^</library:/p; s/^>/map:/p')"
is_empty "every exported symbol has a version" \
	"$(${NM-nm} -D --defined-only $so | awk '$2 != "A"' | grep -v '@@CUFUTURE_[0-9.]*$')"
finish
