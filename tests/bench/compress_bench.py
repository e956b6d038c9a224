# SPDX-License-Identifier: BSD-3-Clause
"""One worker of tests/bench/compress.sh: loss against time when gradients are dense and links are thin.

    compress_bench.py RANK WORLD STORE RATE OUT     trains over links of RATE; rank 0 appends to OUT, a JSON line a way
    compress_bench.py table OUT..                   what these say, as a table

A small GPT reads real text (the King James Bible, by words). The same steps are taken in each way, so what a loss takes
is how many steps it takes, on the fastest link, times what a step takes on each.
"""

import json
import math
import pathlib
import re
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.nn.parallel import DistributedDataParallel

import winnow.torch
from train_bench import interface_bytes

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client" / "python" / "demo"))

WORDS, WIDTH, CONTEXT, BATCH = 2048, 128, 32, 4
LAST = 30  # steps over which a loss is averaged


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.top = nn.Linear(WIDTH, WORDS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False)

    def forward(self, x):
        return self.top(self.layers(self.table(x) + self.places.weight, mask=self.mask))


def corpus():
    """All words as numbers; rare ones are one number."""
    import collections

    import corpus as bible

    words = re.findall(r"[a-z]+", bible.read_text().lower())
    number = {word: n for n, (word, _) in enumerate(collections.Counter(words).most_common(WORDS - 1))}
    return torch.tensor([number.get(word, WORDS - 1) for word in words])


def allgather_topk(compress):
    """What people write today: each sends its choice to all, who add them up."""

    def hook(group, bucket):
        tensor, world = bucket.buffer(), dist.get_world_size(group)
        kept, whole, offset = [], [], 0
        for parameter in bucket.parameters():
            end = offset + parameter.numel()
            if compress.takes(parameter):
                compress.take(tensor[offset:end], parameter)
                kept.append(tensor[offset:end].nonzero().flatten() + offset)
            else:
                whole.append((offset, end))
            offset = end
        index = torch.cat(kept) if kept else torch.empty(0, dtype=torch.int64)
        size = torch.tensor([len(index)])
        sizes = [torch.zeros_like(size) for _ in range(world)]
        dist.all_gather(sizes, size, group=group)
        most = int(max(sizes))
        both = torch.zeros(2, most, dtype=torch.int32)
        both[0, : len(index)] = index.int()
        both[1, : len(index)] = tensor[index].view(torch.int32)
        parts = [torch.empty_like(both) for _ in range(world)]
        dist.all_gather(parts, both, group=group)
        dense = torch.cat([tensor[begin:end] for begin, end in whole]) if whole else tensor[:0]
        if len(dense):
            dist.all_reduce(dense, group=group)
        tensor.zero_()
        for part, count in zip(parts, sizes):
            tensor.index_add_(0, part[0, : int(count)].long(), part[1, : int(count)].view(torch.float32))
        for begin, end in whole:
            tensor[begin:end], dense = dense[: end - begin], dense[end - begin :]
        tensor.div_(world)
        future = torch.futures.Future()
        future.set_result(tensor)
        return future

    return hook


def register(ddp, way):
    """What is to be closed."""
    kind, _, of = way.partition(" ")
    if kind == "powersgd":
        state = powersgd.PowerSGDState(None, matrix_approximation_rank=int(of), start_powerSGD_iter=2)
        ddp.register_comm_hook(state, powersgd.powerSGD_hook)
    if kind == "allgather":
        compress = winnow.torch.TopK(float(of))
        compress.learn(ddp.module)
        ddp.register_comm_hook(None, allgather_topk(compress))
    if kind == "winnow":
        return winnow.torch.attach(ddp, compress="topk:" + of if of else None)
    return None


def train(rank, world, way, data, steps):
    torch.manual_seed(1)
    # PowerSGD goes on from callbacks, in any order: over Gloo two buckets of its could meet each other's.
    dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << (30 if way.startswith("powersgd") else 20)
    ddp = DistributedDataParallel(Gpt(), bucket_cap_mb=1024)
    state = register(ddp, way)
    optimizer = torch.optim.Adam(ddp.parameters(), lr=1e-3)
    draw = torch.Generator().manual_seed(10 + rank)
    losses, times, volumes = [], [], []
    for _ in range(steps):
        starts = torch.randint(0, len(data) - CONTEXT - 1, (BATCH,), generator=draw)
        text = torch.stack([data[at : at + CONTEXT + 1] for at in starts.tolist()])
        dist.barrier()
        before, begun = interface_bytes(), time.perf_counter()
        loss = nn.functional.cross_entropy(ddp(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.barrier()
        times.append(time.perf_counter() - begun)
        volumes.append([now - was for now, was in zip(interface_bytes(), before)])
        losses.append(loss.item())
    if state is not None:
        state.close()
    out, back = (statistics.mean(side) for side in zip(*volumes[3:]))
    return losses, statistics.median(times[3:]), out, back


def worker(rank, world, store, rate, out, steps, ways):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    data = corpus()
    for way in ways:
        everyone = [None] * world
        dist.all_gather_object(everyone, train(rank, world, way, data, steps))
        losses, times, outs, backs = zip(*everyone)
        if rank == 0:
            found = {"way": way, "world": world, "rate": rate, "losses": [statistics.mean(l) for l in zip(*losses)]}
            found.update(seconds=max(times), out=max(outs), back=max(backs))
            with open(out, "a") as file:
                print(json.dumps(found), file=file)
    dist.destroy_process_group()


def smooth(losses):
    return [statistics.mean(losses[max(0, at - LAST + 1) : at + 1]) for at in range(len(losses))]


def table(path):
    rows = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
    curves = {}
    for row in rows:
        if len(row["losses"]) > len(curves.get(row["way"], [])):
            curves[row["way"]] = row["losses"]
    rates = list(dict.fromkeys(row["rate"] for row in rows))
    step = {(row["way"], row["rate"]): row for row in rows}
    target = smooth(curves["gloo"])[-1]
    print(f"# {rows[0]['world']} workers, {len(curves['gloo'])} steps; ms a step, and in brackets how many times sooner than")
    print(f"# dense Gloo a loss of {target:.3f} is there, which is what that ends with (mean of {LAST} steps)")
    print("| way | loss in the end | steps to that loss | MB out, in a step | " + " | ".join(rates) + " |")
    print("|---" * (4 + len(rates)) + "|")
    for way, losses in curves.items():
        curve = smooth(losses)
        needed = next((at + 1 for at, loss in enumerate(curve) if loss <= target and at >= LAST), math.inf)
        cells = []
        for rate in rates:
            seconds, dense = step[way, rate]["seconds"], step["gloo", rate]["seconds"]
            sooner = len(curves["gloo"]) * dense / (needed * seconds)
            cells.append(f"{1e3 * seconds:.0f} ({sooner:.1f})" if needed < math.inf else f"{1e3 * seconds:.0f} (-)")
        row = step[way, rates[0]]
        taken = str(needed) if needed < math.inf else "-"
        volume = f"{row['out'] / 1e6:.2f}, {row['back'] / 1e6:.2f}"
        print("| " + " | ".join([way, f"{curve[-1]:.3f}", taken, volume, *cells]) + " |")


if __name__ == "__main__":
    if sys.argv[1] == "table":
        table(sys.argv[2])
    else:
        rank, world, store, rate, out, steps = sys.argv[1:7]
        worker(int(rank), int(world), store, rate, out, int(steps), sys.argv[7:])
