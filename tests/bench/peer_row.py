"""peer_row.py RAW N NAME - one row of the table against peers, from the JSON files that bench.sh has written"""
import json
import sys


def load(name):
    try:
        with open("%s/%s.json" % (sys.argv[1], name)) as file:
            return json.loads(file.read().strip().splitlines()[-1])
    except (OSError, IndexError, ValueError):
        return None


n, name = int(sys.argv[2]), sys.argv[3]
ours, gloo, ring, blocks = load("winnow-" + name), load("gloo-%d" % n), load("ring-%d" % n), load("blocks-" + name)
time = ours["time_us"]["median"]
for peer in (gloo, ring, blocks):
    if peer is not None and peer["errors"]:
        sys.exit("wrong results of a peer: %s" % peer)


def seconds(peer):
    return "%8.4f" % (peer["time_us"] / 1e6) if peer else "%8s" % "failed"


def times(*peers):
    known = [p["time_us"] for p in peers if p]
    return "%9.2f" % (min(known) / time) if known else "%9s" % "-"


overlap = name.split("-", 1)[1].rsplit("-", 1)[0]
print("%3d %-16s %8.4f %7.4f %8.4f %8.4f %s %s %s %s %s" % (
    n, overlap[:16], ours["density"], ours["union"], ours["bound_us"] / 1e6, time / 1e6, seconds(gloo), seconds(ring),
    seconds(blocks), times(gloo, ring), times(blocks)))
