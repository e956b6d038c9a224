# SPDX-License-Identifier: BSD-3-Clause
"""Gradients through the aggregators, or around the ring of the framework's own process group: both are timed.

Who is faster depends on links, processors and how many there are of each, so some steps at first take turns, and what
they took is compared: of each way the best step of the slowest rank. The ranks' times travel as an operation beside a
step's gradients, and are looked at a step later, so that all ranks choose the same and none waits for it.
"""

import torch
import torch.distributed as dist

from . import _cuda
from ._comm import Comm

_FIRST = 4  # steps until buckets are as they will be, and links have been used
_TURNS = 4  # steps of each way
_EACH = 1024  # steps from one comparison to the next
_BETTER = 0.95  # of what the aggregators take: then the ring is worth it
# Around a ring each worker sends and receives 2 (N - 1) / N of a tensor; of a list of rows, as NCCL has no such thing and
# Gloo gathers them, up to N - 1 times the union. It is not tried where that is more than so many times what the aggregators
# send: the blocks that any worker has.
_TIMES_UNION = 2


class Ring:
    """Of one model on one device (None: the CPU), whose ranks are those of `group`."""

    def __init__(self, group, device=None):
        self._group, self._world, self._device = group, dist.get_world_size(group), device
        self._step = -1
        self._on = False  # those of _fit go around it in this step
        self._fit = set()  # numbers of buckets for which it may be the better way
        self._parameters = {}  # of each bucket
        self._begun, self._ended = None, []  # moments: of the step's first bucket, of each that is back
        self._took = ([], [])  # such steps: aggregators, ring
        self._asked = None  # the operation that compares
        self.seconds = None
        """What a step's exchange took at its best: through the aggregators, around the ring; None: not compared yet."""

    def begin(self, comm, tags):
        """A step's first bucket is there. Of the step before, all have completed, but perhaps on the GPU."""
        turn = self._step % _EACH - _FIRST
        if 0 <= turn < 2 * _TURNS and self._fit:
            self._took[turn % 2].append((self._begun, self._ended))
        self._step += 1
        turn = self._step % _EACH - _FIRST
        if turn == 2 * _TURNS and all(self._took):
            best = [min(_cuda.seconds(*step) for step in took) for took in self._took]
            self._took = ([], [])
            self._asked = comm.allreduce_async(torch.tensor(best, dtype=torch.float64, device="cpu"), op="max", tag=next(tags))
        elif self._asked is not None:
            self.seconds, self._asked = tuple(self._asked.wait().tolist()), None
        chosen = self.seconds is not None and self.seconds[1] < _BETTER * self.seconds[0]
        self._on = turn % 2 == 1 if 0 <= turn < 2 * _TURNS else chosen
        self._begun, self._ended = _cuda.moment(self._device), []

    def takes(self, number, tensor, parameters):
        self._parameters[number] = {id(parameter) for parameter in parameters}
        return self._on and number in self._fit and tensor.dtype in (torch.float32, torch.float64)

    def has(self, parameter):
        """Whether its gradient goes around it now."""
        return self._on and any(id(parameter) in self._parameters.get(number, ()) for number in self._fit)

    def done(self, number, stats, sparse=False):
        """A bucket is back from the aggregators, in the current stream."""
        self._ended.append(_cuda.moment(self._device))
        if sparse:
            fits = self._device is None and self._world - 1 <= _TIMES_UNION
        else:
            fits = 2 * (self._world - 1) / self._world * stats.blocks <= _TIMES_UNION * stats.blocks_union
        (self._fit.add if fits else self._fit.discard)(number)

    def reduce(self, tensor, failed):
        """A torch Future of its average over all ranks, in place."""

        def end(future):
            try:
                result = future.value()[0].div_(self._world)
                result = result.coalesce() if tensor.is_sparse else result
            except Exception as error:
                failed(error)
                raise
            self._ended.append(_cuda.moment(self._device))
            return result

        return dist.all_reduce(tensor, group=self._group, async_op=True).get_future().then(end)


def ring_of(group, parameters, comm, wire):
    """None: gradients cannot go around one, are added up in nodes first, or are to be rounded, which it does not do."""
    devices = {_cuda.device_of(parameter) for parameter in parameters}
    backend = "gloo" if devices == {None} else "nccl"
    one = len(devices) == 1 and backend in dist.get_backend(group) and isinstance(comm, Comm)
    return Ring(group, *devices) if one and comm.world > 1 and not comm.rounds(wire) else None
