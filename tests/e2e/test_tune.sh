#!/usr/bin/env bash
# winnow tune: predicted bytes against those that a traced job counts, from files, traces and patterns; the best block;
# the picture; what it refuses; a full disk under a trace.
# late: it counts bytes, of which a busy machine sends some again
. "$(dirname "$0")/lib.sh"
w=$BUILD/winnow

# Gradients of four workers, as raw elements: a bias of 300, then an embedding of 4,000 rows of 96 of which 5 % are touched.
# And for winnow bench, which blocks of so many elements are non-zero there.
python3 - "$tmp" <<'END'
import array, random, sys
rows = 4000
for rank in range(4):
    draw = random.Random(rank)
    touched = set(draw.sample(range(rows), 200))
    table = [draw.random() + 1 if i // 96 in touched else 0 for i in range(rows * 96)]
    flat = [draw.random() + 1 for _ in range(300)] + table
    array.array("f", flat).tofile(open(f"{sys.argv[1]}/flat.{rank}", "wb"))
    array.array("f", table).tofile(open(f"{sys.argv[1]}/table.{rank}", "wb"))
    array.array("H", [0x3C00 if x else 0 for x in table]).tofile(open(f"{sys.argv[1]}/half.{rank}", "wb"))
    for name, tensor in ("flat", flat), ("table", table):
        for block in 32, 96, 128, 1024:
            bits = bytearray(len(tensor) // block // 8 + 1)
            for i, x in enumerate(tensor):
                if x:
                    bits[i // block // 8] |= 1 << i // block % 8
            open(f"{sys.argv[1]}/{name}.{rank}.{block}.bits", "wb").write(bits)
END
files=("$tmp"/flat.?)
tables=("$tmp"/table.?)

tune() { # FILE arg..: into the file
	"$w" tune --json "${@:2}" >"$1" 2>"$tmp/tune.err" || fail "tune ${*:2} ends with $?: $(cat "$tmp/tune.err")"
}
# Losses (a busy machine) are not foreseen: then again.
agrees() { # block, bench's args.. [-- what tune is to predict it from]
	local block=$1 i job=()
	shift
	while [ $# -gt 0 ] && [ "$1" != -- ]; do job+=("$1") && shift; done
	for i in 1 2 3 4 5 6; do
		rm -rf "$tmp/trace"
		WINNOW_TRACE=$tmp/trace "$w" bench "${job[@]}" --block "$block" >"$tmp/traced.log" || fail "bench ${job[*]}: $(cat "$tmp/traced.log")"
		tune "$tmp/traced.json" "$tmp/trace" --blocks "$block"
		[ $# = 0 ] || tune "$tmp/predicted.json" "${@:2}" --blocks "$block" --mtu $(($(json "$tmp/traced.json" payload) + 28))
		python3 tests/e2e/tune_within.py "$tmp/traced.json" ${1:+"$tmp/predicted.json"} >"$tmp/within.log" && return 0
	done
	fail "bench ${job[*]} --block $block: not within 2 %: $(cat "$tmp/within.log")"
}

for block in 32 96 128 1024; do
	agrees $block --local 4 --size $((384300 * 4)) --overlap "file:$tmp/flat.%r.$block.bits" --iters 5 -- "${files[@]}"
done
agrees 96 --local 4 --size $((384000 * 4)) --overlap "file:$tmp/table.%r.96.bits" --payload 1472 --iters 5 -- "${tables[@]}"
agrees 96 --local 2 --size $((384000 * 2)) --dtype f16 --overlap "file:$tmp/table.%r.96.bits" --iters 5 -- "$tmp/half.0" "$tmp/half.1" --dtype f16
for block in 16 64 256; do
	agrees $block --local 3 --size 4M --density 0.02 --overlap all --iters 5 -- --size 4M --world 3 --density 0.02 --unit "$block" --overlap all
done
agrees 32 --local 2 --size 20K --density 0.5 --iters 60 -- --size 20K --world 2 --density 0.5 --unit 32
agrees 1000 --local 2 --size 4M --dtype i64 --density 1 --iters 5 -- --size 4M --world 2 --dtype i64 --density 1

# What is best: rows; a ring where nothing is zero.
tune "$tmp/a.json" "${tables[@]}" --rate 1G --unit 96
[ "$(json "$tmp/a.json" best)" = 96 ] || fail "a table's rows are not the best blocks: $(json "$tmp/a.json" best)"
"$w" tune "${tables[@]}" --rate 1G --unit 96 >"$tmp/a.log" || fail "a table"
[ "$(grep -c '^\*  *96 ' "$tmp/a.log")$(grep -cE '^Best: block 96, [0-9.]+ms per operation. A ring allreduce would take 18.4ms.$' "$tmp/a.log")" = 11 ] ||
	fail "the best is not marked: $(cat "$tmp/a.log")"
tune "$tmp/a.json" --size 4M --density 1 --world 4 --rate 1G
python3 - "$tmp/a.json" <<'END' || fail "dense: $(cat "$tmp/a.json")"
import json, sys
got = json.load(open(sys.argv[1]))
assert got["ring_us"] < min(row["predicted_us"] for row in got["rows"])
best = next(row for row in got["rows"] if row["best"])
assert best["block"] == got["best"] and best["density"] == best["union"] == 1
for value in got["bytes"], got["rate_bit_s"], best["sent"]["bytes"], best["received"]["header_bytes"]:
    assert type(value) is int, value
END

# The picture.
if command -v gnuplot >/dev/null; then
	"$w" tune --size 1M --plot "$tmp/a.png" >/dev/null || fail "--plot PNG"
	[ "$(head -c 4 "$tmp/a.png" | tail -c 3)" = PNG ] || fail "the PNG is none"
	"$w" tune --size 1M --plot "$tmp/a.svg" >/dev/null || fail "--plot SVG"
	python3 -c 'import sys, xml.dom.minidom as m; text = m.parse(sys.argv[1]).toxml(); assert "best block 256" in text and "predicted" in text and "a ring" in text' \
		"$tmp/a.svg" || fail "the SVG"
fi
mkdir "$tmp/bin"
refuses 1 'cannot draw .*b.png without gnuplot: apt-get install gnuplot-nox' env PATH="$tmp/bin" "$w" tune --size 1M --plot "$tmp/b.png"
printf '#!/bin/sh\nexit 3\n' >"$tmp/bin/gnuplot"
chmod +x "$tmp/bin/gnuplot"
refuses 1 'cannot draw .*b.png: gnuplot failed with exit status 3' env PATH="$tmp/bin" "$w" tune --size 1M --plot "$tmp/b.png"
[ ! -e "$tmp/b.png" ] || fail "a picture that is none stays"
echo older >"$tmp/b.png"
refuses 1 'gnuplot failed with exit status 3' env PATH="$tmp/bin" "$w" tune --size 1M --plot "$tmp/b.png"
[ "$(cat "$tmp"/b.png*)" = older ] || fail "a picture that could not be drawn has taken the place of another"
no_disk() { # Nothing can be written but to pipes.
	(trap '' XFSZ && ulimit -f 0 && "$w" tune --size 1M --plot "$tmp/c.svg") 2>&1 | cat >"$tmp/no_disk.log"
	return "${PIPESTATUS[0]}"
}
got=0
no_disk || got=$?
[ "$got" = 1 ] || fail "no script for gnuplot: exit status $got: $(cat "$tmp/no_disk.log")"
grep -q 'cannot write a temporary file: File too large' "$tmp/no_disk.log" || fail "no script for gnuplot: $(cat "$tmp/no_disk.log")"
[ ! -e "$tmp/c.svg" ] || fail "a picture of no script"

# A trace, whose bits are finer than its job's blocks; of two of its workers; what it has counted.
rm -rf "$tmp/trace"
WINNOW_TRACE=$tmp/trace "$w" bench --local 4 --size 4M --density 0.1 --block 256 --iters 6 >"$tmp/traced.log" || fail "a traced bench"
tune "$tmp/tune.json" "$tmp/trace"
[ "$(json "$tmp/tune.json" best) $(json "$tmp/tune.json" operations)" = "256 8" ] || fail "a trace: $(cat "$tmp/tune.json")"
"$w" tune "$tmp/trace" --world 2 --blocks 2,64 --ops 3 >"$tmp/two.log" || fail "two of four workers"
grep -q 'note: block 2 is left out' "$tmp/two.log" || fail "a block finer than the trace: $(cat "$tmp/two.log")"
grep -q ' 3 operations of 4.19MB' "$tmp/two.log" || fail "--ops: $(cat "$tmp/two.log")"
tail -n 1 "$tmp/two.log" | grep -qE '^In job bench itself, a worker sent [0-9.]+MB and received [0-9.]+MB in 8 operations.$' || fail "the last line: $(tail -n 1 "$tmp/two.log")"
# Another run: the latest counts. Another job: which one?
sleep 1
WINNOW_TRACE=$tmp/trace "$w" bench --local 2 --size 1M --iters 1 >/dev/null || fail "a second run"
"$w" tune "$tmp/trace" >"$tmp/runs.log" || fail "two runs"
grep -q 'several runs of job bench' "$tmp/runs.log" || fail "the latest run"
WINNOW_TRACE=$tmp/trace "$w" bench --local 2 --size 1M --iters 1 --job other >/dev/null || fail "another job"
refuses 2 'traces of the jobs .* and .*: give --job' "$w" tune "$tmp/trace"
"$w" tune "$tmp/trace" --job other >/dev/null || fail "--job"

refuses 2 "blocks is '1,x': want sizes" "$w" tune --blocks 1,x
refuses 2 "size is 3: want at least 4, an element of f32" "$w" tune --size 3
refuses 2 "none of --blocks 70 can be predicted" "$w" tune --size 16 --blocks 70
refuses 2 "aggregator-count is 17000: want 1 to 256" "$w" tune --aggregator-count 17000
WINNOW_AGGREGATORS=a:1,b:2 "$w" tune --size 1M >/dev/null || fail "what a job has in its environment"
refuses 2 'a name that ends in .svg or .png' "$w" tune --plot curve.gif
refuses 2 '3 files are not a multiple of 2 workers' "$w" tune "${files[@]:0:3}" --world 2
refuses 2 'want at least one for each of 4 aggregators' "$w" tune --aggregator-count 4 --channels 2
refuses 1 'flat.0 has 1537200 bytes and .*table.0 1536000' "$w" tune "$tmp/flat.0" "$tmp/table.0"
refuses 1 'cannot use .*nowhere: No such file' "$w" tune "$tmp/nowhere"
head -c 9001 "$tmp/flat.0" >"$tmp/cut"
refuses 1 'cannot use .*cut: its 9001 bytes are not a whole number of f32' "$w" tune "$tmp/cut"
printf '\x93NUMPY..' >"$tmp/numpy"
refuses 1 'it is a .npy file: write raw elements, with array.tofile' "$w" tune "$tmp/numpy"
refuses 1 'cannot use /dev/zero: it is not a regular file' "$w" tune /dev/zero
mkdir "$tmp/pipe"
mkfifo "$tmp/pipe/a.trace"
refuses 1 'cannot use .*a.trace: it is not a regular file' "$w" tune "$tmp/pipe"
mkdir "$tmp/empty"
refuses 1 'holds no trace: run the job with WINNOW_TRACE' "$w" tune "$tmp/empty"
refuses 1 'cannot write /nowhere/x.svg: No such file' "$w" tune --size 1M --plot /nowhere/x.svg

# A trace that cannot be made or gets no more room: a line, and the job does what it should.
: >"$tmp/plain"
WINNOW_TRACE=$tmp/plain "$w" bench --local 2 --size 1M --iters 1 --check >/dev/null 2>"$tmp/trace.err" || fail "no trace, no job"
[ "$(grep -c 'cannot create the trace .*the job continues' "$tmp/trace.err")$(wc -l <"$tmp/trace.err")" = 22 ] || fail "lines: $(cat "$tmp/trace.err")"
if [ "$(id -u)" = 0 ] && mkdir "$tmp/full" && mount -t tmpfs -o size=16k tmpfs "$tmp/full" 2>/dev/null; then
	trap 'umount "$tmp/full" 2>/dev/null; stop_all || exit 1' EXIT
	WINNOW_TRACE=$tmp/full "$w" bench --local 2 --size 4M --iters 20 --check >/dev/null 2>"$tmp/trace.err" || fail "a full disk ends the job"
	[ "$(grep -c 'No space left on device; the job continues' "$tmp/trace.err")$(wc -l <"$tmp/trace.err")" = 22 ] || fail "a full disk: $(cat "$tmp/trace.err")"
	"$w" tune "$tmp/full" >/dev/null || fail "what was on the full disk cannot be read"
	umount "$tmp/full"
fi

echo "predicted is counted"
