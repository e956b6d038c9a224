# SPDX-License-Identifier: BSD-3-Clause
"""An operation, its share of each channel, segments and frames: PROTOCOL.md 6, 7, 8 and 9. Knows no time."""

import numpy as np

import element
import wire
from cut import Cut, turn


class Operation:
    """One allreduce or reduce-scatter: the tensor in blocks, and what comes back."""

    def __init__(self, array, dtype, reduction, block_elems, form, tag, world, scatter=False, layout=None):
        self.kind = element.TYPES[dtype]
        self.array = np.ascontiguousarray(array, dtype=self.kind.array).reshape(-1)
        self.reduction, self.block_elems, self.form = reduction, block_elems, form
        self.tag, self.world, self.scatter, self.layout = tag, world, scatter, layout
        self.error = None  # 11.1
        self.shares = []

    def begin(self, channels, payload, op_slot, generation):
        """6.2: it has got a slot. 4.4: which channels carry it."""
        count, native = self.array.size, self.form == element.NATIVE
        workers = self.world if self.scatter else 1
        self.cut = cut = Cut(count, element.wire_bytes(self.kind, self.form), self.block_elems, len(channels), payload, native, workers,
                             self.layout)  # fmt: skip
        self.rank = channels[0].rank
        self.op_slot, self.generation, self.shard_count = op_slot, generation, len(channels)
        padded = np.append(self.array, np.zeros(1, dtype=self.kind.array))
        firsts = np.cumsum([0] + [part.N * part.Q for part in cut.parts])
        # Of each part the elements of its blocks, which of these are the worker's, and their values.
        self.elements = [part.elements(int(first), count) for part, first in zip(cut.parts, firsts)]
        self.rows = [padded[elements] for elements in self.elements]
        self.own = [element.nonzero(rows, self.kind).any(axis=1) for rows in self.rows]
        self.sums = np.zeros_like(padded)  # 7: blocks that no worker has stay zero; the last is what does not exist
        first = [channel for channel in channels if channel.first]  # of the first aggregator: 4.4
        used = [first[turn(self.tag) % len(first)]] if cut.eager else channels
        for channel in used:
            share = Share(self, channel)
            self.shares.append(share)
            channel.shares.append(share)

    @property
    def done(self):
        return bool(self.shares) and all(share.done for share in self.shares)

    @property
    def result(self):
        """Of a reduce-scatter the worker's share: 4.5."""
        whole = self.sums[:-1]
        count = self.array.size // self.world
        return whole[self.rank * count : (self.rank + 1) * count] if self.scatter else whole


class Share:
    """What one channel carries of an operation, segment by segment."""

    def __init__(self, op, channel):
        self.op, self.channel = op, channel
        self.shard = 0 if op.cut.eager else channel.index
        self.segments = op.cut.segments
        self.announced = 0
        self.open, self.planned = {}, {}  # segments by number: announced without a plan, and with one

    def announce(self, segments_ahead):
        """6.2"""
        while self.announced < self.segments:
            before = self.announced - segments_ahead
            if before >= 0 and not (before in self.planned and self.passed(before)):
                return
            self.open[self.announced] = Segment(self, self.announced)
            self.announced += 1

    def accept(self, plan, first):
        """7: the frames of a segment; None: it does not fit."""
        segment = self.open[plan.segment]
        frames = segment.accept(plan, first)
        if frames:
            self.planned[plan.segment] = self.open.pop(plan.segment)
            segment.end, segment.missing = first + len(frames), sum(not frame.done for frame in frames)
        return frames

    @property
    def done(self):
        return len(self.planned) == self.segments and not any(s.missing for s in self.planned.values())

    def passed(self, n):
        return self.channel.base >= self.planned[n].end

    @property
    def closed(self):
        """6.2: base has passed the last frame."""
        return len(self.planned) == self.segments and all(self.passed(n) for n in self.planned)


