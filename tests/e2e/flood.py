# SPDX-License-Identifier: BSD-3-Clause
"""flood.py KIND PORT SECONDS [NAME=VALUE..] - what strangers and tenants may send to winnowd without end

Says "flooding" once everything is in place, and at the end what it has done. KIND `watch` floods nothing: it is a member of
another job, and says how late its pings came. NAME=VALUE: key=KEY, job=JOB (and JOB/1 .. are its own), connections=N,
members=N (of a job that is there beside the flood), http=PORT, silence=SECONDS. FLOODS, at the end, has the kinds.
"""

import json
import os
import selectors
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "protocol"))
from endpoint import Endpoint, drive, now_us  # noqa: E402
from joining import Ended  # noqa: E402
from seal import job_key  # noqa: E402
from tls import Tls  # noqa: E402

CHUNK = 1 << 20
HOUR_MS = 3600000
ENOUGH = 2000  # lines: one connection may say fewer before it is ended
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
stop = []  # not empty: SIGTERM has come


def leave_no_port(sock):
    """Behind, when it is closed."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def dial(at):
    sock = socket.create_connection(at, timeout=60)
    leave_no_port(sock)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def join(job, rank, world, **more):
    said = {"type": "join", "version": 3, "job": job, "rank": rank}
    said |= {"software": "flood", "host": "flood", "world": world, "payload": 1472, "rcvbuf": 1 << 20}
    said |= {"silence_ms": HOUR_MS, "stall_ms": HOUR_MS}
    return json.dumps(said | more).encode() + b"\n"


class Talk:
    """A control connection until HELLO, and what is said on it."""

    def __init__(self, job, key):
        self.tls, self.heard = Tls(job.split("/")[0], job_key(key)) if key else None, b""

    def carry(self, sock, data):
        """What `data` says; the handshake goes on."""
        if self.tls is None:
            return data
        self.tls.feed(data)
        said = self.tls.said()
        self.flush(sock)
        if self.tls.failed:
            raise ConnectionError("no TLS")
        return said

    def flush(self, sock):
        if self.tls and (out := self.tls.pull()):
            sock.sendall(out)

    def greeted(self, sock, data):
        """True once HELLO has come."""
        self.heard += self.carry(sock, data)
        if b"\n" in self.heard and json.loads(self.heard.split(b"\n")[0])["type"] != "hello":
            raise ConnectionError("refused")
        return b"\n" in self.heard

    def bytes(self, text):
        """As they go to the aggregator."""
        if self.tls is None:
            return text
        self.tls.say(text)
        return self.tls.pull()


def greeted(sock, job, key):
    talk = Talk(job, key)
    talk.flush(sock)
    while not talk.greeted(sock, more := sock.recv(65536)):
        if not more:
            raise ConnectionError("closed")
    return talk


# ---- members that say too much ----


class Connection:
    """One that is opened anew when it ends."""

    def __init__(self, flood, number):
        self.flood, self.number, self.socket = flood, number, None

    def watch(self, sock, events=READ):
        sock.setblocking(False)
        self.socket = sock
        self.flood.selector.register(sock, events, self)


class Stream(Connection):
    """It sends the same bytes again and again."""

    def open(self):
        sock, self.text = self.flood.kind(self.flood, self.number)
        self.at, self.piece = 0, 1 if self.flood.kind is halves else CHUNK
        self.watch(sock, READ | WRITE)

    def turn(self, events):
        """False: it has ended."""
        if events & READ and not self.flood.hear(self.socket):
            return False
        if events & WRITE:
            sent = self.socket.send(self.text[self.at : self.at + self.piece])
            self.flood.sent += sent
            self.at = (self.at + sent) % len(self.text)
        return True


def repeated(line):
    return line * (65536 // len(line) + 1)


def forming(flood, number):
    """A member of a job that never comes together."""
    sock = dial(flood.at)
    talk = greeted(sock, flood.job, flood.key)
    sock.sendall(talk.bytes(join(flood.job, number, flood.connections + 1)))
    return sock, talk


def pings(flood, number):
    """Pings that are right."""
    sock, talk = forming(flood, number)
    line = b'{"type":"ping"}\n'
    return sock, talk.bytes(line * ENOUGH) if flood.key else repeated(line)


def wrong(flood, number):
    """Records that TLS has not made."""
    return forming(flood, number)[0], repeated(b"\x17\x03\x03\x00\x20" + b"x" * 32)


def empty(flood, number):
    """Handshakes that consist of records without end, and never say anything."""
    return dial(flood.at), repeated(b"\x16\x03\x01\x00\x01\x01")


def halves(flood, number):
    """A line that comes byte by byte, and does not end."""
    return forming(flood, number)[0], b"x" * CHUNK


def huge(flood, number):
    """Lines that are too long."""
    return forming(flood, number)[0], b"x" * CHUNK


def member(flood, job, rank, world):
    """A worker of a job that starts."""
    made = Endpoint([flood.at], job, rank, world, key=flood.key, payload=1472, multicast=False, silence_ms=HOUR_MS, stall_ms=HOUR_MS)
    leave_no_port(made.links[0].tcp)
    return made


def started(flood, job, world):
    members = [member(flood, job, rank, world) for rank in range(world)]
    if not drive(members, lambda: all(one.worker for one in members), 60):
        raise ConnectionError(f"job {job} does not start")
    return members


class Starts(Connection):
    """Jobs of one worker that start and end at once."""

    def open(self):
        self.flood.opened += 1
        self.member = member(self.flood, f"{self.flood.job}/{self.flood.opened}", 0, 1)

    def turn(self, _):
        self.member.step(now_us())
        if not self.member.worker and not self.member.failure:
            return True
        self.member.leave()
        return False


# ---- connections that come and go ----


class Visits(Connection):
    """It hears HELLO, says something, and ends when it has had an answer."""

    def open(self):
        self.watch(dial(self.flood.at))
        self.flood.opened += 1
        self.said = False
        self.job, key, self.join = self.flood.kind(self.flood) if self.flood.kind else ("flood", None, None)
        self.talk = Talk(self.job, key)
        self.talk.flush(self.socket)

    def turn(self, _):
        heard = self.flood.hear(self.socket)
        if not heard or self.said or not self.join:
            return False
        if self.talk.greeted(self.socket, heard):
            self.socket.sendall(self.talk.bytes(self.join))
            self.said = True
        return True


def joins(flood):
    """The first worker of a job that nobody else joins."""
    flood.count += 1
    job = f"{flood.job}/{flood.count}"
    return job, flood.key, join(job, 0, 2)


def strangers(flood):
    """A handshake with a wrong key."""
    return flood.job, "f" * 64, join(flood.job, 0, 2)


def passphrases(flood):
    """A handshake for one of many jobs, team0 .., whose keys are texts that winnowd has to stretch first."""
    flood.count += 1
    job = f"team{flood.count % flood.connections}"
    return job, "f" * 64, join(job, 0, 2)


def newcomers(flood):
    """A newcomer at the door of a job of its own, and all its members are told; it goes when it is pinged."""
    return flood.job, flood.key, join(flood.job, 0, 0, silence_ms=200)


class Halves(Connection):
    """A handshake that is never finished, or is none: held until winnowd ends it."""

    def open(self):
        hello = Tls("flood", b"f" * 32).pull()
        self.watch(dial(self.flood.at))
        self.flood.opened += 1
        texts = hello, hello[:50], hello[:5] + os.urandom(len(hello) - 5), b"\x16\x03\x01\xff\xff" + os.urandom(3000)
        self.socket.send(texts[self.number % 4])

    def turn(self, _):
        return bool(self.flood.hear(self.socket))


# ---- HTTP ----


class Client(Connection):
    """It asks again as soon as it has its answer, on the same connection where that may stay."""

    def open(self):
        self.watch(dial(("127.0.0.1", self.flood.http)))
        self.again()

    def again(self):
        self.left, self.head = None, b""
        self.socket.send(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % (b"/metrics" if self.number % 4 == 0 else b"/status"))

    def turn(self, _):
        data = self.flood.hear(self.socket)
        if not data:
            return False
        if self.left is None:
            self.head += data
            if b"\r\n\r\n" not in self.head:
                return True
            head, data = self.head.split(b"\r\n\r\n", 1)
            lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
            self.left = int(lengths[0])
        self.left -= len(data)
        if self.left <= 0:
            self.flood.opened += 1
            self.again()
        return True


class Probes(Connection):
    """A new connection for each /healthz."""

    def open(self):
        self.watch(dial(("127.0.0.1", self.flood.http)))
        self.flood.opened += 1
        self.socket.send(b"GET /healthz HTTP/1.0\r\n\r\n")

    def turn(self, _):
        self.flood.hear(self.socket)
        return False


# ---- all ----

FLOODS = {
    "pings": (Stream, pings, 60),
    "secured": (Stream, pings, 60),
    "wrong": (Stream, wrong, 400),
    "halves": (Stream, halves, 200),
    "huge": (Stream, huge, 60),
    "starts": (Starts, None, 8),
    "connects": (Visits, None, 64),
    "joins": (Visits, joins, 200),
    "strangers": (Visits, strangers, 64),
    "passphrases": (Visits, passphrases, 400),
    "handshakes": (Halves, None, 400),
    "empty": (Stream, empty, 60),
    "newcomers": (Visits, newcomers, 64),
    "http": (Client, None, 128),
    "probes": (Probes, None, 64),
}


class Flood:
    def __init__(self, name, port, seconds, values):
        self.make, self.kind, connections = FLOODS[name]
        self.at, self.seconds = ("127.0.0.1", int(port)), float(seconds)
        self.key, self.job = values.get("key"), values.get("job", "flood")
        self.connections, self.http = int(values.get("connections", connections)), int(values.get("http", 0))
        self.selector = selectors.DefaultSelector()
        self.sent = self.heard = self.opened = self.ended = self.count = 0
        members = int(values.get("members", 0))
        if name == "newcomers":
            self.held = started(self, self.job + "/0", members)
        elif name == "http":
            clients, self.connections = self.connections, members
            self.held = [forming(self, rank) for rank in range(members)]
            self.connections = clients

    def hear(self, sock):
        """What has come; b"": it has ended."""
        heard = sock.recv(CHUNK)
        self.heard += len(heard)
        return heard

    def turn(self, one, events):
        """It may end, and begins anew."""
        try:
            if one.turn(events):
                return
        except BlockingIOError:
            return
        except (OSError, ValueError, Ended):
            pass
        self.ended += 1
        self.close(one)
        self.begin(one)

    def close(self, one):
        if one.socket:
            self.selector.unregister(one.socket)
            one.socket.close()
            one.socket = None

    def begin(self, one):
        """Where there is no room now, there may be some later."""
        try:
            one.open()
        except (OSError, Ended):
            self.close(one)
            self.later.append(one)

    def run(self):
        self.later = []
        all = [self.make(self, number) for number in range(self.connections)]
        for one in all:
            self.begin(one)
        print("flooding", flush=True)
        until = time.monotonic() + self.seconds
        while not stop and time.monotonic() < until:
            ready = [(one, 0) for one in all] if self.make is Starts else []
            ready += [(key.data, events) for key, events in self.selector.select(0 if ready else 0.1)]
            for one, events in ready:
                self.turn(one, events)
            later, self.later = self.later[:16], self.later[16:]
            for one in later:
                self.begin(one)
        print(f"sent {self.sent} bytes, heard {self.heard}; {self.opened} visits or answers, {self.ended} connections ended", flush=True)


def watch(port, seconds, values):
    """The pings of a member of a job that forms, which are due every quarter of its silence time."""
    quarter = float(values["silence"]) / 4
    sock = dial(("127.0.0.1", int(port)))
    talk = greeted(sock, values["job"], values.get("key"))
    sock.sendall(talk.bytes(join(values["job"], 0, 2, silence_ms=int(quarter * 4000))))
    print("flooding", flush=True)
    begun = last = said = looked = time.monotonic()
    late = count = 0
    sock.settimeout(0.02)
    while not stop and time.monotonic() - begun < float(seconds):
        if time.monotonic() - looked > 0.1:  # what has kept this process from a CPU has kept winnowd's ping from nobody
            last += time.monotonic() - looked
        looked = time.monotonic()
        if time.monotonic() - said > quarter:
            sock.sendall(talk.bytes(b'{"type":"ping"}\n'))
            said += quarter
        try:
            heard = sock.recv(65536)
        except socket.timeout:
            continue
        if not heard:
            sys.exit("the connection has ended")
        count += 1
        late = max(late, time.monotonic() - last - quarter)
        last = time.monotonic()
    late = max(late, time.monotonic() - last - quarter)
    print(f"{count} pings, late by {late * 1000:.0f} ms at the most", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    named = dict(word.split("=", 1) for word in sys.argv[4:])
    if sys.argv[1] == "watch":
        watch(sys.argv[2], sys.argv[3], named)
    else:
        Flood(*sys.argv[1:4], named).run()
