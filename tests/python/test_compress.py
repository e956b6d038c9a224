# SPDX-License-Identifier: BSD-3-Clause
"""Top-k with error feedback: what is sent and what is remembered, alone and as DistributedDataParallel's hook."""

import copy
import io
import os
import unittest

import harness
import numpy
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch

WIDTH = 96
STEPS = 60


def reference(gradient, memory, k, chunk, decay):
    """By sorting, in float32."""
    total = (numpy.float32(decay) * memory + gradient).astype(numpy.float32)
    sent = numpy.zeros_like(total)
    for at in range(0, len(total), chunk):
        part = total[at : at + chunk]
        share = -(-k * len(part) // chunk)
        order = numpy.argsort(-abs(part), kind="stable")[:share]
        sent[at + order] = part[order]
    return sent, total - sent


class TopK(unittest.TestCase):
    def test_against_sorting(self):
        draw = numpy.random.default_rng(1)
        for count, k, chunk, decay in ((1, 1, 1, 1.0), (1000, 3, 64, 0.9), (5000, 50, 5000, 1.0), (4097, 41, 4096, 0.0)):
            gradient = draw.standard_normal(count, dtype=numpy.float32)
            memory = draw.standard_normal(count, dtype=numpy.float32)
            sent, kept = reference(gradient, memory, k, chunk, decay)
            found = winnow.topk(gradient, memory, k, chunk, decay)
            numpy.testing.assert_array_equal(gradient, sent)
            numpy.testing.assert_array_equal(memory, kept)
            self.assertEqual(found, numpy.count_nonzero(sent))

    def test_halves(self):
        for dtype in (torch.float16, torch.bfloat16):
            gradient = torch.randn(300, generator=torch.Generator().manual_seed(2)).to(dtype)
            memory = torch.full((300,), 1e-5)
            total = gradient.float() + memory
            self.assertEqual(winnow.topk(gradient, memory, 5, 100), 15)
            self.assertTrue(torch.equal(gradient.float() + memory, total))  # nothing is lost, rounding included
            self.assertEqual(int(gradient.count_nonzero()), 15)

    def test_refusals(self):
        data, memory = numpy.ones(8, numpy.float32), numpy.zeros(8, numpy.float32)
        fixed = data.copy()
        fixed.flags.writeable = False
        for text, arguments in (
            ("k is not", (data, memory, 0, 8)),
            ("k is not", (data, memory, 9, 8)),
            ("decay", (data, memory, 1, 8, 1.5)),
            ("decay", (data, memory, 1, 8, float("nan"))),
            ("f32, f16 or bf16", (data.astype(numpy.float64), memory, 1, 8)),
            ("as large as", (data, memory[:4], 1, 8)),
            ("float32", (data, memory.astype(numpy.float64), 1, 8)),
            ("read-only", (fixed, memory, 1, 8)),
        ):
            with self.assertRaisesRegex(ValueError, text):
                winnow.topk(*arguments)
        for text in ("topk:0", "topk:2", "topk:x", "topk", "powersgd:1"):
            with self.assertRaisesRegex(ValueError, text):
                winnow.torch.compressor_of(text)


def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH))


