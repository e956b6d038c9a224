# SPDX-License-Identifier: BSD-3-Clause
"""way="auto" and the ring of DDP's own process group: when it is tried, when it is taken, and that all ranks do the same."""

import contextlib
import itertools
import os
import signal
import time
import types
import unittest
from unittest import mock

import harness
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch
from winnow import _cuda, _ring

LAST = _ring._FIRST + 2 * _ring._TURNS  # the step of the comparison; its result counts from the next one on
WIDTH = 300


class Choice(unittest.TestCase):
    """Alone, with a clock of the test's."""

    def steps(self, count, aggregators, ring, share=lambda step: 1.0, world=4, others=(0.0, 0.0), sparse=False):
        """Which of so many steps went around the ring; how often ranks were asked."""
        now, asked, went = [0.0], [], []

        def allreduce(best, op, tag):
            asked.append(tag)
            return types.SimpleNamespace(wait=lambda: torch.maximum(best, torch.tensor(others, dtype=torch.float64)))

        comm, tags = types.SimpleNamespace(allreduce_async=allreduce), itertools.count(7)
        with mock.patch.object(_ring.dist, "get_world_size", lambda group: world), mock.patch.object(
            _ring._cuda, "moment", lambda device: now[0]
        ):
            one = _ring.Ring(None)
            for step in range(count):
                one.begin(comm, tags)
                on = one.takes(0, torch.zeros(1), ())
                now[0] += ring(step) if on else aggregators(step)
                if on:
                    one._ended.append(now[0])
                else:
                    one.done(0, types.SimpleNamespace(blocks=1000, blocks_union=int(1000 * share(step))), sparse)
                now[0] += 3  # what follows until the next step is not its exchange
                went.append(on)
        self.one = one
        return [step for step, on in enumerate(went) if on], asked

    turns = list(range(_ring._FIRST + 1, LAST, 2))

    def test_faster(self):
        went, asked = self.steps(LAST + 5, lambda step: 2, lambda step: 1)
        self.assertEqual(went, self.turns + list(range(LAST + 1, LAST + 5)))
        self.assertEqual(asked, [7])
        self.assertEqual([round(each, 9) for each in self.one.seconds], [2, 1])

    def test_slower(self):
        for ring in (2, 0.96):
            self.assertEqual(self.steps(LAST + 5, lambda step: 1, lambda step: ring)[0], self.turns)

    def test_the_best_step_counts(self):
        """One step that others delayed says nothing."""
        went, _ = self.steps(LAST + 2, lambda step: 2, lambda step: 9 if step == self.turns[0] else 1)
        self.assertEqual(went[-1], LAST + 1)

    def test_the_slowest_rank_counts(self):
        self.assertEqual(self.steps(LAST + 5, lambda step: 2, lambda step: 1, others=(0, 5))[0], self.turns)
        went, _ = self.steps(LAST + 5, lambda step: 1, lambda step: 2, others=(5, 0))
        self.assertEqual(went[-1], LAST + 4)

    def test_sparse(self):
        """Of 4 workers a ring carries 1.5 times a tensor: not tried where the union is below three quarters of it."""
        self.assertEqual(self.steps(LAST + 5, lambda step: 2, lambda step: 1, lambda step: 0.74), ([], []))
        self.assertGreater(len(self.steps(LAST + 5, lambda step: 2, lambda step: 1, lambda step: 0.76)[0]), 4)

    def test_lists_of_rows(self):
        """Gloo gathers those of all: not tried with more than three workers."""
        for world, tried in ((2, True), (3, True), (4, False)):
            went, _ = self.steps(LAST + 5, lambda step: 2, lambda step: 1, lambda step: 0.01, world=world, sparse=True)
            self.assertEqual(went != [], tried, world)

    def test_again(self):
        """It is compared anew, and becomes the slower one."""
        each = _ring._EACH
        went, asked = self.steps(2 * each, lambda step: 2, lambda step: 1 if step < each else 5)
        self.assertEqual(asked, [7, 8])
        self.assertIn(each - 1, went)
        self.assertEqual(went[-1], each + LAST)

    def test_types(self):
        self.steps(LAST + 5, lambda step: 2, lambda step: 1)
        for dtype, takes in ((torch.float64, True), (torch.float16, False), (torch.bfloat16, False)):
            self.assertEqual(self.one.takes(0, torch.zeros(1, dtype=dtype), ()), takes)


