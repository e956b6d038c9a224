# SPDX-License-Identifier: BSD-3-Clause
"""Statistics of operations, communicators and hooks, as named tuples."""

from typing import NamedTuple


class Shares:
    """The two shares of all statistics that count blocks."""

    __slots__ = ()
    blocks: int
    blocks_nonzero: int
    blocks_union: int

    @property
    def density(self) -> float:
        """The share of the tensor's blocks that this worker sent, from 0 to 1; 0 if there are no blocks."""
        return self.blocks_nonzero / self.blocks if self.blocks else 0.0

    @property
    def union(self) -> float:
        """The share of the tensor's blocks that any worker sent, from 0 to 1; 0 if there are no blocks."""
        return self.blocks_union / self.blocks if self.blocks else 0.0


class OfOperation(NamedTuple):
    blocks: int
    blocks_nonzero: int
    blocks_union: int
    time_us: int
    staged_out_bytes: int
    staged_in_bytes: int


class OpStats(Shares, OfOperation):
    """Statistics of one operation. ``Request.stats`` has them when the operation is done.

    Attributes:
        blocks: Blocks in the tensor.
        blocks_nonzero: Blocks that this worker sent.
        blocks_union: Blocks that any worker sent, and that this worker received.
        time_us: Microseconds from submission to completion.
        staged_out_bytes: Bytes that a GPU sent over its bus: bitmaps and packed blocks.
        staged_in_bytes: Bytes that a GPU received over its bus: plans and sums.
    """

    __slots__ = ()


class CommStats(NamedTuple):
    """Totals of a communicator since it joined its job. ``Comm.stats()`` returns them.

    Bytes are those of Ethernet frames. Round trips are 0 until the first one is measured.

    Attributes:
        sent_packets, sent_bytes: What this process sent.
        received_packets, received_bytes: What this process received.
        retransmits: Packets that were sent again.
        nacks: How often this worker asked for something again.
        dropped: Received packets that were of no use: duplicates and strays.
        payload: Bytes of payload in a UDP datagram.
        window: The most frames that one channel may have outstanding.
        channels: Channels to the aggregators.
        multicast: Aggregators whose results come by multicast.
        wire: The number of the ``wire`` that ``"auto"`` stands for: 1 is ``"native"``, 2 is ``"fixed32"``.
        window_now: Frames that may be outstanding now, on all channels together.
        pinned_bytes: Page-locked bytes of the host's memory, for tensors on GPUs.
        rtt_us: Smoothed round-trip time of the slowest channel, in microseconds.
        rtt_least_us: The shortest round-trip time of the last 10 to 20 seconds, of all channels, in microseconds; in the network alone.
        sent_marked, received_marked: Packets that a queue has marked (ECN).
        received_lost: Packets that did not come and were asked for.
        held_window_us: How long ``window_now`` kept a channel from sending, on average, in microseconds.
        held_credit_us: How long a worker that had not acknowledged kept a channel from sending, in microseconds.
        op_slots: Operations that can run at the same time; further ones wait.
    """

    sent_packets: int
    sent_bytes: int
    received_packets: int
    received_bytes: int
    retransmits: int
    nacks: int
    dropped: int
    payload: int
    window: int
    channels: int
    multicast: int
    wire: int
    window_now: int
    pinned_bytes: int
    rtt_us: int
    rtt_least_us: int
    sent_marked: int
    received_marked: int
    received_lost: int
    held_window_us: int
    held_credit_us: int
    op_slots: int


class OfHook(NamedTuple):
    buckets: int
    bytes: int
    blocks: int
    blocks_nonzero: int
    blocks_union: int
    time_us: int
    staged_out_bytes: int
    staged_in_bytes: int
    sent_bytes: int
    received_bytes: int
    retransmits: int
