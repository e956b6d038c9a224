# SPDX-License-Identifier: BSD-3-Clause
"""How a tensor is cut into parts, blocks, shards, segments and frames: PROTOCOL.md 4. Names are the document's."""

import numpy as np

from wire import HEADER_BYTES


def up(a, b):
    """ceil(a / b)"""
    return -(-a // b)


def turn(g):
    """4.2"""
    return (g * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF) >> 33


def fnv(*numbers):
    """4.6"""
    value = 0xCBF29CE484222325
    for byte in b"".join(number.to_bytes(8, "little") for number in numbers):
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


class Part:
    """4.1 to 4.3: a matrix in tiles, one or more times; flat where it has no columns."""

    def __init__(self, count, columns, tile_rows, tile_columns, copies=1):
        rows = count // columns if columns else min(count, 1)
        self.Q, self.N = count, copies
        self.h, self.v = min(tile_rows, max(rows, 1)), min(tile_columns, max(columns or count, 1))
        self.columns = columns
        if rows <= 1 or self.v == columns:  # it is flat
            self.h, self.v, self.columns = 1, self.h * self.v, 0
        self.rows = rows if self.columns else min(count, 1)
        self.across = up(self.columns or count, self.v)
        self.b = self.h * self.v
        self.R = self.across * up(self.rows, self.h)
        self.numbers = (self.Q, self.columns, self.h, self.v, self.N)  # 4.6

    def cut(self, e, S, P):
        self.w = self.b * e
        self.G = up(self.R, S)  # 4.2
        self.L = max(64, min(4194304 // self.w // 64 * 64, (P - 48) // 8 * 64, 16384))  # 4.3
        self.M = max(1, up(self.G, self.L))
        self.k, self.p, self.m = 1, self.w, 1
        if self.w <= P:
            self.k = P // self.w
        else:
            self.p = P // 8 * 8
            self.m = up(self.w, self.p)
        return self

    def elements(self, first, nothing):
        """Of all blocks of all copies: which elements of the tensor they have, `nothing` for those that do not exist."""
        width = self.columns or self.Q
        j = np.arange(self.R)[:, None, None]
        row = j // self.across * self.h + np.arange(self.h)[None, :, None]
        column = j % self.across * self.v + np.arange(self.v)[None, None, :]
        found = np.where((row < self.rows) & (column < width), row * width + column, -1).reshape(1, self.R, self.b)
        copy = np.arange(self.N)[:, None, None] * self.Q
        return np.where(found < 0, nothing, first + copy + found).reshape(self.N * self.R, self.b)

    def frame_count(self, U):
        """4.3"""
        return up(U, self.k) * self.m

    def frames(self, U):
        """4.3: (first of the union's blocks, one after the last, first byte, one after the last) of each frame."""
        for first in range(0, U, self.k):
            last = min(first + self.k, U)
            for part in range(self.m):
                yield first, last, part * self.p, min((part + 1) * self.p, self.w)


class Cut:
    """4: what a worker knows of an operation once it knows its parameters."""

    def __init__(self, count, e, block_elems, channels, payload, native, workers=1, layout=None):
        """workers: of a reduce-scatter; layout: [(count, columns, tile rows, tile columns)] of each part"""
        P = payload - HEADER_BYTES
        flat = Part(count, 0, 1, block_elems)
        s = flat.b * (4 if e == 2 else e)  # 4.4
        E = min(16384, P // s)
        while E > 0 and E * s + 8 * up(E, 64) + 50 > P:
            E -= 1
        self.eager = native and flat.R <= (E if layout else 4 * E)
        self.N = 1 if self.eager or count == 0 else workers  # 4.5
        self.S = 1 if self.eager else channels
        if self.N > 1:
            flat = Part(count // workers, 0, 1, block_elems, workers)
        whole = self.eager or count == 0 or self.N > 1 or not layout
        self.parts = [part.cut(e, self.S, P) for part in ([flat] if whole else [Part(*part) for part in layout])]
        if self.eager and flat.R > 0:
            flat.L, flat.M = E, up(flat.R, E)
        self.T = sum(part.N * part.R for part in self.parts)
        self.segments = sum(part.N * part.M for part in self.parts)
        self.numbers = [number for part in self.parts for number in part.numbers]

    def __getattr__(self, name):
        """Of the only part."""
        (part,) = self.parts
        return getattr(part, name)

    def hash(self, shard, channels):
        """4.6"""
        return fnv(0, *self.numbers, channels << 16 | shard)

    def place(self, n):
        """The part, its number, which of its copies, and the number in that, of a segment."""
        for number, part in enumerate(self.parts):
            if n < part.N * part.M:
                return part, number, *divmod(n, part.M)
            n -= part.N * part.M

    def blocks(self, s, n):
        """4.2, 4.5: which blocks of its part segment n of shard s has; one that is N*R or more does not exist."""
        part, _, r, n = self.place(n)
        g = np.arange(n * part.L, min(part.G, (n + 1) * part.L), dtype=np.uint64)
        turns = (g * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(33)
        found = g.astype(np.int64) * self.S + (s - turns.astype(np.int64)) % self.S
        return np.where(found < part.R, r * part.R + found, part.N * part.R)

    def receiver(self, n):
        """4.5: the rank of the worker that segment n's sums are for; None: for all."""
        return n // self.M if self.N > 1 else None

    def neighbours(self, n):
        """The blocks of its part that the segments n of all shards have, which follow each other."""
        part, _, r, n = self.place(n)
        span = part.L * self.S
        return slice(r * part.R + n * span, r * part.R + min((n + 1) * span, part.R))