def dense():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))


def sparse():
    return nn.Sequential(nn.EmbeddingBag(1000, WIDTH, mode="sum", sparse=True), nn.Linear(WIDTH, WIDTH))


def inputs_of(net, generator):
    if isinstance(net[0], nn.Linear):
        return torch.randn(8, WIDTH, generator=generator)
    return torch.randint(0, 1000, (8, 5), generator=generator)


def begun(rank, world, job, steps, way="auto", before=lambda step, state: None, make=dense, **options):
    """A dense model after so many steps: gradients, bytes sent through aggregators and ways in each step, and seconds."""
    torch.manual_seed(1)
    found, grads = [], []
    with winnow.Comm(job=job, rank=rank, world=world, insecure_no_key=True) as comm:
        net = make()
        ddp = DistributedDataParallel(net, bucket_cap_mb=0.2)
        state = winnow.torch.attach(ddp, comm, way=way, **options)
        for step in range(steps):
            before(step, state)
            sent = state.stats().sent_bytes
            ddp.zero_grad()
            x = inputs_of(net, torch.Generator().manual_seed(10 * step + rank))
            ddp(x).square().mean().backward()
            found.append((state.stats().sent_bytes - sent, state.ways(net)["0.weight"]))
            grads.append([part.grad.clone().to_dense() for part in net.parameters()])
            assert not net[0].weight.grad.is_sparse or net[0].weight.grad.is_coalesced()
        seconds = state.ring and state.ring.seconds
        state.close()
    return grads, found, seconds


class Moment:
    """Of a GPU, which has been there when it was waited for."""

    def __init__(self):
        self.at, self.waited = time.perf_counter(), False

    def synchronize(self):
        self.waited = True

    def elapsed_time(self, other):
        assert other.waited
        return 1000 * (other.at - self.at)


def on_gpus(rank, world, job, steps, group="nccl"):
    """As begun(), with the CPU's memory as a GPU's, and Gloo as `group`."""
    gpu = {"device_of": lambda tensor: "gpu0", "moment": lambda device: Moment(), "mark": lambda device: None}
    gpu |= {"future": lambda device: torch.futures.Future(), "side": lambda *_: contextlib.nullcontext()}
    with mock.patch.multiple(_cuda, **gpu), mock.patch.object(_ring.dist, "get_backend", lambda _: group):
        return begun(rank, world, job, steps)


def compared(rank, world, job, ring):
    """As if ranks had measured this: of each, the ring's seconds, where the aggregators' are 1."""

    def before(step, state):
        if step == LAST:
            state.ring._took = [(0.0, [1.0])], [(0.0, [ring[rank]])]
            state.ring._ended = [state.ring._begun + 100]

    return begun(rank, world, job, LAST + 3, before=before)


def whether(rank, world, job, options):
    with winnow.Comm(job=job, rank=rank, world=world, insecure_no_key=True) as comm:
        ddp = DistributedDataParallel(nn.Linear(3, 3), static_graph=options.pop("static_graph", False))
        state = winnow.torch.attach(ddp, comm, **options)
        found = state.ring is not None
        state.close()
    return found


def reconfigured(rank, world, job):
    with winnow.Comm(job=job, rank=rank, world=world, insecure_no_key=True) as comm:
        ddp = DistributedDataParallel(nn.Linear(WIDTH, WIDTH))
        state = winnow.torch.attach(ddp, comm, way="auto")
        found = []
        for id in (None, "more"):
            if id is not None:
                comm.reconfigure(id, rank, world)
            ddp(torch.ones(1, WIDTH)).sum().backward()
            found.append(state.ring is None)
        state.close()
    return found


