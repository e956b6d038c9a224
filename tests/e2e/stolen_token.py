# SPDX-License-Identifier: BSD-3-Clause
"""stolen_token.py PORT - a job of one worker, and somebody who has read its token: what does winnowd answer, and to whom?

The worker's control connection is this program's; datagrams come from `home`, and from `away`, which is the
stranger's address. Written from PROTOCOL.md; needs an aggregator without a key.
"""
import itertools
import json
import select
import socket
import struct
import sys

STATUS, KNOCK, STATUS_BACK, KNOCKED = 3, 4, 0x83, 0x84
counts = itertools.count(1)
server = ("127.0.0.1", int(sys.argv[1]))
control = socket.create_connection(server)
lines = control.makefile("rw", newline="\n")


def say(**message):
    lines.write(json.dumps(message) + "\n")
    lines.flush()


def hear(kind):
    while True:
        message = json.loads(lines.readline())
        if message["type"] == kind:
            return message
        assert message["type"] == "ping", message


def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(server)
    return s


def knock(s, number=0, size=32):
    s.send(struct.pack("<HBBHHQIIQ", 0x4E57, 3, KNOCK, channel, 0, token, next(counts), first, number).ljust(size, b"\0"))


def ask(s):
    """2.5"""
    s.send(struct.pack("<HBBHHQIIHHIIB11x", 0x4E57, 3, STATUS, channel, 0, token, 0, first, 300, 0, first, 1, 1))


def answer(s):
    """The kind of what comes back within a second; None: nothing does."""
    if not select.select([s], [], [], 1)[0]:
        return None
    return s.recv(65536)[3]


def asked(s):
    """A KNOCKED that has the number which the next KNOCK must carry, and not a byte more: that number."""
    datagram = s.recv(65536) if select.select([s], [], [], 1)[0] else bytes(32)
    number = int.from_bytes(datagram[24:32], "little")
    if datagram[3] != KNOCKED or len(datagram) != 32 or number == 0:
        sys.exit(f"asked for a number: {datagram[:40]!r}, of {len(datagram)} bytes")
    return number


def noted(s, size=32):
    """A KNOCKED that asks for nothing, of the KNOCK's size."""
    datagram = s.recv(65536) if select.select([s], [], [], 1)[0] else b""
    if datagram[3:4] != bytes([KNOCKED]) or len(datagram) != size or any(datagram[24:32]):
        sys.exit(f"noted: {datagram[:40]!r}, of {len(datagram)} bytes")


def expect(what, got, want):
    if got != want:
        sys.exit(f"{what}: {got}, want {want}")


hear("hello")
say(type="join", version=3, software="stranger", job="stranger", host="here",
    rank=0, world=1, payload=1472, rcvbuf=1 << 20,
    silence_ms=60000, stall_ms=60000)
welcome = hear("welcome")
channel, token, first = welcome["channels"][0], int(welcome["token"], 16), welcome["first_frame"]
home, away = udp(), udp()
# An address is noted only once somebody there has heard us; what it draws before is small.
knock(home, size=1472)
shown = asked(home)
knock(away, size=1472)
if asked(away) == shown:
    sys.exit("two addresses have the same number")
knock(away, shown, 1472)
asked(away)
knock(home, shown, 1472)
noted(home, 1472)
say(type="ready", payload=1472, multicast=False)
hear("start")

ask(home)
expect("STATUS from home", answer(home), STATUS_BACK)
for number in (0, 1, 0xFFFFFFFFFFFFFFFF):
    knock(away, number, 1472)
expect("KNOCK with the token alone", answer(away), None)
ask(away)
expect("STATUS from elsewhere", answer(away), None)
ask(home)
expect("STATUS from home after a stranger's KNOCK", answer(home), STATUS_BACK)

say(type="leave")
print("ok")
