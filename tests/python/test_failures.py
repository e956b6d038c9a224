# SPDX-License-Identifier: BSD-3-Clause
"""What users see when something fails: a RuntimeError with the reason, soon, and never a hang."""

import os
import pathlib
import resource
import signal
import time
import unittest

import harness
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch

SOON_SECONDS = 5
SAFE_STEPS = 5


def train(rank, world, settings, at_step, inside_backward=False, **options):
    """Trains until something fails. `at_step` is (rank, function, argument): what goes wrong, whose."""
    with winnow.Comm(rank=rank, world=world, **settings) as comm:
        return train_over(comm, rank, at_step, inside_backward, **options)


def short_of_memory(rank, world, job):
    """What two operations say, of which the first is a list of a tensor so large that one rank has no place for the result's."""
    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        comm.allreduce(torch.ones(4))
        if rank == 1:
            size = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
        rows = torch.zeros(1, dtype=torch.int64), torch.ones(1, 1), 2**38 - 2
        said = [harness.error_of(comm.allreduce_rows, *rows), harness.error_of(comm.allreduce, torch.ones(4))]
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    return said


class Dense(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(64, 512), nn.Linear(512, 1024), nn.Linear(1024, 8))

    @property
    def first(self):
        return self[0]

    def batch(self, step):
        return torch.ones(4, 64)


class Sparse(nn.Module):
    """Embeddings of which most rows have no gradient, and a dense tail that is ready before them."""

    def __init__(self):
        super().__init__()
        self.first = nn.Embedding(5000, 64, sparse=True)
        self.second = nn.EmbeddingBag(5000, 64, mode="sum", sparse=True)
        self.tail = nn.Linear(64, 2048)

    def forward(self, index):
        return self.tail(self.first(index).sum(1) + self.second(index))

    def batch(self, step):
        return torch.arange(32).view(4, 8) * 7 + step


def train_over(comm, rank, at_step, inside_backward, model=Dense, device="cpu", **options):
    torch.manual_seed(1)
    model = model().to(device)
    ddp = DistributedDataParallel(model, **options)
    state = winnow.torch.attach(ddp, comm)
    victim, action, argument = at_step
    for step in range(1000):
        loss = ddp(model.batch(step).to(device)).sum()
        begun = time.monotonic()
        if rank == victim and step == SAFE_STEPS:
            if inside_backward:
                # The last layers' bucket is on its way then.
                model.first.weight.register_hook(lambda grad: action(argument))
            else:
                action(argument)
        try:
            loss.backward()
        except RuntimeError as error:
            return step, time.monotonic() - begun, str(error), getattr(state.error, "code", None)
    return "never failed"


def die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def fail_alone(_):
    raise RuntimeError("a bug in rank 1's model")


def fail_between_steps(rank, world, job):
    """Rank 1 fails between two steps, later than DDP's own exchange in the second."""
    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        ddp = DistributedDataParallel(nn.Linear(8, 8))
        winnow.torch.attach(ddp, comm)
        for step in range(9):
            if rank == 1 and step == 4:
                raise RuntimeError("my own trouble")
            ddp(torch.ones(1, 8)).sum().backward()


def disagree(rank, world, job):
    """Buckets of different size: what DDP's own check cannot see."""
    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        state = winnow.torch.HookState(comm)
        texts = [harness.error_of(lambda: state.reduce(torch.ones(count)).wait()) for count in (100 + rank, 100)]
        state.close()
        return texts, state.error.code


def different_models(rank, world):
    DistributedDataParallel(nn.Linear(8, 8, bias=rank == 0))


class Deaths(unittest.TestCase):
    """Each test loses processes: each has a team of its own."""

    def check(self, results, victim, reason, code):
        for rank, result in enumerate(results):
            if rank == victim:
                continue
            self.assertIsInstance(result, tuple, f"rank {rank}: {result}")
            step, seconds, text, found = result
            self.assertEqual(step, SAFE_STEPS)
            self.assertLess(seconds, SOON_SECONDS)
            self.assertIn(reason, text)
            self.assertEqual(found, code)

    def test_worker_dies(self):
        for options in (
            {"inside_backward": True, "bucket_cap_mb": 1},
            {"gradient_as_bucket_view": True},
            {"model": Sparse, "inside_backward": True},
        ):
            with self.subTest(**options), harness.Team(4) as team:
                team.start(train, {"job": harness.fresh_job()}, (2, die, None), **options)
                results = team.collect()
                self.assertEqual(results[2], "died -9")
                self.check(results, 2, "rank 2", winnow.WinnowError.MEMBERS)

    def test_aggregator_dies(self):
        with harness.Aggregator() as aggregator, harness.Team(3) as team:
            settings = {"job": "a", "aggregators": aggregator.address}
            team.start(train, settings, (0, kill, aggregator.process.pid))
            self.check(team.collect(), None, aggregator.address, winnow.WinnowError.LOST)


class Errors(harness.TeamCase):
    def test_exception_in_backward(self):
        self.team.start(train, {"job": harness.fresh_job(), "silence_ms": 3000}, (1, fail_alone, None), inside_backward=True)
        # Rank 1 has its own error, catches it and closes its communicator.
        other, own = self.team.collect()
        self.assertIn("a bug in rank 1's model", own[2])
        self.assertIn("rank 1", other[2])

    def test_exception_between_steps(self):
        self.team.start(fail_between_steps, harness.fresh_job())
        other, own = self.team.collect()
        self.assertIn("my own trouble", own.text)
        self.assertEqual(other.kind, "RuntimeError")
        self.assertRegex(other.text, "rank 1 .* aborted the job: RuntimeError: my own trouble")

    def test_different_sizes(self):
        for texts, code in self.team.run(disagree, harness.fresh_job()):
            self.assertIn("workers do not agree on the operation: count is ", texts[0])
            self.assertEqual(texts[1], texts[0])
            self.assertEqual(code, winnow.WinnowError.MISMATCH)

    def test_out_of_memory(self):
        """What one rank has no memory for ends on all; others would wait for it."""
        with harness.Team(2) as team:
            team.start(short_of_memory, harness.fresh_job())
            other, own = team.collect()
        self.assertEqual(own, ["out of memory", "rank 1 cannot take part in an operation: out of memory"])
        for text in other:
            self.assertRegex(text, "rank 1 .* aborted the job: rank 1 cannot take part in an operation: out of memory")

    def test_different_models(self):
        # DDP compares models itself, over Gloo, before our hook is there.
        with harness.Team(2) as team:
            team.start(different_models)
            results = team.collect()
        for result in results:
            self.assertIsInstance(result, harness.Failure)
        # One that hears of it first closes its connections to the others.
        self.assertRegex(" ".join(result.text for result in results), "expects .* params|[Pp]aram.* shape|number of param")
