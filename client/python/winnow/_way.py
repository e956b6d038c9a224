# SPDX-License-Identifier: BSD-3-Clause
"""In which blocks a gradient travels: by its shape, or by what the averages of earlier steps were like.

All workers have the same averages, to the bit, so they choose the same without asking each other.
"""

import collections
import math

import torch

from . import _cuda

BLOCKS, ROWS, COLUMNS, ELEMENTS = "blocks", "rows", "columns", "elements"

# By its shape a parameter is a table of rows, to which blocks are aligned, from so many bytes on, and if it is so many
# times as high as wide.
TABLE_BYTES = 1 << 16
TABLE_RATIO = 8

_BLOCK = 256  # elements, the library's default
_TILE_BYTES = 512  # of a column, or of a part of one
_BLOCK_COSTS = 8  # bytes: what the CPUs spend on a block, on a link of 10 Gbit/s
_AWAY_COSTS = 1  # byte, as above, by estimate: for an element of a GPU to cross the bus twice and be looked at by the CPU
_BETTER = 0.8  # of what it costs now: then another way is worth it
_LOOK_EACH = 64  # steps; before the first of them 1, 2, 4, 8 ..


def by_shape(parameter, element_bytes):
    shape = parameter.shape
    table = len(shape) == 2 and shape[0] >= TABLE_RATIO * shape[1] and parameter.numel() * element_bytes >= TABLE_BYTES
    return ROWS if table else BLOCKS


