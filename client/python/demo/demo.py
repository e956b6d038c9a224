#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Trains two models with DistributedDataParallel, over Gloo and over Winnow, one also with local steps, and compares.

It only needs this machine, and starts four workers and one winnowd. The exit status is 0 if both trained alike, and 1 if
they did not, or after a line about a failure.
"""

import argparse
import importlib.util
import json
import pathlib
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True

import processes  # noqa: E402
from processes import DemoError  # noqa: E402

LIMIT_SECONDS = 600  # it takes one minute on an idle machine


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
    """Refuses to begin if something is missing."""
    for name in ("winnowd", "libwinnow.so"):
        if not (given.build / name).exists():
            raise DemoError(f"{given.build / name} is missing: run make first, or give --build")
    for module in ("numpy", "torch", "matplotlib"):
        if importlib.util.find_spec(module) is None:
            fix = f"apt-get install python3-{module}, run with /usr/bin/python3"
            raise DemoError(f"{sys.executable} has no {module}: {fix}")


def train(given, directory, children):
    """Runs the aggregator and the workers, and returns the measurements of each rank."""
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
    children.start("winnowd", [given.build / "winnowd", "--listen", address, "--log", "error"])
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
    for lines in (report.sparse_lines(results["skipgram"]), report.dense_lines(thin)):
        print("\n" + "\n".join(lines))
    report.picture(results["skipgram"], thin, given.out / "demo.png")
    numbers = {name: result.numbers() for name, result in results.items()}
    numbers["local_steps"] = {"losses": list(thin.losses[2]), "bytes": float(thin.bytes[2].mean())}
    (given.out / "demo" / "result.json").write_text(json.dumps({"private_network": private, **numbers}, indent=1) + "\n")
    print(f"\nPicture: {given.out / 'demo.png'}. All numbers: {given.out / 'demo' / 'result.json'}.")
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
        print(f"Training two models on the King James Bible with {given.workers} workers on this machine.", flush=True)
        try:
            ranks = train(given, pathlib.Path(directory), children)
        finally:
            children.stop()
    present(given, ranks, private)
    print(f"Done in {time.monotonic() - begun:.0f} s.")


if __name__ == "__main__":
    sys.exit(processes.run(main))
