#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Trains a model while its workers and aggregators come and go, and compares with an undisturbed training.

It starts four workers and two winnowd on this machine. It kills a worker, then the second winnowd; it kills and restarts
the first winnowd, which decides about memberships; then a fifth worker joins. The exit status is 0 if the training reached
the same loss, and 1 after a line about a failure.
"""

import argparse
import hashlib
import json
import os
import pathlib
import sys
import tempfile
import time

sys.dont_write_bytecode = True

import processes  # noqa: E402
from processes import DemoError  # noqa: E402

WORKERS, LIMIT_SECONDS = 4, 300
LOSS_TOLERANCE = 0.1  # share of the undisturbed loss, over the last tenth of the steps, because fewer workers see less text


# ---- a worker ----


def small(model):
    """Makes a model so small that the cost of a death is visible beside a step."""

    class Small(model):
        width, layers, batch_size = 64, 1, 8

    return Small


def work(name, settings):
    import numpy
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import corpus
    import models
    import winnow
    import winnow.torch

    torch.set_num_threads(1)
    data = corpus.load(settings["corpus"])
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    torch.manual_seed(1)
    model = small(models.CharacterModel)(data)
    ddp, optimizer = DistributedDataParallel(model), model.optimizer()
    newcomer = {"newcomer": True} if name >= WORKERS else {"rank": name, "world": WORKERS}
    while name >= WORKERS and not os.path.exists(settings["gate"]):
        time.sleep(0.005)
    comm = winnow.Comm(aggregators=settings["aggregators"], job=settings["job"], silence_ms=2000, **newcomer)
    with comm, open(settings["log"] % name, "w", buffering=1) as log:
        say = lambda **what: log.write(json.dumps({"at": time.monotonic(), "step": state.step, **what}) + "\n")
        state = winnow.torch.attach(ddp, comm, elastic=True)
        state.share(optimizer)
        say(event="ready")
        while state.step < settings["steps"]:
            try:
                draw = numpy.random.default_rng((state.step, comm.rank))
                optimizer.zero_grad(set_to_none=True)
                loss = ddp(*model.batch(data, draw))
                loss.backward()
                optimizer.step()
                say(loss=loss.item(), world=comm.world)
                state.admit()
            except winnow.MembersChanged as error:
                say(event="changed", text=str(error))
                state.resume()
                say(event="resumed", world=comm.world)
        weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
        say(event="done", weights=hashlib.sha256(weights).hexdigest())


# ---- the demo ----


class Run:
    """A training: its processes and their logs."""

    def __init__(self, given, directory, name, data, workers=WORKERS):
        self.directory, self.children = directory / name, processes.Processes(directory)
        self.directory.mkdir()
        self.given, self.name, self.workers, self.daemons = given, name, [], []
        addresses = [f"127.0.0.1:{processes.free_port()}" for _ in range(2)]
        self.settings = {
            "aggregators": ",".join(addresses),
            "job": name,
            "steps": given.steps,
            "corpus": str(data),
            "log": str(self.directory / "%d.log"),
            "gate": str(self.directory / "gate"),  # a newcomer that has started waits for this file
        }
        for number, address in enumerate(addresses):
            self.daemons.append(self.daemon(number, address))
        for _ in range(workers):
            self.start()

    def daemon(self, number, address):
        command = [self.given.build / "winnowd", "--listen", address, "--log", "error", "--metrics", "no"]
        return self.children.start(f"{self.name} winnowd {number}", command)

    def restart(self):
        """Kills and starts the first winnowd, which has stored nothing."""
        self.children.kill(self.daemons[0])
        self.daemons[0].wait()
        self.daemons[0] = self.daemon(0, self.settings["aggregators"].split(",")[0])

    def start(self):
        environment = processes.environment(self.given.build)
        number = len(self.workers)
        command = [sys.executable, __file__, "--worker", number, json.dumps(self.settings)]
        self.workers.append(self.children.start(f"worker {number}", command, **environment))

    def lines(self, number):
        path = pathlib.Path(self.settings["log"] % number)
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def until(self, step, what):
        reached = lambda: any(line["step"] >= step for line in self.lines(0))
        self.children.wait(self.workers, LIMIT_SECONDS, reached, what)

    def finish(self):
        self.children.wait(self.workers, LIMIT_SECONDS)
        weights = {line["weights"] for n in range(len(self.workers)) for line in self.lines(n) if "weights" in line}
        if len(weights) != 1:
            raise DemoError(f"the workers end with {len(weights)} different models")

    def losses(self):
        """Returns the average loss of the workers in each step. A repeated step counts the last time."""
        of_worker = [{line["step"]: line["loss"] for line in self.lines(n) if "loss" in line} for n in range(len(self.workers))]
        each = [[losses[step] for losses in of_worker if step in losses] for step in range(self.given.steps)]
        return [sum(losses) / len(losses) for losses in each]

    def seconds(self):
        """Returns the seconds of worker 0 from one step to the next, by step."""
        at = [(line["step"], line["at"]) for line in self.lines(0) if "loss" in line]
        return {step: now - before for (_, before), (step, now) in zip(at, at[1:])}


def disturb(run):
    """Kills and starts processes at certain steps. Returns these events with their times."""
    steps, events = run.given.steps, []

    def when(share, what, act):
        run.until(int(steps * share), what)
        act()
        events.append({"what": what, "at": time.monotonic()})

    when(0.2, "worker 3 is killed", lambda: run.children.kill(run.workers[3]))
    when(0.4, "the second winnowd is killed", lambda: run.children.kill(run.daemons[1]))
    when(0.55, "the first winnowd is restarted", run.restart)
    when(0.7, "a fifth worker joins", pathlib.Path(run.settings["gate"]).touch)
    return events


def cost(run, events):
    """Adds to each event the milliseconds beyond an ordinary step, and the repeated steps, of worker 0."""
    lines, seconds = run.lines(0), run.seconds()
    median = sorted(seconds.values())[len(seconds) // 2]
    for i, event in enumerate(events):
        until = events[i + 1]["at"] if i + 1 < len(events) else float("inf")
        after = [line for line in lines if event["at"] <= line["at"] < until]
        worlds = [line for line in after if "loss" in line]
        event["step"] = (worlds or lines)[0]["step"]
        longest = max((seconds.get(line["step"], 0) for line in worlds), default=0)
        event["ms"] = 1e3 * max(longest - median, 0)
        event["repeated"] = sum(line.get("event") == "changed" for line in after)
        event["world"] = max(line["world"] for line in worlds) if "joins" in event["what"] else min(line["world"] for line in worlds)
    return median


def picture(quiet, losses, events, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plot

    figure, axis = plot.subplots(figsize=(9, 4), dpi=100)
    axis.plot(quiet, color="#888888", linewidth=2, label="undisturbed, 4 workers, 2 winnowd")
    axis.plot(losses, color="#1f6fb4", linewidth=2, label="with these events")
    for i, event in enumerate(events):
        axis.axvline(event["step"], color="#c0392b", linewidth=1)
        text = f"{event['what']}\n{event['ms']:.0f} ms, {event['repeated']} step(s) repeated\n{event['world']} workers"
        axis.annotate(text, (event["step"], max(quiet)), fontsize=8, xytext=(4, -4 - 42 * i), textcoords="offset points", va="top")
    axis.set_xlabel("step")
    axis.set_ylabel("loss")
    axis.legend(frameon=False, fontsize=9, loc="lower left")
    axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path)


def demo(given, directory):
    import corpus

    data = directory / "corpus.npz"
    corpus.prepare(data)
    quiet = Run(given, directory, "quiet", data)
    try:
        quiet.finish()
    finally:
        quiet.children.stop()
    run = Run(given, directory, "disturbed", data, WORKERS + 1)
    try:
        events = disturb(run)
        run.finish()
    finally:
        run.children.stop()
    median = cost(run, events)
    print(f"{given.steps} steps; a step takes {1e3 * median:.0f} ms (median).")
    for event in events:
        print(
            f"step {event['step']}: {event['what']}: {event['ms']:.0f} ms more, {event['repeated']} step(s) repeated,"
            f" {event['world']} workers continue"
        )
    losses, expected = run.losses(), quiet.losses()
    last = max(given.steps // 10, 1)
    here, there = (sum(each[-last:]) / last for each in (losses, expected))
    print(f"loss at the end: {here:.3f}, undisturbed {there:.3f}")
    path = given.out / "elastic.png"
    picture(expected, losses, events, path)
    print(f"Picture: {path}")
    if [event["world"] for event in events] != [3, 3, 3, 4]:
        raise DemoError(f"{[event['world'] for event in events]} workers continued: want 3, 3, 3 and 4")
    if abs(here - there) > LOSS_TOLERANCE * there:
        raise DemoError(f"the losses differ by {abs(here - there):.3f}, more than {LOSS_TOLERANCE} of {there:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=120, help="training steps of each run [120]")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    given = processes.arguments(parser, "elastic.png goes")
    if given.worker:
        return work(int(given.worker[0]), json.loads(given.worker[1]))
    if given.steps < 20:
        parser.error("want at least 20 steps")
    with tempfile.TemporaryDirectory(prefix="winnow-elastic-") as directory:
        return processes.run(lambda: demo(given, pathlib.Path(directory)))


if __name__ == "__main__":
    sys.exit(main())
