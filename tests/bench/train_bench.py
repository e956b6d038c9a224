# SPDX-License-Identifier: BSD-3-Clause
"""One worker of tests/bench/train.sh: what a training step costs over Gloo and over Winnow.

Arguments: RANK WORLD STORE. Rank 0 prints rows of a table; bytes are those of the interface.
"""

import os
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch

ROWS, WIDTH = 50_000, 64
TOUCHED = 2500
WARM, STEPS = 3, int(os.environ.get("STEPS", 10))


def interface_bytes():
    folder = pathlib.Path("/sys/class/net", os.environ["GLOO_SOCKET_IFNAME"], "statistics")
    return [int((folder / f"{way}_bytes").read_text()) for way in ("tx", "rx")]


def embedding(sparse):
    """A table that is nearly all of the model, and a small rest."""
    return nn.Sequential(nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=sparse), nn.Linear(WIDTH, 17))


def words(generator):
    return (torch.randint(0, ROWS, (TOUCHED // 25, 25), generator=generator),)


def layers(sparse):
    return nn.Sequential(*(nn.Linear(800, 800) for _ in range(5)))


def features(generator):
    return (torch.randn(8, 800, generator=generator),)


def measure(rank, world, make, sparse, batch, over):
    """Median seconds of a step, and this worker's mean bytes out and in."""
    torch.manual_seed(1)
    ddp = DistributedDataParallel(make(sparse))
    comm = None
    if over == "winnow":
        comm = winnow.Comm(job=f"{make.__name__}-{sparse}", rank=rank, world=world)
        winnow.torch.attach(ddp, comm)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(rank)
    times = []
    for step in range(WARM + STEPS):
        if step == WARM:
            dist.barrier()
            before = interface_bytes()
        begun = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        ddp(*batch(generator)).square().mean().backward()
        times.append(time.perf_counter() - begun)
        optimizer.step()
    dist.barrier()
    counted = [(after - was) / STEPS for after, was in zip(interface_bytes(), before)]
    if comm:
        comm.close()
    return statistics.median(times[WARM:]), *counted


def row(rank, world, title, *what):
    everyone = [None] * world
    dist.all_gather_object(everyone, measure(rank, world, *what))
    if rank == 0:
        seconds = max(result[0] for result in everyone)
        out, back = (statistics.mean(result[i] for result in everyone) / 1e6 for i in (1, 2))
        print(f"| {world} | {title} | {seconds * 1e3:.0f} | {out:.2f} | {back:.2f} |", flush=True)


def bucket(rank, world):
    """The table in a bucket behind 68 other elements: bytes of one allreduce, by how it is cut."""
    offset = 68
    comm = winnow.Comm(job="bucket", rank=rank, world=world)
    draw = torch.Generator().manual_seed(rank)
    data = torch.zeros(offset + ROWS * WIDTH)
    data[offset:].view(ROWS, WIDTH)[torch.randperm(ROWS, generator=draw)[:TOUCHED]] = 1
    segments = [(offset, ROWS * WIDTH, WIDTH)]
    want = data.clone()
    dist.all_reduce(want)
    for title, options in (
        ("one bucket, cut at its rows", {"segments": segments}),
        ("one bucket, blocks of 64 from its start", {"block": 64}),
        ("one bucket, blocks of 256 from its start", {"block": 256}),
    ):
        before = comm.stats().sent_bytes
        if not torch.equal(comm.allreduce(data.clone(), **options), want):
            sys.exit(f"rank {rank}: {title}: the result is wrong")
        sent = comm.stats().sent_bytes - before
        if rank == 0:
            print(f"| {world} | {title} | - | {sent / 1e6:.2f} | - |", flush=True)
    comm.close()


def main():
    rank, world, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    bucket(rank, world)
    for title, sparse, over in (
        ("embedding, DDP + Gloo, dense", False, "gloo"),
        ("embedding, DDP + Gloo, `sparse=True`", True, "gloo"),
        ("embedding, DDP + Winnow, dense", False, "winnow"),
        ("embedding, DDP + Winnow, `sparse=True`", True, "winnow"),
    ):
        row(rank, world, title, embedding, sparse, words, over)
    for title, over in (("layers, DDP + Gloo", "gloo"), ("layers, DDP + Winnow", "winnow")):
        row(rank, world, title, layers, False, features, over)


if __name__ == "__main__":
    main()
