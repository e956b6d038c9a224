# SPDX-License-Identifier: BSD-3-Clause
"""What torch builds on a process group from 2.x on, over "winnow", beside the recipes: names, FSDP of before, splits, time-outs."""

import datetime
import multiprocessing
import os
import sys
import unittest
from unittest import mock

import harness
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from test_group import side_by_side
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

import winnow.torch
from winnow import _cuda

# Imports that take seconds, before ranks are forked.
multiprocessing.get_context("forkserver").set_forkserver_preload(
    ["torch", "torch._dynamo", "torch.distributed.fsdp"]
)


def default_group(rank, world, store, job, function, pipe):
    """function(rank, world) in a default group "winnow"."""
    torch.set_num_threads(1)
    os.environ["WINNOW_JOB"] = job
    dist.init_process_group("winnow", init_method=store, rank=rank, world_size=world)
    try:
        pipe.send(function(rank, world))
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")
    dist.destroy_process_group()


def named(rank, world):
    group = dist.group.WORLD
    assert group.group_name == "0", group.group_name
    assert dist.new_group(backend="winnow").group_name != group.group_name
    assert torch.device("cpu") in group._device_types
    assert dist.get_backend() == "winnow"
    return group._get_backend(torch.device("cpu")).name()


def reached(rank, world):
    """Functional collectives, which find a group by its name; eager and compiled."""
    group = dist.group.WORLD
    assert functional.all_reduce(torch.ones(4), "sum", group).tolist() == [world] * 4
    gathered = functional.all_gather_single(torch.full((2,), float(rank)), 0, group)
    assert gathered.tolist() == [r for r in range(world) for _ in range(2)], gathered
    assert functional.reduce_scatter_single(torch.ones(2 * world), "avg", 0, group).tolist() == [1, 1]
    exchanged = functional.all_to_all_single(torch.arange(float(world)), None, None, group)
    assert exchanged.tolist() == [rank] * world

    @torch.compile(backend="aot_eager", fullgraph=True)
    def compiled(x):
        return functional.all_reduce(x * 2, "sum", group) + 1

    assert compiled(torch.ones(3)).tolist() == [2 * world + 1] * 3


def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def losses(model, rank, steps=4):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    draw = torch.Generator().manual_seed(7 + rank)
    found = []
    for _ in range(steps):
        loss = model(torch.randn(16, 8, generator=draw)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return found


def shard(model, mesh):
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def shard_as_once(model, mesh):
    return FullyShardedDataParallel(model, process_group=mesh.get_group(), device_id=torch.device("cpu"))


def refused(rank, world):
    """attach() to a sharded model says what to do, and leaves the model as it was."""
    found = []
    mesh = init_device_mesh("cpu", (world,))
    for make in (shard, shard_as_once):
        try:
            winnow.torch.attach(make(net(), mesh))
        except TypeError as error:
            found.append('init_process_group("winnow") instead of attach()' in str(error))
    return found


def sharded_as_once(rank, world):
    found = []
    for backend in ("winnow", "gloo"):
        mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",), backend_override={"dp": (backend, None)})
        found.append(losses(shard_as_once(net(), mesh), rank))
    over_winnow, over_gloo = found
    assert max(abs(a - b) for a, b in zip(over_winnow, over_gloo)) < 1e-6, found


def compiled_ddp(rank, world):
    plain, compiled = nn.parallel.DistributedDataParallel(net()), torch.compile(
        nn.parallel.DistributedDataParallel(net()), backend="aot_eager"
    )
    difference = [a - b for a, b in zip(losses(plain, rank), losses(compiled, rank))]
    assert max(map(abs, difference)) < 1e-6, difference


def buckets(rank, world):
    """The compiler puts frames of its own between DDP and a group."""
    assert "torch._dynamo" in sys.modules
    return side_by_side(rank, world, os.environ["WINNOW_JOB"])


def point_to_point(rank, world):
    sent, got = torch.full((3,), float(rank)), torch.zeros(3)
    to, of = (rank + 1) % world, (rank - 1) % world
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, to), dist.P2POp(dist.irecv, got, of)]):
        work.wait()
    assert got.tolist() == [of] * 3
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=20))


