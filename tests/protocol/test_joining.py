# SPDX-License-Identifier: BSD-3-Clause
"""Joining (PROTOCOL.md 5): keys, refusals, and what no worker of ours would say."""

import json
import os
import socket
import unittest

import numpy as np

from endpoint import Endpoint
from seal import job_key
from tls import Tls
from team import KEY, KEYED, OPEN, Team, outcome

JOIN = {"type": "join", "version": 3, "software": "raw", "job": "raw", "host": "raw",
        "rank": 0, "world": 1, "payload": 1472, "rcvbuf": 1 << 20, "silence_ms": 1000, "stall_ms": 1000}  # fmt: skip


class Raw:
    """A connection that says what it is told to."""

    def __init__(self, at=OPEN[0]):
        self.socket = socket.create_connection(at, timeout=10)
        self.file = self.socket.makefile("rb")
        self.hello = self.hear() if at != KEYED else None

    def say(self, said):
        self.socket.sendall(said if isinstance(said, bytes) else json.dumps(said).encode() + b"\n")

    def hear(self):
        """The next line that is no ping; None at the end."""
        for line in self.file:
            said = json.loads(line)
            if said["type"] != "ping":
                return said
        return None

    def answer(self, said):
        self.say(said)
        answer = self.hear()
        if answer and answer["type"] == "failed":
            assert self.hear() is None, "the connection goes on"
        self.close()
        return answer

    def close(self):
        self.file.close()
        self.socket.close()


class Refusals(unittest.TestCase):
    def refused(self, code, changes, text="", at=OPEN[0]):
        answer = Raw(at).answer({**JOIN, **changes})
        self.assertEqual(answer["type"], "failed", answer)
        self.assertEqual(answer["code"], code, answer)
        self.assertIn(text, answer["text"])

    def test_hello(self):
        raw = Raw()
        self.assertEqual((raw.hello["type"], raw.hello["version"]), ("hello", 3))
        raw.close()

    def test_impossible_fields(self):
        """5.1: each is refused, and the line names the field."""
        out = {"silence_ms": (99, 86400001, -1, "1000", None, 1e3, True), "stall_ms": (99, 864000001), "rank": (-1, 2**32, "0"),
               "world": (-1, 2**32, []), "payload": (-1, None), "rcvbuf": (-1, 2**32), "version": ("1", None),
               "job": ("", "a" * 65, "a/", "/b", "a/b/c", "ü", 7),
               "host": (None, 5), "software": (None,)}  # fmt: skip
        for field, values in out.items():
            for value in values:
                with self.subTest(field=field, value=value):
                    self.refused("protocol", {field: value}, f"'{field}'")
            with self.subTest(missing=field):
                answer = Raw().answer({key: value for key, value in JOIN.items() if key != field})
                self.assertEqual(answer["code"], "protocol")
                self.assertIn(f"'{field}'", answer["text"])

    def test_impossible_workers(self):
        self.refused("version", {"version": 2})
        self.refused("rank", {"rank": 1})
        self.refused("world", {"world": 0, "payload": 100})
        self.refused("world", {"world": 0, "job": "name/1"})
        self.refused("world", {"world": 5000})
        self.refused("payload", {"payload": 583})

    def test_no_messages(self):
        for line in (b"\n", b"{}\n", b"[]\n", b"null\n", b"GET / HTTP/1.1\r\n", b'{"type":"hello"}\n', b'{"type":"jion"}\n',
                     b'{"type":"ready","payload":584,"multicast":false}\n', b'{"type":"leave"}\n', b"{" * 9000, b"\0\n"):  # fmt: skip
            with self.subTest(line[:20]):
                self.assertEqual(Raw().answer(line)["code"], "protocol")

    def test_limits_are_possible(self):
        """What the table of 5.1 allows is let in; unknown fields are ignored; a line may have 8191 bytes."""
        for i, changes in enumerate(({"silence_ms": 100, "stall_ms": 100}, {"silence_ms": 86400000, "stall_ms": 864000000},
                                     {"payload": 65000}, {"rcvbuf": 0}, {"rcvbuf": 2**32 - 1}, {"job": "aZ0._-" + "b" * 58}, {"job": "name/aZ0._-"},
                                     {"host": "", "software": "x" * 64}, {"other": {"a": [1]}})):  # fmt: skip
            with self.subTest(changes=changes):
                answer = Raw().answer({**JOIN, "job": f"limits-{i}", **changes})
                self.assertEqual(answer["type"], "welcome", answer)
        line = json.dumps({**JOIN, "job": "limits-line", "pad": ""}).encode()
        line = line.replace(b'"pad": ""', b'"pad": "' + b"x" * (8190 - len(line)) + b'"') + b"\n"
        self.assertEqual(len(line), 8191)
        self.assertEqual(Raw().answer(line)["type"], "welcome")
        self.assertEqual(Raw().answer(line.replace(b'"x', b'"xx'))["code"], "protocol")

    def test_welcome(self):
        """5.1: its fields have the types and ranges of the table."""
        said = Raw().answer({**JOIN, "job": "welcome"})
        whole = lambda low, high: lambda value: type(value) is int and low <= value <= high
        hexes = (
            lambda digits: lambda value: len(value) == digits
            and value == value.lower()
            and int(value, 16) >= 0
        )
        table = {"seed": hexes(64), "token": hexes(16), "group_token": hexes(16), "payload": whole(584, 1472),
                 "silence_ms": whole(1000, 1000), "stall_ms": whole(1000, 1000), "op_slots": whole(1, 1024), "segments_ahead": whole(1, 64), "first_frame": whole(0, 2**32 - 1),
                 "group": lambda value: value.startswith("239.") and whole(1, 65535)(int(value.split(":")[1])), "data_address": lambda value: value == "",
                 "window": lambda value: 4 <= value <= 8192 and value & (value - 1) == 0,
                 "channels": lambda value: 1 <= len(value) <= 64 and all(map(whole(0, 65535), value))}  # fmt: skip
        for field, holds in table.items():
            self.assertTrue(holds(said[field]), (field, said[field]))
        self.assertEqual(int(said["seed"], 16), 0)
        self.assertNotEqual(int(said["token"], 16), 0)

    def test_window_fits_the_buffer(self):
        """5.1: every datagram has twice its payload's room in the smallest receive buffer."""
        for rcvbuf, payload in ((212992, 8972), (1 << 20, 1472), (100000, 584), (0, 584)):
            said = Raw().answer({**JOIN, "job": f"window-{rcvbuf}", "rcvbuf": rcvbuf, "payload": payload})
            fits = rcvbuf // (2 * payload)
            self.assertEqual(said["window"], max(4, 1 << fits.bit_length() - 1 if fits else 4))


