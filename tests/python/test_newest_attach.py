# SPDX-License-Identifier: BSD-3-Clause
"""What torch 2 may be set to: another default device, DDP's reducer in Python."""

import os
from unittest import mock

import harness
import torch
import torch.distributed as dist
from test_group import group_of
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(90, 800, device="cpu"), nn.Linear(800, 3, device="cpu"))


def trained(rank, ddp, steps=9):
    """Averages are looked at four times, with way="auto"."""
    optimizer, draw = torch.optim.SGD(ddp.parameters(), lr=0.01), torch.Generator("cpu").manual_seed(rank)
    for _ in range(steps):
        optimizer.zero_grad()
        ddp(torch.randn(4, 90, generator=draw, device="cpu")).square().mean().backward()
        optimizer.step()
    return sum(parameter.detach().double().sum().item() for parameter in ddp.parameters())


def collectives(rank, world, job):
    group = group_of(job)
    ones = lambda *shape, **options: torch.ones(*shape, device="cpu", **options)
    dist.barrier(group=group)
    one = ones(3) * (rank + 1)
    dist.broadcast(one, 1, group=group)
    assert one.tolist() == [2] * 3
    dist.all_reduce(one, group=group)
    sparse = torch.sparse_coo_tensor(ones(1, 1, dtype=torch.int64), ones(1, 2), (4, 2), device="cpu")
    dist.all_reduce(sparse, group=group)
    assert sparse.to_dense()[1].tolist() == [world] * 2
    room = [torch.empty(2, dtype=torch.bool, device="cpu") for _ in range(world)]
    dist.all_gather(room, ones(2, dtype=torch.bool), group=group)
    uneven = [torch.empty(r + 1, device="cpu") for r in range(world)]
    dist.all_gather(uneven, ones(rank + 1), group=group)
    part = ones(2)
    dist.reduce_scatter_tensor(part, ones(2 * world), group=group)
    assert part.tolist() == [world] * 2
    dist.all_to_all_single(torch.empty(world, device="cpu"), ones(world), group=group)


def outer(rank, comm, compress):
    net = model()
    local = torch.optim.SGD(net.parameters(), lr=0.01)
    optimizer = winnow.torch.OuterOptimizer(net, local, H=2, warm_up=2, compress=compress, comm=comm)
    for _ in range(4):
        net(torch.ones(4, 90, device="cpu") * rank).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def elastic(comm):
    alone = dist.new_group([dist.get_rank()], backend="gloo", use_local_synchronization=True)
    ddp = DistributedDataParallel(model(), process_group=alone)
    state = winnow.torch.attach(ddp, comm, elastic=True, compress=winnow.torch.TopK(0.1), wire="bf16")
    optimizer = torch.optim.Adam(ddp.parameters())
    state.share(optimizer)
    for _ in range(3):
        ddp(torch.ones(4, 90, device="cpu")).square().mean().backward()
        optimizer.step()
        state.admit()
    return state.step


def on_meta(rank, world, job):
    """Tensors that a program does not ask for are where it wants to have its own."""
    os.environ["WINNOW_JOB"] = job
    want = trained(rank, DistributedDataParallel(model()))
    torch.set_default_device("meta")
    try:
        collectives(rank, world, f"{job}-group")
        for arguments in ({}, {"way": "auto"}, {"check_nan": True}):
            ddp = DistributedDataParallel(model())
            state = winnow.torch.attach(ddp, **arguments)
            got = trained(rank, ddp)
            assert abs(got - want) < 1e-4, (arguments, got, want)
            state.close()
        ddp = DistributedDataParallel(model())
        state = winnow.torch.attach(ddp, compress=winnow.torch.TopK(0.1, warm_up=1), wire="bf16")
        trained(rank, ddp, 3)
        state.close()
        for compress in (None, "topk:0.1"):
            with winnow.Comm(job=f"{job}-outer-{compress}".replace(":", "-"), rank=rank, world=world) as comm:
                outer(rank, comm, compress)
        with winnow.Comm(job=f"{job}-elastic", rank=rank, world=world) as comm:
            assert elastic(comm) == 3
    finally:
        torch.set_default_device(None)


def python_reducer(rank, world, job):
    """What attach() says, and the hook."""
    with mock.patch("torch._dynamo.config.optimize_ddp", "python_reducer"):
        ddp = DistributedDataParallel(model())
        said = []
        for arguments in ({}, {"elastic": True}):
            try:
                winnow.torch.attach(ddp, **arguments)
            except ValueError as error:
                said.append(str(error))
        state = winnow.torch.HookState()
        ddp.register_comm_hook(state, winnow.torch.hook)
        try:
            trained(rank, ddp, 1)
        except Exception as error:
            said.append(str(error))
        state.close()
    return said


class Set(harness.TeamCase):
    def test_default_device(self):
        self.team.run(on_meta, harness.fresh_job())

    def test_python_reducer(self):
        for said in self.team.run(python_reducer, harness.fresh_job()):
            self.assertEqual(len(said), 3, said)
            for text in said[:2]:
                self.assertRegex(text, '"python_reducer", which has none: set it to True before you create the DistributedDataParallel')
            self.assertIn("python_reducer", said[2])
