#!/usr/bin/env bash
# winnow tune: predicted bytes against counted ones, from files, a trace and patterns; what it writes; what it
# refuses; a full disk under a trace; the terminal as a user sees it.
# late: it counts bytes, of which a busy machine sends some again
. "$(dirname "$0")/lib.sh"
w=$BUILD/winnow
python=/usr/bin/python3
$python -c 'import numpy' 2>/dev/null || {
	echo "no python3-numpy"
	exit 77
}

# Gradients of four workers: a bias of 300, then an embedding of 4,000 rows of 96 of which 5 % are touched.
$python - "$tmp" <<'END'
import sys, numpy
for rank in range(4):
    draw = numpy.random.default_rng(rank)
    table = numpy.zeros((4000, 96), numpy.float32)
    rows = draw.choice(4000, 200, replace=False)
    table[rows] = draw.standard_normal((200, 96))
    flat = numpy.concatenate([draw.standard_normal(300).astype(numpy.float32), table.ravel()])
    numpy.save(f"{sys.argv[1]}/flat.{rank}.npy", flat)
    numpy.save(f"{sys.argv[1]}/table.{rank}.npy", table)
    numpy.save(f"{sys.argv[1]}/wide.{rank}.npy", numpy.ascontiguousarray(table.T))
    numpy.save(f"{sys.argv[1]}/half.{rank}.npy", table.astype(numpy.float16))
END
cat >"$tmp/names.json" <<'END'
{"tensors": [{"count": 384300, "parameters": [{"name": "bias", "offset": 0, "shape": [300]},
 {"name": "table", "offset": 300, "shape": [4000, 96]}]}]}
END
files=("$tmp"/flat.?.npy)
tables=("$tmp"/table.?.npy)

# Losses (a busy machine) are not foreseen: then again.
agrees() { # arg..
	local i
	for i in 1 2 3 4 5 6; do
		"$w" tune --json "$@" >"$tmp/tune.json" 2>"$tmp/tune.err" || fail "tune $* ends with $?: $(cat "$tmp/tune.err")"
		"$python" tests/e2e/tune_within.py "$tmp/tune.json" >"$tmp/within.log" && return 0
	done
	fail "tune $*: not within 2 %: $(cat "$tmp/within.log")"
}

agrees "${files[@]}" --local 4 --blocks 4,32,96,128,1024,65536
agrees "${tables[@]}" --local 4 --blocks 96 --mtu 1500
agrees "$tmp"/half.?.npy --local 2 --world 2 --blocks 32,96
agrees --size 4M --local 3 --density 0.02 --unit 64 --blocks 16,64,256 --overlap all
agrees --size 20K --local 2 --density 0.5 --unit 32 --blocks 32,512 --iters 20
agrees --size 4M --dtype i64 --local 2 --density 1 --blocks 64,1000

# Dense and one narrow port: a ring; few rows: not. Within a twentieth it is no better.
way() { "$w" tune --json --size 4M --rate 1G "$@" >"$tmp/way.json" && json "$tmp/way.json" way; }
[ "$(way --density 1 --world 4)" = ring ] || fail "dense, 4 workers and one port: $(way --density 1 --world 4)"
[ "$(way --density 1 --world 4 --aggregator-rate 4G)" = aggregators ] || fail "dense, a wide port: no ring"
[ "$(way --density 1 --world 2 --aggregator-rate 2G)" = aggregators ] || fail "dense, 2 workers: a ring as fast as an aggregator"
[ "$(way --density 0.01 --world 4)" = aggregators ] || fail "sparse: no ring"
"$w" tune --size 4M --rate 1G --density 1 --world 4 | grep -q '^Way: ring, by the links alone' || fail "the way is not said"

