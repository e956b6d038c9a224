# SPDX-License-Identifier: BSD-3-Clause
"""Workers that train alone for some steps, and then exchange how far they have come: DiLoCo and SparseLoCo."""

import torch
import torch.distributed as dist

from . import _native, _way
from ._comm import Comm
from ._compress import compressor_of
from ._member import brief, choice, end_job
from ._places import draw_job, exchange
from ._sums import Exchange

_TEXT = 256  # characters of its settings that a worker shows to the others


class OuterOptimizer(torch.optim.Optimizer):
    """Takes H steps with the optimizer `inner`, then moves all workers' weights by the mean of their differences.

        outer = winnow.torch.OuterOptimizer(model, torch.optim.AdamW(model.parameters()), H=30, compress="topk:0.0156")
        ...
        loss.backward()
        outer.step()
        outer.zero_grad()

    Without compress it is DiLoCo (Douillard et al. 2023): the mean passes through Nesterov momentum. With it,
    SparseLoCo (Sarfi et al. 2025): each worker sends the largest elements of its difference and remembers the rest.

    model: as it is, not DistributedDataParallel; float32, float16 or bfloat16, on the CPU or a GPU.
    compress: as in attach(): "topk:0.0156", or TopK(1 / 64, decay=0.95).
    lr, momentum: of the outer step; None: 0.7 and 0.9, or 1 and 0 with compress.
    wire: as in Comm.allreduce().
    comm: a winnow.Comm; None: one of the default process group's ranks, or where there is none, of the environment.

    All begin with rank 0's weights. Between exchanges, weights, the inner optimizer's state and the model's buffers
    are each worker's own. The weights that all began with, the momentum and compress's memory are float32 on the CPU.

    It is a torch.optim.Optimizer whose groups and state are those of `inner`: schedulers, GradScaler, Accelerate,
    Lightning and the Trainer of Hugging Face take it.
    """

    def __init__(self, model, inner, *, H, compress=None, lr=None, momentum=None, wire=None, comm=None):
        self.compress = compressor_of(compress)
        choice("wire", wire or "auto", _native.WIRES)
        self.inner, self.H, self.wire = inner, H, wire
        # Not the constructor of Optimizer, which would make groups and a state of its own; hooks are those of inner.
        self.__dict__.update({name: hooks for name, hooks in vars(inner).items() if name.startswith("_optimizer")})
        self.lr = (0.7 if compress is None else 1.0) if lr is None else lr
        self.momentum = (0.9 if compress is None else 0.0) if momentum is None else momentum
        if not (isinstance(H, int) and H >= 1):
            raise ValueError(f"H is {H}: want at least 1, the steps from one exchange to the next")
        if not self.lr > 0 or not 0 <= self.momentum < 1:
            raise ValueError(f"lr is {self.lr} and momentum {self.momentum}: want more than 0, and from 0 to below 1")
        self._names, self._parameters = _trained(model, inner)
        if self.compress is not None:
            self.compress.learn(model)
        self._start = self._weights()  # what all began with
        self._speed = torch.zeros_like(self._start)
        self._sent = None  # what has been taken from this worker's difference and has not arrived yet
        self._lost = None  # what rounding took of that
        self.steps, self.exchanges = 0, -1
        self._owned = comm is None
        self.comm = _own_comm() if comm is None else comm
        try:
            self.join()
        except BaseException:
            self.close()
            raise

    def __repr__(self):
        settings = f"H={self.H}, compress={self.compress!r}, lr={self.lr}, momentum={self.momentum}, wire={self.wire}"
        return f"OuterOptimizer({settings}) of {len(self._start)} elements"

    param_groups = property(lambda self: self.inner.param_groups)
    state = property(lambda self: self.inner.state)
    defaults = property(lambda self: self.inner.defaults)

    def add_param_group(self, param_group):
        raise ValueError("an OuterOptimizer is of its model's parameters: give all groups to the inner optimizer before")

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad(set_to_none=set_to_none)

    @brief
    def step(self, closure=None):
        """One step of `inner`, and after each H of them an exchange. Returns what inner.step() does."""
        loss = self.inner.step(closure)
        self.steps += 1
        if self.steps % self.H == 0:
            self._exchange()
        return loss

    @brief
    def join(self):
        """All members call this after Comm.reconfigure(); a newcomer does so by making its OuterOptimizer.

        Whoever lacks an exchange that others have completed gets the weights after it, since what it sent is in them.
        An exchange that was interrupted on all is repeated, without those who are lost.
        """
        members = self._members()
        last, waiting = max(members)
        if min(members)[0] < max(last, 0):
            root = next(rank for rank, (exchanges, _) in enumerate(members) if exchanges == last)
            before = self._speed * self.momentum  # what it is after an exchange that brings nothing
            for values in (self._start, self._speed):
                self.comm.broadcast(values, root)
            if self.exchanges < max(last, 0):
                if self._sent is not None:
                    self._settle(self._speed != before)
                self.exchanges = max(last, 0)
                if self.compress is not None:
                    self.compress.begin_at(self.exchanges)
                self._begin()
        if waiting:
            self._exchange()

    def state_dict(self):
        """All but the model, of this rank: inner optimizer, the weights that all began with, momentum, memory."""
        return {
            "inner": self.inner.state_dict(),
            "start": dict(zip(self._names, self._parts(self._start))),
            "speed": dict(zip(self._names, self._parts(self._speed))),
            "compress": None if self.compress is None else self.compress.state_dict(),
            "steps": self.steps,
            "exchanges": self.exchanges,
        }

    def load_state_dict(self, state):
        """On every rank its own, with the model's, before the next step. Have ranks saved at different times? Then join()."""
        if (state["compress"] is None) != (self.compress is None):
            raise ValueError("the saved state has a memory and there is no compress, or the other way round")
        saved = [state[kind].get(name) for kind in ("start", "speed") for name in self._names]
        parts = self._parts(self._start) + self._parts(self._speed)
        for name, part, its in zip(self._names * 2, parts, saved):
            if its is None or its.numel() != len(part):
                raise ValueError(f"the saved state has no {name} of {len(part)} elements")
        if self.compress is not None:
            self.compress.load_state_dict(state["compress"])
        self.inner.load_state_dict(state["inner"])
        for part, its in zip(parts, saved):
            part.copy_(its)
        self.steps, self.exchanges, self._sent = state["steps"], state["exchanges"], None

    def close(self):
        """Leaves the job, if this has joined it."""
        if self._owned:
            self.comm.close()

    def _exchange(self):
        if self._sent is None:
            self._sent = self._difference()
        segments = _way.segments(self._parameters, self._sent, self.compress)
        mean = self._sent.clone()
        exchange = Exchange(self.compress, self._parameters, mean, self.comm, self.wire)
        self._lost = exchange.rounded
        if exchange.two:
            exchange.start(self.comm, self.wire).wait()
            exchange.choose()
        self.comm.allreduce(mean, op="avg", wire=self.wire, segments=segments, lost=exchange.lost)
        exchange.settle()
        self._sent = self._lost = None
        self.exchanges += 1
        self._speed.mul_(self.momentum).add_(mean)
        self._start.sub_(mean.add_(self._speed, alpha=self.momentum) if self.momentum else mean, alpha=self.lr)
        self._begin()

    def _settle(self, arrived):
        """Of an exchange that others have completed: what has been sent is where it was to be, or back in the memory."""
        losses = [None] * len(self._names) if self._lost is None else self._parts(self._lost)
        all_parts = zip(self._parameters, losses, self._parts(self._sent), self._parts(arrived))
        for parameter, *parts in all_parts if self.compress is not None else ():
            if self.compress.chose(parameter):
                self.compress.settle(parameter, *parts)
        self._sent = self._lost = None

    def _difference(self):
        """From where this worker is to where it began; of that, what is to be sent."""
        now = self._weights()
        difference = self._rounded().sub_(now)
        for name, part in zip(self._names, self._parts(difference)):
            if not part.isfinite().all():
                end_job(self.comm, f"the weights of {name} are not finite on rank {self.comm.rank}, after {self.steps} steps")
        for parameter, part in zip(self._parameters, self._parts(difference)) if self.compress is not None else ():
            self.compress.take_or_end(self.comm, part, parameter)
        return difference

    def _weights(self):
        return torch.cat([parameter.detach().flatten().cpu().float() for parameter in self._parameters])

    def _parts(self, flat):
        """Of each parameter."""
        return flat.split([parameter.numel() for parameter in self._parameters])

    def _rounded(self):
        """The weights that all began with, as parameters of their type hold them."""
        parts = zip(self._parameters, self._parts(self._start))
        return torch.cat([part.to(parameter.dtype).float() for parameter, part in parts])

    @torch.no_grad()
    def _begin(self):
        for parameter, part in zip(self._parameters, self._parts(self._start)):
            parameter.copy_(part.view_as(parameter))

    def _members(self):
        """By rank: how many exchanges it has completed, and whether it waits in another one."""
        found = torch.zeros(self.comm.world, _TEXT + 2, dtype=torch.int32, device="cpu")
        text = repr(self).encode()[:_TEXT]
        found[self.comm.rank, 0], found[self.comm.rank, 1] = self.exchanges, self._sent is not None
        found[self.comm.rank, 2 : 2 + len(text)] = torch.tensor(list(text), dtype=torch.int32, device="cpu")
        self.comm.allreduce(found)
        for rank, row in enumerate(found[:, 2:].tolist()):
            other = bytes(row).rstrip(b"\0")
            if other != text:
                raise ValueError(f"{text.decode()} on this rank and {other.decode()} on rank {rank}: want the same on all")
        return [(exchanges, bool(waits)) for exchanges, waits in found[:, :2].tolist()]


def _trained(model, inner):
    """Names and parameters of what is trained."""
    kinds = {kind.__name__ for kind in type(model).__mro__}
    if kinds & {"DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule"}:
        raise TypeError(f"OuterOptimizer takes the model itself, not a {type(model).__name__}, which exchanges in each step")
    found = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise TypeError(f"parameter {name} is {parameter.dtype}: want float32, float16 or bfloat16")
        found[name] = parameter
    if not found:
        raise ValueError("the model has no parameter that is trained")
    known = {id(parameter) for parameter in model.parameters()}
    for group in inner.param_groups:
        if any(id(parameter) not in known for parameter in group["params"]):
            raise ValueError("the inner optimizer has a parameter that the model has not: it would differ between workers")
    return list(found), list(found.values())


def _own_comm():
    if not dist.is_initialized():
        return Comm()
    job = exchange(draw_job() if dist.get_rank() == 0 else None)[0]
    return Comm(job=job, rank=dist.get_rank(), world=dist.get_world_size())
