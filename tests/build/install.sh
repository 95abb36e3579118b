#!/bin/sh
# What "make install" puts down is enough: a user builds and runs an installed example with it,
# through pkg-config, against the shared library and against the archive.
set -u
. "${srcdir-.}/tests/build/tap.sh"
plan 5
unset MAKEFLAGS MFLAGS MAKELEVEL

prefix=$tmp/root
flags() # pkg-config's arguments
{
	PKG_CONFIG_PATH=$prefix/lib/pkgconfig ${PKG_CONFIG:-pkg-config} \
		--define-variable=prefix="$prefix" --define-variable=exec_prefix="$prefix" \
		--define-variable=libdir="$prefix/lib" --define-variable=includedir="$prefix/include" \
		"$@" cufuture
}

succeeds "make install" ${MAKE-make} install prefix="$prefix" exec_prefix="$prefix" \
	libdir="$prefix/lib" includedir="$prefix/include" datarootdir="$prefix/share" \
	docdir="$prefix/share/doc/cufuture" mandir="$prefix/share/man"
is_empty "pkg-config tells the version" \
	"$([ "$(flags --modversion)" = "$PACKAGE_VERSION" ] || flags --modversion 2>&1)"

compile() # OUTPUT FLAGS…
{
	output=$1
	shift
	cd "$prefix/share/doc/cufuture/examples" &&
		$CC $CFLAGS -o "$output" quickstart.c basic.c $(flags --cflags) "$@"
}

run()
{
	LD_LIBRARY_PATH=$prefix/lib CUF_DEVICE=host "$1"
}

if [ -f "$prefix/lib/libcufuture.so" ]; then
	succeeds "an installed example builds against the shared library" \
		compile "$tmp/shared" $(flags --libs)
	succeeds "and runs" run "$tmp/shared"
else
	skip "shared library" "none was built"
	skip "shared library" "none was built"
fi
if [ -f "$prefix/lib/libcufuture.a" ]; then
	# The archive by name, and of the rest what pkg-config says: -l would take the shared one.
	succeeds "and against the archive" compile "$tmp/static" \
		"$prefix/lib/libcufuture.a" $(flags --static --libs | sed 's/-lcufuture//')
else
	skip "archive" "none was built"
fi
finish