def train(ddp, rank, steps):
    """From step to step; the mean loss of the last ten."""
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.2)
    teacher = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(4))
    losses = []
    for step in steps:
        x = torch.randn(16, WIDTH, generator=torch.Generator().manual_seed(1000 * step + rank))
        loss = (ddp(x) - torch.tanh(x @ teacher)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    return sum(losses[-10:]) / len(losses[-10:])


def attached(rank, world, job, compress):
    comm = winnow.Comm(job=job, rank=rank, world=world, insecure_no_key=True)
    ddp = DistributedDataParallel(model(), bucket_cap_mb=0.02)  # several buckets, which are made anew after the first step
    return comm, ddp, winnow.torch.attach(ddp, comm, compress=compress)


def weights(ddp):
    return [p.detach().clone() for p in ddp.parameters()]


def run(rank, world, job, compress, steps=STEPS):
    """Loss, bytes sent, weights."""
    comm, ddp, state = attached(rank, world, job, compress)
    loss = train(ddp, rank, range(steps))
    sent = state.stats().sent_bytes
    state.close()
    comm.close()
    return loss, sent, weights(ddp)


def interrupted(rank, world, job, make):
    """The weights after 20 steps: without a break, and with one after 10 in which all is saved and loaded."""
    *_, want = run(rank, world, job, make(), 20)
    comm, ddp, state = attached(rank, world, job + "-1", make())
    train(ddp, rank, range(10))
    saved = io.BytesIO()
    torch.save([ddp.module.state_dict(), state.compress.state_dict()], saved)
    state.close()
    comm.close()
    saved.seek(0)
    comm, ddp, state = attached(rank, world, job + "-2", make())
    parts = torch.load(saved)
    ddp.module.load_state_dict(parts[0])
    state.compress.load_state_dict(parts[1])
    train(ddp, rank, range(10, 20))
    state.close()
    comm.close()
    return want, weights(ddp)


def make_slow():
    return winnow.torch.TopK(0.05, chunk=512, decay=0.9, warm_up=4)


def memories(rank, world, job):
    """What is remembered: nothing while it warms up; of which parameters; and after a NaN on rank 0."""
    comm, ddp, state = attached(rank, world, job, winnow.torch.TopK(0.1, warm_up=2))
    train(ddp, rank, range(2))
    early = len(state.compress.state_dict()["memory"])
    train(ddp, rank, range(2, 3))
    names = sorted(state.compress.state_dict()["memory"])
    x = torch.ones(1, WIDTH)
    x[0, 0] = float("nan") if rank == 0 else 1
    ddp(x).sum().backward()
    seen = bool(ddp.module[0].weight.grad.isnan().any())
    clean = all(bool(m.isfinite().all()) for m in state.compress.state_dict()["memory"].values())
    state.close()
    comm.close()
    return early, names, seen, clean


def refused(rank, world, job):
    """What attach() and load_state_dict() say."""
    comm, ddp, state = attached(rank, world, job, winnow.torch.TopK(0.1))
    train(ddp, rank, range(1))
    texts = []

    def note(call, *arguments, **options):
        try:
            call(*arguments, **options)
            texts.append(None)
        except (ValueError, RuntimeError) as error:
            texts.append(str(error))

    other = DistributedDataParallel(model())
    note(winnow.torch.attach, other, comm, compress="topk:0.1" if rank == 0 else "topk:0.2")
    note(winnow.torch.attach, other, comm, compress="topk:0.1" if rank == 0 else None)
    note(winnow.torch.attach, other, comm, compress=state.compress)
    saved = copy.deepcopy(state.compress.state_dict())
    name = next(iter(saved["memory"]))
    saved["memory"][name][0] = float("inf")
    note(state.compress.load_state_dict, saved)
    note(state.compress.load_state_dict, {"memory": {"nobody": torch.zeros(1)}, "steps": {}})
    state.compress.load_state_dict({"memory": {name: torch.zeros(7)}, "steps": {}})
    note(train, ddp, rank, range(1))
    state.close()
    comm.close()
    return texts


class Hook(harness.TeamCase):
    def test_learns_as_dense(self):
        dense = self.team.run(run, harness.fresh_job(), None)
        first = self.team.run(run, harness.fresh_job(), None, 10)
        sparse = self.team.run(run, harness.fresh_job(), "topk:0.05")
        for ours, theirs in zip(sparse[0][2], sparse[1][2]):
            self.assertTrue(torch.equal(ours, theirs))
        gained = [first[0][0] - found[0][0] for found in (dense, sparse)]
        self.assertGreater(gained[1], 0.6 * gained[0])
        self.assertLess(sparse[0][1], 0.25 * dense[0][1])

    def test_all_of_it_is_dense(self):
        """density 1 sends everything: no bit differs from a hook that does not compress."""
        dense = self.team.run(run, harness.fresh_job(), None, 10)
        whole = self.team.run(run, harness.fresh_job(), winnow.torch.TopK(1), 10)
        for ours, theirs in zip(dense[0][2], whole[0][2]):
            self.assertTrue(torch.equal(ours, theirs))

    def test_without_memory(self):
        """The memory is what makes it learn: decay 0 forgets, and gains less."""
        first = self.team.run(run, harness.fresh_job(), None, 10)
        kept, lost = (
            self.team.run(run, harness.fresh_job(), winnow.torch.TopK(0.002, decay=decay)) for decay in (1, 0)
        )
        self.assertGreater(first[0][0] - kept[0][0], first[0][0] - lost[0][0])

    def test_saved_and_loaded(self):
        for want, got in self.team.run(interrupted, harness.fresh_job(), make_slow):
            for ours, theirs in zip(want, got):
                self.assertTrue(torch.equal(ours, theirs))

    def test_memories(self):
        for early, names, seen, clean in self.team.run(memories, harness.fresh_job()):
            self.assertEqual(early, 0)
            self.assertEqual(names, ["0.weight", "2.weight"])  # not biases and the norm
            self.assertTrue(seen)
            self.assertTrue(clean)

    def test_refusals(self):
        for rank, texts in enumerate(self.team.run(refused, harness.fresh_job())):
            self.assertIn(f"TopK(0.{2 - rank}, chunk=4096, decay=1.0, warm_up=0) on rank {1 - rank}", texts[0])
            self.assertIn("want the same on all", texts[1])
            self.assertIn("has a model already", texts[2])
            self.assertIn("not finite", texts[3])
            self.assertIn("nobody", texts[4])
            self.assertIn("has 7 elements", texts[5])


if __name__ == "__main__":
    unittest.main()
