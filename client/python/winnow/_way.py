# SPDX-License-Identifier: BSD-3-Clause
"""Chooses the blocks of a gradient: by its shape, or by the averages of earlier steps.

All workers have the same averages, bit by bit, so they choose the same without asking each other.
"""

import collections
import math

import torch

from . import _cuda

BLOCKS, ROWS, COLUMNS, ELEMENTS = "blocks", "rows", "columns", "elements"

# By its shape a parameter is a table, whose blocks are rows, if it has this many bytes and is this many times as high
# as wide.
TABLE_BYTES = 1 << 16
TABLE_RATIO = 8

_BLOCK = 256  # elements, the library's default
_TILE_BYTES = 512  # a column, or a part of one
_BLOCK_COSTS = 8  # the CPU time of a block, in bytes of a link of 10 Gbit/s
_AWAY_COSTS = 1  # the same, estimated, for an element of a GPU that crosses the bus twice and is examined by the CPU
_BETTER = 0.8  # another way must cost at most this share of the present one
_LOOK_EACH = 64  # steps from one look to the next; before that at steps 1, 2, 4, 8 ..


def by_shape(parameter, element_bytes):
    shape = parameter.shape
    table = len(shape) == 2 and shape[0] >= TABLE_RATIO * shape[1] and parameter.numel() * element_bytes >= TABLE_BYTES
    return ROWS if table else BLOCKS


def segment(way, parameter, offset, element_bytes):
    """Returns the parameter's segment for Comm.allreduce(), or None if it needs none."""
    count, shape = parameter.numel(), parameter.shape
    if way == ROWS:
        return (offset, count, shape[1])
    if way == COLUMNS:
        return (offset, count, shape[1], min(shape[0], _TILE_BYTES // element_bytes), 1)
    if way == ELEMENTS:
        return (offset, count, 1, 1, 1)
    return None


def way_of(parameter, element_bytes, compress=None, seen=None):
    """Returns the way of a parameter. If it is compressed, elements that are chosen together travel together."""
    if compress is not None and parameter.numel() > 0 and compress._takes(parameter):
        return ELEMENTS if compress.block == 1 else BLOCKS
    return by_shape(parameter, element_bytes) if seen is None else seen.way(parameter, element_bytes)


def ways_of(module, compress=None, seen=None):
    """Returns way_of() of each parameter, by name."""
    return {name: way_of(one, one.element_size(), compress, seen) for name, one in module.named_parameters()}


def segments(parameters, buffer, compress=None, seen=None):
    """Returns the segments of a buffer of these parameters, one after the other, or None if none of them needs one."""
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
    """Returns the segment of a compressed parameter. Tiles, unlike rows, may be shorter than 64 bytes, but need whole rows."""
    return (offset, count, block) + ((1, block) if count % block == 0 else ())


def leaves(segments):
    """Returns whether a GPU's buffer travels from the host's memory, where tiles are cut."""
    return any(len(one) > 3 for one in segments or ())


def seen_of(way, block):
    """Returns a Seen for attach(way="auto"), or None."""
    if way not in (None, "auto"):
        raise ValueError(f'way is {way!r}: want "auto" or None')
    return None if way is None else Seen(block)


class Seen:
    """The ways of a model's parameters, chosen from the averages that look() gets."""

    def __init__(self, block=None):
        self._block = block or _BLOCK
        self._ways = {}  # by the parameter's id
        self._steps = {}
        self._costs = {}
        self._by_shape = {}
        self.looks, self._told = 0, None

    def way(self, parameter, element_bytes):
        return self._ways.get(id(parameter)) or by_shape(parameter, element_bytes)

    def costs(self, parameter):
        """Returns the bytes of each way for the last average that was examined, or {}."""
        return dict(self._costs.get(id(parameter), {}))

    def tell(self, comm, ways):
        """Shows in `winnow status`, if it may have changed, how many parameters travel in which way, and the bytes of the
        examined averages compared with the ways by shape."""
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
        """Examines the flat average of this parameter's gradient after a step, at some steps."""
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
        elif costs[home] <= costs[now]:  # it takes the least CPU time
            self._ways[id(parameter)] = home


def bytes_of(matrix, block=_BLOCK):
    """Returns the cost of receiving a matrix in each way, as a dictionary."""
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
    counts = torch.stack([blocks.sum() for blocks, _ in ways.values()]).tolist()  # waits only once for a GPU
    return {way: _cost(count, blocks.numel(), each) for count, (way, (blocks, each)) in zip(counts, ways.items())}


def _of_row(columns, size, block):
    """Returns the elements of a block in a table with such rows: see winnow_allreduce_segments_async()."""
    if columns * size < 64:
        return columns * -(-64 // (columns * size))
    if columns <= block:
        return columns
    return max(part for part in range(1, block + 1) if columns % part == 0)


def _any(flags, width):
    """Returns for each `width` flags whether any is set."""
    return torch.nn.functional.pad(flags, (0, -len(flags) % width)).view(-1, width).any(1)


def _any_down(flags, height):
    rows, columns = flags.shape
    return torch.nn.functional.pad(flags, (0, 0, 0, -rows % height)).view(-1, height, columns).any(1)


def _cost(there, count, block_bytes):
    """Returns the cost of the present blocks and of naming them, by the entropy of a random choice."""
    share = there / count
    bits = -count * sum(p * math.log2(p) for p in (share, 1 - share) if p > 0)
    return there * (block_bytes + _BLOCK_COSTS) + bits / 8
