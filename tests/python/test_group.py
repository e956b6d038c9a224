# SPDX-License-Identifier: BSD-3-Clause
"""The process group backend "winnow" against Gloo, operation by operation, and under DDP."""

import datetime
import itertools
import os
import threading
import time
import traceback
import unittest
from unittest import mock

import harness
import torch
import torch.distributed as dist
from test_failures import die
from test_sparse_ddp import Net, furthest, train
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch
from winnow import _futures, _group, _places, _sparse

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64)


def group_of(job):
    os.environ["WINNOW_JOB"] = job
    return dist.new_group(backend="winnow")


def tensor_of(rank, dtype, shape=(37, 5)):
    draw = torch.Generator().manual_seed(rank)
    return torch.randint(-4, 5, shape, generator=draw).to(dtype)


def all_reduce(rank, world, job):
    group = group_of(job)
    everyone = {dtype: [tensor_of(r, dtype) for r in range(world)] for dtype in DTYPES}
    for dtype in DTYPES:
        stack = torch.stack(everyone[dtype]).double()
        wanted = {
            dist.ReduceOp.SUM: stack.sum(0),
            dist.ReduceOp.MIN: stack.amin(0),
            dist.ReduceOp.MAX: stack.amax(0),
            dist.ReduceOp.PRODUCT: stack.prod(0),
        }
        if dtype.is_floating_point:
            wanted[dist.ReduceOp.AVG] = stack.mean(0)
        for op, value in wanted.items():
            mine = tensor_of(rank, dtype)
            dist.all_reduce(mine, op=op, group=group)
            error = float((mine.double() - value).abs().max())
            assert error <= 2**-7 * float(value.abs().max()), (dtype, op, error)
    # Not contiguous, of a type for Gloo, and several under way.
    slanted = tensor_of(rank, torch.float32).t()
    dist.all_reduce(slanted, group=group)
    assert torch.equal(slanted, torch.stack(everyone[torch.float32]).sum(0).t())
    small = torch.full((3,), rank + 1, dtype=torch.uint8)
    dist.all_reduce(small, group=group)
    assert small.tolist() == [sum(range(1, world + 1))] * 3
    many = [torch.full((1000,), float(rank + i)) for i in range(20)]
    for work in [dist.all_reduce(t, group=group, async_op=True) for t in many]:
        work.wait()
    assert all(float(t[0]) == sum(range(world)) + world * i for i, t in enumerate(many))


def sparse_all_reduce(rank, world, job):
    group = group_of(job)
    index = torch.tensor([[rank, rank + 3]]) if rank else torch.zeros(1, 0, dtype=torch.int64)
    mine = torch.sparse_coo_tensor(index, torch.ones(index.shape[1], 4), (world + 3, 4))
    wanted = torch.zeros(world + 3, 4)
    for r in range(1, world):
        wanted[[r, r + 3]] += 1
    dist.all_reduce(mine, group=group)
    assert torch.equal(mine.to_dense(), wanted), mine
    assert mine.is_coalesced() and not mine.requires_grad
    # The result is handed over without a copy; the tensor is still the caller's, and a leaf of his.
    results, from_rows = [], _sparse.from_rows
    leaf = torch.sparse_coo_tensor([[1, 1]], torch.ones(2, 4), (5, 4), requires_grad=True)
    with mock.patch.object(_sparse, "from_rows", lambda *rows: results.append(from_rows(*rows)) or results[0]):
        dist.all_reduce(leaf, group=group)
    assert leaf.requires_grad and leaf.is_leaf and leaf.is_coalesced()
    assert leaf.detach().to_dense()[1].tolist() == [2 * world] * 4
    assert leaf.detach().values().data_ptr() == results[0].values().data_ptr()


