# SPDX-License-Identifier: BSD-3-Clause
"""Collectives that are called, and waited for, in callbacks of others: nobody waits for ever, and ranks agree on the order."""

import random
import threading
import time

import harness
import torch
import torch.distributed as dist
from test_group import group_of
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch


def reduced(value, group):
    return dist.all_reduce(torch.full((100,), float(value)), group=group, async_op=True)


def nested(rank, world, job):
    """Each way to wait inside a callback, three deep, and where the one waited for comes later."""
    group = group_of(job)
    waits = {
        "work": lambda work: work.wait(),
        "future": lambda work: work.get_future().wait(),
        "result": lambda work: work.result() if rank else work.wait(),
    }
    for wait in waits.values():
        fut = reduced(1, group).get_future().then(lambda f: wait(reduced(2, group)) and 5)
        assert fut.wait() == 5

    def deeper(depth):
        got = reduced(depth, group).get_future()
        return got.then(lambda f: deeper(depth - 1) if depth else f.value()[0][0]).wait()

    assert deeper(3) == 0
    first, second = reduced(1, group), reduced(2, group).get_future()
    assert first.get_future().then(lambda f: second.wait()[0][0]).wait() == 2 * world


def shuffled(rank, world, job):
    """Chains of several operations at a time, whose callbacks run when they like, in the callbacks' or the program's thread."""
    group = group_of(job)
    draw = random.Random(rank)

    def pause():
        time.sleep(draw.choice([0, 0, 0.0003, 0.003]))

    def chain(number):
        def again(f):
            pause()
            got = float(reduced(number * 100 + round(float(f.value()[0][0]) / world), group).get_future().wait()[0][0])
            pause()
            return got

        def last(f):
            pause()
            return float(reduced(number * 1000 + round(f.value() / world), group).get_future().wait()[0][0])

        future = works[number].get_future()
        pause()
        future = future.then(again)
        pause()
        return future.then(last)

    for turn in range(9):
        time.sleep(0.02 * (turn % world == rank))  # so that others have attached callbacks before it is over
        works = [reduced(number + turn, group) for number in range(8)]
        futures = [chain(number) for number in range(8)]
        plain = reduced(7, group)
        for number, future in enumerate(futures):
            assert future.wait() == world * (number * 1100 + number + turn), (number, future.value())
        plain.wait()
    # One that a callback keeps is replaced, and goes again.
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("winnow-group") <= 4, names


def hooks(rank, world, job):
    """The futures of winnow.torch.attach() alike."""
    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        state = winnow.torch.HookState(comm)
        inner = lambda f: state.reduce(f.value() + 1).wait()
        assert state.reduce(torch.full((10,), float(rank))).then(inner).wait()[0] == (world - 1) / 2 + 1
        state.close()


def net(widths):
    torch.manual_seed(1)
    layers = [layer for pair in zip(widths, widths[1:]) for layer in (nn.Linear(*pair), nn.Tanh())]
    return nn.Sequential(*layers[:-1])


def train(rank, group, hook, widths, **options):
    """The parameters after 12 steps."""
    ddp = DistributedDataParallel(net(widths), process_group=group, **options)
    if hook is powerSGD_hook.powerSGD_hook:
        state = powerSGD_hook.PowerSGDState(
            group, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=0.5
        )
    else:
        state = group
    ddp.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    draw = torch.Generator().manual_seed(rank)
    for _ in range(12):
        optimizer.zero_grad()
        x = torch.randn(8, widths[0], generator=draw)
        (ddp(x) - x[:, : widths[-1]]).square().mean().backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in ddp.parameters()])


def power_sgd(rank, world, job):
    """One bucket as over Gloo. Of several buckets Gloo's callbacks meet in any order, and abort it; here they
    come to the same each time, but for how the CPU rounds elsewhere in memory."""
    group, gloo = group_of(job), dist.new_group(backend="gloo")
    small = (64, 96, 96, 4)
    wanted, got = (train(rank, each, powerSGD_hook.powerSGD_hook, small) for each in (gloo, group))
    assert float((wanted - got).abs().max()) < 1e-4
    large = (128, 512, 512, 512, 4)
    first, again = (
        train(rank, group, powerSGD_hook.powerSGD_hook, large, bucket_cap_mb=0.5) for _ in range(2)
    )
    assert float((first - again).abs().max()) < 1e-3
    everyone = [torch.empty_like(first) for _ in range(world)]
    dist.all_gather(everyone, first, group=gloo)
    assert all(torch.equal(one, first) for one in everyone)


def other_hooks(rank, world, job):
    group, gloo = group_of(job), dist.new_group(backend="gloo")
    for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook):
        wanted, got = (
            train(rank, each, hook, (64, 512, 512, 4), bucket_cap_mb=0.5) for each in (gloo, group)
        )
        assert float((wanted - got).abs().max()) < 1e-2


class Callbacks(harness.TeamCase):
    def test_of_two(self):
        for function in (nested, hooks, power_sgd, other_hooks):
            with self.subTest(function=function.__name__):
                self.team.run(function, harness.fresh_job())


class CallbacksOfThree(harness.TeamCase):
    world = 3

    def test_shuffled(self):
        self.team.run(shuffled, harness.fresh_job())
