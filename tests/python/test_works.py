# SPDX-License-Identifier: BSD-3-Clause
"""The process group backend "winnow": what works keep, which operations wait for which, and one that fails on one rank alone."""

import threading
import time
import weakref
from unittest import mock

import harness
import torch
import torch.distributed as dist
from test_group import group_of, group_with, seconds, what_it_raises

import winnow
import winnow.torch  # noqa: F401 - the backend

SOON_S = 20


def kept(rank, world, job):
    """Of tensors that were reduced and given away, how many are still there, by what was done with the work."""
    group = group_of(job)
    found = {}
    for way in ("future", "forget", "wait", "gather", "strided"):
        there = []
        for number in range(60):
            dtype = torch.uint8 if way == "strided" else torch.float32
            tensor = torch.ones(40, 2, dtype=dtype)
            view = tensor[:, 0] if way == "strided" else tensor
            if way == "gather":
                work = dist.all_gather([torch.empty(40, 2) for _ in range(world)], tensor, group=group, async_op=True)
            else:
                work = dist.all_reduce(view, group=group, async_op=True)
            there.append(weakref.ref(tensor))
            if way in ("future", "gather"):
                work.get_future().wait()
            elif way in ("wait", "strided"):
                work.wait()
            del tensor, view, work
            dist.barrier(group=group)
        until = time.monotonic() + SOON_S  # a thread may still be on its way out of the last one
        while sum(one() is not None for one in there) > 3 and time.monotonic() < until:
            dist.barrier(group=group)
        found[way] = sum(one() is not None for one in there)
    # One that somebody holds has its result for as long.
    work = dist.all_reduce(torch.full((3,), rank + 1.0), group=group, async_op=True)
    for _ in range(20):
        dist.barrier(group=group)
    assert work.get_future().wait()[0].tolist() == [sum(range(1, world + 1))] * 3
    return found


def begin(groups, number, delay):
    """Seconds that it took from now to the result, of futures."""
    time.sleep(delay)
    begun = time.monotonic()
    future = dist.all_reduce(torch.ones(4), group=groups[number], async_op=True).get_future()
    return future, begun


def in_threads(rank, world, job):
    """Each thread has a group of its own, and ranks come to them in another order."""
    groups, took = [group_of(f"{job}-{i}") for i in range(2)], []

    def one(number):
        future, begun = begin(groups, number, 1 if (number + rank) % 2 else 0)
        assert future.wait()[0].tolist() == [world] * 4
        took.append(time.monotonic() - begun)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON_S)
    return len(took)


def in_turn(rank, world, job):
    """One thread, and another order of two groups on each rank; callbacks that begin what belongs to the other group."""
    groups = [group_of(f"{job}-{i}") for i in range(2)]
    order = (0, 1) if rank == 0 else (1, 0)
    futures = {number: begin(groups, number, 0)[0] for number in order}
    assert all(future.wait()[0].tolist() == [world] * 4 for future in futures.values())
    inner = lambda f: begin(groups, 1, 0)[0].then(lambda g: begin(groups, 0, 0)[0].wait()[0][0]).wait()
    assert begin(groups, 0, 0)[0].then(inner).wait() == world
    return True


def alone(rank, world, job):
    """What is raised where an operation does not begin on rank 0, which ends the job, or on no rank, which does not."""
    found = {}
    no_memory = mock.patch.object(winnow.Comm, "broadcast_async", side_effect=MemoryError("no memory"))
    sparse = lambda width: torch.sparse_coo_tensor([[0]], torch.ones(1, width), (5, width))
    options = dist.ReduceScatterOptions()
    calls = {
        "broadcast": lambda group: dist.broadcast(torch.ones(1000), 0, group=group),
        "sparse": lambda group: dist.all_reduce(sparse(70000 if rank == 0 else 3), group=group),
        "small": lambda group: dist.all_reduce(sparse(70000) if rank == 0 else torch.ones(2), group=group),
        "scatter": lambda group: group._reduce_scatter_base(
            torch.ones(4 if rank == 0 else 3), torch.ones(3 * world), options
        ).wait(),
    }
    for name, call in calls.items():
        with no_memory if rank == 0 and name == "broadcast" else mock.MagicMock():
            group = group_with(f"{job}-{name}", seconds(60))
            found[name], _ = what_it_raises(lambda: call(group))
        later, _ = what_it_raises(lambda: dist.all_reduce(torch.ones(1000), group=group))
        assert "workers do not agree on the operation" in later, (name, later)
    group = group_with(job, seconds(60))
    found["all"], _ = what_it_raises(lambda: dist.all_reduce(sparse(70000), group=group))
    dist.barrier(group=group)
    # What the root alone had as a lazily negated view is now like any other.
    value = torch.tensor([3 - 4j]).conj().imag if rank == 0 else torch.zeros(1)
    dist.broadcast(value, 0, group=group)
    assert value.tolist() == [4], value
    return found


class Works(harness.TeamCase):
    world = 3

    def test_kept(self):
        for found in self.team.run(kept, harness.fresh_job()):
            self.assertLessEqual(max(found.values()), 3, found)

    def test_groups_in_threads(self):
        self.assertEqual(self.team.run(in_threads, harness.fresh_job()), [2] * 3)
        self.assertEqual(self.team.run(in_turn, harness.fresh_job()), [True] * 3)

    def test_alone(self):
        first, *others = self.team.run(alone, harness.fresh_job())
        self.assertIn("no memory", first["broadcast"])
        self.assertIn("rows have 70000 elements", first["sparse"])
        self.assertIn("inputs of [9] elements and outputs of [4]: want 3 times as many", first["scatter"])
        for found in others:
            for name in ("broadcast", "sparse", "small", "scatter"):
                self.assertRegex(found[name], "workers do not agree on the operation", name)
                self.assertIn("rank 0", found[name], name)
            self.assertIn("rows have 70000 elements", found["all"])
