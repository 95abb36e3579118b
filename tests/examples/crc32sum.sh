#!/bin/sh
# examples/crc32sum, the main job: eight hex digits, a tab and the name for each file, as in the
# trailer that gzip writes; an unreadable file is told on stderr and the others go on. And what
# becomes of it when files change meanwhile, or the device fails.
set -u
. "${srcdir-.}/tests/build/tap.sh"

chunk=4194304 # CHUNK in crc32sum.c
sizes="0 1 4095 4096 4097 16383 16384 16385 65535 65536 65537
	$((chunk - 1)) $chunk $((chunk + 1)) $((3 * chunk + 5))"
faults="1 2 3 4 5 6 7 8 9 10 12 15 20 30 50 80"       # the how many-th operation
calls="1 20 70 78 82 86 90 94 98 102 106 110 120 130 150 180" # some 80 are made at the start
plan $((15 + 7 + 12 + 3 + 16 + 16 + 1))

crc32sum=$PWD/examples/crc32sum
faulty=$PWD/tests/examples/crc32sum_fault
cd "$tmp" || exit 1
awk 'BEGIN { for (i = 0; i < 2000000; i++) print i * 7919 % 1000003 }' >numbers

crc_of() # FILE [NAME]: from gzip's trailer, which holds it in little-endian order
{
	cat "$1" | gzip -1c | tail -c 8 | head -c 4 | od -An -tx1 |
		awk '{ printf "%s%s%s%s\t%s\n", $4, $3, $2, $1, file }' file="${2-$1}"
}

# sums NAME STATUS ARGUMENTS…: crc32sum prints what is in the file want, and exits with STATUS.
sums()
{
	tap_name=$1
	wanted=$2
	shift 2
	"$crc32sum" "$@" >got 2>err
	status=$?
	same
}

same() # $tap_name $wanted $status
{
	if [ $status -eq "$wanted" ] && cmp -s want got; then
		pass "$tap_name"
	else
		fail "$tap_name"
		diag "exit status $status, not $wanted
$(diff want got | head -n 20)
$(head -n 20 err)"
	fi
}

# ---- sizes ----

for size in $sizes; do
	head -c "$size" numbers >"of-$size"
	crc_of "of-$size" >"crc-$size"
	cp "crc-$size" want
	sums "$size bytes" 0 "of-$size"
done

# ---- several files ----

for size in $sizes; do cat "crc-$size"; done >want
sums "several files, in the order given" 0 $(for size in $sizes; do echo "of-$size"; done)

echo a name >'a name with  blanks'
for f in 'a name with  blanks' of-1 of-1 ./of-1 "$tmp/of-1"; do crc_of "$f"; done >want
sums "names as given" 0 'a name with  blanks' of-1 of-1 ./of-1 "$tmp/of-1"

mkdir many
for i in 0 1 2 3 4 5 6 7 8 9; do
	for k in 0 1 2 3 4 5 6 7 8 9; do echo "$i$k" >"many/$i$k"; done
done
for f in many/*; do crc_of "$f"; done >want
sums "many small files" 0 many/*

crc_of of-1 >want
crc_of of-4097 >>want
sums "missing files do not stop the others" 1 missing of-1 missing/too of-4097 gone
echo "crc32sum: missing: No such file or directory
crc32sum: missing/too: No such file or directory
crc32sum: gone: No such file or directory" >want
succeeds "and are told, in the order given" diff want err

crc_of of-1 >want
sums "nor does a directory" 1 many of-1
if [ "$(id -u)" -eq 0 ]; then
	skip "nor a file without permission" "root may read everything"
else
	cp of-1 secret && chmod 0 secret
	sums "nor a file without permission" 1 secret of-1
fi

# ---- what is no file ----

crc_of numbers - >want
sums "standard input, a file" 0 <numbers
sums "standard input, by its name" 0 - <numbers
cat numbers | "$crc32sum" >got 2>err
status=$? wanted=0 tap_name="standard input, a pipe"
same
{ crc_of of-1 && crc_of of-16385 - && crc_of of-4096; } >want
sums "standard input among others" 0 of-1 - of-4096 <of-16385
tail -c +100001 numbers >rest
crc_of rest - >want
{ dd bs=100000 count=1 of=/dev/null 2>err && "$crc32sum" >got 2>err; } <numbers
status=$? tap_name="standard input, from where it stands"
same
mkfifo pipe
timeout 60 sh -c 'cat of-16385 numbers >pipe' & # nobody may open it, if things are bad
{ crc_of of-1 && { cat of-16385 numbers | crc_of - pipe; }; } >want
sums "a named pipe" 0 of-1 pipe
if [ -r /proc/version ]; then
	crc_of /proc/version >want
	sums "a file that says it is empty" 0 /proc/version
else
	skip "a file that says it is empty" "no /proc/version"
fi

crc_of /dev/null - >want
if [ -w /dev/full ]; then
	"$crc32sum" of-1 >/dev/full 2>err
	is_empty "a full disk: exit status 1" "$(s=$?; [ $s -eq 1 ] || echo $s)"
	succeeds "a full disk is told" grep -q "cannot write: No space left" err
else
	skip "a full disk: exit status 1" "no /dev/full"
	skip "a full disk is told" "no /dev/full"
fi
"$crc32sum" of-1 >&- 2>err
is_empty "closed output: exit status 1" "$(s=$?; [ $s -eq 1 ] || echo $s)"
"$crc32sum" - <&- >got 2>err
is_empty "closed input: exit status 1" "$(s=$?; [ $s -eq 1 ] || echo $s)"
"$crc32sum" --help >got
is_empty "--help" "$(s=$?; [ $s -eq 0 ] && head -n 1 got | grep -q '^Usage: crc32sum' || echo $s)"

# ---- files that change while they are read ----

truncate -s $((5 * chunk + 5)) grows shrinks
"$faulty" truncate $((6 * chunk)) "" grows >got 2>err
status=$? wanted=0 tap_name="a file that grows is read to its end"
crc_of grows >want
same
"$faulty" truncate $((2 * chunk)) "" shrinks >got 2>err
status=$? wanted=1 tap_name="a file that shrinks has no sum"
: >want
same
succeeds "and is told" grep -q '^crc32sum: shrinks: shrank' err

# ---- a device that fails ----

# survives WHAT KTH CODE: either nothing came of it and the sums are right, or no wrong one is
# printed, and it ends with status 2 and says why.
survives()
{
	"$faulty" "$@" "of-$((3 * chunk + 5))" of-1 >got 2>err
	status=$?
	cat "crc-$((3 * chunk + 5))" crc-1 >want
	why=
	case $status in
	0) cmp -s want got || why="wrong sums: $(cat got)" ;;
	2)
		grep -qE "cannot start|no page-locked memory|CUDA code $3" err ||
			why="no root cause: $(cat err)"
		;;
	*) why="exit status $status: $(cat err)" ;;
	esac
	[ -z "$(grep -vxFf want got)" ] || why="wrong sums: $(cat got)"
	is_empty "$1 $2: exit status $status" "$why"
}

for k in $faults; do survives fault $k 700; done
for k in $calls; do survives fail $k 2; done

# A reader that waits for a pipe does not keep a dead device's error back.
mkfifo slow
timeout 60 sh -c 'exec >slow; cat of-65537 of-65537; exec sleep 60' &
writer=$!
timeout 30 "$faulty" fault 2 700 slow >got 2>err
status=$?
kill $writer
: >want
wanted=2 tap_name="a dead device ends it though a pipe is waited for"
same
finish
