# SPDX-License-Identifier: BSD-3-Clause
"""One channel as a worker sees it: PROTOCOL.md 7, 8 and 10. Pure: datagrams and time (us) in, datagrams out.

Frame numbers are counted on beyond 2^32 inside, so that "before" is "<" (1). With advice=False it does nothing
that the document only advises: it asks each 20 ms, measures no round trips, and has no more
under way than window_start.
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

    first = True  # is it the first aggregator's?

    def __init__(self, index, number, rank, welcome, start, rng, advice=True):
        self.index, self.number, self.rank, self.rng, self.advice = index, number, rank, rng, advice
        self.token, self.group_token = int(welcome["token"], 16), int(welcome["group_token"], 16)
        self.window = start["window"]
        self.shares, self.frames, self.to_push, self.out = [], {}, [], []
        first = welcome["first_frame"]
        self.ack = self.base = self.planned = first  # 2.2
        self.credit = first  # 8.4
        self.ahead = 0  # frames after ack whose RESULT has come
        self.gap = first  # the first frame whose plan is not known
        self.end = first  # after the last frame whose plan is known
        self.pushed_to = self.received_to = first  # after the last frame pushed, received
        self.under_way = 0
        self.sequence = 0  # 10.2: the latest
        self.stored = 0  # frames
        self.answered = 0  # the latest stamp that has come back
        self.came_at = 0  # 11.3: the last PLAN or RESULT
        self.news_at = 0  # 11.5: that, or base has moved; or nothing was under way
        self.clock = Clock(advice)
        self.pace = Pace(start["window_start"], self.window, advice)
        # 10.4: when what is due, and since when there has been no news
        self.ack_sent, self.room_sent, self.ack_due = first, first, NEVER
        self.ask_due, self.asked_at, self.since = 0, 0, 0
        self.gap_due = NEVER  # 10.2: what is missing is late then, not only reordered
        self.before = 0, 0, 0  # the sequence, the stamp that had come back, and how many were missing, before
        self.plan_asked = {}
        self.listed, self.listed_at = 0, None  # how many RESULTs it has asked for, and when
        names = "sent pushes repushes results lists asks statuses announcements again strange duplicates measured data"
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
        if packet.worker not in (self.rank, wire.EVERYONE) or packet.window > self.window:
            return self.count("strange")
        self.edges(packet, now)
        if packet.kind == wire.PLAN:
            self.on_plan(packet, now)
        elif packet.kind == wire.RESULT:
            self.on_result(packet, now)
        elif packet.kind == wire.STATUS_BACK and packet.worker == self.rank:
            self.on_status(packet, now)
        self.advance(now)
        self.look(now)
        if max(self.news_at, self.came_at) == now:
            self.since = now
            self.ask_due = min(self.ask_due, now + self.clock.probe)

    def edges(self, packet, now):
        """8.3, 8.4, 10.2: what every packet tells."""
        base = extend(packet.base, self.base)
        if base <= self.ack:
            self.news_at = now if base > self.base else self.news_at
            self.base, self.credit = max(self.base, base), max(self.credit, base + packet.window)
        else:
            self.count("strange")
        self.planned = max(self.planned, extend(packet.planned, self.planned))
        self.sequence = max(self.sequence, extend(packet.sequence, self.sequence, 16))

    def on_plan(self, packet, now):
        """7"""
        plan, first = wire.plan(packet.body), extend(packet.frame, self.ack)
        named = [s for s in self.shares if plan and s.op.tag == plan.tag]
        if plan and plan.status:
            for share in named:
                share.op.error = share.op.error or wire.mismatch(plan.rest)  # 11.1: it ends the job
            return None
        share = next((s for s in named if plan.segment in s.open), None)
        if not plan or first < self.gap or first in self.frames:
            return self.count("duplicates")
        if not share:
            return self.count("strange")
        frames = share.accept(plan, first)
        if frames is None:
            return self.count("strange")
        self.came_at = now
        for frame in frames:
            self.frames[frame.number] = frame
        while self.gap in self.frames:
            self.gap += 1
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
        self.came_at = now
        self.stored += 1
        self.ahead += 1
        self.pace.result()
        if self.advice and self.overtaken(frame.number):
            self.ask_due = min(self.ask_due, now + self.clock.late)
        if self.pace.full:
            self.ask_due = min(self.ask_due, now + self.ask_wait(now))
        self.listed -= self.listed > 0 and packet.worker == self.rank

    def overtaken(self, number):
        """10.4: nobody has asked since the first frame without a RESULT may be lost"""
        first = self.frames.get(self.ack)
        mine = number != self.ack and first and first.pushed_at is not None and not first.done
        return mine and self.asked_at < first.pushed_at + self.clock.late

    def on_status(self, packet, now):
        """2.5, 10.1, 10.3"""
        said = wire.stated(packet.body)
        if not said:
            return self.count("strange")
        stamp, _, held, marked, words = said
        if not stamp:
            return
        asked, rtt = extend(stamp, now), (now - stamp) & 0xFFFFFFFF
        self.clock.measured(rtt)
        self.pace.marked(marked)
        self.pace.measured(now, rtt, rtt - held if held < rtt else rtt, self.clock.srtt)
        self.ask_due = min(self.ask_due, now + self.ask_wait(now))
        self.answered = max(self.answered, asked)
        self.count("measured")
        for number in wire.frames_of(extend(packet.frame, self.ack), words):
            frame = self.frames.get(number)
            if not frame or frame.done or frame.pushed_at is None:
                continue
            if frame.pushed_at + self.clock.late > asked:
                continue  # overtaken?
            if frame.again and frame.pushed_at + self.clock.again > asked:
                continue
            self.send(wire.PUSH, frame.number, body=frame.data())
            self.count("repushes")
            frame.pushed_at, frame.again = now, True
            self.pace.wanted += 1

    @property
    def missing(self):
        return self.sequence - self.stored

    def look(self, now, pause=0):
        """10.2: what has been sent and is not here is missing; after a while it is not only late."""
        if not self.missing and self.gap >= self.planned:
            self.gap_due = NEVER
        elif self.gap_due == NEVER:
            self.gap_due = now + pause + (self.clock.late if self.advice else self.clock.probe)
            self.before = self.sequence, self.answered, self.missing

    def advance(self, now):
        """8.3: ack over all that is here without a gap."""
        before = self.ack
        while self.ack in self.frames and self.frames[self.ack].done:
            self.ahead -= bool(self.frames.pop(self.ack).bytes)
            self.ack += 1
        self.gap = max(self.gap, self.ack)
        news = self.ack + self.room - self.room_sent
        if self.ack - self.ack_sent >= self.window // 4 or 2 * news >= int(self.pace.limit):
            self.ack_due = now
        elif self.ack != before:
            self.ack_due = min(self.ack_due, now + 1000)
        self.shares = [share for share in self.shares if not share.closed]

    # ---- what goes ----

    @property
    def room(self):
        """8.4: for all that its path takes, as many frames after ack may be pushed."""
        return min(self.ahead + 2 * int(self.pace.limit), self.window)

    def send(self, kind, frame=0, body=b""):
        """8.3: ack rides on everything."""
        edges = self.ack, self.room, self.before[0], self.pushed
        self.room_sent = self.ack + self.room
        self.out.append(wire.to_aggregator(kind, self.number, self.rank, self.token, frame, *edges, body))
        self.ack_sent, self.ack_due = self.ack, NEVER
        self.count("sent")

    @property
    def pushed(self):
        """2.2: pushed, as far as it is known what there is to push."""
        return min(self.to_push[-1].number if self.to_push else self.gap, self.gap, self.credit)

    def spread(self, wait):
        """10.4"""
        return int(wait * (1 + self.rng.random() / 2))

    def poll(self, now):
        """All that is due."""
        self.announce(now)
        self.push(now)
        self.list_missing(now)
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
            wait = max(self.clock.probe, 0 if segment.op.cut.eager else 5000) * 2**segment.tries
            segment.due = now + self.spread(min(wait, 200000))
            segment.tries = min(segment.tries + 1, 10)

    def push(self, now):
        """8.1, 8.4, 8.5"""
        end = min(self.credit, self.gap)
        while self.to_push and self.to_push[-1].number < end and self.under_way < self.pace.limit:
            frame = self.to_push[-1]
            self.send(wire.PUSH, frame.number, body=frame.data())
            self.to_push.pop()
            self.count("pushes")
            frame.pushed_at = now
            if self.base == frame.number:
                self.since = now
                if self.clock.srtt or not self.advice:
                    self.ask_due = now + self.clock.probe
            self.under_way += 1
            self.pushed_to = max(self.pushed_to, frame.number + 1)
            self.pace.sent(self.under_way)
            if self.pace.full:
                self.ask_due = min(self.ask_due, now + self.ask_wait(now))

    def lacks(self):
        """10.2: frames before `pushed` that it knows the plan of and lacks; and what it knows no plan of."""
        known = (self.frames.get(number) for number in range(self.ack, self.pushed))
        return [frame for frame in known if frame and not frame.done]

    def list_missing(self, now):
        """10.2"""
        if now < self.gap_due:
            return
        _, answered, missing = self.before
        may = lambda at: at is None or at <= answered or now - at >= self.clock.probe
        self.listed = 0 if may(self.listed_at) else self.listed
        missing = min(missing, self.missing)
        due = [frame for frame in self.lacks() if may(frame.asked_at)] if missing > self.listed else []
        if self.advice:
            below = [frame for frame in due if frame.number < self.received_to]
            due = below if len(below) >= missing - self.listed else due
        numbers = [frame.number for frame in due]
        if missing > self.listed:
            self.listed, self.listed_at = missing, now
        if self.gap < self.planned and may(self.plan_asked.get(self.gap)):
            numbers.append(self.gap)
        if numbers:
            first, words = wire.words_of(numbers)
            for frame in due:
                if frame.number < first + 1024:
                    frame.asked_at = now
            if numbers[-1] == self.gap and self.gap < first + 1024:
                self.plan_asked = {self.gap: now}
            self.send_status(now, True, first, words)
            self.count("lists")
        self.gap_due = NEVER
        self.look(now, self.clock.late if numbers else 0)

    def acknowledge(self, now):
        """8.3, 8.4, 10.1, 10.3"""
        asks = now >= self.ask_at
        if asks or now >= self.ack_due:
            self.send_status(now, asks)

    @property
    def ask_at(self):
        """10.4"""
        if self.ack < self.pushed or self.gap < self.planned:
            return self.ask_due
        silent = max(self.ask_due, self.since + self.clock.probe + 1000)
        return silent if self.base < self.pushed else NEVER

    def ask_wait(self, now):
        """10.1, 10.4"""
        silent, probe = now - self.since, self.clock.probe
        if silent >= probe:
            return self.spread(min(silent, 32 * probe, 400000))
        if not self.clock.srtt or not self.pace.full:
            return probe
        if self.pace.doubling and self.pace.limit < self.window:
            return int(self.clock.srtt)
        return int(min(max(self.clock.srtt / 3, 500), 10000))

    def send_status(self, now, asks, first=0, words=b""):
        """2.5: the clock, made odd, is the stamp."""
        if asks:
            self.asked_at, self.ask_due = now, now + self.ask_wait(now)
            self.count("asks")
        self.send(wire.STATUS, first, wire.status(now | 1, asks, words))
        self.count("statuses")
