# SPDX-License-Identifier: BSD-3-Clause
"""How a tensor is cut into blocks, shards, segments and frames: PROTOCOL.md 4. Names are the document's."""

import numpy as np

from wire import HEADER_BYTES


def up(a, b):
    """ceil(a / b)"""
    return -(-a // b)


def turn(g):
    """4.2"""
    return (g * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF) >> 33


class Cut:
    """4: what both sides know of an operation once they know its parameters."""

    def __init__(self, count, e, block_elems, channels, payload, native, workers=1):
        """workers: of a reduce-scatter"""
        P = payload - HEADER_BYTES
        self.b = min(block_elems, max(count, 1))  # 4.1
        self.w = self.b * e
        self.T = up(count, self.b)
        self.eager = native and self.T <= 16384 and self.T * self.w + 8 * up(self.T, 64) + 42 <= P  # 4.4
        self.N = 1 if self.eager or count == 0 else workers  # 4.5
        self.Q = count // self.N
        self.b = min(self.b, max(self.Q, 1))
        self.w = self.b * e
        self.R = up(self.Q, self.b)
        self.T = self.N * self.R
        self.S = 1 if self.eager else channels
        self.G = up(self.R, self.S)  # 4.2
        self.L = max(64, min(4194304 // self.w // 64 * 64, (P - 40) // 8 * 64, 16384))  # 4.3
        self.M = max(1, up(self.G, self.L))
        self.segments = self.N * self.M
        self.k, self.p, self.m = 1, self.w, 1
        if self.w <= P:
            self.k = P // self.w
        else:
            self.p = P // 8 * 8
            self.m = up(self.w, self.p)

    def blocks(self, s, n):
        """4.2, 4.5: which blocks of the tensor segment n of shard s has; one that is T or more does not exist."""
        r, n = divmod(n, self.M)
        g = np.arange(n * self.L, min(self.G, (n + 1) * self.L), dtype=np.uint64)
        turns = (g * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(33)
        found = g.astype(np.int64) * self.S + (s - turns.astype(np.int64)) % self.S
        return np.where(found < self.R, r * self.R + found, self.T)

    def receiver(self, n):
        """4.5: the rank of the worker that segment n's sums are for; None: for all."""
        return n // self.M if self.N > 1 else None

    def neighbours(self, n):
        """The blocks that the segments n of all shards have, which follow each other."""
        r, n = divmod(n, self.M)
        span = self.L * self.S
        return slice(r * self.R + n * span, r * self.R + min((n + 1) * span, self.R))

    def frame_count(self, U):
        """4.3"""
        return up(U, self.k) * self.m

    def frames(self, U):
        """4.3: (first of the union's blocks, one after the last, first byte, one after the last) of each frame."""
        for first in range(0, U, self.k):
            last = min(first + self.k, U)
            for part in range(self.m):
                yield first, last, part * self.p, min((part + 1) * self.p, self.w)
