#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Trains two models with DistributedDataParallel, over Gloo and over Winnow, one also with local steps, and compares.

Four worker processes and one winnowd on this machine; nothing else is needed. Exit status
0: both trained alike; 1: they did not, or something failed, and one line says what.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True

import processes  # noqa: E402
from processes import DemoError  # noqa: E402

LIMIT_SECONDS = 600  # it takes one minute where nothing else runs


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, help="training steps of each run [150 and 45]")
    parser.add_argument("--workers", type=int, default=4, help="worker processes [4]")
    parser.add_argument("--host-network", action="store_true", help="measure on the host's loopback device")
    given = processes.arguments(parser, "demo.png and demo/*.bits go")
    if (given.steps is not None and given.steps < 1) or not 2 <= given.workers <= 16:
        parser.error("want at least 1 step and 2 to 16 workers")
    return given


def check_machine(given):
    """What is missing is better said before the work than after it."""
    for name in ("winnowd", "libwinnow.so"):
        if not (given.build / name).exists():
            raise DemoError(f"{given.build / name} is missing: run make first, or give --build")
    for module in ("numpy", "torch", "matplotlib"):
        if importlib.util.find_spec(module) is None:
            fix = f"apt-get install python3-{module}, run with /usr/bin/python3"
            raise DemoError(f"{sys.executable} has no {module}: {fix}")


def train(given, directory, children):
    """Runs aggregator and workers; what each rank measured."""
    import corpus

    data = directory / "corpus.npz"
    corpus.prepare(data)
    address = f"127.0.0.1:{processes.free_port()}"
    bits = given.out / "demo"
    bits.mkdir(parents=True, exist_ok=True)
    settings = {
        "aggregator": address,
        "workers": given.workers,
        "steps": given.steps,
        "corpus": str(data),
        "out": str(bits),
    }
    place = directory / "settings.json"
    place.write_text(json.dumps(settings))
    children.start(
        "winnowd", [given.build / "winnowd", "--listen", address, "--insecure-no-key", "--log", "error"]
    )
    environment = processes.environment(given.build)
    workers = [
        children.start(f"worker {rank}", [sys.executable, HERE / "worker.py", rank, place], **environment)
        for rank in range(given.workers)
    ]
    children.wait(workers, LIMIT_SECONDS)
    return [json.loads((directory / f"result.{rank}.json").read_text()) for rank in range(given.workers)]


def present(given, ranks, private):
    import report

    results = {name: report.Result([rank[name] for rank in ranks]) for name in ranks[0]}
    thin = report.Thin([rank["letters"] for rank in ranks])
    for lines in (*map(report.table, results.values()), thin.table()):
        print("\n" + "\n".join(lines))
    where = "a network namespace of its own" if private else "the host, other traffic included"
    print(
        f"\nGloo's bytes: lo's counter in /proc/net/dev, in {where}, around each step between"
        f"\ntwo barriers, divided by the workers. Winnow's: the workers' own counts of Ethernet frames."
        f"\nMeans and medians leave out the first {report.WARM_UP_STEPS} steps. Workers and aggregator share"
        f"\n{os.cpu_count()} CPUs and no network: the times compare the two and say nothing about either on a wire."
    )
    picture = given.out / "demo.png"
    report.picture(list(results.values()), thin, picture)
    print(f"Picture: {picture}")
    for name, result in results.items():
        print(
            f"Bitmaps: {given.out}/demo/{name}.%r.bits, {result.bucket_blocks} blocks of 256 elements"
            f" of the largest bucket at step {result.recorded_step}"
        )
    for result in results.values():
        if not result.losses_agree():
            raise DemoError(
                f"{result.title}: losses differ by {result.largest_difference():.2e}, "
                f"more than {report.LOSS_TOLERANCE} of their value"
            )


def main():
    given = options()
    begun = time.monotonic()
    check_machine(given)
    private = not given.host_network and processes.enter_namespace()
    with tempfile.TemporaryDirectory(prefix="winnow-demo-") as directory:
        children = processes.Processes(directory)
        print(f"Training with {given.workers} workers, two models, two ways each, and one with local steps:", flush=True)
        try:
            ranks = train(given, pathlib.Path(directory), children)
        finally:
            children.stop()
    present(given, ranks, private)
    print(f"Done in {time.monotonic() - begun:.0f} s.")


if __name__ == "__main__":
    sys.exit(processes.run(main))
