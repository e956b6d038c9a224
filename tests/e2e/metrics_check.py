# SPDX-License-Identifier: BSD-3-Clause
"""metrics_check.py URL BENCH.json - a winnowd with a running job, a waiting one, a finished one and a refused worker"""
import json
import re
import sys
import time
import urllib.request

from prometheus_client.parser import text_string_to_metric_families


def get(path):
    with urllib.request.urlopen(sys.argv[1] + path, timeout=5) as answer:
        return answer.read().decode(), answer.headers["Content-Type"]


def families():
    text, kind = get("/metrics")
    assert kind.startswith("text/plain; version=0.0.4"), kind
    found = {family.name: family for family in text_string_to_metric_families(text)}
    for line in text.splitlines():
        name = re.match(r"[a-z_:]+", line)
        assert line.startswith("# ") or name, line
        assert not name or re.sub("_(total|bucket|sum|count)$", "", name[0]) in found, f"no HELP and TYPE: {line}"
    return found


def value(found, name):
    return sum(sample.value for sample in found[name].samples)


def check_names(found):
    for family in found.values():
        assert family.name.startswith(("winnow_", "process_")), family.name
        assert family.type in ("counter", "gauge", "histogram") and family.documentation, family.name
        assert all(s.name.endswith("_total") == (family.type == "counter") for s in family.samples), family.name


def sample(found, name, **labels):
    """The one sample whose name and labels are these."""
    family = found.get(name) or found[name.rsplit("_", 1)[0]]
    values = [s.value for s in family.samples if s.name in (name, name + "_total") and labels.items() <= s.labels.items()]
    assert len(values) == 1, (name, labels, values)
    return values[0]


def check_job(found, job):
    """What /status says of a job a moment later is at least that, and its parts fit together."""
    name = job["name"]
    operations = sample(found, "winnow_allreduce", job=name)
    assert 0 < operations <= job["operations"], (operations, job["operations"])
    zero, nonzero = (sample(found, "winnow_blocks", job=name, kind=kind) for kind in ("zero", "nonzero"))
    assert 0 < nonzero <= job["blocks_nonzero"] and 0 < zero <= job["blocks"] - job["blocks_nonzero"]
    wire = sample(found, "winnow_wire_bytes", job=name, direction="received")
    assert 0 < wire <= job["received_bytes"]
    times = "winnow_allreduce_duration_seconds"
    buckets = [(float(s.labels["le"]), s.value) for s in found[times].samples if s.name.endswith("_bucket") and s.labels["job"] == name]
    assert [limit for limit, _ in buckets] == sorted(limit for limit, _ in buckets) and buckets[-1][0] == float("inf")
    assert [count for _, count in buckets] == sorted(count for _, count in buckets)
    count, total = sample(found, times + "_count", job=name), sample(found, times + "_sum", job=name)
    assert buckets[-1][1] == count and abs(count - operations) <= 2, (count, operations)
    # The mean lies in what the buckets allow.
    low = sum((buckets[i][1] - buckets[i - 1][1]) * buckets[i - 1][0] for i in range(1, len(buckets)))
    high = sum((c - (buckets[i - 1][1] if i else 0)) * min(limit, 1e3) for i, (limit, c) in enumerate(buckets))
    assert low <= total <= high, (low, total, high)
    late = [sample(found, "winnow_straggler_seconds", job=name, rank=str(rank)) for rank in range(job["world"])]
    assert all(value >= 0 for value in late) and sum(late) > 0
    for rank, worker in enumerate(job["workers"]):
        who = {"job": name, "rank": str(rank)}
        assert 0 < sample(found, "winnow_worker_rtt_seconds", **who) < 1 and worker["rtt_s"] >= worker["rtt_least_s"]
        for way in "out", "in":
            assert 0 < sample(found, "winnow_worker_packets", direction=way, **who) <= worker[way]
            assert 0 <= sample(found, "winnow_worker_lost", direction=way, **who) <= worker[way + "_lost"]
        assert 0 < sample(found, "winnow_worker_pushes", **who) <= min(worker["pushes"], worker["out"])
        assert 0 <= sample(found, "winnow_worker_last_seconds", **who) <= worker["last_s"]
    assert sample(found, "winnow_job_memory_bytes", job=name) == job["bytes"]
    assert sample(found, "winnow_job_workers", job=name) == job["world"]


def check_process(first, second):
    """The names, types and units of Prometheus' own clients, and values that can be."""
    kinds = {name: family.type for name, family in second.items() if name.startswith("process_")}
    assert kinds == {
        "process_cpu_seconds": "counter",
        "process_resident_memory_bytes": "gauge",
        "process_virtual_memory_bytes": "gauge",
        "process_open_fds": "gauge",
        "process_max_fds": "gauge",
        "process_start_time_seconds": "gauge",
    }, kinds
    assert 0 < value(first, "process_cpu_seconds") < value(second, "process_cpu_seconds")
    assert 1 << 20 < value(second, "process_resident_memory_bytes") < value(second, "process_virtual_memory_bytes")
    assert 10 < value(second, "process_open_fds") < value(second, "process_max_fds")
    began = value(second, "process_start_time_seconds")
    assert began == value(first, "process_start_time_seconds") and 0 < time.time() - began < 120, (began, time.time())


def main():
    until = time.monotonic() + 30
    while sum(sample.value > 0 for sample in families()["winnow_worker_rtt_seconds"].samples) < 2:
        assert time.monotonic() < until, "two workers have not said what they see"
        time.sleep(0.1)  # until both have said what they see: a quarter of the silence time
    first = families()
    time.sleep(0.3)
    second = families()
    check_names(first)
    check_process(first, second)
    for name, family in first.items():
        if family.type == "counter":
            assert value(second, name) >= value(first, name), f"{name} went back"
    # What goes to everybody goes twice where not all are in the group, and counts as often.
    more = [
        sample(second, "winnow_wire_bytes", job="going", direction="sent") - sample(first, "winnow_wire_bytes", job="going", direction="sent"),
        value(second, "winnow_packets_sent_bytes") - value(first, "winnow_packets_sent_bytes"),
    ]
    assert 0.8 < more[0] / more[1] < 1.2, more
    assert value(second, "winnow_packets_received") > value(first, "winnow_packets_received")
    status = json.loads(get("/status")[0])
    jobs = {job["name"]: job for job in status["jobs"]}
    assert set(jobs) == {"going", "waiting"}, jobs
    for key, expected in (("jobs_started", 2), ("jobs_finished", 1), ("jobs_failed", 0), ("joins_refused", 1)):
        assert status[key] == expected == value(second, f"winnow_{key}"), (key, status[key], second[f"winnow_{key}"])
    assert status["memory_reserved_bytes"] == value(second, "winnow_memory_reserved_bytes") > 0
    assert value(second, "winnow_jobs") == 2
    check_job(second, jobs["going"])
    sent = json.load(open(sys.argv[2]))
    assert value(second, "winnow_packets_received_bytes") > sent["iters"] * sent["sent_bytes"] * 0.9
    print(f"{len(second)} metrics agree")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"metrics: {error!r}\n{get('/status')[0]}")
