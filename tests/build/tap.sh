# TAP for scripts: sourced after "set -u". plan N; then one of pass, fail, skip, is_empty for each
# point; finish at the end. $tmp is a directory of the script's own.

srcdir=${srcdir-.}
tap_run=0
tap_failed=0
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

plan()
{
	tap_planned=$1
	echo "1..$1"
}

skip_all()
{
	echo "1..0 # SKIP $*"
	exit 0
}

pass()
{
	tap_run=$((tap_run + 1))
	echo "ok $tap_run - $*"
}

fail()
{
	tap_run=$((tap_run + 1))
	tap_failed=$((tap_failed + 1))
	echo "not ok $tap_run - $*"
}

# skip NAME REASON
skip()
{
	tap_run=$((tap_run + 1))
	echo "ok $tap_run - $1 # SKIP $2"
}

diag()
{
	echo "$*" | sed 's/^/# /'
}

# is_empty NAME TEXT: passes if there is nothing in TEXT, which lists what is wrong.
is_empty()
{
	if [ -z "$2" ]; then
		pass "$1"
	else
		fail "$1"
		diag "$2"
	fi
}

# succeeds NAME COMMAND…: passes if the command does, and shows its output if not.
succeeds()
{
	tap_name=$1
	shift
	if "$@" >"$tmp/output" 2>&1; then
		pass "$tap_name"
	else
		fail "$tap_name"
		sed 's/^/# /' "$tmp/output"
	fi
}

finish()
{
	[ $tap_run -eq "$tap_planned" ] || diag "planned $tap_planned, ran $tap_run"
	[ $tap_run -eq "$tap_planned" ] && [ $tap_failed -eq 0 ]
	exit
}

# The C sources of the given directories of the source tree, generated ones left out.
sources()
{
	(cd "$srcdir" && for d in "$@"; do
		[ ! -d "$d" ] || find "$d" -name '*.[ch]' -o -name '*.cu'
	done | grep -v '\.fatbin\.h$' | LC_ALL=C sort)
}

# Standard input with C comments blanked, line for line.
uncomment()
{
	awk '{
		out = ""
		line = $0
		while (line != "") {
			if (inside) {
				if (!(end = index(line, "*/")))
					break
				line = substr(line, end + 2)
				inside = 0
			} else if (match(line, /"([^"\\]|\\.)*"|\/\*|\/\//)) {
				found = substr(line, RSTART, RLENGTH)
				out = out substr(line, 1, RSTART - 1)
				line = substr(line, RSTART + RLENGTH)
				if (found == "//")
					line = ""
				else if (found == "/*")
					inside = 1
				else
					out = out found
			} else {
				out = out line
				line = ""
			}
		}
		print out
	}'
}
