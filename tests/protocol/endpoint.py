# SPDX-License-Identifier: BSD-3-Clause
"""A worker's sockets, and weather of their own: loss, doubles and reordering. One loop drives any number of workers."""

import heapq
import json
import random
import select
import socket
import struct
import time

from channel import Channel
from joining import Ended, Joining
from seal import job_key
from tls import Tls
from worker import Worker

# 2.1: DF
DISCOVER = {socket.AF_INET: (socket.IPPROTO_IP, 10), socket.AF_INET6: (socket.IPPROTO_IPV6, 23)}
PROBE = 3


def now_us():
    return time.monotonic_ns() // 1000


def address(text):
    """5.1: group, data_address"""
    host, port = text.rsplit(":", 1)
    return host.strip("[]"), int(port)


def interface(here):
    """The index of the interface with this IPv6 address."""
    packed = socket.inet_pton(socket.AF_INET6, here).hex()
    with open("/proc/net/if_inet6", encoding="ascii") as lines:
        return next(int(line.split()[1], 16) for line in lines if line.startswith(packed))


class Weather:
    """Between a worker and the network: each datagram is lost, doubled or late with these chances, by seed.

    lose: a function of a datagram and whether it is on its way to the worker; what it wants lost is lost.
    change: the chance that a bit of it is another when it arrives.
    """

    def __init__(self, loss=0.0, double=0.0, late=0.0, seed=1, lose=lambda datagram, inward: False, change=0.0):
        self.loss, self.double, self.late, self.lose, self.change = loss, double, late, lose, change
        self.rng, self.held, self.number = random.Random(seed), [], 0

    def take(self, item, now):
        """The copies that pass at once; others are held for up to 5 ms."""
        chance = self.rng.random
        copies = 0 if chance() < self.loss else 2 if chance() < self.double else 1
        copies = 0 if self.lose(*item[1:]) else copies
        if chance() < self.change:
            changed = bytearray(item[1])
            changed[self.rng.randrange(len(changed))] ^= 1 << self.rng.randrange(8)
            item = (item[0], bytes(changed), item[2])
        at_once = []
        for _ in range(copies):
            if chance() < self.late:
                self.number += 1
                heapq.heappush(self.held, (now + self.rng.randrange(100, 5000), self.number, item))
            else:
                at_once.append(item)
        return at_once

    def due(self, now):
        while self.held and self.held[0][0] <= now:
            yield heapq.heappop(self.held)[2]


class Link:
    """The sockets to one aggregator."""

    def __init__(self, address, joining):
        self.joining = joining
        self.tcp = socket.create_connection(address, timeout=10)
        self.tcp.setblocking(False)
        self.udp = self.datagram_socket()
        joining.rcvbuf = self.udp.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        self.group = self.to = None
        self.text = b""
        self.tls, self.plain = None, not joining.key  # 5.2
        if joining.key:
            self.tls = Tls(joining.job.split("/")[0], job_key(joining.key))
            joining.seal_key = self.tls.seal_key
        else:
            self.tcp.sendall(b'{"type":"ping"}\n')  # 5.1
        self.channels = {}

    def datagram_socket(self):
        sock = socket.socket(self.tcp.family, socket.SOCK_DGRAM)
        sock.setblocking(False)
        sock.setsockopt(*DISCOVER[sock.family], PROBE)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        return sock

    def open_data(self):
        """5.1: where datagrams go, and the group."""
        welcome, here = self.joining.welcome, self.tcp.getsockname()[0]
        self.to = self.tcp.getpeername()
        if welcome["data_address"]:
            self.to = address(welcome["data_address"])
        if welcome["group"] and self.joining.multicast:
            group, port = address(welcome["group"])
            try:
                self.join_group(group, port, here)
            except OSError:  # of the other family, or the aggregator is on this machine and has the port at all addresses
                self.group.close()
                self.group = None

    def join_group(self, group, port, here):
        self.group = self.datagram_socket()
        self.group.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.group.bind((group, port))
        membership = socket.inet_pton(self.tcp.family, group)
        if self.tcp.family == socket.AF_INET:
            membership += socket.inet_aton(here)
            self.group.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        else:
            membership += struct.pack("@I", interface(here))
            self.group.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, membership)

    def sockets(self):
        return [sock for sock in (self.tcp, self.udp, self.group) if sock]

    def lines(self):
        """5.1"""
        data = receive(self.tcp)
        if data == b"":
            raise Ended("lost", self.joining.world, "the aggregator has closed the connection")
        if data and self.tls and not self.tls.begun and data[0] not in (0x15, 0x16):
            self.plain, self.tls = True, None
        if data and self.tls:
            self.tls.feed(data)
            data = self.tls.said()
            if self.tls.failed:
                code = "lost" if self.tls.ready() else "key"
                raise Ended(code, self.joining.world, "TLS has failed")
        *lines, self.text = (self.text + (data or b"")).split(b"\n")
        return lines

    def take(self, now):
        for line in self.lines():
            if self.plain and self.joining.key:
                self.joining.plain(line, now)
            self.joining.line(line, now)

    def flush(self):
        out = self.joining.out
        if self.tls:
            if self.tls.ready():
                self.tls.say(out)
            out = self.tls.pull()
            if not self.tls.ready():
                self.tcp.sendall(out)
                return
        self.joining.out = b""
        self.tcp.sendall(out)

    def datagrams(self):
        """10.2: what is queued on the group's socket comes before a datagram that came by unicast."""
        one = receive(self.udp)
        while True:
            while self.group and (datagram := receive(self.group)):
                yield datagram
            if not one:
                return
            yield one
            one = receive(self.udp)


