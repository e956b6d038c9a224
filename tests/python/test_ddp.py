# SPDX-License-Identifier: BSD-3-Clause
"""DistributedDataParallel: 8 steps over Winnow end where 8 steps over Gloo end."""

import json
import os
import pathlib
import pickle
import tempfile
from unittest import mock

import harness
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch

STEPS = 8
RATE = 0.02
ROWS, WIDTH = 4800, 64  # above 1 MiB: DDP's first bucket ends there


# Gradients are rounded to half, parameters too in some tests: two units of one near 1.
HALF_BOUND = 2**-10


class Scale(nn.Module):
    """Elementwise, because matrix products of halves do not run on every CPU build."""

    def __init__(self, dtype):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH, dtype=dtype))

    def forward(self, x):
        return (x.to(self.weight.dtype) * self.weight).float()


class Net(nn.Module):
    """Embeddings, whose gradients are mostly zero, layers of several types, one that may go unused."""

    def __init__(self, dtype):
        super().__init__()
        self.first = nn.Embedding(ROWS, WIDTH)
        self.second = nn.Embedding(ROWS, WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.high = nn.Linear(WIDTH, WIDTH).double()
        self.scale = Scale(dtype)
        self.spare = nn.Linear(WIDTH, WIDTH)

    def forward(self, index, spare=True):
        x = (self.first(index) * self.second(index.flip(1))).sum(1)
        y = self.linear(x) + self.high(x.double()).float() + self.scale(x)
        return y + self.spare(x) if spare else y


def train(rank, over, dtype=torch.float32, unused=False, steps=STEPS, **options):
    """So many steps of a Net; `over` makes the hook. Returns parameters and the hook's state."""
    torch.manual_seed(1)
    ddp = DistributedDataParallel(Net(dtype), bucket_cap_mb=1, **options)
    state = over(ddp)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=RATE)
    batches = torch.Generator().manual_seed(100 + rank)
    for _ in range(steps):
        optimizer.zero_grad()
        index = torch.randint(0, ROWS, (4, 3), generator=batches)
        target = torch.randn(4, WIDTH, generator=batches)
        (ddp(index, spare=not unused) - target).square().mean().backward()
        optimizer.step()
    return [p.detach().clone() for p in ddp.parameters()], state


def plain(ddp):
    return None


def compare(rank, world, job, dtype=torch.float32, block=None, wire=None, **options):
    """Trains twice; the largest difference of a parameter, and statistics."""
    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        want, _ = train(rank, plain, dtype, **options)
        got, state = train(rank, lambda ddp: winnow.torch.attach(ddp, comm, block=block, wire=wire), dtype, **options)
        stats = state.stats()
        state.close()
    return furthest(want, got), stats, stats.density, stats.union


def from_environment(rank, world, job):
    """attach() without a communicator; then a copy of its state on a second model."""
    os.environ["WINNOW_JOB"] = job
    want, _ = train(rank, plain)
    got, state = train(rank, winnow.torch.attach)
    state.close()
    os.environ["WINNOW_JOB"] = job + "-copy"
    copy = pickle.loads(pickle.dumps(state))
    same, _ = train(rank, lambda ddp: ddp.register_comm_hook(copy, winnow.torch.hook))
    copy.close()
    return max(furthest(want, got), furthest(want, same))


def two_models(rank, world, job):
    """attach() to each, as a GAN does; the gradients are those of the model's own job."""
    os.environ["WINNOW_JOB"] = job
    models = [DistributedDataParallel(nn.Linear(4, 4)) for _ in range(2)]
    states = [winnow.torch.attach(ddp) for ddp in models]
    found = [means(ddp, value * (rank + 1)) for ddp, value in zip(models, (1.0, 10.0))]
    for state in states:
        state.close()
    return found