class Segment:
    """The unit of announcing and planning: what this worker has of it (6.1)."""

    def __init__(self, share, n):
        op = self.op = share.op
        self.part, self.number, *_ = op.cut.place(n)
        self.blocks = op.cut.blocks(share.shard, n)
        self.exists = self.blocks < self.part.N * self.part.R
        self.received = op.cut.receiver(n) in (None, op.rank)
        self.own = np.zeros(len(self.blocks), dtype=bool)
        self.exponent, self.nonfinite = wire.NO_EXPONENT, False
        self.own[self.exists] = op.own[self.number][self.blocks[self.exists]]
        if op.form in element.INTEGERS:  # 9.1: of all shards' segments n, which are neighbours
            self.exponent, self.nonfinite = element.exponent(op.rows[self.number][op.cut.neighbours(n)])
        flags = wire.EAGER * op.cut.eager | wire.NONFINITE * self.nonfinite | wire.SCATTER * op.scatter
        rest = b""
        if not self.own.any():
            flags |= wire.NONE
        elif self.own.all():
            flags |= wire.ALL
        else:
            rest = wire.set_of(self.own)
            if op.cut.eager:
                rest = len(rest).to_bytes(2, "little") + rest
        if op.cut.eager:
            rest += op.rows[self.number][self.blocks[self.own]].tobytes()
        self.body = wire.announcement(
            op.tag, op.array.size, op.cut.hash(share.channel.index, op.shard_count), n, op.cut.segments,
            op.generation, op.op_slot, len(self.blocks), self.part.b - 1, self.exponent, op.kind.number,
            op.reduction, op.form, flags, rest,
        )  # fmt: skip
        self.due, self.tries = 0, 0  # 6.5
        self.missing = 0  # frames, once it is planned

    def union(self, plan):
        """7: the union over the segment's blocks, and what follows it; None: it does not fit."""
        parts = wire.parts(plan.flags, plan.rest)
        if plan.flags & ~15 or plan.flags & 3 == 3 or parts is None:
            return None
        if plan.flags & 3:
            bits = np.full(len(self.blocks), bool(plan.flags & wire.ALL))
        else:
            bits = wire.bits(parts[0], len(self.blocks))
            if bits is None or bits.all() or not bits.any():  # there are flags for those (6.1)
                return None
        return None if (bits & ~self.exists).any() else (bits, parts[1])

    def accept(self, plan, first):
        """7: its frames, numbered from first; None: the plan does not fit."""
        op, part, eager, read = self.op, self.part, self.op.cut.eager, self.union(plan)
        if read is None or (self.own & ~read[0]).any():
            return None
        bits, rest = read
        nonfinite = bool(plan.flags & wire.NONFINITE)
        if not nonfinite and (plan.exponent < self.exponent or self.nonfinite):
            return None
        blocks, own = self.blocks[bits], self.own[bits]
        hollow = eager or not len(blocks)
        if plan.frame_count != (1 if hollow else part.frame_count(len(blocks))):
            return None
        if len(rest) != len(blocks) * part.w * eager or bool(plan.flags & wire.EAGER) != eager:
            return None
        if eager:
            op.sums[op.elements[0][blocks]] = np.frombuffer(rest, dtype=op.kind.array).reshape(-1, part.b)
        if hollow:
            return [Frame(self, first)]
        self.nan = nonfinite and op.form in (element.FIXED16, element.FIXED8)
        self.form = op.form  # 9.1: a segment with a NaN or infinity travels as f32
        if nonfinite and op.form == element.FIXED32:
            self.form = element.NATIVE
        if self.form in element.INTEGERS and not self.nan:
            self.shift = element.shift(op.form, plan.exponent, op.world)
        cuts = enumerate(part.frames(len(blocks)))
        return [Frame(self, first + i, blocks[a:b], own[a:b], c, d) for i, (a, b, c, d) in cuts]


class Frame:
    """What one datagram carries: some blocks, or bytes c to d of one; nothing if it is hollow (7)."""

    def __init__(self, segment, number, blocks=(), own=(), c=0, d=0):
        self.segment, self.number, self.blocks = segment, number, blocks
        self.own = blocks[own] if len(blocks) else ()  # 8.1
        size = element.wire_bytes(segment.op.kind, segment.op.form)
        self.elements = slice(c // size, d // size)
        self.bytes = len(blocks) * (d - c)
        self.result_bytes = self.bytes if segment.received else 0  # 8.2
        self.done = not self.bytes
        self.pushed_at = self.asked_at = None
        self.again = False  # pushed more than once

    def data(self):
        """8.1, 9.2: this worker's blocks, without gaps."""
        segment, values = self.segment, self.segment.op.rows[self.segment.number][self.own, self.elements]
        if segment.nan:
            return bytes(values.size * element.wire_bytes(segment.op.kind, segment.form))
        if segment.form in element.INTEGERS:
            values = element.to_fixed(values, segment.form, segment.shift)
        return (element.to_bf16(values) if segment.form == element.BF16 else values).tobytes()

    def deposit(self, data):
        """8.2, 9.2"""
        op, segment = self.segment.op, self.segment
        self.done = True
        self.segment.missing -= 1
        if not data:
            return
        if segment.form == element.BF16:
            values = element.from_bf16(np.frombuffer(data, "<u2"))
        elif segment.nan:
            values = np.full(len(data) // element.wire_bytes(op.kind, op.form), np.nan, "<f4")
        elif segment.form in element.INTEGERS:
            divisor = op.world if op.reduction == element.AVERAGE else 1
            numbers = np.frombuffer(data, element.INTEGERS[segment.form])
            values = element.from_fixed(numbers, segment.form, segment.shift, op.world, divisor)
        else:
            values = np.frombuffer(data, dtype=op.kind.array)
        op.sums[op.elements[segment.number][self.blocks, self.elements]] = values.reshape(len(self.blocks), -1)
