# SPDX-License-Identifier: BSD-3-Clause
"""Round trips and the probe time (PROTOCOL.md 10.1), and how much is under way (CONGESTION.md). All of it is advice."""


class Clock:
    """10.1"""

    def __init__(self, advice):
        self.advice, self.srtt, self.rttvar = advice, 0, 0

    def measured(self, rtt):
        if not self.advice:
            return
        if not self.srtt:
            self.srtt, self.rttvar = max(rtt, 1), rtt / 2
        else:
            self.rttvar += (abs(self.srtt - rtt) - self.rttvar) / 4
            self.srtt += (rtt - self.srtt) / 8

    @property
    def probe(self):
        return int(min(self.srtt + 4 * self.rttvar + self.late, 400000)) if self.srtt else 20000

    @property
    def late(self):
        """10.1: when what another has overtaken is lost"""
        return int(min(max(self.srtt / 8, 300), 5000))

    @property
    def again(self):
        """10.3: what was sent again is not sent once more sooner"""
        return int(self.srtt + 2 * self.rttvar)


class Least:
    """CONGESTION 2: the least in this span and in the one before."""

    def __init__(self, span, first):
        self.span, self.until, self.here, self.before = span, None, first, first

    def take(self, value, now):
        self.until = now + self.span if self.until is None else self.until
        if now >= self.until:
            self.before, self.here, self.until = self.here, value, now + self.span
        self.here = min(self.here, value)

    @property
    def value(self):
        return min(self.here, self.before)


class Pace:
    """CONGESTION 3"""

    def __init__(self, start, window, advice):
        self.limit, self.window, self.advice = start, window, advice
        self.doubling, self.share = True, 1.0
        self.way, self.loss, self.losses = Least(500000, float("inf")), Least(16, 0.05), 0
        self.pushed = self.wanted = 0  # in this round of losses
        self.told = 0  # how many of ours have come marked
        self.begin(0)

    def begin(self, now):
        self.begun, self.ways, self.full, self.sent_here, self.marked_here, self.results = now, [], False, 0, 0, 0

    def sent(self, under_way):
        self.full = self.full or under_way >= self.limit
        self.sent_here += 1
        self.pushed += 1
        if not self.advice or self.pushed < 256:
            return
        ratio = self.wanted / self.pushed
        if ratio > 2 * self.loss.value + 0.05:
            self.shrink(0.3)
        self.losses += 1
        self.loss.take(ratio, self.losses)
        self.pushed = self.wanted = 0

    @property
    def used(self):
        return 2 * self.results >= int(self.limit)

    def result(self):
        self.results += 1
        self.full = self.full or self.used

    def marked(self, total):
        self.marked_here += max(total - self.told, 0)
        self.told = max(self.told, total)

    def measured(self, now, rtt, way, srtt):
        """A round trip; `way`: without what the STATUS has waited for at the aggregator."""
        self.way.take(way, now)
        if not self.advice or now - rtt < self.begun:
            return
        self.ways.append(way)
        queued, allowed = min(self.ways) - self.way.value, 200 + 800 / self.limit**0.5
        if len(self.ways) < 3 and (not self.doubling or 100 <= queued <= allowed):
            return
        share = min(self.marked_here / self.sent_here, 1) if self.sent_here else 0
        self.share += (share - self.share) / 16
        if share:
            self.shrink(self.share / 2)
        elif queued > allowed:
            self.shrink(queued / max(srtt, min(self.ways)))
        elif self.doubling and queued < 100:
            self.limit = min(2 * self.limit, self.window) if self.used else self.limit
        elif self.full:
            self.doubling = False
            self.limit = min(self.limit + max(self.limit / 16 if queued < 100 else 0, 1), self.window)
        self.begin(now)

    def shrink(self, part):
        self.doubling = False
        self.limit = max(self.limit * (1 - min(part, 0.5)), min(2, self.window))
