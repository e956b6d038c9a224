# SPDX-License-Identifier: BSD-3-Clause
"""Do datagrams still pass to an aggregator? PROTOCOL.md 11.5. Pure."""

import itertools

NEVER = float("inf")
SIZES = [8972, 3470, 1472, 1452, 1432, 1372, 1232, 584]
QUARTER, ROUNDS = 16, 48


class Way:
    """From START on: which KNOCKs are due, [(channel, bytes)], and what the aggregator must be told."""

    def __init__(self, channels, payload, silence_ms, stall_ms):
        self.channels, self.payload = channels, payload
        self.time = min(silence_ms, stall_ms * 3 / 4) * 1000
        self.rest_until = 0
        self.checking = False
        self.verdict = None  # what `path` says

    def begin(self, now):
        self.checking, self.round, self.round_at = True, 0, now
        self.answered, self.passing = set(), 0
        smaller = [size for size in SIZES if size < self.payload] or [0]
        self.smaller = itertools.cycle([size for one in smaller for size in (one, smaller[-1])])

    def knocks(self, silent, now):
        """silent: how long operations have waited here without news."""
        if silent < self.time / 4:
            self.checking = False
        elif not self.checking and now >= self.rest_until and not self.verdict:
            self.begin(now)
        if not self.checking or now < self.round_at:
            return []
        missing = [channel for channel in self.channels if channel not in self.answered]
        if self.round == ROUNDS:
            self.verdict = {"channel": missing[0], "payload": self.payload, "passing": self.passing, "sent": ROUNDS}
            self.checking = False
            return []
        smaller = next(self.smaller) if self.round >= QUARTER else 0
        self.round, self.round_at = self.round + 1, now + self.time / 64
        return [(channel, size) for channel in missing for size in (self.payload, smaller) if size]

    def knocked(self, channel, size, now):
        if not self.checking:
            return
        if size < self.payload:
            self.passing = max(self.passing, size)
            return
        self.answered.add(channel)
        if self.answered == set(self.channels):
            self.checking, self.rest_until = False, now + self.time / 4
