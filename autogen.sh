#!/bin/sh
# Makes configure and the Makefile.in from a git checkout. A release tarball has them already.
set -e
cd "$(dirname "$0")"
exec autoreconf --force --install