# What is best: rows; and with the bias before them, what divides both: 12.
"$w" tune "${tables[@]}" --rate 1G --json >"$tmp/a.json" || fail "tables"
[ "$(json "$tmp/a.json" best)" = 96 ] || fail "a table's rows are not the best blocks: $(json "$tmp/a.json" best)"
"$w" tune "${files[@]}" --rate 1G --names "$tmp/names.json" --json >"$tmp/a.json" || fail "names"
$python - "$tmp/a.json" <<'END' || fail "parameters: $(cat "$tmp/a.json")"
import json, sys
got = json.load(open(sys.argv[1]))
bias, table = got["parameters"]
best = next(row for row in got["rows"] if row["best"])
assert abs(bias["sent_bytes"] + table["sent_bytes"] - best["sent"]["bytes"]) < 0.001 * best["sent"]["bytes"]
assert got["best"] == 12
assert bias["density"] == 1 and abs(table["density"] - 0.05) < 0.001
assert table["row"] == 96 and table["own_block"] == 96
# By itself the table needs its 200 rows and little more.
assert 200 * 384 < table["own_row_sent_bytes"] < 1.2 * 200 * 384
END
# Columns that are zero: tiles as high as the matrix cost what rows of the transpose do.
echo '{"tensors": [{"count": 384000, "parameters": [{"name": "wide", "offset": 0, "shape": [96, 4000]}]}]}' >"$tmp/wide.json"
"$w" tune "$tmp"/wide.?.npy --rate 1G --names "$tmp/wide.json" --json >"$tmp/b.json" || fail "a wide matrix"
$python - "$tmp/a.json" "$tmp/b.json" <<'END' || fail "tiles: $(cat "$tmp/b.json")"
import json, sys
table, wide = (json.load(open(path))["parameters"][-1] for path in sys.argv[1:])
assert wide["own_tile"] == [96, 1] and wide["own_tile_sent_bytes"] == table["own_row_sent_bytes"]
assert table["own_tile_sent_bytes"] > 2 * table["own_row_sent_bytes"]
END
"$w" tune "$tmp"/wide.?.npy --rate 1G --names "$tmp/wide.json" | grep -Eq '^wide .* 96x1 ' || fail "the table has no tile"
libraries=$(ldconfig -p)
if [[ $libraries == *libcairo.so.2* ]]; then
	# What the font library keeps is no leak of ours.
	ASAN_OPTIONS=detect_leaks=0 "$w" tune --size 1M --plot "$tmp/a.png" >/dev/null || fail "--plot PNG"
	[ "$(head -c 4 "$tmp/a.png" | tail -c 3)" = PNG ] || fail "the PNG is none"
	ASAN_OPTIONS=detect_leaks=0 "$w" tune --size 1M --plot "$tmp/a.svg" >/dev/null || fail "--plot SVG"
	$python -c 'import sys, xml.dom.minidom as m; assert len(m.parse(sys.argv[1]).getElementsByTagName("path")) > 15' "$tmp/a.svg" || fail "the SVG"
	refuses 1 'cannot write /nowhere/a.png: No such file' "$w" tune --size 1M --plot /nowhere/a.png
	refuses 1 'cannot draw /nowhere/a.svg: No such file' "$w" tune --size 1M --plot /nowhere/a.svg
else
	refuses 1 'it needs libcairo' "$w" tune --size 1M --plot "$tmp/a.png"
fi

# A live job's trace: the same bytes that it counted. Its bits are finer than its blocks.
for i in 1 2 3 4 5 6; do
	rm -rf "$tmp/trace"
	WINNOW_TRACE=$tmp/trace "$w" bench --local 4 --size 4M --density 0.1 --block 256 --iters 6 >"$tmp/traced.log" || fail "a traced bench"
	"$w" tune "$tmp/trace" --json >"$tmp/tune.json" || fail "tune of a trace"
	$python - "$tmp/tune.json" <<'END' && break
import json, sys
got = json.load(open(sys.argv[1]))
job, row = got["traced_job"], next(row for row in got["rows"] if row["block"] == 256)
assert job["operations"] == got["operations"] == 8 and job["block"] == 256 and got["best"] == 256
for way in "sent", "received":
    ratio = job[way + "_bytes"] / (row[way]["bytes"] * 8)
    assert 0.98 < ratio < 1.02, ratio
END
	[ "$i" != 6 ] || fail "the trace's prediction is not what the job counted"
done
agrees "$tmp/trace" --local 4 --ops 2 --blocks 32,256
"$w" tune "$tmp/trace" --world 2 --blocks 2,64 >"$tmp/two.log" || fail "two of four workers"
grep -q 'block 2 is left out' "$tmp/two.log" || fail "a block finer than the trace: $(cat "$tmp/two.log")"
# The last line: what the job had, and whether another would be better. Bytes are whole numbers.
tail -n 1 "$tmp/two.log" | grep -q '^The operations looked at have block 256' || fail "the last line: $(tail -n 1 "$tmp/two.log")"
"$w" tune "$tmp/trace" | seen 'have block 256\. Nothing to do: that is the best\.$' || fail "the best block, and something to do"
# Runs of 64 elements, and each element a block: bitmaps of an eighth of what is sent.
$python - "$tmp" <<'END'
import random, sys
for rank in range(2):
    draw = random.Random(rank)
    runs = (b"\xff" * 8 if draw.random() < 0.3 else bytes(8) for _ in range(8192))
    open(f"{sys.argv[1]}/runs.{rank}.bits", "wb").write(b"".join(runs))
