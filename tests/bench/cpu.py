# SPDX-License-Identifier: BSD-3-Clause
"""cpu.py - CPU time of an aggregator: its own threads', and that of the kernel's threads which receive for it

    cpu.py begin FILE DAEMON NAPI SWITCH             notes the clocks
    cpu.py end FILE BENCH.json DAEMON NAPI SWITCH    and what has been added to them
    cpu.py table RAW UDP.. XDP                       jobs that differ in the aggregator alone; of NAME.1, NAME.2.. the median

DAEMON is winnowd's pid. NAPI and SWITCH are lists of the kernel's threads that receive at winnowd's device, and at the
switch's ports towards workers (xdp.sh makes them). Where the device has no receiving thread (no GRO, no XDP) the switch's
threads run the network stack up to winnowd's socket: what they take more than in the XDP job is that.
"""
import json
import pathlib
import subprocess
import sys


def seconds(pid):
    """Of all threads, as the scheduler counts it."""
    tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def program_seconds():
    """Of the XDP program, by the kernel's count; needs sysctl kernel.bpf_stats_enabled=1."""
    answer = subprocess.run(["bpftool", "prog", "show", "-j"], capture_output=True, check=True).stdout
    return sum(p.get("run_time_ns", 0) for p in json.loads(answer) if p.get("name") == "winnow") / 1e9


def clocks(lists):
    times = {name: sum(map(seconds, pids.split())) for name, pids in zip(("daemon", "napi", "switch"), lists)}
    return {**times, "program": program_seconds()}


def pushes(bench):
    """Of all workers: every block of a dense tensor travels alone."""
    return (bench["iters"] + 1) * bench["world"] * bench["bytes"] // (bench["block"] * 4)


def median(raw, name):
    jobs = [json.loads(f.read_text()) for f in (*raw.glob(f"cost-{name}.cpu"), *raw.glob(f"cost-{name}.[0-9].cpu"))]
    return sorted(jobs, key=lambda job: (job["daemon"] + job["napi"]) / job["pushes"])[len(jobs) // 2]


def table(raw, names):
    print(f"{'':24}{'PUSHes':>10}{'daemon':>10}{'receiving':>11}{'(program)':>11}{'both':>8}{'PUSHes a CPU second':>22}{'x':>7}")
    jobs = {name: median(raw, name) for name in names}
    base = None
    for name, job in jobs.items():
        daemon, napi = (job[key] / job["pushes"] * 1e6 for key in ("daemon", "napi"))
        if job["napi"] < 0.01:
            napi = (job["switch"] - jobs[names[-1]]["switch"]) / job["pushes"] * 1e6
        base = base or daemon + napi
        print(
            f"{name:24}{job['pushes']:10}{daemon:10.3f}{napi:11.3f}"
            f"{job['program'] / job['pushes'] * 1e6:11.3f}{daemon + napi:8.3f}"
            f"{1e6 / (daemon + napi):22.0f}{base / (daemon + napi):7.2f}"
        )


def main():
    what, place = sys.argv[1], pathlib.Path(sys.argv[2])
    if what == "table":
        table(place, sys.argv[3:])
    elif what == "begin":
        place.write_text(json.dumps(clocks(sys.argv[3:])))
    else:
        before, now = json.loads(place.read_text()), clocks(sys.argv[4:])
        added = {key: now[key] - before[key] for key in now}
        place.write_text(json.dumps({**added, "pushes": pushes(json.loads(pathlib.Path(sys.argv[3]).read_text()))}))


if __name__ == "__main__":
    main()
