#!/bin/sh
# make gpu-bundle: gathers in the folder $1 all that a GPU machine needs to run the tests, examples and
# benchmarks: programs linked statically with the library, and beside them the shared libraries they
# need but for the C library's own. The Makefile gives the lists in the environment.
set -eu

out=$1
rm -rf "$out"
mkdir -p "$out/lib" "$out/expected"

link() # KIND LIBRARIES PROGRAMS…
{
	kind=$1
	libs=$2
	shift 2
	mkdir -p "$out/$kind"
	for program; do
		$LINK -o "$out/$kind/${program##*/}" "$program.o" $libs -Wl,--as-needed $zlib_libs
	done
}

link contract "$public_libs" $contract
link gpu "$internal_libs" $gpu
link stress "$internal_libs" $stress
link examples "$public_libs" $examples
mkdir -p "$out/bench"
$LINK -o "$out/bench/cufbench" $bench_objects $public_libs -Wl,--as-needed
cp "$srcdir"/examples/*.expected "$out/expected/"
cp "$srcdir/tools/gpu-run.sh" "$out/run.sh"
chmod 755 "$out/run.sh"

find "$out" -type f -perm -u+x ! -name '*.sh' -exec ldd {} \; |
	awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u | while read -r so; do
	case ${so##*/} in
	libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | libgcc_s.so.* | ld-linux*) ;;
	*) cp -L "$so" "$out/lib/" ;;
	esac
done

# The library opens libcudart itself, so ldd does not know of it. By its soname: one of two or three
# links to the same file.
for so in "$CUDART_DIR"/libcudart.so.*; do
	case ${so##*/} in
	*.so.*.*) ;;
	*) [ ! -f "$so" ] || cp -L "$so" "$out/lib/" ;;
	esac
done
du -sh "$out"
