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
        assert not name or re.sub("_total$", "", name[0]) in found, f"no HELP and TYPE: {line}"
    return found


def value(found, name):
    return sum(sample.value for sample in found[name].samples)


def check_names(found):
    for family in found.values():
        assert family.name.startswith("winnow_"), family.name
        assert family.type in ("counter", "gauge") and family.documentation, family.name
        assert all(s.name.endswith("_total") == (family.type == "counter") for s in family.samples), family.name


def main():
    first = families()
    time.sleep(0.3)
    second = families()
    check_names(first)
    for name, family in first.items():
        if family.type == "counter":
            assert value(second, name) >= value(first, name), f"{name} went back"
    assert value(second, "winnow_packets_received") > value(first, "winnow_packets_received")
    status = json.loads(get("/status")[0])
    jobs = {job["name"]: job for job in status["jobs"]}
    assert set(jobs) == {"going", "waiting"}, jobs
    for key, expected in (("jobs_started", 2), ("jobs_finished", 1), ("jobs_failed", 0), ("joins_refused", 1)):
        assert status[key] == expected == value(second, f"winnow_{key}"), (key, status[key], second[f"winnow_{key}"])
    assert status["memory_reserved_bytes"] == value(second, "winnow_memory_reserved_bytes") > 0
    assert value(second, "winnow_jobs") == 2
    sent = json.load(open(sys.argv[2]))
    assert value(second, "winnow_packets_received_bytes") > sent["iters"] * sent["sent_bytes"] * 0.9
    print(f"{len(second)} metrics agree")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"metrics: {error!r}\n{get('/status')[0]}")
