# SPDX-License-Identifier: BSD-3-Clause
"""Workers that train alone for some steps, and then exchange their changes: DiLoCo and SparseLoCo."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Union

import torch
import torch.distributed as dist

from . import _native, _way
from ._comm import Comm
from ._compress import TopK, compressor_of, lost_of, remember_lost
from ._member import brief, choice, end_job
from ._places import draw_job, exchange

_TEXT = 256  # characters of a worker's settings that the others compare


class OuterOptimizer(torch.optim.Optimizer):
    """Train alone for H steps, then move all workers' weights by the mean of their differences.

    Use it on thin links, because it sends 1/H of the bytes of an exchange in each step. It changes what the model learns:
    docs/thin-links.md measures how much on five models.

    Without ``compress`` it is DiLoCo (Douillard et al. 2023): the mean difference passes through Nesterov momentum. With
    ``compress`` it is SparseLoCo (Sarfi et al. 2025): each worker sends the largest elements of its difference and
    remembers the rest. The first ``warm_up`` steps exchange gradients as DistributedDataParallel does (post-local SGD, Lin
    et al. 2020), because weights that change fast must not drift apart. DiLoCo also begins with a model that has learned
    a little.

    All workers begin with rank 0's weights; the constructor blocks until all are there. Between exchanges the weights,
    the state of ``inner`` and the model's buffers are each worker's own, so let the training end on an exchange. The
    common weights, the momentum and the memory of ``compress`` are float32 on the CPU, each as large as the model.

    It is a ``torch.optim.Optimizer`` with the groups and the state of ``inner``. Schedulers, GradScaler, Accelerate,
    Lightning and the Trainer of Hugging Face take it. Use it from one thread.

    Args:
        model: The model itself, not a DistributedDataParallel. Its trained parameters are float32, float16 or bfloat16,
            on the CPU or a GPU.
        inner: The optimizer of this worker's own steps, over parameters of ``model``.
        H: The number of steps from one exchange to the next, at least 1. 10 suits links up to 1 Gbit/s, 30 links up to
            10 Mbit/s.
        compress: ``"topk:0.0156"``, which stands for ``TopK(0.0156, decay=0.95)``, or a ``TopK``. By default the whole
            difference is sent. Compression makes trainings of a few hundred steps learn much less.
        lr: The learning rate of the outer step, above 0. By default 0.7, but 1 with ``compress`` or if ``inner`` is an SGD.
        momentum: The Nesterov momentum of the outer step, from 0 to below 1. By default 0.7, but 0 with ``compress`` or
            if ``inner`` is an SGD. With ``lr=1, momentum=0`` the outer step takes the mean of the weights.
        warm_up: The number of first steps that exchange gradients. A change of members ends them.
        wire: How float32 travels, as in ``winnow.Comm.allreduce()``. ``"native"`` sends float32 without loss, in twice the
            bytes of the default.
        comm: A ``winnow.Comm``. By default a new one for the ranks of the default process group, or, without a process
            group, one from the environment. ``close()`` then also closes it.

    Attributes:
        comm: The communicator.
        inner, H, lr, momentum, warm_up, wire: The values that apply.
        compress: The ``TopK``, or None.
        steps: How many steps this worker has taken.
        exchanges: How many exchanges it has completed, including those of gradients.

    Raises:
        TypeError: ``model`` is a DistributedDataParallel or sharded, or a parameter has a type that it cannot take.
        ValueError: An argument is impossible, or settings differ between workers.
        winnow.WinnowError: As in ``winnow.Comm()``.

    Example:
        >>> inner = torch.optim.AdamW(model.parameters(), lr=4e-4)
        >>> outer = winnow.torch.OuterOptimizer(model, inner, H=10)
        >>> for batch in data:
        ...     loss_of(model, batch).backward()
        ...     outer.step()
        ...     outer.zero_grad()
    """

    def __init__(
        self, model: torch.nn.Module, inner: torch.optim.Optimizer, *, H: int, compress: Optional[Union[str, TopK]] = None,
        lr: Optional[float] = None, momentum: Optional[float] = None, warm_up: int = 20, wire: Optional[str] = "bf16",
        comm: Optional[Comm] = None,
    ):
        self.compress = compressor_of(compress, decay=0.95)
        choice("wire", wire or "auto", _native.WIRES)
        self.inner, self.H, self.wire = inner, H, wire
        # Optimizer's constructor would make its own groups and state, so it is not called. Hooks are those of inner.
        self.__dict__.update({name: hooks for name, hooks in vars(inner).items() if name.startswith("_optimizer")})
        self.lr, self.momentum = _outer_step(inner, compress, lr, momentum)
        if not (isinstance(H, int) and H >= 1):
            raise ValueError(f"H is {H}: want at least 1, the steps from one exchange to the next")
        if not (isinstance(warm_up, int) and warm_up >= 0):
            raise ValueError(f"warm_up is {warm_up}: want 0 or more, the steps that exchange gradients")
        self.warm_up = self._dense = warm_up  # the first `_dense` exchanges are those of gradients
        if not self.lr > 0 or not 0 <= self.momentum < 1:
            raise ValueError(f"lr is {self.lr} and momentum {self.momentum}: want more than 0, and from 0 to below 1")
        self._names, self._parameters = _trained(model, inner)
        if self.compress is not None:
            self.compress._learn(model)
        self._start = self._weights()  # the common weights
        self._speed = torch.zeros_like(self._start)
        self._sent = None  # this worker's difference in an exchange that is not complete
        self._lost = None  # the rounding errors of that difference
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

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Refuse the group. Give all groups to ``inner`` before you construct the OuterOptimizer.

        Args:
            param_group: Any group.

        Raises:
            ValueError: Always.
        """
        raise ValueError("an OuterOptimizer takes no further groups: give all groups to the inner optimizer before")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients, as ``inner.zero_grad()`` does.

        Args:
            set_to_none: True sets them to None, False to zero.
        """
        self.inner.zero_grad(set_to_none=set_to_none)

    @brief
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Take one step of ``inner``, and after each H of them exchange with the other workers.

        During the warm-up each step exchanges gradients instead. A call that exchanges blocks until all workers exchange.

        Args:
            closure: As for ``inner.step()``.

        Returns:
            What ``inner.step()`` returns.

        Raises:
            winnow.MembersChanged: A worker is lost. Call ``comm.reconfigure()`` and ``join()``; they complete the exchange.
            winnow.WinnowError: The exchange failed. Weights that are not finite end the job, with parameter and rank.

        Example:
            >>> try:
            ...     outer.step()
            ... except winnow.MembersChanged:
            ...     outer.comm.reconfigure()                     # the workers that are left
            ...     outer.join()                                 # repeats the exchange that was interrupted
        """
        self.steps += 1
        if self.exchanges < self._dense:
            return self._dense_step(closure)
        loss = self.inner.step(closure)
        if self.steps % self.H == 0:
            self._exchange()
        return loss

    @brief
    def join(self) -> None:
        """Continue with the members that are there now.

        All members call it after ``comm.reconfigure()``, and after a ``comm.admit()`` that let newcomers in. The constructor
        calls it for a newcomer. A worker that lacks an exchange which others have completed gets the weights after that
        exchange, because they contain what it sent. An exchange that was interrupted on all workers is repeated, without
        the lost workers. The call blocks until all members have called it.

        Raises:
            ValueError: Settings differ between workers.
            winnow.MembersChanged: Another worker is lost. Call ``comm.reconfigure()`` and ``join()`` again.
        """
        members = self._members()
        last, waiting, dense = max(members)
        if last >= 0:  # a newcomer's inner optimizer has another state, so its steps of the same gradients would differ
            self._dense = min(dense, last)
        if min(members)[0] < max(last, 0):
            root = next(rank for rank, (exchanges, *_) in enumerate(members) if exchanges == last)
            for values in (self._start, self._speed):
                self.comm.broadcast(values, root)
            if self.exchanges < max(last, 0):
                self._settle()
                self.exchanges = max(last, 0)
                if self.compress is not None:
                    self.compress._begin_at(max(self.exchanges - self._dense, 0))
                self._begin()
        if waiting:
            self._exchange()

    def state_dict(self) -> Dict[str, Any]:
        """Return all of this rank's state except the model. Save it with the model's, on every rank its own.

        Returns:
            The states of ``inner`` and of ``compress``, the common weights, the momentum and the counters.
        """
        return {
            "inner": self.inner.state_dict(),
            **{kind: self._by_name(values) for kind, values in self._vectors().items()},
            "compress": None if self.compress is None else self.compress.state_dict(),
            "steps": self.steps,
            "exchanges": self.exchanges,
            "dense": self._dense,
        }

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Load what ``state_dict()`` returned on this rank, together with the model's state. Call it before the next step.

        If ranks may have saved at different times, or after an exchange that failed, call ``join()`` afterwards.

        Args:
            state: The saved state.

        Raises:
            ValueError: The state was saved with ``compress`` and this optimizer has none, or without it and this one has it.
                Or the state is of another model.
        """
        if state["compress"] is not None and self.compress is None:
            raise ValueError("the saved state was made with compress=, but this optimizer has none")
        if state["compress"] is None and self.compress is not None:
            raise ValueError("this optimizer has compress=, but the saved state was made without it")
        state = {"sent": None, "lost": None, **state}  # both are optional
        saved = {kind: self._of_names(kind, state[kind]) for kind in self._vectors()}
        if self.compress is not None:
            self.compress.load_state_dict(state["compress"])
        self.inner.load_state_dict(state["inner"])
        self._start, self._speed, self._sent, self._lost = saved.values()
        self.steps, self.exchanges, self._dense = state["steps"], state["exchanges"], state["dense"]

    def _vectors(self):
        """Returns the vectors over all parameters. sent and lost are None except between a failed exchange and join()."""
        return {"start": self._start, "speed": self._speed, "sent": self._sent, "lost": self._lost}

    def _by_name(self, values):
        return None if values is None else dict(zip(self._names, self._parts(values)))

    def _of_names(self, kind, saved):
        """Returns a vector made of a result of _by_name()."""
        if saved is None:
            return None
        for name, part in zip(self._names, self._parts(self._start)):
            if name not in saved or saved[name].numel() != len(part):
                raise ValueError(f"the saved state has no {kind} of {name}, of {len(part)} elements")
        return torch.cat([saved[name].flatten().cpu().float() for name in self._names])

    def close(self) -> None:
        """Leave the job, if this optimizer joined it. A ``comm`` that you passed stays open."""
        if self._owned:
            self.comm.close()

    def _dense_step(self, closure):
        """Takes a step with the mean gradient of all workers, after which all weights are still the same."""

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
        """Averages gradients. A parameter that no worker has used keeps the gradient None."""
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
        """Ends this worker's part of an exchange that all, or the others, have completed."""
        remember_lost(self.compress, self._lost, self._parameters)
        self._sent = self._lost = None

    def _difference(self):
        """Returns the common weights minus this worker's, reduced to what `compress` sends."""
        now = self._weights()
        difference = self._rounded().sub_(now)
        for name, part in zip(self._names, self._parts(difference)):
            if not part.isfinite().all():
                end_job(self.comm, f"the weights of {name} are not finite on rank {self.comm.rank}, after {self.steps} steps")
        for parameter, part in zip(self._parameters, self._parts(difference)) if self.compress is not None else ():
            self.compress._take_or_end(self.comm, part, parameter)
        return difference

    def _weights(self):
        return torch.cat([parameter.detach().flatten().cpu().float() for parameter in self._parameters])

    def _parts(self, flat):
        """Splits a vector by parameters."""
        return flat.split([parameter.numel() for parameter in self._parameters])

    def _rounded(self):
        """Returns the common weights, rounded to the types of the parameters."""
        parts = zip(self._parameters, self._parts(self._start))
        return torch.cat([part.to(parameter.dtype).float() for parameter, part in parts])

    @torch.no_grad()
    def _begin(self):
        for parameter, part in zip(self._parameters, self._parts(self._start)):
            parameter.copy_(part.view_as(parameter))

    def _members(self):
        """Returns by rank: completed exchanges, whether another one is incomplete, and the number of those of gradients."""
        found = torch.zeros(self.comm.world, 3 + _TEXT, dtype=torch.int32, device="cpu")
        text = repr(self).encode()[:_TEXT]
        mine = [self.exchanges, self._sent is not None, self._dense, *text]
        found[self.comm.rank, : len(mine)] = torch.tensor(mine, dtype=torch.int32, device="cpu")
        self.comm.allreduce(found)
        for rank, row in enumerate(found[:, 3:].tolist()):
            other = bytes(row).rstrip(b"\0")
            if other != text:
                raise ValueError(f"{text.decode()} on this rank, but {other.decode()} on rank {rank}: want the same on all")
        return found[:, :3].tolist()


def _outer_step(inner, compress, lr, momentum):
    """Returns the learning rate and momentum of the outer step.

    Adam's steps are as long for the noisy gradient of one worker as for the mean of all. So averaged weights move less far
    than with averaged gradients, and momentum makes up for that. With SGD both move equally far.
    """
    usual = (1.0, 0.0) if compress is not None or isinstance(inner, torch.optim.SGD) else (0.7, 0.7)
    return tuple(value if given is None else given for value, given in zip(usual, (lr, momentum)))


def _flat_gradient(parameter):
    gradient = parameter.grad
    if gradient is None:
        return torch.zeros(parameter.numel(), device="cpu")
    return (gradient.to_dense() if gradient.is_sparse else gradient).flatten().cpu().float()


def _trained(model, inner):
    """Returns the names and the parameters that are trained."""
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
            raise ValueError("the inner optimizer has a parameter that the model lacks: it would differ between workers")
    return list(found), list(found.values())


def _own_comm():
    if not dist.is_initialized():
        return Comm()
    job = exchange(draw_job() if dist.get_rank() == 0 else None)[0]
    return Comm(job=job, rank=dist.get_rank(), world=dist.get_world_size())
