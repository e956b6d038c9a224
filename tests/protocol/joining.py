# SPDX-License-Identifier: BSD-3-Clause
"""The control connection to one aggregator, and joining: PROTOCOL.md 5. Pure: lines, datagrams and time in, and out."""

import json

import wire
from seal import Keys
from way import SIZES, Way


class Ended(Exception):
    """The job, or this worker's joining it, has ended: code, rank and text (5.4)."""


class Joining:
    """From HELLO to START, and what is said after that."""

    def __init__(
        self, job, rank, world, key=None, payload=8972, multicast=True, silence_ms=10000, stall_ms=600000,
        continues=False, on=None,
    ):
        self.job, self.rank, self.world, self.key, self.payload = job, rank, world, key, payload
        self.multicast, self.silence_ms, self.stall_ms = multicast, silence_ms, stall_ms
        self.continues = continues  # without those that are lost: MEMBERS.md
        self.rcvbuf = 0
        self.out = b""  # lines to send
        self.keys = self.seal_key = None  # seal_key: what the connection exports (5.2)
        self.knocked = 0  # KNOCKs that have gone out
        self.proofs, self.asked, self.hurried = {}, [], set()  # by channel: what KNOCKEDs want; where; in this round
        self.forged = 0  # datagrams with a wrong seal
        self.hello = self.welcome = self.start = None
        self.probed = False
        self.left = None  # (rank, when) of the first
        self.ping_at = self.heard_at = self.answered_at = self.ticked_at = None
        self.way = self.gives_up_at = None
        self.doing = (0, 0)  # operations under way, and the oldest one's tag
        self.seen = {}  # of the path, once it runs
        self.silent = 0  # how long they have waited without news of this aggregator
        if on:  # MEMBERS.md: by the connection of this one, whose NEXT has come
            self.hello, self.rcvbuf, self.out, self.seal_key = on.hello, on.rcvbuf, on.out, on.seal_key
            self.heard_at, self.ticked_at = on.heard_at, on.ticked_at

    def say(self, kind, **fields):
        self.out += json.dumps({"type": kind, **fields}).encode() + b"\n"

    # ---- what the aggregator says ----

    def line(self, line, now):
        """5.1: a message out of turn has no method, and ends the connection."""
        said, self.heard_at = json.loads(line), now
        turn = (
            "hello"
            if not self.hello
            else "welcome" if not self.welcome else "start" if not self.start else "left"
        )
        if said["type"] not in (turn, "ping", "failed"):
            raise Ended("protocol", self.world, f"{said['type']} where {turn} was due")
        getattr(self, "on_" + said["type"])(said, now)

    def plain(self, line, now):
        """5.2: said without TLS to a worker with a key, and nothing but a reason to go."""
        said = json.loads(line)
        if said["type"] == "failed":
            self.on_failed(said, now)
        raise Ended("key", self.world, "the aggregator has no key")

    def on_ping(self, said, now):
        """5.1: it lives, as line() has noted; this worker needs nothing else of it."""

    def on_left(self, said, now):
        self.left = self.left or (said["rank"], now)

    def on_failed(self, said, now):
        self.failed = said
        raise Ended(said["code"], said["rank"], said["text"])

    def on_hello(self, said, now):
        self.hello = said
        if said["version"] != 3:
            raise Ended("version", self.world, "the aggregator speaks another version")
        self.join(now)

    def join(self, now):
        self.say("join", version=3, software="tests/protocol", job=self.job, host="python",
                 rank=self.rank, world=self.world, payload=self.payload, rcvbuf=self.rcvbuf,
                 silence_ms=self.silence_ms, stall_ms=self.stall_ms)  # fmt: skip
        self.ping_at = now + self.silence_ms * 250

    def on_welcome(self, said, now):
        if said["silence_ms"] > self.silence_ms or said["stall_ms"] > self.stall_ms:  # 5.1
            raise Ended("protocol", self.world, "longer times than this worker has asked for")
        self.welcome = said
        if self.key:
            self.keys = Keys(bytes.fromhex(said["seed"]), self.seal_key(self.job))
        self.silence_ms, self.stall_ms = said["silence_ms"], said["stall_ms"]
        self.ping_at = min(self.ping_at, now + self.silence_ms * 250)
        self.size, self.knocks, self.knock_at, self.rarer = said["payload"], 0, now, 0
        self.answered = set()

    def on_start(self, said, now):
        self.start = said
        self.way = Way(self.welcome["channels"], said["payload"], self.silence_ms, self.stall_ms)

    # ---- time ----

    def tick(self, now):
        """Pings and silence (10.4, 11.2); the KNOCKs that are due."""
        gap, self.ticked_at = now - (now if self.ticked_at is None else self.ticked_at), now
        if self.heard_at is not None and gap > self.silence_ms * 500:
            self.heard_at = min(now, self.heard_at + gap - self.silence_ms * 250)
        if self.heard_at is not None and now - self.heard_at > self.silence_ms * 1000:
            raise Ended("lost", self.world, "the aggregator is silent")
        if self.ping_at is not None and now >= self.ping_at:
            open, tag = self.doing
            self.say("ping", open=open, tag=f"{tag:016x}", **self.seen)
            self.ping_at = now + self.silence_ms * 250
        if not self.welcome:
            return []
        return self.keep(now) if self.start else self.knock(now)

    def keep(self, now):
        """11.5"""
        if self.gives_up_at and now >= self.gives_up_at:
            raise Ended("path", self.rank, "its datagrams get lost, and no aggregator ends the job")
        datagrams = [self.knock_of(channel, size) for channel, size in self.way.knocks(self.silent, now)]
        if self.way.verdict and not self.gives_up_at:
            self.say("path", **self.way.verdict)
            self.gives_up_at = now + self.silence_ms * 500
        return datagrams

    def knock_of(self, channel, size):
        self.knocked += 1
        return wire.knock(channel, self.rank, int(self.welcome["token"], 16), self.knocked, self.proofs.get(channel, 0), size)

    def knock(self, now):
        """5.3"""
        asked, self.asked = self.asked, []
        if now < self.knock_at:
            return [self.knock_of(channel, self.size) for channel in asked]
        self.hurried = set()
        channels = self.welcome["channels"]
        if self.knocks == 10 and len(self.answered) < len(channels):
            self.rarer += self.size == SIZES[-1] and self.rarer < 3
            self.size = next((size for size in SIZES if size < self.size), self.welcome["payload"])
            self.knocks, self.answered = 0, set()
        self.knocks, self.knock_at = min(self.knocks + 1, 10), now + (20000 << self.rarer)
        if self.answered == set(channels):
            channels = channels[:1]  # what is still missing is a PROBE
        return [self.knock_of(channel, self.size) for channel in channels]

    def seal(self, datagram, edge=0):
        """2.4; without a key there are tokens."""
        return self.keys.sealed(datagram, edge) if self.keys else datagram

    def unseal(self, datagram, edge=0):
        """None: not the aggregator's."""
        if not self.keys:
            return datagram
        opened = self.keys.opened(datagram, edge)
        self.forged += opened is None
        return opened

    def datagram(self, datagram, now):
        """5.3: KNOCKED and PROBE"""
        packet = wire.to_worker(datagram)
        if not packet or not self.welcome or packet.token != int(self.welcome["group_token"], 16):
            return
        if packet.kind == wire.KNOCKED and packet.worker == self.rank and wire.number_of(packet):
            self.proofs[packet.channel] = wire.number_of(packet)
            self.asked += [] if packet.channel in self.hurried else [packet.channel]
            self.hurried.add(packet.channel)
            return
        if self.start:
            if packet.kind == wire.KNOCKED and packet.worker == self.rank:
                self.way.knocked(packet.channel, len(datagram), now)
            return
        if packet.kind == wire.PROBE:
            self.probed = self.multicast
        if packet.kind == wire.KNOCKED and packet.worker == self.rank and len(datagram) == self.size:
            self.answered.add(packet.channel)
            if self.answered == set(self.welcome["channels"]):
                self.answered_at = self.answered_at or now

    def passes(self, now):
        """5.3: the size that passes, once that is known and a PROBE has come or been waited for; else None."""
        if self.answered_at is None:
            return None
        waits = self.multicast and self.welcome["group"] and not self.probed
        return None if waits and now < self.answered_at + 100000 else self.size
