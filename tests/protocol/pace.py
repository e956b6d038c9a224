# SPDX-License-Identifier: BSD-3-Clause
"""Round trips and time-outs (PROTOCOL.md 10.1), and how much is under way (8.5). All of it is advice."""


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
    def timeout(self):
        return int(min(max(self.srtt + 4 * self.rttvar, 2000), 400000)) if self.srtt else 20000

    @property
    def late(self):
        """10.1: when what another has overtaken is lost"""
        return int(min(max(self.srtt / 8, 300), 5000))

    @property
    def again(self):
        """10.3: what was sent again is not sent once more sooner"""
        return int(self.srtt + 2 * self.rttvar)


class Pace:
    """8.5"""

    def __init__(self, start, window, advice):
        self.limit, self.window, self.advice = start, window, advice
        self.pushed = self.wanted = 0  # in this round
        self.begun = None
        self.doubling = True
        self.normal = 0.0  # the base line
        self.before = None  # (limit, ratio) when it began to shrink

    def sent(self, now, srtt):
        self.pushed += 1
        self.begun = now if self.begun is None else self.begun
        few = self.pushed < 64 and not (self.doubling and not self.wanted)
        if not self.advice or few or now - self.begun < max(srtt, 1000):
            return
        ratio = self.wanted / self.pushed
        self.pushed = self.wanted = 0
        self.begun = now
        if ratio > 1.5 * self.normal + 0.01:
            self.shrink(ratio)
        else:
            self.before = None
            self.normal -= max(self.normal - ratio, 0) / 16
            self.limit = min(self.limit * (2 if self.doubling else 1.125), self.window)

    def shrink(self, ratio):
        self.doubling = False
        self.before = self.before or (self.limit, ratio)
        limit, at_first = self.before
        if (self.limit <= limit / 2 or self.limit <= 8) and ratio >= 0.75 * at_first:
            self.limit, self.normal, self.before = limit, ratio, None
        else:
            self.limit = max(self.limit * 0.7, min(8, self.window))