def halves(rank, world, no_job):
    """Models of the first and of the second half of the processes, in the default job, where somebody else is already."""
    os.environ.pop("WINNOW_JOB", None)
    groups = [dist.new_group(list(ranks)) for ranks in (range(world // 2), range(world // 2, world))]
    ddp = DistributedDataParallel(nn.Linear(4, 4), process_group=groups[rank * 2 // world])
    state = winnow.torch.attach(ddp)
    found = means(ddp, rank + 1.0)
    state.close()
    return found


def means(ddp, value):
    ddp(torch.full((1, 4), value)).sum().backward()
    return float(ddp.module.weight.grad[0, 0])


def furthest(these, those):
    """The largest difference of two lists of parameters."""
    return max(float((a.double() - b.double()).abs().max()) for a, b in zip(these, those))


def bfloat_hook(state, bucket):
    """bfloat16 on the way; torch's own wrapper for that insists on CUDA."""
    full = bucket.buffer()
    return state.reduce(full.to(torch.bfloat16)).then(lambda future: full.copy_(future.value()))


def compressed(rank, world, job):
    """fp16_compress_wrapper() around our hook, against the same around Gloo's; and a hook that sends bfloat16."""
    wrapper = default_hooks.fp16_compress_wrapper
    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        state = winnow.torch.HookState(comm)
        found = []
        for hook, theirs in (
            (wrapper(winnow.torch.hook), lambda ddp: ddp.register_comm_hook(None, wrapper(default_hooks.allreduce_hook))),
            (bfloat_hook, plain),
        ):
            want, _ = train(rank, theirs)
            got, _ = train(rank, lambda ddp: ddp.register_comm_hook(state, hook))
            found.append(furthest(want, got))
        state.close()
    return found


def uneven(rank, world, job):
    """Ranks with different numbers of batches, under ddp.join()."""
    results = []
    comm = winnow.Comm(job=job, rank=rank, world=world)
    for over in (plain, lambda ddp: winnow.torch.attach(ddp, comm)):
        torch.manual_seed(2)
        ddp = DistributedDataParallel(nn.Linear(8, 8))
        over(ddp)
        with ddp.join():
            for _ in range(3 + rank):
                ddp(torch.ones(2, 8) * (rank + 1)).sum().backward()
        results.append(ddp.module.weight.grad.clone())
    comm.close()
    return float((results[0] - results[1]).abs().max())


def two_states(rank, world, job):
    """Two models that share a communicator, their buckets in an order that differs between ranks."""
    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        states = [winnow.torch.HookState(comm) for _ in range(2)]
        futures = {}
        for number in (0, 1) if rank == 0 else (1, 0):
            for _ in range(3):
                tensor = torch.full((1000,), float(10 * number + rank))
                futures.setdefault(number, []).append(states[number].reduce(tensor))
        sums = [[float(future.wait()[0]) for future in futures[number]] for number in (0, 1)]
        for state in states:
            state.close()
    return sums


def with_timeline(rank, world, job, path):
    """How many buckets there were."""
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(6)))
    with mock.patch.dict(os.environ, WINNOW_TIMELINE=path), winnow.Comm(job=job, rank=rank, world=world) as comm:
        ddp = DistributedDataParallel(model, bucket_cap_mb=1)
        state = winnow.torch.attach(ddp, comm)
        for _ in range(5):
            ddp(torch.ones(4, 512)).sum().backward()
        buckets = state.stats().buckets
        state.close()
    return buckets


class Ddp(harness.TeamCase):
    def check(self, bound=1e-5, dtype=torch.float32, block=None, wire=None, **options):
        results = self.team.run(compare, harness.fresh_job(), dtype, block, wire, **options)
        for difference, stats, density, union in results:
            self.assertLess(difference, bound)
            # Three a step, two before DDP has rebuilt them.
            self.assertGreater(stats.buckets, 2.5 * STEPS)
            self.assertGreater(stats.bytes, STEPS * 4 * ROWS * WIDTH)
            # The embedding is most of the model, and few of its rows are touched.
            self.assertLess(density, union)
            self.assertLess(union, 0.9)
            self.assertLess(stats.sent_bytes, stats.bytes)
        self.assertEqual(len({stats.blocks_union for _, stats, _, _ in results}), 1)

    def test_plain(self):
        self.check()

    def test_kinds(self):
        for options in (
            {"static_graph": True, "wire": "fixed32"},
            {"bound": HALF_BOUND, "dtype": torch.float16},
            {"gradient_as_bucket_view": True, "find_unused_parameters": True, "unused": True, "block": 16},
        ):
            with self.subTest(**options):
                self.check(**options)

    def test_compressed(self):
        for halves, bfloats in self.team.run(compressed, harness.fresh_job()):
            self.assertLess(halves, HALF_BOUND)
            self.assertLess(bfloats, 8 * HALF_BOUND)

    def test_from_environment_and_pickled(self):
        self.assertLess(max(self.team.run(from_environment, harness.fresh_job())), 1e-5)

    def test_two_models(self):
        mean = (self.world + 1) / 2
        for found in self.team.run(two_models, harness.fresh_job()):
            self.assertEqual(found, [mean, 10 * mean])

    def test_two_users_of_one_name(self):
        half = self.world // 2
        with winnow.Comm(job="default", rank=0, world=1):
            found = self.team.run(halves, None)
        low = (half + 1) / 2
        self.assertEqual(found, [low] * half + [low + half] * half)

    def test_two_hooks_of_one_communicator(self):
        mean = (self.world - 1) / 2
        for sums in self.team.run(two_states, harness.fresh_job()):
            self.assertEqual(sums, [[mean] * 3, [10 + mean] * 3])

    def test_uneven_batches(self):
        self.assertLess(max(self.team.run(uneven, harness.fresh_job())), 1e-5)


    def test_timeline(self):
        """A file for each rank that a trace viewer reads, with buckets that overlap."""
        with tempfile.TemporaryDirectory() as directory:
            counts = self.team.run(with_timeline, harness.fresh_job(), f"{directory}/trace.json")
            overlaps = 0
            for rank in range(2):
                text = pathlib.Path(directory, f"trace.{rank}.json").read_text()
                name, *events = json.loads(text.rstrip().rstrip(",") + "]")
                self.assertEqual((name["ph"], name["pid"]), ("M", rank))
                self.assertEqual(len(events), counts[rank])
                for event in events:
                    self.assertEqual((event["ph"], event["pid"]), ("X", rank))
                    self.assertGreater(event["dur"], 0)
                    self.assertGreater(event["args"]["blocks"], 0)
                ordered = sorted(events, key=lambda event: event["ts"])
                for before, after in zip(ordered, ordered[1:]):
                    overlap = after["ts"] < before["ts"] + before["dur"]
                    overlaps += overlap
                    # A viewer nests what overlaps in one lane.
                    self.assertTrue(not overlap or before["tid"] != after["tid"])
            self.assertGreater(overlaps, 5)


class DdpOfFour(harness.TeamCase):
    """What differs with the number of workers."""

    world = 4
    check, test_plain, test_uneven_batches = Ddp.check, Ddp.test_plain, Ddp.test_uneven_batches
    test_two_users_of_one_name = Ddp.test_two_users_of_one_name
