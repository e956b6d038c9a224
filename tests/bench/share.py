# SPDX-License-Identifier: BSD-3-Clause
"""share.py - what share.sh has counted, in rows: is, and should be

    share.py watch NET                     every 100 ms, the bytes that wait in host w0's queues; until it is killed
    share.py dense|small|tcp|join|incast PREFIX   of the files PREFIX*
"""
import json
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import time

BIN_S, BINS, TCP = 0.002, 16384, 7  # tests/e2e/mark.bpf.c
RATE_BYTES_S = 300e6 / 8
BASE_RTT_S = 0.0003
TCP_S = 12  # share.sh


def watch(net):
    places = [(f"{net}-w0", "eth0"), (f"{net}-sw", "w0")]
    while True:
        waiting = []
        for namespace, device in places:
            text = subprocess.run(["ip", "netns", "exec", namespace, "tc", "-s", "qdisc", "show", "dev", device],
                                  capture_output=True, text=True, check=True).stdout
            found = re.search(r"qdisc tbf.*?dropped (\d+).*?backlog (\d+)(K|M)?b", text, re.S)
            waiting += [int(found[2]) * {None: 1, "K": 1024, "M": 1 << 20}[found[3]], int(found[1])]
        print(*waiting, flush=True)
        time.sleep(0.1)


def row(prefix, text, value, low=None, high=None):
    name = prefix.rsplit("share-", 1)[1]
    goal = verdict = ""
    if low is not None or high is not None:
        goal = f"<= {high:g}" if low is None else f">= {low:g}" if high is None else f"{low:g} to {high:g}"
        met = (low is None or value >= low) and (high is None or value <= high)
        verdict = "" if met else "missed"
    print(f"{name:14} {text:44} {value:10.3f}   {goal:13} {verdict}".rstrip(), flush=True)


def numbers(path):
    """Of a map of 64-bit numbers."""
    return [struct.unpack("<Q", bytes(int(b, 16) for b in entry["value"]))[0] for entry in json.load(open(path))]


class Flows:
    """Bytes by flow and time, of one way."""

    def __init__(self, prefix, way):
        all_bins = numbers(f"{prefix}.{way}.json")
        self.flows = [all_bins[i * BINS:(i + 1) * BINS] for i in range(8)]

    def span(self, flow, least=10000):
        """From the first bin to the last with more than a few datagrams."""
        busy = [i for i, b in enumerate(self.flows[flow]) if b >= least]
        return (busy[0], busy[-1] + 1) if busy else (0, 0)

    def share(self, flow, other, begin, end):
        a, b = sum(self.flows[flow][begin:end]), sum(self.flows[other][begin:end])
        return a / (a + b) if a + b else 0

    def together(self, flow, other):
        (a, b), (c, d) = self.span(flow), self.span(other)
        return max(a, c), min(b, d)


def again(*paths):
    """Per cent of a worker's datagrams, of the worst."""
    worst = 0
    for path in paths:
        r = json.load(open(path))
        block = 4 * r["block"]
        frame = 42 + 32 + (r["payload"] - 32) // block * block
        worst = max(worst, 100 * r["retransmits"] * frame / (r["sent_bytes"] * r["iters"]))
    return worst


def queues(prefix):
    lines = [line.split() for line in open(f"{prefix}.queues")]
    lines = [[int(word) for word in line] for line in lines if len(line) == 4]
    for at, way in ((0, "up"), (2, "down")):
        busy = [line[at] for line in lines if line[0] + line[2] > 0] or [0]
        row(prefix, f"w0's queue {way}: KB waiting, mean", statistics.mean(busy) / 1e3)
        row(prefix, f"w0's queue {way}: KB, most", max(busy) / 1e3)
        row(prefix, f"w0's queue {way}: dropped", lines[-1][at + 1] if lines else 0)
    return statistics.mean([line[0] + line[2] for line in lines if line[0] + line[2] > 0] or [0])


