# SPDX-License-Identifier: BSD-3-Clause
"""Largest sums: against numpy by sorting, in integers, so that not a bit may be lost; bytes; deaths; saved state."""

import copy
import io
import math
import os
import signal
import unittest

import harness
import numpy
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch
from winnow._sums import Exchange


def largest(values, density, chunk, block):
    """Where the largest blocks of each chunk are, by sorting; at least one; none that is zero; all that is not finite."""
    chosen = numpy.zeros(len(values), dtype=bool)
    whole = -(-len(values) // block) * block
    chunk = min(chunk or whole, whole)
    of_whole = max(1, math.ceil(density * (chunk // block)))
    for at in range(0, len(values), chunk):
        part = values[at : at + chunk]
        blocks = [part[i : i + block] for i in range(0, len(part), block)]
        k = of_whole if len(part) == chunk else math.ceil(of_whole * len(blocks) / (chunk // block))
        size = [max(abs(b)) if numpy.isfinite(b).all() else -1 for b in blocks]
        order = sorted(range(len(blocks)), key=lambda i: -size[i])[:k]
        for i, each in enumerate(size):
            if each < 0 or i in order and each > 0:
                chosen[at + i * block : at + (i + 1) * block] = True
    return chosen[: len(values)]


class Reference:
    """All workers of one parameter, in float64, which holds their integers."""

    def __init__(self, world, count, density, own, chunk, block, decay=1.0):
        self.world, self.count, self.density, self.own = world, count, density, own
        self.chunk, self.block, self.decay = chunk, block, decay
        self.memory = numpy.zeros((world, count))

    def step(self, gradients):
        total = self.decay * self.memory + gradients
        sent = numpy.array([numpy.where(largest(each, self.own, self.chunk, self.block), each, 0) for each in total])
        part = -(-self.count // (self.world * self.block)) * self.block
        sums = numpy.zeros(self.world * part)
        sums[: self.count] = sent.sum(0)
        for at in range(0, len(sums), part):
            here = sums[at : at + part]
            here[~largest(here, self.density, self.chunk, self.block)] = 0
        result = sums[: self.count]
        self.memory = total - numpy.where(result != 0, sent, 0)
        return result


def whole_numbers(rank, step, count):
    """Some large, most small, a good many of them equal."""
    draw = numpy.random.default_rng([rank, step])
    values = draw.integers(-4, 5, count) * draw.choice([0, 1, 1, 40], count)
    return torch.from_numpy(values.astype(numpy.float32))


class Wide(nn.Module):
    def __init__(self, counts):
        super().__init__()
        self.parts = nn.ParameterList(nn.Parameter(torch.zeros(1, count)) for count in counts)
        self.bias = nn.Parameter(torch.zeros(5))

    def forward(self, rank, step):
        total = (self.bias * (rank + 1)).sum()
        for part in self.parts:
            total = total + (part * whole_numbers(rank, step, part.numel())).sum()
        return total


def hooked(rank, world, job, counts, steps, make, wire=None):
    """Of each step, by parameter: sums and memory."""
    found = []
    with winnow.Comm(job=job, rank=rank, world=world, insecure_no_key=True) as comm:
        ddp = DistributedDataParallel(Wide(counts), bucket_cap_mb=0.02)
        state = winnow.torch.attach(ddp, comm, compress=make(), wire=wire)
        for step in range(steps):
            ddp.zero_grad()
            ddp(rank, step).backward()
            kept = state.compress.state_dict()["memory"]
            sums = [part.grad.flatten() * world for part in ddp.module.parts]
            memory = [kept[f"parts.{i}"].clone() for i in range(len(counts))]
            found.append((copy.deepcopy(sums), memory, ddp.module.bias.grad.clone()))
        state.close()
    return found


def single():
    return winnow.torch.LargestSums(0.02, own=0.05, chunk=64)


def blocks():
    return winnow.torch.LargestSums(0.05, own=0.1, block=8, chunk=None, decay=0.5)


def received(rank, world, job, count, compress):
    """Of the second step: bytes and elements that have come."""
    with winnow.Comm(job=job, rank=rank, world=world, insecure_no_key=True) as comm:
        ddp = DistributedDataParallel(nn.Linear(count, 1, bias=False))
        state = winnow.torch.attach(ddp, comm, compress=compress)
        for step in range(2):
            before = state.stats()
            ddp(torch.randn(1, count, generator=torch.Generator().manual_seed(10 * step + rank))).sum().backward()
            ddp.zero_grad()
        after = state.stats()
        state.close()
    return after.received_bytes - before.received_bytes, after.blocks_union - before.blocks_union


def odd_values(rank, world, job):
    """Gradients with a NaN and infinities; then finite ones: what is seen, and is the memory finite?"""
    with winnow.Comm(job=job, rank=rank, world=world, insecure_no_key=True) as comm:
        layer = nn.Linear(4000, 1, bias=False)
        ddp = DistributedDataParallel(layer)
        state = winnow.torch.attach(ddp, comm, compress=winnow.torch.LargestSums(0.01, momentum=0.5))
        x = torch.randn(1, 4000, generator=torch.Generator().manual_seed(rank))
        if rank == 0:
            x[0, 5], x[0, 2000], x[0, 3999] = float("nan"), float("inf"), -float("inf")
        ddp(x).sum().backward()
        first = layer.weight.grad[0, [5, 2000, 3999]].clone()
        ddp.zero_grad()
        ddp(torch.ones(1, 4000)).sum().backward()
        state_dict = state.compress.state_dict()
        clean = all(bool(kept.isfinite().all()) for kind in ("memory", "velocity") for kept in state_dict[kind].values())
        second = bool(layer.weight.grad.isfinite().all())
        state.close()
    return first, second, clean


def bad_memory(rank, world, job):
    """Rank 1's memory has become NaN."""
    comm = winnow.Comm(job=job, rank=rank, world=world, insecure_no_key=True)
    ddp = DistributedDataParallel(Wide([3000]))
    state = winnow.torch.attach(ddp, comm, compress=winnow.torch.LargestSums(0.01))
    try:
        ddp(rank, 0).backward()
        if rank == 1:
            state.compress.state_dict()["memory"]["parts.0"][7] = float("nan")
        ddp(rank, 1).backward()
    except RuntimeError as error:
        return [str(error)]


def dies(rank, world, job):
    """Rank 2 goes between the two operations of a step. What the others' memories have then."""
    comm = winnow.Comm(job=job, rank=rank, world=world, insecure_no_key=True, silence_ms=1500)
    ddp = DistributedDataParallel(Wide([3000, 500]))
    state = winnow.torch.attach(ddp, comm, compress=winnow.torch.LargestSums(0.02))
    ddp(rank, 0).backward()
    ddp.zero_grad()
    if rank == 2:
        Exchange.choose = lambda exchange: os.kill(os.getpid(), signal.SIGKILL)
    before = [kept.clone() for kept in state.compress.state_dict()["memory"].values()]
    try:
        ddp(rank, 1).backward()
        return None
    except RuntimeError as error:
        kept = state.compress.state_dict()["memory"]
        names = [f"parts.{i}" for i in range(2)]
        want = [old + whole_numbers(rank, 1, len(old)) for old in before]
        return str(error), all(torch.equal(kept[name], each) for name, each in zip(names, want))


def saved(rank, world, job):
    """The sums of step 5, without a break, and with one after step 2."""
    with winnow.Comm(job=job, rank=rank, world=world, insecure_no_key=True) as comm:
        found = []
        for parts in ((range(6),), (range(3), range(3, 6))):
            kept = None
            for steps in parts:
                ddp = DistributedDataParallel(Wide([3000]))
                compress = winnow.torch.LargestSums(0.01, momentum=0.5, warm_up=2)
                state = winnow.torch.attach(ddp, comm, compress=compress)
                if kept is not None:
                    compress.load_state_dict(torch.load(io.BytesIO(kept)))
                for step in steps:
                    ddp.zero_grad()
                    ddp(rank, step).backward()
                file = io.BytesIO()
                torch.save(compress.state_dict(), file)
                kept = file.getvalue()
                state.close()
            found.append((ddp.module.parts[0].grad.clone(), torch.load(io.BytesIO(kept))))
        return found


class Alone(unittest.TestCase):
    def test_nothing_has_arrived(self):
        """All is as before the exchange that failed, but for what is not finite."""
        compress, layer = winnow.torch.LargestSums(0.1, chunk=None, momentum=0.5), nn.Linear(1000, 1, bias=False)
        compress.learn(layer)
        gradient = whole_numbers(0, 0, 1000)
        gradient[3], gradient[500] = float("nan"), float("inf")
        sent = gradient.clone()
        compress.take(sent, layer.weight)
        self.assertTrue(sent[3].isnan() and sent[500].isinf())
        self.assertGreater(int(sent.isfinite().count_nonzero()), 100)
        compress.settle(layer.weight, None, sent, torch.zeros(1000, dtype=torch.bool))
        want = gradient.nan_to_num(0, 0, 0)
        for kept in ("memory", "velocity"):
            self.assertTrue(torch.equal(compress.state_dict()[kept]["weight"], want), kept)


class Hook(unittest.TestCase):
    def check(self, world, counts, steps, make, **reference):
        with harness.Team(world) as team:
            ranks = team.run(hooked, harness.fresh_job(), counts, steps, make)
        wants = [Reference(world, count, **reference) for count in counts]
        given, applied = ([numpy.zeros(count) for count in counts] for _ in range(2))
        for step in range(steps):
            for index, want in enumerate(wants):
                gradients = numpy.array([whole_numbers(rank, step, counts[index]).numpy() for rank in range(world)], dtype=float)
                result = want.step(gradients)
                given[index] += gradients.sum(0)
                applied[index] += result
                for rank, found in enumerate(ranks):
                    sums, memory, bias = found[step]
                    self.assertTrue(torch.equal(sums[index], ranks[0][step][0][index]))
                    numpy.testing.assert_allclose(sums[index].numpy(), result, rtol=1e-6)
                    numpy.testing.assert_array_equal(memory[index].numpy(), want.memory[rank])
                    numpy.testing.assert_allclose(bias.numpy(), (world + 1) / 2)
        for index in range(len(counts)):
            self.assertGreater(numpy.count_nonzero(applied[index]), 0)
            if wants[index].decay == 1:
                numpy.testing.assert_array_equal(applied[index] + wants[index].memory.sum(0), given[index])

    def test_two(self):
        self.check(2, [5000, 1, 37], 12, single, density=0.02, own=0.05, chunk=64, block=1)

    def test_three(self):
        self.check(3, [4099, 130, 2], 10, single, density=0.02, own=0.05, chunk=64, block=1)

    def test_four_in_blocks(self):
        self.check(4, [4003, 9], 8, blocks, density=0.05, own=0.1, chunk=None, block=8, decay=0.5)

    def test_bytes(self):
        """1/N of the union and as much as is chosen, not the union."""
        count, density = 400_000, 0.05
        with harness.Team(4) as team:
            ours = team.run(received, harness.fresh_job(), count, winnow.torch.LargestSums(density, own=density))
            theirs = team.run(received, harness.fresh_job(), count, winnow.torch.TopK(density))
        union = theirs[0][1]
        self.assertLess(abs(union / count - (1 - (1 - density) ** 4)), 0.01)
        for (ours_bytes, elements), (their_bytes, _) in zip(ours, theirs):
            self.assertLess(abs(elements / (union / 4 + density * count) - 1), 0.02)
            self.assertLess(ours_bytes, 0.75 * their_bytes)

    def test_not_finite(self):
        with harness.Team(2) as team:
            for first, second, clean in team.run(odd_values, harness.fresh_job()):
                self.assertTrue(first[0].isnan() and first[1:].isinf().all())
                self.assertTrue(second and clean)

    def test_bad_memory(self):
        with harness.Team(2) as team:
            for (text,) in team.run(bad_memory, harness.fresh_job()):
                self.assertIn("the memory of parts.0 is not finite, on rank 1", text)

    def test_death_between_the_operations(self):
        with harness.Team(3) as team:
            team.start(dies, harness.fresh_job())
            first, second, third = team.collect()
        self.assertEqual(third, "died -9")
        for found in (first, second):
            text, whole = found
            self.assertIn("rank 2", text)
            self.assertTrue(whole)

    def test_saved_and_loaded(self):
        with harness.Team(2) as team:
            for (want, memory), (found, kept) in team.run(saved, harness.fresh_job()):
                self.assertTrue(torch.equal(want, found))
                for kind in ("memory", "velocity"):
                    self.assertTrue(torch.equal(memory[kind]["parts.0"], kept[kind]["parts.0"]))


if __name__ == "__main__":
    unittest.main()
