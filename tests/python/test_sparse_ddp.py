# SPDX-License-Identifier: BSD-3-Clause
"""Embeddings with sparse=True: 50 steps over Winnow end where 50 steps over Gloo end."""

import os
import subprocess
import unittest
from unittest import mock

import harness
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch

STEPS = 20
ROWS, WIDTH = 3000, 16
HALF_BOUND = 0.02


class Net(nn.Module):
    """kind: "dense", "sparse" or "mixed" embeddings; "only" is nothing but a sparse one."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.first = nn.Embedding(ROWS, WIDTH, sparse=kind != "dense", padding_idx=0)
        if kind == "only":
            return
        self.second = nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=kind == "sparse")
        self.tail = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 1))
        self.spare = nn.Linear(WIDTH, 1)

    def forward(self, index, spare=True):
        x = self.first(index).sum(1)
        if self.kind == "only":
            return x.square().sum(1)
        y = self.tail(x + self.second(index))
        return y + self.spare(x) if spare else y


def batches(rank, uneven, steps):
    """Ranks touch different rows, and different numbers of them; row 0 has no gradient."""
    draw = torch.Generator().manual_seed(100 + rank)
    for step in range(steps):
        size = 1 + (rank * 5 + step) % 7 if uneven else 4
        index = torch.randint(1, ROWS, (size, 3), generator=draw)
        if uneven and (rank + step) % 3 == 0:
            index.zero_()
        yield index, torch.randn(size, 1, generator=draw)


def optimizers(ddp, name):
    sparse = [p for n, p in ddp.named_parameters() if is_sparse(ddp.module, n)]
    dense = [p for n, p in ddp.named_parameters() if not is_sparse(ddp.module, n)]
    if name == "SGD" or not sparse:
        return [torch.optim.SGD(ddp.parameters(), lr=0.05)]
    found = [torch.optim.SparseAdam(sparse, lr=0.01)]
    return found + ([torch.optim.Adam(dense, lr=0.01)] if dense else [])


def is_sparse(module, name):
    owner = module.get_submodule(name.split(".", 1)[1].rpartition(".")[0])
    return getattr(owner, "sparse", False)


def train(rank, kind, over, optimizer="SGD", uneven=False, unused=False, steps=STEPS, **options):
    """Losses of all steps, the parameters, and the gradients of the last step."""
    torch.manual_seed(1)
    ddp = DistributedDataParallel(Net(kind), **options)
    state = over(ddp)
    steppers = optimizers(ddp, optimizer)
    losses = []
    for index, target in batches(rank, uneven, steps):
        ddp.zero_grad(set_to_none=True)
        out = ddp(index, spare=not unused) if kind != "only" else ddp(index)
        loss = (out - target if kind != "only" else out).square().mean()
        loss.backward()
        for stepper in steppers:
            stepper.step()
        losses.append(loss.item())
    return losses, list(ddp.parameters()), state


def furthest(these, those):
    return max(float((a.detach() - b.detach()).abs().max()) for a, b in zip(these, those))


def compare(rank, world, job, kind, wrapped=False, wire=None, **options):
    wrap = default_hooks.fp16_compress_wrapper if wrapped else lambda hook: hook
    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        state = winnow.torch.HookState(comm, wire=wire)
        want = train(rank, kind, lambda ddp: None, **options)
        got = train(
            rank, kind, lambda ddp: ddp.register_comm_hook(state, wrap(winnow.torch.hook)), **options
        )
        stats = state.stats()
        state.close()
    grad = got[1][0].grad
    coalesced = not grad.is_sparse or bool(grad.is_coalesced())
    return max(abs(a - b) for a, b in zip(want[0], got[0])), furthest(want[1], got[1]), coalesced, stats


def other_shapes(rank, world, job):
    """COO tensors that embeddings do not make: several sparse dimensions, scalars for rows."""
    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        state = winnow.torch.HookState(comm)
        for sizes, sparse_dim in (((7, 5), 2), ((6, 4, 3), 2), ((5, 4, 3, 2), 3), ((2, 3, 5, 4), 4), ((9, 2, 3), 1), ((11,), 1)):
            whole = torch.zeros(world, *sizes)
            for r in range(world):
                draw = torch.Generator().manual_seed(r)
                keep = torch.rand(sizes[:sparse_dim], generator=draw) < 0.3
                whole[r][keep] = torch.rand((int(keep.sum()), *sizes[sparse_dim:]), generator=draw)
            for dtype in (torch.float32, torch.float64, torch.bfloat16):
                mine = whole[rank].to(dtype).to_sparse(sparse_dim)
                mean = state.reduce(mine).wait()
                assert mean.is_coalesced() and mean.dtype == dtype and mean.shape == mine.shape
                bound = 1e-6 if dtype != torch.bfloat16 else 2**-7
                assert float((mean.to_dense().double() - whole.double().mean(0)).abs().max()) < bound
        # Indices that are there twice are added up.
        twice = torch.sparse_coo_tensor(torch.tensor([[2, 2]]), torch.ones(2, 4), (5, 4))
        assert float(state.reduce(twice).wait().to_dense().sum()) == 8
        state.close()


class Sparse(harness.TeamCase):
    def check(self, kind, bound=2e-5, **options):
        results = self.team.run(compare, harness.fresh_job(), kind, **options)
        for losses, parameters, coalesced, stats in results:
            self.assertLess(losses, bound)
            self.assertLess(parameters, bound)
            self.assertTrue(coalesced)
            self.assertGreaterEqual(stats.buckets, STEPS)
            # Some 15 rows of 3000 a step and table: less than a fifth with all that goes with them.
            self.assertLess(stats.sent_bytes, stats.bytes / 5)

    def test_kinds(self):
        for kind, options in (
            ("sparse", {"uneven": True}),
            ("only", {"uneven": True}),
            ("mixed", {"static_graph": True, "wire": "fixed32"}),
            ("mixed", {"bound": 1e-4, "optimizer": "SparseAdam", "uneven": True}),
            ("mixed", {"gradient_as_bucket_view": True}),
            ("mixed", {"find_unused_parameters": True, "unused": True}),
            ("mixed", {"bound": HALF_BOUND, "wrapped": True}),
        ):
            with self.subTest(kind=kind, **options):
                self.check(kind, **options)

    def test_other_shapes(self):
        self.team.run(other_shapes, harness.fresh_job())


class Others(unittest.TestCase):
    def check(self, world, bound):
        with harness.Team(world) as team:
            for losses, parameters, coalesced, _ in team.run(compare, harness.fresh_job(), "mixed", uneven=True):
                self.assertLess(max(losses, parameters), bound)
                self.assertTrue(coalesced)

    def test_eight(self):
        """The largest team, once through everything that differs with its size."""
        self.check(8, 5e-5)

    def test_loss(self):
        """Datagrams are lost, doubled and reordered."""
        port = harness.free_port()
        command = [harness.BUILD / "tests" / "e2e" / "chaos", str(port), os.environ["WINNOW_AGGREGATORS"], "1", "5", "5", "10"]
        proxy = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            with mock.patch.dict(os.environ, WINNOW_AGGREGATORS=f"127.0.0.1:{port}"):
                self.check(2, 2e-5)
        finally:
            proxy.terminate()
            said = proxy.communicate()[0]
        self.assertRegex(said, "lost [1-9]")
