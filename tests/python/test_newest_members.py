# SPDX-License-Identifier: BSD-3-Clause
"""torch 2.15's contract for groups whose members change: init_process_group("winnow", enable_reconfigure=True)."""

import datetime
import multiprocessing
import os
import time
import unittest

import harness
import torch
import torch.distributed as dist

import winnow.torch

LIMIT = datetime.timedelta(seconds=30)
WORLDS = (2, 3, 5)
multiprocessing.get_context("forkserver").set_forkserver_preload(["torch", "torch.distributed", "winnow.torch"])


class Ranks:
    """What the tests of one rank share. `uuid` numbers memberships, the same on all ranks that take part."""

    def __init__(self, rank, world, store):
        self.rank, self.world, self.store, self.gathered = rank, world, store, 0

    def handles(self):
        """Of all, those that are in no membership included."""
        self.gathered += 1
        self.store.set(f"handle-{self.gathered}-{self.rank}", dist._get_reconfigure_handle())
        return [self.store.get(f"handle-{self.gathered}-{rank}").decode() for rank in range(self.world)]

    def meet(self, name):
        self.store.set(f"{name}-{self.rank}", "1")
        self.store.wait([f"{name}-{rank}" for rank in range(self.world)])

    def formed(self, uuid, handles, rank, world):
        dist._reconfigure(uuid, handles, timeout=LIMIT).wait()
        assert (dist.get_rank(), dist.get_world_size()) == (rank, world), (dist.get_rank(), dist.get_world_size())

    def all_formed(self, uuid):
        self.formed(uuid, self.handles(), self.rank, self.world)

    def alone(self, uuid):
        self.formed(uuid + self.rank, [dist._get_reconfigure_handle()], 0, 1)


def raises(kind, text, call, *arguments, **options):
    with unittest.TestCase().assertRaisesRegex(kind, text):
        call(*arguments, **options)


def summed():
    """Through the aggregator, in one datagram and in many."""
    world = dist.get_world_size()
    for count in (4, 100000):
        tensor = torch.full((count,), dist.get_rank() + 1.0)
        dist.all_reduce(tensor)
        assert (tensor == sum(range(1, world + 1))).all(), (tensor, world)


def broadcast(value):
    tensor = torch.full((5,), value if dist.get_rank() == 0 else 0)
    dist.broadcast(tensor, group_src=0)
    assert tensor.tolist() == [value] * 5, tensor


def collectives(ranks):
    assert dist._supports_reconfigure()
    ranks.all_formed(1)
    summed()
    broadcast(42)
    dist.barrier()
    world, to, of = ranks.world, (ranks.rank + 1) % ranks.world, (ranks.rank - 1) % ranks.world
    got = torch.zeros(4)
    for work in [dist.isend(torch.full((4,), float(ranks.rank)), to), dist.irecv(got, of)]:
        work.wait()
    assert got.tolist() == [of] * 4, got
    parts = [torch.zeros(2) for _ in range(world)]
    dist.all_gather(parts, torch.full((2,), float(ranks.rank)))
    assert [part.tolist() for part in parts] == [[r, r] for r in range(world)], parts
    share = torch.zeros(3)
    dist.reduce_scatter_tensor(share, torch.ones(3 * world))
    assert share.tolist() == [world] * 3, share


def shrink(ranks, gone):
    ranks.all_formed(1)
    handles = ranks.handles()
    if ranks.rank != gone:
        ranks.formed(2, handles[:gone] + handles[gone + 1 :], ranks.rank - (ranks.rank > gone), ranks.world - 1)
        summed()
        broadcast(43)
    ranks.meet("done")


def shrink_by_the_last(ranks):
    shrink(ranks, ranks.world - 1)