END
WINNOW_TRACE=$tmp/small WINNOW_TRACE_BLOCK=1 "$w" bench --local 2 --size 1M --dtype f16 --overlap "file:$tmp/runs.%r.bits" --block 1 --iters 2 >/dev/null || fail "a job of small blocks"
"$w" tune "$tmp/small" --rate 1G >"$tmp/small.log" || fail "tune of small blocks"
tail -n 1 "$tmp/small.log" | grep -qE '^The operations looked at have block 1: one takes .* with that, and .* with block [0-9]{2,} for all\.$' ||
	fail "the last line: $(tail -n 1 "$tmp/small.log")"
"$w" tune "$tmp/small" --rate 1G --json >"$tmp/tune.json" || fail "tune of small blocks"
$python - "$tmp/tune.json" <<'END' || fail "small blocks: $(cat "$tmp/tune.json")"
import json, sys
got = json.load(open(sys.argv[1]))
job, best = got["traced_job"], next(row for row in got["rows"] if row["best"])
assert job["blocks"] == [{"block": 1, "operations": 4, "bytes": 4 << 20}] and job["nothing_to_do"] is False
assert job["predicted_us"] > 1.05 * best["predicted_us"]
for value in got["bytes"], got["rate_bit_s"], best["sent"]["bytes"], best["received"]["header_bytes"], best["sent_bytes_most"]:
    assert type(value) is int, value
END
# Another run: the latest counts. Another job: which one?
sleep 1
WINNOW_TRACE=$tmp/trace "$w" bench --local 2 --size 1M --iters 1 >/dev/null || fail "a second run"
"$w" tune "$tmp/trace" >"$tmp/runs.log" || fail "two runs"
grep -q 'several runs of job bench' "$tmp/runs.log" || fail "the latest run"
WINNOW_TRACE=$tmp/trace "$w" bench --local 2 --size 1M --iters 1 --job other >/dev/null || fail "another job"
refuses 2 'traces of the jobs .* and .*: say --job' "$w" tune "$tmp/trace"
"$w" tune "$tmp/trace" --job other >/dev/null || fail "--job"

# Written and applied: bench and the library read it; winnowd does not stumble over it.
printf '# mine\n[bench]\nsize = 1M\nblock = 8\n[winnowd]\nthreads = 1\n' >"$tmp/w.ini"
WINNOW_CONFIG=$tmp/w.ini "$w" tune "${tables[@]}" --apply >"$tmp/apply.log" || fail "--apply ends with $?"
grep -q 'jobs that start from now on use it' "$tmp/apply.log" || fail "--apply: $(cat "$tmp/apply.log")"
[ "$(grep -c '^block = 96$' "$tmp/w.ini")$(grep -cE '^(# mine|size = 1M|threads = 1)$' "$tmp/w.ini")" = 23 ] || fail "--apply wrote $(cat "$tmp/w.ini")"
WINNOW_CONFIG=$tmp/w.ini "$w" bench --local 2 --iters 1 --json >"$tmp/bench.json" || fail "bench with the file"
[ "$(json "$tmp/bench.json" block) $(json "$tmp/bench.json" bytes)" = "96 1048576" ] || fail "bench does not take the block"
"$w" tune --size 1M --unit 32 --write "$tmp/new.ini" >/dev/null || fail "--write"
[ "$(grep -c '^block = 32$' "$tmp/new.ini")" = 2 ] || fail "--write"
# The file may hold a key: who could not read it still cannot, and it stays where a link says.
mkdir "$tmp/etc"
printf '[winnowd]\nkey = x\n' >"$tmp/etc/w.ini"
chmod 640 "$tmp/etc/w.ini"
[ "$(id -u)" != 0 ] || chown 65534:65533 "$tmp/etc/w.ini"
stat -c '%a %u %g' "$tmp/etc/w.ini" >"$tmp/owner.want"
ln -s etc/w.ini "$tmp/link.ini"
"$w" tune --size 1M --unit 32 --write "$tmp/link.ini" >/dev/null || fail "--write to a link"
[ -L "$tmp/link.ini" ] || fail "--write has replaced a link"
[ "$(grep -cE '^(key = x|block = 32)$' "$tmp/etc/w.ini") $(ls "$tmp/etc")" = "3 w.ini" ] || fail "--write to a link wrote $(cat "$tmp/etc/w.ini")"
stat -c '%a %u %g' "$tmp/etc/w.ini" | cmp - "$tmp/owner.want" || fail "--write gives the file away"
sed -i 's/^block = 32/block = often/' "$tmp/new.ini"
refuses 2 "new.ini, line [0-9]*: block is 'often'" env WINNOW_CONFIG="$tmp/new.ini" "$w" bench --local 2

