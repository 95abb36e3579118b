#!/bin/bash
# Runs the bundle that this script lies in (make gpu-bundle), on a machine with a GPU: a line for
# each program, then a summary; all output in one log in $OUT, or in ./out.
#
#   run.sh              contract, gpu and stress tests, examples
#   run.sh --sanitizer  the same under compute-sanitizer's memcheck
#   run.sh --bench      the benchmarks
#   run.sh … NAME       only programs whose KIND/NAME holds NAME
#
# CUF_DEVICE (cuda) says on what device, LIMIT (300) how many seconds a program may take.
set -u

here=$(cd "$(dirname "$0")" && pwd)
all=${OUT:-$PWD/out}/gpu-run.log
logs=$(mktemp -d) || exit 1
trap 'rm -rf "$logs"' EXIT
kinds="contract gpu stress examples"
only=
sanitizer=()
limit=${LIMIT:-300}
passed=0 failed=0 skipped=0 programs=0 bad=0

find_sanitizer()
{
	local c
	for c in compute-sanitizer /usr/local/cuda*/bin/compute-sanitizer \
		/opt/cuda*/bin/compute-sanitizer; do
		command -v "$c" && return
	done
	echo "run.sh: compute-sanitizer not found" >&2
	exit 1
}

while [ $# -gt 0 ]; do
	case $1 in
	--sanitizer)
		tool=$(find_sanitizer) || exit 1
		# Errors that a CUDA call returns are the library's to report; tests provoke them.
		sanitizer=("$tool" --tool memcheck --error-exitcode 99 --report-api-errors no)
		limit=${LIMIT:-1200}
		;;
	--bench) kinds=bench ;;
	-*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 2 ;;
	*) only=$1 ;;
	esac
	shift
done

export CUF_DEVICE=${CUF_DEVICE:-cuda}
export TAP_TIMEOUT=${TAP_TIMEOUT:-$limit}
export LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
mkdir -p "${all%/*}" && : >"$all" || exit 1

limited()
{
	timeout -k 5 "$limit" "${sanitizer[@]}" "$@"
}

# example PROGRAM: its output is the one written down; crc32sum agrees with gzip.
example()
{
	local name=${1##*/} status f
	if [ "$name" = crc32sum ]; then
		limited "$1" "$here"/lib/* "$here/run.sh" | grep -v '^=====' >"$logs/got"
		status=${PIPESTATUS[0]}
		for f in "$here"/lib/* "$here/run.sh"; do
			gzip -c <"$f" | tail -c 8 | head -c 4 | od -An -tx1 |
				awk -v f="$f" '{ printf "%s%s%s%s\t%s\n", $4, $3, $2, $1, f }'
		done >"$logs/want"
	else
		limited "$1" | grep -v '^=====' >"$logs/got"
		status=${PIPESTATUS[0]}
		cp "$here/expected/$name.expected" "$logs/want"
	fi
	echo 1..1
	if [ "$status" -eq 0 ] && diff -u "$logs/want" "$logs/got"; then
		echo "ok 1 - output"
	else
		echo "not ok 1 - output (exit status $status)"
		return 1
	fi
}

# run_one KIND PROGRAM: one line, and the counters.
run_one()
{
	local kind=$1 program=$2 name=$1/${2##*/} log status begun tenths p f s plan verdict why=
	log=$logs/$kind-${program##*/}.log
	begun=$(date +%s%N)
	if [ "$kind" = examples ]; then
		example "$program" >"$log" 2>&1
	else
		limited "$program" >"$log" 2>&1
	fi
	status=$?
	{ echo "== $name, exit status $status" && cat "$log" && echo; } >>"$all"
	tenths=$((($(date +%s%N) - begun) / 100000000))
	programs=$((programs + 1))
	if [ "$kind" = bench ]; then
		p=0 f=0 s=0 plan=0
		cat "$log"
	else
		s=$(grep -cE '^(not )?ok\b.*# SKIP' "$log")
		p=$(($(grep -c '^ok\b' "$log") - $(grep -cE '^ok\b.*# SKIP' "$log")))
		f=$(grep -c '^not ok\b' "$log")
		plan=$(sed -n 's/^1\.\.\([0-9]*\).*/\1/p' "$log" | head -n 1)
		if grep -q '^1\.\.0 # SKIP' "$log"; then
			s=1
			why=" ($(sed -n 's/^1\.\.0 # SKIP //p' "$log" | head -n 1))"
		elif [ "${plan:-none}" != $((p + f + s)) ]; then
			why=" (planned ${plan:-nothing}, ran $((p + f + s)))"
			f=$((f + 1))
		fi
	fi
	verdict=ok
	if [ $status -ne 0 ] || [ "$f" -ne 0 ]; then
		verdict=FAILED
		[ "$f" -ne 0 ] || f=1
		[ $status -ne 124 ] || why="$why (over $limit s)"
		[ $status -eq 0 ] || why="$why (exit status $status)"
		bad=$((bad + 1))
	fi
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
	printf '%-32s %-6s %4d passed, %d failed, %d skipped  %4d.%d s%s\n' "$name" $verdict "$p" "$f" \
		"$s" $((tenths / 10)) $((tenths % 10)) "$why"
	[ $verdict = ok ] || grep -vE '^ok\b' "$log" | tail -n 25 | sed 's/^/    /'
}

for kind in $kinds; do
	for program in "$here/$kind"/*; do
		[ -x "$program" ] || continue
		case $kind/${program##*/} in
		*"$only"*) run_one "$kind" "$program" ;;
		esac
	done
done

echo
echo "$programs programs, $bad of them FAILED, on CUF_DEVICE=$CUF_DEVICE; log in $all"
echo "$passed passed, $failed failed, $skipped skipped"
[ $bad -eq 0 ] && [ $programs -gt 0 ]
