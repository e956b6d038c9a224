# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of which only the largest elements travel; the others are remembered, and added to the next step's."""

import math

import torch

from ._topk import CHUNK, topk


def compressor_of(compress):
    """What attach() was given: a TopK, a text like "topk:0.01", or None."""
    if compress is None or isinstance(compress, TopK):
        return compress
    kind, _, density = str(compress).partition(":")
    try:
        if kind == "topk":
            return TopK(float(density))
    except ValueError as error:
        raise ValueError(f"compress is {compress!r}: {error}") from None
    raise ValueError(f'compress is {compress!r}: want "topk:0.01", or a winnow.torch.TopK')


class TopK:
    """Top-k with error feedback (Stich, Cordonnier and Jaggi 2018), for winnow.torch.attach(ddp, compress=TopK(0.01)).

    density: the share of elements that a step sends, of each chunk; at least one of each.
    chunk: elements among which they are chosen; None: each parameter is one chunk.
    decay: what is left of the memory after a step; below 1 old gradients are forgotten.
    warm_up: so many steps at first send everything.
    exempt: called with name and parameter; true: it is sent whole. None: all of fewer than two dimensions, which are
        biases and norms, and those whose gradients are sparse.

    Its memory, as large as the parameters in float32, is part of what was not sent yet: save state_dict() with
    the model's, on every rank its own. A TopK serves one model.
    """

    def __init__(self, density, *, chunk=CHUNK, decay=1.0, warm_up=0, exempt=None):
        if not 0 < density <= 1:
            raise ValueError(f"density is {density}: want more than 0, at most 1")
        if not 0 <= decay <= 1:
            raise ValueError(f"decay is {decay}: want 0 to 1")
        if chunk is not None and chunk < 1:
            raise ValueError(f"chunk is {chunk}: want at least 1, or None")
        self.density, self.chunk, self.decay, self.warm_up = density, chunk, decay, warm_up
        self.exempt = exempt
        self._names = {}  # of parameters that are not exempt, by id
        self._memory = {}  # by name: elements
        self._steps = {}

    def __repr__(self):
        return f"TopK({self.density}, chunk={self.chunk}, decay={self.decay}, warm_up={self.warm_up})"

    def learn(self, module):
        """attach() calls it: whose gradients there are."""
        if self._names:
            raise ValueError("this TopK has a model already: make another one")
        for name, parameter in module.named_parameters():
            whole = parameter.dim() < 2 if self.exempt is None else self.exempt(name, parameter)
            if not whole and parameter.requires_grad:
                self._names[id(parameter)] = name
        for name in self._memory.keys() - self._names.values():
            raise ValueError(f"the saved memory of {name} is of no parameter of this model that is compressed")

    def takes(self, parameter):
        if not self._names:
            raise ValueError("compress knows no model, since its state is a copy: call HookState.name(ddp.module) first")
        return id(parameter) in self._names

    def take(self, gradient, parameter):
        """Leaves what is to be sent of a parameter's gradient, which is flat."""
        name, count = self._names[id(parameter)], gradient.numel()
        step = self._steps[name] = self._steps.get(name, 0) + 1
        if step <= self.warm_up or count == 0:
            return
        memory = self._memory.get(name)
        if memory is None:
            memory = self._memory[name] = torch.zeros(count, dtype=torch.float32)
        elif memory.numel() != count:
            raise ValueError(f"the memory of {name} has {memory.numel()} elements, and its gradient {count}")
        chunk = min(self.chunk or count, count)
        topk(gradient, memory, max(1, math.ceil(self.density * chunk)), chunk, self.decay)

    def state_dict(self):
        """What has not been sent yet, by parameter. The tensors are the present ones, not copies."""
        return {"memory": dict(self._memory), "steps": dict(self._steps)}

    def load_state_dict(self, state):
        for name, memory in state["memory"].items():
            if self._names and name not in self._names.values():
                raise ValueError(f"the saved memory of {name} is of no parameter of this model that is compressed")
            if memory.dtype != torch.float32 or not memory.isfinite().all():
                raise ValueError(f"the saved memory of {name} is not finite float32")
        self._memory = {name: memory.flatten().clone() for name, memory in state["memory"].items()}
        self._steps = dict(state["steps"])

    def __getstate__(self):
        """A copy learns its model anew."""
        return {**self.__dict__, "_names": {}}
