# SPDX-License-Identifier: BSD-3-Clause
"""Sends only the largest part of a gradient, and adds the rest to the next step's gradient."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import math
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Optional, Union

import torch

from . import _cuda
from ._member import end_job
from ._topk import CHUNK, topk

if TYPE_CHECKING:
    from ._comm import Comm
    from ._node import Node

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)  # the types that winnow.topk() takes
_BLOCK_MAX = 1024  # TOPK_BLOCK_MAX
SHORT_WARM_UP, SHORT_WIRE = 20, "bf16"  # "topk:0.01" in attach() means these, as docs/thin-links.md measures them


def topk_of_torch(gradient, memory, k, chunk, decay, block):
    """topk() in torch's operations, for flat tensors on a GPU. All work is in the stream, so the caller does not wait.

    The result is that of topk(), bit by bit. The k-th largest magnitude decides which blocks are among the largest, so
    the order in which a GPU sorts equal ones does not matter. chunk is a multiple of block.
    """
    memory.mul_(decay).add_(gradient)
    whole = len(memory) // chunk * chunk
    taken = torch.empty_like(memory, dtype=torch.bool)
    for first, last, share in ((0, whole, k), (whole, len(memory), _share(k, chunk, block, len(memory) - whole))):
        if first < last:
            taken[first:last] = _taken(memory[first:last], min(chunk, last - first), block, share)
    chosen = torch.where(taken, memory, memory.new_zeros(()))
    most = torch.finfo(gradient.dtype).max
    if most < torch.finfo(torch.float32).max:  # finite values must stay finite
        chosen = torch.where(chosen.isfinite(), chosen.clamp(-most, most), chosen)
    gradient.copy_(chosen)
    sent = gradient.float()
    memory.copy_(torch.where(sent.isfinite(), memory - sent, memory.new_zeros(())))


def _share(k, chunk, block, count):
    """Returns the proportional k of a shorter last chunk."""
    return math.ceil(k * math.ceil(count / block) / (chunk // block))


def _taken(values, chunk, block, k):
    """Returns a flat mask of the elements that are sent, for chunks of equal length."""
    size = torch.where(values.isfinite(), values.abs(), values.new_full((), torch.inf)).view(-1, chunk)
    size = torch.nn.functional.pad(size, (0, -chunk % block)).view(len(size), -1, block).amax(2)
    infinite = size == torch.inf
    size = size.masked_fill(infinite, 0)
    least = size.topk(min(k, size.shape[1])).values[:, -1:]
    above, ties = size > least, (size == least) & (size > 0)
    taken = above | ties & (ties.cumsum(1, dtype=torch.int32) <= k - above.sum(1, keepdim=True))
    taken = (taken | infinite).unsqueeze(2).expand(-1, -1, block).reshape(len(size), -1)
    return taken[:, :chunk].reshape(-1)


class _Before:
    """The memories before a step, so that it can be undone. New copies reuse the memory of older ones."""

    def __init__(self):
        self._steps, self._copies, self._spare = {}, {}, {}

    def begin(self):
        self._spare.update(self._copies)
        self._steps, self._copies = {}, {}

    def note(self, name, step, kinds):
        """Copies the tensors of `name`, the first time in a step. kinds: dictionaries of tensors by name."""
        if name in self._steps:
            return
        self._steps[name] = step
        for kind, kept in enumerate(kinds):
            if name in kept:
                spare = self._spare.pop((kind, name), None)
                self._copies[kind, name] = kept[name].clone() if spare is None else spare.copy_(kept[name])

    def undo(self, steps, kinds):
        for name, step in self._steps.items():
            steps[name] = step
            for kind, kept in enumerate(kinds):
                now = kept.pop(name, None)
                if (kind, name) in self._copies:
                    kept[name], self._copies[kind, name] = self._copies[kind, name], now
        self.begin()


class TopK:
    """Top-k with error feedback (Stich, Cordonnier and Jaggi 2018), for ``attach(ddp, compress=TopK(0.01))``.

    Each step sends the largest elements of each gradient, remembers the others, and adds them to the next step's. This
    changes what the model learns: compare losses before you rely on it. All ranks use the same settings, and each model
    needs a TopK of its own. Do not use it with an SGD that has momentum: see ``momentum``.

    The memory is as large as the parameters in float32, and twice that with ``momentum``. It holds gradients that no
    worker has seen yet, so save ``state_dict()`` with the model's, on every rank its own.

    Where a ``compress=`` argument takes a text, ``"topk:0.01"`` is short for a TopK of this density:
    in ``attach()`` for ``TopK(0.01, warm_up=20)`` with ``wire="bf16"`` (with nodes the default wire), and in
    ``OuterOptimizer`` for ``TopK(0.01, decay=0.95)``.

    Args:
        density: The share of elements that a step sends, above 0 and at most 1. At least one block of each chunk is sent.
        chunk: The number of elements among which the largest are chosen, a multiple of ``block``. None makes each
            parameter one chunk.
        block: Elements that are chosen, and travel, together: 1 to 1024. Larger blocks are cheaper to name, and choose
            less well.
        decay: The share of the memory that is kept after a step, 0 to 1. Below 1 old gradients are forgotten.
        momentum: The momentum of the gradients before the choice, from 0 to below 1 (momentum correction, Lin et al.
            2018). Use it if the optimizer would have momentum, and give the optimizer none.
        warm_up: The number of first steps that send everything. 20 is a good value for a training from the beginning.
        exempt: A function of a parameter's name and the parameter. If it returns true, the gradient is sent whole. By
            default those of fewer than two dimensions, biases and norms, are sent whole. Sparse gradients always are.

    Raises:
        TypeError: There is no argument of this name.
        ValueError: A number is impossible.

    Example:
        >>> compress = winnow.torch.TopK(0.03, warm_up=20)
        >>> state = winnow.torch.attach(ddp, compress=compress, wire="bf16")
        >>> torch.save(compress.state_dict(), f"compress.{rank}.pt")
    """

    def __init__(
        self, density: float, *, chunk: Optional[int] = CHUNK, block: int = 1, decay: float = 1.0, momentum: float = 0.0,
        warm_up: int = 0, exempt: Optional[Callable[[str, torch.nn.Parameter], Any]] = None, **unknown: Any,
    ):
        for name in unknown:
            raise TypeError(f"TopK() has no argument {name!r}{_meant(name)}")
        if not 0 < density <= 1:
            raise ValueError(f"density is {density}: want more than 0, at most 1")
        if not 0 <= decay <= 1:
            raise ValueError(f"decay is {decay}: want 0 to 1")
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum is {momentum}: want 0 to below 1")
        if not 1 <= block <= _BLOCK_MAX:
            raise ValueError(f"block is {block}: want 1 to {_BLOCK_MAX}")
        if chunk is not None and (chunk < 1 or chunk % block != 0):
            raise ValueError(f"chunk is {chunk}: want a multiple of block, which is {block}, or None")
        self.density, self.chunk, self.block, self.decay = density, chunk, block, decay
        self.momentum, self.warm_up, self.exempt = momentum, warm_up, exempt
        self._names: Dict[int, str] = {}  # names of parameters that are not exempt, by id
        self._counts: Dict[str, int] = {}  # their numbers of elements, by name
        self._memory: Dict[str, torch.Tensor] = {}  # flat, by name
        self._velocity: Dict[str, torch.Tensor] = {}
        self._steps: Dict[str, int] = {}
        self._workers: Optional[int] = None  # the number of workers
        self._saved_by = None  # the number of workers that saved the loaded memory
        self._find_unused = False  # if DDP does, gradients of zeros belong to unused parameters
        self._before: Any = None  # a _Before, if steps may have to be undone

    def __repr__(self):
        settings = ", ".join(f"{name}={getattr(self, name)}" for name in ("chunk", "block", "decay", "momentum", "warm_up"))
        return f"TopK({self.density}, {settings})"

    def _learn(self, module: torch.nn.Module, find_unused_parameters: bool = False) -> None:
        """Give this TopK its model. ``attach()``, ``HookState.name()`` and ``OuterOptimizer`` call it.

        Args:
            module: The model whose gradients are compressed.
            find_unused_parameters: What the DistributedDataParallel was given. If True, gradients of unused parameters are
                zeros, and DDP may not take what comes back.

        Raises:
            ValueError: This TopK has a model already, a parameter has a type that it cannot take, or a state that was
                loaded before is not of this model.
        """
        if self._names:
            raise ValueError("this TopK has a model already: make another one")
        for name, parameter in module.named_parameters():
            whole = parameter.dim() < 2 if self.exempt is None else self.exempt(name, parameter)
            if whole or not parameter.requires_grad:
                continue
            if _cuda.device_of(parameter) is None and parameter.dtype not in _DTYPES:
                self._names, self._counts = {}, {}
                raise ValueError(
                    f"parameter {name} is {parameter.dtype}: on the CPU compress takes float32, float16 and bfloat16; "
                    "exempt= leaves it out"
                )
            self._names[id(parameter)], self._counts[name] = name, parameter.numel()
        self._find_unused = find_unused_parameters
        self._refuse({"memory": self._memory, "velocity": self._velocity})

    def _takes(self, parameter: torch.nn.Parameter) -> bool:
        """Say whether the gradient of this parameter is compressed.

        Raises:
            ValueError: This TopK knows no model, because its HookState is a copy. Call ``HookState.name(ddp.module)`` first.
        """
        if not self._names:
            raise ValueError("compress knows no model, since its state is a copy: call HookState.name(ddp.module) first")
        return id(parameter) in self._names

    def _take(self, gradient: torch.Tensor, parameter: torch.nn.Parameter) -> None:
        """Leave in a gradient what is to be sent, and remember the rest. The hook calls it.

        Args:
            gradient: The flat gradient. It is overwritten.
            parameter: Its parameter, one that is compressed.

        Raises:
            ValueError: The memory is not finite, or has another size than the gradient.
        """
        name = self._names[id(parameter)]
        step = self._steps.get(name, 0)
        if self._before is not None:
            self._before.note(name, step, (self._memory, self._velocity))
        step = self._steps[name] = step + 1
        if len(gradient) == 0:
            return
        unused = self._find_unused and not gradient.any()  # its memory stays, and the optimizer gets zeros
        if self.momentum > 0:
            velocity = self._kept(self._velocity, name, gradient)
            if not unused:
                gradient.copy_(velocity.mul_(self.momentum).add_(gradient))
        if self._chose(parameter):
            memory = self._kept(self._memory, name, gradient)
            # The sum alone may overflow. A GPU's memory is not checked, because the check would wait for the GPU, and
            # topk_of_torch() leaves nothing in it that is not finite.
            if _cuda.device_of(gradient) is None and not memory.sum().isfinite() and not memory.isfinite().all():
                raise ValueError(f"the memory of {name} is not finite")
            if unused:
                return
            self._choose(gradient, memory)
            if self.momentum > 0:
                velocity.masked_fill_(gradient != 0, 0)
        elif self.momentum > 0:
            velocity.nan_to_num_(0, 0, 0)  # all workers get them now; the next step is free of them

    def _take_or_end(self, comm: Union[Comm, Node], gradient: torch.Tensor, parameter: torch.nn.Parameter) -> None:
        """``_take()`` from a parameter, if it is compressed, and end the job if that fails. The hook calls it.

        Args:
            comm: The communicator or node whose job ends.
            gradient, parameter: As in ``_take()``.

        Raises:
            winnow.WinnowError: ``_take()`` failed, or the loaded memory was saved by another number of workers.
        """
        if not self._takes(parameter):
            return
        self._workers = comm.world
        try:
            self._refuse_others()
            self._take(gradient, parameter)
        except ValueError as error:
            end_job(comm, f"{error}, on rank {comm.rank}")

    def _chose(self, parameter: torch.nn.Parameter) -> bool:
        """Say whether the last ``_take()`` of this parameter chose elements. During the warm-up it chooses none."""
        return self._takes(parameter) and self._steps.get(self._names[id(parameter)], 0) > self.warm_up

    def _remember(self, parameter: torch.nn.Parameter, lost: torch.Tensor) -> None:
        """Add to the memory what rounding took from the elements that ``_take()`` left. The hook calls it.

        Args:
            parameter: The parameter.
            lost: What rounding took, flat, on any device.
        """
        memory = self._memory[self._names[id(parameter)]]
        memory.add_(lost.to(memory.device))

    def _begin(self) -> None:
        """Begin a step that ``_undo()`` can take back. What was taken before stays. Elastic training calls it."""
        self._before = self._before or _Before()
        self._before.begin()

    def _undo(self) -> None:
        """Restore the memory as it was at ``_begin()``, so that the gradients of a repeated step are taken again."""
        self._before.undo(self._steps, (self._memory, self._velocity))

    def _steps_taken(self) -> Dict[str, int]:
        """Return how many steps were taken of each parameter, by name. The numbers are the same on all workers."""
        return dict(self._steps)

    def _begin_at(self, steps: Union[int, Dict[str, int]]) -> None:
        """Set how many steps were taken, so that a newcomer's next step is everybody's.

        Args:
            steps: The number for all parameters, or what ``_steps_taken()`` returned on another worker.
        """
        self._steps = dict(steps) if isinstance(steps, dict) else dict.fromkeys(self._names.values(), steps)

    def state_dict(self) -> Dict[str, Any]:
        """Return the memory, by parameter: what has not been sent yet. Save it with the model's state, on every rank its own.

        Returns:
            A dictionary for ``load_state_dict()``. Its tensors are the present ones, not copies.
        """
        kept = {"memory": dict(self._memory), "velocity": dict(self._velocity), "steps": dict(self._steps)}
        return {**kept, "workers": self._workers}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Load a state that ``state_dict()`` returned on this rank. Call it before the first step.

        If the number of workers has changed, load the result of ``merge_memories()`` instead. A memory from another number
        of workers ends the job at the next step.

        Args:
            state: The saved state. It is copied.

        Raises:
            ValueError: The state is not one of a TopK or of this model, or is not finite float32.
        """
        missing = [kind for kind in ("memory", "velocity", "steps") if kind not in state]
        if missing:
            raise ValueError(f"the saved state has no {missing[0]!r}: want what state_dict() of a TopK has returned")
        self._refuse(state)
        self._memory, self._velocity = (
            {name: kept.flatten().clone() for name, kept in state[kind].items()} for kind in ("memory", "velocity")
        )
        self._steps = dict(state["steps"])
        self._saved_by = state.get("workers") if self._memory or self._velocity else None

    def _refuse_others(self):
        """Refuses a memory that was saved by another number of workers: the memories of missing workers would be lost."""
        if self._saved_by not in (None, self._workers):
            raise ValueError(
                f"the memory of compress was saved by {self._saved_by} workers, but there are {self._workers}: on each, load "
                "the result of winnow.torch.merge_memories() of all saved states"
            )
        self._saved_by = None

    def __getstate__(self):
        """Leaves out the model, because a copy must be given its own."""
        return {**self.__dict__, "_names": {}, "_counts": {}, "_before": None}

    def _refuse(self, state):
        """Refuses a saved state that is wrong, or that does not fit the model if that is known."""
        for kind in ("memory", "velocity"):
            for name, kept in state[kind].items():
                count = self._counts.get(name)
                if self._names and count is None:
                    raise ValueError(f"the saved state has a {kind} of {name}, but this model compresses no such parameter")
                if self._names and kept.numel() != count:
                    raise ValueError(f"the saved {kind} of {name} has {kept.numel()} elements, but the parameter has {count}")
                if kept.dtype != torch.float32 or not kept.isfinite().all():
                    raise ValueError(f"the saved {kind} of {name} is not finite float32")

    def _choose(self, gradient, memory):
        """Computes memory = decay * memory + gradient, moves its largest part to gradient, and keeps the rest in memory."""
        blocks = math.ceil(len(gradient) / self.block)
        if self.chunk is not None:
            blocks = min(blocks, self.chunk // self.block)
        k = max(1, math.ceil(self.density * blocks))
        largest = topk if _cuda.device_of(gradient) is None else topk_of_torch
        largest(gradient, memory, k, blocks * self.block, self.decay, self.block)

    def _kept(self, all, name, gradient):
        count = len(gradient)
        found = all.get(name)
        if found is None:
            found = all[name] = gradient.new_zeros(count, dtype=torch.float32)
        elif len(found) != count:
            raise ValueError(f"the memory of {name} has {len(found)} elements, but its gradient has {count}")
        if found.device != gradient.device:  # after load_state_dict()
            found = all[name] = found.to(gradient.device)
        return found


def merge_memories(states: Iterable[Dict[str, Any]]) -> Dict[str, Any]:
    """Merge the memories of all workers that saved them, for a different number of workers.

    Each of the present workers loads the result. So the next averages still contain everything that was remembered.

    Args:
        states: The results of ``TopK.state_dict()`` on all workers after the same step.

    Returns:
        A state for ``TopK.load_state_dict()``, the same for each worker.

    Raises:
        ValueError: The states are not those of all workers, or not of the same step.

    Example:
        >>> states = [saved[rank]["compress"] for rank in range(4)]  # of your checkpoints
        >>> compress.load_state_dict(winnow.torch.merge_memories(states))
    """
    states = list(states)
    saved = {state.get("workers") for state in states} - {None}
    if not states or saved - {len(states)}:
        workers = ", ".join(map(str, saved)) or "no"
        raise ValueError(f"there are {len(states)} states, but {workers} workers have saved: want all their states")
    if any(state["steps"] != states[0]["steps"] for state in states):
        raise ValueError("the states are not of the same step: want those that all workers saved after one step")
    merged = {"steps": dict(states[0]["steps"])}
    for kind in ("memory", "velocity"):
        names = {name: None for state in states for name in state[kind]}
        merged[kind] = {name: sum(s[kind][name] for s in states if name in s[kind]) / len(states) for name in names}
    return merged


def _meant(name):
    """Returns a hint at a known argument with a similar name."""
    known = [one.name for one in inspect.signature(TopK).parameters.values() if one.kind == one.KEYWORD_ONLY]
    close = difflib.get_close_matches(name, known, 1)
    return f": did you mean {close[0]}?" if close else ""


def compressor_of(compress: Optional[Union[str, TopK]], **settings: Any) -> Optional[TopK]:
    """Returns the TopK of an argument: a TopK, None, or a text like "topk:0.01", for which `settings` are added."""
    if compress is None or isinstance(compress, TopK):
        return compress
    density: Any
    kind, _, density = str(compress).partition(":")
    with contextlib.suppress(ValueError):
        density = float(density)
    if kind == "topk" and isinstance(density, float):
        try:
            return TopK(density, **settings)
        except ValueError as error:
            raise ValueError(f"compress is {compress!r}: {error}") from None
    raise ValueError(f'compress is {compress!r}: want "topk:0.01" or a winnow.torch.TopK')


def parts_of(bucket, parameters):
    """Yields each parameter with its part of a bucket."""
    offset = 0
    for parameter in parameters:
        yield parameter, bucket[offset : offset + parameter.numel()]
        offset += parameter.numel()


def lost_of(compress, buffer, parameters, comm, wire):
    """Returns zeros that will collect the rounding errors of a buffer of these parameters, or None if chosen elements are
    not rounded."""
    chosen = compress is not None and any(map(compress._chose, parameters))
    return torch.zeros_like(buffer) if chosen and buffer.dtype == torch.float32 and comm.rounds(wire) else None


def remember_lost(compress, lost, parameters):
    """Adds rounding errors to the memory, after the exchange."""
    for parameter, part in parts_of(lost, parameters) if lost is not None else ():
        if len(part) > 0 and compress._chose(parameter):
            compress._remember(parameter, part)