def the_rest(rank, world, job):
    """What test_strides.py does not draw."""
    group = group_of(job)
    for dtype in (torch.bool, torch.float16):
        got = tensor_of(rank, dtype)
        dist.broadcast(got, 1, group=group)
        assert torch.equal(got, tensor_of(1, dtype)), dtype
    # Of different sizes, and of none.
    got = [torch.zeros(r) for r in range(world)]
    dist.all_gather(got, torch.full((rank,), float(rank)), group=group)
    assert [part.tolist() for part in got] == [[r] * r for r in range(world)], got
    # A list that no all_gather can fill is refused, in Gloo's words.
    for odd in ([torch.zeros(3, dtype=torch.float64 if r == 0 else torch.float32) for r in range(world)],
                [torch.zeros(3 + (r == rank)) for r in range(world)]):
        try:
            dist.all_gather(odd, torch.zeros(3), group=group)
        except (RuntimeError, ValueError) as error:  # newer versions of torch look at the types themselves
            assert "tensor" in str(error), error
        else:
            raise AssertionError(odd)
    part = torch.empty(300 * rank + 1)
    dist.reduce_scatter(part, [torch.full((300 * r + 1,), float(r)) for r in range(world)], group=group)
    assert part.tolist() == [rank * world] * (300 * rank + 1)
    # Bits arrive as they are: a NaN's, a negative zero's.
    bits = torch.tensor([-0.0, float("nan"), float("inf"), 1e-45])
    got = bits.clone() if rank == 0 else torch.zeros(4)
    dist.broadcast(got, 0, group=group)
    assert torch.equal(got.view(torch.int32), bits.view(torch.int32))
    objects = [None] * world
    dist.all_gather_object(objects, {"rank": rank}, group=group)
    assert objects == [{"rank": r} for r in range(world)]
    begun = time.monotonic()
    time.sleep(0.3 * (rank == 0))
    dist.barrier(group=group)
    assert time.monotonic() - begun > 0.25


def gathers(rank, world, job):
    """all_gather in each of its forms: of all types, shapes and sizes, and of nothing."""
    group = group_of(job)
    names = "float32 bfloat16 int8 int16 bool complex64 float8_e4m3fn uint16"
    for dtype in [getattr(torch, name) for name in names.split() if hasattr(torch, name)]:
        parts = [tensor_of(r, torch.float32, (2, 3)).to(dtype) for r in range(world)]
        bits = [part.view(torch.uint8) for part in parts]
        for shapes in ([(2, 3)] * world, [(3, 2)] * world, [(6,)] + [(2, 3)] * (world - 1)):
            got = [torch.zeros(shape, dtype=dtype) for shape in shapes]
            dist.all_gather(got, parts[rank], group=group)
            for r in range(world):
                assert torch.equal(got[r].view(torch.uint8).view(-1), bits[r].view(-1)), (dtype, shapes)
        got = [torch.zeros((3, 2), dtype=dtype).t() for _ in range(world)]
        dist.all_gather(got, parts[rank], group=group)
        assert all(torch.equal(got[r].contiguous().view(torch.uint8), bits[r]) for r in range(world)), dtype
    # Lists of different sizes, among them nothing.
    got = [torch.zeros(r % 2 * 3, dtype=torch.int16) for r in range(world)]
    dist.all_gather(got, torch.full((rank % 2 * 3,), rank, dtype=torch.int16), group=group)
    assert [part.tolist() for part in got] == [[r] * (r % 2 * 3) for r in range(world)], got
    # Torch 1.13 over Gloo divides by the size.
    dist.all_gather([torch.zeros(0) for _ in range(world)], torch.zeros(0), group=group)
    dist.all_gather_coalesced([[torch.zeros(0), torch.zeros(0, 2)]] * world, [torch.zeros(0), torch.zeros(0, 2)], group)
    if hasattr(dist, "all_gather_into_tensor"):
        into_tensors(rank, world, group)
    got = [[torch.zeros(2), torch.zeros(r)] for r in range(world)]
    mine = [torch.full((2,), float(rank)), torch.full((rank,), float(rank))]
    dist.all_gather_coalesced(got, mine, group)
    assert [[part.tolist() for part in parts] for parts in got] == [[[r] * 2, [r] * r] for r in range(world)], got
    # The value of a future is what was passed.
    for shapes in ([3] * world, range(world)):
        got = [torch.zeros(shape) for shape in shapes]
        work = dist.all_gather(got, torch.ones(len(got[rank])), group=group, async_op=True)
        (value,) = work.get_future().wait()
        assert [part.data_ptr() for part in value] == [part.data_ptr() for part in got] and work.is_success()
        assert all(torch.equal(part, torch.ones(len(part))) for part in got)


