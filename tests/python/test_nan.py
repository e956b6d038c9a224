# SPDX-License-Identifier: BSD-3-Clause
"""check_nan: a NaN in one rank's gradient ends the job on all ranks, with that rank and the parameter."""

import os
import unittest

import harness
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(300, 8, sparse=True)
        self.first = nn.Linear(8, 16)
        self.last = nn.Linear(16, 1)

    def forward(self, index):
        return self.last(torch.relu(self.first(self.table(index))))


def train(rank, world, job, bad, parameter, environment, options):
    """Two steps; in the second rank `bad` has a NaN in that parameter's gradient. What is raised, or None."""
    os.environ.update(environment)
    torch.manual_seed(1)
    with winnow.Comm(job=job, rank=rank, world=world, timeout_ms=20000) as comm:
        ddp = DistributedDataParallel(Net())
        state = winnow.torch.attach(ddp, comm, **options)
        for step in range(2):
            if step == 1 and rank == bad:
                wanted = dict(ddp.module.named_parameters())[parameter]
                wanted.register_hook(lambda grad: grad * float("nan"))
            try:
                ddp(torch.arange(4)).sum().backward()
            except RuntimeError as error:
                return step, str(error), type(state.error).__name__
        return step, None, None


class Nan(unittest.TestCase):
    def run_all(self, bad, parameter, environment={}, **options):
        with harness.Team(3) as team:
            return team.run(train, harness.fresh_job(), bad, parameter, environment, options)

    def check(self, results, bad, parameter):
        for rank, (step, text, kind) in enumerate(results):
            self.assertEqual((step, kind), (1, "WinnowError"), f"rank {rank}: {text}")
            self.assertIn(f"NaN in the gradient of {parameter} on rank {bad}, before it was averaged", text)

    def test_keyword(self):
        self.check(self.run_all(1, "last.bias", check_nan=True), 1, "last.bias")

    def test_environment(self):
        self.check(self.run_all(0, "first.weight", {"WINNOW_CHECK_NAN": "1"}), 0, "first.weight")

    def test_sparse(self):
        self.check(self.run_all(2, "table.weight", check_nan=True), 2, "table.weight")

    def test_not_asked_for(self):
        for environment, options in (({}, {}), ({"WINNOW_CHECK_NAN": "1"}, {"check_nan": False})):
            results = self.run_all(1, "last.bias", environment, **options)
            self.assertEqual(results, [(1, None, None)] * 3)

    def test_nothing_wrong(self):
        self.assertEqual(self.run_all(None, None, check_nan=True), [(1, None, None)] * 3)