def results_again(prefix, flow):
    r = numbers(f"{prefix}.results-down.json")
    return 100 * r[2 * flow + 1] / r[2 * flow] if r[2 * flow] else 0


def dense(prefix):
    for way in ("up", "down"):
        flows = Flows(prefix, way)
        row(prefix, f"job a's share, {way}", flows.share(0, 1, *flows.together(0, 1)), 0.45, 0.55)
    sent_again(prefix)


def sent_again(prefix):
    for flow, job in enumerate("ab"):
        row(prefix, f"job {job}: PUSHes sent again, % of datagrams", again(*(f"{prefix}-{job}-{rank}.json" for rank in (0, 1))), None, 1)
        row(prefix, f"job {job}: RESULTs sent again, %", results_again(prefix, flow), None, 1)
    if pathlib.Path(f"{prefix}.marks.json").exists():
        plain, ect, ce, marked, _ = numbers(f"{prefix}.marks.json")
        row(prefix, "w0's queue up: marked, % of datagrams", 100 * marked / (plain + ect + ce))
    queues(prefix)


def small(prefix):
    alone, bucket, beside = (json.load(open(f"{prefix}-{job}-0.json"))["time_us"] for job in ("alone", "bucket", "beside"))
    for value in ("median", "p99"):
        row(prefix, f"4 KB alone: {value}, us", alone[value])
        row(prefix, f"the same where 32 KB pass at once: {value}, us", bucket[value])
        row(prefix, f"4 KB beside a dense job: {value}, us", beside[value])
    row(prefix, "median, times its own", beside["median"] / alone["median"], None, 3)
    row(prefix, "p99, times its own", beside["p99"] / alone["p99"], None, 10)
    queues(prefix)


def tcp(prefix):
    way = "down" if prefix.endswith("down") else "up"
    flows = Flows(prefix, way)
    begin, end = flows.together(TCP, 0)
    begin = max(begin, end - round(TCP_S / BIN_S))  # what iperf3 counts
    speeds = [json.load(open(f"{prefix}.{name}"))["end"]["sum_received"]["bits_per_second"] for name in ("alone", "beside")]
    row(prefix, "TCP alone, Mbit/s", speeds[0] / 1e6)
    row(prefix, "TCP beside a dense job, Mbit/s", speeds[1] / 1e6)
    row(prefix, "TCP's part of what it has alone", speeds[1] / speeds[0], 0.4, 0.6)
    row(prefix, "TCP's share of the bytes", flows.share(TCP, 0, begin, end))
    queues(prefix)


def join(prefix):
    flows = Flows(prefix, "up")
    begin, end = flows.together(1, 0)
    fair = None
    waiting = queues(prefix)
    rtt_s = BASE_RTT_S + waiting / RATE_BYTES_S
    width = max(1, round(5 * rtt_s / BIN_S))
    for at in range(begin, end - width):
        if flows.share(1, 0, at, at + width) >= 0.45:
            fair = (at - begin) * BIN_S
            break
    row(prefix, "round trip, mean queues included, ms", rtt_s * 1e3)
    row(prefix, "a second job has 0.45 after ms", -1 if fair is None else fair * 1e3)
    row(prefix, "in round trips", 1e6 if fair is None else fair / rtt_s, None, 20)
    row(prefix, "its share while both run", flows.share(1, 0, begin, end), 0.45, 0.55)


def incast(prefix):
    paths = [f"{prefix}-{rank}.json" for rank in range(16)]
    r = json.load(open(paths[0]))
    row(prefix, "speed, of what the link could carry", r["bound_us"] / r["time_us"]["median"], 0.9)
    row(prefix, "PUSHes sent again, % of datagrams", again(*paths), None, 1)


if sys.argv[1] == "watch":
    watch(sys.argv[2])
else:
    {"dense": dense, "small": small, "tcp": tcp, "join": join, "incast": incast}[sys.argv[1]](sys.argv[2])
