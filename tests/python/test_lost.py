# SPDX-License-Identifier: BSD-3-Clause
"""What rounding takes of a worker's numbers before they are sent, against section 9.2 of PROTOCOL.md; and that a job which
remembers it is the same to the bit whenever it runs."""

import os

import harness
import numpy
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch

SEGMENT = 16384  # blocks, on each channel
WIDTH = 96


def told(values, wire, exponent, world):
    """What the others learn of one worker's numbers."""
    if wire == "bf16":
        return torch.from_numpy(values).bfloat16().float().numpy()
    headroom = (world - 1).bit_length()
    shift, most = {"fixed32": (30 - headroom, 2**30), "fixed16": (15, 32767), "fixed8": (7, 127)}[wire]
    scale = 2.0 ** (shift - exponent)
    sent = numpy.clip(numpy.rint(values.astype(numpy.float64) * scale), -most, most).astype(numpy.float32)
    return (sent / scale).astype(numpy.float32)


def expected(ranks, wire, segments):
    """Of each rank: its values less what is told of them, segment by segment; `segments` are lists of elements."""
    lost = [numpy.zeros_like(values) for values in ranks]
    for at in segments:
        most = max(abs(values[at]).max(initial=0) for values in ranks)
        if most == 0 or not numpy.isfinite(most) and wire in ("fixed16", "fixed8"):
            continue
        exponent = numpy.frexp(most)[1]
        for values, its in zip(ranks, lost):
            off = values[at] - told(values[at], wire, exponent, len(ranks))
            its[at] = numpy.where(numpy.isfinite(off), off, 0)
    return lost