def coalesced(rank, world):
    several = [torch.full((n,), float(rank)) for n in (3, 5)]
    with dist._coalescing_manager():
        for tensor in several:
            dist.all_reduce(tensor)
    assert all(tensor.tolist() == [sum(range(world))] * len(tensor) for tensor in several), several


def split(rank, world):
    halves = [list(range(world // 2)), list(range(world // 2, world))]
    group = dist.split_group(split_ranks=halves)
    mine = torch.ones(10)
    dist.all_reduce(mine, group=group)
    assert mine.tolist() == [world // 2] * 10, mine
    assert dist.get_backend(group) == "winnow"
    got = torch.zeros(1, 2 * (world // 2))
    dist.all_gather_into_tensor(got, torch.full((2,), float(rank)), group=group)
    assert got.tolist() == [[r for r in halves[rank // (world // 2)] for _ in range(2)]], got
    only = dist.split_group(split_ranks=[[0, 1]])
    assert (only is None or only == dist.GroupMember.NON_GROUP_MEMBER) == (rank > 1), only


def again(rank, world):
    """The job is left with the group, so another group may have its name at once."""
    dist.destroy_process_group(dist.new_group(backend="winnow"))
    group = dist.new_group(backend="winnow")
    dist.all_reduce(torch.ones(3), group=group)


class Nccl(dist.ProcessGroupGloo):
    """In place of NCCL's group; what passes for a tensor on a GPU is on the CPU."""

    class Options:
        pass

    def __init__(self, store, rank, size, options):
        super().__init__(store, rank, size, options._timeout)
        Nccl.made.append(self)

    def shutdown(self):
        Nccl.ends.append("shutdown")

    def abort(self):
        Nccl.ends.append("abort")


def with_gpus(rank, world):
    """torch asks for the group of GPUs before it is used, finds it by its device, and has it do what we do not."""
    Nccl.made, Nccl.ends = [], []
    gpu, cpu = torch.device("cuda", 0), torch.device("cpu")
    with (
        mock.patch.object(dist, "is_nccl_available", lambda: True),
        mock.patch.object(dist, "ProcessGroupNCCL", Nccl, create=True),
    ):
        group = dist.new_group(backend="winnow")
        assert group._get_backend(cpu).name() == "gloo" and not Nccl.made
        assert [group._get_backend(gpu)] == Nccl.made == [dist.ProcessGroup._get_backend(group, gpu)]
        with mock.patch.object(_cuda, "device_of", lambda tensor: gpu):
            outs = [torch.empty(world * n) for n in (2, 3)]
            group.all_gather_single_coalesced(outs, [torch.full((n,), float(rank)) for n in (2, 3)]).wait()
            share = torch.empty(2)
            group.reduce_scatter_single_coalesced([share], [torch.ones(2 * world)], dist.ReduceScatterOptions()).wait()
        assert [out.tolist() for out in outs] == [[r for r in range(world) for _ in range(n)] for n in (2, 3)], outs
        assert share.tolist() == [world] * 2, share
        dist.destroy_process_group(group)
    assert len(Nccl.made) == 1 and Nccl.ends == ["shutdown"], (Nccl.made, Nccl.ends)


class Built(unittest.TestCase):
    def check(self, function, world=2, wanted=None):
        results = harness.spawned(default_group, world, harness.fresh_job(), function)
        self.assertEqual(results, [wanted] * world)

    def test_named(self):
        self.check(named, wanted="gloo")

    def test_functional_collectives(self):
        self.check(reached)

    def test_fully_sharded_data_parallel(self):
        self.check(sharded_as_once)

    def test_attach_is_for_ddp(self):
        self.check(refused, wanted=[True, True])

    def test_compiled_ddp(self):
        self.check(compiled_ddp)

    def test_buckets_side_by_side(self):
        self.check(buckets, wanted=[True] * 4)

    def test_point_to_point(self):
        self.check(point_to_point)

    def test_coalesced(self):
        self.check(coalesced)

    def test_split(self):
        self.check(split, 4)

    def test_with_gpus(self):
        self.check(with_gpus)

    def test_again(self):
        self.check(again)
