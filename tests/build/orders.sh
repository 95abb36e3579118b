#!/bin/sh
# Every acquire, release, acq_rel, seq_cst and fence in lib/ says what it pairs with, in a comment on
# its line or within the three lines above.
set -u
. "${srcdir-.}/tests/build/tap.sh"

plan 1

is_empty "every written order but relaxed says what it pairs with" "$(for f in $(sources lib); do
	uncomment <"$srcdir/$f" >"$tmp/code"
	awk -v file="$f" '
		NR == FNR { text[FNR] = tolower($0); next }
		/memory_order_(acquire|release|acq_rel|seq_cst|consume)/ || /atomic_thread_fence *\(/ {
			for (i = FNR; i >= FNR - 3 && i > 0; i--)
				if (text[i] ~ /pairs with/)
					next
			print file ":" FNR ": " $0
		}' "$srcdir/$f" "$tmp/code"
done)"
finish
