#!/usr/bin/env bash
# waits: it measures nothing, and any machine will do
# winnow bench as nccl-tests' users call it: a sweep by -b, -e and -f, its table and its JSON; whole numbers in JSON.
. "$(dirname "$0")/lib.sh"
unset WINNOW_MINBYTES WINNOW_MAXBYTES WINNOW_STEPFACTOR
w=$BUILD/winnow
python=/usr/bin/python3

"$w" bench --local 3 -b 8 -e 32k -f 16 -n 2 -w1 --density 1 --check >"$tmp/table" || fail "a sweep ends with $?"
# nccl-tests' columns in their places, for scripts that count them; ours come after.
$python - "$tmp/table" <<'END' || fail "the sweep's table: $(cat "$tmp/table")"
import sys
lines = open(sys.argv[1]).read().splitlines()
head = next(line for line in lines if "#wrong" in line).replace("#wrong", "wrong").strip("# ").split()
assert head[:5] == ["size", "count", "type", "redop", "root"], head
assert head[5:13] == ["time", "algbw", "busbw", "wrong"] * 2, head
rows = [line.split() for line in lines if line[:1] != "#"]
assert [int(row[0]) for row in rows] == [8, 128, 2048, 32768], rows
for row in rows:
    assert int(row[1]) * 4 == int(row[0]) and row[2:5] == ["f32", "sum", "-1"]
    for time, algbw, busbw, wrong in row[5:9], row[9:13]:
        assert float(time) > 0 and int(wrong) == 0
        assert abs(float(busbw) - float(algbw) * 4 / 3) <= 0.0015
        assert abs(float(algbw) - int(row[0]) / float(time) / 1e3) <= 0.0015
    assert len(row) == len(head)
assert "# Out of bounds values : 0 OK" in lines
assert any(line.startswith("# Avg bus bandwidth    : ") for line in lines)
END

"$w" bench --local 2 --minbytes 1000 --maxbytes 100K --stepfactor 7 --iters 3 --json >"$tmp/json" || fail "a sweep's JSON ends with $?"
$python - "$tmp/json" <<'END' || fail "the sweep's JSON: $(cat "$tmp/json")"
import json, sys
got = json.load(open(sys.argv[1]))
assert [row["bytes"] for row in got["rows"]] == [1000, 7000, 49000]
for row in got["rows"]:
    assert row["errors"] == 0 and row["checked"] is False and row["world"] == 2
    for times in row, row["out_of_place"], row["in_place"]:
        for name in "sent_bytes", "received_bytes", "retransmits", "nacks", "errors":
            assert type(times[name]) is int, (name, times[name])
        assert 0 < times["time_us"]["min"] <= times["time_us"]["median"] <= times["time_us"]["max"]
        want = row["bytes"] / times["time_us"]["median"] * 1e6
        assert abs(times["algbw_bytes_s"] - want) <= 1 and abs(times["busbw_bytes_s"] - want) <= 1
    assert row["time_us"] == row["out_of_place"]["time_us"] != row["in_place"]["time_us"]
END

# Without a sweep one place is measured, and there is a busbw beside each algbw.
"$w" bench --local 4 --size 64K --iters 2 --in-place --json >"$tmp/json" || fail "--in-place ends with $?"
$python - "$tmp/json" <<'END' || fail "the JSON: $(cat "$tmp/json")"
import json, sys
got = json.load(open(sys.argv[1]))
assert "rows" not in got and "in_place" not in got
assert abs(got["busbw_bytes_s"] - got["algbw_bytes_s"] * 1.5) <= 1 and got["algbw_bytes_s"] > 0
path = got["path"]
assert got["rtt_us"] >= got["rtt_least_us"] >= 0 and 0 < got["window_now"] <= got["window"] * got["channels"]
assert path["sent_packets"] > 0 < path["received_packets"] and path["sent_marked"] == path["received_marked"] == 0
assert all(type(value) is int and value >= 0 for value in path.values()) and path["held_window_us"] < 1e9
assert all(type(got[name]) is int for name in ("sent_bytes", "received_bytes", "retransmits", "nacks"))
END
"$w" bench --local 2 --size 64K,4K --iters 2 >"$tmp/table" || fail "a table ends with $?"
[ "$(grep -cE ' algbw +busbw |\(GB/s\) +\(GB/s\)' "$tmp/table") $(grep -vc '^#' "$tmp/table")" = "2 2" ] || fail "the table: $(cat "$tmp/table")"