def shrink_by_a_middle_one(ranks):
    shrink(ranks, ranks.world // 2)


def down_and_up(ranks):
    ranks.alone(100)
    summed()
    ranks.all_formed(1)
    summed()
    ranks.alone(200)
    summed()


def late_join(ranks):
    handles, first = ranks.handles(), max(ranks.world // 2, 1)
    if ranks.rank < first:
        ranks.formed(1, handles[:first], ranks.rank, first)
        summed()
    ranks.all_formed(2)
    summed()


def split_and_merge(ranks):
    for turn in (1, 2):
        handles, half = ranks.handles(), ranks.world // 2
        if ranks.rank < half:
            ranks.formed(10 * turn, handles[:half], ranks.rank, half)
        else:
            ranks.formed(10 * turn + 1, handles[half:], ranks.rank - half, ranks.world - half)
        summed()
        ranks.all_formed(10 * turn + 2)
        summed()


def after_abort(ranks):
    """Of the group, and of its backend; and again without any."""
    ranks.all_formed(1)
    group = dist.group.WORLD
    of_backend = lambda: dist.get_backend_impl(group, torch.device("cpu")).abort()
    for uuid, abort in enumerate((group.abort, of_backend, lambda: None), 2):
        summed()
        abort()
        ranks.all_formed(uuid)
    summed()


def used_twice(ranks):
    ranks.alone(100)
    raises(RuntimeError, "already used", ranks.alone, 100)


def a_set_of_handles(ranks):
    handles = ranks.handles()
    dist._reconfigure(1, set(handles), timeout=LIMIT).wait()
    assert dist.get_rank() == sorted(handles).index(handles[ranks.rank])
    summed()


def not_among_them(ranks):
    handles = ranks.handles()
    others = [handles[(ranks.rank + 1) % ranks.world]]
    raises(ValueError, "this process's handle", dist._reconfigure, 1, others, timeout=LIMIT)


def after_a_death(ranks):
    """The last rank dies in an operation; the others know who, and continue, within a second."""
    ranks.all_formed(1)
    handles = ranks.handles()
    summed()
    if ranks.rank == ranks.world - 1:
        os._exit(9)
    begun = time.monotonic()
    raises(winnow.MembersChanged, rf"rank {ranks.world - 1} \(", dist.all_reduce, torch.ones(1000))
    ranks.world -= 1
    handles = ranks.handles()
    ranks.formed(2, handles, ranks.rank, ranks.world)
    summed()
    assert time.monotonic() - begun < 5, time.monotonic() - begun


def run(rank, world, store, job, name, pipe):
    torch.set_num_threads(1)
    os.environ["WINNOW_JOB"] = job
    file = dist.FileStore(store.removeprefix("file://"), -1)
    group_store, own = dist.PrefixStore("group", file), dist.PrefixStore("test", file)
    options = {"world_size": world, "rank": rank, "store": group_store, "timeout": LIMIT}
    dist.init_process_group("winnow", enable_reconfigure=True, **options)
    try:
        globals()[name](Ranks(rank, world, own))
        pipe.send("ok")
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")
    dist.destroy_process_group()


@unittest.skipUnless(hasattr(dist, "_reconfigure"), "this torch has no groups whose members change")
class Members(unittest.TestCase):
    def check(self, function):
        for world in WORLDS:
            with self.subTest(world=world):
                results = harness.spawned(run, world, harness.fresh_job(), function.__name__)
                wanted = ["ok"] * world
                if function is after_a_death:
                    wanted[-1] = "died"
                self.assertEqual(results, wanted)

    def test_without_it(self):
        """A group that was not made for it says so."""
        from test_newest_group import default_group

        results = harness.spawned(default_group, 2, harness.fresh_job(), supports)
        self.assertEqual(results, [False, False])


def supports(rank, world):
    return dist._supports_reconfigure()


for _function in (
    collectives, shrink_by_the_last, shrink_by_a_middle_one, down_and_up, late_join, split_and_merge, after_abort, used_twice,
    a_set_of_handles, not_among_them, after_a_death,
):  # fmt: skip
    setattr(Members, f"test_{_function.__name__}", lambda self, function=_function: self.check(function))
