#!/bin/sh
# The house has storeys: a file of lib/ includes only files of its own storey and of those below,
# storeys 0 to 3 never name a CUDA symbol, and whoever uses the library sees its public headers only.
set -u
. "${srcdir-.}/tests/build/tap.sh"
plan 5

# Storey, then the files in it; a name without a suffix stands for its .c and its .h.
cat >"$tmp/storeys" <<EOT
0 options queue slab state status testpoint wait
1 admission ask begin combine continuation core error future hold loop op promise scope timer
2 device event_pool frontier lane
3 arm choose completer edge enqueuer expect harvest kernel machine op_* pick pinned staging submit
4 device_cuda* device_host/*
5 runtime stats
EOT

storey_of() # FILE, relative to lib/
{
	while read -r storey patterns; do
		set -f
		for pattern in $patterns; do
			case ${1%.[ch]} in
			$pattern) echo "$storey" && set +f && return ;;
			esac
		done
		set +f
	done <"$tmp/storeys"
}

files=$(sources lib | sed 's,^lib/,,')
[ -n "$files" ] || { fail "lib/ has sources" && finish; }

is_empty "every file of lib/ has a storey" "$(for f in $files; do
	[ -n "$(storey_of "$f")" ] || echo "lib/$f: unknown here, give it a line in storeys.sh"
done)"

for f in $files; do
	uncomment <"$srcdir/lib/$f" |
		sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' |
		while read -r included; do
			case $f in
			*/*) [ ! -f "$srcdir/lib/${f%/*}/$included" ] || included=${f%/*}/$included ;;
			esac
			[ ! -f "$srcdir/lib/$included" ] || echo "$f $included"
		done
done >"$tmp/includes"
is_empty "each includes its own storey and those below" "$(while read -r f included; do
	mine=$(storey_of "$f")
	theirs=$(storey_of "$included")
	[ "${theirs:-9}" -le "${mine:-9}" ] ||
		echo "lib/$f (storey $mine) includes $included (storey $theirs)"
done <"$tmp/includes")"

is_empty "storeys 0 to 3 name no CUDA symbol" "$(for f in $files; do
	case $(storey_of "$f") in
	[0-3]) uncomment <"$srcdir/lib/$f" | sed 's/"[^"]*"/""/g' |
		grep -nE '\b(cuda[A-Z]|cu[A-Z][a-z])[A-Za-z]*|cuda_runtime' | sed "s,^,lib/$f:," ;;
	esac
done)"

is_empty "liburcu's queues are reached through lib/queue.h alone" "$(cd "$srcdir" &&
	sources lib tests examples bench | grep -v '^lib/queue\.h$' |
	(cd "$srcdir" && xargs grep -nE '#[[:space:]]*include[[:space:]]*<urcu/.*queue'))"

is_empty "contract tests, examples and kernels see the public headers only" "$(
	sources examples tests/contract kernels | while read -r f; do
		uncomment <"$srcdir/$f" |
			sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' |
			while read -r included; do
				[ ! -f "$srcdir/lib/$included" ] || [ -f "$srcdir/${f%/*}/$included" ] ||
					echo "$f includes $included"
			done
	done)"
finish
