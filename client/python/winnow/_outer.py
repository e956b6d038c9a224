# SPDX-License-Identifier: BSD-3-Clause
"""Workers that train alone for some steps, and then exchange how far they have come: DiLoCo and SparseLoCo."""

import torch
import torch.distributed as dist

from . import _native, _way
from ._comm import Comm
from ._compress import compressor_of, lost_of, remember_lost
from ._member import brief, choice, end_job
from ._places import draw_job, exchange

_TEXT = 256  # characters of its settings that a worker shows to the others


class OuterOptimizer(torch.optim.Optimizer):
    """Takes H steps with the optimizer `inner`, then moves all workers' weights by the mean of their differences.

        outer = winnow.torch.OuterOptimizer(model, torch.optim.AdamW(model.parameters()), H=10)
        ...
        loss.backward()
        outer.step()
        outer.zero_grad()

    The first steps exchange gradients, as DistributedDataParallel does, since weights that change fast must not drift
    apart: post-local SGD (Lin et al. 2020). Then, without compress, it is DiLoCo (Douillard et al. 2023), which also
    begins with a model that has learned a little: the mean difference passes through Nesterov momentum. With compress it
    is SparseLoCo (Sarfi et al. 2025): each worker sends the largest elements of its difference and remembers the rest.

    model: as it is, not DistributedDataParallel; float32, float16 or bfloat16, on the CPU or a GPU.
    compress: "topk:0.0156", which stands for TopK(0.0156, decay=0.95), or a TopK.
    lr, momentum: of the outer step; None: 0.7 and 0.7, but 1 and 0, which is the mean of the weights, with compress and
        where `inner` is an SGD. docs/thin-links.md says on which models that was measured.
    warm_up: so many steps at first exchange gradients. A change of members ends them.
    wire: as in Comm.allreduce().
    comm: a winnow.Comm; None: one of the default process group's ranks, or where there is none, of the environment.

    All begin with rank 0's weights. Between exchanges, weights, the inner optimizer's state and the model's buffers
    are each worker's own. The weights that all began with, the momentum and compress's memory are float32 on the CPU.

    It is a torch.optim.Optimizer whose groups and state are those of `inner`: schedulers, GradScaler, Accelerate,
    Lightning and the Trainer of Hugging Face take it.
    """

    def __init__(self, model, inner, *, H, compress=None, lr=None, momentum=None, warm_up=20, wire="bf16", comm=None):
        self.compress = compressor_of(compress, decay=0.95)
        choice("wire", wire or "auto", _native.WIRES)
        self.inner, self.H, self.wire = inner, H, wire
        # Not the constructor of Optimizer, which would make groups and a state of its own; hooks are those of inner.
        self.__dict__.update({name: hooks for name, hooks in vars(inner).items() if name.startswith("_optimizer")})
        self.lr, self.momentum = _outer_step(inner, compress, lr, momentum)
        if not (isinstance(H, int) and H >= 1):
            raise ValueError(f"H is {H}: want at least 1, the steps from one exchange to the next")
        if not (isinstance(warm_up, int) and warm_up >= 0):
            raise ValueError(f"warm_up is {warm_up}: want 0 or more, the steps that exchange gradients")
        self.warm_up = self._dense = warm_up  # the first `_dense` exchanges are of gradients
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
        settings = f"H={self.H}, compress={self.compress!r}, lr={self.lr}, momentum={self.momentum}"
        settings += f", warm_up={self.warm_up}, wire={self.wire}"
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
        self.steps += 1
        if self.exchanges < self._dense:
            return self._dense_step(closure)
        loss = self.inner.step(closure)
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
        last, waiting, dense = max(members)
        if last >= 0:  # a newcomer's inner optimizer is not like the others': its step of their gradients would be another one
            self._dense = min(dense, last)
        if min(members)[0] < max(last, 0):
            root = next(rank for rank, (exchanges, *_) in enumerate(members) if exchanges == last)
            for values in (self._start, self._speed):
                self.comm.broadcast(values, root)
            if self.exchanges < max(last, 0):
                self._settle()
                self.exchanges = max(last, 0)
                if self.compress is not None:
                    self.compress.begin_at(max(self.exchanges - self._dense, 0))
                self._begin()
        if waiting:
            self._exchange()

    def state_dict(self):
        """All but the model, of this rank: inner optimizer, the weights that all began with, momentum, memory."""
        return {
            "inner": self.inner.state_dict(),
            **{kind: self._by_name(values) for kind, values in self._vectors().items()},
            "compress": None if self.compress is None else self.compress.state_dict(),
            "steps": self.steps,
            "exchanges": self.exchanges,
            "dense": self._dense,
        }

    def load_state_dict(self, state):
        """On every rank its own, with the model's, before the next step. Have ranks saved at different times? Then join()."""
        if (state["compress"] is None) != (self.compress is None):
            raise ValueError("the saved state has a memory and there is no compress, or the other way round")
        state = {"sent": None, "lost": None, **state}  # they need not be there
        saved = {kind: self._of_names(kind, state[kind]) for kind in self._vectors()}
        if self.compress is not None:
            self.compress.load_state_dict(state["compress"])
        self.inner.load_state_dict(state["inner"])
        self._start, self._speed, self._sent, self._lost = saved.values()
        self.steps, self.exchanges, self._dense = state["steps"], state["exchanges"], state["dense"]

    def _vectors(self):
        """What is as long as all parameters together. sent, lost: None, but between an exchange that failed and join()."""
        return {"start": self._start, "speed": self._speed, "sent": self._sent, "lost": self._lost}

    def _by_name(self, values):
        return None if values is None else dict(zip(self._names, self._parts(values)))

    def _of_names(self, kind, saved):
        """A copy of what _by_name() has made."""
        if saved is None:
            return None
        for name, part in zip(self._names, self._parts(self._start)):
            if name not in saved or saved[name].numel() != len(part):
                raise ValueError(f"the saved state has no {kind} of {name}, of {len(part)} elements")
        return torch.cat([saved[name].flatten().cpu().float() for name in self._names])

    def close(self):
        """Leaves the job, if this has joined it."""
        if self._owned:
            self.comm.close()

    def _dense_step(self, closure):
        """A step of everybody's mean gradient, after which all weights are still the same."""

        def evaluate():
            loss = closure()
            self._average_gradients()
            return loss

        if closure is None:
            self._average_gradients()
        loss = self.inner.step(closure and evaluate)
        self._start = self._weights()
        self.exchanges += 1
        return loss

    @torch.no_grad()
    def _average_gradients(self):
        """A parameter that no worker has used keeps its None."""
        mean = torch.cat([_flat_gradient(parameter) for parameter in self._parameters])
        self.comm.allreduce(mean, op="avg", wire=self.wire, segments=_way.segments(self._parameters, mean))
        for parameter, part in zip(self._parameters, self._parts(mean)):
            if parameter.grad is None and not part.any():
                continue
            part = part.view_as(parameter).to(parameter.device, parameter.dtype)
            sparse = parameter.grad is not None and parameter.grad.is_sparse
            parameter.grad = part.to_sparse(parameter.grad.sparse_dim()) if sparse else part

    def _exchange(self):
        if self._sent is None:
            self._sent = self._difference()
        segments = _way.segments(self._parameters, self._sent, self.compress)
        mean = self._sent.clone()
        self._lost = lost_of(self.compress, mean, self._parameters, self.comm, self.wire)
        self.comm.allreduce(mean, op="avg", wire=self.wire, segments=segments, lost=self._lost)
        self._settle()
        self.exchanges += 1
        self._speed.mul_(self.momentum).add_(mean)
        self._start.sub_(mean.add_(self._speed, alpha=self.momentum) if self.momentum else mean, alpha=self.lr)
        self._begin()

    def _settle(self):
        """Of an exchange that all, or others, have completed."""
        remember_lost(self.compress, self._lost, self._parameters)
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
        """By rank: how many exchanges it has completed, whether it waits in another one, how many are of gradients."""
        found = torch.zeros(self.comm.world, 3 + _TEXT, dtype=torch.int32, device="cpu")
        text = repr(self).encode()[:_TEXT]
        mine = [self.exchanges, self._sent is not None, self._dense, *text]
        found[self.comm.rank, : len(mine)] = torch.tensor(mine, dtype=torch.int32, device="cpu")
        self.comm.allreduce(found)
        for rank, row in enumerate(found[:, 3:].tolist()):
            other = bytes(row).rstrip(b"\0")
            if other != text:
                raise ValueError(f"{text.decode()} on this rank and {other.decode()} on rank {rank}: want the same on all")
        return found[:, :3].tolist()


def _outer_step(inner, compress, lr, momentum):
    """Its learning rate and momentum.

    Adam's steps are as long for the noisy gradient of one worker as for the mean of all, so workers that average their
    weights come less far than one that averages gradients, and momentum makes up for that. SGD's steps add up to as much.
    """
    usual = (1.0, 0.0) if compress is not None or isinstance(inner, torch.optim.SGD) else (0.7, 0.7)
    return tuple(value if given is None else given for value, given in zip(usual, (lr, momentum)))


def _flat_gradient(parameter):
    gradient = parameter.grad
    if gradient is None:
        return torch.zeros(parameter.numel(), device="cpu")
    return (gradient.to_dense() if gradient.is_sparse else gradient).flatten().cpu().float()


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
