# SPDX-License-Identifier: BSD-3-Clause
"""The exchange of what a compressor has chosen: one operation; of largest sums, two.

These are a reduce-scatter of what all have chosen; then each worker's choice of its sums to all. A parameter has as many
parts as there are workers, and each worker adds up one of them. So one worker chooses for all, and every other element of
the second operation's tensor is zero on all but one. What it brings says what was chosen: a zero is what nobody has, so
a worker takes back what it has sent there. That is so whatever became of a sum: not among the largest, cancelled out, or
lost in the average's rounding.
"""

import collections
import itertools

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


class Exchange:
    """Of a buffer that is these parameters, one after the other, and of which take() may have chosen.

    two: of largest sums, there is a first operation before that of the buffer.
    rounded: what rounding takes of what this worker sends, as it lies in the buffer; None: nothing.
    lost: the same, for the buffer's own operation, if that is the only one.
    """

    def __init__(self, compress, parameters, buffer, comm, wire):
        self._compress, self._rank, self._world, self._pieces, count = compress, comm.rank, comm.world, [], 0
        chosen = [compress is not None and compress.chose(parameter) for parameter in parameters]
        self.rounded = lost_of(buffer, comm, wire) if any(chosen) else None
        losses = itertools.repeat((None, None)) if self.rounded is None else parts_of(self.rounded, parameters)
        for (parameter, values), (_, lost), its in zip(parts_of(buffer, parameters), losses, chosen):
            if its and len(values) > 0 and (compress.of_sums or lost is not None):
                length = -(-len(values) // (comm.world * compress.block)) * compress.block
                self._pieces.append(_Piece(parameter, values, lost, count, length))
                count += length
        self.two = len(self._pieces) > 0 and compress.of_sums
        self.lost = None if self.two else self.rounded
        if self.two:
            self._sent, self._share = buffer.new_zeros(comm.world, count), buffer.new_empty(count)
            for _, values, _, at, length in self._pieces:
                whole = torch.nn.functional.pad(values, (0, comm.world * length - len(values)))
                self._sent[:, at : at + length] = whole.view(comm.world, length)

    def start(self, comm, wire, **options):
        """The request of the first of two operations."""
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

    def settle(self, arrived=True):
        """After that, once: the result is in the buffer; or, of largest sums, nothing has arrived."""
        pieces, self._pieces = self._pieces, []
        for parameter, values, lost, at, length in pieces:
            sent = there = None
            if self.two:
                sent = self._flat(self._sent, at, length, len(values))
                there = values != 0 if arrived else torch.zeros_like(values, dtype=torch.bool)
                if arrived and lost is not None:  # what the second took of this worker's sums, which it alone sent
                    mine = self._mine(values, length)
                    self._mine(lost, length).add_(self._share[at : at + len(mine)].sub(mine, alpha=self._world))
            self._compress.settle(parameter, lost, sent, there)

    def _mine(self, values, length):
        return values[self._rank * length : (self._rank + 1) * length]

    def _flat(self, shares, at, length, count):
        """What lies in all shares of one parameter, as in the buffer."""
        return shares[:, at : at + length].reshape(-1)[:count]