def into_tensors(rank, world, group):
    everyone = [float(r) for r in range(world) for _ in range(6)]
    for shape in ((6 * world,), (1, 6 * world), (world, 6), (2 * world, 3), (world, 2, 3), (6, world)):
        got = torch.zeros(shape)
        dist.all_gather_into_tensor(got, torch.full((2, 3), float(rank)), group=group)
        assert got.view(-1).tolist() == everyone, shape
    work = dist.all_gather_into_tensor(got, torch.full((2, 3), float(rank)), group=group, async_op=True)
    (value,) = work.get_future().wait()
    assert value.shape == got.shape and value.data_ptr() == got.data_ptr()
    for dtype in (torch.int16, torch.bool):
        got = torch.zeros((1, world), dtype=dtype)
        dist.all_gather_into_tensor(got, torch.tensor(rank % 2, dtype=dtype), group=group)
        assert got.tolist() == [[r % 2 for r in range(world)]], dtype
    dist.all_gather_into_tensor(torch.zeros(0), torch.zeros(0), group=group)
    for odd in (5 * world, 6 * world + 1):
        text, _ = what_it_raises(lambda: dist.all_gather_into_tensor(torch.zeros(odd), torch.ones(6), group=group))
        assert "size" in text, text
    if not hasattr(dist, "_coalescing_manager"):
        return
    for dtype in (torch.float32, torch.int16):
        got = [torch.zeros(shape, dtype=dtype) for shape in ((1, 6 * world), (0,), (world, 2))]
        with dist._coalescing_manager(group):
            for tensor in got:
                mine = torch.full((tensor.numel() // world,), rank, dtype=dtype)
                dist.all_gather_into_tensor(tensor, mine, group=group)
        wanted = [[everyone], [], [[float(r)] * 2 for r in range(world)]]
        assert [tensor.tolist() for tensor in got] == wanted, got


def among_others(rank, world, job):
    """all_gathers between all_reduces, in the program and in callbacks: ranks agree on their order."""
    group = group_of(job)

    def gathered(value):
        got = [torch.zeros(1) for _ in range(world)]
        dist.all_gather(got, torch.tensor([value + rank / 10]), group=group)
        assert torch.equal(torch.cat(got), value + torch.arange(world) / 10), (value, got)

    for turn in range(20):
        future = dist.all_reduce(torch.ones(1), group=group, async_op=True).get_future()
        if turn % 2:
            parts = [torch.zeros(1) for _ in range(world)]
            future = dist.all_gather(parts, torch.ones(1), group=group, async_op=True).get_future()

        def back(f):
            time.sleep(0.003 * ((turn + rank) % world))
            gathered(turn)

        done = future.then(back)
        time.sleep(0.003 * (turn % world == rank))
        gathered(turn + 100)
        dist.all_reduce(torch.ones(1), group=group)
        done.wait()


def sub_groups(rank, world, job):
    """Two groups, of which each rank is in one; and both at the same time."""
    os.environ["WINNOW_JOB"] = job
    halves = [list(range(0, world, 2)), list(range(1, world, 2))]
    groups = [dist.new_group(half, backend="winnow") for half in halves]
    mine = torch.ones(1000)
    dist.all_reduce(mine, group=groups[rank % 2])
    assert float(mine[0]) == len(halves[rank % 2])
    got = [torch.zeros(3) for _ in halves[rank % 2]]
    dist.all_gather(got, torch.full((3,), float(rank)), group=groups[rank % 2])
    assert [part.tolist() for part in got] == [[r] * 3 for r in halves[rank % 2]]


def seconds(count):
    return datetime.timedelta(seconds=count)


def group_with(job, timeout):
    os.environ["WINNOW_JOB"] = job
    return dist.new_group(backend="winnow", timeout=timeout)


def what_it_raises(call):
    """The text, and how long it took."""
    begun = time.monotonic()
    try:
        call()
    except RuntimeError as error:
        return str(error), time.monotonic() - begun
    return "nothing", time.monotonic() - begun


def late_for_the_group(rank, world, job):
    """Rank 1 calls later than the group's timeout, but not later than the library's own."""
    group = group_with(job, seconds(1))
    time.sleep(3 * (rank == 1))
    return what_it_raises(lambda: dist.all_reduce(torch.ones(3), group=group))


def late_for_a_gather(rank, world, job):
    group = group_with(job, seconds(1))
    time.sleep(3 * (rank == 1))
    found = what_it_raises(lambda: dist.all_gather([torch.zeros(3)] * world, torch.ones(3), group=group))
    uneven = [torch.zeros(r + 1) for r in range(world)]
    what_it_raises(lambda: dist.all_gather(uneven, torch.ones(rank + 1), group=group))
    return found


def late_for_the_call(rank, world, job):
    group = group_with(job, seconds(60))
    options = dist.AllreduceOptions()
    options.timeout = seconds(1)
    time.sleep(3 * (rank == 1))
    return what_it_raises(lambda: group.allreduce([torch.ones(3)], options).wait())


def late_for_a_wait(rank, world, job):
    """It goes on, and can be waited for again."""
    group = group_with(job, seconds(60))
    time.sleep(2 * (rank == 1))
    mine = torch.ones(3)
    work = dist.all_reduce(mine, group=group, async_op=True)
    found = what_it_raises(lambda: work.wait(seconds(0.5)))
    work.wait()
    assert mine.tolist() == [world] * 3
    return found


def restarted(rank, world, job):
    """In a store that an earlier run has used, as torchrun's; rank 0 is late to say what the job's name is now."""
    os.environ["WINNOW_JOB"] = job
    store = dist.PrefixStore(job, dist.distributed_c10d._get_default_store())
    store.set("winnow-job", f"{job}-before")
    dist.barrier()
    draw = _places.draw_job
    with mock.patch.object(_places, "draw_job", lambda: time.sleep(rank == 0) or draw()):
        group = _group.ProcessGroupWinnow(store, rank, world, seconds(5))
    mine = torch.ones(3)
    group.allreduce([mine]).wait()
    group.shutdown()
    return mine.tolist()


def under_ddp(rank, world, job, kind, **options):
    group = group_of(job)
    want = train(rank, kind, lambda ddp: None, **options)
    got = train(rank, kind, lambda ddp: None, process_group=group, **options)
    return max(max(abs(a - b) for a, b in zip(want[0], got[0])), furthest(want[1], got[1]))


def side_by_side(rank, world, job):
    """Of each bucket of a step: whether the last one had begun before anybody waited for it to be over."""
    ddp = DistributedDataParallel(
        nn.Sequential(*(nn.Linear(600, 600) for _ in range(4))), process_group=group_of(job), bucket_cap_mb=1
    )
    ddp(torch.ones(2, 600)).sum().backward()
    loss = ddp(torch.ones(2, 600)).sum()  # DDP has made its buckets anew
    start, wait = winnow.Comm.allreduce_async, _futures._Order.wait
    begun, last, found = itertools.count(1), threading.Event(), []

    def started(*arguments, **options):
        if next(begun) == 4:
            last.set()
        return start(*arguments, **options)

    def waited(order):
        found.append(last.wait(3))
        wait(order)

    with mock.patch.object(winnow.Comm, "allreduce_async", started), mock.patch.object(_futures._Order, "wait", waited):
        loss.backward()
    return found


def until_one_dies(rank, world, job, kind):
    """The text of what backward() raises, of a failed all_reduce, and how long each took."""
    group = group_of(job)
    torch.manual_seed(1)
    ddp = DistributedDataParallel(Net(kind), process_group=group)
    for step in range(1000):
        if rank == 1 and step == 5:
            die(None)
        begun = time.monotonic()
        try:
            ddp(torch.randint(1, 3000, (4, 3))).sum().backward()
        except RuntimeError as error:
            first = str(error)
            break
    try:
        dist.all_reduce(torch.ones(3), group=group)
    except winnow.WinnowError as error:
        assert error.code == winnow.WinnowError.MEMBERS, error.code
        assert sum("client/python" in place.filename for place in traceback.extract_tb(error.__traceback__)) == 1
        return first, str(error), time.monotonic() - begun
    return first, "all_reduce did not raise", 0


class Group(harness.TeamCase):
    world = 3

    def test_all_reduce(self):
        self.team.run(all_reduce, harness.fresh_job())

    def test_sparse_all_reduce(self):
        self.team.run(sparse_all_reduce, harness.fresh_job())

    def test_the_rest(self):
        self.team.run(the_rest, harness.fresh_job())

    def test_gathers(self):
        self.team.run(gathers, harness.fresh_job())

    def test_gathers_among_others(self):
        self.team.run(among_others, harness.fresh_job())

    def test_sub_groups(self):
        self.team.run(sub_groups, harness.fresh_job())

    def test_restarted(self):
        self.assertEqual(self.team.run(restarted, harness.fresh_job()), [[3.0] * 3] * 3)

    def test_under_ddp(self):
        for kind in ("dense", "mixed"):
            with self.subTest(kind=kind):
                for difference in self.team.run(under_ddp, harness.fresh_job(), kind, uneven=True):
                    self.assertLess(difference, 2e-5)


    def test_buckets_side_by_side(self):
        self.assertEqual(self.team.run(side_by_side, harness.fresh_job()), [[True] * 4] * self.world)


class TimeOuts(unittest.TestCase):
    def test_times_of_the_environment(self):
        hour = datetime.timedelta(hours=1)
        both = {"timeout_ms": 3600000, "join_timeout_ms": 65000}
        for environment, own in (
            ({}, set()),
            ({"WINNOW_TIMEOUT": "5s"}, {"timeout_ms"}),
            ({"WINNOW_TIMEOUT_MS": "5000"}, {"timeout_ms"}),
            ({"WINNOW_TIMEOUT": "", "WINNOW_JOIN_TIMEOUT": "5s"}, {"join_timeout_ms"}),
        ):
            with mock.patch.dict(os.environ, environment):
                self.assertEqual(_group.time_outs(hour), {name: value for name, value in both.items() if name not in own})

    def test_all(self):
        """Of the group, of a gather over Gloo, of a call, and of a wait; side by side, for they wait."""
        checks = (
            (late_for_the_group, "rank 1", 2.5),
            (late_for_a_gather, "imed out", 2.5),
            (late_for_the_call, "its timeout of 1 s", 2.5),
            (late_for_a_wait, "not done after 0.5 s", 1.5),
        )

        def check(number):
            function, text, limit = checks[number]
            with harness.Team(2) as team:
                (said, took), (other, _) = team.run(function, harness.fresh_job())
            self.assertIn(text, said)
            self.assertLess(took, limit)
            return other

        others = harness.on_threads(len(checks), check)
        self.assertNotEqual(others[0], "nothing")
        self.assertIn("its timeout of 1 s", others[2])
        self.assertEqual(others[3], "nothing")


class GroupFailures(unittest.TestCase):
    def test_a_worker_is_killed(self):
        with harness.Team(3) as team:
            team.start(until_one_dies, harness.fresh_job(), "mixed")
            results = team.collect(30)
        self.assertEqual(results[1], "died -9")
        for result in (results[0], results[2]):
            self.assertIsInstance(result, tuple, result)
            self.assertIn("rank 1", result[0])
            self.assertRegex(result[1], "^aggregator .* rank 1 .* is lost")
            self.assertLess(result[2], 5)


def default_group(rank, world, store, job, pipe):
    os.environ["WINNOW_JOB"] = job
    dist.init_process_group("winnow", init_method=store, rank=rank, world_size=world)
    ddp = DistributedDataParallel(nn.Linear(4, 4))
    ddp(torch.ones(2, 4) * (rank + 1)).sum().backward()
    pipe.send((dist.get_backend(), float(ddp.module.weight.grad[0, 0])))
    dist.destroy_process_group()


class Default(unittest.TestCase):
    def test_init_process_group(self):
        results = harness.spawned(default_group, 2, harness.fresh_job())
        self.assertEqual(results, [("winnow", 3.0)] * 2)
