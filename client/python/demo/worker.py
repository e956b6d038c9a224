# SPDX-License-Identifier: BSD-3-Clause
"""A worker process of the demo: trains both models over Gloo, then over Winnow, and one with local steps.

    worker.py RANK SETTINGS.json

It writes its measurements to result.RANK.json beside the settings.
"""

import json
import os
import pathlib
import sys
import time

import corpus
import models
import numpy
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch

BLOCK = 256
RECORD_STEP = 20
LOCAL_STEPS = 5


def loopback_bytes():
    """Returns the bytes that have crossed the loopback device, where each sent byte is also received."""
    for line in pathlib.Path("/proc/net/dev").read_text().splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == "lo":
            return int(counters.split()[0])
    raise RuntimeError("/proc/net/dev has no line for lo")


class Recorder:
    """Wraps a hook's reduce() and keeps the bitmap of the largest bucket of one step."""

    def __init__(self, state, at_step):
        self._reduce = state.reduce
        state.reduce = self.reduce
        self.at_step = at_step
        self.step = 0
        self.elements = 0
        self.bits = b""

    def reduce(self, tensor, *others, **named):
        if self.step == self.at_step and tensor.numel() > self.elements:
            self.elements = tensor.numel()
            padded = numpy.zeros(-(-self.elements // BLOCK) * BLOCK, bool)
            padded[: self.elements] = tensor.numpy() != 0
            self.bits = numpy.packbits(padded.reshape(-1, BLOCK).any(1), bitorder="little").tobytes()
        return self._reduce(tensor, *others, **named)


class Training:
    """A training of a model, with gradients added up in one way, or in none if it is not wrapped."""

    def __init__(self, name, rank, settings, data, wrapped=True):
        torch.manual_seed(1)
        self.name, self.rank, self.settings, self.data = name, rank, settings, data
        self.model = models.MODELS[name](data)
        self.ddp = DistributedDataParallel(self.model) if wrapped else self.model
        self.steps = settings["steps"] or self.model.steps
        self.draw = numpy.random.default_rng((rank, 1))
        self.optimizer = self.model.optimizer()

    def step(self):
        """Takes a step. Returns its loss, its seconds, and its bytes on loopback."""
        batch = self.model.batch(self.data, self.draw)
        # Rank 0 reads the counter while all others wait for it.
        dist.barrier()
        before = loopback_bytes()
        dist.barrier()
        begun = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.ddp(*batch)
        loss.backward()
        self.optimizer.step()
        seconds = time.perf_counter() - begun
        dist.barrier()
        return loss.item(), seconds, loopback_bytes() - before

    def run(self, after_step=lambda step: None):
        steps = []
        for step in range(self.steps):
            steps.append(self.step())
            after_step(step)
        losses, seconds, loopback = zip(*steps)
        size = sum(p.numel() * p.element_size() for p in self.model.parameters())
        about = {"title": self.model.title, "about": self.model.describe(), "bytes": size}
        return {**about, "losses": losses, "seconds": seconds, "loopback": loopback}


def over_gloo(training):
    return training.run()


def communicator(training, job):
    return winnow.Comm(
        aggregators=training.settings["aggregator"],
        job=job,
        rank=training.rank,
        world=training.settings["workers"],
    )


def over_winnow(training):
    settings, rank = training.settings, training.rank
    with communicator(training, training.name) as comm:
        state = winnow.torch.attach(training.ddp, comm, block=BLOCK)
        recorder = Recorder(state, min(RECORD_STEP, training.steps - 1))
        wire = [comm.stats()]

        def after_step(step):
            recorder.step = step + 1
            wire.append(comm.stats())

        result = training.run(after_step)
        stats = state.stats()
        state.close()
    path = pathlib.Path(settings["out"]) / f"{training.name}.{rank}.bits"
    path.write_bytes(recorder.bits)
    result.update(exchanged(wire))
    result["multicast"] = wire[-1].multicast
    result["bucket_blocks"] = -(-recorder.elements // BLOCK)
    result["recorded_step"] = recorder.at_step
    return {**result, "density": stats.density, "union": stats.union, "retransmits": stats.retransmits}


def with_local_steps(training):
    """After some steps with gradients, workers train alone and exchange their changes every LOCAL_STEPS steps."""
    with communicator(training, "local") as comm:
        training.optimizer = winnow.torch.OuterOptimizer(training.model, training.optimizer, H=LOCAL_STEPS, comm=comm)
        wire = [comm.stats()]
        result = training.run(lambda step: wire.append(comm.stats()))
    return {**result, **exchanged(wire), "period": LOCAL_STEPS, "warm_up": training.optimizer.warm_up}


def exchanged(wire):
    """Returns the bytes of each step."""
    return {
        "sent": differences([stats.sent_bytes for stats in wire]),
        "received": differences([stats.received_bytes for stats in wire]),
    }


def differences(values):
    return [after - before for before, after in zip(values, values[1:])]


def main():
    rank, place = int(sys.argv[1]), pathlib.Path(sys.argv[2])
    settings = json.loads(place.read_text())
    torch.set_num_threads(1)  # there are more workers than cores
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = f"file://{place.parent}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=settings["workers"])
    data = corpus.load(settings["corpus"])
    results = {}
    ways = [(name, way, train) for name in models.MODELS for way, train in (("gloo", over_gloo), ("winnow", over_winnow))]
    ways.append(("letters", "local", with_local_steps))
    for number, (name, way, train) in enumerate(ways, 1):
        results.setdefault(name, {})[way] = train(Training(name, rank, settings, data, wrapped=way != "local"))
        if rank == 0:
            how = {"gloo": "over Gloo", "winnow": "over Winnow", "local": "over Winnow with local steps"}[way]
            print(f"  {number} of {len(ways)} done: {models.MODELS[name].title} {how}", flush=True)
    (place.parent / f"result.{rank}.json").write_text(json.dumps(results))
    dist.barrier()  # the store disappears with the first process that leaves
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
