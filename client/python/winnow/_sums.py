# SPDX-License-Identifier: BSD-3-Clause
"""Largest sums, of two operations: a reduce-scatter of what all have chosen; then each worker's choice of its sums to all.

A parameter has as many parts as there are workers, and each worker adds up one of them. So one worker chooses for all,
and every other element of the second operation's tensor is zero on all but one. What it brings says what was chosen:
a zero is what nobody has, so a worker takes back what it has sent there. That is so whatever became of a sum: not among
the largest, cancelled out, or lost in the average's rounding.
"""

import collections

import torch

from ._compress import lost_of

# Of a share: its `length` elements from `at` on are a part of this parameter's gradient, which is `values`; `lost` is
# what rounding takes of that.
_Piece = collections.namedtuple("_Piece", "parameter values lost at length")


def parts_of(bucket, parameters):
    """Each parameter with its part of a bucket."""
    offset = 0
    for parameter in parameters:
        yield parameter, bucket[offset : offset + parameter.numel()]
        offset += parameter.numel()


class Sums:
    """The exchange of one buffer, of which take() has chosen. `parts`: parameters, and what lies of each in the buffer, and
    in lost_of() it."""

    def __init__(self, compress, parts, comm):
        self._compress, self._rank, self._world, self._pieces, count = compress, comm.rank, comm.world, [], 0
        for parameter, values, lost in parts:
            if len(values) > 0 and compress.chose(parameter):
                length = -(-len(values) // (comm.world * compress.block)) * compress.block
                self._pieces.append(_Piece(parameter, values, lost, count, length))
                count += length
        if self._pieces:
            like = self._pieces[0].values
            self._sent, self._share = like.new_zeros(comm.world, count), like.new_empty(count)
        for _, values, _, at, length in self._pieces:
            whole = torch.nn.functional.pad(values, (0, comm.world * length - len(values)))
            self._sent[:, at : at + length] = whole.view(comm.world, length)

    def __bool__(self):
        """Whether anything has been chosen: if not, there is no first operation."""
        return len(self._pieces) > 0

    def start(self, comm, wire, **options):
        """The first operation's request."""
        self._lost = lost_of(self._sent, comm, wire)
        options.update(block=self._compress.block, wire=wire, lost=self._lost)
        return comm.reduce_scatter_async(self._sent, self._share, **options)

    def choose(self):
        """After that: leaves in the buffer what the second one is to add up, whose average is each sum's."""
        for _, values, lost, at, length in self._pieces:
            if lost is not None:
                lost.copy_(self._flat(self._lost, at, length, len(values)))
            sums = self._share[at : at + length]
            self._compress.choose_sums(sums)
            mine = self._mine(values.zero_(), length)
            mine.copy_(sums[: len(mine)])

    def look(self):
        """After the second: what its rounding took of this worker's sums, which it alone sent."""
        for _, values, lost, at, length in self._pieces:
            if lost is not None:
                mine = self._mine(values, length)
                self._mine(lost, length).add_(self._share[at : at + len(mine)].sub(mine, alpha=self._world))

    def settle(self, arrived):
        """After that, once: the result is in the buffer; or nothing has arrived."""
        pieces, self._pieces = self._pieces, []
        for parameter, values, lost, at, length in pieces:
            sent = self._flat(self._sent, at, length, len(values))
            there = values != 0 if arrived else torch.zeros_like(values, dtype=torch.bool)
            self._compress.settle(parameter, lost, sent, there)

    def _mine(self, values, length):
        return values[self._rank * length : (self._rank + 1) * length]

    def _flat(self, shares, at, length, count):
        """What lies in all shares of one parameter, as in the buffer."""
        return shares[:, at : at + length].reshape(-1)[:count]