refuses 2 "blocks is '1,x': want sizes" "$w" tune --blocks 1,x
refuses 2 "none of --blocks 70 can be looked at" "$w" tune --size 16 --blocks 70
refuses 2 "aggregator-count is 17000: want 1" "$w" tune --aggregator-count 17000
refuses 2 "aggregators is '4': want HOST:PORT.*; how many there are says --aggregator-count" "$w" tune --aggregators 4
refuses 2 'a name that ends in .svg or .png' "$w" tune --plot curve.gif
refuses 2 '3 files cannot be shared among 2 workers' "$w" tune "${files[@]:0:3}" --world 2
refuses 2 'the file that WINNOW_CONFIG names' env -u WINNOW_CONFIG "$w" tune --apply
refuses 2 'each of 4 aggregators has at least one' "$w" tune --aggregator-count 4 --channels 2
refuses 1 'flat.0.npy has 384300 elements of f32 and .*table.0.npy 384000' "$w" tune "$tmp/flat.0.npy" "$tmp/table.0.npy"
refuses 1 'cannot use .*nowhere.npy: No such file' "$w" tune "$tmp/nowhere.npy"
refuses 1 'w.ini: it is not a .npy file' "$w" tune "$tmp/w.ini"
head -c 9000 "$tmp/flat.0.npy" >"$tmp/cut.npy"
refuses 1 'cut.npy: it is cut short' "$w" tune "$tmp/cut.npy"
mkdir "$tmp/empty"
refuses 1 'holds no trace: run the job with WINNOW_TRACE' "$w" tune "$tmp/empty"
refuses 1 'names .*nowhere' "$w" tune --names "$tmp/nowhere.json"
echo '{"tensors": [{"count": 10, "parameters": [{"name": "x", "offset": 8, "shape": [3]}]}]}' >"$tmp/bad.json"
refuses 1 'ends behind its tensor' "$w" tune --names "$tmp/bad.json"
refuses 1 'cannot write /nowhere' "$w" tune --size 1M --write /nowhere/x.ini
refuses 1 'cannot draw /nowhere' "$w" tune --size 1M --plot /nowhere/x.svg

# A trace that cannot be made or gets no more room: a line, and the job does what it should.
: >"$tmp/plain"
WINNOW_TRACE=$tmp/plain "$w" bench --local 2 --size 1M --iters 1 --check >/dev/null 2>"$tmp/trace.err" || fail "no trace, no job"
[ "$(grep -c 'cannot make the trace .*the job goes on' "$tmp/trace.err")$(wc -l <"$tmp/trace.err")" = 22 ] || fail "lines: $(cat "$tmp/trace.err")"
if [ "$(id -u)" = 0 ] && mkdir "$tmp/full" && mount -t tmpfs -o size=16k tmpfs "$tmp/full" 2>/dev/null; then
	trap 'umount "$tmp/full" 2>/dev/null; stop_all || exit 1' EXIT
	WINNOW_TRACE=$tmp/full "$w" bench --local 2 --size 4M --iters 20 --check >/dev/null 2>"$tmp/trace.err" || fail "a full disk ends the job"
	[ "$(grep -c 'No space left on device; the job goes on' "$tmp/trace.err")$(wc -l <"$tmp/trace.err")" = 22 ] || fail "a full disk: $(cat "$tmp/trace.err")"
	"$w" tune "$tmp/full" >/dev/null || fail "what was on the full disk cannot be read"
	umount "$tmp/full"
fi

# The screen: nothing wider than the window, the best marked, a curve.
if command -v tmux >/dev/null; then
	terminal=(tmux -L "winnow-tune-$$" -f /dev/null)
	trap '"${terminal[@]}" kill-server 2>/dev/null; stop_all || exit 1' EXIT
	env -u TMUX "${terminal[@]}" new-session -d -x 72 -y 45 "sh" || fail "tmux does not start"
	"${terminal[@]}" send-keys "clear; $w tune --size 1M --unit 64 --world 2; echo ended \$?" Enter
	for _ in $(seq 50); do
		"${terminal[@]}" capture-pane -p >"$tmp/screen.log"
		grep -q '^ended 0' "$tmp/screen.log" && break
		sleep 0.1
	done
	grep -q '^ended 0' "$tmp/screen.log" || fail "the screen"
	grep -qE '^ +BLOCK +D +U +SENT +RECEIVED +TIME .*>$' "$tmp/screen.log" || fail "the head of the table"
	[ "$(grep -cE '^\* +64 ' "$tmp/screen.log")" = 2 ] || fail "the best is not marked in table and curve"
	grep -qE '^\* +64 \|#+ ' "$tmp/screen.log" || fail "no curve"
	grep -q '^Best: block 64' "$tmp/screen.log" || fail "no reason"
fi

echo "predicted is counted"