# Workers join through sites in blocks of ranks, and the conditions say how many there are.
"$w" bench --local 3 --sites 2 --size 64K,4K --iters 2 --check >"$tmp/table" || fail "sites: $(cat "$tmp/table")"
grep -q '^# winnow bench .*: 3 workers, 2 sites, block' "$tmp/table" || fail "the sites' table: $(cat "$tmp/table")"
"$w" bench --local 2 --sites 2 --dtype i32 --size 64K --iters 2 --check --json >"$tmp/json" || fail "two sites of a worker each end with $?"
[ "$(json "$tmp/json" sites) $(json "$tmp/json" errors)" = "2 0" ] || fail "the sites' JSON: $(cat "$tmp/json")"
refuses 2 'sites is 3: want at most one for each worker' "$w" bench --local 2 --sites 3

# Single elements, random ones: several segments, the last of them short.
for how in "--dtype f32 --in-place" "--dtype bf16" "--wire fixed32"; do
	# shellcheck disable=SC2086 # a list
	"$w" bench --local 2 --block 1 --size 300004 --density 0.02 --iters 2 --check $how >"$tmp/table" || fail "single elements, $how: $(cat "$tmp/table")"
done

# A file's --size gives way.
printf '[bench]\nsize = 3G\n' >"$tmp/b.ini"
"$w" bench --config "$tmp/b.ini" --local 1 -b 4 -e 4 -n 1 --json >"$tmp/json" || fail "one size ends with $?"
[ "$(json "$tmp/json" bytes)" = 4 ] || fail "the file's size counts"
refuses 2 'minbytes is 8 and --maxbytes 0: want --minbytes of at least 1' "$w" bench --local 2 -b 8
refuses 2 'minbytes is 0 and --maxbytes 8: want --minbytes of at least 1' "$w" bench --local 2 -e 8
refuses 2 'minbytes is 9 and --maxbytes 8' "$w" bench --local 2 -b 9 -e 8
refuses 2 "f is 1: want 2 to 65536" "$w" bench --local 2 -b 8 -e 9 -f 1
refuses 2 "e is '1X': want a size" "$w" bench --local 2 -b 8 -e 1X
refuses 2 'leave --in-place out: a sweep measures both' "$w" bench --local 2 -b 8 -e 9 --in-place
refuses 2 'more than 256 rows' "$w" bench --local 2 -b 1 -e 16384G -f 2 --density 1,0.9,0.8,0.7,0.6,0.5
# A name that no path may have, with and without a place for the rank.
long=$(printf 'a%.0s' $(seq 5000))
for name in "$long" "$long%r" "%r$long"; do
	refuses 2 'overlap has 500[57] characters: want at most 4000' "$w" bench --local 1 --size 4K --overlap "file:$name"
done
name=${long:0:3000}
refuses 1 "cannot read bitmap $tmp/$name.0x: File name too long" "$w" bench --local 1 --size 4K --overlap "file:$tmp/$name.%rx"
head -c 64 /dev/urandom >"$tmp/bits.0" && cp "$tmp/bits.0" "$tmp/bits.1"
"$w" bench --local 2 --size 64K --iters 1 --check --overlap "file:$tmp/bits.%r" >"$tmp/table" || fail "recorded bitmaps: $(cat "$tmp/table")"
echo "a sweep as nccl-tests would print it"