def drawn(rank, count, density=0.3):
    """Of many sizes, the largest another one in each stretch; most are zero."""
    draw = numpy.random.default_rng(rank)
    sizes = numpy.repeat(2.0 ** draw.integers(-9, 3, -(-count // 40_000)), 40_000)[:count]
    values = draw.standard_normal(count) * 2.0 ** draw.integers(-8, 3, count) * sizes
    return (values * (draw.random(count) < density)).astype(numpy.float32)


class Lost(harness.CommCase):
    def lost(self, ranks, wire, before=0.0, call="allreduce", out=None, **options):
        """By rank, and the results. out: of so many elements, in place of the input."""
        found = [numpy.full_like(values, before) for values in ranks]

        def reduce(rank):
            comm = self.comms[rank]
            into = () if out is None else (numpy.empty(out, numpy.float32),)
            return getattr(comm, call)(ranks[rank].copy(), *into, op="avg", wire=wire, lost=found[rank], **options)

        return found, harness.on_threads(len(ranks), reduce)

    def check(self, ranks, segments, wires=("bf16", "fixed32", "fixed16", "fixed8"), before=0.0, **options):
        for wire in wires:
            found, _ = self.lost(ranks, wire, before, **options)
            for rank, (ours, want) in enumerate(zip(found, expected(ranks, wire, segments))):
                self.assertGreater(numpy.count_nonzero(want), 0, (wire, options))
                numpy.testing.assert_array_equal(ours, numpy.float32(before) + want, f"{wire} on rank {rank}, {options}")

    def drawn(self, count):
        return [drawn(rank, count) for rank in range(self.world)]

    def stretches(self, count, block):
        """Which elements are scaled together, of a flat tensor."""
        whole, length = numpy.arange(count), SEGMENT * block * self.comms[0].stats().channels
        return [whole[at : at + length] for at in range(0, count, length)]

    def test_flat(self):
        for count, block in ((150_001, 1), (40_001, 256), (7_001, 1000), (300_000, 5)):
            self.check(self.drawn(count), self.stretches(count, block), block=block)

    def test_apart(self):
        """The tensor that is sent is not the result's."""
        self.check(self.drawn(9000), self.stretches(9000, 256), ["fixed8"], out=9000)

    def test_tiles(self):
        self.check([values.reshape(90, 131) for values in self.drawn(90 * 131)], [...], tile=(7, 3))

    def test_reduce_scatter(self):
        shares = [numpy.arange(at, at + 5000) for at in range(0, self.world * 5000, 5000)]
        self.check(self.drawn(self.world * 5000), shares, ["fixed8"], call="reduce_scatter", out=5000, block=1)

    def test_is_added(self):
        self.check(self.drawn(20_000), self.stretches(20_000, 256), ["fixed8"], before=0.5)

    def test_native(self):
        """Nothing is lost; nor of a tensor of a datagram or less, which travels as it is."""
        for count, wire in ((20_000, "native"), (200, "fixed8")):
            for ours in self.lost(self.drawn(count), wire)[0]:
                self.assertFalse(ours.any())

    def test_not_finite(self):
        """Nobody has anything of such a segment in a form that has no room for it, and nobody remembers it."""
        count = 3 * SEGMENT * self.comms[0].stats().channels
        ranks, at = self.drawn(count), count // 2
        ranks[1][at] = float("inf")
        for wire in ("bf16", "fixed16", "fixed8"):
            found, results = self.lost(ranks, wire, block=1)
            segments = self.stretches(count, 1)
            for ours, want, result in zip(found, expected(ranks, wire, segments), results):
                self.assertGreater(numpy.count_nonzero(want), 0)
                numpy.testing.assert_array_equal(ours, want)
                self.assertFalse(numpy.isfinite(result[at]))

    def test_two_aggregators(self):
        with harness.Aggregator() as other:
            comms = harness.join(2, aggregators=f"{os.environ['WINNOW_AGGREGATORS']},{other.address}")
            ranks, found = [drawn(rank, 50_000) for rank in range(2)], [numpy.zeros(50_000, numpy.float32) for _ in range(2)]
            harness.on_threads(2, lambda rank: comms[rank].allreduce(ranks[rank].copy(), wire="fixed16", block=8, lost=found[rank]))
            for ours, want in zip(found, expected(ranks, "fixed16", [...])):
                numpy.testing.assert_array_equal(ours, want)
            harness.on_threads(2, lambda rank: comms[rank].close())

    def test_refusals(self):
        comm, values = self.comms[0], numpy.zeros(10, numpy.float32)
        for lost in (numpy.zeros(9, numpy.float32), numpy.zeros(10)):
            with self.assertRaisesRegex(ValueError, "lost must be float32, writable, and as large as data: 10 elements"):
                comm.allreduce(values, lost=lost)
        with self.assertRaisesRegex(winnow.WinnowError, "lost is of tensors of f32 in main memory"):
            comm.allreduce(values.astype(numpy.float64), lost=values)

    def test_what_rounds(self):
        comm = self.comms[0]
        self.assertEqual([comm.rounds(wire) for wire in (None, "native", "bf16", "fixed8")], [False, False, True, True])
        (narrow,) = harness.join(1, wire="fixed16")
        self.assertEqual([narrow.rounds(wire) for wire in (None, "auto", "f32", "bf16")], [True, True, False, True])
        narrow.close()


class Slope(nn.Module):
    """Gradients are the same in each step: `size` once, and small ones, of which fixed8 knows nothing."""

    def __init__(self, size=1.0):
        super().__init__()
        self.parts = nn.ParameterList(nn.Parameter(torch.zeros(3, count)) for count in (1000, 333, 7))
        self.slopes = [size * (0.001 + 0.0005 * (torch.arange(part.numel()) % 5)).view(part.shape) for part in self.parts]
        self.slopes[0][0, 0] = self.slopes[1][2, 1] = size

    def forward(self):
        return sum((part * slope).sum() for part, slope in zip(self.parts, self.slopes))


def slid(rank, world, job, wire, steps, outer):
    """By parameter: how far it came in so many steps, and how far it should be; and its memory."""
    net = Slope(1 if wire == "fixed8" else 2.0**-8)
    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        inner = torch.optim.SGD(net.parameters(), lr=1.0)
        compress, step, run = winnow.torch.TopK(1), inner, net
        if outer:
            step = winnow.torch.OuterOptimizer(net, inner, H=1, compress=compress, wire=wire, comm=comm, warm_up=0)
        else:
            run = DistributedDataParallel(net, bucket_cap_mb=0.005)
            state = winnow.torch.attach(run, comm, compress=compress, wire=wire)
        for _ in range(steps):
            step.zero_grad()
            run().backward()
            step.step()
        if not outer:
            state.close()
        kept = [compress.state_dict()["memory"][f"parts.{i}"].clone() for i in range(len(net.parts))]
    return [(-part.detach().flatten(), steps * slope.flatten(), its) for part, slope, its in zip(net.parts, net.slopes, kept)]


def trained(rank, world, job, wire, outer):
    """Weights and memory after a training whose every random number is drawn from seeds."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    compress = winnow.torch.TopK(0.05, block=4, momentum=0.5, warm_up=2)
    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        step = torch.optim.SGD(net.parameters(), lr=0.2)
        run, state = net, None
        if outer:
            step = winnow.torch.OuterOptimizer(net, step, H=3, compress=compress, wire=wire, comm=comm, warm_up=0)
        else:
            run = DistributedDataParallel(net, bucket_cap_mb=0.02)
            state = winnow.torch.attach(run, comm, compress=compress, wire=wire)
        for number in range(15):
            x = torch.randn(16, WIDTH, generator=torch.Generator().manual_seed(1000 * number + rank))
            step.zero_grad()
            (run(x) - x.roll(1, 1)).square().mean().backward()
            step.step()
        if state is not None:
            state.close()
    return [part.detach().clone() for part in net.parameters()], compress.state_dict()["memory"]


class Two(harness.TeamCase):
    def test_small_ones_arrive(self):
        """What is below the unit of the wire's numbers is remembered until it is above."""
        for wire, unit in (("fixed8", 2.0**-7), ("fixed16", 2.0**-23)):
            for outer in (False, True):
                ranks = self.team.run(slid, harness.fresh_job(), wire, 40, outer)
                for (came, should, kept), (_, _, others) in zip(*ranks):
                    torch.testing.assert_close(came + (kept + others) / 2, should, rtol=1e-5, atol=0)
                for parts in ranks:
                    for came, should, kept in parts:
                        # Both workers have the same, so halves of sums are whole numbers, and nothing is lost on the way back.
                        self.assertLess(float((came - should).abs().max()), 4 * unit, outer)
                        torch.testing.assert_close(came + kept, should, rtol=1e-5, atol=0)
                        self.assertLess(float(kept.abs().max()), 1.01 * unit)


class Three(harness.TeamCase):
    world = 3

    def test_twice_the_same(self):
        """Whatever the order in which packets come: weights and memories of two runs are equal to the bit, and all ranks' weights."""
        for wire, outer in (("fixed32", False), ("fixed16", False), ("fixed16", True), ("fixed8", False), ("fixed8", True)):
            first, second = (self.team.run(trained, harness.fresh_job(), wire, outer) for _ in range(2))
            for (weights, memory), (others, its) in zip(first, second):
                for ours, theirs, root in zip(weights, others, first[0][0]):
                    self.assertTrue(torch.equal(ours, theirs) and torch.equal(ours, root), (wire, outer))
                self.assertEqual(sorted(memory), ["0.weight", "2.weight"])
                for name in memory:
                    self.assertTrue(torch.equal(memory[name], its[name]), (wire, outer, name))
                    self.assertTrue(memory[name].any(), name)