def segment(way, parameter, offset, element_bytes):
    """For Comm.allreduce(); None: it needs none of its own."""
    count, shape = parameter.numel(), parameter.shape
    if way == ROWS:
        return (offset, count, shape[1])
    if way == COLUMNS:
        return (offset, count, shape[1], min(shape[0], _TILE_BYTES // element_bytes), 1)
    if way == ELEMENTS:
        return (offset, count, 1, 1, 1)
    return None


def way_of(parameter, element_bytes, compress=None, seen=None):
    """Of one that is compressed, what is chosen together travels together."""
    if compress is not None and parameter.numel() > 0 and compress._takes(parameter):
        return ELEMENTS if compress.block == 1 else BLOCKS
    return by_shape(parameter, element_bytes) if seen is None else seen.way(parameter, element_bytes)


def ways_of(module, compress=None, seen=None):
    """way_of() each of its parameters, by name."""
    return {name: way_of(one, one.element_size(), compress, seen) for name, one in module.named_parameters()}


def segments(parameters, buffer, compress=None, seen=None):
    """The segments of a buffer that is these parameters, one after the other; None if none of them needs one."""
    found, offset, size = [], 0, buffer.element_size()
    for parameter in parameters:
        if parameter.numel() > 0 and compress is not None and compress._takes(parameter):
            found.append(_chosen(parameter.numel(), compress.block, offset))
        elif parameter.numel() > 0:
            found.append(segment(way_of(parameter, size, compress, seen), parameter, offset, size))
        offset += parameter.numel()
    found = [one for one in found if one is not None]
    return found if found and offset == buffer.numel() else None


def _chosen(count, block, offset):
    """Rows below 64 bytes would share a block, and tiles do not; but those are of whole matrices only."""
    return (offset, count, block) + ((1, block) if count % block == 0 else ())


def leaves(segments):
    """Whether a GPU's buffer travels from the host's memory: tiles are cut there."""
    return any(len(one) > 3 for one in segments or ())


def seen_of(way, block):
    """What attach(way=) asks for: a Seen, or None."""
    if way not in (None, "auto"):
        raise ValueError(f'way is {way!r}: want "auto" or None')
    return None if way is None else Seen(block)


class Seen:
    """The ways of a model's parameters, by the averages that look() is shown."""

    def __init__(self, block=None):
        self._block = block or _BLOCK
        self._ways = {}  # by id of the parameter
        self._steps = {}
        self._costs = {}
        self._by_shape = {}
        self.looks, self._told = 0, None

    def way(self, parameter, element_bytes):
        return self._ways.get(id(parameter)) or by_shape(parameter, element_bytes)

    def costs(self, parameter):
        """Bytes by way, of the average that was looked at last; {}: none was."""
        return dict(self._costs.get(id(parameter), {}))

    def tell(self, comm, ways):
        """To status, if it may have changed: how many parameters travel in which way; of the bytes in which averages that
        were looked at would have come by their shape, what that takes."""
        if self._told == self.looks:
            return
        self._told = self.looks
        counts = collections.Counter(ways().values())
        text = ", ".join(f"{counts[way]} {way}" for way in (ELEMENTS, COLUMNS, ROWS, BLOCKS) if counts[way])
        shape = sum(costs[self._by_shape[one]] for one, costs in self._costs.items())
        now = sum(costs[self._ways.get(one, self._by_shape[one])] for one, costs in self._costs.items())
        comm.say(f"{now / shape:.0%} of bytes: {text}" if shape > 0 else text)

    def forget(self):
        self._ways, self._steps, self._costs = {}, {}, {}
        self.looks += 1

    def look(self, parameter, average):
        """`average`, flat, is what all workers have of this parameter's gradient after a step."""
        step = self._steps[id(parameter)] = self._steps.get(id(parameter), 0) + 1
        worth = step & (step - 1) == 0 if step < _LOOK_EACH else step % _LOOK_EACH == 0
        if parameter.dim() != 2 or not worth or parameter.numel() * average.element_size() < TABLE_BYTES:
            return
        now, home = self.way(parameter, average.element_size()), by_shape(parameter, average.element_size())
        costs = bytes_of(average.view(parameter.shape), self._block)
        if _cuda.device_of(average) is not None:
            for way in (COLUMNS, ELEMENTS):
                costs[way] += _AWAY_COSTS * parameter.numel()
        self._costs[id(parameter)], self._by_shape[id(parameter)] = costs, home
        self.looks += 1
        best = min(costs, key=costs.get)
        if costs[best] <= _BETTER * costs[now]:
            self._ways[id(parameter)] = best
        elif costs[home] <= costs[now]:  # it takes the CPUs least time
            self._ways[id(parameter)] = home


def bytes_of(matrix, block=_BLOCK):
    """What each way costs to receive a matrix: a dictionary."""
    there = matrix != 0
    rows, columns = there.shape
    size = matrix.element_size()
    high = min(rows, _TILE_BYTES // size)
    wide = _of_row(columns, size, block)
    ways = {
        BLOCKS: (_any(there.flatten(), block), block * size),
        ROWS: (_any(there.flatten(), wide), wide * size),
        COLUMNS: (_any_down(there, high), high * size),
        ELEMENTS: (there, size),
    }
    counts = torch.stack([blocks.sum() for blocks, _ in ways.values()]).tolist()  # a GPU is waited for once
    return {way: _cost(count, blocks.numel(), each) for count, (way, (blocks, each)) in zip(counts, ways.items())}


def _of_row(columns, size, block):
    """Elements of a block in a table with such rows: see winnow_allreduce_segments_async()."""
    if columns * size < 64:
        return columns * -(-64 // (columns * size))
    if columns <= block:
        return columns
    return max(part for part in range(1, block + 1) if columns % part == 0)


def _any(flags, width):
    """Of each `width` flags, is any set?"""
    return torch.nn.functional.pad(flags, (0, -len(flags) % width)).view(-1, width).any(1)


def _any_down(flags, height):
    rows, columns = flags.shape
    return torch.nn.functional.pad(flags, (0, 0, 0, -rows % height)).view(-1, height, columns).any(1)


def _cost(there, count, block_bytes):
    """Of the blocks that are there, and of saying which they are, at the entropy of chance."""
    share = there / count
    bits = -count * sum(p * math.log2(p) for p in (share, 1 - share) if p > 0)
    return there * (block_bytes + _BLOCK_COSTS) + bits / 8
