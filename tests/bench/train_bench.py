# SPDX-License-Identifier: BSD-3-Clause
"""One worker of tests/bench/train.sh: what a training step costs over Gloo and over Winnow.

Arguments: RANK WORLD STORE. Rank 0 prints rows of two tables; bytes are those of the interface.
All ways of a model take their steps in turn, so that what else the machine does meets each alike.
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

try:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
except ImportError:  # before torch 2.6
    fully_shard = None

ROWS, WIDTH = 50_000, 128
TOUCHED = 2500
WARM, STEPS = 16, int(os.environ.get("STEPS", 10))


def embedding(sparse=False):
    """A table that is nearly all of the model, and a small rest."""
    return nn.Sequential(nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=sparse), nn.Linear(WIDTH, 17))


def sparse_embedding():
    return embedding(sparse=True)


def words(generator):
    return torch.randint(0, ROWS, (TOUCHED // 25, 25), generator=generator)


class TiedGpt(nn.Module):
    """Its table is also the last layer, so all of the table's rows have gradients."""

    words, width, context = 8192, 128, 64

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(self.words, self.width)
        self.places = nn.Embedding(self.context, self.width)
        layer = nn.TransformerEncoderLayer(self.width, 4, 4 * self.width, dropout=0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.top = nn.Linear(self.width, self.words, bias=False)
        self.top.weight = self.table.weight
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(self.context), persistent=False)

    def forward(self, x):
        return self.top(self.layers(self.table(x) + self.places.weight, mask=self.mask))


def text(generator):
    return torch.randint(0, TiedGpt.words, (2, TiedGpt.context), generator=generator)


class Adapted(nn.Module):
    """A frozen layer and an adapter of rank 8, as LoRA has them."""

    def __init__(self, width, rank=8):
        super().__init__()
        self.frozen = nn.Linear(width, width).requires_grad_(False)
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)

    def forward(self, x):
        return torch.relu(self.frozen(x) + self.up(self.down(x)))


def lora():
    return nn.Sequential(*(Adapted(1024) for _ in range(6)))


def layers():
    return nn.Sequential(*(nn.Linear(800, 800) for _ in range(5)))


def features(width):
    return lambda generator: torch.randn(8, width, generator=generator)


class Way:
    """A model whose gradients are averaged in one way; subclasses make it."""

    def __init__(self, make, batch, rank, world):
        torch.manual_seed(1)
        self.batch, self.generator = batch, torch.Generator().manual_seed(rank)
        self.make(make(), world)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.times, self.bytes = [], []

    def step(self):
        before = interface_bytes()
        begun = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(self.batch(self.generator)).square().mean()
        loss.backward()
        self.times.append(time.perf_counter() - begun)
        self.optimizer.step()
        dist.barrier()
        self.bytes.append([after - was for after, was in zip(interface_bytes(), before)])
        self.loss = loss.item()

    def result(self):
        """Median seconds, mean bytes out and in, and the last loss."""
        out, back = (statistics.mean(way) for way in zip(*self.bytes[WARM:]))
        return statistics.median(self.times[WARM:]), out, back, self.loss

    def close(self):
        pass


class Gloo(Way):
    def make(self, model, world):
        self.model = DistributedDataParallel(model)


class Attached(Gloo):
    def make(self, model, world):
        super().make(model, world)
        self.state = winnow.torch.attach(self.model)

    def close(self):
        self.state.close()


class Group(Way):
    def make(self, model, world):
        self.group = dist.new_group(backend="winnow")
        self.model = DistributedDataParallel(model, process_group=self.group)

    def close(self):
        dist.destroy_process_group(self.group)


class Sharded(Way):
    backend = "gloo"

    def make(self, model, world):
        mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",), backend_override={"dp": (self.backend, None)})
        for layer in model:
            fully_shard(layer, mesh=mesh)
        self.model = fully_shard(model, mesh=mesh)


class ShardedGroup(Sharded):
    backend = "winnow"


def interface_bytes():
    folder = pathlib.Path("/sys/class/net", os.environ["GLOO_SOCKET_IFNAME"], "statistics")
    return [int((folder / f"{way}_bytes").read_text()) for way in ("tx", "rx")]


def measured(ways, rank, world):
    """Of each way: the slowest worker's milliseconds, and the mean of all workers' MB out and in."""
    for _ in range(WARM + STEPS):
        for way in ways:
            way.step()
    everyone = [None] * world
    dist.all_gather_object(everyone, [way.result() for way in ways])
    for way in ways:
        way.close()
    found = []
    for results in zip(*everyone):
        seconds, out, back, _ = zip(*results)
        found.append((1e3 * max(seconds), statistics.mean(out) / 1e6, statistics.mean(back) / 1e6))
    losses = [way.loss for way in ways]
    if max(losses) - min(losses) > 1e-3 * max(losses):
        sys.exit(f"rank {rank}: losses differ: {losses}")
    return found


def row(rank, world, title, make, batch, ways):
    """A line of the table; "-" for a way that the model does not have."""
    present = [way(make, batch, rank, world) for way in ways if way]
    found = iter(measured(present, rank, world))
    results = [next(found) if way else None for way in ways]
    if rank == 0:
        gloo = results[0][0]
        times = [f"{result[0]:.0f}" if result else "-" for result in results]
        ratios = [f"{gloo / result[0]:.2f}" if result else "-" for result in results[1:]]
        volumes = [f"{result[1]:.2f}, {result[2]:.2f}" if result else "-" for result in results]
        print("| " + " | ".join([title, str(world), *times, *ratios, *volumes]) + " |", flush=True)


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
        ("cut at its rows", {"segments": segments}),
        (f"blocks of {WIDTH} from its start", {"block": WIDTH}),
        ("blocks of 256 from its start", {"block": 256}),
    ):
        before = comm.stats().sent_bytes
        if not torch.equal(comm.allreduce(data.clone(), **options), want):
            sys.exit(f"rank {rank}: {title}: the result is wrong")
        sent = comm.stats().sent_bytes - before
        if rank == 0:
            print(f"# one bucket, {world} workers, {title}: {sent / 1e6:.2f} MB sent", flush=True)
    comm.close()


def main():
    rank, world, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    bucket(rank, world)
    for title, make, batch in (
        ("embedding, dense", embedding, words),
        ("embedding, `sparse=True`", sparse_embedding, words),
        ("tied GPT", TiedGpt, text),
        ("LoRA", lora, features(1024)),
        ("layers", layers, features(800)),
    ):
        row(rank, world, title, make, batch, (Gloo, Attached, Group))
    if fully_shard:
        row(rank, world, "layers, FSDP2", layers, features(800), (Sharded, None, ShardedGroup))


if __name__ == "__main__":
    main()