def dies(rank, world, job):
    """Rank 1 goes when its first bucket is to go around the ring."""

    def before(step, state):
        if step == _ring._FIRST + 1 and rank == 1:
            state.ring.reduce = lambda *_: os.kill(os.getpid(), signal.SIGKILL)

    try:
        begun(rank, world, job, LAST, before=before)
    except RuntimeError as error:
        return str(error)


class Hook(harness.TeamCase):
    def test_turns(self):
        """The same steps on both ranks, the same gradients to the bit, and no gradient through the aggregators."""
        plain = self.team.run(begun, harness.fresh_job(), LAST + 3, None)
        (grads, ours, seconds), (_, theirs, others) = self.team.run(begun, harness.fresh_job(), LAST + 3)
        self.assertEqual(seconds, others)
        self.assertEqual([way for _, way in ours], [way for _, way in theirs])
        for step, (ring, plainly) in enumerate(zip(grads, plain[0][0])):
            self.assertTrue(all(map(torch.equal, ring, plainly)), step)
        for step, (sent, way) in enumerate(ours):
            self.assertEqual(step in Choice.turns, way == "ring") if step < LAST else None
            self.assertTrue(sent < 20_000 if way == "ring" else sent > 4 * 2 * WIDTH * WIDTH, (step, sent, way))

    def test_turns_of_lists(self):
        """Lists of rows, of which each worker has others."""
        plain = self.team.run(begun, harness.fresh_job(), LAST + 3, None, make=sparse)
        for grads, ours, seconds in self.team.run(begun, harness.fresh_job(), LAST + 3, make=sparse):
            self.assertEqual([step for step, (_, way) in enumerate(ours) if way == "ring" and step < LAST], Choice.turns)
            self.assertTrue(all(each > 0 for each in seconds))
            for step, (ring, plainly) in enumerate(zip(grads, plain[0][0])):
                self.assertTrue(all(map(torch.equal, ring, plainly)), step)

    def test_turns_on_gpus(self):
        """As on the CPU, around NCCL's ring and no other's; times are those of the GPU."""
        plain = self.team.run(begun, harness.fresh_job(), LAST + 3, None)
        (grads, found, seconds), (_, _, others) = self.team.run(on_gpus, harness.fresh_job(), LAST + 3)
        self.assertEqual(seconds, others)
        self.assertTrue(all(0 < each < 1 for each in seconds), seconds)
        self.assertEqual([step for step, (_, way) in enumerate(found) if way == "ring" and step < LAST], Choice.turns)
        for step, (ring, plainly) in enumerate(zip(grads, plain[0][0])):
            self.assertTrue(all(map(torch.equal, ring, plainly)), step)
        for _, found, seconds in self.team.run(on_gpus, harness.fresh_job(), LAST + 1, "gloo"):
            self.assertIsNone(seconds)
            self.assertNotIn("ring", [way for _, way in found])

    def test_ranks_that_measure_differently(self):
        for ring, way in (((0.5, 2.0), "blocks"), ((0.5, 0.8), "ring")):
            for _, found, seconds in self.team.run(compared, harness.fresh_job(), ring):
                self.assertEqual(seconds, (1.0, max(ring)))
                self.assertEqual([each for _, each in found[LAST + 1 :]], [way] * 2)

    def test_where_there_is_none(self):
        for options, want in (
            ({"way": "auto"}, True),
            ({}, False),
            ({"way": "auto", "wire": "bf16"}, False),
            ({"way": "auto", "compress": "topk:0.1"}, False),
            ({"way": "auto", "check_nan": True}, False),
            ({"way": "auto", "static_graph": True}, False),
        ):
            self.assertEqual(self.team.run(whether, harness.fresh_job(), options), [want] * 2, options)

    def test_reconfigured(self):
        self.assertEqual(self.team.run(reconfigured, harness.fresh_job()), [[False, True]] * 2)


class Death(unittest.TestCase):
    def test_within_the_ring(self):
        with harness.Team(3) as team:
            team.start(dies, harness.fresh_job())
            first, second, third = team.collect()
        self.assertEqual(second, "died -9")
        for text in (first, third):
            self.assertIsInstance(text, str)
            self.assertNotIn("hangs", text)


if __name__ == "__main__":
    unittest.main()
