# SPDX-License-Identifier: BSD-3-Clause
"""A worker that has joined: operations over all its channels (PROTOCOL.md 6.2, 6.3, 11.1, 11.4). Pure."""

from collections import deque

from operation import Operation

UNTAGGED = 1 << 63


class Worker:
    def __init__(self, world, channels, payload, op_slots, segments_ahead):
        self.world, self.channels, self.payload = world, channels, payload
        self.segments_ahead = segments_ahead
        self.free = deque(range(op_slots))
        self.generations = [0] * op_slots
        self.waiting, self.active = deque(), []
        self.untagged = 0

    def submit(self, array, dtype="f32", reduction=1, block_elems=256, form=0, tag=None, scatter=False,
               layout=None):  # fmt: skip
        """6.3"""
        if tag is None:
            tag, self.untagged = UNTAGGED + self.untagged, self.untagged + 1
        op = Operation(array, dtype, reduction, block_elems, form, tag, self.world, scatter, layout)
        self.waiting.append(op)
        return op

    def poll(self, now):
        """All that is due: [(channel, datagram)]."""
        for op in [op for op in self.active if all(share.closed for share in op.shares)]:
            self.active.remove(op)
            self.free.append(op.op_slot)
        busy = {op.tag for op in self.active}
        while self.waiting and self.free and self.waiting[0].tag not in busy:
            op, slot = self.waiting.popleft(), self.free.popleft()
            self.generations[slot] = self.generations[slot] % 0xFFFFFFFF + 1  # 6.1
            op.begin(self.channels, self.payload, slot, self.generations[slot])
            self.active.append(op)
            busy.add(op.tag)
        for op in self.active:
            for share in op.shares:
                share.announce(self.segments_ahead)
        return [(channel, datagram) for channel in self.channels for datagram in channel.poll(now)]

    @property
    def busy(self):
        return self.doing[0] > 0

    @property
    def doing(self):
        """5.1, ping: how many operations are under way, and the oldest one's tag."""
        tags = [op.tag for op in [*self.active, *self.waiting] if not op.done]
        return len(tags), tags[0] if tags else 0

    @property
    def idle(self):
        """11.4: operations are done, and base has reached ack on all channels."""
        return not self.waiting and not self.active and all(c.base == c.ack for c in self.channels)