def receive(sock):
    try:
        return sock.recv(65536)
    except (BlockingIOError, ConnectionRefusedError):
        return None
    except ConnectionResetError:
        return b""


CONTINUES = ("lost", "gone", "path", "join_timeout", "udp_timeout")  # 5.4


class Endpoint:
    """A worker of a job: joins all aggregators; then .worker takes operations."""

    def __init__(self, aggregators, job, rank, world, weather=None, advice=True, newcomer=False, **settings):
        self.rank, self.world, self.advice = rank, world, advice
        self.weather, self.rng = weather or Weather(), random.Random(rank)
        self.aggregators, self.settings, self.job = aggregators, settings, job
        self.begun, self.holds, self.next = ("", 0), not newcomer, None  # MEMBERS.md
        self.left_out, self.stays, self.door = set(), newcomer, newcomer
        self.admit = 0
        self.begin_joining([0] if newcomer else range(len(aggregators)), {})

    def begin_joining(self, places, links):
        """At the aggregators at these places of the list; some links are there already."""
        names = (self.job.split("/")[0], self.rank, 0) if self.door else (self.job, self.rank, self.world)
        joining = lambda: Joining(*names, **self.settings)
        self.places = list(places)
        self.links = [links.get(i) or Link(self.aggregators[i], joining()) for i in self.places]
        self.worker = self.failure = None
        self.ready = False
        self.busy_at = 0

    def submit(self, array, **what):
        """11.4: fails at once if a worker has left."""
        if self.left:
            self.end("lost", self.left[0], "a worker has left")
        return self.worker.submit(array, **what)

    @property
    def left(self):
        return next((link.joining.left for link in self.links if link.joining.left), None)

    def step(self, now):
        """All that can be done now without waiting; nothing once it has left or failed."""
        if self.stays:
            self.wait_for_next(now)
            return
        link = None
        try:
            for link in self.links:
                link.take(now)
                if link.joining.welcome and not link.to:
                    link.open_data()
                for datagram in link.datagrams():
                    self.pass_on((link, datagram, True), now)
            link = None
            for item in self.weather.due(now):
                self.arrive(item, now)
            self.join(now)
            self.look(now)
            self.transmit(now)
        except Ended as ended:
            self.end(*ended.args, link)

    def pass_on(self, item, now):
        for copy in self.weather.take(item, now):
            self.arrive(copy, now)

    def arrive(self, item, now):
        link, datagram, inward = item
        if not inward:
            try:
                link.udp.sendto(datagram, link.to)
            except OSError:
                pass  # too large for the path, or a full buffer: lost
            return
        datagram = link.joining.unseal(datagram, self.edge(link, datagram))
        if datagram is None:
            return
        link.joining.datagram(datagram, now)
        channel = link.channels.get(int.from_bytes(datagram[4:6], "little"))
        if channel and self.worker:
            channel.receive(datagram, now)

    def edge(self, link, datagram):
        """2.4: a number near the datagram's own."""
        channel = link.channels.get(int.from_bytes(datagram[4:6], "little"))
        return channel.ack if channel else 0

    def join(self, now):
        """5.3: READY when all aggregators' paths are known; operations when all have said START."""
        each = [link.joining for link in self.links]
        if not self.ready and all(joining.passes(now) for joining in each):
            self.ready = True
            for joining in each:
                joining.say("ready", payload=min(j.size for j in each), multicast=joining.probed)
        if not self.worker and each and all(joining.start for joining in each):
            self.begin(each)

    def look(self, now):
        """11.3, 11.4"""
        if not self.links or not self.worker or not self.worker.busy:
            self.busy_at = now
            return
        for error in [op.error for op in self.worker.active if op.error]:  # 11.1
            raise Ended("mismatch", self.rank, f"field {error.field} of ranks {error.rank_a} and {error.rank_b}")
        joining = self.links[0].joining
        came = max([self.busy_at] + [channel.came_at for channel in self.worker.channels])
        if now > came + (joining.stall_ms + joining.silence_ms) * 1000:
            raise Ended("stalled", self.world, "nothing has come")
        if self.left and now > self.left[1] + joining.silence_ms * 1000:
            raise Ended("lost", self.left[0], "a worker has left")

    def begin(self, each):
        channels = []
        for link, joining in zip(self.links, each):
            for number in joining.welcome["channels"]:
                channel = Channel(
                    len(channels), number, self.rank, joining.welcome, joining.start, self.rng, self.advice
                )
                channel.link, channel.first = link, link is self.links[0]
                link.channels[number] = channel
                channels.append(channel)
        op_slots = min(j.welcome["op_slots"] for j in each) if self.advice else 1
        self.begun = (self.job, self.world)
        ahead = min(j.welcome["segments_ahead"] for j in each)
        self.worker = Worker(self.world, channels, each[0].start["payload"], op_slots, ahead)

    def transmit(self, now):
        for link in self.links if self.worker else ():
            link.joining.doing = self.worker.doing
            link.joining.seen = {  # 5.1, ping: what else there is to see is for people
                "rtt_us": max(int(channel.clock.srtt) for channel in link.channels.values()),
                "frames": sum(int(channel.pace.limit) for channel in link.channels.values()),
            }
            link.joining.silent = max(channel.silent(now) for channel in link.channels.values())
        out = [(link, datagram) for link in self.links for datagram in link.joining.tick(now)]
        if self.worker:
            out += [(channel.link, datagram) for channel, datagram in self.worker.poll(now)]
        for link, datagram in out:
            self.pass_on((link, link.joining.seal(datagram, self.edge(link, datagram)), False), now)
        for link in self.links:
            self.flush(link)

    def flush(self, link):
        try:
            link.flush()
        except OSError:
            pass  # reading will tell

    def end(self, code, rank, text, link=None):
        """11.2: a worker that loses one aggregator tells the others."""
        self.failure = (code, rank, text)
        if code in CONTINUES and self.links[0].joining.continues:
            self.stay(link, text)
            return
        self.failed = [getattr(link.joining, "failed", None) for link in self.links]
        passed_on = {"lost": "lost", "moved": "lost", "path": "lost", "stalled": "stalled", "gone": "gone",
                     "mismatch": "mismatch"}  # fmt: skip
        self.last_word("abort", code=passed_on.get(code, "aborted"), text=text)

    # ---- MEMBERS.md ----

    def stay(self, link, text):
        """This worker wants to continue; `link` has ended the membership, or is lost."""
        lost = link is not None and not hasattr(link.joining, "failed")
        if lost:
            self.left_out.add(self.places[self.links.index(link)])
        for other in self.links:
            if other is not link:
                other.joining.say("abort", code="gone" if lost else "lost", text=text)
                self.flush(other)
        self.stay_on()

    def stay_on(self):
        """All that counts from now on comes from the decider."""
        self.stays = True
        self.close(self.links[1:])
        self.links = self.links[:1]
        if 0 in self.left_out:
            self.to_door()
        else:
            self.say_stay()

    def say_stay(self):
        begun, of = self.begun
        without = sum(1 << i for i in self.left_out)
        said = {"begun": begun} if begun else {}
        self.links[0].joining.say("stay", job=self.job, rank=self.rank, of=of, without=f"{without:016x}",
                                  admit=self.admit, holds=self.holds, **said)  # fmt: skip
        self.flush(self.links[0])

    def to_door(self):
        self.left_out.discard(0)
        self.close(self.links)
        self.links, self.door = [], True

    def wait_for_next(self, now):
        """At the decider, where this worker has said `stay`, or at its door."""
        try:
            if not self.links:
                self.begin_joining([0], {})
            link = self.links[0]
            for line in link.lines():
                said = json.loads(line)
                if said["type"] == "next":
                    self.follow(said, now)
                    return
                if said["type"] == "failed" and said["code"] not in CONTINUES:
                    raise Ended(said["code"], said["rank"], said["text"])
                link.joining.heard_at = now
                if said["type"] == "hello":
                    link.joining.on_hello(said, now)
                    self.holds and self.say_stay()
            link.joining.tick(now)
            self.flush(link)
        except OSError:
            self.links = []
        except Ended as ended:
            if ended.args[0] in CONTINUES:
                self.to_door()
            else:
                self.failure, self.stays = ended.args, False

    def follow(self, said, now):
        """NEXT: to join by the decider's connection, and by new ones to the others."""
        decider, self.next = self.links[0], said
        self.job, self.rank, self.world = said["next"], said["next_rank"], said["next_world"]
        without = int(said["without"], 16)
        self.left_out = {i for i in range(len(self.aggregators)) if without >> i & 1}
        self.stays = self.door = False
        decider.joining = Joining(self.job, self.rank, self.world, on=decider.joining, **self.settings)
        decider.joining.join(now)
        decider.channels, decider.to = {}, None
        places = [i for i in range(len(self.aggregators)) if i not in self.left_out]
        self.begin_joining(places, {0: decider})

    def close(self, links):
        for link in links:
            for sock in link.sockets():
                sock.close()

    def leave(self):
        """11.4"""
        self.last_word("leave")

    def last_word(self, kind, **fields):
        for link in self.links:
            link.joining.say(kind, **fields)
            self.flush(link)
        self.close(self.links)
        self.links = []


def drive(endpoints, until, limit_s=30.0):
    """Runs them until until() holds; True if it does within the limit."""
    end = now_us() + int(limit_s * 1e6)
    while not until():
        if now_us() > end:
            return False
        for endpoint in endpoints:
            endpoint.step(now_us())
        sockets = [sock for endpoint in endpoints for link in endpoint.links for sock in link.sockets()]
        select.select(sockets, [], [], 0.0005)
    return True
