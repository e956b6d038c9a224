# SPDX-License-Identifier: BSD-3-Clause
"""One channel as a worker sees it: PROTOCOL.md 7, 8 and 10. Pure: datagrams and time (us) in, datagrams out.

Frame numbers are counted on beyond 2^32 inside, so that "before" is "<" (1). With advice=False it does nothing
that the document only advises: no plain NACK, no ASK, no round trips, no more under way than window_start.
"""

import wire
from pace import Clock, Pace

NEVER = float("inf")


def extend(value, near, bits=32):
    """1: serial-number arithmetic: the number with these low bits that is nearest to another."""
    half = 1 << (bits - 1)
    return near + ((value - near + half) & ((1 << bits) - 1)) - half


class Channel:
    """`frames` has those from ack on that are planned; `shares` are of operations that have a slot."""

    def __init__(self, index, number, rank, welcome, start, rng, advice=True):
        self.index, self.number, self.rank, self.rng, self.advice = index, number, rank, rng, advice
        self.token, self.group_token = int(welcome["token"], 16), int(welcome["group_token"], 16)
        self.window = start["window"]
        self.shares, self.frames, self.to_push, self.out = [], {}, [], []
        first = welcome["first_frame"]
        self.ack = self.base = self.planned = first  # 2.2
        self.credit = first + self.window
        self.gap = first  # the first frame whose plan is not known
        self.end = first  # after the last frame whose plan is known
        self.pushed_to = self.received_to = first  # after the last frame pushed, received
        self.under_way = 0
        self.sequence = 0  # 10.2: the latest
        self.came_at = 0  # 11.3: the last PLAN or RESULT
        self.news_at = 0  # 11.5: that, or base has moved; or nothing was under way
        self.clock, self.pace = Clock(advice), Pace(start["window_start"], self.window, advice)
        # 10.5: when what is due, and how often it was without news
        self.ack_sent, self.ack_due = first, NEVER
        self.quiet_due, self.quiet_tries = NEVER, 0
        self.measure_due = 0
        self.force_due, self.force_tries = NEVER, 0
        self.nack_due, self.nack_end = NEVER, first
        self.ask_due, self.ask_tries = NEVER, 0
        names = "sent pushes repushes results nacks forced asks acks announcements again strange duplicates measured data"
        self.counts = dict.fromkeys(names.split(), 0)

    def silent(self, now):
        """11.5: how long what is under way has waited without news."""
        if self.ack == self.base and self.ack == self.end and not any(share.open for share in self.shares):
            self.news_at = now
        return now - max(self.news_at, self.came_at)

    def count(self, name):
        self.counts[name] += 1

    # ---- what comes ----

    def receive(self, datagram, now):
        """2.2; what does not fit is dropped (12)."""
        packet = wire.to_worker(datagram)
        if packet and packet.kind in (wire.KNOCKED, wire.PROBE):
            return  # late, and says nothing of the channel
        if not packet or packet.channel != self.number or packet.token != self.group_token:
            return self.count("strange")
        if packet.worker not in (self.rank, wire.EVERYONE) or packet.window != self.window:
            return self.count("strange")
        self.edges(packet, now)
        if packet.kind == wire.PLAN:
            self.on_plan(packet, now)
        elif packet.kind == wire.RESULT:
            self.on_result(packet, now)
        elif packet.kind == wire.CREDIT and packet.worker == self.rank:
            self.clock.measured((now - packet.frame) & 0xFFFFFFFF)  # 10.1
            self.count("measured")
        elif packet.kind == wire.WANT:
            self.on_want(packet)
        self.advance(now)
        self.nack_soon(packet.kind, now)
        self.quiet_tries = 0
        self.quiet_due = now + self.clock.timeout if self.ack > self.base else NEVER

    def edges(self, packet, now):
        """8.3, 8.4, 10.2, 10.4: what every packet tells."""
        base = extend(packet.base, self.base)
        if base <= self.ack:
            self.news_at = now if base > self.base else self.news_at
            self.base, self.credit = max(self.base, base), max(self.credit, base + self.window)
        else:
            self.count("strange")
        self.planned = max(self.planned, extend(packet.planned, self.planned))
        self.sequence = max(self.sequence, extend(packet.sequence, self.sequence, 16))
        if self.advice and self.gap < self.planned and self.ask_due == NEVER:
            self.ask_due, self.ask_tries = now + 300, 0

    def on_plan(self, packet, now):
        """7"""
        plan, first = wire.plan(packet.body), extend(packet.frame, self.ack)
        if not plan or first < self.gap or first in self.frames:
            return self.count("duplicates")
        open_here = (s for s in self.shares if s.op.tag == plan.tag and plan.segment in s.open)
        share = next(open_here, None)
        if not share:
            return self.count("strange")
        frames = share.refuse(plan, first) if plan.status else share.accept(plan, first)
        if frames is None:
            return self.count("strange")
        self.came_at, self.force_tries, self.force_due = now, 0, min(self.force_due, now + self.clock.timeout)
        for frame in frames:
            frame.planned_at = now
            self.frames[frame.number] = frame
        self.to_push += [frame for frame in frames if len(frame.own)]
        self.to_push.sort(key=lambda frame: -frame.number)  # the last is the next
        self.end = max(self.end, first + len(frames))

    def on_result(self, packet, now):
        """8.2: all blocks of the frame; none if they are another worker's. Without its plan it is dropped."""
        frame = self.frames.get(extend(packet.frame, self.ack))
        if not frame or frame.done:
            return self.count("duplicates")
        if frame.result_bytes and not packet.body and packet.worker == wire.EVERYONE:
            return  # to the group, for all others
        if len(packet.body) != frame.result_bytes:
            return self.count("strange")
        self.count("results")
        self.counts["data"] += len(packet.body)
        frame.deposit(packet.body)
        self.under_way -= frame.pushed_at is not None
        self.received_to = max(self.received_to, frame.number + 1)
        self.came_at, self.force_tries, self.force_due = now, 0, now + self.clock.timeout

    def on_want(self, packet):
        """10.3"""
        for number in wire.frames_of(extend(packet.frame, self.ack), packet.body) or ():
            frame = self.frames.get(number)
            if frame and not frame.done and frame.pushed_at is not None and not frame.segment.op.error:
                self.send(wire.PUSH, frame.number, body=frame.data())
                self.count("repushes")
                self.pace.wanted += 1

    def advance(self, now):
        """8.3: ack over all that is here without a gap."""
        before = self.ack
        while self.ack in self.frames and self.frames[self.ack].done:
            del self.frames[self.ack]
            self.ack += 1
        self.gap = max(self.gap, self.ack)
        while self.gap in self.frames:
            self.gap += 1
        if self.ack - self.ack_sent >= self.window // 4:
            self.ack_due = now
        elif self.ack != before:
            self.ack_due = min(self.ack_due, now + 1000)
        self.shares = [share for share in self.shares if not share.closed]

    # ---- what goes ----

    def send(self, kind, frame=0, mask=0, body=b""):
        """8.3: ack rides on everything."""
        self.out.append(
            wire.to_aggregator(kind, self.number, self.rank, self.token, frame, self.ack, mask, body)
        )
        self.ack_sent, self.ack_due = self.ack, NEVER
        self.count("sent")

    def spread(self, wait):
        """10.5"""
        return int(wait * (1 + self.rng.random() / 2))

    def poll(self, now):
        """All that is due."""
        self.announce(now)
        self.push(now)
        self.ask_again(now)
        self.acknowledge(now)
        out, self.out = self.out, []
        return out

    def announce(self, now):
        """6.1, 6.5"""
        for segment in [segment for share in self.shares for segment in share.open.values()]:
            if now < segment.due:
                continue
            self.send(wire.ANNOUNCE, body=segment.body)
            self.count("again" if segment.tries else "announcements")
            wait = max(self.clock.timeout, 5000) * 2**segment.tries
            segment.due = now + self.spread(min(wait, 200000))
            segment.tries = min(segment.tries + 1, 10)

    def push(self, now):
        """8.1, 8.4, 8.5"""
        while self.to_push and self.to_push[-1].number < self.credit and self.under_way < self.pace.limit:
            frame = self.to_push.pop()
            if frame.segment.op.error:
                continue  # 11.1: withdrawn
            self.send(wire.PUSH, frame.number, body=frame.data())
            self.count("pushes")
            frame.pushed_at = now
            self.under_way += 1
            self.pushed_to = max(self.pushed_to, frame.number + 1)
            self.pace.sent(now, self.clock.srtt)

    def lacks(self, end):
        """10.2: frames before `end` that it knows the plan of, lacks, and owes nothing to."""
        known = (self.frames.get(number) for number in range(self.ack, end))
        return [f for f in known if f and not f.done and (f.pushed_at is not None or not len(f.own))]

    def nack_soon(self, kind, now):
        """10.2: a RESULT has overtaken others, or a CREDIT the last ones of a burst."""
        if not self.advice or self.nack_due != NEVER:
            return
        if kind == wire.RESULT and self.received_to > self.ack:
            self.nack_due, self.nack_end = now + min(max(self.clock.srtt / 8, 300), 5000), self.received_to
        if kind == wire.CREDIT and self.pushed_to > self.ack:
            self.nack_due, self.nack_end = now + 300, self.pushed_to

    def ask_again(self, now):
        """10.2, 10.4"""
        if now >= self.nack_due:
            self.nack_due = NEVER
            self.nack(self.lacks(self.nack_end), now, 0)
        if now >= self.force_due:
            self.force_tries = min(self.force_tries + 1, 10)
            wait = self.spread(min(self.clock.timeout * 2**self.force_tries, 400000))
            self.force_due = now + wait if self.ack < self.end else NEVER
            self.nack(self.lacks(self.end), now, 1 << 16)
        if now >= self.ask_due:
            self.ask_due = NEVER
            if self.gap < self.planned:
                self.send(wire.ASK, self.gap)
                self.count("asks")
                self.ask_due = now + self.spread(self.clock.timeout * 2**self.ask_tries)
                self.ask_tries = min(self.ask_tries + 1, 5)

    def nack(self, frames, now, force):
        """10.2, 10.5: forced for frames that are older than a time-out; else not the same one twice within it."""
        since = [(f.pushed_at or f.planned_at) if force else f.asked_at for f in frames]
        due = [f for f, then in zip(frames, since) if then is None or now >= then + self.clock.timeout]
        for frame in due:
            frame.asked_at = now
        sequence = self.sequence & 0xFFFF if self.advice else 0  # with force it is not looked at
        for first, bits in wire.words_of([frame.number for frame in due]):
            self.send(wire.NACK, first, force | sequence, bits)
            self.count("forced" if force else "nacks")

    def acknowledge(self, now):
        """8.3, 8.4, 10.1"""
        if now >= self.quiet_due and self.ack > self.base:
            self.quiet_due = now + self.spread(self.clock.timeout * 2**self.quiet_tries)
            self.quiet_tries = min(self.quiet_tries + 1, 6)
            self.send_ack(now, 1)
        elif self.advice and self.under_way and now >= self.measure_due:
            self.measure_due = now + 10000
            self.send_ack(now, 1)
        elif now >= self.ack_due:
            self.send_ack(now, 0)

    def send_ack(self, now, asks):
        """2.2: the clock is the cookie."""
        self.send(wire.ACK, now, asks)
        self.count("acks")