class Members(unittest.TestCase):
    """5.4, and what ends a job that comes together."""

    def test_second_of_a_rank(self):
        with Team(1, job="members"):
            codes = [Raw().answer({**JOIN, "job": "members", "world": world})["code"] for world in (1, 2)]
            self.assertEqual(codes, ["rank", "world"])

    def test_impossible_ready(self):
        """A payload that was not offered ends the job; both are told why."""
        for changes in ({"payload": 583}, {"payload": 1473}, {"payload": "584"}, {"multicast": 1}):
            with self.subTest(changes=changes):
                first, second = Raw(), Raw()
                for rank, raw in enumerate((first, second)):
                    raw.say({**JOIN, "job": "ready", "world": 2, "rank": rank, "silence_ms": 60000})
                for raw in (first, second):
                    self.assertEqual(raw.hear()["type"], "welcome")
                first.say({"type": "ready", "payload": 584, "multicast": False, **changes})
                for raw in (first, second):
                    failed = raw.hear()
                    self.assertEqual((failed["code"], failed["rank"]), ("lost", 0))
                    self.assertIn("not a message", failed["text"])
                self.assertIsNone(first.hear())
                first.close(), second.close()


class Keys(unittest.TestCase):
    def test_right(self):
        with Team(2, at=[KEYED]) as team:
            ops = [worker.submit(np.ones(9, dtype="<f4")) for worker in team.workers]
            team.until(lambda: all(op.done for op in ops), 10)

    def test_membership(self):
        """MEMBERS.md 1: a membership has the key of its job, and others of the job beside it."""
        for other in ("1", "2"):
            with Team(2, at=[KEYED], job=f"members-{os.getpid()}/{other}") as team:
                with Team(3, at=[KEYED], job=f"members-{os.getpid()}/beside-{other}") as beside:
                    for each in (team, beside):
                        ops = [worker.submit(np.ones(9, dtype="<f4")) for worker in each.workers]
                        each.until(lambda: all(op.done for op in ops), 10)
                first, *others = team.workers
                first.last_word("abort", code="moved", text="it has gone on")
                team.workers = others
                self.assertEqual([(code, rank) for code, rank, _ in outcome(others)], [("moved", 0)])
        self.assertEqual(Raw(KEYED).answer({**JOIN, "job": f"members-{os.getpid()}/3"})["code"], "key")

    def test_wrong(self):
        worker = Endpoint([KEYED], "keys", 0, 1, key=KEY + "!")
        self.assertEqual([code for code, _, _ in outcome([worker])], ["key"])

    def test_none_where_one_is_wanted(self):
        answer = Raw(KEYED).answer(JOIN)
        self.assertEqual(answer["code"], "key")

    def test_one_where_none_is_wanted(self):
        """The worker itself refuses an aggregator that speaks no TLS."""
        worker = Endpoint([OPEN[0]], "keys", 0, 1, key=KEY)
        self.assertEqual(outcome([worker])[0][2], "the aggregator has no key")

    def handshake(self, identity, key):
        """A connection that has shaken hands, or None."""
        raw, tls = Raw(KEYED), Tls(identity, job_key(key))
        while not tls.ready() and not tls.failed:
            raw.socket.sendall(tls.pull())
            if tls.ready():
                break
            tls.feed(raw.socket.recv(65536))
            tls.said()
        raw.socket.sendall(tls.pull())
        return (raw, tls) if tls.ready() else raw.close()

    def test_identity(self):
        """5.2: the name that has been proved is the one that is joined, in whichever membership."""
        self.assertIsNone(self.handshake("parts", KEY + "!"))
        self.assertIsNone(self.handshake("a/b/c", KEY))
        for job, what in (("parts", "welcome"), ("parts/7", "welcome"), ("other", "key"), ("part", "key")):
            raw, tls = self.handshake("parts", KEY)
            tls.say(json.dumps({**JOIN, "job": job}).encode() + b"\n")
            raw.socket.sendall(tls.pull())
            said = b""
            while said.count(b"\n") < 2:
                tls.feed(raw.socket.recv(65536))
                said += tls.said()
            hello, answer = (json.loads(line) for line in said.splitlines())
            self.assertEqual(hello["type"], "hello")
            self.assertEqual(answer.get("code", answer["type"]), what)
            raw.close()


if __name__ == "__main__":
    unittest.main()
