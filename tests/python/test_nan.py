# SPDX-License-Identifier: BSD-3-Clause
"""check_nan: a NaN in one rank's gradient ends the job on all ranks, with that rank and the parameter."""

import os

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
    os.environ.pop("WINNOW_CHECK_NAN", None)
    os.environ.update({"WINNOW_CHECK_NAN": environment} if environment else {})
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


class Nan(harness.TeamCase):
    world = 3

    def test_all(self):
        """Asked for by keyword and by environment; a table's; not asked for; nothing wrong."""
        for bad, parameter, environment, options, found in (
            (1, "last.bias", None, {"check_nan": True}, True),
            (0, "first.weight", "1", {}, True),
            (2, "table.weight", None, {"check_nan": True}, True),
            (1, "last.bias", None, {}, False),
            (1, "last.bias", "1", {"check_nan": False}, False),
            (None, None, None, {"check_nan": True}, False),
        ):
            results = self.team.run(train, harness.fresh_job(), bad, parameter, environment, options)
            for rank, (step, text, kind) in enumerate(results):
                self.assertEqual((step, kind), (1, "WinnowError" if found else None), f"rank {rank}: {text}")
                if found:
                    self.assertIn(f"NaN in the gradient of {parameter} on rank {bad}, before it was averaged", text)
