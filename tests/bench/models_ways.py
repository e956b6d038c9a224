# SPDX-License-Identifier: BSD-3-Clause
"""For models_bench.py: the ways in which workers train a model together."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd
from torch.nn.parallel import DistributedDataParallel

import winnow.torch
from models_plan import WARM_UP


class Way:
    """How a step is taken:

    gloo              gradients, over Gloo, whole
    powersgd RANK     over Gloo, by torch's hook, after WARM_UP whole ones
    winnow            over Winnow, whole
    topk DENSITY      winnow.torch.attach(ddp, compress="topk:DENSITY")
    outer H [TEXT]    winnow.torch.OuterOptimizer(model, inner, H=H, compress=TEXT)
    """

    def __init__(self, way, task, steps):
        kind, *of = way.split()
        self.task, self.model, self.state = task, task, None
        self.inner = self.optimizer = task.optimizer()
        self.schedule = task.schedule(self.inner, steps)
        if kind == "outer":
            compress = of[1] if len(of) > 1 else None
            self.optimizer = self.state = winnow.torch.OuterOptimizer(task, self.inner, H=int(of[0]), compress=compress)
            return
        # PowerSGD goes on from callbacks, in any order: over Gloo two buckets of its could meet each other's.
        dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << (30 if kind == "powersgd" else 20)
        self.model = DistributedDataParallel(task, bucket_cap_mb=1024)
        if kind == "powersgd":
            state = powersgd.PowerSGDState(None, matrix_approximation_rank=int(of[0]), start_powerSGD_iter=WARM_UP)
            self.model.register_comm_hook(state, powersgd.powerSGD_hook)
        elif kind in ("winnow", "topk"):
            self.state = winnow.torch.attach(self.model, compress=f"topk:{of[0]}" if of else None)
        elif kind != "gloo":
            sys.exit(f"no way is called {way!r}: {Way.__doc__}")

    def step(self, batch):
        self.model(*batch).backward()
        if self.task.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.task.parameters(), self.task.clip)
        self.optimizer.step()
        if self.schedule is not None:
            self.schedule.step()
        self.optimizer.zero_grad()

    def close(self):
        if self.state is not None:
            self.state.close()
